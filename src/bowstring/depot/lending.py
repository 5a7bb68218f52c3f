"""What was lent to an attempt: an allocator over slabs that it borrows one after the other.

The promise by which a slab may be lent to the next one: when an attempt says that it is over, this process has
unmapped every slab that it does not name then. The one it names, because somebody here may write it still, is never
lent again.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Final

from bowstring.errors import UsageError
from bowstring.memory import Buffer, Region, cpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from bowstring.memory import Device, Slab

__all__ = ["LentAllocator"]

_MIB: Final = 1 << 20
_LARGEST: Final = 64 * _MIB


class LentAllocator:
    """Cuts buffers from borrowed slabs: what :class:`bowstring.memory.Allocator` is for a pool.

    Parameters
    ----------
    borrow
        Returns (number, slab) of at least so many bytes, mapped for writing.
    expected
        How many bytes there will be, where somebody knows.
    """

    def __init__(self, borrow: Callable[[int], tuple[int, Slab]], expected: int = 0) -> None:
        self._borrow = borrow
        self._size = min(max(expected, _MIB), _LARGEST)
        self._lock = threading.RLock()
        self._region: Region | None = None
        self._next = 0
        self._numbers: dict[int, int] = {}
        self._slabs: dict[int, weakref.ref[Slab]] = {}

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
                number, slab = self._borrow(max(nbytes, self._size))
                self._slabs[number] = weakref.ref(slab)
                self._numbers[slab.address] = number
                self._region, self._next = Region.of_slab(slab), 0
                self._keep(slab)
                self._size = min(2 * self._size, _LARGEST)
            region, offset = self._region, self._next
            alignment = self.device.alignment
            self._next = offset + -(-nbytes // alignment) * alignment
        return Buffer.fresh(region, offset, nbytes)

    def _keep(self, slab: Slab) -> None:
        """Keep all slabs mapped until the attempt is over, so that no two of them lie at one address."""
        self._kept: list[Slab] = [*getattr(self, "_kept", ()), slab]

    def number_of(self, region: Region) -> int:
        """Return the number of the slab that a region is."""
        return self._numbers[region.address]

    def let_go(self) -> list[int]:
        """Unmap everything; return the numbers of the slabs that somebody holds still."""
        self._region = None
        self._kept = []
        return [number for number, slab in self._slabs.items() if slab() is not None]
