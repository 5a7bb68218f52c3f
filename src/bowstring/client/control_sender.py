"""Answering: the thread of a receiver that tells the producer what the reader is done with."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import os
import queue
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import numpy as np

from bowstring.client.assembler import Ended
from bowstring.client.device import Settled, settle
from bowstring.client.timeouts import OwnSilence
from bowstring.dissociated.tags import Control
from bowstring.dissociated.wire import Outgoing, pack_addresses, pack_u64
from bowstring.errors import BowstringError, BrokenError, DeadlineExceeded, Starved
from bowstring.memory import fork_sentinel
from bowstring.transport.threads import NO_THREAD, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.client.assembler import Assembled
    from bowstring.client.stream import Counters
    from bowstring.client.wire import Wire
    from bowstring.limits import Limits

__all__ = ["Command", "ControlSender"]

_FORK_SECONDS: Final = 1.0

_MOST_FREED: Final = 16_384
# Credit goes back in parts of the window: for each batch, it would cost more than the batch.
_PARTS: Final = 4


class Command(enum.Enum):
    """What the answering thread is told, besides leases that ended."""

    PINGED = "the producer asks whether we are there"
    READ = "the stream was read to its end"
    CLOSED = "the stream was closed"
    QUIET = "the producer sends nothing more"
    RETURNED = "what was lent is closed, or cannot be"
    STOPPED = "the connection is gone"


@dataclasses.dataclass(frozen=True, slots=True)
class _Enlarged:
    """The window grew by so many bytes."""

    nbytes: int


class _Counted(threading.Event):
    """Set when all leases that had ended before are freed: also those whose memory a device was reading."""


class _Stream(Protocol):
    limits: Limits
    counters: Counters
    extended: bool

    @property
    def leases(self) -> int: ...
    @property
    def quiet(self) -> bool: ...
    @property
    def borrows(self) -> bool: ...
    def discard(self) -> bool: ...
    def wake(self) -> None: ...
    def give_back(self) -> None: ...
    def finish(self) -> None: ...


class ControlSender:
    """Sends what the reader has to say: memory freed, credit given back, answers, and the end.

    Parameters
    ----------
    stream
        The receiver that it answers for.
    wires
        Its connections; memory is freed on the last one, which carries the bodies.
    notes
        Where leases that ended, and everybody else, leave what is to be said.
    free_tag
        The tag of ``free_data``, if the server takes it.
    window
        The credit in bytes that the hello asked for.
    streams
        Where work on batches of a device is queued; by default anywhere on that device.
    """

    def __init__(
        self,
        stream: _Stream,
        wires: Sequence[Wire],
        notes: queue.SimpleQueue[Any],
        free_tag: int | None,
        window: int,
        streams: Sequence[Any] = (),
    ) -> None:
        # Not to keep it alive: it keeps us, and a closed stream shall go without the collector's help.
        self._reference = weakref.ref(stream)
        self._wires = wires
        self._notes = notes
        self._pid = os.getpid()
        self._forks = fork_sentinel().noticed()
        self._free_tag = free_tag
        self._window = window
        self._streams = streams
        self._ended = 0
        self._given = 0
        self._owed = 0
        self._returned = 0
        self._read = self._said_read = self._said_stop = False
        self._closed = False
        self._give_up: float | None = None
        self._gate = threading.Lock()
        self._gated = False
        self._barrier: _Counted | None = None
        # One thread at most waits for devices, whatever ends meanwhile: the next wait is for all of that.
        self._busy: list[Ended] = []
        self._settling = False
        self._returning = self._all_returned = False
        self._uncounted: list[threading.Event] = []
        self._unheard = False
        self.silence = OwnSilence(stream.limits.heartbeat, stream.limits.lease_timeout)
        self.finished = False
        self.waiting = False
        self.blocked = 0
        self.no_room = 0

    @property
    def _stream(self) -> _Stream:
        stream = self._reference()
        assert stream is not None
        return stream

    # Called by the receiver.

    def delivered(self, assembled: Assembled) -> None:
        """Count the credit of a batch that the user has now; a packed one gives it back at once."""
        self._barrier = None  # one from before this batch knows nothing of what is freed from now on
        if not assembled.credit:
            return
        if assembled.until_delivered:
            self._owed += assembled.credit
            if self.blocked or self._owed >= self._window // _PARTS:
                self.give_back()
        else:
            self._given += assembled.credit

    def give_back(self) -> None:
        """Return the credit of what was delivered; a producer that is not blocked can wait for some more."""
        if self._owed:
            self._notes.put(Ended(None, self._owed))
            self._owed = 0

    def feed(self) -> None:
        """When the producer waits for what only the user holds, enlarge the window, or say ``Starved``."""
        needed = self.blocked
        full = bool(self.no_room and self._held())
        short = bool(needed and self._short_by(needed))
        if not (full or short):
            self._barrier = None
            return
        if not self._counted():
            return
        if full:
            self._starved(self.no_room, "the producer's pool has no room for more")
        grown = self._held() + needed
        if grown > self._stream.limits.outstanding_bytes:
            bound = f"Limits.outstanding_bytes is {self._stream.limits.outstanding_bytes}"
            self._starved(needed, bound)
        self._notes.put(_Enlarged(grown - self._window))
        self._window = grown

    def _starved(self, nbytes: int, why: str) -> NoReturn:
        """Let the reading call fail: the user's own batches hold the credit."""
        raise Starved(
            "the batches that you keep hold all the credit of the stream",
            expected=why,
            found=f"{self._held()} bytes kept, {nbytes} more needed for the next batch",
            where=f"batch {self._stream.counters.batches}",
            hint="Let batches go before asking for more, copy what you keep, or allow for more.",
        )

    def _counted(self) -> bool:
        """Whether all that was freed until now has been counted; if not, the thread will wake the caller."""
        if self._barrier is None:
            self._barrier = _Counted()
            self._notes.put(self._barrier)
        if not self._barrier.is_set():
            return False
        self._barrier = None
        return True

    def _held(self) -> int:
        return self._given - self._returned

    def _short_by(self, needed: int) -> bool:
        held = self._held()
        return held > 0 and held + needed > self._window

    def flush(self, seconds: float) -> None:
        """Wait until all that was to be said until now was sent."""
        barrier = threading.Event()
        self._notes.put(barrier)
        if not self.finished:
            barrier.wait(seconds)

    def stop(self) -> None:
        """End the thread: the connection is gone."""
        self._notes.put(Command.STOPPED)

    def _say_forked(self) -> None:
        """Tell the producer that a child of this process may look at all that is lent now."""
        stream = self._reference()
        if stream is None or not stream.extended:
            return
        if stream.leases > self._ended and not self.finished:
            self._wires[-1].send([Outgoing(Control.FORKED, [])], _FORK_SECONDS)

    def before_fork(self) -> None:
        """Say so, and free nothing until `after_fork`: the child inherits what is lent in between, too."""
        if self._pid != os.getpid():
            return
        self._gated = self._gate.acquire(timeout=_FORK_SECONDS)
        self._say_forked()

    def after_fork(self) -> None:
        """Say it once more, for what came since, and go on."""
        if self._pid != os.getpid():
            return
        try:
            self._say_forked()
        finally:
            if self._gated:
                self._gate.release()

    # The thread.

    def run(self, stream: _Stream) -> None:
        """Answer for `stream` until it is over and its last lease has ended."""
        try:
            while not self.finished:
                self.silence.begin()
                notes = self._gather(self.silence.wait)
                self.silence.end()
                self._answer(notes)
        except BowstringError:
            pass  # the reading thread sees the same, and tells the user
        finally:
            self.finished = True
            self._raise_barriers([*self._uncounted, *self._gather(0.0)])
            stream.finish()

    def _gather(self, seconds: float) -> list[Any]:
        """Return the notes that are there, waiting for the first one."""
        try:
            notes = [self._notes.get(timeout=seconds)]
        except queue.Empty:
            return []
        while len(notes) < _MOST_FREED:
            try:
                notes.append(self._notes.get_nowait())
            except queue.Empty:
                break
        return notes

    def _answer(self, notes: list[Any]) -> None:
        ended = [note for note in notes if isinstance(note, Ended)]
        settled = [note for note in notes if isinstance(note, Settled)]
        self._settle([note for note in ended if note.device is not None], done=bool(settled))
        free = [note for note in ended if note.device is None]
        outgoing = self._forked()  # before what ended is freed: a child may look at it still
        outgoing += self._freed(free + [note for each in settled for note in each.ended])
        if Command.PINGED in notes:
            outgoing.append(Outgoing(Control.PONG, []))
        if not notes and self.waiting and self._stream.extended:
            outgoing.append(Outgoing(Control.PING, []))
        outgoing += [
            Outgoing(Control.WINDOW, [pack_u64(note.nbytes)]) for note in notes if isinstance(note, _Enlarged)
        ]
        if Command.CLOSED in notes and not self._closed:
            self._closed = True
            self._read = self._stream.discard()
            self._give_up = time.monotonic() + self._stream.limits.close_timeout
        self._read = self._read or Command.READ in notes
        if self._read and not self._said_read:
            self._said_read = True
            outgoing.append(Outgoing(Control.DONE, []))
        elif self._closed and not self._said_read and not self._said_stop:
            self._said_stop = True
            outgoing.append(Outgoing(Control.STOP, []))
        self._send(outgoing)
        barriers = [*self._uncounted, *(note for note in notes if isinstance(note, threading.Event))]
        over = self._over() and self.all_freed and self._given_back(done=Command.RETURNED in notes)
        self.finished = Command.STOPPED in notes or over
        busy = self._settling or bool(self._busy)
        returning = self._returning and not self.finished
        self._uncounted = [each for each in barriers if returning or (busy and isinstance(each, _Counted))]
        if self._raise_barriers([each for each in barriers if each not in self._uncounted]):
            self._stream.wake()

    @property
    def all_freed(self) -> bool:
        """Whether every lease has ended, and its addresses were freed."""
        return self._ended >= self._stream.leases

    def _given_back(self, *, done: bool) -> bool:
        """Whether what was lent by handles is closed, as far as it can be; somebody else waits for that."""
        self._all_returned = self._all_returned or done or not self._stream.borrows
        if not (self._all_returned or self._returning):
            self._returning = True
            try:
                run_in_thread(self._stream.give_back, name="bowstring-client-returner")
            except NO_THREAD:  # no thread can be had: it is done before we hang up
                return True
        return self._all_returned

    def _settle(self, busy: list[Ended], *, done: bool) -> None:
        """Have somebody wait for the devices before their memory is freed."""
        self._busy += busy
        self._settling = self._settling and not done
        if self._busy and not self._settling:
            # In a thread of its own: a kernel may run for minutes, and the producer's questions must be answered.
            ended, self._busy, self._settling = self._busy, [], True
            try:
                run_in_thread(settle, ended, self._streams, self._notes, name="bowstring-client-settler")
            except NO_THREAD:  # no thread can be had: the process ends, or has too many; later, then
                self._busy, self._settling = ended, False

    @staticmethod
    def _raise_barriers(notes: list[Any]) -> bool:
        barriers = [note for note in notes if isinstance(note, threading.Event)]
        for barrier in barriers:
            barrier.set()
        return bool(barriers)

    def _over(self) -> bool:
        """Whether nothing more comes: the end was read, or the producer stopped, or does not answer."""
        if self._said_read:
            return True
        return self._closed and (
            self._stream.quiet
            or not self._stream.extended
            or (self._give_up is not None and time.monotonic() > self._give_up)
        )

    def _forked(self) -> list[Outgoing]:
        """Return what tells the producer of a fork that was not announced, where something is lent."""
        forks = fork_sentinel().noticed()
        if forks == self._forks:
            return []
        self._forks = forks
        lends = self._stream.extended and self._stream.leases > self._ended
        return [Outgoing(Control.FORKED, [])] if lends else []

    def _freed(self, ended: list[Ended]) -> list[Outgoing]:
        outgoing = []
        freed = [note.addresses for note in ended if note.addresses is not None]
        if freed and self._free_tag is not None:
            addresses = np.concatenate(freed)
            for start in range(0, len(addresses), _MOST_FREED):
                part = addresses[start : start + _MOST_FREED]
                outgoing.append(Outgoing(self._free_tag, [pack_addresses(part)]))
        self._ended += len(freed)
        self._returned += sum(note.credit for note in ended if note.addresses is not None)
        credit = sum(note.credit for note in ended)
        if credit:
            outgoing.append(Outgoing(Control.CREDIT, [pack_u64(credit)]))
        return outgoing

    def _send(self, outgoing: list[Outgoing]) -> None:
        if not self._stream.extended:
            outgoing = [each for each in outgoing if each.tag == self._free_tag]
        if not outgoing or self._unheard:
            return
        shared = [each for each in outgoing if each.tag in _BOTH]
        try:
            with self._gate:
                self._wires[-1].send(outgoing, self._stream.limits.stall_timeout)
        except (BrokenError, DeadlineExceeded):
            # Not the end yet: the reading thread takes what had arrived before, and then finds the same.
            self._unheard = True
            return
        for wire in self._wires[:-1]:
            if shared and not wire.over:
                with contextlib.suppress(
                    BrokenError, DeadlineExceeded
                ):  # the peer may have closed it: see Wire.over
                    wire.send(shared, self._stream.limits.stall_timeout)


# What a stream over two connections says on both.
_BOTH: Final = frozenset({Control.PING, Control.PONG, Control.DONE, Control.STOP})
