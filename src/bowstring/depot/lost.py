"""Lost slabs: never lent again, as somebody whom the depot lost sight of may still look at them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bowstring.errors import LimitExceeded, Unsupported
from bowstring.memory.slab import reopen
from bowstring.memory.writable_memfd import used_elsewhere

if TYPE_CHECKING:
    from bowstring.depot.stock import Kind, Lent

__all__ = ["LostSlabs"]


class LostSlabs:
    """The slabs that take room though the depot has let go of them, for as long as somebody has them mapped."""

    def __init__(self) -> None:
        self._slabs: list[_Lost] = []

    def add(self, lent: Lent) -> None:
        """Take the account of a slab that comes home retired."""
        try:
            self._slabs.append(_Lost(lent))
        except (OSError, LimitExceeded, Unsupported):
            return  # no descriptor is left to watch it by, or no /proc to have one from

    def nbytes(self, kind: Kind) -> int:
        """Return how many bytes are taken still."""
        return sum(each.nbytes for each in self._mapped() if each.kind == kind)

    def __len__(self) -> int:
        return len(self._mapped())

    def _mapped(self) -> list[_Lost]:
        self._slabs = [each for each in self._slabs if used_elsewhere(each.fd)]
        return self._slabs

    def clear(self) -> None:
        """Watch none any more."""
        self._slabs = []


class _Lost:
    """One slab, by a descriptor that nobody else was sent."""

    def __init__(self, lent: Lent) -> None:
        self.fd = -1
        self.kind = lent.kind
        self.nbytes = lent.slab.nbytes
        self.fd = reopen(lent.fd, os.O_RDWR)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
