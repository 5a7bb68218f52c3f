"""A receiver: one stream as it comes in, with a thread for each connection that reads, and one that answers.

The threads keep nothing of the user's alive. They go on after the stream was closed, for as long as batches of it
are alive, because a lease ends with its last view and not before.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.dissociated.consumer import (
    Announced,
    Asked,
    Blocked,
    ConsumerProtocol,
    End,
    Event,
    Failed,
    NoRoom,
    Packed,
    Part,
    Ping,
    Stopped,
    Welcomed,
)
from bowstring.dissociated.devices import pack_answer
from bowstring.dissociated.messages import Hello, Outgoing, Welcome
from bowstring.dissociated.tags import Control
from bowstring.errors import (
    BowstringError,
    ClosedError,
    DeadlineExceeded,
    EndOfStream,
    ForkedError,
    ProtocolError,
    Starved,
)
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.memory import Pool, mappings, watch_forks
from bowstring.reading.answerer import Answerer, Note
from bowstring.reading.assembler import Assembled, Assembler
from bowstring.reading.counters import Counters
from bowstring.reading.process import watch_end
from bowstring.reading.reach import why_not_here
from bowstring.reading.settling import closed
from bowstring.reading.wire import Wire, open_wires
from bowstring.transport.descriptors import close_all
from bowstring.transport.standby import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from bowstring.columnar.batch import Batch
    from bowstring.dissociated.uri import Endpoint
    from bowstring.ipc.compression_device import DeviceBodies

__all__ = ["Receiver"]

_LOOK: Final = 0.5
_MOST_AHEAD: Final = 4096
_TOGETHER: Final = 16
_MOST_FIRST: Final = 256
_URGENT: Final = (Blocked, End, Failed, NoRoom, Stopped)


class Receiver:
    """Brings in one stream.

    Parameters
    ----------
    endpoint
        The data set.
    hello
        How it is wanted; not said to servers that do not know our extensions.
    pool
        Where packed bodies land.
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
        pool: Pool,
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
        self._assembler = Assembler(limits, self._notes, bodies)
        self._protocol = ConsumerProtocol(limits)
        self._batches: collections.deque[Assembled] = collections.deque()
        self._error: BowstringError | None = None
        self._complete = False
        self._stopped = False
        self._closed = self._discarded = self._read_all = False
        self._giving_back = threading.Lock()
        self._gave_back = False
        window = hello.window if self.extended else 0
        free_tag = endpoint.locations[-1].free_data
        self._answerer = Answerer(self, self._wires, self._notes, free_tag, window, streams)
        watch_forks(self)
        watch_end(self)
        self._take_first()
        for wire in self._wires:
            run_in_thread(self._read, wire, name="bowstring-client-reader")

    def _take_first(self) -> None:
        """Read until the stream has begun and nothing more is there yet.

        Whoever opens a stream waits for just this, and a thread would only have to be started, and wake him.
        """
        wire = self._wires[0]
        end = time.monotonic() + self.limits.connect_timeout
        try:
            for _ in range(_MOST_FIRST):
                opened = self._opened()
                if len(self._wires) > 1 or self.quiet or (opened and wire.channel.carries == "nothing"):
                    break
                received = wire.receive(0.0 if opened else max(0.0, end - time.monotonic()))
                if received is None:
                    break
                self._hear(*received, 0)
        except BowstringError as error:
            error.__traceback__ = None
            self._fail(error)
        except BaseException:
            self.hang_up()
            raise

    # The reading threads.

    def _read(self, wire: Wire) -> None:
        if wire is self._wires[0]:
            # From here, because starting a thread takes long, and whoever opens a stream waits for it.
            run_in_thread(self._answerer.run, self, name="bowstring-client-sender")
        unsaid = 0
        try:
            while not self._answerer.finished:
                # What is there already is taken together: each time that the user is woken costs the two of us more
                # than the message does.
                received = wire.receive(0.0 if unsaid else self.limits.heartbeat)
                if received is not None:
                    unsaid = self._hear(*received, unsaid)
                    self._hold_back(wire)
                if unsaid and (received is None or unsaid >= _TOGETHER):
                    unsaid = 0
                    self.wake()
        except BowstringError as error:
            # Its frames hold this receiver, which holds it, and so does the channel.
            error.__traceback__ = None
            # Of a stream that came whole, the connection with the bodies is needed until all is freed.
            if not self._complete or wire is self._wires[-1]:
                self._fail(error)
        except Exception as error:  # noqa: BLE001  the user must hear of it, not the thread's end
            failure = ProtocolError("the stream cannot be read", found=f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            self._fail(failure)

    def _hear(self, tag: int | None, body: Any, attachments: tuple[Any, ...], unsaid: int) -> int:
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
                self._error = self._error or error
                self._changed.notify_all()
                raise
            if any(isinstance(event, _URGENT) or _is_packed(event) for event in events):
                self._changed.notify_all()
                return 0
            return unsaid + len(events)

    def _hold_back(self, wire: Wire) -> None:
        """Let metadata not run far ahead of bodies that come over another connection."""
        if wire is not self._wires[-1]:
            with self._changed:
                while self._protocol.early > _MOST_AHEAD and not (self.quiet or self._closed):
                    self._changed.wait(_LOOK)

    def _take(self, event: Event) -> None:
        match event:
            case Part() if self._error is None:
                assembled = self._assembler.take(event)
                if assembled is not None and not self._closed:
                    self._answerer.blocked = self._answerer.no_room = 0
                    self._batches.append(assembled)
            case Announced() if self._error is not None:
                close_all((event.attachment,))
            case Announced():
                self.counters.regions += 1
                self.counters.cached_regions += self._assembler.announce(event)
            case Welcomed(welcome=welcome):
                self.welcome = welcome
                self._assembler.charged = welcome.charged
            case Asked(devices=devices):
                # From here, because whoever opens a stream waits for what comes next, and may read it himself.
                answer = Outgoing(Control.ANSWER, [pack_answer(why_not_here(devices))])
                self._wires[-1].send([answer], self.limits.stall_timeout)
            case Blocked(nbytes=nbytes):
                self._answerer.blocked = nbytes
                self._answerer.give_back()
            case NoRoom(nbytes=nbytes):
                self._answerer.no_room = nbytes
            case Failed(error=error):
                # The connection stays: what the user holds can still be freed over it.
                self._error = self._error or error
                self._stopped = True
                self._assembler.finish()
                self._notes.put(Note.QUIET)
            case Ping():
                self._notes.put(Note.PINGED)
            case End() if self._error is None:
                self._complete = True
                self._assembler.finish()
                self._notes.put(Note.QUIET)
            case Stopped():
                self._stopped = True
                self._assembler.finish()
                self._notes.put(Note.QUIET)
            case _:
                pass

    def _fail(self, error: BowstringError) -> None:
        with self._changed:
            if self._error is None and not self._complete:
                self._error = error
            self._changed.notify_all()
        if self.borrows:  # whoever answers closes what was lent, and then hangs up
            self._answerer.stop()
            return
        with self._changed:
            used = self._assembler.leases or self._error is None
        if not used:  # or the producer would have to think the worst
            with contextlib.suppress(BowstringError):
                self._forget_regions()
            self._say_unused()
        self._answerer.stop()
        self.hang_up()

    def _say_unused(self) -> None:
        """Tell the producer that we look at nothing of what it lent, and have nothing of it open."""
        if self.extended and not self._wires[-1].channel.closed:
            with contextlib.suppress(BowstringError):
                self._wires[-1].send([Outgoing(Control.UNUSED, [])], _LOOK)

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
            self._wait(self._opened, self.limits.connect_timeout)
            return self._assembler.schema

    def _opened(self) -> bool:
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
        with self._changed:
            self._wait(lambda: bool(self._batches) or self._complete, self.limits.reply_timeout)
            if not self._batches:
                self._notes.put(Note.READ)
                raise EndOfStream("there are no more batches")
            assembled = self._batches.popleft()
            batch = assembled.batch
            self.counters.batches += 1
            self.counters.rows += batch.num_rows
            self.counters.nbytes += batch.nbytes
            self._answerer.delivered(assembled)
        return batch

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
            self._answerer.waiting = True
            self._answerer.feed()
            self._changed.wait(_LOOK)
            self._look(began, seconds)
        self._answerer.waiting = False
        self.counters.seconds_waited += time.monotonic() - began

    def _look(self, began: float, seconds: float) -> None:
        # The deadline runs only while the peer does not answer: a slow producer that lives is waited for.
        # Only a server that answers questions must be heard on each connection.
        heard = [wire.heard for wire in self._wires]
        silent_since = max(began, min(heard) if self.extended else max(heard))
        silent = time.monotonic() - silent_since
        if silent > seconds and not any(wire.busy for wire in self._wires):
            raise DeadlineExceeded(
                "the producer said nothing in time",
                expected=f"something within {seconds} s (Limits.connect_timeout, reply_timeout)",
                found=self._protocol.missing,
                where=self.peer,
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
        return self._assembler.borrows

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

    def starved(self, nbytes: int, held: int, why: str) -> None:
        """Let the reading call fail: the user's own batches hold the credit."""
        raise Starved(
            "the batches that you keep hold all the credit of the stream",
            expected=why,
            found=f"{held} bytes kept, {nbytes} more needed for the next batch",
            where=f"batch {self.counters.batches}",
            hint="Let batches go before asking for more, copy what you keep, or allow for more.",
        )

    def close(self) -> None:
        """Ask for nothing more. Batches that were given out stay true, and are freed when they are collected."""
        if os.getpid() != self._pid:
            return
        self.discard()
        self._notes.put(Note.CLOSED)

    def flush(self, seconds: float) -> None:
        """Wait until the producer was told all that it should know."""
        if os.getpid() == self._pid:
            self._answerer.flush(seconds)

    def abandon(self) -> None:
        """Close without waiting for any lock: for finalizers."""
        self._notes.put(Note.CLOSED)

    def finish(self) -> None:
        """Let go of connections and regions: nothing more is said, and no batch needs them."""
        try:
            if self.borrows:
                self.give_back()
        finally:
            self.hang_up()
        self._forget_regions()
        for wire in self._wires:
            wire.forget()

    def give_back(self) -> None:
        """Close what was lent by handles, and only then say so: the producer's process may free it from then on.

        What is still open after ``Limits.device_timeout``, because a device is busy all that time, or because the
        user holds it and the connection is gone, is not said to be closed: then the producer keeps it for good.
        """
        with self._giving_back:
            if not self._gave_back:
                self._gave_back = True
                with contextlib.suppress(BowstringError):
                    self._forget_regions(0.0)
                if self._answerer.all_freed and closed(self._assembler.lenders, self.limits.device_timeout):
                    self._say_unused()
        self._notes.put(Note.RETURNED)

    def _forget_regions(self, seconds: float = DEFAULT_LIMITS.close_timeout) -> None:
        with self._changed:
            self._assembler.finish()
            self._assembler.forget_regions()
        mappings().trim(seconds)

    def hang_up(self) -> None:
        """Close all connections."""
        for wire in self._wires:
            wire.channel.close()

    def before_fork(self) -> None:
        """Prepare for a fork of this process (:meth:`Answerer.before_fork`)."""
        if self._pid == os.getpid():
            self._answerer.before_fork()

    def after_fork(self) -> None:
        """Go on after a fork, in the parent."""
        if self._pid == os.getpid():
            self._answerer.after_fork()


def _is_packed(event: Event) -> bool:
    return isinstance(event, Part) and isinstance(event.body, Packed)
