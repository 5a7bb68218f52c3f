"""Warm mappings: slabs that this process wrote before and still has mapped, for when they are lent to it again.

Mapping a slab anew costs more than filling it. So a process keeps the mappings of the last slabs that it wrote, and
does not write them before the depot lends it the very same slab again. Meanwhile others may write it, or read it.
"""

from __future__ import annotations

import collections
import os
import threading
import weakref
from typing import TYPE_CHECKING, Final

from bowstring.errors import InvalidRegion
from bowstring.memory import cpu
from bowstring.memory.slab import identity_of
from bowstring.memory.writable_memfd import map_writable_slab

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bowstring.memory import Slab

__all__ = ["WarmMappings", "warm_mappings"]

_MOST_BYTES: Final = 512 << 20
# Each attempt names them all to the depot.
_MOST: Final = 256


class WarmMappings:
    """Writable mappings of slabs by UUID: those that nobody writes now.

    Parameters
    ----------
    most_bytes
        How much may stay mapped. What the depot gives up is kept by a mapping until the next attempt begins.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._idle: collections.OrderedDict[bytes, Slab] = collections.OrderedDict()

    def open(self, fd: int, nbytes: int, uuid: bytes) -> Slab:
        """Return the slab that was lent, mapped for writing; takes ownership of `fd`.

        Raises
        ------
        InvalidRegion
            The descriptor is not what it should be.
        """
        with self._lock:
            known = self._idle.pop(uuid, None)
        if known is None:
            identity = identity_of(fd)
            slab = map_writable_slab(cpu(), fd, nbytes, uuid)
            slab.identity = identity
            _mapped.add(slab)
            return slab
        try:
            if known.identity != identity_of(fd) or known.nbytes != nbytes:
                raise InvalidRegion("another slab is lent under the name of an earlier one", found=uuid.hex())
        finally:
            os.close(fd)
        return known

    def put(self, slab: Slab) -> None:
        """Keep the mapping of a slab that nobody here writes any more."""
        with self._lock:
            self._idle[slab.uuid] = slab
            while (
                len(self._idle) > _MOST or sum(each.nbytes for each in self._idle.values()) > self._most_bytes
            ):
                self._idle.popitem(last=False)

    def names(self) -> list[str]:
        """Return which slabs are mapped, as the depot is told."""
        with self._lock:
            return [uuid.hex() for uuid in self._idle]

    def forget(self, uuids: Iterable[str]) -> None:
        """Unmap slabs that will not be lent again."""
        with self._lock:
            for uuid in uuids:
                self._idle.pop(bytes.fromhex(uuid), None)

    def clear(self) -> None:
        """Unmap everything that nobody uses."""
        with self._lock:
            self._idle.clear()

    def __contains__(self, uuid: bytes) -> bool:
        with self._lock:
            return uuid in self._idle


_warm = WarmMappings()
_mapped: weakref.WeakSet[Slab] = weakref.WeakSet()
_of_parent: list[object] = []


def warm_mappings() -> WarmMappings:
    """Return the warm mappings of this process."""
    return _warm


def _forget_parent() -> None:
    global _warm  # noqa: PLW0603  the child of a fork starts with mappings (and a lock) of its own
    # It does not have the memory mapped, and must never unmap what lies there now instead.
    _of_parent.extend(slab.memory for slab in _mapped)
    _mapped.clear()
    _warm = WarmMappings()


os.register_at_fork(after_in_child=_forget_parent)
