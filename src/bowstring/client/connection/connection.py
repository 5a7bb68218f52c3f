"""One stream as it comes in, with a thread for each channel that reads, and one that sends control messages.

Streams of `connect_async` share threads instead (:mod:`bowstring.transport.loop`). The threads keep nothing of the
user's alive. They go on after the stream was closed, for as long as batches of it are alive, because a lease ends
with its last view and not before.
"""

from __future__ import annotations

import collections
import copy
import functools
import math
import os
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.client.connection.assembler import Assembled, Assembler
from bowstring.client.connection.control_sender import Command, ControlSender
from bowstring.client.connection.device import BorrowedHandles, DeviceHandshake
from bowstring.client.connection.receive_loop import is_urgent, listen, take_first
from bowstring.client.connection.remote import RemoteMemory, cuda_token
from bowstring.client.connection.timeouts import check_silence, watch_end
from bowstring.client.connection.wire import Wire, note_turned_away, open_wires
from bowstring.client.stream import Counters, Readiness, WakingCondition
from bowstring.dissociated.events import (
    Announced,
    Asked,
    Awaited,
    End,
    Event,
    Failed,
    Part,
    PartitionBegun,
    Stopped,
    Welcomed,
)
from bowstring.dissociated.reader import Handshake, Phase, ReaderProtocol
from bowstring.dissociated.wire import Hello, Welcome
from bowstring.errors import (
    BowstringError,
    ClosedError,
    EndOfStream,
    ForkedError,
    LimitExceeded,
    ProtocolError,
)
from bowstring.limits import Limits
from bowstring.memory import Pool, mappings, watch_forks
from bowstring.memory.buffer import PrivateMemory
from bowstring.memory.device import device_by_name
from bowstring.transport.descriptors import close_all
from bowstring.transport.loop import Job, Loop, RingingQueue, do_in_loop
from bowstring.transport.threads import run_in_thread

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from bowstring.client.connection.decode_many import PointedRun
    from bowstring.client.connection.runs import Run
    from bowstring.client.connection.wire import Begun
    from bowstring.columnar.batch import Batch
    from bowstring.dissociated.endpoint import Endpoint
    from bowstring.dissociated.partitions import PartitionTicket
    from bowstring.ipc.compression.device.decompress import DeviceBodies
    from bowstring.memory import NamedStream, Region
    from bowstring.transport import Channel
    from bowstring.transport.certificates import TlsConfig

_LOOK: Final = 0.5
_TAKEN_TOGETHER: Final = 8


class Connection:
    """Receives one stream, over one or two channels.

    Batches, protocol and assembler change under the condition `changed`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        hello: Hello,
        pool: Pool | PrivateMemory,
        limits: Limits,
        streams: Sequence[NamedStream] = (),
        bodies: Callable[..., DeviceBodies] | None = None,
        tls: TlsConfig | ssl.SSLContext | None = None,
        dialled: Callable[[Channel], None] | None = None,
        partitions: Sequence[PartitionTicket] = (),
    ) -> None:
        # First of all: what follows here is done while the server makes its answer.
        opened = open_wires(endpoint, hello, pool, limits, tls, dialled, partitions)
        self._wires, last = opened.wires, opened.locations[-1]
        self._passed_over = f"; not taken: {opened.passed_over}" if opened.passed_over else ""
        self.endpoint = endpoint
        self.limits = limits
        self.counters = Counters()
        # Only processes of this user can have written what comes over connections that know their peer.
        self.trusted = self._wires[0].channel.authenticated and self._wires[-1].channel.authenticated
        self.bodies = None if bodies is None else bodies(trusted=self.trusted)
        self.welcome: Welcome | None = None
        self._discarded = False
        self.extended = last.hello is not None
        self._pid = os.getpid()
        self.changed = WakingCondition()
        self._notes = RingingQueue()
        self._reading: list[Callable[[], None]] = []  # rings for what reads, where threads are shared
        self._named = bool(streams)
        self._protocol = protocol = ReaderProtocol(
            limits,
            extended=self.extended,
            one_connection=len(self._wires) == 1,
            ordered=self._wires[0].channel.ordered and self._wires[-1].channel.ordered,
            window=hello.window if self.extended else None,
            events=self._named,
            free_data=last.free_data,
            partitions=[number for number, _ in partitions] if partitions else None,
        )
        for wire in self._wires:
            wire.expect = protocol.expect
        private = isinstance(pool, PrivateMemory)  # then regions of the host are mapped copy-on-write
        wire = self._wires[-1]
        reads = wire.channel.passes_memory == "rkey"
        allocation = self._allocation_of(wire, last.remote_handle) if reads else None
        remote = RemoteMemory(wire, last.remote_handle, limits) if reads and allocation is None else None
        self._assembler = Assembler(
            limits, protocol, self._notes, self.bodies, private=private, remote=remote, allocation=allocation
        )
        self._device = DeviceHandshake(self._assembler, protocol, streams, limits.device_timeout)
        self._batches: collections.deque[Assembled] = collections.deque()
        self._handles = BorrowedHandles(self._assembler, self.changed, protocol, self._wires[-1], limits)
        named = {each.address: each.owner for each in streams} if streams else {}
        self._sender = ControlSender(self, protocol, self._wires, self._notes, named)
        watch_forks(self._sender)
        watch_end(self)
        self._shares_threads = dialled is not None
        if len(self._wires) == 1:
            take_first(self, self._wires[0])

    def start(self) -> None:
        """Start the threads that keep the connection alive; called by the stream that ends them."""
        if self._shares_threads:
            self._share_threads()
            return
        for number, wire in enumerate(self._wires):
            try:
                run_in_thread(self._read, wire, name="bowstring-client-reader")
            except LimitExceeded as error:
                self._give_up(error, alone=not number)
                raise

    def _allocation_of(self, wire: Wire, handle: bytes | None) -> Callable[[], Region] | None:
        """Return what opens the memory of a CUDA IPC handle in a server's URI, if there is one."""
        token = None if handle is None or wire.channel.reads_with(handle) else cuda_token(handle)
        if token is None:
            return None
        device = None if self.bodies is None else self.bodies.device
        return lambda: mappings().open_token(token, device or device_by_name("cuda"))

    def _read(self, wire: Wire) -> None:
        if wire is self._wires[0]:
            # From here, because starting a thread takes long, and whoever opens a stream waits for it.
            try:
                run_in_thread(self._sender.run, self, name="bowstring-client-sender")
            except LimitExceeded as error:
                self._give_up(error, alone=True)
                return
        listen(self, wire)

    def _share_threads(self) -> None:
        """Read and send in threads that many streams share; where a channel cannot be waited for, one reads it."""
        sending = Job(self._send_once, "bowstring-client-sender")
        self._sender.silence.begin()
        try:
            shared = do_in_loop(sending)
            for wire in self._wires:
                if _can_be_watched(wire.channel):
                    reading = Job(_nothing_left, "bowstring-client-reader")
                    reading.turn = functools.partial(self._read_once, wire, shared, reading)
                    self._reading.append(functools.partial(shared.ring, reading))
                    shared.add(reading)
                else:
                    run_in_thread(listen, self, wire, name="bowstring-client-reader")
        except LimitExceeded as error:
            self._give_up(error, alone=True)
            raise
        self._notes.ring = functools.partial(shared.ring, sending)
        self._notes.ring()  # for what was put in before

    def _send_once(self) -> float | None:
        return self._sender.silence.wait if self._sender.turn(self, 0.0) else None

    def _read_once(self, wire: Wire, shared: Loop, job: Job) -> float | None:
        while listen(self, wire, waits=False):
            try:
                shared.watch(job, wire.channel)
            except (ClosedError, ForkedError):
                continue  # reading on says what that means
            return math.inf
        return None

    def _give_up(self, error: LimitExceeded, *, alone: bool) -> None:
        """Fail the stream, whatever came of it: it lacks a thread. If no other runs, this one lets go of all."""
        with self.changed:
            self._protocol.abort(copy.copy(error))
            self._batches.clear()
        self.fail(copy.copy(error))
        if alone:
            self._sender.run(self)

    # What its connections bring (:mod:`bowstring.client.connection.receive_loop`).

    @property
    def over(self) -> bool:
        """Whether nothing has to be read any more."""
        return self._sender.finished

    def lost(self, wire: Wire, error: BowstringError) -> None:
        """Take note that a connection brings nothing more, which ends the stream where that needs it still."""
        if type(error) is ClosedError and self._protocol.over:  # we hung up ourselves, in good order
            return
        with self.changed:
            if not self._protocol.lost(error, bodies=wire is self._wires[-1]):
                wire.over = True
                return
        self.fail(error)

    def hear(self, tag: int | None, body: Any, attachments: tuple[Any, ...], unsaid: int) -> int:
        """Process a message; return the number of events that the user was not notified of yet."""
        with self.changed:
            try:
                events = self._protocol.receive(tag, body, attachments)
                if attachments and not any(isinstance(event, Announced) for event in events):
                    raise ProtocolError("only a region has an attachment", found=f"tag {tag}")
            except BaseException:
                close_all(attachments)
                raise
            self._take_all(events)
            if (lost := self._protocol.lost_body) is not None:
                raise copy.copy(lost)
            if self._protocol.has_news or self._protocol.over:
                self._sender.look()
            if any(map(is_urgent, events)):
                self.changed.notify_all()
                return 0
            return unsaid + len(events)

    def begin(self, begun: Begun) -> None:
        """Take the beginning of the stream at once."""
        with self.changed:
            self._take_all(begun.regions)
            self._take_all([self._protocol.begin_answered(begun.welcome)])
            self._assembler.begin(begun.schema, begun.layout)

    def _take_all(self, events: Sequence[Event]) -> None:
        try:
            for event in events:
                self._take(event)
        except BowstringError as error:
            # At once: what another connection brings must not complete the stream without this.
            self._protocol.fail(copy.copy(error))
            self.changed.notify_all()
            raise

    def take_run(self, run: Run) -> int:
        """Take the first batches of a run together, those that are valid; return how many.

        The user is not notified (`wake`).
        """
        return self._take_foreseen(run, self._assembler.take_run)

    def take_pointed(self, run: PointedRun) -> int:
        """Do the same with a run of bodies of pointers, and tell the user."""
        taken = self._take_foreseen(run, self._assembler.take_pointed)
        if taken:
            self.wake()
        return taken

    def _take_foreseen(self, run: Any, take: Callable[..., list[Assembled]]) -> int:
        with self.changed:
            protocol = self._protocol
            taken = take(run) if run.in_order(protocol) else []
            if taken:
                protocol.take([each.cost for each in taken])
                self._batches.extend(taken)
            return len(taken)

    def hold_back(self, wire: Wire) -> None:
        """Let metadata not run far ahead of bodies that come over another connection."""
        if wire is not self._wires[-1]:
            with self.changed:
                while self._protocol.sequence.runs_ahead and not (self.quiet or self.closed):
                    self.changed.wait(_LOOK)

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
                self.counters.cached_regions += self._device.announce(event)
            case Awaited(event=handle):
                self._device.await_event(handle)
            case Welcomed(welcome=welcome):
                protocol.begin()
                self.welcome = welcome
                self._sender.silence.learn(welcome.patience)
            case Asked(devices=devices):
                self._wires[-1].send(self._device.answer(devices), self.limits.stall_timeout)
            case Failed() | End() | Stopped():
                # The connection stays: what the user holds can still be freed over it.
                self._assembler.finish()

    def fail(self, error: BowstringError) -> None:
        """Let the stream end with an error, and hang up."""
        protocol = self._protocol
        with self.changed:
            if not self._complete:
                error = self._sender.silence.explain(error)
            if protocol.fail(error) and not self.opened:
                note_turned_away(error)
            self.changed.notify_all()
        if self.borrows:  # whoever sends closes what was lent, and then hangs up
            self._sender.stop()
            return
        with self.changed:
            used = protocol.ever_lent or protocol.error is None
        if not used:  # or the producer would have to think the worst
            self._handles.say_never_used()
        self._sender.stop()
        self.hang_up()

    # What the stream asks.

    def schema(self) -> pa.Schema:
        """Return the schema, waiting for it."""
        self.check_process()
        with self.changed:
            if self.closed or not self.opened:
                self._wait(lambda: self.opened, self.limits.connect_timeout)
            return self._assembler.schema

    @property
    def is_ordinary(self) -> bool:
        """Whether the answer may be taken at once: it is of one data set, to a hello."""
        return self.extended and self._protocol.partitions is None

    @property
    def opened(self) -> bool:
        """Whether the stream has begun."""
        welcomed = self._protocol.handshake is Handshake.WELCOMED
        return self._assembler.schema is not None and welcomed

    def next(self) -> Batch:
        """Return the next batch, waiting for it."""
        batch = self._next(lambda: False)
        assert batch is not None
        return batch

    def next_of(self, partition: int) -> Batch | None:
        """Return the next batch of a partition that the user has come to; ``None`` behind its last one."""
        partitions = self._protocol.partitions
        assert partitions is not None
        return self._next(lambda: partitions.last_taken >= partition)

    @property
    def partition(self) -> int | None:
        """The number of the partition that the user is in, where it is known."""
        partitions = self._protocol.partitions
        return None if partitions is None or not self.opened else partitions.current

    def _next(self, passed: Callable[[], bool]) -> Batch | None:
        """Return the next batch; ``None`` where the partition that the user wants has no more."""
        self.check_process()
        ordered: Assembled | None = None
        protocol = self._protocol

        def ready() -> bool:
            return passed() or bool(self._batches) or self._complete

        while True:
            with self.changed:
                if self.closed or not ready():
                    self._wait(ready, self.limits.reply_timeout)
                if passed():
                    return None
                if not self._batches:
                    if protocol.behind_end is not None:
                        raise copy.copy(protocol.behind_end)
                    protocol.read_to_end()
                    self._sender.look()
                    raise EndOfStream("there are no more batches")
                assembled = self._batches[0]
                if assembled is ordered or assembled.awaited is None:
                    self._batches.popleft()
                    self.counters.count(assembled.batch.num_rows, assembled.nbytes)
                    self._deliver(assembled)
                    return assembled.batch
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
        with self.changed:
            first = self._batches[0] if self._batches and not self.closed else None
            is_there = first is not None and first.awaited is None and first.batch.device.is_host
            return first.batch if is_there and first is not None else None

    def readiness(self, wake: Callable[[], object], began: float) -> Readiness:
        """Return what `next` would do; if it would wait, have `wake` called once something has changed."""
        return self._readiness(lambda: False, wake, began)

    def readiness_of(self, partition: int, wake: Callable[[], object], began: float) -> Readiness:
        """Return what `next_of` would do, as `readiness` does."""
        partitions = self._protocol.partitions
        assert partitions is not None
        return self._readiness(lambda: partitions.last_taken >= partition, wake, began)

    def _readiness(self, passed: Callable[[], bool], wake: Callable[[], object], began: float) -> Readiness:
        self.check_process()
        with self.changed:
            if passed() and not self.closed:
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
                self.changed.call_once(wake)
                self._tell_taken()
                self._sender.waiting = True
                self._sender.feed(f"batch {self.counters.batches}")
                self._check_silence(began, self.limits.reply_timeout)
                return Readiness.NOT_YET
            if self._sender.waiting:
                self._sender.waiting = False
                self.counters.seconds_waited += time.monotonic() - began
            return found

    def _deliver(self, assembled: Assembled) -> None:
        if not self._named:
            assembled.batch.lease.read_on(assembled.batch.device)
        self._sender.counts_are_old()
        self._protocol.deliver(assembled.cost, assembled.credit, until_delivered=assembled.until_delivered)
        if self._protocol.has_news and not (self._takes_more and not assembled.until_delivered):
            self._sender.look()

    @property
    def _takes_more(self) -> bool:
        """Whether partitions that were taken may be reported later: the user holds the last batch of each."""
        partitions = self._protocol.partitions
        return partitions is not None and partitions.unsaid < _TAKEN_TOGETHER

    def _tell_taken(self) -> None:
        """Report partitions that were taken: the producer may wait for that."""
        if self._protocol.has_news:
            self._sender.look()

    def _wait(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `ready`, an error, or too long a silence of the peer."""
        began = time.monotonic()
        self._tell_taken()
        while True:
            if self.closed:  # first of all: what was dropped then must not look like the end
                raise ClosedError("the stream is closed")
            if ready():
                break
            if (error := self._protocol.error) is not None:
                # A copy, because what is raised keeps the frames it passed, and so the user's batches, alive.
                raise copy.copy(error) from error.__cause__
            self._sender.waiting = True
            self._sender.feed(f"batch {self.counters.batches}")
            self.changed.wait(_LOOK)
            self._check_silence(began, seconds)
        self._sender.waiting = False
        self.counters.seconds_waited += time.monotonic() - began

    def _check_silence(self, began: float, seconds: float) -> None:
        check_silence(
            [wire for wire in self._wires if not wire.over],
            began,
            seconds,
            answers=self.extended,
            missing=self._protocol.missing,
        )

    def check_process(self) -> None:
        """Refuse to go on in a child of the process that opened the stream."""
        if os.getpid() != self._pid:
            raise ForkedError(
                "the stream belongs to the parent process",
                hint="Call connect() in the child. Batches that were there before the fork stay true.",
            )

    @property
    def peer(self) -> str:
        """The address of the other end."""
        return str(self._wires[-1].channel)

    @property
    def path(self) -> tuple[str, str]:
        """The path that the bodies take, and why."""
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
        return self._handles.by_handles

    @property
    def quiet(self) -> bool:
        """Whether the producer sends nothing more."""
        return self._protocol.quiet

    @property
    def _complete(self) -> bool:
        return self._protocol.phase is Phase.COMPLETE

    @property
    def closed(self) -> bool:
        """Whether the stream was closed."""
        return self._discarded

    def discard(self) -> None:
        """Drop batches that will not be asked for."""
        with self.changed:
            if not self._discarded:
                self._discarded = True
                self._protocol.close(nothing_left=not self._batches)
                self._batches.clear()
                if self.quiet:  # what is still on its way needs the dictionaries
                    self._assembler.finish()
                self.changed.notify_all()

    def wake(self) -> None:
        """Let the reading call look again."""
        with self.changed:
            self.changed.notify_all()

    def close(self) -> None:
        """Ask for nothing more. Batches that were given out stay true, and are freed when they are collected."""
        if os.getpid() != self._pid:
            return
        self.discard()
        if self._protocol.has_news:  # else the thread has seen the end already
            self._sender.look()

    def flush(self, seconds: float) -> None:
        """Wait until all pending control messages are sent."""
        if os.getpid() == self._pid:
            self._sender.flush(seconds)

    def abandon(self) -> None:
        """Close without waiting for any lock: for finalizers."""
        self._notes.put(Command.CLOSED)

    def finish(self) -> None:
        """Let go of connections and regions: nothing more is sent, and no batch needs them."""
        try:
            if self.borrows:
                self.give_back()
        finally:
            self.hang_up()
        self._handles.forget()
        for wire in self._wires:
            wire.forget()
        self._notes.ring, self._reading = None, []  # which hold this stream

    def give_back(self) -> None:
        """Close what was lent by handles (:meth:`BorrowedHandles.give_back`)."""
        self._handles.give_back()
        self._notes.put(Command.RETURNED)

    def hang_up(self) -> None:
        """Close all connections."""
        for wire in self._wires:
            wire.channel.close()
        for ring in self._reading:
            ring()


def _can_be_watched(channel: Channel) -> bool:
    try:
        return channel.watch(lambda _: None)
    except ClosedError:  # meanwhile: reading says what that means
        return True


def _nothing_left() -> None:
    return None
