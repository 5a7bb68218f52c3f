"""Events: marks in the work of a device that others can wait for, handed out by address."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from bowstring.memory.ending import Ending

if TYPE_CHECKING:
    import collections

__all__ = ["RecordedEvent"]


class RecordedEvent:
    """An event that was recorded on a stream. When nothing refers to it any more, its handle is noted as idle.

    Parameters
    ----------
    handle
        The driver's handle (``cudaEvent_t``).
    idle
        Where the handle goes then: nobody may call a driver at that moment, which may be any, in any thread.

    Attributes
    ----------
    address : int
        Where the handle is stored, as the C Device interface wants it (``cudaEvent_t*``). True while this lives.
    """

    __slots__ = ("_cell", "_end", "address")

    def __init__(self, handle: int, idle: collections.deque[int]) -> None:
        self._cell = ctypes.c_uint64(handle)
        self.address = ctypes.addressof(self._cell)
        self._end = Ending(idle.append, handle)

    @property
    def handle(self) -> int:
        """The driver's handle."""
        return self._cell.value
