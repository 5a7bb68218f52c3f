"""Who uses a descriptor right now, so that it is closed only when nobody does.

A descriptor that is closed while another thread waits on it may be given to another file before that thread
wakes. So closing only shuts the connection down, which wakes everybody, and the last user closes.
"""

from __future__ import annotations

import threading

from bowstring.errors import ClosedError
from bowstring.transport.forks import forked

__all__ = ["Usage"]


class Usage:
    """Counts the calls that use a descriptor, and says when it is closed and none of them is left.

    Attributes
    ----------
    closed
        ``close`` was called.
    abandoned
        This is a forked child, and the descriptor is the parent's.
    """

    def __init__(self) -> None:
        # Re-entrant: the collector may run a finalizer that closes this very thing inside these few lines.
        self._lock = threading.RLock()
        self._users = 0
        self._released = False
        self.closed = False
        self.abandoned = False

    def enter(self, owner: object) -> None:
        """Begin to use the descriptor of ``owner``.

        Raises
        ------
        ForkedError, ClosedError
            It is not there for us, or no longer.
        """
        if self.abandoned:
            raise forked(owner)
        with self._lock:
            if self.closed:
                raise ClosedError(f"{owner} was closed")
            self._users += 1

    def leave(self) -> bool:
        """Stop using it; true when the caller must release the descriptor now."""
        with self._lock:
            self._users -= 1
            return self._last()

    def close(self) -> bool:
        """Let nobody begin to use it; true when the caller must release the descriptor now."""
        with self._lock:
            self.closed = True
            return self._last()

    def _last(self) -> bool:
        if not self.closed or self._users or self._released:
            return False
        self._released = True
        return True
