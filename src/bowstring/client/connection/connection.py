"""One stream as it comes in. Who reads it receives for itself; the loop does while nobody reads.

A stream goes on after it was closed, for as long as batches of it are alive, because a lease ends with its last
view and not before. What is kept for it then keeps nothing of the user's alive.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import math
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.client.connection.assembler import Assembled, Assembler
from bowstring.client.connection.control_sender import Command, ControlSender, Turn
from bowstring.client.connection.device import DeviceHandshake, announce
from bowstring.client.connection.keeper import Patience, keeper
from bowstring.client.connection.remote import RemoteMemory, cuda_token
from bowstring.client.connection.runs import PointedPairs
from bowstring.client.connection.wire import Wire, note_turned_away, open_wires
from bowstring.client.stream import Counters, Readiness
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
from bowstring.dissociated.tags import PACKED, POINTERS, is_packed, is_pointers
from bowstring.dissociated.wire import METADATA, PREFIX_BYTES
from bowstring.errors import (
    BowstringError,
    BrokenError,
    ClosedError,
    DeadlineExceeded,
    EndOfStream,
    ForkedError,
    LimitExceeded,
    ProtocolError,
    without_frames,
)
from bowstring.ipc.compression.device.decompress import DeviceBodies
from bowstring.memory import mappings
from bowstring.memory.devices import device_by_name
from bowstring.transport.descriptors import close_all
from bowstring.transport.loop import Job, RingingQueue, do_in_loop
from bowstring.transport.sockets import StreamChannel
from bowstring.transport.threads import NO_THREAD, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from bowstring.client.connection.runs import Run
    from bowstring.client.connection.wire import Received
    from bowstring.client.reading import Reading
    from bowstring.columnar.batch import Batch
    from bowstring.dissociated.endpoint import Endpoint
    from bowstring.dissociated.partitions import PartitionTicket
    from bowstring.dissociated.wire import Welcome
    from bowstring.memory import Device, Region
    from bowstring.transport import Channel

_LOOK: Final = 0.5
# How often a thread that receives looks whether another one has closed the stream.
_SLICE: Final = 0.1
_TAKEN_TOGETHER: Final = 8
# Messages, two to a batch: from here on others cost no less together, and the user waits.
_MOST_TOGETHER: Final = 128
# Messages that cannot be taken together are hardly followed by others that can.
_TRIES: Final = 3


class Connection:
    """Receives one stream, over one or two channels.

    Batches, protocol and assembler change under `lock`.
    """

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
        self.follows = hello.follows
        self._shard = hello.shard
        self._timeout = reading.timeout
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
        self._turn = Turn()  # of the thread that receives
        # Where a task of asyncio awaits the stream, or a connection cannot be waited for, no caller receives.
        self._awaited = reading.dialled is not None
        self._has_thread = False
        self._reading: Job | None = None  # of the loop, while it waits for the stream
        self._read = self._asked = (
            0.0  # when a caller read, and when the producer was asked whether it is there
        )
        self._waiting = False  # whether a task waits
        # Whether the keeper is to attend to us, and a worker to send.
        self._rung = self._sends = False
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
        named = {each.address: each.owner for each in streams} if streams else {}
        self._sender = ControlSender(protocol, self._wires, self._notes, named)

    @functools.cached_property
    def _device(self) -> DeviceHandshake:
        return DeviceHandshake(self._assembler, self._protocol, self._streams, self.limits.device_timeout)

    def start(self) -> None:
        """Have the stream kept alive; called by the stream that ends that."""
        self._read = time.monotonic()
        try:
            for wire in self._wires:
                if not (isinstance(wire.channel, StreamChannel) or _can_be_watched(wire.channel)):
                    self._has_thread = True
                    run_in_thread(self._hear_always, wire, name="bowstring-client-reader")
            keeper().keep(self)
            if self._awaited:
                self._wait_in_loop()
        except LimitExceeded as error:
            self._give_up(error)
            raise

    def _allocation_of(self, wire: Wire, handle: bytes | None) -> Callable[[], Region] | None:
        """Return what opens the memory of a CUDA IPC handle in a server's URI, if there is one."""
        token = None if handle is None or wire.channel.reads_with(handle) else cuda_token(handle)
        if token is None:
            return None
        device = None if self.bodies is None else self.bodies.device
        return lambda: mappings().open_token(token, device or device_by_name("cuda"))

    def _give_up(self, error: LimitExceeded) -> None:
        """Fail the stream, whatever came of it: it lacks a thread."""
        with self.lock:
            self._protocol.abort(copy.copy(error))
            self._batches.clear()
        self.fail(copy.copy(error))
        self._sender.send(self)

    # Receiving: by a caller, by the loop while nobody reads, or by a thread.

    def _hear_always(self, wire: Wire) -> None:
        while not (self.over or wire.over):
            self._hear(wire, self._take_turn, self.limits.heartbeat)
            self._send_due()

    @property
    def _heard(self) -> list[Wire]:
        """What is to be received: metadata must not run far ahead of bodies that come over another connection."""
        wires = [wire for wire in self._wires if not wire.over]
        if (
            len(wires) > 1
            and self._protocol.sequence.runs_ahead
            and not (self._protocol.quiet or self.closed)
        ):
            del wires[0]
        return wires

    def _receive(self, seconds: float) -> bool:
        wires = self._heard
        if len(wires) == 1:
            return self._hear(wires[0], self._take_turn, seconds)
        came = [wire for wire in wires if self._hear(wire, self._take_turn, 0.0)]
        if not came and seconds:
            poll = select.poll()

            def register(fds: Sequence[int]) -> None:
                for fd in fds:
                    poll.register(fd, select.POLLIN)

            if all(_watched(wire.channel, register) for wire in wires):
                poll.poll(1000 * seconds)
        return bool(came)

    def _hear(self, wire: Wire, take: Callable[[Wire, float], bool], seconds: float) -> bool:
        """Receive over one connection; what goes wrong ends the stream where that needs it still."""
        try:
            came = take(wire, seconds)
            wire.done = wire.channel.position
            return came
        except BowstringError as error:
            # Its frames hold the stream, which holds it, and so does the channel.
            wire.over = True
            self.lost(wire, without_frames(error))
        except Exception as error:  # noqa: BLE001  the reader must hear of it, not who received
            wire.over = True
            failure = ProtocolError("the stream cannot be read", found=f"{type(error).__name__}: {error}")
            failure.__cause__ = without_frames(error)
            self.fail(failure)
        except BaseException:
            if not 0 <= wire.done == wire.channel.position:  # something was received that is not with us
                self.interrupted()
            raise
        finally:
            self.wake()
        return False

    def _take_beginning(self, wire: Wire, seconds: float) -> bool:
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
            self._hear_all(begun.following[taken:])
        return True

    def _take_turn(self, wire: Wire, seconds: float) -> bool:
        """Process what comes within so many seconds, and what is there behind it; false if nothing came.

        It ends with a packed body: the next one may need memory that only the user can let go.
        """
        run = wire.receive_run(seconds)
        if run is not None:
            for index in range(self.take_run(run), len(run.tags)):
                message, tag, body = run.pair(index)
                self.hear(None, message, ())
                self.hear(tag, body, ())
        elif wire.begun:
            return False
        held: list[Received] = []
        lost, came = None, 0
        while run is None and came < _MOST_TOGETHER:
            try:
                received = wire.receive(0.0 if came else seconds)
            except BowstringError as error:
                lost = without_frames(error)  # its frame is ours, which has it
                break
            if received is None:
                break
            came += 1
            held.append(received)
            if not (wire.maps and _can_wait(received)):
                self._hear_all(held)
                held = []
                if is_packed(received[0]):
                    break
        self._hear_all(held)
        if lost is not None:
            try:
                raise lost
            finally:
                del lost  # which this frame holds, as the error holds the frame
        return run is not None or came > 0

    def _take_whole(self, wire: Wire, _: float) -> bool:
        """Process what is there whole, and wait for nothing; return whether `_take_turn` has more to do."""
        received, more = wire.receive_whole()
        self._hear_all(received)
        return more

    def _hear_all(self, held: Sequence[Received]) -> None:
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

    def interrupted(self) -> None:
        """Let the stream end where an interrupt may have lost a message: none is left out without a word."""
        self.fail(
            BrokenError(
                "the stream was interrupted inside a message",
                where=self.peer,
                hint="Batches that are there stay true; connect() again reads the data set anew.",
            )
        )

    def _wait_in_loop(self) -> None:
        if self._reading is None and not (self._has_thread or self.over):
            self._notes.ring = self._ring
            self._reading = Job(self._read_ahead, "bowstring-client-reader", waits=False)
            do_in_loop(self._reading)

    def _ring(self) -> None:
        if not self._rung:
            self._rung = True
            keeper().ring(self)

    def _read_ahead(self) -> float | None:
        """Receive what is there, in order, and wait for more; where a caller reads, that is left to it."""
        if self.over:
            return None
        if self._is_read:
            self._reading = self._notes.ring = None
            keeper().hasten()
            return None
        if not self._turn.take():
            return self.patience.quiet
        try:
            begun = [self._hear(wire, self._take_whole, 0.0) for wire in self._heard]
        finally:
            self._give_turn()
        self.attend()
        if any(begun) or self._lost_peer or not self._rearm():
            do_in_loop(Job(self._read_on, "bowstring-client-reader"))
        return math.inf

    def _read_on(self) -> None:
        """Receive what may have to be waited for: the rest of a message, or memory for a body."""
        # Where a process is gone and its end is open, waiting is what finds that out.
        idle = _SLICE if self._lost_peer else 0.0
        while not self._is_read and self._turn.take():
            try:
                came = self._receive(idle)
            finally:
                self._give_turn()
            self._send_due()
            if self.over or (not came and self._rearm()):
                return
        self._ring_reading()

    def _ring_reading(self) -> None:
        if (job := self._reading) is not None:
            job.ring()

    @property
    def _lost_peer(self) -> bool:
        return any(wire.channel.peer.exited(0.0) for wire in self._wires if not wire.over)

    @property
    def _is_read(self) -> bool:
        ended = self._awaited or self.closed or self._protocol.over
        return not ended and time.monotonic() - self._read < self.patience.quiet

    def _rearm(self) -> bool:
        """Have the loop wait for what comes; false where there is something to receive at once."""
        job = self._reading
        if job is None or (loop := job.loop) is None:
            return True
        return all(_watched(wire.channel, lambda fds: loop.wait_for(job, fds)) for wire in self._heard)

    def _give_turn(self) -> None:
        if self._turn.give():
            self.wake()

    # What the keeper asks.

    def attend(self) -> None:
        """Do what is due, and wait for nothing."""
        self._rung = False
        sender = self._sender
        if sender.due or sender.lacks_thread:
            if sender.goes_at_once and not self.borrows:
                sender.send(self)
            elif not self._sends:
                self._sends = True
                do_in_loop(Job(self._send_waiting, "bowstring-client-sender"))
        if self._protocol.over:  # nobody reads any more who would look
            self._notes.ring = None if self.over else self._ring
        elif self.closed:
            self._wait_in_loop()  # for the producer's answer

    def _send_waiting(self) -> None:
        self._sends = False
        self._sender.send(self)

    def look(self, now: float) -> float:
        """Do what time demands; return after how many seconds to look again."""
        if self.over:
            keeper().drop(self)
            return math.inf
        if not self.lock.acquire(blocking=False):  # somebody is at it
            return self.patience.quiet
        try:
            self._sender.look_at_clock(self, now)
            if self._awaited and self._waiting and self._is_silent(now):
                self._protocol.ask()
        finally:
            self.lock.release()
        self.attend()
        if self._reading is None and not self._has_thread:
            if self._turn.taken or self._is_read:
                return self.patience.quiet
            self._wait_in_loop()
        return self.patience.most

    def _is_silent(self, now: float) -> bool:
        """Whether it is time to ask whether the producer is there, once."""
        since = max(self._asked, *(wire.heard for wire in self._wires))
        if now - since < self.patience.most:
            return False
        self._asked = now
        return True

    def before_fork(self) -> None:
        self._sender.before_fork()

    def after_fork(self) -> None:
        self._sender.after_fork()

    def _look(self) -> None:
        """Have what is due done soon, by the loop."""
        try:
            keeper().keep(self)
        except NO_THREAD:
            self._sender.send(self)
        else:
            self._ring()

    def _send_due(self) -> None:
        """Send what is due, if that waits for nothing."""
        sender = self._sender
        if not sender.due:
            return
        if sender.goes_at_once and not self.borrows:
            sender.send(self)
        else:
            self._look()

    # What its connections bring.

    @property
    def over(self) -> bool:
        """Whether nothing has to be read any more."""
        return self._sender.finished

    def lost(self, wire: Wire, error: BowstringError) -> None:
        """Take note that a connection brings nothing more, which ends the stream where that needs it still."""
        if type(error) is ClosedError and self._protocol.over:  # we hung up ourselves, in good order
            return
        with self.lock:
            if not self._protocol.lost(error, bodies=wire is self._wires[-1]):
                return
        self.fail(error)

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

    def fail(self, error: BowstringError) -> None:
        """Let the stream end with an error, and hang up."""
        protocol = self._protocol
        with self.lock:
            if not self._complete:
                error = keeper().explain(error, self.patience.producers)
            if protocol.fail(error) and not self.opened:
                note_turned_away(error)
            self.wake()
        if not self.borrows:  # else whoever sends closes what was lent, and then hangs up
            with self.lock:
                used = protocol.ever_lent or protocol.error is None
            if not used:  # or the producer would have to think the worst
                with contextlib.suppress(BowstringError):
                    self.forget(self.limits.close_timeout)
                self._sender.say_unused()
            self.hang_up()
        self._sender.gone = True
        self._look()

    # What the stream asks.

    def schema(self) -> pa.Schema:
        """Return the schema, waiting for it."""
        # An ordinary answer, of one data set and to a hello, is taken at once.
        is_ordinary = self.extended and self._protocol.partitions is None and len(self._wires) == 1
        if is_ordinary and not self.opened:
            seconds = min(self.limits.connect_timeout, self.limits.heartbeat)
            self._hear(self._wires[0], self._take_beginning, seconds)
        if self.closed or not self.opened:
            self._wait(lambda: self.opened, self.limits.connect_timeout)
        return self._assembler.schema

    @property
    def opened(self) -> bool:
        welcomed = self._protocol.handshake is Handshake.WELCOMED
        return self._assembler.schema is not None and welcomed

    @property
    def partition(self) -> int | None:
        """The number of the partition that the user is in, where it is known."""
        partitions = self._protocol.partitions
        return None if partitions is None or not self.opened else partitions.current

    def next(self, partition: int | None = None) -> Batch | None:
        """Return the next batch, or of a partition that the user has come to; ``None`` behind its last one."""
        if os.getpid() != self._pid:
            self.check_process()
        protocol, counters = self._protocol, self.counters
        ordered: Assembled | None = None

        def passed() -> bool:
            return partition is not None and protocol.passed(partition)

        while True:
            if self.closed or not (self._batches or passed()):
                self._wait(
                    lambda: passed() or bool(self._batches) or self._complete,
                    self.limits.reply_timeout,
                    self._timeout,
                )
            with self.lock:
                if partition is not None and passed():
                    return None
                if not self._batches:
                    if not self._complete:  # another thread took it
                        continue
                    if protocol.behind_end is not None:
                        raise copy.copy(protocol.behind_end)
                    protocol.read_to_end()
                    self._look()
                    raise EndOfStream("there are no more batches")
                assembled = self._batches[0]
                if assembled is ordered or assembled.awaited is None:
                    batch = assembled.batch
                    counters.batches += 1  # first: it tells of one that is lost
                    counters.rows += batch.num_rows
                    counters.nbytes += assembled.nbytes
                    self._batches.popleft()
                    if not (self._streams or batch.device.is_host):
                        batch.lease.read_on(batch.device.handed_out())
                    until_delivered = assembled.until_delivered
                    protocol.deliver(assembled.cost, assembled.credit, until_delivered=until_delivered)
                    self._read = time.monotonic()
                    if protocol.has_news and not (self._takes_more and not until_delivered):
                        if self._awaited:  # in an event loop, which waits for nothing
                            self._look()
                        else:
                            self._send_due()
                    return batch
            # Without the lock, because a device may be waited for; whoever calls again asks for it again.
            failed = self._device.order(assembled)
            ordered = None if failed is not None else assembled
            del assembled  # what is raised keeps this frame
            if failed is not None:
                try:
                    raise failed
                finally:
                    del failed  # which this frame holds, as the error holds the frame

    def peek(self) -> Batch | None:
        """Return the next batch if it is there already, on the host; it stays the next one."""
        with self.lock:
            first = self._batches[0] if self._batches and not self.closed else None
            is_there = first is not None and first.awaited is None and first.batch.device.is_host
            return first.batch if is_there and first is not None else None

    def readiness(self, wake: Callable[[], object], began: float, partition: int | None = None) -> Readiness:
        """Return what `next` would do; if it would wait, have `wake` called once something has changed."""
        self.check_process()
        with self.lock:
            passed = partition is not None and self._protocol.passed(partition)
            if passed and not self.closed:
                found = Readiness.ENDED
            elif self._batches and not self.closed:
                first = self._batches[0]
                at_once = first.awaited is None and first.batch.device.is_host
                found = Readiness.READY if at_once else Readiness.SLOW
            elif self.closed or self._protocol.error is not None or self._protocol.behind_end is not None:
                found = Readiness.READY
            elif self._complete:
                found = Readiness.ENDED
            else:
                if wake not in self._wakes:
                    self._wakes.append(wake)
                self._waiting = True
                self._check_wait(began)
                self._feed()
                if self._sender.due:
                    self._look()
                self._check_silence(began, self.limits.reply_timeout)
                return Readiness.NOT_YET
            if self._waiting:
                self._waiting = False
                self.counters.seconds_waited += time.monotonic() - began
            return found

    @property
    def _takes_more(self) -> bool:
        """Whether partitions that were taken may be reported later: the user holds the last batch of each."""
        partitions = self._protocol.partitions
        return partitions is not None and partitions.unsaid < _TAKEN_TOGETHER

    def _feed(self) -> None:
        """Enlarge the window where the producer waits for memory that only the user holds, or raise `Starved`."""
        if self._protocol.starves and self._sender.counted:
            self._protocol.relieve(f"batch {self.counters.batches}")

    def _wait(self, ready: Callable[[], bool], seconds: float, most: float | None = None) -> None:
        """Receive until `ready`, an error, too long a silence of the peer, or for `most` seconds."""
        began = self._asked = time.monotonic()
        turn, me = self._turn, threading.get_ident()
        idle = 0.0  # at first what is there
        while not self._has_come(ready, began, seconds, feeds=idle > 0.0):
            self._send_due()
            self._read = time.monotonic()
            try:
                if self._has_thread or not turn.take():
                    self._wait_for_others(ready)
                else:
                    self._receive(idle)
            finally:
                if turn.owner == me:
                    turn.owner = None  # before any call: an interrupt as one begins would keep the turn
                    self.wake()
            idle = _SLICE
            if most is not None:
                idle = max(0.0, min(idle, began + most - time.monotonic()))
                if not (idle or self._has_come(ready, began, seconds, feeds=True)):
                    self._check_wait(began)
        self._read = now = time.monotonic()
        self.counters.seconds_waited += now - began

    def _wait_for_others(self, ready: Callable[[], bool]) -> None:
        """Wait until who receives has something, or gives its turn away."""
        with self.lock:
            is_news = ready() or self.closed or self._protocol.error is not None
            if not is_news and (self._has_thread or self._turn.taken):
                self._changed.wait(_LOOK)

    def _has_come(self, ready: Callable[[], bool], began: float, seconds: float, *, feeds: bool) -> bool:
        with self.lock:
            if self.closed:  # first of all: what was dropped then must not look like the end
                raise ClosedError("the stream is closed")
            if ready():
                return True
            if (error := self._protocol.error) is not None:
                # A copy, because what is raised keeps the frames it passed, and so the user's batches, alive.
                raise copy.copy(error) from error.__cause__
            if feeds:
                self._feed()
                if self._is_silent(time.monotonic()):
                    self._protocol.ask()
                self._check_silence(began, seconds)
            return False

    def _check_wait(self, began: float) -> None:
        """Raise `DeadlineExceeded` if a call waited for longer than its user wants."""
        if self._timeout is not None and time.monotonic() >= began + self._timeout:
            raise DeadlineExceeded(
                "no batch came in time",
                expected=f"one within {self._timeout:g} s (connect(timeout=…))",
                where=self.peer,
                hint="The stream goes on: ask again.",
            )

    def _check_silence(self, began: float, seconds: float) -> None:
        """Raise `DeadlineExceeded` if the producer sent nothing for too long; one that answers is waited for."""
        wires = [wire for wire in self._wires if not wire.over]
        heard = [wire.heard for wire in wires]
        # One that answers questions must be heard on each connection.
        silent_since = max(began, (min if self.extended else max)(heard, default=began))
        if time.monotonic() - silent_since > seconds and not any(wire.busy for wire in wires):
            raise DeadlineExceeded(
                "the producer was silent for too long",
                expected=f"something within {seconds} s (Limits.connect_timeout, reply_timeout)",
                found=self._protocol.missing,
                where=self.peer,
            )

    def check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError(
                "the stream belongs to the parent process",
                hint="Call connect() in the child. Batches that were there before the fork stay true.",
            )

    @property
    def peer(self) -> str:
        return str(self._wires[-1].channel)

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

    # Life.

    @property
    def borrows(self) -> bool:
        """Whether memory was lent by handles, which must be closed before we hang up."""
        return self._assembler.borrows

    @property
    def lenders(self) -> set[Device]:
        return self._assembler.lenders

    @property
    def _complete(self) -> bool:
        return self._protocol.phase is Phase.COMPLETE

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

    def close(self) -> None:
        """Ask for nothing more. Batches that were given out stay true, and are freed when they are collected."""
        if os.getpid() != self._pid:
            return
        self.discard()
        if self._sender.due:  # else the end was seen already
            self._look()

    def flush(self, seconds: float) -> None:
        self._sender.flush(self, seconds)

    def abandon(self) -> None:
        """Close without waiting for any lock: for finalizers."""
        if not (self.closed or self.over) and os.getpid() == self._pid:
            self._notes.put(Command.CLOSED)
            self._ring()

    def finish(self) -> None:
        """Let go of connections and regions: nothing more is sent, and no batch needs them."""
        try:
            if self.borrows:
                self._sender.give_back(self)
        finally:
            self.hang_up()
        self.forget(self.limits.close_timeout)
        for wire in self._wires:
            wire.forget()
        self._notes.ring = None
        keeper().drop(self)
        self._ring_reading()

    def forget(self, seconds: float = 0.0) -> None:
        """Let go of the regions, and wait so long for devices to be done with them."""
        with self.lock:
            self._assembler.finish()
            self._assembler.forget_regions()
        mappings().trim(seconds)

    def hang_up(self) -> None:
        for wire in self._wires:
            wire.channel.close()


def _can_wait(received: Received) -> bool:
    """Whether a message is metadata or a body of pointers: many of them are heard together."""
    tag, body, attachments = received
    if attachments:
        return False
    return bool(len(body)) and body[0] == METADATA if tag is None else is_pointers(tag)


def _can_be_watched(channel: Channel) -> bool:
    try:
        return channel.watch(lambda _: None)
    except ClosedError:  # meanwhile: receiving says what that means
        return True


def _watched(channel: Channel, register: Callable[[Sequence[int]], None]) -> bool:
    """Register what a connection waits for; false where receiving says at once that it is over."""
    try:
        return channel.watch(register)
    except (ClosedError, ForkedError):
        return False
