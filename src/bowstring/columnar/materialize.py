"""Batches as other processes can map them: copied once into a region of ours, or lent where they lie."""

from __future__ import annotations

import bisect
import collections
import dataclasses
from collections.abc import Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring import memory
from bowstring.columnar.copy_pieces import Pieces, fill
from bowstring.columnar.parts import AnyBatch, BatchData, Dictionary, batch_parts, derived
from bowstring.columnar.slice import compacted
from bowstring.columnar.spans import Spans, Table
from bowstring.errors import InvalidBody
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import Allocator, Device, Lease, Pool, Region, Road
from bowstring.memory.devices import device_named

if TYPE_CHECKING:
    from bowstring.memory.buffer import PrivateMemory


def placed_bytes(batch: BatchData, device: Device) -> int:
    """Return the most bytes that :func:`placed` takes from an allocator on a device for a compact batch.

    Dictionaries are included.
    """
    batches = [batch, *(dictionary.values for dictionary in batch.dictionaries.values())]
    sizes = [batch_parts(each).spans.table[:, 2] for each in batches]
    return int(_aligned(np.concatenate(sizes), batch.device, device).sum())


def placed(
    batch: AnyBatch,
    allocator: Allocator | PrivateMemory,
    dictionaries: MutableMapping[Dictionary, Dictionary] | None = None,
    *,
    in_place: bool = True,
    seconds: float = DEFAULT_LIMITS.device_timeout,
    note: Callable[[Road], None] | None = None,
    is_compact: bool = False,
) -> AnyBatch:
    """Return a batch, compact, in regions of this process, which others can map; all else is copied there.

    Another producer's memory is copied too: that producer could use it again under a reader of ours.
    """
    compact = batch if is_compact else compacted(batch)
    parts = batch_parts(compact)
    known: MutableMapping[Dictionary, Dictionary] = {} if dictionaries is None else dictionaries
    device = allocator.device
    inner: dict[int, Dictionary] = {}
    for id_, each in compact.dictionaries.items():
        done = known.get(each)
        if done is None:
            # What makes a batch compact makes its dictionaries so, too.
            options: dict[str, Any] = {"in_place": in_place, "seconds": seconds, "note": note}
            values = placed(each.values, allocator, known, is_compact=True, **options)
            done = known[each] = Dictionary(each.id, values)
        inner[id_] = done
    # What lies in regions of ours already is frozen there; the rest is copied.
    spans = parts.spans
    table, regions, moving = np.zeros_like(spans.table), list[Region](), spans.table[:, 2] != 0
    if in_place and spans.device is device and moving.any():
        addresses, sizes = spans.addresses(), spans.table[:, 2]
        regions, index, offsets = memory.owned_regions(np.where(moving, addresses, 0), sizes)
        stays = moving & (index >= 0)
        for row in np.flatnonzero(stays).tolist():
            regions[index[row]].freeze(int(offsets[row]), int(sizes[row]))
            table[row] = index[row], offsets[row], sizes[row]
        if not device.is_host and any(region.in_place for region in spans.regions):  # these stay, too
            lent = spans.lent
            used, numbers = np.unique(spans.table[lent, 0], return_inverse=True)
            table[lent] = spans.table[lent]
            table[lent, 0] = numbers.reshape(-1) + len(regions)
            regions = [*regions, *(spans.regions[index] for index in used.tolist())]
            stays |= lent
        moving &= ~stays
    if moving.any():
        table, regions, path = _copied(spans, moving, table, regions, allocator, seconds)
        if note is not None:
            note(path)
    return elsewhere(compact, inner, table, regions, device)


def elsewhere(
    batch: AnyBatch,
    dictionaries: dict[int, Dictionary],
    table: Table,
    regions: Sequence[Region],
    device: Device,
    lease: Lease | None = None,
) -> AnyBatch:
    """Return a batch of the same rows with other buffers and dictionaries; it has a lease of its own by default."""
    parts = batch_parts(batch)._replace(spans=Spans(table, regions))
    lease = Lease(regions) if lease is None else lease
    return derived(batch, parts, batch.num_rows, dictionaries, lease, device)


def on_device(batch: AnyBatch, device: Device | str, pool: Pool | None = None) -> AnyBatch:
    """See :meth:`bowstring.columnar.batch.Batch.to_device`."""
    device = device_named(device)
    if batch.device is device:
        return batch
    if pool is None:
        pool = memory.default_pool() if device.is_host else Pool(device)
    compact = compacted(batch)
    return placed(compact, pool.allocator(placed_bytes(compact, device)), is_compact=True)


def dictionaries_placed(
    batch: AnyBatch, allocator: Allocator | PrivateMemory, known: MutableMapping[Dictionary, Dictionary]
) -> AnyBatch:
    """Return a batch with its dictionaries on its own device; new ones are added to `known`."""
    if all(each.values.device is batch.device for each in batch.dictionaries.values()):
        return batch
    inner = {}
    for id_, dictionary in batch.dictionaries.items():
        if dictionary not in known:
            known[dictionary] = Dictionary(id_, placed(dictionary.values, allocator, known, in_place=False))
        inner[id_] = known[dictionary]
    spans = batch_parts(batch).spans
    return elsewhere(batch, inner, spans.table, spans.regions, batch.device, batch.lease)


def _aligned(sizes: Any, source: Device, target: Device) -> Any:
    # What is gathered on a device and then copied elsewhere is laid out by the device's rule.
    alignment = max(source.alignment, target.alignment)
    return -(-sizes // alignment) * alignment


def _copied(
    spans: Spans,
    moving: Any,
    table: Table,
    regions: list[Region],
    allocator: Allocator | PrivateMemory,
    seconds: float,
) -> tuple[Table, list[Region], Road]:
    """Copy the buffers that are `moving` into one new one, and enter them behind what stays."""
    rows = np.flatnonzero(moving)
    sizes = spans.table[rows, 2]
    bounds = [region.nbytes for region in spans.regions]
    for region, offset, size in spans.table[rows].tolist():
        if not 0 <= offset <= bounds[region] - size or size < 0:
            raise InvalidBody("a buffer lies outside its region")
    padded = _aligned(sizes, spans.device, allocator.device)
    ends = np.cumsum(padded)
    target = allocator.allocate(int(ends[-1]))
    starts = ends - padded
    pieces = Pieces(spans.addresses()[rows], sizes, starts, ends)
    path = fill(target, pieces, spans.device, list(spans.regions), seconds)
    target.freeze()
    table[rows, 0] = len(regions)
    table[rows, 1] = starts + target.offset
    table[rows, 2] = sizes
    return table, [*regions, target.region], path


@dataclasses.dataclass(frozen=True, slots=True)
class Lending:
    """How much of a data set is lent where it lies."""

    nbytes: int  # bytes of the buffers that are lent
    refused: dict[str, int]  # bytes of the others, by reason
    handles: bool  # whether readers open some of it by a driver's handle; it dies with its process

    @property
    def why(self) -> str:
        """Which part was copied, and the reasons; empty where all is lent."""
        parts = [f"{nbytes} bytes: {reason}" for reason, nbytes in sorted(self.refused.items())]
        return f"copied were {', '.join(parts)}" if parts else ""


class Lender:
    """Finds the allocations of one data set. Each is one region, which keeps all alive whose buffers lie in it."""

    def __init__(self) -> None:
        self._starts: dict[Device, list[int]] = collections.defaultdict(list)
        self._found: dict[tuple[Device, int], tuple[Region, list[object]]] = {}
        self._known: dict[Dictionary, Dictionary] = {}
        self._nbytes: collections.Counter[Device] = collections.Counter()
        self._refused: collections.Counter[str] = collections.Counter()
        self.of_pools = False  # whether some of it was allocated from a pool of ours

    def result(self, placed: Sequence[BatchData], device: Device) -> Lending:
        dictionaries = {id(each): each.values for batch in placed for each in batch.dictionaries.values()}
        lying = [batch_parts(each).spans for each in (*placed, *dictionaries.values())]
        nbytes = sum(int(spans.table[spans.lent, 2].sum()) for spans in lying)
        refused = dict(self._refused)
        for source, lent in self._nbytes.items():
            if source is not device and lent > nbytes:
                refused[f"memory of {source.name}, where the server has no pool"] = lent - nbytes
        return Lending(nbytes, refused, bool(self._found))

    def keep(self, owner: object) -> None:
        """Keep something alive as long as any reader may have open what is lent."""
        for _, owners in self._found.values():
            owners.append(owner)

    def lent(self, batch: AnyBatch) -> AnyBatch:
        """Return a batch with its buffers in lent regions, as far as they can be; the others stay what they are."""
        dictionaries = {id_: self._dictionary(each) for id_, each in batch.dictionaries.items()}
        spans, device = batch_parts(batch).spans, batch.device
        table, regions = spans.table.copy(), list(spans.regions)
        places: dict[int, int] = {}
        addresses, present = spans.addresses(), table[:, 2] != 0
        ours = memory.owned_regions(np.where(present, addresses, 0), table[:, 2])[1] >= 0
        for row in np.flatnonzero(present & ~ours).tolist():
            index, _, nbytes = table[row].tolist()
            owner = (spans.regions[index], batch.lease.export())
            address = int(addresses[row])
            region = self._region(device, address, nbytes, owner)
            if isinstance(region, str):
                self._refused[region] += nbytes
                continue
            self._nbytes[device] += nbytes
            place = places.setdefault(id(region), len(regions))
            if place == len(regions):
                regions.append(region)
            table[row] = place, address - region.address, nbytes
        if not places and all(dictionaries[id_] is batch.dictionaries[id_] for id_ in dictionaries):
            return batch
        # Only what is used: memory of a pool is freed by its library, which the regions before would keep from it.
        used, numbers = np.unique(table[present, 0], return_inverse=True)
        table[present, 0], table[~present] = numbers.reshape(-1), 0
        return elsewhere(batch, dictionaries, table, [regions[index] for index in used.tolist()], device)

    def _dictionary(self, dictionary: Dictionary) -> Dictionary:
        done = self._known.get(dictionary)
        if done is None:
            values = self.lent(dictionary.values)
            done = dictionary if values is dictionary.values else Dictionary(dictionary.id, values)
            self._known[dictionary] = done
        return done

    def _region(
        self, device: Device, address: int, nbytes: int, owner: tuple[Region, object]
    ) -> Region | str:
        """Return the allocation that a buffer lies in as a region, which keeps `owner` alive now, or why not."""
        if owner[0].slab is not None:
            return "memory of another producer"
        allocated = memory.allocated_region(address, nbytes)
        if allocated is not None:
            if allocated.allocation == "shared":
                return "small allocations of a pool, which share memory"
            allocated.allocation, self.of_pools = "lent", True
            return allocated
        starts = self._starts[device]
        place = bisect.bisect_right(starts, address) - 1
        if place >= 0:
            region, owners = self._found[device, starts[place]]
            if address + nbytes <= region.address + region.nbytes:
                owners.append(owner)
                return region
        handle = memory.lendable(device, address)
        if isinstance(handle, str):
            return handle
        if address < handle.address or address + nbytes > handle.address + handle.nbytes:
            return "memory that is not one allocation"
        owners = [owner]
        region = memory.lend(device, handle, owners)
        if (device, handle.address) not in self._found:
            bisect.insort(starts, handle.address)
        self._found[device, handle.address] = region, owners
        return region


def wholly_lent(batch: BatchData) -> bool:
    """Whether a batch and its dictionaries lie in lent memory altogether, so that nothing of it must be placed."""
    batches = [batch, *(dictionary.values for dictionary in batch.dictionaries.values())]
    lying = [batch_parts(each).spans for each in batches]
    lent = [spans.lent[spans.table[:, 2] != 0] for spans in lying]
    return any(len(each) for each in lent) and all(each.all() for each in lent)
