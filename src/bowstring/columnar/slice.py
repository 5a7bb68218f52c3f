"""Slices: some rows of a batch at offset 0, without a copy but for what must be re-based.

In a Batch, as in Arrow IPC, each buffer begins with slot 0. So a slice moves the start of a buffer where it can,
and copies bitmaps that start within a byte, run ends, and, to be compact, offsets that do not start at 0. The slots
of each node are found top down: the offsets and runs that the host must know are fetched once for each level.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa

from bowstring.columnar.layout import Layout
from bowstring.columnar.nodes import Kind
from bowstring.columnar.parts import Parts
from bowstring.columnar.spans import Spans, Table, buffer_of
from bowstring.errors import InvalidBody
from bowstring.kernels import bitmap

if TYPE_CHECKING:
    from bowstring.memory import Device, Region

_PARALLEL = (pa.lib.Type_STRUCT, pa.lib.Type_SPARSE_UNION)
_FIXED_LIST = pa.lib.Type_FIXED_SIZE_LIST
_RUNS = pa.lib.Type_RUN_END_ENCODED
_BYTES = int(Kind.BYTES)  # NumPy compares plain integers several times as fast


def slice_parts(
    parts: Parts,
    device: Device,
    start: int,
    length: int,
    *,
    offsets: Table | None = None,
    trim: bool = False,
    count: bool = False,
) -> Parts:
    """Return the rows ``[start, start + length)``; `offsets`, int64 of shape (nodes,), are those of C structs.

    `trim` re-bases offsets to 0 and leaves out what none points to; `count` counts unknown nulls (-1).
    """
    if offsets is None:
        offsets = np.zeros(parts.layout.num_nodes, np.int64)
    with device.use():
        ranges = _Ranges(parts, device, offsets, trim=trim)
        ranges.descend(start, length)
        slicing = _Slicing(parts, device, ranges)
        slicing.null_counts()
        slicing.move()
        if trim:
            slicing.trim()
        slicing.replace_run_ends()
        if count or trim:
            slicing.count_nulls()
        return Parts(
            parts.layout, slicing.nodes, Spans(slicing.table, slicing.regions), parts.variadic_counts
        )


class _Ranges:
    """The slots of each node that some rows need, found by `descend`, counted from the start of its buffers.

    Of a node, `ends` are first and last offset (with `trim`), `runs` what to subtract from run ends, and the last.
    """

    def __init__(self, parts: Parts, device: Device, offsets: Table, *, trim: bool) -> None:
        self.parts = parts
        self.device = device
        self.offsets = offsets
        self.trim = trim
        self.first = parts.layout.first_buffers(parts.variadic_counts)
        self.starts = np.zeros(parts.layout.num_nodes, np.int64)
        self.lengths = np.zeros(parts.layout.num_nodes, np.int64)
        self.ends: dict[int, tuple[int, int]] = {}
        self.runs: dict[int, tuple[int, int]] = {}

    def descend(self, start: int, length: int) -> None:
        """Find the slots for the rows ``[start, start + length)``."""
        layout = self.parts.layout
        if layout.is_flat:
            self.starts[:] = self.offsets + start
            self.lengths[:] = length
            if (self.parts.nodes[:, 0] < start + length).any():
                _refuse(layout, int(np.argmin(self.parts.nodes[:, 0])), "a column is shorter than its batch")
            self._find_ends(range(layout.num_nodes))
            return
        level = [(node, start, length) for node in layout.columns]
        while level:
            level = self._below(level)

    def _below(self, level: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        layout, nodes = self.parts.layout, self.parts.nodes
        for node, start, length in level:
            if start < 0 or start + length > nodes[node, 0]:
                what = "a column or child is too short"
                _refuse(layout, node, what, f"{start + length} slots", f"{nodes[node, 0]}")
            self.starts[node] = self.offsets[node] + start
            self.lengths[node] = length
        self._find_ends(node for node, _, _ in level)
        self._find_runs([node for node, _, _ in level if layout.nodes[node].type.id == _RUNS])
        return [
            piece for node, _, _ in level if layout.nodes[node].children for piece in self._children(node)
        ]

    def _children(self, index: int) -> Iterable[tuple[int, int, int]]:
        node = self.parts.layout.nodes[index]
        start, length = int(self.starts[index]), int(self.lengths[index])
        type_id = node.type.id
        if type_id in _PARALLEL:
            return [(child, start, length) for child in node.children]
        if type_id == _FIXED_LIST:
            size = node.type.list_size
            return [(node.children[0], start * size, length * size)]
        if type_id == _RUNS:
            return self._run_children(index)
        if index in self.ends:
            first, last = self.ends[index]
            return [(node.children[0], first, last - first)]
        return [(child, 0, int(self.parts.nodes[child, 0])) for child in node.children]

    def _find_ends(self, nodes: Iterable[int]) -> None:
        """Fetch the first and the last offset of some nodes."""
        layout = self.parts.layout
        if not self.trim or not layout.offsets:
            return
        offset_widths = {each.node: each.width for each in layout.offsets}
        rows: list[int] = []
        at: list[int] = []
        widths: list[int] = []
        ended: list[int] = []
        for index in nodes:
            if index not in offset_widths:
                continue
            if not self.lengths[index]:
                self.ends[index] = 0, 0
                continue
            start, width = int(self.starts[index]), offset_widths[index]
            ended.append(index)
            rows += [int(self.first[index]) + 1] * 2
            at += [start * width, (start + int(self.lengths[index])) * width]
            widths += [width] * 2
        values = self.parts.spans.fetch(self.device, rows, at, widths)
        for index, first, last in zip(ended, values[::2], values[1::2], strict=True):
            if not 0 <= first <= last:
                _refuse(layout, index, "offsets decrease", found=f"first {first}, last {last}")
            self.ends[index] = first, last

    def run_ends(self, index: int) -> Any:
        """Return all run ends of a node, an array of its device."""
        ends = self.parts.layout.nodes[index].children[0]
        at, runs = int(self.offsets[ends]), int(self.parts.nodes[ends, 0])
        width = self.parts.layout.nodes[ends].width
        array = self.parts.spans.array(int(self.first[ends]) + 1, f"<i{width}")[at : at + runs]
        if len(array) != runs or not runs:
            _refuse(self.parts.layout, ends, "run ends are missing", runs or "at least 1", len(array))
        return array

    def _find_runs(self, nodes: list[int]) -> None:
        asked = []
        runs = []
        for index in nodes:
            start, length = int(self.starts[index]), int(self.lengths[index])
            if length and (start or self.trim):
                ends = self.run_ends(index)
                wanted = self.device.xp.asarray(np.array([start, start + length - 1], ends.dtype))
                within = self.device.xp.searchsorted(ends, wanted, side="right")
                asked += [within.astype(np.int64), ends[-1:].astype(np.int64)]
                runs.append(index)
        if not runs:
            return
        values = iter(self.device.to_host(self.device.xp.concatenate(asked)).tolist())
        for index in runs:
            first, end, last = next(values), next(values) + 1, next(values)
            start, length = int(self.starts[index]), int(self.lengths[index])
            if last < start + length:
                _refuse(self.parts.layout, index, "run ends do not cover the column", start + length, last)
            self.ends[index] = first, end
            if start or last != length:
                self.runs[index] = start, length

    def _run_children(self, index: int) -> list[tuple[int, int, int]]:
        ends, values = self.parts.layout.nodes[index].children
        if not self.lengths[index]:
            return [(ends, 0, 0), (values, 0, 0)]
        first, end = self.ends.get(index, (0, int(self.parts.nodes[ends, 0])))
        return [(ends, first, end - first), (values, first, end - first)]


def _refuse(layout: Layout, node: int, what: str, expected: object = None, found: object = None) -> NoReturn:
    """Raise :class:`~bowstring.errors.InvalidBody` that names a node."""
    raise InvalidBody(what, expected=expected, found=found, where=".".join(layout.nodes[node].path))


class _Slicing:
    def __init__(self, parts: Parts, device: Device, ranges: _Ranges) -> None:
        self.layout = parts.layout
        self.before = parts
        self.nodes = parts.nodes.copy()
        self.table = parts.spans.table.copy()
        self.regions: list[Region] = list(parts.spans.regions)
        self.device = device
        self.ranges = ranges

    def null_counts(self) -> None:
        """A part of what is all null or all valid is so too; of anything else it is unknown."""
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
        owners, kinds = layout.buffer_nodes, layout.buffer_kinds
        starts, lengths = self.ranges.starts, self.ranges.lengths
        first_bits, slots = starts[owners] * layout.buffer_bits, lengths[owners]
        sizes = self.table[rows, 2]
        sized = kinds != _BYTES
        needed = layout.minimum_lengths(lengths)
        bitmaps = layout.validity_buffers
        needed[bitmaps] *= (sizes[bitmaps] != 0) & (self.nodes[layout.validity_nodes, 1] != 0)
        ends = layout.minimum_lengths(starts + lengths)
        short = sized & (needed > 0) & (ends > sizes)
        if short.any():
            position = int(np.flatnonzero(short)[0])
            what = f"the {Kind(kinds[position]).name} buffer is too short"
            _refuse(
                layout, int(owners[position]), what, f"{ends[position]} bytes", f"{sizes[position]} bytes"
            )
        odd = np.flatnonzero((first_bits & 7 != 0) & (needed > 0))
        self.table[rows, 1] += (first_bits >> 3) * sized
        self.table[rows, 2] = np.where(sized, needed, sizes * (slots > 0))
        for position in odd.tolist():
            row = int(rows[position])
            old = self.before.spans.array(row)
            self._replace(row, bitmap.shifted(old, int(first_bits[position]), int(slots[position])))
        self.table[self.table[:, 2] == 0] = 0

    def trim(self) -> None:
        """Make offsets start at 0, and bytes with what the first offset points to."""
        for node, _, width, child in self.layout.offsets:
            first, last = self.ranges.ends[node]
            row = int(self.ranges.first[node]) + 1
            if first:
                dtype = np.dtype(f"<i{width}")
                self._replace(row, self._array(row, dtype) - dtype.type(first))
            if child < 0:
                region, offset, nbytes = self.table[row + 1].tolist()
                if last > nbytes:
                    _refuse(self.layout, node, "the BYTES buffer is too short", f"{last} bytes", f"{nbytes}")
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
