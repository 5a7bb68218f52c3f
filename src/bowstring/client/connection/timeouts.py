"""Timeouts: of a producer that a reader waits for, of a reader that was stopped, and at the end of the process."""

from __future__ import annotations

import atexit
import time
import weakref
from typing import TYPE_CHECKING, Final

from bowstring.errors import BowstringError, BrokenError, DeadlineExceeded, LeaseExpired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.client.connection import Connection
    from bowstring.client.connection.wire import Wire

_SHORTEST: Final = 0.05


def check_silence(
    wires: Sequence[Wire], began: float, seconds: float, *, answers: bool, missing: str
) -> None:
    """Raise `DeadlineExceeded` if the producer sent nothing for too long; a slow one that answers is waited for."""
    heard = [wire.heard for wire in wires]
    # One that answers questions must be heard on each connection.
    silent_since = max(began, min(heard) if answers else max(heard))
    if time.monotonic() - silent_since > seconds and not any(wire.busy for wire in wires):
        raise DeadlineExceeded(
            "the producer said nothing in time",
            expected=f"something within {seconds} s (Limits.connect_timeout, reply_timeout)",
            found=missing,
            where=str(wires[-1].channel),
        )


class OwnSilence:
    """For how long this side answered nothing because it was not running: stopped, suspended or frozen.

    Only the thread that answers calls `begin` and `end`, around each of its waits.
    """

    def __init__(self, heartbeat: float, patience: float) -> None:
        self.wait = self._heartbeat = heartbeat  # the most seconds that a wait takes by itself
        # How long the producer waits for answers; and how long a past silence still explains that it hung up.
        self._patience = self._remembered = patience
        self._began: float | None = None
        self._longest = self._ended = 0.0

    def learn(self, patience: float | None) -> None:
        """Take the producer's own word for its patience; waits become short enough to notice such a silence."""
        if patience is not None:
            self._patience = patience
            self.wait = min(self._heartbeat, max(patience / 2, _SHORTEST))

    def begin(self) -> None:
        """A wait begins."""
        self._began = time.monotonic()

    def end(self) -> None:
        """The wait is over."""
        now = time.monotonic()
        took = 0.0 if self._began is None else now - self._began
        self._began = None
        if took > self._most() and (took >= self._longest or now - self._ended > self._remembered):
            self._longest, self._ended = took, now

    def _most(self) -> float:
        return max(self.wait, self._patience)

    def explain(self, error: BowstringError) -> BowstringError:
        """Return what the end of a connection means: after a silence beyond the producer's patience, a lost lease.

        A producer that lives says so itself where it can. On a stream of bytes it cannot behind half a message.
        """
        began, now = self._began, time.monotonic()
        waits = 0.0 if began is None or now - began <= self._most() else now - began
        silent = max(waits, self._longest if now - self._ended <= self._remembered else 0.0)
        if type(error) is not BrokenError or not silent:
            return error
        expired = LeaseExpired(
            "this process did not answer in time, and the producer hung up",
            expected=f"an answer within {self._patience:g} s (lease_timeout, stall_timeout of the server's Limits)",
            found=f"{silent:.1f} s without one; {error.what}",
            where=error.where,
            hint="Batches that are there stay true; connect() again reads the data set anew.",
        )
        expired.__cause__ = error.with_traceback(None)
        return expired


_GOODBYE_SECONDS: Final = 1.0

_receivers: weakref.WeakSet[Connection] = weakref.WeakSet()


def watch_end(connection: Connection) -> None:
    """Let a connection take part in the end of the process."""
    _receivers.add(connection)


@atexit.register
def _say_goodbye() -> None:
    # A reader that ends right after its last batch must still say that it read everything.
    receivers = list(_receivers)
    for connection in receivers:
        connection.close()
    end = time.monotonic() + _GOODBYE_SECONDS
    for connection in receivers:
        connection.flush(max(0.0, end - time.monotonic()))
