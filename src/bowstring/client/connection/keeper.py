"""What a process knows of all its streams: how long a producer waits for it, when it was stopped, and its end."""

from __future__ import annotations

import atexit
import math
import os
import time
import weakref
from typing import Any, Final

from bowstring.errors import BowstringError, BrokenError, LeaseExpired
from bowstring.memory.forks import snapshot

# So long nobody reads a stream before the loop does.
_QUIET: Final = 0.1
_SHORTEST: Final = 0.05
_MOST_PAUSES: Final = 16
_GOODBYE_SECONDS: Final = 1.0


class Patience:
    """How long a producer waits for an answer, and when this process looked at a stream later than it meant to."""

    def __init__(self, producers: float, heartbeat: float) -> None:
        self.producers = producers  # all in seconds
        self.most = min(
            heartbeat, max(producers / 2, _SHORTEST)
        )  # between two looks, to notice such a silence
        self.quiet = min(_QUIET, self.most / 2)  # after so long that nobody reads, the loop does
        self._due, self._looked = math.inf, 0.0
        self._pauses: tuple[tuple[float, float], ...] = ()  # the last ones: how long, and until when

    def _pause(self) -> tuple[float, float]:
        now = time.monotonic()
        return now - max(self._looked, self._due), now

    def note_look(self) -> None:
        if (pause := self._pause())[0] > _SHORTEST:
            self._pauses = (*self._pauses[-_MOST_PAUSES:], pause)

    def expect(self, seconds: float) -> float:
        """Return after how many seconds to look again: at times that all streams have in common, by one wake."""
        self._looked = time.monotonic()
        soon = seconds - self._looked % seconds
        self._due = self._looked + soon
        return soon

    def explain(self, error: BowstringError) -> BowstringError:
        """Return what the end of a connection means: after a pause beyond the producer's patience, a lost lease.

        A producer that lives says so itself where it can. On a stream of bytes it cannot behind half a message.
        """
        if type(error) is not BrokenError:
            return error
        patience, now = self.producers, time.monotonic()
        silent = max(took for took, until in (self._pause(), *self._pauses) if now - until <= patience)
        if silent <= patience:
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


kept: weakref.WeakSet[Any] = weakref.WeakSet()
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
