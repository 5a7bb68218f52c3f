"""The thread of a stream that sends what its reader has to say."""

from __future__ import annotations

import contextlib
import enum
import os
import queue
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, Protocol

from bowstring.client.connection.device import Settled, settle
from bowstring.client.connection.timeouts import OwnSilence
from bowstring.dissociated.reader import Lent, ReaderProtocol, Use
from bowstring.errors import BowstringError, BrokenError, DeadlineExceeded
from bowstring.memory import fork_sentinel
from bowstring.transport.threads import NO_THREAD, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bowstring.client.connection.wire import Wire
    from bowstring.dissociated.wire import Outgoing
    from bowstring.limits import Limits

_FORK_SECONDS: Final = 1.0
_MOST_NOTES: Final = 16_384


class Command(enum.Enum):
    """Commands to the sending thread, besides leases that ended."""

    LOOK = "the protocol has something to send, or is over"
    CLOSED = "the stream was closed, by a finalizer that may take no lock"
    RETURNED = "what was lent is closed, or cannot be"
    GONE = "the connection is gone"


class _Counted(threading.Event):
    """Set when all leases that had ended before are freed: also those whose memory a device was reading."""


class _Stream(Protocol):
    limits: Limits

    @property
    def changed(self) -> threading.Condition: ...
    @property
    def borrows(self) -> bool: ...
    def discard(self) -> None: ...
    def give_back(self) -> None: ...
    def finish(self) -> None: ...


class ControlSender:
    """Sends the reader's control messages, when leases end and when time passes."""

    def __init__(
        self,
        stream: _Stream,
        protocol: ReaderProtocol,
        wires: Sequence[Wire],
        notes: queue.SimpleQueue[Any],
        streams: Mapping[int, object],
    ) -> None:
        # Not to keep it alive: it keeps us, and a closed stream shall go without the collector's help.
        self._reference = weakref.ref(stream)
        self._protocol = protocol
        self._wires = wires
        self._notes = notes  # finalizers put leases that ended here, others commands
        self._pid = os.getpid()
        self._forks = fork_sentinel().noticed()
        self._streams = streams  # by address, where work on batches of a device is queued; empty: anywhere
        self._give_up: float | None = None
        self._gate = threading.Lock()
        self._gated = False
        self._barrier: _Counted | None = None
        # One thread at most waits for devices, whatever ends meanwhile: the next wait is for all of that.
        self._busy: list[Lent] = []
        self._settling = False
        self._returning = self._all_returned = False
        self._uncounted: list[threading.Event] = []
        self._unheard = False
        self.silence = OwnSilence(stream.limits.heartbeat, stream.limits.lease_timeout)
        self.finished = False
        self.waiting = False

    @property
    def _stream(self) -> _Stream:
        stream = self._reference()
        assert stream is not None
        return stream

    # Called by the connection.

    def look(self) -> None:
        """Let the thread send what is due."""
        self._notes.put(Command.LOOK)

    def counts_are_old(self) -> None:
        """Take note that a batch was delivered: what is freed from now on was not counted before."""
        self._barrier = None

    def feed(self, where: str) -> None:
        """Enlarge the window where the producer waits for memory that only the user holds, or raise `Starved`."""
        if not self._protocol.starves:
            self._barrier = None
        elif self._counted():
            self._protocol.relieve(where)
            self.look()

    def _counted(self) -> bool:
        """Whether all that was freed until now has been counted; if not, the thread will wake the caller."""
        if self._barrier is None:
            self._barrier = _Counted()
            self._notes.put(self._barrier)
        if not self._barrier.is_set():
            return False
        self._barrier = None
        return True

    def flush(self, seconds: float) -> None:
        """Wait until all that was due until now was sent."""
        barrier = threading.Event()
        self._notes.put(barrier)
        if not self.finished:
            barrier.wait(seconds)

    def stop(self) -> None:
        """End the thread: the connection is gone."""
        self._notes.put(Command.GONE)

    def _send_forked(self) -> None:
        """Tell the producer that a child of this process may look at all that is lent now."""
        outgoing = self._protocol.forked()
        if outgoing and not self.finished:
            self._wires[-1].send(outgoing, _FORK_SECONDS)

    def before_fork(self) -> None:
        """Send FORKED, and free nothing until `after_fork`: the child inherits what is lent in between, too."""
        if self._pid != os.getpid():
            return
        self._gated = self._gate.acquire(timeout=_FORK_SECONDS)
        self._send_forked()

    def after_fork(self) -> None:
        """Send FORKED once more, for what came since, and go on."""
        if self._pid != os.getpid():
            return
        try:
            self._send_forked()
        finally:
            if self._gated:
                self._gate.release()

    # The thread.

    def run(self, stream: _Stream) -> None:
        """Send for `stream` until it is over and its last lease has ended."""
        self.silence.begin()
        while self.turn(stream, self.silence.wait):
            pass

    def turn(self, stream: _Stream, seconds: float) -> bool:
        """Wait for something to send, and send what is due; false where that was the last time.

        From one turn to the next is the silence of this side, which begins before the first one.
        """
        notes = self._gather(seconds)
        self.silence.end()
        try:
            self._step(notes)
        except BowstringError:  # the reading thread sees the same, and tells the user
            self.finished = True
        except BaseException:
            self._finish(stream)
            raise
        if self.finished:
            self._finish(stream)
            return False
        self.silence.begin()
        return True

    def _finish(self, stream: _Stream) -> None:
        self.finished = True
        for barrier in [*self._uncounted, *_barriers_in(self._gather(0.0))]:
            barrier.set()
        stream.finish()

    def _gather(self, seconds: float) -> list[Any]:
        """Return the notes that are there, waiting for the first one."""
        try:
            notes = [self._notes.get(timeout=seconds)]
        except queue.Empty:
            return []
        while len(notes) < _MOST_NOTES:
            try:
                notes.append(self._notes.get_nowait())
            except queue.Empty:
                break
        return notes

    def _step(self, notes: list[Any]) -> None:
        freed: list[Lent] = []
        busy: list[Lent] = []
        settled = False
        for note in notes:
            if isinstance(note, Lent):
                (freed if note.device is None else busy).append(note)
            elif isinstance(note, Settled):
                settled = True
                freed += note.ended
        self._settle(busy, done=settled)
        if Command.CLOSED in notes:
            self._stream.discard()
        forked = self._forked()  # before what ended is freed: a child may look at it still
        protocol = self._protocol
        with self._stream.changed:
            protocol.free(freed)
            if not notes and self.waiting:
                protocol.ask()
            self._look_at_clock()
            bodies, metadata = protocol.to_send()
            # What is due from now on is not among these: the next turn sends it, and may be the last one.
            over = protocol.over and protocol.all_freed
        self._send([*forked, *bodies], metadata)
        over = over and self._given_back(done=Command.RETURNED in notes)
        self.finished = Command.GONE in notes or over
        self._raise_barriers([*self._uncounted, *_barriers_in(notes)])

    def _raise_barriers(self, barriers: list[threading.Event]) -> None:
        """Wake those who wait until all was sent, or counted, where that is so by now."""
        if not barriers:
            return
        busy = self._settling or bool(self._busy)
        returning = self._returning and not self.finished
        self._uncounted = [each for each in barriers if returning or (busy and isinstance(each, _Counted))]
        for barrier in barriers:
            if barrier not in self._uncounted:
                barrier.set()
        with self._stream.changed:
            self._stream.changed.notify_all()

    def _look_at_clock(self) -> None:
        """Give up on a producer that does not answer STOP in time."""
        if self._protocol.use is Use.CLOSED and self._give_up is None:
            self._give_up = time.monotonic() + self._stream.limits.close_timeout
        if self._give_up is not None and time.monotonic() > self._give_up:
            self._protocol.give_up()

    def _given_back(self, *, done: bool) -> bool:
        """Whether what was lent by handles is closed, as far as it can be; another thread waits for that."""
        self._all_returned = self._all_returned or done or not self._stream.borrows
        if not (self._all_returned or self._returning):
            self._returning = True
            try:
                run_in_thread(self._stream.give_back, name="bowstring-client-returner")
            except NO_THREAD:  # it is done before we hang up
                return True
        return self._all_returned

    def _settle(self, busy: list[Lent], *, done: bool) -> None:
        """Have a thread wait for the devices before their memory is freed."""
        self._busy += busy
        self._settling = self._settling and not done
        if self._busy and not self._settling:
            # In a thread of its own: a kernel may run for minutes, and the producer's questions must be answered.
            ended, self._busy, self._settling = self._busy, [], True
            try:
                run_in_thread(settle, ended, self._streams, self._notes, name="bowstring-client-settler")
            except NO_THREAD:  # the process ends, or has too many: later, then
                self._busy, self._settling = ended, False

    def _forked(self) -> list[Outgoing]:
        """Return what tells the producer of a fork that was not announced, where something is lent."""
        forks = fork_sentinel().noticed()
        if forks == self._forks:
            return []
        self._forks = forks
        return self._protocol.forked()

    def _send(self, bodies: Sequence[Outgoing], metadata: Sequence[Outgoing]) -> None:
        if not bodies or self._unheard:
            return
        seconds = self._stream.limits.stall_timeout
        try:
            with self._gate:
                self._wires[-1].send(bodies, seconds)
        except (BrokenError, DeadlineExceeded):
            # Not the end yet: the reading thread takes what had arrived before, and then finds the same.
            self._unheard = True
            return
        for wire in self._wires[:-1]:
            if metadata and not wire.over:
                # The peer may have closed it (`Wire.over`).
                with contextlib.suppress(BrokenError, DeadlineExceeded):
                    wire.send(metadata, seconds)


def _barriers_in(notes: list[Any]) -> list[threading.Event]:
    return [note for note in notes if isinstance(note, threading.Event)]
