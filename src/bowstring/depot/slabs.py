"""A slab of the depot: what it counts for, those that are lost, and what the depot says of all of them."""

from __future__ import annotations

import dataclasses
import os
import resource
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from bowstring.errors import LimitExceeded
from bowstring.memory import cpu
from bowstring.memory.slab import reopen
from bowstring.memory.writable_memfd import free_pages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bowstring.memory import Region, Slab

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
    """A slab of the stock."""

    slab: Slab  # mapped for reading
    fd: int  # a borrower maps it for writing by this
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

    def __del__(self) -> None:
        fd, self.fd = getattr(self, "fd", -1), -1
        if fd >= 0:
            os.close(fd)


@dataclasses.dataclass(frozen=True, slots=True)
class SlabStatistics:
    """Bytes of a slab pool: committed, in use, warm and lost, and the budgets of memory and of disk.

    In use: committed or lent to attempts. Lost: not lent again, as a process that vanished may still read it.
    """

    memory_budget: int
    memory_data: int
    memory_in_use: int
    memory_warm: int
    memory_lost: int
    disk_budget: int
    disk_data: int
    disk_in_use: int
    disk_warm: int
    disk_lost: int
    warm_slabs: int
    lost_slabs: int
    waiting: int
    made: int
    reused: int
    retired: int


class Lost:
    """A slab that the depot lost sight of, by a descriptor that nobody else was sent."""

    fd = -1  # also where an interrupt comes first

    def __init__(self, lent: Lent) -> None:
        self.kind = lent.kind
        self.nbytes = lent.held
        self.fd = reopen(lent.fd, os.O_RDWR).detach()

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


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
