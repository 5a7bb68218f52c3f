"""What a process knows of all its streams: how long a producer waits for it, when it was stopped, and its end."""

from __future__ import annotations

import atexit
import math
import os
import time
import weakref
from typing import Final, NamedTuple, Protocol, Self

from bowstring.errors import BowstringError, BrokenError, LeaseExpired
from bowstring.memory.forks import snapshot

# So long nobody reads a stream before the loop does.
_QUIET: Final = 0.1
_SHORTEST: Final = 0.05
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
        return cls(producers, most, min(_QUIET, most / 2))


class Pauses:
    """When this process looked at a stream later than it meant to."""

    _due, _looked = math.inf, 0.0
    # How long, and until when; the last ones.
    _past: tuple[tuple[float, float], ...] = ()

    def _now(self) -> tuple[float, float]:
        now = time.monotonic()
        return now - max(self._looked, self._due), now

    def note(self) -> None:
        """Take note that the stream is looked at now."""
        if (pause := self._now())[0] > _SHORTEST:
            self._past = (*self._past[-_MOST_PAUSES:], pause)

    def expect(self, seconds: float) -> float:
        """Return after how many seconds to look again: at times that all streams have in common, by one wake."""
        self._looked = time.monotonic()
        soon = seconds - self._looked % seconds
        self._due = self._looked + soon
        return soon

    def explain(self, error: BowstringError, patience: float) -> BowstringError:
        """Return what the end of a connection means: after a pause beyond the producer's patience, a lost lease.

        A producer that lives says so itself where it can. On a stream of bytes it cannot behind half a message.
        """
        if type(error) is not BrokenError:
            return error
        now = time.monotonic()
        pauses = (took for took, until in (self._now(), *self._past) if now - until <= patience)
        if (silent := max(pauses)) <= patience:
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


class _Kept(Protocol):
    def close(self) -> None: ...
    def flush(self, seconds: float) -> None: ...


kept: weakref.WeakSet[_Kept] = weakref.WeakSet()
"""The streams that the loop of this process looks after."""


@atexit.register
def _say_goodbye() -> None:
    """Let all streams say their last words: who ends right after its last batch has read everything."""
    streams = snapshot(kept)
    for stream in streams:
        stream.close()
    end = time.monotonic() + _GOODBYE_SECONDS
    for stream in streams:
        stream.flush(max(0.0, end - time.monotonic()))


os.register_at_fork(after_in_child=kept.clear)
