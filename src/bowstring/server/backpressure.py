"""Room: what a producer of batches waits for when its pool is full."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from bowstring.dissociated.wire import Outgoing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.dissociated.producer import ProducerProtocol
    from bowstring.limits import Limits
    from bowstring.locks import Condition
    from bowstring.memory import Pool

# Waits until there may be room for so many bytes; false when there will not be.
MakeRoom = Callable[[int], bool]

_LOOK: Final = 0.01


class Room:
    """Waits for memory of the pool that this reader holds, or others."""

    def __init__(
        self,
        protocol: ProducerProtocol,
        pool: Pool,
        limits: Limits,
        changed: Condition,
        given_up: Callable[[], bool],
        send: Callable[[Sequence[Outgoing]], object],
    ) -> None:
        self._protocol = protocol
        self._pool = pool
        self._limits = limits
        self._changed = changed
        self._given_up = given_up
        self._send = send
        self._frees_seen = 0
        self._short_since = 0.0

    def found(self) -> None:
        """Take note that there was room for a batch."""
        self._short_since = 0.0

    def make(self, nbytes: int) -> bool:
        """Wait until the reader frees something; false when it holds nothing that it could free."""
        with self._changed:
            news = self._protocol.frees != self._frees_seen
            self._frees_seen = self._protocol.frees
            no_room = self._protocol.no_room(nbytes)
        if news:  # since the last time, maybe while the pool was asked
            return True
        if not no_room:
            return self._wait_for_others(nbytes)
        self._send(no_room)
        with self._changed:
            while self._protocol.frees == self._frees_seen and not self._given_up():
                self._changed.wait(self._limits.heartbeat)
            self._frees_seen = self._protocol.frees
            return not self._given_up()

    def _wait_for_others(self, nbytes: int) -> bool:
        """Wait a moment for room that this reader cannot make; false when there will be none, or not in time."""
        if nbytes > self._pool.stats.budget:
            return False
        now = time.monotonic()
        self._short_since = self._short_since or now
        if now > self._short_since + self._limits.stall_timeout:
            return False
        with self._changed:
            self._changed.wait(_LOOK)
            return not self._given_up()
