"""Locks that an interrupt leaves with nobody.

Python handles a signal behind a call of C code, and where a function begins. A handler that raises there, as Ctrl-C
does, would leave a lock held that no block gives back. ``with lock:`` has no such place if the lock is one of C.
A lock that is taken in time or not at all is taken inside the block, by C code that notes whether it was::

    held: list[bool] = []
    try:
        held += map(lock.acquire, (True,), (seconds,))
        ...
    finally:
        if True in held:
            lock.release()
"""

from __future__ import annotations

import threading


class Condition(threading.Condition):  # noqa: TID251
    """A condition that is entered and left by C code; `threading.Condition` does that by methods in Python."""

    __slots__ = ("__enter__", "__exit__")

    def __init__(self) -> None:
        lock = threading.RLock()
        super().__init__(lock)
        self.__enter__ = lock.__enter__  # type: ignore[method-assign]
        self.__exit__ = lock.__exit__  # type: ignore[method-assign]


class Event(threading.Event):
    """An event with such a condition."""

    def __init__(self) -> None:
        super().__init__()
        self._cond = Condition()
