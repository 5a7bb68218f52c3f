"""What comes over the connections of one stream: they are opened, and what they bring becomes batches."""

from __future__ import annotations

import collections
import copy
import functools
import os
import threading
from typing import TYPE_CHECKING, Any, Final

from bowstring.client.connection.assembler import Assembled, Assembler
from bowstring.client.connection.device import DeviceHandshake, announce
from bowstring.client.connection.keeper import Patience
from bowstring.client.connection.remote import RemoteMemory, cuda_token
from bowstring.client.connection.runs import PointedPairs
from bowstring.client.connection.wire import Wire, open_wires
from bowstring.client.stream import Counters
from bowstring.dissociated.events import (
    Announced,
    Asked,
    Awaited,
    End,
    Event,
    Failed,
    Forgotten,
    Part,
    PartitionBegun,
    Stopped,
    Welcomed,
)
from bowstring.dissociated.position import version_of
from bowstring.dissociated.reader import Handshake, Phase, ReaderProtocol
from bowstring.dissociated.tags import PACKED, POINTERS
from bowstring.dissociated.wire import PREFIX_BYTES
from bowstring.errors import (
    BowstringError,
    ForkedError,
    ProtocolError,
)
from bowstring.ipc.compression.device.decompress import DeviceBodies
from bowstring.memory import mappings
from bowstring.memory.devices import device_by_name
from bowstring.transport.descriptors import close_all
from bowstring.transport.loop import RingingQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bowstring.client.connection.runs import Run
    from bowstring.client.connection.wire import Received
    from bowstring.client.reading import Reading
    from bowstring.columnar.batch import Batch
    from bowstring.dissociated.endpoint import Endpoint
    from bowstring.dissociated.partitions import PartitionTicket
    from bowstring.dissociated.wire import Welcome
    from bowstring.memory import Region


# Messages that cannot be taken together are hardly followed by others that can.
_TRIES: Final = 3


class Incoming:
    """One stream as it comes in, over one or two channels. Batches, protocol and assembler change under `lock`."""

    def __init__(
        self, endpoint: Endpoint, reading: Reading, partitions: Sequence[PartitionTicket] = ()
    ) -> None:
        # First of all: what follows here is done while the server makes its answer.
        opened = open_wires(endpoint, reading, partitions)
        self._wires, last = opened.wires, opened.locations[-1]
        hello, limits, device = reading.hello, reading.limits, reading.device
        self._passed_over = f"; not taken: {opened.passed_over}" if opened.passed_over else ""
        self.endpoint = endpoint
        self.limits = limits
        self._timeout = reading.timeout
        self.follows = hello.follows
        self._shard = hello.shard
        self.counters = Counters()
        # Only processes of this user can have written what comes over connections that know their peer.
        self.trusted = self._wires[0].channel.authenticated and self._wires[-1].channel.authenticated
        self.bodies: DeviceBodies | None = None
        if device is not None and not device.is_host:
            self.bodies = DeviceBodies(device, reading.copies.allocator(), trusted=self.trusted)
        self.welcome: Welcome | None = None
        self.closed = False  # the user asked for nothing more
        self.extended = last.hello is not None
        self._pid = os.getpid()
        # Entered without Python code, behind which an interrupt would leave it locked, and with it the loop.
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)  # noqa: TID251  only that lock is entered
        self._wakes: list[Callable[[], object]] = []  # of tasks that await something, each once
        self._notes = RingingQueue()
        self.patience = Patience.of(limits.lease_timeout, limits.heartbeat)
        self._streams = streams = reading.streams
        self._protocol = protocol = ReaderProtocol(
            limits,
            extended=self.extended,
            one_connection=len(self._wires) == 1,
            ordered=self._wires[0].channel.ordered and self._wires[-1].channel.ordered,
            window=hello.window if self.extended else None,
            events=bool(streams),
            free_data=last.free_data,
            partitions=[number for number, _ in partitions] if partitions else None,
            follows=hello.follows,
        )
        for wire in self._wires:
            wire.expect = protocol.sequence.expect
            if self.bodies is not None and wire.channel.reaches(self.bodies.device):
                wire.device_memory = self.bodies.allocator
        # Then regions of the host are mapped copy-on-write: not where they are still written to behind a batch.
        private = reading.private is not None and not hello.follows
        wire = self._wires[-1]
        reads = wire.channel.passes_memory == "rkey"
        allocation = self._allocation_of(wire, last.remote_handle) if reads else None
        remote = RemoteMemory(wire, last.remote_handle, limits) if reads and allocation is None else None
        self._assembler = Assembler(
            limits, protocol, self._notes, self.bodies, private=private, remote=remote, allocation=allocation
        )
        self._batches: collections.deque[Assembled] = collections.deque()

    @functools.cached_property
    def _device(self) -> DeviceHandshake:
        return DeviceHandshake(self._assembler, self._protocol, self._streams, self.limits.device_timeout)

    def _allocation_of(self, wire: Wire, handle: bytes | None) -> Callable[[], Region] | None:
        """Return what opens the memory of a CUDA IPC handle in a server's URI, if there is one."""
        token = None if handle is None or wire.channel.reads_with(handle) else cuda_token(handle)
        if token is None:
            return None
        device = None if self.bodies is None else self.bodies.device
        return lambda: mappings().open_token(token, device or device_by_name("cuda"))

    def take_beginning(self, wire: Wire, seconds: float) -> bool:
        """Process the beginning of an ordinary answer, if that is what comes, and what lies behind it."""
        received = wire.receive_beginning(seconds)
        if received is None:
            return False
        begun, decoded, descriptors = received
        with self.lock:
            protocol, assembler = self._protocol, self._assembler
            self.welcome = welcome = begun.welcome
            if welcome.patience is not None:
                self.patience = Patience.of(welcome.patience, self.limits.heartbeat)
            protocol.begin_answered(welcome)
            try:
                for base, handle in begun.regions if protocol.error is None else ():
                    self.counters.regions += 1
                    event = Announced(base, handle, descriptors.popleft())
                    self.counters.cached_regions += assembler.announce(event)
            except BowstringError as error:
                protocol.fail(copy.copy(error))
                raise
            finally:
                close_all(descriptors)
            assembler.begin(decoded.schema, decoded.layout)
        taken = self.take_pairs(begun.following)
        if taken < len(begun.following):
            self.hear_all(begun.following[taken:])
        return True

    def hear(self, tag: int | None, body: Any, attachments: tuple[Any, ...]) -> None:
        with self.lock:
            try:
                events = self._protocol.receive(tag, body, attachments)
                if attachments and not any(isinstance(event, Announced) for event in events):
                    raise ProtocolError("only a region has an attachment", found=f"tag {tag}")
            except BaseException:
                close_all(attachments)
                raise
            try:
                for event in events:
                    self._take(event)
            except BowstringError as error:
                # At once: what another connection brings must not complete the stream without this.
                self._protocol.fail(copy.copy(error))
                raise
            if (lost := self._protocol.lost_body) is not None:
                raise copy.copy(lost)

    def hear_all(self, held: Sequence[Received]) -> None:
        at, tries = 0, _TRIES
        try:
            while at < len(held):
                may_be_pairs = tries > 0 and held[at][0] is None
                taken = self.take_pairs(held[at:]) if may_be_pairs else 0
                if taken:
                    at += taken
                    continue
                tries -= may_be_pairs
                pair = 2 if held[at][0] is None else 1
                for each in held[at : at + pair]:
                    self.hear(*each)
                at += pair
        except BaseException:  # nobody will hear of the rest
            for _, _, attachments in held[at:]:
                close_all(attachments)
            raise

    def take_run(self, run: Run) -> int:
        """Take the first batches of a run together, those that are valid; return how many."""
        with self.lock:
            protocol = self._protocol
            prefixes = run.messages[:, :PREFIX_BYTES].tobytes()
            is_next = protocol.foreseen(prefixes, run.tags.tolist(), PACKED)
            taken = self._assembler.take_run(run) if is_next else []
            if taken:
                protocol.take([each.cost for each in taken])
                self._batches.extend(taken)
            return len(taken)

    def take_pairs(self, held: Sequence[Received]) -> int:
        """Take the first messages together, those that are surely right; return how many."""
        with self.lock:
            protocol = self._protocol
            pairs = PointedPairs.of(held)
            is_next = bool(pairs.tags) and protocol.foreseen(pairs.prefixes, pairs.tags, POINTERS)
            taken = self._assembler.take_pairs(pairs) if is_next else []
            if not taken:
                return 0
            count = 2 * len(taken)
            tag, message, beside = held[count] if count < len(held) else (None, None, ())
            ends = protocol.take_pointed(len(taken), message if tag is None and not beside else None)
            self._batches.extend(taken)
            if ends:
                self._assembler.finish()
            return count + ends

    def _take(self, event: Event) -> None:
        protocol = self._protocol
        match event:
            case Part() if protocol.error is None:
                assembled = self._assembler.take(event)
                if assembled is not None:
                    protocol.arrived([assembled.cost])
                    self._batches.append(assembled)
            case PartitionBegun():
                self._assembler.begin_partition()
            case Announced() if protocol.error is not None:
                close_all((event.attachment,))
            case Announced():
                self.counters.regions += 1
                self.counters.cached_regions += announce(self._assembler, protocol, event)
            case Forgotten():
                self._assembler.forget_regions()
            case Awaited(event=handle):
                self._device.await_event(handle)
            case Welcomed(welcome=welcome):
                protocol.begin()
                self.welcome = welcome
                if welcome.patience is not None:
                    self.patience = Patience.of(welcome.patience, self.limits.heartbeat)
            case Asked(devices=devices):
                self._wires[-1].send(self._device.answer(devices), self.limits.stall_timeout)
            case Failed() | End() | Stopped():
                # The connection stays: what the user holds can still be freed over it.
                self._assembler.finish()

    def peek(self) -> Batch | None:
        """Return the next batch if it is there already, on the host; it stays the next one."""
        with self.lock:
            first = self._batches[0] if self._batches and not self.closed else None
            is_there = first is not None and first.awaited is None and first.batch.device.is_host
            return first.batch if is_there and first is not None else None

    def discard(self) -> None:
        """Drop batches that will not be asked for."""
        with self.lock:
            if not self.closed:
                self.closed = True
                self._protocol.close(nothing_left=not self._batches)
                self._batches.clear()
                if self._protocol.quiet:  # what is still on its way needs the dictionaries
                    self._assembler.finish()
                self.wake()

    def wake(self) -> None:
        with self.lock:
            self._changed.notify_all()
            if self._wakes:
                wakes, self._wakes = self._wakes, []
                for wake in wakes:
                    wake()

    def check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError(
                "the stream belongs to the parent process",
                hint="Call connect() in the child. Batches that were there before the fork stay true.",
            )

    @property
    def opened(self) -> bool:
        welcomed = self._protocol.handshake is Handshake.WELCOMED
        return self._assembler.schema is not None and welcomed

    @property
    def _complete(self) -> bool:
        return self._protocol.phase is Phase.COMPLETE

    @property
    def partition(self) -> int | None:
        """The number of the partition that the user is in, where it is known."""
        partitions = self._protocol.partitions
        return None if partitions is None or not self.opened else partitions.current

    @property
    def begins(self) -> tuple[str, int] | None:
        """The version of the data set, and the index in it of the first batch; ``None`` for other streams."""
        welcome = self.welcome
        is_whole = self._shard is None and self._protocol.partitions is None
        if welcome is None or not is_whole or (welcome.num_batches is None and not self.follows):
            return None
        version = version_of(welcome.ticket)
        return None if version is None else (version, welcome.begins or 0)

    @property
    def path(self) -> tuple[str, str]:
        channel = self._wires[-1].channel
        means = f"; by {channel.means}" if channel.means else ""
        if self.welcome is not None:
            return self.welcome.path, self.welcome.why + means + self._passed_over
        plain = "the server knows only the plain protocol"
        return f"{channel.scheme}: {self._assembler.way}", plain + means + self._passed_over

    @property
    def peer(self) -> str:
        return str(self._wires[-1].channel)
