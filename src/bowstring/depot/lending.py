"""What was lent to an attempt: an allocator over slabs that it borrows one after the other.

The promise by which a slab may be lent to the next one: when an attempt says that it is over, nothing in this
process writes any of its slabs again, unless it is lent that one again. Those of which somebody holds a view still
are named, and never lent again.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Final

from bowstring.depot.warm import warm_mappings
from bowstring.errors import UsageError
from bowstring.memory import Buffer, Region, cpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from bowstring.memory import Device, Slab

__all__ = ["LentAllocator"]

_LARGEST: Final = 64 << 20


class LentAllocator:
    """Cuts buffers from borrowed slabs: what :class:`bowstring.memory.Allocator` is for a pool.

    Parameters
    ----------
    borrow
        Given how many bytes are needed, and how many are wanted if more, returns (number, slab), mapped for
        writing.
    """

    def __init__(self, borrow: Callable[[int, int], tuple[int, Slab]]) -> None:
        self._borrow = borrow
        self._wanted = 0
        self._lock = threading.RLock()
        self._region: Region | None = None
        self._next = 0
        self._numbers: dict[int, int] = {}
        # What is mapped: its use tells whether anything can write there still.
        self._slabs: dict[int, tuple[Slab, weakref.ref[Region]]] = {}

    @property
    def device(self) -> Device:
        """Where the buffers are."""
        return cpu()

    def allocate(self, nbytes: int) -> Buffer:
        """Return a fresh buffer at the device's alignment.

        Raises
        ------
        OutOfBudget, DeadlineExceeded
            The depot has no room.
        """
        if nbytes < 0:
            raise UsageError("a buffer cannot have a negative size", found=nbytes)
        with self._lock:
            if self._region is None or self._next + nbytes > self._region.nbytes:
                self._region = None
                self._put_back()
                self._open(nbytes)
            region, offset = self._region, self._next
            assert region is not None
            alignment = self.device.alignment
            self._next = offset + -(-nbytes // alignment) * alignment
        return Buffer.fresh(region, offset, nbytes)

    def _open(self, nbytes: int) -> None:
        number, slab = self._borrow(nbytes, self._wanted)
        self._region, self._next = Region.of_slab(slab), 0
        # Twice the last: an attempt of any size asks few times, and leaves about half of it empty at most.
        self._wanted = min(2 * slab.nbytes, _LARGEST)
        self._slabs[number] = slab, weakref.ref(self._region)
        # No other one lies there now: what lay there before was unmapped.
        self._numbers[slab.address] = number

    def _put_back(self) -> None:
        """Keep the mappings of what is full and written no more, for the next time."""
        for number, (slab, use) in list(self._slabs.items()):
            if use() is None:
                del self._slabs[number]
                warm_mappings().put(slab)

    def number_of(self, region: Region) -> int:
        """Return the number of the slab that a region is."""
        return self._numbers[region.address]

    def let_go(self) -> list[int]:
        """Write nothing any more; return the numbers of the slabs that somebody holds still."""
        with self._lock:
            self._region = None
            self._put_back()
            held = list(self._slabs)
            self._slabs = {}
        return held
