"""What comes over the connections of one stream: they are opened, and what they bring becomes batches."""

from __future__ import annotations

import collections
import copy
import itertools
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.client.connection.assembler import Assembled, Assembler
from bowstring.client.connection.device import why_not_here
from bowstring.client.connection.keeper import Patience
from bowstring.client.connection.remote import RemoteMemory
from bowstring.client.connection.wire import MOST_AT_ONCE, Wire, open_wires
from bowstring.client.stream import Counters
from bowstring.dissociated import events
from bowstring.dissociated.opening import Beginning
from bowstring.dissociated.position import version_of
from bowstring.dissociated.reader import Handshake, Phase, ReaderProtocol, in_words
from bowstring.dissociated.tags import PACKED, POINTERS, TYPE_SHIFT
from bowstring.dissociated.wire import PREFIX_BYTES, ROW_BYTES, Welcome
from bowstring.errors import (
    BowstringError,
    ForkedError,
    InvalidRegion,
    NotOnDevice,
    ProtocolError,
    without_frames,
)
from bowstring.ipc.compression.device.decompress import DeviceBodies
from bowstring.ipc.flatbuf.schema import decode_schema_message
from bowstring.memory import EventHandle, OpenedEvent, mappings
from bowstring.memory.devices import device_by_name
from bowstring.memory.handle import IPC_TOKEN_BYTES
from bowstring.transport.descriptors import close_all
from bowstring.transport.framing import whole_messages
from bowstring.transport.loop import RingingQueue
from bowstring.transport.sockets import StreamChannel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bowstring.client.connection.wire import Received
    from bowstring.client.reading import Reading
    from bowstring.columnar.batch import Batch
    from bowstring.dissociated.endpoint import Endpoint
    from bowstring.dissociated.partitions import PartitionTicket
    from bowstring.memory import Region

# Messages that cannot be taken together are hardly followed by others that can.
_TRIES: Final = 3
_SIZE_BYTES: Final = 8


class Incoming:
    """One stream as it comes in, over one or two channels. Batches, protocol and assembler change under `lock`."""

    def __init__(
        self, endpoint: Endpoint, reading: Reading, partitions: Sequence[PartitionTicket] = ()
    ) -> None:
        # First of all: what follows here is done while the server makes its answer.
        self._wires, last, passed_over = open_wires(endpoint, reading, partitions)
        hello, limits, device = reading.hello, reading.limits, reading.device
        self._passed_over = f"; not taken: {passed_over}" if passed_over else ""
        self.endpoint = endpoint
        self.limits = limits
        self._timeout = reading.timeout
        self.follows = hello.follows
        self._shard = hello.shard
        self.counters = Counters()
        wire = self._wires[-1]
        # Only processes of this user can have written what comes over connections that know their peer.
        self.trusted = self._wires[0].channel.authenticated and wire.channel.authenticated
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
        self._notes = RingingQueue()  # what leases held that ended, or lists of what nothing reads any more
        self.patience = Patience(limits.lease_timeout, limits.heartbeat)
        self._streams = reading.streams
        self._held_back: set[int] = set()  # streams that wait for the producer's work
        self._protocol = protocol = ReaderProtocol(
            limits,
            extended=self.extended,
            one_connection=len(self._wires) == 1,
            ordered=self._wires[0].channel.ordered and wire.channel.ordered,
            window=hello.window if self.extended else None,
            events=bool(self._streams),
            free_data=last.free_data,
            partitions=[number for number, _ in partitions] if partitions else None,
            follows=hello.follows,
        )
        for each in self._wires:
            each.expect = protocol.sequence.expect
            if self.bodies is not None and each.channel.reaches(self.bodies.device):
                each.device_memory = self.bodies.allocator
        remote, allocation = None, None
        if wire.channel.passes_memory == "rkey":
            allocation = self._allocation_of(wire, last.remote_handle)
            remote = RemoteMemory(wire, last.remote_handle, limits) if allocation is None else None
        self._assembler = Assembler(
            limits,
            protocol,
            self._notes,
            self.bodies,
            # Then regions of the host are mapped copy-on-write: not where they are still written to behind a batch.
            private=reading.private is not None and not hello.follows,
            remote=remote,
            allocation=allocation,
        )
        self._batches: collections.deque[Assembled] = collections.deque()

    def _allocation_of(self, wire: Wire, handle: bytes | None) -> Callable[[], Region] | None:
        """Return what opens the memory of a CUDA IPC handle in a server's URI, if there is one."""
        if handle is None or wire.channel.reads_with(handle):
            return None
        if len(handle) not in (IPC_TOKEN_BYTES, _SIZE_BYTES + IPC_TOKEN_BYTES):
            return None
        device = None if self.bodies is None else self.bodies.device
        return lambda: mappings().open_token(handle[-IPC_TOKEN_BYTES:], device or device_by_name("cuda"))

    def take_beginning(self, wire: Wire, seconds: float) -> bool:
        """Process the beginning of an ordinary answer and what lies behind it; else receive nothing."""
        channel = wire.channel
        if not (isinstance(channel, StreamChannel) and channel.passes_memory == "fd"):
            return False
        came = channel.peek(seconds, MOST_AT_ONCE)
        messages = whole_messages(came, channel.limits, channel.most_attachments)
        begun = Beginning.read(messages)
        if begun is None or len(begun.schema) > channel.limits.early_bytes:
            return False
        try:
            decoded = decode_schema_message(begun.schema, channel.limits)
        except BowstringError:  # the way message by message says what is wrong
            return False
        if decoded.endianness != "little":
            return False
        attachments = channel.take(messages[: begun.messages + len(begun.following)])
        wire.heard = time.monotonic()
        descriptors = list(itertools.chain.from_iterable(attachments[: len(begun.regions)]))
        with self.lock:
            protocol, assembler = self._protocol, self._assembler
            self.welcome = welcome = begun.welcome
            if welcome.patience is not None:
                self.patience = Patience(welcome.patience, self.limits.heartbeat)
            protocol.begin_answered(welcome)
            try:
                for base, handle in begun.regions if protocol.error is None else ():
                    self.counters.regions += 1
                    event = events.Announced(base, handle, descriptors.pop(0))
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
                heard = self._protocol.receive(tag, body, attachments)
                if attachments and not any(isinstance(event, events.Announced) for event in heard):
                    raise ProtocolError("only a region has an attachment", found=f"tag {tag}")
            except BaseException:
                close_all(attachments)
                raise
            try:
                for event in heard:
                    self._take(event)
            except BowstringError as error:
                # At once: what another connection brings must not complete the stream without this.
                self._protocol.fail(copy.copy(error))
                raise
            if (lost := self._protocol.lost_body) is not None:
                raise copy.copy(lost)

    def hear_all(self, received: Sequence[Received]) -> None:
        at, tries = 0, _TRIES
        try:
            while at < len(received):
                may_be_pairs = tries > 0 and received[at][0] is None
                taken = self.take_pairs(received[at:]) if may_be_pairs else 0
                if taken:
                    at += taken
                    continue
                tries -= may_be_pairs
                pair = 2 if received[at][0] is None else 1
                for message in received[at : at + pair]:
                    self.hear(*message)
                at += pair
        except BaseException:  # nobody will hear of the rest
            for _, _, attachments in received[at:]:
                close_all(attachments)
            raise

    def take_run(self, wire: Wire, seconds: float) -> bool:
        """Receive a run, if one was foreseen and is there, and take its batches; those that are valid together."""
        run = wire.receive_run(seconds)
        if run is None:
            return False
        with self.lock:
            protocol, tags = self._protocol, run.tags.tolist()
            is_next = protocol.foreseen(run.messages[:, :PREFIX_BYTES].tobytes(), tags, PACKED)
            taken = self._assembler.take_run(run) if is_next else []
            if taken:
                protocol.take([assembled.cost for assembled in taken])
                self._batches.extend(taken)
        for index in range(len(taken), len(tags)):
            self.hear(None, memoryview(run.messages[index].tobytes()), ())
            self.hear(tags[index], run.bodies.slice(index * run.body, run.body), ())
        return True

    def take_pairs(self, received: Sequence[Received]) -> int:
        """Take the first messages together, those that are surely right; return how many."""
        prefixes, tags, messages, bodies = bytearray(), [], [], []
        for (untagged, message, one), (tag, body, other) in zip(received[::2], received[1::2], strict=False):
            # With descriptors beside them they are for `receive` to refuse.
            if untagged is not None or tag is None or tag >> TYPE_SHIFT != POINTERS or one or other:
                break
            if len(message) < PREFIX_BYTES or len(body) % ROW_BYTES or not len(body):
                break
            prefixes += message[:PREFIX_BYTES]
            tags.append(tag)
            messages.append(message)
            bodies.append(body)
        with self.lock:
            protocol = self._protocol
            is_next = bool(tags) and protocol.foreseen(prefixes, tags, POINTERS)
            taken = self._assembler.take_pairs(messages, bodies) if is_next else []
            if not taken:
                return 0
            count = 2 * len(taken)
            tag, message, beside = received[count] if count < len(received) else (None, None, ())
            ends = protocol.take_pointed(len(taken), message if tag is None and not beside else None)
            self._batches.extend(taken)
            if ends:
                self._assembler.finish()
            return count + ends

    def _take(self, event: events.Event) -> None:
        protocol, assembler = self._protocol, self._assembler
        match event:
            case events.Part() if protocol.error is None:
                assembled = assembler.take(event)
                if assembled is not None:
                    protocol.arrived([assembled.cost])
                    self._batches.append(assembled)
            case events.Announced() if protocol.error is not None:
                close_all((event.attachment,))
            case events.Announced():
                self.counters.regions += 1
                try:
                    self.counters.cached_regions += assembler.announce(event)
                except (InvalidRegion, NotOnDevice) as error:
                    protocol.could_not_map(without_frames(error))
            case Welcome():
                protocol.begin()
                self.welcome = event
                if event.patience is not None:
                    self.patience = Patience(event.patience, self.limits.heartbeat)
            case EventHandle():
                try:
                    assembler.awaited = awaited = OpenedEvent(event)
                except BowstringError as error:  # no stream here can wait: the producer is to
                    protocol.why_wait = in_words(error)
                else:  # which is closed before we hang up, also where no memory can be opened
                    assembler.borrows = True
                    assembler.lenders.add(awaited.device)
            case events.Asked(devices=devices):
                maps, outgoing = protocol.answer(why_not_here(devices))
                if not maps:
                    assembler.forget_regions()
                self._wires[-1].send(outgoing, self.limits.stall_timeout)
            case events.Signal.PARTITION:
                assembler.forget_regions()  # and dictionaries: what follows uses its own
                assembler.finish()
            case events.Signal.FORGET:
                assembler.forget_regions()
            case BowstringError() | events.Signal.END | events.Signal.STOPPED:
                # The connection stays: what the user holds can still be freed over it.
                assembler.finish()

    def peek(self) -> Batch | None:
        """Return the next batch if it is there already, on the host; it stays the next one."""
        with self.lock:
            first = self._batches[0] if self._batches and not self.closed else None
            return first.batch if first is not None and first.is_ready else None

    def discard(self) -> None:
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
