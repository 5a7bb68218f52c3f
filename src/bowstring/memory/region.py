"""Regions: contiguous memory in use. When nothing refers to a region any more, its slab can be used again."""

from __future__ import annotations

import bisect
import collections
import operator
import weakref
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import numpy as np

from bowstring.errors import NotPicklable, OutOfBudget, ViewsAlive
from bowstring.memory.device import Device, cpu
from bowstring.memory.lease import Finalizer
from bowstring.memory.slab import identity_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from bowstring.memory.device import Slab


class _Home(Protocol):
    def append(self, slab: Slab, /) -> None: ...


class Draft:
    """A fresh allocation that may be written through Bowstring until it is frozen."""

    __slots__ = ("__weakref__", "frozen", "nbytes", "offset", "writers")

    def __init__(self, offset: int, nbytes: int) -> None:
        self.offset = offset  # in its region
        self.nbytes = nbytes
        self.frozen = False
        self.writers: list[weakref.ref[Any]] = []  # kept alive by the writable arrays

    @property
    def is_written(self) -> bool:
        """Whether a writable array is still alive."""
        return any(writer() is not None for writer in self.writers)

    def freeze(self) -> None:
        """End all writing; raise `ViewsAlive` if a writable array is still alive."""
        if self.writers and self.is_written:
            raise ViewsAlive(
                "a writable view of the memory is alive",
                hint="Leave the `with buffer.writable()` block and drop its slices before publishing.",
            )
        self.frozen = True


class Region:
    """One contiguous allocation on one device, kept alive by its buffers.

    A region is either a slab in use (memory of this process, or mapped memory of a peer) or memory that another
    library owns (:func:`foreign_region`). When the last buffer, batch, lease and view of a region is gone, its slab
    goes back to the pool or the mapping cache it came from.

    Attributes
    ----------
    device
        Where the memory lives.
    address, nbytes
        Address in this process, and size in bytes.
    slab
        The physical memory, or ``None`` for memory of another library.
    private
        Whether views of it may be written, because nobody else sees what is written.
    allocation
        What another library has of it (:class:`~bowstring.memory.allocations.Allocations`): nothing by default,
        one allocation that is ``"whole"``, or ``"lent"`` to readers, or several that have it ``"shared"``.
    """

    __slots__ = (
        "__weakref__", "_drafts", "_end", "_owner", "address", "allocation", "device", "nbytes", "private", "slab",
    )  # fmt: skip

    def __init__(
        self,
        device: Device,
        address: int,
        nbytes: int,
        *,
        slab: Slab | None = None,
        end: Finalizer | None = None,
        owner: object = None,
        private: bool = False,
    ) -> None:
        self.device = device
        self.address = address
        self.nbytes = nbytes
        self.slab = slab
        self.private = private
        self._end = end
        self.allocation = ""
        self._owner = owner
        self._drafts: weakref.WeakSet[Draft] | None = None

    @classmethod
    def of_slab(cls, slab: Slab, home: _Home | None = None) -> Region:
        """Take a slab into use; it is appended to `home` when the region is collected."""
        end = None if home is None else Finalizer(home.append, slab)
        return cls(slab.device, slab.address, slab.nbytes, slab=slab, end=end, private=slab.private)

    @property
    def uuid(self) -> bytes:
        """16 bytes that name the memory; zeros where it cannot be shared."""
        return self.slab.uuid if self.slab is not None else bytes(16)

    @property
    def shareable(self) -> bool:
        """Whether another process can map this memory."""
        return self.slab is not None and (self.slab.fd >= 0 or self.slab.ipc_handle is not None)

    @property
    def lent(self) -> bool:
        """Whether another library allocated it, and other processes open it by a handle of the driver's."""
        return self.slab is not None and self.slab.ipc_handle is not None

    @property
    def in_place(self) -> bool:
        """Whether it is another library's, by its own handle or from a pool of ours, and read where it lies."""
        return self.lent or bool(self.allocation)

    def draft(self, offset: int, nbytes: int) -> Draft:
        """Note that a part of the region is fresh and may still be written."""
        if self._drafts is None:
            self._drafts = weakref.WeakSet()
        draft = Draft(offset, nbytes)
        self._drafts.add(draft)
        return draft

    def freeze(self, offset: int = 0, nbytes: int | None = None) -> None:
        """End all writing through Bowstring to a part of the region, or to all of it.

        Raises
        ------
        ViewsAlive
            A writable array of it is still alive.
        """
        end = self.nbytes if nbytes is None else offset + nbytes
        for draft in list(self._drafts or ()):
            if draft.offset < end and offset < draft.offset + draft.nbytes:
                draft.freeze()

    def retire(self) -> None:
        """Never use this memory again after this region: a reader that was lost may still read it.

        Lent memory belongs to another library, which would use it again: it is kept alive for good.
        """
        if self.lent:
            _kept.add(self)
        elif self.slab is not None:
            self.slab.retired = True

    def prepare(self, nbytes: int) -> int:
        """Take memory for the first bytes, if that was put off; return for how many (`Slab.prepare`)."""
        return self.nbytes if self.slab is None else self.slab.prepare(nbytes)

    def array(self, offset: int, nbytes: int, owner: object = None, *, writable: bool = False) -> Any:
        """Return a ``uint8`` array of the device over a part of the region.

        `owner` must keep the region alive; the region itself does by default.
        """
        return self.device.array(
            self.address + offset, nbytes, self if owner is None else owner, writable=writable
        )

    def __reduce__(self) -> NoReturn:
        raise NotPicklable(
            "a Region belongs to the process that mapped it",
            hint="Publish the table and send the Endpoint instead.",
        )

    def __repr__(self) -> str:
        kind = f"slab {self.uuid.hex()[:8]}" if self.slab is not None else "foreign"
        return f"<Region {kind} {self.device.name} {self.nbytes} bytes>"


# Memory that lost readers may still read, and that its owner would use again if it were not kept.
_kept: set[Region] = set()


def kept_for_good() -> int:
    """Return how many lent regions are kept alive until the process ends, because a reader was lost."""
    return len(_kept)


def foreign_region(address: int, nbytes: int, owner: object, device: Device | None = None) -> Region:
    """Return memory of another library as a region; `owner` is kept alive as long as the region."""
    return Region(device or cpu(), address, nbytes, owner=owner)


def private_region(nbytes: int) -> Region:
    """Return fresh host memory that is never shared, so that views of it may be written; pages come on writing."""
    try:
        memory = np.empty(nbytes, np.uint8)
    except MemoryError as error:
        raise OutOfBudget("the system has no room for a region", found=f"{nbytes} bytes") from error
    return Region(cpu(), memory.__array_interface__["data"][0], nbytes, owner=memory, private=True)


# The regions that this process made and uses now, by address; and these addresses in order, in the one list of
# `_starts`, of which some may have ended. A list only grows, and another takes its place, by single operations of C
# code alone: a finalizer, or another thread, may make a region at any time.
_registered: weakref.WeakValueDictionary[int, Region] = weakref.WeakValueDictionary()
_starts: Final[list[list[int]]] = [[]]
_FEW_ENDED: Final = 64
# The same by UUID; and by address, the mappings by which this process reads some of them: of a server of its own.
pooled: Final[weakref.WeakValueDictionary[bytes, Region]] = weakref.WeakValueDictionary()
mapped_here: Final[weakref.WeakValueDictionary[int, Region]] = weakref.WeakValueDictionary()


def register_region(region: Region) -> None:
    """Let :func:`owned_regions` find a region of a pool, until it is collected."""
    _registered[region.address] = region
    if region.slab is not None:
        pooled[region.slab.uuid] = region
    _enter(_starts[0], region.address)
    if len(_starts[0]) > 2 * len(_registered) + _FEW_ENDED:
        # What is registered when they are sorted is in the new list, and what comes later is entered there.
        addresses: Any = _registered.data  # type: ignore[attr-defined]
        collections.deque(map(operator.setitem, (_starts,), (0,), map(sorted, (addresses,))), 0)


def _enter(starts: list[int], address: int) -> None:
    place = bisect.bisect_left(starts, address)
    if starts[place : place + 1] != [address]:
        bisect.insort_left(starts, address)


def _region_at(starts: list[int], address: int, nbytes: int) -> Region | None:
    """Return the region that a piece of memory lies in: the last one that begins at its address or before it."""
    end = address + nbytes
    while True:
        count = len(starts)
        place = bisect.bisect_right(starts, address)
        start = starts[place - 1] if place else None
        if len(starts) != count:  # another thread has moved them
            continue
        region = None if start is None else _registered.get(start)
        if start is None or region is not None:
            return region if region is not None and end <= region.address + region.nbytes else None
        address = start - 1


def allocated_region(address: int, nbytes: int) -> Region | None:
    """Return the region of a pool in which another library allocated a piece of memory."""
    region = _region_at(_starts[0], address, nbytes)
    return region if region is not None and region.allocation else None


def owned_regions(
    addresses: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> tuple[list[Region], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Find the regions made by this process that pieces of memory lie in, where it is mapped a second time, too.

    What other libraries allocated from a pool, and write, is not among them. Returns these, and int64, shape
    ``(n,)``: for each piece the index of its region, or -1, and the offset in it.
    """
    starts = _starts[0]
    regions: dict[int, Region] = {}
    places: dict[int, int] = {}
    index, offsets = [-1] * len(addresses), [0] * len(addresses)

    def enter(row: int, region: Region, offset: int) -> None:
        index[row] = places.setdefault(region.address, len(places))
        offsets[row] = offset
        regions[region.address] = region

    for row, (address, size) in enumerate(zip(addresses.tolist(), sizes.tolist(), strict=True)):
        region = _region_at(starts, address, size)
        if region is not None and not region.allocation:
            enter(row, region, address - region.address)
    for reference in mapped_here.valuerefs() if -1 in index else ():
        if (mapped := reference()) is None:
            continue
        inside = (addresses >= mapped.address) & (addresses <= mapped.address + mapped.nbytes - sizes)
        region = pooled.get(mapped.uuid) if inside.any() else None
        own, seen = None if region is None else region.slab, mapped.slab
        if region is None or own is None or seen is None or region.allocation:
            continue
        if own.fd >= 0 and identity_of(own.fd) == seen.identity:  # the UUID alone proves nothing
            for row in np.flatnonzero(inside).tolist():
                enter(row, region, int(addresses[row]) - mapped.address)
    return list(regions.values()), np.array(index, np.int64), np.array(offsets, np.int64)
