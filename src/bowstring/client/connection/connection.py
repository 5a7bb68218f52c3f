"""One stream with its reader, who receives for itself; the loop does while nobody reads."""

from __future__ import annotations

import contextlib
import copy
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Final

from bowstring import errors
from bowstring.client.connection.device import order
from bowstring.client.connection.sending import Sending
from bowstring.client.stream import Readiness
from bowstring.dissociated.reader import Use
from bowstring.transport.loop import Job, do_in_loop
from bowstring.transport.sockets import StreamChannel
from bowstring.transport.threads import report_uncaught, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from bowstring.client.connection.assembler import Assembled
    from bowstring.client.connection.wire import Wire
    from bowstring.columnar.batch import Batch
    from bowstring.transport import Channel


_LOOK: Final = 0.5
# How often a thread that receives looks whether another one has closed the stream.
_SLICE: Final = 0.1
_TAKEN_TOGETHER: Final = 8


class Connection(Sending):
    """Receives one stream, and gives its batches out."""

    _has_thread = False  # where the loop can wait for nothing
    # When a caller read, and when the producer was asked whether it is there.
    _read = _asked = 0.0
    _waiting = False  # whether a task waits
    _patient_until: float | None = None  # for the answer to STOP

    def start(self) -> None:
        """Have the stream kept alive; called by the stream that ends that."""
        self._read = time.monotonic()
        try:
            for wire in self._wires:
                if not isinstance(wire.channel, StreamChannel):  # there is nothing that the loop can watch
                    self._has_thread = True
                    run_in_thread(self._hear_always, wire, name="bowstring-client-reader")
            self._keep()
        except errors.LimitExceeded as error:  # it ends, whatever came of it
            with self.lock:
                self._protocol.abort(copy.copy(error))
                self._batches.clear()
            self.fail(copy.copy(error))
            self.send()
            raise

    def schema(self) -> pa.Schema:
        # An ordinary answer, of one data set and to a hello, is taken at once.
        is_ordinary = self.extended and self._protocol.partitions is None and len(self._wires) == 1
        if is_ordinary and not self.opened:
            seconds = min(self.limits.connect_timeout, self.limits.heartbeat)
            self._hear(self._wires[0], self.take_beginning, seconds)
        if self.closed or not self.opened:
            self._wait(lambda: self.opened, self.limits.connect_timeout)
        return self._assembler.schema

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
                    raise errors.EndOfStream("there are no more batches")
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
                    # Partitions that were taken may be reported later: the user holds the last batch of each.
                    waits = (
                        protocol.partitions is not None and len(protocol.partitions.said) < _TAKEN_TOGETHER
                    )
                    if protocol.has_news and (until_delivered or not waits):
                        if self._awaited:  # in an event loop, which waits for nothing
                            self._look()
                        else:
                            self._send_due()
                    return batch
            # Without the lock, because a device may be waited for; a later call asks for it again.
            failed = order(assembled, self._streams, self._held_back, self.limits.device_timeout)
            ordered = None if failed is not None else assembled
            del assembled  # what is raised keeps this frame
            if failed is not None:
                try:
                    raise failed
                finally:
                    del failed  # which this frame holds, as the error holds the frame

    def readiness(self, wake: Callable[[], object], began: float) -> Readiness:
        """Return what `next` would do; if it would wait, have `wake` called once something has changed."""
        self.check_process()
        with self.lock:
            if self._batches and not self.closed:
                first = self._batches[0]
                readiness = Readiness.READY if first.is_ready else Readiness.SLOW
            elif self.closed or self._complete or self._protocol.error is not None:
                readiness = Readiness.READY
            else:
                if wake not in self._wakes:
                    self._wakes.append(wake)
                self._waiting = True
                self._check_wait(began)
                self._feed()
                if self.due:
                    self._look()
                self._check_silence(began, self.limits.reply_timeout)
                return Readiness.NOT_YET
            if self._waiting:
                self._waiting = False
                self.counters.seconds_waited += time.monotonic() - began
            return readiness

    def _feed(self) -> None:
        """Enlarge the window where the producer waits for memory that only the user holds, or raise `Starved`."""
        # Once all that was freed is counted, what devices were reading included.
        counts = not self._notes.empty() or self._settling or bool(self._busy)
        if not counts:
            self._protocol.relieve(f"batch {self.counters.batches}")

    # A caller that waits.

    def _wait(self, ready: Callable[[], bool], seconds: float, most: float | None = None) -> None:
        """Receive until `ready`, an error, too long a silence of the peer, or for `most` seconds."""
        began = self._asked = time.monotonic()
        turn, me = self._turn, threading.get_ident()
        idle = 0.0  # at first what is there
        while not self._has_come(ready, began, seconds, feeds=idle > 0.0):
            self._send_due()
            self._read = time.monotonic()
            try:
                if not self._has_thread and turn.take():
                    self._receive(idle)
                else:  # until who receives has something, or gives its turn away
                    with self.lock:
                        is_news = ready() or self.closed or self._protocol.error is not None
                        if not is_news and (self._has_thread or turn):
                            self._changed.wait(_LOOK)
            finally:
                if None in turn and turn[None] == me:
                    del turn[None]  # before any call: an interrupt as one begins would keep the turn
                    self.wake()
            idle = _SLICE
            if most is not None:
                idle = max(0.0, min(idle, began + most - time.monotonic()))
                if not (idle or self._has_come(ready, began, seconds, feeds=True)):
                    self._check_wait(began)
        self._read = now = time.monotonic()
        self.counters.seconds_waited += now - began

    def _has_come(self, ready: Callable[[], bool], began: float, seconds: float, *, feeds: bool) -> bool:
        with self.lock:
            if self.closed:  # first of all: what was dropped then must not look like the end
                raise errors.ClosedError("the stream is closed")
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
            raise errors.DeadlineExceeded(
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
            raise errors.DeadlineExceeded(
                "the producer was silent for too long",
                expected=f"something within {seconds} s (Limits.connect_timeout, reply_timeout)",
                found=self._protocol.missing,
                where=self.peer,
            )

    def _is_silent(self, now: float) -> bool:
        """Whether it is time to ask whether the producer is there, once."""
        since = max(self._asked, *(wire.heard for wire in self._wires))
        if now - since < self.patience.most:
            return False
        self._asked = now
        return True

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
        except errors.BowstringError as error:
            # Its frames hold the stream, which holds it, and so does the channel.
            wire.over = True
            self.lost(wire, errors.without_frames(error))
        except Exception as error:  # noqa: BLE001  the reader must hear of it, not who received
            wire.over = True
            failure = errors.ProtocolError(
                "the stream cannot be read", found=f"{type(error).__name__}: {error}"
            )
            failure.__cause__ = errors.without_frames(error)
            self.fail(failure)
        except BaseException:
            if not 0 <= wire.done == wire.channel.position:  # something was received that is not with us
                self.interrupted()
            raise
        finally:
            self.wake()
        return False

    def _take_turn(self, wire: Wire, seconds: float) -> bool:
        """Process what comes within so many seconds, and what is there behind it; false if nothing came.

        It ends with a packed body: the next one may need memory that only the user can let go.
        """
        if self.take_run(wire, seconds):
            return True
        if wire.begun:
            return False
        received, begun = wire.receive_whole(seconds)
        self.hear_all(received)
        rest = wire.receive(seconds) if begun else None
        if rest is not None:
            self.hear(*rest)
        return bool(received) or rest is not None

    def _take_whole(self, wire: Wire, seconds: float) -> bool:
        """Process what is there whole, and wait for nothing; return whether `_take_turn` has more to do."""
        received, begun = wire.receive_whole(seconds)
        self.hear_all(received)
        return begun

    # The loop.

    def _attend(self) -> float | None:
        """Do what the loop does for the stream; return after how many seconds to look again."""
        self.patience.note_look()
        self._rung = False
        seconds = None
        try:
            if not self.over:
                seconds = self._do_due()
        except Exception as error:  # noqa: BLE001  it is the end of this stream, and not of the others
            report_uncaught()
            self._notes.ring = None
            with contextlib.suppress(Exception):
                self.fail(
                    errors.BrokenError("the stream cannot be kept", found=f"{type(error).__name__}: {error}")
                )
            if not self.over:  # what was lent is given back by a worker, as this job is over
                do_in_loop(Job(self._send_waiting, "bowstring-client-sender"))
            return None
        return None if self.over or seconds is None else self.patience.expect(seconds)

    def _do_due(self) -> float:
        """Do what time demands, receive what is there if nobody reads, and send what is due."""
        looks = self.lock.acquire(blocking=False)  # else somebody is at it
        if looks:
            try:
                now = time.monotonic()
                if self._protocol.use is Use.CLOSED and self._patient_until is None:
                    self._patient_until = now + self.limits.close_timeout
                if self._patient_until is not None and now > self._patient_until:
                    self._protocol.give_up()  # on a producer that does not answer STOP in time
                if self._awaited and self._waiting and self._is_silent(now):
                    self._protocol.ask()
            finally:
                self.lock.release()
        is_read = bool(self._turn) or self._is_read
        receives = not (is_read or self._has_thread)
        self._notes.ring = self._ring if receives or self._protocol.over else None
        self._send_due()
        if receives and not self.over:
            if not self._turn.take():  # a caller was quicker
                return self.patience.quiet
            try:
                rest = [self._hear(wire, self._take_whole, 0.0) for wire in self._heard]
            finally:
                self._give_turn()
            self._send_due()
            if any(rest) or self._lost_peer or not self._rearm():
                do_in_loop(Job(self._read_on, "bowstring-client-reader"))
        return self.patience.most if looks and not is_read else self.patience.quiet

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
        self._ring()

    @property
    def _lost_peer(self) -> bool:
        return any(wire.channel.peer.exited(0.0) for wire in self._wires if not wire.over)

    @property
    def _is_read(self) -> bool:
        ended = self._awaited or self.closed or self._protocol.over
        return not ended and time.monotonic() - self._read < self.patience.quiet

    def _rearm(self) -> bool:
        """Have the loop wait for what comes; false where there is something to receive at once."""
        if (loop := self._job.loop) is None:
            return True
        return all(_watched(wire.channel, lambda fds: loop.wait_for(self._job, fds)) for wire in self._heard)

    def _give_turn(self) -> None:
        if self._turn.get(None) == threading.get_ident():
            self._turn.clear()
            self.wake()


def _watched(channel: Channel, register: Callable[[Sequence[int]], None]) -> bool:
    """Register what a connection waits for; false where receiving says at once that it is over."""
    try:
        return channel.watch(register)
    except (errors.ClosedError, errors.ForkedError):
        return False
