"""A lease: what keeps somebody else's memory from being used again while we look at it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol

from bowstring.errors import ClosedError, ViewsAlive
from bowstring.memory.ending import Ending

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bowstring.memory.region import Region

__all__ = ["Export", "Lease"]


class _Queue(Protocol):
    def put(self, item: Any, /) -> None: ...


class Export:
    """What every view that left a batch hangs on; it keeps the lease, and so the memory, alive."""

    __slots__ = ("__weakref__", "lease")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease


class Lease:
    """The right to look at some memory. It ends when the last view of it is collected, or by `release`.

    Parameters
    ----------
    regions
        The regions that the lease keeps alive.
    queue
        Where `note` is put when the lease ends, and nothing else happens then: it may be at any moment, in any
        thread, inside any lock. ``put`` must be reentrant (:class:`queue.SimpleQueue` is).
    note
        What tells the other end of the queue which lease it was.

    Examples
    --------
    >>> import queue
    >>> ended = queue.SimpleQueue()
    >>> lease = Lease((), ended, "batch 7")
    >>> lease.release()
    >>> ended.get(), lease.released
    ('batch 7', True)
    """

    __slots__ = ("__weakref__", "_end", "_export", "_regions", "released")

    def __init__(
        self, regions: Iterable[Region | Lease | Export], queue: _Queue | None = None, note: object = None
    ) -> None:
        self._regions: tuple[Region | Lease | Export, ...] = tuple(regions)
        self._end = None if queue is None else Ending(queue.put, note)
        self._export: weakref.ref[Export] | None = None
        self.released = False

    def export(self) -> Export:
        """Return the token that a view hangs on; while one is alive the lease cannot be released.

        Raises
        ------
        ClosedError
            The lease was released.
        """
        token = self._export() if self._export is not None else None
        if token is None:
            token = Export(self)
            self._export = weakref.ref(token)
        if self.released:
            raise ClosedError("the batch was released", hint="Copy what you need before release().")
        return token

    @property
    def borrowed(self) -> bool:
        """Whether somebody waits to hear of the end of this lease."""
        return self._end is not None

    @property
    def exported(self) -> bool:
        """Whether a view that left the batch is alive."""
        return self._export is not None and self._export() is not None

    def release(self) -> None:
        """End the lease now. Does nothing the second time.

        Raises
        ------
        ViewsAlive
            Arrays, buffers or capsules made from the batch are alive; the lease goes on.
        """
        if self.released:
            return
        # The flag first, the question second: an export that comes in between sees the flag.
        self.released = True
        if self.exported:
            self.released = False
            raise ViewsAlive(
                "the batch cannot be released while views of it are alive",
                hint="Delete the arrays, Arrow buffers and tables made from it, or let it be collected.",
            )
        self._regions = ()
        if self._end is not None:
            self._end.now()
            self._end = None

    def __repr__(self) -> str:
        state = "released" if self.released else "exported" if self.exported else "held"
        return f"<Lease {state}>"
