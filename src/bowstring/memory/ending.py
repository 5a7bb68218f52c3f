"""An ending: something that is put somewhere once an object is really gone, and not a moment before.

``__del__`` and weak references to ordinary objects are not good enough for memory that is used again. The garbage
collector runs them for every object of a dead cycle before it knows whether one of them comes back to life, so a
view could be alive whose lease has "ended". A NumPy array is invisible to the collector: it dies by its reference
count alone, when the last object that holds it has been torn down. So an ending watches an empty array.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Ending"]


class Ending:
    """Calls ``put(item)`` once, when whoever holds the ending is gone, or by `now`.

    `put` runs at any moment, in any thread, inside any lock: it may only append to a deque or put into a
    :class:`queue.SimpleQueue`, which are made for that. `item` is kept alive until then.

    Examples
    --------
    >>> ended = []
    >>> ending = Ending(ended.append, "batch 7")
    >>> del ending
    >>> ended
    ['batch 7']
    """

    __slots__ = ("_call", "_watched")

    def __init__(self, put: Callable[[Any], object], item: Any) -> None:
        self._watched = np.empty(0, np.bool_)
        self._call = weakref.finalize(self._watched, put, item)
        # At the interpreter's end nobody is left to hear of it.
        self._call.atexit = False

    def now(self) -> None:
        """Put the item now, and never again."""
        self._call()
