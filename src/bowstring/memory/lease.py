"""Leases: the right to read memory that is used again afterwards, and how the end of that right is noticed."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bowstring.errors import ClosedError, ViewsAlive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Finalizer:
    """Calls ``put(item)`` once, when unreferenced or by `now`; in any thread or lock, so `put` must be reentrant.

    It watches a NumPy array, invisible to the garbage collector, which runs ``__del__`` of objects that another
    one of the same dead cycle then resurrects.
    """

    __slots__ = ("_call", "_watched")

    def __init__(self, put: Callable[[Any], object], item: Any) -> None:
        self._watched = np.empty(0, np.bool_)
        self._call = weakref.finalize(self._watched, put, item)
        self._call.atexit = False  # nothing reads the queue at the end of the interpreter

    def now(self) -> None:
        """Put the item now, and never again."""
        self._call()


class _Queue(Protocol):
    def put(self, item: Any, /) -> None: ...


class Export:
    """The object that each view which left a batch refers to; it keeps the lease, and so the memory, alive."""

    __slots__ = ("__weakref__", "lease")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease


class Lease:
    """The right to read memory of some regions. It ends when the last view of it is collected, or by `release`.

    Then `note` is put on the queue, as by a :class:`Finalizer`: ``put`` must be reentrant.
    """

    __slots__ = ("__weakref__", "_end", "_export", "_readers", "_regions", "released")

    def __init__(self, regions: Iterable[object], queue: _Queue | None = None, note: object = None) -> None:
        self._regions = tuple(regions)
        self._end = None if queue is None else Finalizer(queue.put, note)
        self._export: weakref.ref[Export] | None = None
        self._readers: dict[object, object] = {}
        self.released = False

    def export(self) -> Export:
        """Return the token that a view refers to; while one is alive the lease cannot be released."""
        token = self._export() if self._export is not None else None
        if token is None:
            token = Export(self)
            self._export = weakref.ref(token)
        if self.released:
            raise ClosedError("the batch was released", hint="Copy what you need before release().")
        return token

    def read_on(self, stream: tuple[object, object] | None) -> None:
        """Keep a stream that was handed out (`Device.handed_out`) one that may read, until the lease ends."""
        if stream is not None:
            self._readers.setdefault(*stream)

    @property
    def borrowed(self) -> bool:
        """Whether the end of this lease is reported to a queue."""
        return self._end is not None

    @property
    def exported(self) -> bool:
        """Whether a view that left the batch is alive."""
        return self._export is not None and self._export() is not None

    def release(self) -> None:
        """End the lease now, unless arrays, buffers or capsules made from the batch are alive; idempotent."""
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
        self._readers = {}
        if self._end is not None:
            self._end.now()
            self._end = None

    def __repr__(self) -> str:
        state = "released" if self.released else "exported" if self.exported else "held"
        return f"<Lease {state}>"
