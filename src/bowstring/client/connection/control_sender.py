"""What the reader of a stream has to say, sent by whichever thread has the turn."""

from __future__ import annotations

import contextlib
import enum
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from bowstring.client.connection.device import Settled, closed, settle
from bowstring.dissociated.reader import Lent, ReaderProtocol, Use
from bowstring.errors import BowstringError, BrokenError, DeadlineExceeded
from bowstring.memory import fork_sentinel
from bowstring.transport.threads import NO_THREAD, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bowstring.client.connection.wire import Wire
    from bowstring.dissociated.wire import Outgoing
    from bowstring.limits import Limits
    from bowstring.memory import Device

_FORK_SECONDS: Final = 1.0
_PAUSE: Final = 0.001
_SAY_SECONDS: Final = 0.5
_MOST_NOTES: Final = 16_384
# Of so many leases the addresses surely go at once.
_FEW: Final = 64


class Command(enum.Enum):
    """What notes are there besides leases that ended."""

    CLOSED = "the stream was closed, by a finalizer that may take no lock"
    RETURNED = "what was lent is closed, or cannot be"


class Turn:
    """Of one thread at a time: `take` it inside of a `try`, and `give` it at its end, whatever came of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.owner: int | None = None

    @property
    def taken(self) -> bool:
        return self.owner is not None

    def take(self) -> bool:
        """Take it, if it is free; wait for nothing."""
        me = threading.get_ident()
        with self._lock:
            if self.owner in (None, me):
                self.owner = me
        return self.owner == me

    def give(self) -> bool:
        """Give it back, if this thread has it; return whether it had."""
        had = self.owner == threading.get_ident()
        if had:
            self.owner = None
        return had


class _Stream(Protocol):
    limits: Limits

    @property
    def lock(self) -> threading.RLock: ...
    @property
    def borrows(self) -> bool: ...
    def discard(self) -> None: ...
    @property
    def lenders(self) -> set[Device]: ...
    def forget(self, seconds: float = 0.0) -> None: ...
    def interrupted(self) -> None: ...
    def wake(self) -> None: ...
    def finish(self) -> None: ...


class ControlSender:
    """Sends the reader's control messages, when leases end and when time passes."""

    def __init__(
        self,
        protocol: ReaderProtocol,
        wires: Sequence[Wire],
        notes: queue.SimpleQueue[Any],
        streams: Mapping[int, object],
    ) -> None:
        self._protocol = protocol
        self._wires = wires
        self._notes = notes  # finalizers put leases that ended here, others commands
        self._forks = fork_sentinel().noticed()
        self._streams = streams  # by address, where work on batches of a device is queued; empty: anywhere
        self._give_up: float | None = None
        self._turn = Turn()
        self._gated = False
        self.gone = False  # the connection is: nothing more is sent
        # One thread at most waits for devices, whatever ends meanwhile: the next wait is for all of that.
        self._busy: list[Lent] = []
        self._settling = False
        self._returning = self._all_returned = False
        self._once = threading.Lock()
        self._gave_back = False
        self._unheard = False
        self.finished = False

    @property
    def due(self) -> bool:
        if self.finished:
            return False
        protocol = self._protocol
        ends = protocol.over and protocol.all_freed and not self._returning
        return self.gone or ends or protocol.has_news or not self._notes.empty()

    @property
    def lacks_thread(self) -> bool:
        """Whether a device could not be waited for when that was due."""
        return bool(self._busy) and not self._settling

    @property
    def counted(self) -> bool:
        """Whether all that was freed is counted, what devices were reading included; `lock` is held."""
        return self._notes.empty() and not (self._settling or self._busy)

    @property
    def goes_at_once(self) -> bool:
        """Whether what is due can be sent without waiting, as far as is known."""
        return self._notes.qsize() <= _FEW and all(
            each.over or each.channel.takes_more for each in self._wires
        )

    # Forks.

    def _send_forked(self) -> None:
        """Tell the producer that a child of this process may look at all that is lent now."""
        outgoing = self._protocol.forked()
        if outgoing and not self.finished:
            self._wires[-1].send(outgoing, _FORK_SECONDS)

    def before_fork(self) -> None:
        """Send FORKED, and free nothing until `after_fork`: the child inherits what is lent in between, too."""
        end = time.monotonic() + _FORK_SECONDS
        while not (taken := self._turn.take()) and time.monotonic() <= end:
            time.sleep(_PAUSE)
        self._gated = taken
        self._send_forked()

    def after_fork(self) -> None:
        """Send FORKED once more, for what came since, and go on."""
        try:
            self._send_forked()
        finally:
            if self._gated:
                self._turn.give()

    # Any thread.

    def flush(self, stream: _Stream, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.due and time.monotonic() < end:
            if self.goes_at_once:
                self.send(stream)
            time.sleep(_PAUSE)

    def send(self, stream: _Stream) -> None:
        """Send what is due. Where another thread does, that one does it for this one, too."""
        turn, me = self._turn, threading.get_ident()
        while not self.finished:
            try:
                if not turn.take():
                    return
                self._take_step(stream)
            finally:
                if turn.owner == me:
                    turn.owner = None  # before any call: an interrupt as one begins would keep the turn
            if not self.due:
                return

    def _take_step(self, stream: _Stream) -> None:
        try:
            self._step(stream)
        except BowstringError:  # whoever receives sees the same, and tells the user
            self.finished = True
        except BaseException:
            self.finished = True
            stream.interrupted()
            raise
        finally:
            if self.finished:
                stream.finish()

    def _step(self, stream: _Stream) -> None:
        protocol = self._protocol
        with stream.lock:
            notes: list[Any] = []
            with contextlib.suppress(queue.Empty):
                while len(notes) < _MOST_NOTES:
                    notes.append(self._notes.get_nowait())
            if Command.CLOSED in notes:
                stream.discard()
            freed: list[Lent] = []
            for note in notes:
                if isinstance(note, Lent):
                    (freed if note.device is None else self._busy).append(note)
                elif isinstance(note, Settled):
                    self._settling = False
                    freed += note.ended
            # Before what ended is freed: a child of a fork that was not announced may look at it still.
            forks, forked = fork_sentinel().noticed(), []
            if forks != self._forks:
                self._forks = forks
                forked = protocol.forked()
            protocol.free(freed)
            bodies, metadata = protocol.to_send()
            # What is due from now on is not among these: the next turn sends it, and may be the last one.
            over = protocol.over and protocol.all_freed
            if notes:
                stream.wake()  # whoever starves counts again
        self._settle()
        self._send(stream, [*forked, *bodies], metadata)
        self.finished = (over and self._given_back(stream, done=Command.RETURNED in notes)) or self.gone

    def look_at_clock(self, stream: _Stream, now: float) -> None:
        """Give up on a producer that does not answer STOP in time; `lock` is held."""
        if self._protocol.use is Use.CLOSED and self._give_up is None:
            self._give_up = now + stream.limits.close_timeout
        if self._give_up is not None and now > self._give_up:
            self._protocol.give_up()

    def _given_back(self, stream: _Stream, *, done: bool) -> bool:
        """Whether what was lent by handles is closed, as far as it can be; another thread waits for that."""
        self._all_returned = self._all_returned or done or not stream.borrows
        if not (self._all_returned or self._returning):
            self._returning = True
            try:
                run_in_thread(self.give_back, stream, name="bowstring-client-returner")
            except NO_THREAD:  # it is done before we hang up
                return True
        return self._all_returned

    def give_back(self, stream: _Stream) -> None:
        """Close what was lent by handles, and only then report it: the producer may free it from then on."""
        with self._once:
            if not self._gave_back:
                self._gave_back = True
                with contextlib.suppress(BowstringError):
                    stream.forget()
                # What is still open after that time is not reported: the producer keeps it for good.
                if self._protocol.all_freed and closed(stream.lenders, stream.limits.device_timeout):
                    self.say_unused()
        self._notes.put(Command.RETURNED)

    def say_unused(self) -> None:
        """Say that nothing of what was lent is looked at, or open: the producer would have to think the worst."""
        outgoing = self._protocol.unused()
        if outgoing and not self._wires[-1].channel.closed:
            with contextlib.suppress(BowstringError):
                self._wires[-1].send(outgoing, _SAY_SECONDS)

    def _settle(self) -> None:
        if self._busy and not self._settling:
            # In a thread of its own: a kernel may run for minutes, and the producer's questions must be answered.
            ended, self._busy, self._settling = self._busy, [], True
            try:
                run_in_thread(settle, ended, self._streams, self._notes, name="bowstring-client-settler")
            except NO_THREAD:  # the process ends, or has too many: later, then
                self._busy, self._settling = ended, False

    def _send(self, stream: _Stream, bodies: Sequence[Outgoing], metadata: Sequence[Outgoing]) -> None:
        if not bodies or self._unheard:
            return
        seconds = stream.limits.stall_timeout
        try:
            self._wires[-1].send(bodies, seconds)
        except (BrokenError, DeadlineExceeded):
            # Not the end yet: whoever receives takes what had arrived before, and then finds the same.
            self._unheard = True
            return
        for wire in self._wires[:-1]:
            if metadata and not wire.over:
                # The peer may have closed it (`Wire.over`).
                with contextlib.suppress(BrokenError, DeadlineExceeded):
                    wire.send(metadata, seconds)
