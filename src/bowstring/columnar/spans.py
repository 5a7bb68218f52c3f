"""Spans: where the buffers of a batch lie, as one table; Buffers are made of its rows on demand."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, overload

import numpy as np
import numpy.typing as npt

from bowstring.errors import InvalidBody
from bowstring.memory import Buffer, Device, Lease, Region, cpu, foreign_region

Table = npt.NDArray[np.int64]

_INTEGERS: Final = {1: ctypes.c_int8, 2: ctypes.c_int16, 4: ctypes.c_int32, 8: ctypes.c_int64}
# On the host: up to here single reads cost less than arrays of indices.
_FEW: Final = 64


class Spans(Sequence["Buffer | None"]):
    """The buffers of a batch in the order of ``RecordBatch.buffers``; ``None`` where one is empty or absent."""

    __slots__ = ("lease", "regions", "table")

    def __init__(self, table: Table, regions: Sequence[Region]) -> None:
        # int64, shape (buffers, 3): index into `regions`, offset and length in bytes; ignored if the length is 0.
        self.table = table
        self.regions = regions
        self.lease: Lease | None = None  # that of the batch

    @classmethod
    def of(cls, buffers: Sequence[Buffer | None]) -> Spans:
        indices: dict[int, int] = {}
        regions: list[Region] = []
        rows = []
        for buffer in buffers:
            if buffer is None or not buffer.nbytes:
                rows.append((0, 0, 0))
                continue
            index = indices.setdefault(id(buffer.region), len(regions))
            if index == len(regions):
                regions.append(buffer.region)
            rows.append((index, buffer.offset, buffer.nbytes))
        return cls(np.array(rows, np.int64).reshape(-1, 3), regions)

    @property
    def device(self) -> Device:
        return self.regions[0].device if self.regions else cpu()

    @property
    def lent(self) -> npt.NDArray[np.bool_]:
        """Which of the buffers lie in memory of another library that is lent where it is."""
        lent = np.array([*(region.in_place for region in self.regions), False])
        is_lent: npt.NDArray[np.bool_] = lent[self.table[:, 0]] & (self.table[:, 2] != 0)
        return is_lent

    @property
    def nbytes(self) -> int:
        return int(self.table[:, 2].sum())

    def addresses(self) -> Table:
        """Return the address of each buffer, 0 where it is empty."""
        if not self.regions:
            return np.zeros(len(self.table), np.int64)
        present = self.table[:, 2] != 0
        bases = np.array([region.address for region in self.regions], np.int64)
        result: Table = (bases[self.table[:, 0]] + self.table[:, 1]) * present
        return result

    def array(self, index: int, dtype: npt.DTypeLike = np.uint8) -> Any:
        """Return one buffer as an array of its device, for use while the spans are alive."""
        region, offset, nbytes = self.table[index].tolist()
        if not nbytes:
            with self.device.use():
                return self.device.xp.empty(0, dtype)
        size = np.dtype(dtype).itemsize
        return self.regions[region].array(offset, nbytes - nbytes % size).view(dtype)

    def fetch(
        self, device: Device, rows: Sequence[int], at: Sequence[int], widths: Sequence[int]
    ) -> list[int]:
        """Return single integers out of the buffers: one read by the host, however many they are.

        Each is `widths` bytes wide, signed and little-endian, at byte `at` of buffer `rows`.
        """
        if not rows:
            return []
        if device.is_host and len(rows) <= _FEW:
            return self._integers(rows, at, widths)
        if not device.computes:
            return [self._one(*each) for each in zip(rows, at, widths, strict=True)]
        with device.use():
            places, pieces = zip(*self._gathered(device, rows, at, widths), strict=True)
            together = device.to_host(device.xp.concatenate(pieces))
        values = np.empty(len(rows), np.int64)
        values[np.concatenate(places)] = together
        return values.tolist()

    def _one(self, row: int, place: int, width: int) -> int:
        if place < 0 or place + width > int(self.table[row, 2]):
            raise _too_short()
        return int(self.device.to_host(self.array(row)[place : place + width]).view(f"<i{width}")[0])

    def _integers(self, rows: Sequence[int], at: Sequence[int], widths: Sequence[int]) -> list[int]:
        table = self.table.tolist()
        bounds = [(region.address, region.nbytes) for region in self.regions]
        values = []
        for row, place, width in zip(rows, at, widths, strict=True):
            index, offset, nbytes = table[row]
            address, most = bounds[index] if nbytes else (0, 0)
            if place < 0 or place + width > nbytes or not 0 <= offset <= most - nbytes:
                raise _too_short()
            values.append(_INTEGERS[width].from_address(address + offset + place).value)
        return values

    def _gathered(
        self, device: Device, rows: Sequence[int], at: Sequence[int], widths: Sequence[int]
    ) -> Iterator[tuple[Any, Any]]:
        """Yield which of the integers lie in one region and have one width, and they themselves, on the device."""
        chosen = self.table[rows]
        byte_at = np.array(at, np.int64)
        width_of = np.array(widths, np.int64)
        if (byte_at < 0).any() or (byte_at + width_of > chosen[:, 2]).any():
            raise _too_short()
        groups = chosen[:, 0] * 16 + width_of
        for group in set(groups.tolist()):
            region, width = self.regions[group >> 4], group & 15
            where = np.flatnonzero(groups == group)
            starts = (chosen[:, 1] + byte_at)[where]
            index = device.xp.asarray((starts[:, None] + np.arange(width)).reshape(-1))
            yield where, region.array(0, region.nbytes)[index].view(f"<i{width}").astype(np.int64)

    def take(self, indices: Any) -> Spans:
        return Spans(self.table[indices], self.regions)

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, index: int) -> Buffer | None: ...
    @overload
    def __getitem__(self, index: slice) -> list[Buffer | None]: ...
    def __getitem__(self, index: int | slice) -> Buffer | list[Buffer | None] | None:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        region, offset, nbytes = self.table[index].tolist()
        if not nbytes:
            return None
        return Buffer(self.regions[region], offset, nbytes, self.lease)

    def __repr__(self) -> str:
        return f"<Spans of {len(self)} buffers, {self.nbytes} bytes in {len(self.regions)} regions>"


def region_table(regions: Sequence[Region]) -> Table:
    """Return address and bytes of each region for kernels; an address of 0 where the host must not look."""
    return np.array([(each.address if each.device.is_host else 0, each.nbytes) for each in regions], np.int64)


def _too_short() -> InvalidBody:
    return InvalidBody("a buffer of offsets or run ends is too short for its slots")


def joint_lease(buffers: Iterable[Buffer | None]) -> Lease:
    """Return a lease over some buffers: their memory, and the leases that they have already."""
    leases: dict[int, Lease] = {}
    regions: dict[int, Region] = {}
    for buffer in buffers:
        if buffer is not None:
            regions[id(buffer.region)] = buffer.region
            if buffer.lease is not None:
                leases[id(buffer.lease)] = buffer.lease
    return Lease([*regions.values(), *map(Lease.export, leases.values())])


def buffer_of(array: Any, device: Device) -> Buffer:
    """Return the memory of a contiguous array of a device as a buffer, without a copy."""
    address = array.ctypes.data if device.is_host else array.data.ptr
    return Buffer(foreign_region(address, array.nbytes, array, device), 0, array.nbytes)


def buffer_or_none(array: Any, device: Device) -> Buffer | None:
    """Return the memory of an array as a buffer, ``None`` where it is empty."""
    return buffer_of(array, device) if array.nbytes else None
