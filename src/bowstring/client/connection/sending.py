"""What the reader of a stream has to say, sent by whichever thread has the turn, and the end of a stream.

A stream goes on after it was closed, for as long as batches of it are alive, because a lease ends with its last
view and not before. What is kept for it then keeps nothing of the user's alive.
"""

from __future__ import annotations

import abc
import contextlib
import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.client.connection.device import closed, settle
from bowstring.client.connection.incoming import Incoming
from bowstring.client.connection.keeper import kept
from bowstring.client.connection.wire import Wire, note_turned_away
from bowstring.dissociated.reader import Lent
from bowstring.errors import BowstringError, BrokenError, ClosedError, DeadlineExceeded
from bowstring.memory import fork_sentinel, mappings, watch_forks
from bowstring.transport.loop import Job, do_in_loop
from bowstring.transport.threads import NO_THREAD, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.client.reading import Reading
    from bowstring.dissociated.endpoint import Endpoint
    from bowstring.dissociated.partitions import PartitionTicket
    from bowstring.dissociated.wire import Outgoing

_FORK_SECONDS: Final = 1.0
_PAUSE: Final = 0.001
_SAY_SECONDS: Final = 0.5
_MOST_NOTES: Final = 16_384
# Of so many leases the addresses surely go at once.
_FEW: Final = 64


class Turn(dict[None, int]):
    """Of one thread at a time: `take` it inside of a `try`, and delete it at its end, whatever came of it.

    It is there while a thread has it. Unlike a lock it says whose it is, and an interrupt cannot come between.
    """

    def take(self) -> bool:
        """Take it, if it is free; wait for nothing."""
        me = threading.get_ident()
        return self.setdefault(None, me) == me


class Sending(Incoming):
    """A stream that sends its control messages, when leases end and when time passes, until nothing is lent."""

    def __init__(
        self, endpoint: Endpoint, reading: Reading, partitions: Sequence[PartitionTicket] = ()
    ) -> None:
        super().__init__(endpoint, reading, partitions)
        self.over = False  # nothing has to be read, or sent, any more
        self._abandoned = False  # the stream was closed by a finalizer, which may take no lock
        self._forks = fork_sentinel().noticed()
        self._sending, self._turn = Turn(), Turn()  # of the threads that send, and receive
        self._gated = False
        self._gone = False  # the connection is: nothing more is sent
        # One thread at most waits for devices, whatever ends meanwhile: the next wait is for all of that.
        self._busy: list[Lent] = []
        self._settling = False
        # Whether a thread closes what was lent by handles, and whether that is done.
        self._returning = self._gave_back = False
        self._once = threading.Lock()
        self._unheard = False
        # What the loop does for the stream, and whether it was rung for that, and a worker is to send.
        self._job = Job(self._attend, "bowstring-client-keeper", waits=False)
        self._rung = self._sends = False
        # Where a task of asyncio awaits the stream, or a connection cannot be waited for, no caller receives.
        self._awaited = reading.dialled is not None

    @abc.abstractmethod
    def _attend(self) -> float | None:
        """Do what the loop does for the stream; return after how many seconds to look again."""

    @property
    def due(self) -> bool:
        if self.over:
            return False
        protocol = self._protocol
        ends = protocol.over and protocol.all_freed and (self._gave_back or not self._returning)
        closes = self._abandoned and not self.closed
        return self._gone or ends or closes or protocol.has_news or not self._notes.empty()

    @property
    def goes_at_once(self) -> bool:
        """Whether what is due can be sent without waiting, as far as is known."""
        few = self._notes.qsize() <= _FEW
        return few and all(wire.over or wire.channel.takes_more for wire in self._wires)

    # Forks.

    def _send_forked(self) -> None:
        """Tell the producer that a child of this process may look at all that is lent now."""
        outgoing = self._protocol.forked()
        if outgoing and not self.over:
            self._wires[-1].send(outgoing, _FORK_SECONDS)

    def before_fork(self) -> None:
        """Send FORKED, and free nothing until `after_fork`: the child inherits what is lent in between, too."""
        end = time.monotonic() + _FORK_SECONDS
        while not (taken := self._sending.take()) and time.monotonic() <= end:
            time.sleep(_PAUSE)
        self._gated = taken
        self._send_forked()

    def after_fork(self) -> None:
        """Send FORKED once more, for what came since, and go on."""
        try:
            self._send_forked()
        finally:
            if self._gated:
                self._sending.clear()

    # Any thread.

    def flush(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.due and time.monotonic() < end:
            if self.goes_at_once:
                self.send()
            time.sleep(_PAUSE)

    def send(self) -> None:
        """Send what is due. Where another thread does, that one does it for this one, too."""
        turn, me = self._sending, threading.get_ident()
        while not self.over:
            try:
                if not turn.take():
                    return
                try:
                    self._step()
                except BowstringError:  # the receiving thread sees the same, and tells the user
                    self.over = True
                except BaseException:
                    self.over = True
                    self.interrupted()
                    raise
                finally:
                    if self.over:
                        self.finish()
            finally:
                if None in turn and turn[None] == me:
                    del turn[None]  # before any call: an interrupt as one begins would keep the turn
            if not self.due:
                return

    def _step(self) -> None:
        protocol = self._protocol
        with self.lock:
            if self._abandoned:
                self.discard()
            notes: list[Any] = []
            with contextlib.suppress(queue.Empty):
                while len(notes) < _MOST_NOTES:
                    notes.append(self._notes.get_nowait())
            freed: list[Lent] = []
            for note in notes:
                if isinstance(note, Lent):
                    (freed if note.device is None else self._busy).append(note)
                else:
                    self._settling = False
                    freed += note
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
                self.wake()  # a starving sender counts again
        if self._busy and not self._settling:
            # In a thread of its own: a kernel may run for minutes, and the producer's questions must be answered.
            ended, self._busy, self._settling = self._busy, [], True
            try:
                streams = {stream.address: stream.owner for stream in self._streams}
                run_in_thread(settle, ended, streams, self._notes, name="bowstring-client-settler")
            except NO_THREAD:  # the process ends, or has too many: later, then
                self._busy, self._settling = ended, False
        self._send([*forked, *bodies], metadata)
        self.over = (over and self._has_given_back()) or self._gone

    def _has_given_back(self) -> bool:
        """Whether what was lent by handles is closed, as far as it can be; another thread waits for that."""
        if self._gave_back or not self._assembler.borrows:
            return True
        if not self._returning:
            self._returning = True
            try:
                run_in_thread(self.give_back, name="bowstring-client-returner")
            except NO_THREAD:  # it is done before we hang up
                return True
        return False

    def give_back(self) -> None:
        """Close what was lent by handles, and only then report it: the producer may free it from then on."""
        with self._once:
            if not self._gave_back:
                try:
                    with contextlib.suppress(BowstringError):
                        self.forget()
                    # What is still open after that time is not reported: the producer keeps it for good.
                    lenders, seconds = self._assembler.lenders, self.limits.device_timeout
                    if self._protocol.all_freed and closed(lenders, seconds):
                        self.say_unused()
                finally:
                    self._gave_back = True
        self._ring()

    def say_unused(self) -> None:
        """Say that nothing of what was lent is looked at, or open: the producer would have to think the worst."""
        outgoing = self._protocol.unused()
        if outgoing and not self._wires[-1].channel.closed:
            with contextlib.suppress(BowstringError):
                self._wires[-1].send(outgoing, _SAY_SECONDS)

    def _send(self, bodies: Sequence[Outgoing], metadata: Sequence[Outgoing]) -> None:
        if not bodies or self._unheard:
            return
        seconds = self.limits.stall_timeout
        try:
            self._wires[-1].send(bodies, seconds)
        except (BrokenError, DeadlineExceeded):
            # Not the end yet: the receiving thread takes what had arrived before, and then finds the same.
            self._unheard = True
            return
        for wire in self._wires[:-1]:
            if metadata and not wire.over:
                # The peer may have closed it (`Wire.over`).
                with contextlib.suppress(BrokenError, DeadlineExceeded):
                    wire.send(metadata, seconds)

    # The loop.

    def _keep(self) -> None:
        if self._job.loop is None:
            kept.add(self)
            watch_forks(self)
            do_in_loop(self._job, 0.0 if self._awaited else self.patience.expect(self.patience.quiet))

    def _ring(self) -> None:
        if not self._rung:
            self._rung = True
            self._job.ring()

    def _look(self) -> None:
        """Have what is due done soon, by the loop."""
        try:
            self._keep()
        except NO_THREAD:
            self.send()
        else:
            self._ring()

    def _send_due(self) -> None:
        """Send what is due, or have a worker do it where that may have to wait."""
        # A device could not be waited for when that was due.
        lacks_thread = bool(self._busy) and not self._settling
        if self.due or lacks_thread:
            if self.goes_at_once and not self._assembler.borrows:
                self.send()
            elif not self._sends:
                self._sends = True
                do_in_loop(Job(self._send_waiting, "bowstring-client-sender"))

    def _send_waiting(self) -> None:
        self._sends = False
        self.send()

    # The end.

    def interrupted(self) -> None:
        """Let the stream end where an interrupt may have lost a message: none is left out without a word."""
        self.fail(
            BrokenError(
                "the stream was interrupted inside a message",
                where=self.peer,
                hint="Batches that are there stay true; connect() again reads the data set anew.",
            )
        )

    def lost(self, wire: Wire, error: BowstringError) -> None:
        """Take note that a connection brings nothing more, which ends the stream where that needs it still."""
        if type(error) is ClosedError and self._protocol.over:  # we hung up ourselves, in good order
            return
        with self.lock:
            if not self._protocol.lost(error, bodies=wire is self._wires[-1]):
                return
        self.fail(error)

    def fail(self, error: BowstringError) -> None:
        """Let the stream end with an error, and hang up."""
        protocol = self._protocol
        with self.lock:
            if not self._complete:
                error = self.patience.explain(error)
            if protocol.fail(error) and not self.opened:
                note_turned_away(error)
            self.wake()
        if not self._assembler.borrows:  # else the sending thread closes what was lent, and then hangs up
            with self.lock:
                used = protocol.lent > 0 or protocol.error is None
            if not used:  # or the producer would have to think the worst
                with contextlib.suppress(BowstringError):
                    self.forget(self.limits.close_timeout)
                self.say_unused()
            self.hang_up()
        self._gone = True
        self._look()

    def close(self) -> None:
        """Ask for nothing more. Batches that were given out stay true, and are freed when they are collected."""
        if os.getpid() != self._pid:
            return
        self.discard()
        if self.due:  # else the end was seen already
            self._look()

    def abandon(self) -> None:
        """Close without waiting for any lock: for finalizers."""
        if not (self.closed or self.over) and os.getpid() == self._pid:
            self._abandoned = True
            self._ring()

    def finish(self) -> None:
        """Let go of connections and regions: nothing more is sent, and no batch needs them."""
        try:
            if self._assembler.borrows:
                self.give_back()
        finally:
            self.hang_up()
        self.forget(self.limits.close_timeout)
        for wire in self._wires:
            wire.end()
        self._notes.ring = None
        kept.discard(self)
        self._job.ring()

    def forget(self, seconds: float = 0.0) -> None:
        """Let go of the regions, and wait so long for devices to be done with them."""
        with self.lock:
            self._assembler.finish()
            self._assembler.forget_regions()
        mappings().trim(seconds)

    def hang_up(self) -> None:
        for wire in self._wires:
            wire.channel.close()
