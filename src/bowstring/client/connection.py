"""One stream as it comes in, with a thread for each channel that reads, and one that sends control messages.

The threads keep nothing of the user's alive. They go on after the stream was closed, for as long as batches of it
are alive, because a lease ends with its last view and not before.
"""

from __future__ import annotations

import collections
import copy
import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.client.assembler import Assembled, Assembler
from bowstring.client.control_sender import Command, ControlSender
from bowstring.client.device import Loans, Reach, addresses_of
from bowstring.client.receive_loop import is_urgent, listen, take_first
from bowstring.client.stream import Counters
from bowstring.client.timeouts import check_silence, watch_end
from bowstring.client.wire import Wire, note_turned_away, open_wires
from bowstring.dissociated.events import (
    Announced,
    Asked,
    Awaited,
    Blocked,
    End,
    Event,
    Failed,
    NoRoom,
    Part,
    Ping,
    Stopped,
    Welcomed,
)
from bowstring.dissociated.reader import ReaderProtocol
from bowstring.dissociated.wire import Hello, Welcome
from bowstring.errors import (
    BowstringError,
    BrokenError,
    ClosedError,
    DeadlineExceeded,
    EndOfStream,
    ForkedError,
    LimitExceeded,
    ProtocolError,
)
from bowstring.limits import Limits
from bowstring.memory import Pool, watch_forks
from bowstring.memory.buffer import PrivateMemory
from bowstring.transport.descriptors import close_all
from bowstring.transport.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from bowstring.client.decode_many import PointedRun
    from bowstring.client.wire import Run
    from bowstring.columnar.batch import Batch
    from bowstring.dissociated.endpoint import Endpoint
    from bowstring.ipc.compression.device.decompress import DeviceBodies

__all__ = ["Connection"]

_LOOK: Final = 0.5


class Connection:
    """Brings in one stream.

    Parameters
    ----------
    endpoint
        The data set.
    hello
        How it is wanted; not said to servers that do not know our extensions.
    pool
        Where packed bodies land. With private memory, regions of the host are mapped copy-on-write.
    limits
        Bounds and deadlines.
    streams
        Where work on batches of a device is queued.
    bodies
        What decompresses for a device, where batches shall be on one.

    Raises
    ------
    BrokenError, DeadlineExceeded, AccessDenied
        The server cannot be reached.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        hello: Hello,
        pool: Pool | PrivateMemory,
        limits: Limits,
        streams: Sequence[Any] = (),
        bodies: DeviceBodies | None = None,
    ) -> None:
        # First of all: what follows here is done while the server makes its answer.
        self._wires = open_wires(endpoint, hello, pool, limits)
        self.limits = limits
        self.counters = Counters()
        self.bodies = bodies
        self.welcome: Welcome | None = None
        self.extended = endpoint.locations[-1].hello is not None
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._notes: queue.SimpleQueue[Any] = queue.SimpleQueue()
        private = isinstance(pool, PrivateMemory)
        self._assembler = Assembler(limits, self._notes, bodies, private=private)
        self._reach = Reach(self._assembler, addresses_of(streams) or (), limits.device_timeout)
        self._protocol = ReaderProtocol(
            limits,
            extended=self.extended,
            one_connection=len(self._wires) == 1,
            window=hello.window if self.extended else None,
        )
        for wire in self._wires:
            wire.expect = self._protocol.expect
        self._batches: collections.deque[Assembled] = collections.deque()
        self._error: BowstringError | None = None
        self._bodies_lost: BowstringError | None = None
        self._behind_end: BowstringError | None = None
        self._complete = self._stopped = False
        self._closed = self._discarded = self._read_all = False
        self._loans = Loans(
            self._assembler, self._changed, self._wires[-1] if self.extended else None, limits
        )
        window = hello.window if self.extended else 0
        free_tag = endpoint.locations[-1].free_data
        self._sender = ControlSender(self, self._wires, self._notes, free_tag, window, streams)
        watch_forks(self._sender)
        watch_end(self)
        if len(self._wires) == 1:
            take_first(self, self._wires[0])
        for number, wire in enumerate(self._wires):
            try:
                run_in_thread(self._read, wire, name="bowstring-client-reader")
            except LimitExceeded as error:
                self._give_up(error, alone=not number)
                raise

    def _read(self, wire: Wire) -> None:
        if wire is self._wires[0]:
            # From here, because starting a thread takes long, and whoever opens a stream waits for it.
            try:
                run_in_thread(self._sender.run, self, name="bowstring-client-sender")
            except LimitExceeded as error:
                self._give_up(error, alone=True)
                return
        listen(self, wire)

    def _give_up(self, error: LimitExceeded, *, alone: bool) -> None:
        """Fail the stream, whatever came of it: it lacks a thread. If no other runs, this one lets go of all."""
        with self._changed:
            self._complete = False  # what came cannot be freed, and its producer not be answered
            self._batches.clear()
        self.fail(copy.copy(error))
        if alone:
            self._sender.run(self)

    # What its connections bring (:mod:`bowstring.client.receive_loop`).

    @property
    def over(self) -> bool:
        """Whether nothing has to be read any more."""
        return self._sender.finished

    def lost(self, wire: Wire, error: BowstringError) -> None:
        """Take note that a connection brings nothing more, which ends the stream where that needs it still."""
        with self._changed:
            if type(error) is BrokenError and not self._needs(wire):
                wire.over = True
                self._bodies_lost = error if wire is self._wires[-1] else None
                return
        self.fail(error)

    def _needs(self, wire: Wire) -> bool:
        """Whether a stream over two connections needs one of them still.

        That of metadata may be closed when all of them have come. A server that knows only the specification may
        close that of bodies, too, when all are sent, which may be before their metadata have come.
        """
        if wire is not self._wires[-1]:
            return not self._protocol.metadata_complete
        return len(self._wires) == 1 or self.extended or self._complete or self._protocol.lacks_body

    def hear(self, tag: int | None, body: Any, attachments: tuple[Any, ...], unsaid: int) -> int:
        """Take a message; return of how many events the user was not told yet."""
        with self._changed:
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
                self._error = self._error or copy.copy(error)
                self._changed.notify_all()
                raise
            if self._bodies_lost is not None and self._protocol.lacks_body:
                raise copy.copy(self._bodies_lost)
            if any(is_urgent(event) for event in events):
                self._changed.notify_all()
                return 0
            return unsaid + len(events)

    def take_run(self, run: Run) -> int:
        """Take the first batches of a run together, those that are surely right; return how many.

        The user is not told (`wake`).
        """
        return self._take_foreseen(run, self._assembler.take_run)

    def take_pointed(self, run: PointedRun) -> int:
        """Do the same with a run of bodies of pointers, and tell the user."""
        taken = self._take_foreseen(run, self._assembler.take_pointed)
        if taken:
            self.wake()
        return taken

    def _take_foreseen(self, run: Any, take: Callable[..., list[Assembled]]) -> int:
        with self._changed:
            in_order = self._error is None and run.in_order(self._protocol)
            taken = take(run, self._protocol.template) if in_order else []
            if taken:
                self._protocol.take(len(taken))
                self._sender.blocked = self._sender.no_room = 0
                if not self._closed:
                    self._protocol.account.charge([each.cost for each in taken])
                    self._batches.extend(taken)
            return len(taken)

    def hold_back(self, wire: Wire) -> None:
        """Let metadata not run far ahead of bodies that come over another connection."""
        if wire is not self._wires[-1]:
            with self._changed:
                while self._protocol.runs_ahead and not (self.quiet or self._closed):
                    self._changed.wait(_LOOK)

    def _take(self, event: Event) -> None:
        match event:
            case Part() if self._error is None:
                assembled = self._assembler.take(event)
                if assembled is not None and not self._closed:
                    self._protocol.account.charge([assembled.cost])
                    self._sender.blocked = self._sender.no_room = 0
                    self._batches.append(assembled)
            case Announced() if self._error is not None:
                close_all((event.attachment,))
            case Announced():
                self.counters.regions += 1
                self.counters.cached_regions += self._reach.announce(event)
            case Awaited(event=handle):
                self._reach.await_event(handle)
            case Welcomed(welcome=welcome):
                self._reach.begin()
                self.welcome = welcome
                self._sender.silence.learn(welcome.patience)
                self._assembler.charged = welcome.charged
            case Asked(devices=devices):
                self._wires[-1].send(self._reach.answer(devices), self.limits.stall_timeout)
            case Blocked(nbytes=nbytes):
                self._sender.blocked = nbytes
                self._sender.give_back()
            case NoRoom(nbytes=nbytes):
                self._sender.no_room = nbytes
            case Failed(error=error):
                # The connection stays: what the user holds can still be freed over it.
                self._error = self._error or error
                self._stopped = True
                self._assembler.finish()
                self._notes.put(Command.QUIET)
            case Ping():
                self._notes.put(Command.PINGED)
            case End() if self._error is None:
                self._complete = True
                self._assembler.finish()
                self._notes.put(Command.QUIET)
            case Stopped():
                self._stopped = True
                self._assembler.finish()
                self._notes.put(Command.QUIET)

    def fail(self, error: BowstringError) -> None:
        """Let the stream end with an error, and hang up."""
        with self._changed:
            if self._error is None and not self._complete:
                self._error = error = self._sender.silence.explain(error)
                if not self.opened:
                    note_turned_away(error)
            elif self._complete and type(error) not in (BrokenError, ClosedError, DeadlineExceeded):
                self._behind_end = error  # not a lost connection, which nobody needs any more
            self._changed.notify_all()
        if self.borrows:  # whoever answers closes what was lent, and then hangs up
            self._sender.stop()
            return
        with self._changed:
            used = self._assembler.leases or self._error is None
        if not used:  # or the producer would have to think the worst
            self._loans.say_never_used()
        self._sender.stop()
        self.hang_up()

    # What the stream asks.

    def schema(self) -> pa.Schema:
        """Return the schema, waiting for it.

        Raises
        ------
        BowstringError
            Whatever kept it from coming.
        """
        self.check_process()
        with self._changed:
            self._wait(lambda: self.opened, self.limits.connect_timeout)
            return self._assembler.schema

    @property
    def opened(self) -> bool:
        """Whether the stream has begun."""
        return self._assembler.schema is not None and (self.welcome is not None or not self.extended)

    def next(self) -> Batch:
        """Return the next batch, waiting for it.

        Raises
        ------
        EndOfStream
            There are no more.
        ClosedError
            The stream was closed on this side.
        Starved
            The batches that the user keeps use up all the credit.
        BowstringError
            Whatever kept it from coming.
        """
        self.check_process()
        ordered: Assembled | None = None
        while True:
            with self._changed:
                if self._closed or not self._batches:
                    self._wait(lambda: bool(self._batches) or self._complete, self.limits.reply_timeout)
                if not self._batches:
                    if self._behind_end is not None:
                        raise copy.copy(self._behind_end)
                    self._notes.put(Command.READ)
                    raise EndOfStream("there are no more batches")
                assembled = self._batches[0]
                if assembled is ordered or assembled.awaited is None:
                    self._batches.popleft()
                    self._protocol.account.give_back(assembled.cost)
                    self.counters.count(assembled.batch.num_rows, assembled.nbytes)
                    self._sender.delivered(assembled)
                    return assembled.batch
            # Without the lock, because a device may be waited for; whoever calls again asks for it again.
            failed = self._reach.order(assembled)
            ordered = None if failed is not None else assembled
            del assembled  # what is raised keeps this frame
            if failed is not None:
                try:
                    raise failed
                finally:
                    del failed  # which this frame holds, as the error holds the frame

    def _wait(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `ready`, an error, or too long a silence of the peer."""
        began = time.monotonic()
        while True:
            if self._closed:  # first of all: what was dropped then must not look like the end
                raise ClosedError("the stream is closed")
            if ready():
                break
            if self._error is not None:
                # A copy, because what is raised keeps the frames it passed, and so the user's batches, alive.
                raise copy.copy(self._error) from self._error.__cause__
            self._sender.waiting = True
            self._sender.feed()
            self._changed.wait(_LOOK)
            check_silence(
                [wire for wire in self._wires if not wire.over],
                began,
                seconds,
                answers=self.extended,
                missing=self._protocol.missing,
            )
        self._sender.waiting = False
        self.counters.seconds_waited += time.monotonic() - began

    def check_process(self) -> None:
        """Refuse to go on in a child of the process that opened the stream."""
        if os.getpid() != self._pid:
            raise ForkedError(
                "the stream belongs to the parent process",
                hint="Call connect() in the child. Batches that were there before the fork stay true.",
            )

    @property
    def peer(self) -> str:
        """Who is at the other end, in words."""
        return str(self._wires[-1].channel)

    @property
    def path(self) -> tuple[str, str]:
        """Which road the bodies take, and why."""
        if self.welcome is not None:
            return self.welcome.path, self.welcome.why
        return f"{self._wires[-1].channel.scheme}: packed", "the server knows only the plain protocol"

    # Life.

    @property
    def leases(self) -> int:
        """How many leases were given out so far."""
        return self._assembler.leases

    @property
    def borrows(self) -> bool:
        """Whether memory was lent by handles, which must be closed before we hang up."""
        return self._loans.by_handles

    @property
    def quiet(self) -> bool:
        """Whether the producer sends nothing more."""
        return self._complete or self._stopped or self._error is not None

    def discard(self) -> bool:
        """Drop what nobody will ask for; return whether the stream had been read to its end."""
        with self._changed:
            if not self._discarded:
                self._discarded = self._closed = True
                self._read_all = self._complete and not self._batches
                self._batches.clear()
                if self.quiet:  # what is still on its way needs the dictionaries
                    self._assembler.finish()
                self._changed.notify_all()
            return self._read_all

    def wake(self) -> None:
        """Let the reading call look again."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Ask for nothing more. Batches that were given out stay true, and are freed when they are collected."""
        if os.getpid() != self._pid:
            return
        self.discard()
        self._notes.put(Command.CLOSED)

    def flush(self, seconds: float) -> None:
        """Wait until the producer was told all that it should know."""
        if os.getpid() == self._pid:
            self._sender.flush(seconds)

    def abandon(self) -> None:
        """Close without waiting for any lock: for finalizers."""
        self._notes.put(Command.CLOSED)

    def finish(self) -> None:
        """Let go of connections and regions: nothing more is said, and no batch needs them."""
        try:
            if self.borrows:
                self.give_back()
        finally:
            self.hang_up()
        self._loans.forget()
        for wire in self._wires:
            wire.forget()

    def give_back(self) -> None:
        """Close what was lent by handles (:meth:`Loans.give_back`)."""
        self._loans.give_back(all_freed=self._sender.all_freed)
        self._notes.put(Command.RETURNED)

    def hang_up(self) -> None:
        """Close all connections."""
        for wire in self._wires:
            wire.channel.close()
