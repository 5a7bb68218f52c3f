"""The keeper of a process's streams: a job of the loop that does what they need while nobody reads them.

It answers for a stream that nobody has read for a moment, gives back what ended, gives up on a producer that is
asked to stop and does not, and knows for how long this process was stopped.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import functools
import math
import os
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self, TypeVar

from bowstring.errors import BowstringError, BrokenError, LeaseExpired
from bowstring.memory import watch_forks
from bowstring.transport.loop import Job, do_in_loop
from bowstring.transport.threads import report_uncaught

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

# So long nobody reads a stream before the loop does; so often it is looked at.
QUIET: Final = 0.1
_SHORTEST: Final = 0.05
_LINGER: Final = 2.0
_MOST_PAUSES: Final = 16
_GOODBYE_SECONDS: Final = 1.0


class Patience(NamedTuple):
    """How long a producer waits for an answer, and what follows from that; times are seconds."""

    producers: float
    most: float  # between two looks at the stream, so that such a silence is noticed
    quiet: float  # after so long that nobody reads, the loop does

    @classmethod
    def of(cls, producers: float, heartbeat: float) -> Self:
        most = min(heartbeat, max(producers / 2, _SHORTEST))
        return cls(producers, most, min(QUIET, most / 2))


class Kept(Protocol):
    """A stream as its keeper sees it: a `Connection`, which is above."""

    patience: Patience

    def attend(self) -> None: ...
    def look(self, now: float) -> float: ...
    def close(self) -> None: ...
    def flush(self, seconds: float) -> None: ...
    def fail(self, error: BowstringError) -> None: ...
    def before_fork(self) -> None: ...
    def after_fork(self) -> None: ...


class Keeper:
    """Keeps streams from their opening until their last lease has ended."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._streams: set[Kept] = set()
        self._rung: collections.deque[Kept] = collections.deque()
        self._job = Job(self._turn, "bowstring-client-keeper", waits=False)
        self._runs = self._hasty = False
        self._looks = self._looked = self._used = 0.0
        # When this process did nothing for longer than it meant to: how long, and until when.
        self._pauses: collections.deque[tuple[float, float]] = collections.deque(maxlen=_MOST_PAUSES)
        watch_forks(self)

    # From any thread.

    def keep(self, stream: Kept) -> None:
        """Look after a stream; nothing happens if that is done already."""
        self._streams.add(stream)
        if not self._runs:
            try:
                self._start()
            except BaseException:
                self._streams.discard(stream)
                raise
        elif self._looks > time.monotonic() + stream.patience.quiet:
            self.hasten()

    def _start(self) -> None:
        with self._starting:
            if not self._runs:
                self._looks = self._looked = self._used = time.monotonic()
                self._job = Job(self._turn, "bowstring-client-keeper", waits=False)
                do_in_loop(self._job)
                self._runs = True

    def drop(self, stream: Kept) -> None:
        self._streams.discard(stream)

    def ring(self, stream: Kept) -> None:
        """Have a stream attended to; for finalizers, too."""
        self._rung.append(stream)
        self._job.ring()

    def hasten(self) -> None:
        """Look at all streams now."""
        self._hasty = True
        self._job.ring()

    def explain(self, error: BowstringError, patience: float) -> BowstringError:
        """Return what the end of a connection means: after a pause beyond the producer's patience, a lost lease.

        A producer that lives says so itself where it can. On a stream of bytes it cannot behind half a message.
        """
        if type(error) is not BrokenError:
            return error
        now = time.monotonic()
        pauses = [(now - max(self._looked, self._looks), now), *self._pauses] if self._runs else []
        silent = max(
            (took for took, ended in pauses if took > patience and now - ended <= patience), default=0.0
        )
        if not silent:
            return error
        expired = LeaseExpired(
            "this process did not answer in time, and the producer hung up",
            expected=f"an answer within {patience:g} s (lease_timeout, stall_timeout of the server's Limits)",
            found=f"{silent:.1f} s without one; {error.what}",
            where=error.where,
            hint="Batches that are there stay true; connect() again reads the data set anew.",
        )
        expired.__cause__ = error.with_traceback(None)
        return expired

    # The loop.

    def _turn(self) -> float | None:
        now = time.monotonic()
        if now - self._looks > _SHORTEST:
            self._pauses.append((now - max(self._looked, self._looks), now))
        while self._rung:
            stream = self._rung.popleft()
            self._guarded(stream, stream.attend)
        if self._hasty or now >= self._looks:
            self._hasty = False
            wait = math.inf
            for stream in list(self._streams):
                wait = min(wait, self._guarded(stream, functools.partial(stream.look, now)) or math.inf)
            if wait <= QUIET:
                self._used = now
            elif now - self._used < _LINGER:
                wait = QUIET  # the next stream shall not have to wake us
            self._looks = now + wait
        self._looked = time.monotonic()
        if self._looks < math.inf or self._goes_on():
            return max(0.0, self._looks - self._looked)
        return None

    def _guarded(self, stream: Kept, call: Callable[[], _T]) -> _T | None:
        """Do something for a stream; what goes wrong ends this stream alone."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001  all streams depend on this thread
            report_uncaught()
            if stream in self._streams:
                failure = BrokenError("the stream cannot be kept", found=f"{type(error).__name__}: {error}")
                with contextlib.suppress(Exception):
                    stream.fail(failure)
                self.drop(stream)  # else the same would go wrong for ever
        return None

    def _goes_on(self) -> bool:
        """Whether a stream has come while the last one seemed to have gone."""
        with self._starting:
            self._runs = False
            self._runs = bool(self._streams or self._rung)
        self._looks = time.monotonic()
        return self._runs

    # Forks, and the end of the process.

    def before_fork(self) -> None:
        for stream in list(self._streams):
            with contextlib.suppress(BowstringError):
                stream.before_fork()

    def after_fork(self) -> None:
        for stream in list(self._streams):
            with contextlib.suppress(BowstringError):
                stream.after_fork()

    def say_goodbye(self) -> None:
        """Let all streams say their last words: who ends right after its last batch has read everything."""
        streams = list(self._streams)
        for stream in streams:
            stream.close()
        end = time.monotonic() + _GOODBYE_SECONDS
        for stream in streams:
            stream.flush(max(0.0, end - time.monotonic()))


_keeper = Keeper()


def keeper() -> Keeper:
    """Return the keeper of this process."""
    return _keeper


@atexit.register
def _say_goodbye() -> None:
    _keeper.say_goodbye()


# What a child has of its parents' streams stays: it frees nothing of theirs.
_parents: list[Keeper] = []


def _after_fork() -> None:
    global _keeper  # noqa: PLW0603  one for the process
    _parents.append(_keeper)
    _keeper = Keeper()


os.register_at_fork(after_in_child=_after_fork)
