"""A slab of the depot: what it counts for, those that are lost, and the descriptors that are left to readers."""

from __future__ import annotations

import dataclasses
import os
import resource
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from bowstring.errors import LimitExceeded
from bowstring.memory import cpu
from bowstring.memory.writable_memfd import free_pages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bowstring.memory import Region, Slab
    from bowstring.memory.slab import Descriptor

Kind = Literal["memory", "disk"]
KINDS: Final[tuple[Kind, Kind]] = ("memory", "disk")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def whole_pages(nbytes: int) -> int:
    """Return how many bytes the pages take that hold so many."""
    return -(-nbytes // _PAGE) * _PAGE


class Piece(NamedTuple):
    """The part of a region that one stream uses, in bytes from its beginning."""

    region: Region
    first: int
    end: int


@dataclasses.dataclass(eq=False, slots=True)
class Lent:
    """A slab of the pool."""

    slab: Slab  # mapped for reading
    fd: Descriptor  # a borrower maps it for writing by this
    kind: Kind
    owner: str = ""  # data set, empty when it is warm or comes back
    since: float = 0.0  # when it became warm, in seconds of the monotonic clock
    # Bytes of memory or disk that it may take: all while it is lent, fewer after its tail was given back.
    held: int = 0
    data: int = 0  # bytes committed
    # Whether the depot copies small streams into it, one behind the other, and never lends it.
    shared: bool = False

    def cut(self, nbytes: int) -> None:
        """Give back the pages of memory behind the first bytes; views of those, and all mappings, stay true.

        A file keeps its length of disk: a process that writes a mapped page without disk space is killed.
        """
        end = whole_pages(nbytes)
        if (
            self.kind == "memory"
            and end < self.slab.nbytes
            and free_pages(self.fd, self.slab.nbytes - end, end)
        ):
            self.held = end
        self.data = nbytes

    def append(self, pieces: Iterable[Piece]) -> list[int]:
        """Copy pieces behind the data that are there; return where each begins now."""
        offsets = []
        for region, first, end in pieces:
            nbytes = end - first
            offsets.append(self.data)
            left = memoryview(region.array(first, nbytes))
            while left:
                done = os.pwrite(self.fd, left, self.data + nbytes - len(left))
                left = left[done:]
            self.data += -(-nbytes // cpu().alignment) * cpu().alignment
        return offsets


class Lost(NamedTuple):
    """A slab that the depot lost sight of."""

    kind: Kind
    nbytes: int
    fd: Descriptor  # nobody else was sent this one


_SPARE: Final = 256


def check_spare(fd: int) -> None:
    """Refuse a slab whose descriptor is one of the last."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return
    # The system gives the lowest number that is free.
    kept = min(_SPARE, most // 4)
    if fd >= most - kept:
        raise LimitExceeded(
            "no descriptor is left for a slab",
            expected=f"{kept} of {most} descriptors left for readers",
            hint="Raise the limit of open files (ulimit -n) where the depot starts, or publish fewer partitions.",
        )
