"""Cutting: the same rows at offset 0, without a copy but for what must be re-based.

Arrow in memory knows offsets: a slice is the whole with an offset at any node. Arrow in messages, and so a
Batch, does not: each buffer begins with slot 0. A cut moves the start of a buffer where the slots allow it, and
copies what it must: bitmaps that do not start at a whole byte, run ends, and, where a batch is made compact,
offsets that do not start at 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.columnar.layout import Kind
from bowstring.columnar.ranges import Parts, Ranges, Table, is_offsets, refuse
from bowstring.columnar.spans import Spans, buffer_of
from bowstring.kernels import bitmap

if TYPE_CHECKING:
    from bowstring.memory import Device, Region

__all__ = ["Parts", "cut"]


def cut(
    parts: Parts,
    device: Device,
    start: int,
    length: int,
    *,
    offsets: Table | None = None,
    trim: bool = False,
    count: bool = False,
) -> Parts:
    """Return the rows ``[start, start + length)``.

    Parameters
    ----------
    parts
        Nodes may have an unknown null count, -1. With `offsets`, buffers start that many slots before.
    device
        Where the buffers are.
    offsets : ndarray of int64, shape (nodes,)
        The offset of each node, as in Arrow's C data interface; none by default.
    trim
        Also re-base offsets to 0, and leave out of bytes and children what no offset points to.
    count
        Also count nulls that are unknown.

    Raises
    ------
    InvalidBody
        A buffer is too short for its slots.
    """
    if offsets is None:
        offsets = np.zeros(parts.layout.num_nodes, np.int64)
    with device.use():
        ranges = Ranges(parts, device, offsets, trim=trim)
        ranges.descend(start, length)
        cutting = _Cutting(parts, device, ranges)
        cutting.cut_nulls()
        cutting.move()
        if trim:
            cutting.trim()
        cutting.replace_run_ends()
        if count or trim:
            cutting.count_nulls()
        return Parts(
            parts.layout, cutting.nodes, Spans(cutting.table, cutting.regions), parts.variadic_counts
        )


class _Cutting:
    def __init__(self, parts: Parts, device: Device, ranges: Ranges) -> None:
        self.layout = parts.layout
        self.before = parts
        self.nodes = parts.nodes.copy()
        self.table = parts.spans.table.copy()
        self.regions: list[Region] = list(parts.spans.regions)
        self.device = device
        self.ranges = ranges

    def cut_nulls(self) -> None:
        """A part of what is all null or all valid is so too; of anything else nobody knows."""
        lengths, nulls = self.before.nodes[:, 0], self.before.nodes[:, 1]
        now = self.ranges.lengths
        self.nodes[:, 0] = now
        self.nodes[:, 1] = np.where(
            now == lengths, nulls, np.where(nulls == lengths, now, np.where(nulls == 0, 0, -1))
        )

    def move(self) -> None:
        """Move the start of every buffer to its first slot, and its end to its last."""
        layout = self.layout
        rows = layout.fixed_buffers(self.before.variadic_counts)
        owners, bits, kinds = layout.buffer_nodes, layout.buffer_bits, layout.buffer_kinds
        starts, lengths = self.ranges.starts[owners] * bits, self.ranges.lengths[owners]
        sizes = self.table[rows, 2]
        sized = kinds != Kind.BYTES
        needed = lengths * bits + layout.buffer_end_bits * (lengths > 0)
        needed[(kinds == Kind.VALIDITY) & ((sizes == 0) | (self.nodes[owners, 1] == 0))] = 0
        short = sized & (needed > 0) & ((starts + needed + 7) >> 3 > sizes)
        if short.any():
            position = int(np.flatnonzero(short)[0])
            what = f"the {Kind(kinds[position]).name} buffer is too short"
            wanted = f"{(starts[position] + needed[position] + 7) >> 3} bytes"
            refuse(layout, int(owners[position]), what, wanted, f"{sizes[position]} bytes")
        odd = np.flatnonzero((starts & 7 != 0) & (needed > 0))
        self.table[rows, 1] += (starts >> 3) * sized
        self.table[rows, 2] = np.where(sized, (needed + 7) >> 3, sizes * (lengths > 0))
        for position in odd.tolist():
            row = int(rows[position])
            old = self.before.spans.array(row)
            self._replace(row, bitmap.shifted(old, int(starts[position]), int(lengths[position])))
        self.table[self.table[:, 2] == 0] = 0

    def trim(self) -> None:
        """Make offsets start at 0, and bytes with what the first offset points to."""
        for index, (first, last) in self.ranges.ends.items():
            kinds = self.layout.nodes[index].buffer_kinds
            if not is_offsets(kinds):
                continue
            row = int(self.ranges.first[index]) + 1
            if first:
                dtype = np.dtype(f"<i{kinds[1].bits >> 3}")
                self._replace(row, self._array(row, dtype) - dtype.type(first))
            if kinds[-1] is Kind.BYTES:
                region, offset, nbytes = self.table[row + 1].tolist()
                if last > nbytes:
                    refuse(self.layout, index, "the BYTES buffer is too short", f"{last} bytes", f"{nbytes}")
                self.table[row + 1] = (region, offset + first, last - first) if last > first else 0

    def replace_run_ends(self) -> None:
        """Count run ends from the new first row."""
        for index, (start, length) in self.ranges.runs.items():
            ends = self.layout.nodes[index].children[0]
            row = int(self.ranges.first[ends]) + 1
            dtype = np.dtype(f"<i{self.layout.nodes[ends].width}")
            moved = self._array(row, dtype) - dtype.type(start)
            self._replace(row, self.device.xp.minimum(moved, dtype.type(length)))

    def count_nulls(self) -> None:
        """Count what is unknown, all with one fetch, and drop bitmaps without a null."""
        counts: list[Any] = []
        counted: list[tuple[int, int]] = []
        for index in np.flatnonzero(self.nodes[:, 1] < 0).tolist():
            row = int(self.ranges.first[index])
            kinds = self.layout.nodes[index].buffer_kinds
            if not kinds or kinds[0] is not Kind.VALIDITY or not self.table[row, 2]:
                self.nodes[index, 1] = 0
                continue
            counts.append(bitmap.count_set(self._array(row), 0, int(self.nodes[index, 0])))
            counted.append((index, row))
        if not counted:
            return
        valid = self.device.to_host(self.device.xp.concatenate(counts)).tolist()
        for (index, row), set_ in zip(counted, valid, strict=True):
            self.nodes[index, 1] = self.nodes[index, 0] - set_
            if not self.nodes[index, 1]:
                self.table[row] = 0

    def _array(self, row: int, dtype: Any = np.uint8) -> Any:
        region, offset, nbytes = self.table[row].tolist()
        return self.regions[region].array(offset, nbytes).view(dtype)

    def _replace(self, row: int, array: Any) -> None:
        buffer = buffer_of(array, self.device)
        self.table[row] = len(self.regions), 0, buffer.nbytes
        self.regions.append(buffer.region)
