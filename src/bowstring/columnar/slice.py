"""Slices, some rows of a batch at offset 0, and compact batches: no copy is made but of what must be re-based.

In a Batch, as in Arrow IPC, each buffer begins with slot 0. So a slice moves the start of a buffer where it can,
and copies bitmaps that start within a byte, run ends, and, to be compact, offsets that do not start at 0. The slots
of each node are found top down: the offsets and runs that the host must know are fetched once for each level.

A compact batch, as it is written or published, has offsets that start at 0, and nothing that no slot needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from bowstring.columnar.layout import Layout
from bowstring.columnar.nodes import Kind
from bowstring.columnar.parts import (
    AnyBatch,
    BatchData,
    Dictionary,
    Parts,
    batch_parts,
    derived,
    offset_bounds,
)
from bowstring.columnar.spans import Spans, Table, buffer_of
from bowstring.errors import InvalidBody
from bowstring.kernels import bitmap
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
        slicing = _Slicing(parts, device, offsets, trim=trim)
        slicing.descend(start, length)
        slicing.move()
        if trim:
            slicing.trim()
        slicing.replace_run_ends()
        if count or trim:
            slicing.count_nulls()
        return Parts(
            parts.layout, slicing.nodes, Spans(slicing.table, slicing.regions), parts.variadic_counts
        )


def sliced(batch: AnyBatch, start: int, rows: int) -> AnyBatch:
    """Return some rows of a batch, which must be there: see :meth:`bowstring.Batch.slice`."""
    return derived(batch, slice_parts(batch_parts(batch), batch.device, start, rows), rows)


def compacted(batch: AnyBatch) -> AnyBatch:
    """Return a batch with the same values that holds no more than it must; the batch itself where nothing changes.

    On a device the host reads once, and for a batch that is not compact once more for each level of nesting.
    """
    dictionaries: dict[int, Dictionary] = {}
    same = True
    for id_, each in batch.dictionaries.items():
        # Kept, so that batches that shared a dictionary still do.
        if not each._is_compact and each._compact is None:
            values = compacted(each.values)
            # Never itself: a cycle would keep its memory until the collector comes by.
            each._is_compact = values is each.values
            if not each._is_compact:
                each._compact = Dictionary(each.id, values, each.lease)
        dictionaries[id_] = each._compact or each
        same &= dictionaries[id_] is each
    if is_compact(batch):
        return batch if same else derived(batch, batch_parts(batch), batch.num_rows, dictionaries)
    parts = slice_parts(batch_parts(batch), batch.device, 0, batch.num_rows, trim=True)
    return derived(batch, parts, batch.num_rows, dictionaries)


def is_compact(batch: BatchData) -> bool:
    """Whether nothing can be left out of a batch, its dictionaries aside: O(columns), one read by the host."""
    layout, (_, nodes, spans, counts) = batch.layout, batch_parts(batch)
    if (nodes[:, 1] < 0).any():
        return False
    lengths = nodes[:, 0]
    if not layout.is_flat:
        exact = lengths[layout.bounded_children] == lengths[layout.bounding_parents] * layout.bounding_factors
        if not exact.all():
            return False
    fixed = layout.fixed_buffers(counts)
    sizes = spans.table[fixed, 2]
    needed = layout.minimum_lengths(lengths)
    needed[layout.validity_buffers] *= nodes[layout.validity_nodes, 1] > 0
    if not ((sizes == needed) | (layout.buffer_kinds == Kind.BYTES)).all():
        return False
    # Offsets start at 0 and end where their bytes or children end, and run ends where their rows do.
    for node, position, _, child in layout.offsets:
        if not lengths[node] and (lengths[child] if child >= 0 else sizes[position + 1]):
            return False
    for node in layout.run_ends:
        ends, values = layout.nodes[node].children
        if lengths[ends] != lengths[values] or bool(lengths[ends]) != bool(lengths[node]):
            return False
    # The one part that reads.
    return all(end.last == end.bound and (end.is_runs or not end.first) for end in offset_bounds(batch))


class _Slicing:
    """The slots of each node that some rows need, found by `descend`, counted from the start of its buffers.

    Of a node, `ends` are first and last offset (with `trim`), `runs` what to subtract from run ends, and the last.
    `nodes`, `table` and `regions` become those of the slice.
    """

    def __init__(self, parts: Parts, device: Device, offsets: Table, *, trim: bool) -> None:
        self.parts = parts
        self.device = device
        self.offsets = offsets
        self.trims = trim
        self.layout = parts.layout
        self.nodes = parts.nodes.copy()
        self.table = parts.spans.table.copy()
        self.regions: list[Region] = list(parts.spans.regions)
        self.first = parts.layout.first_buffers(parts.variadic_counts)
        self.starts = np.zeros(parts.layout.num_nodes, np.int64)
        self.lengths = np.zeros(parts.layout.num_nodes, np.int64)
        self.ends: dict[int, tuple[int, int]] = {}
        self.runs: dict[int, tuple[int, int]] = {}

    def descend(self, start: int, length: int) -> None:
        layout = self.layout
        if layout.is_flat:
            self.starts[:] = self.offsets + start
            self.lengths[:] = length
            if (self.parts.nodes[:, 0] < start + length).any():
                _refuse(layout, int(np.argmin(self.parts.nodes[:, 0])), "a column is shorter than its batch")
            self._find_ends(range(layout.num_nodes))
            return
        nodes = self.parts.nodes
        level = [(node, start, length) for node in layout.columns]
        while level:
            for node, first, count in level:
                if first < 0 or first + count > nodes[node, 0]:
                    what = "a column or child is too short"
                    _refuse(layout, node, what, f"{first + count} slots", f"{nodes[node, 0]}")
                self.starts[node] = self.offsets[node] + first
                self.lengths[node] = count
            self._find_ends(node for node, _, _ in level)
            self._find_runs([node for node, _, _ in level if layout.nodes[node].type.id == _RUNS])
            parents = [node for node, _, _ in level if layout.nodes[node].children]
            level = [piece for node in parents for piece in self._children(node)]

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
            first, end = self.ends.get(index, (0, int(self.parts.nodes[node.children[0], 0])))
            return [(child, first, end - first if length else 0) for child in node.children]
        if index in self.ends:
            first, last = self.ends[index]
            return [(node.children[0], first, last - first)]
        return [(child, 0, int(self.parts.nodes[child, 0])) for child in node.children]

    def _find_ends(self, nodes: Iterable[int]) -> None:
        layout = self.parts.layout
        if not self.trims or not layout.offsets:
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
            if length and (start or self.trims):
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

    def move(self) -> None:
        """Move the start of every buffer to its first slot, and its end to its last."""
        layout, starts, lengths = self.layout, self.starts, self.lengths
        # A part of what is all null or all valid is so too; of anything else it is unknown.
        whole, nulls = self.parts.nodes.T
        self.nodes[:, 0] = lengths
        self.nodes[:, 1] = np.where(
            lengths == whole, nulls, np.where(nulls == whole, lengths, np.where(nulls == 0, 0, -1))
        )
        rows = layout.fixed_buffers(self.parts.variadic_counts)
        owners, kinds = layout.buffer_nodes, layout.buffer_kinds
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
            old = self.parts.spans.array(row)
            self._replace(row, bitmap.shifted(old, int(first_bits[position]), int(slots[position])))
        self.table[self.table[:, 2] == 0] = 0

    def trim(self) -> None:
        """Make offsets start at 0, and bytes with what the first offset points to."""
        for node, _, width, child in self.layout.offsets:
            first, last = self.ends[node]
            row = int(self.first[node]) + 1
            if first:
                dtype = np.dtype(f"<i{width}")
                self._replace(row, self._array(row, dtype) - dtype.type(first))
            if child < 0:
                region, offset, nbytes = self.table[row + 1].tolist()
                if last > nbytes:
                    _refuse(self.layout, node, "the BYTES buffer is too short", f"{last} bytes", f"{nbytes}")
                self.table[row + 1] = (region, offset + first, last - first) if last > first else 0

    def replace_run_ends(self) -> None:
        for index, (start, length) in self.runs.items():
            ends = self.layout.nodes[index].children[0]
            row = int(self.first[ends]) + 1
            dtype = np.dtype(f"<i{self.layout.nodes[ends].width}")
            moved = self._array(row, dtype) - dtype.type(start)
            self._replace(row, self.device.xp.minimum(moved, dtype.type(length)))

    def count_nulls(self) -> None:
        """Count what is unknown, all with one fetch, and drop bitmaps without a null."""
        counts: list[Any] = []
        counted: list[tuple[int, int]] = []
        for index in np.flatnonzero(self.nodes[:, 1] < 0).tolist():
            row = int(self.first[index])
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


def _refuse(layout: Layout, node: int, what: str, expected: object = None, found: object = None) -> NoReturn:
    raise InvalidBody(what, expected=expected, found=found, where=layout.name_of(node))
