"""The other byte order: batches as a big-endian writer laid them out, turned into what this processor reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.nodes import Kind
from bowstring.columnar.parts import AnyBatch, BatchData, batch_parts, derived
from bowstring.columnar.spans import Spans, buffer_of
from bowstring.kernels import rearrange
from bowstring.kernels.launch import launch
from bowstring.memory import Device

_PLACEMENT = 64
_BYTES = 1
_INTERVALS = -1
_VIEWS = -2
_DAY_TIME = 22  # pyarrow 22 has no name for it
_ELEMENTS = {
    pa.lib.Type_FIXED_SIZE_BINARY: _BYTES,
    pa.lib.Type_INTERVAL_MONTH_DAY_NANO: _INTERVALS,
    _DAY_TIME: 4,
}
_KINDS = (Kind.VALIDITY, Kind.BITS, Kind.BYTES, Kind.TYPE_IDS, Kind.VARIADIC)


def swapped(batch: AnyBatch) -> AnyBatch:
    """Return a batch with swapped buffers, in one new region; dictionaries stay as they are.

    Check counts and sizes before, and offsets after: they mean nothing until they are swapped.
    """
    spans, widths = batch_parts(batch).spans, _widths(batch)
    rows = np.flatnonzero((widths != _BYTES) & (spans.table[:, 2] > 0))
    if not len(rows):
        return batch

    def swap(row: int, out: Any) -> None:
        _swap(spans.array(row), out, int(widths[row]), batch.device)

    return with_rows_moved(batch, rows, swap)


def with_rows_moved(
    batch: AnyBatch, rows: npt.NDArray[np.int64], put: Callable[[int, Any], None]
) -> AnyBatch:
    """Return a batch with some buffers at multiples of 64 bytes in one new region, each put there by ``put``."""
    parts, device = batch_parts(batch), batch.device
    spans = parts.spans
    sizes = spans.table[rows, 2]
    ends = np.cumsum(-(-sizes // _PLACEMENT) * _PLACEMENT)
    with device.use():
        memory = device.xp.zeros(int(ends[-1]) + _PLACEMENT, np.uint8)
        target = buffer_of(memory, device)
        starts = -target.address % _PLACEMENT + np.concatenate(([0], ends[:-1]))
        for row, start, nbytes in zip(rows.tolist(), starts.tolist(), sizes.tolist(), strict=True):
            put(row, memory[start : start + nbytes])
        table = spans.table.copy()
        table[rows, 0] = len(spans.regions)
        table[rows, 1] = starts
        moved = Spans(table, (*spans.regions, target.region))
        return derived(batch, parts._replace(spans=moved), batch.num_rows, batch.dictionaries)


def _widths(batch: BatchData) -> npt.NDArray[np.int64]:
    """Return the bytes of an element of each buffer, or the form of those that are made of several."""
    parts = batch_parts(batch)
    layout = batch.layout
    widths = np.full(len(parts.spans.table), _BYTES, np.int64)
    fixed = layout.fixed_buffers(parts.variadic_counts)
    for position, node in enumerate(layout.buffer_nodes.tolist()):
        kind = Kind(layout.buffer_kinds[position])
        if kind is Kind.VIEWS:
            widths[fixed[position]] = _VIEWS
        elif kind is Kind.DATA:
            widths[fixed[position]] = _ELEMENTS.get(layout.nodes[node].type.id, layout.nodes[node].width)
        elif kind not in _KINDS:
            widths[fixed[position]] = kind.bits >> 3
    return widths


def _swap(data: Any, out: Any, width: int, device: Device) -> None:
    """Write the elements of `data` to `out`, both bytes; what is behind the last whole one stays zero."""
    element = width if width > 0 else int(rearrange.SLOT)
    whole = len(data) // element * element
    data, out = data[:whole], out[:whole]
    if not device.is_host and width == _VIEWS:
        launch(rearrange.swap_views, whole // element, data, out)
    elif not device.is_host and width == _INTERVALS:
        launch(rearrange.swap_intervals, whole // element, data, out)
    elif not device.is_host:
        launch(rearrange.swap_elements, -(-whole // int(rearrange.BLOCK)), data, width - 1, out)
    elif width == _VIEWS:
        # The sizes, and the buffers and offsets of texts that do not lie in the view itself.
        slots, swapped = data.reshape(-1, 4, 4), out.reshape(-1, 4, 4)
        swapped[:] = slots
        swapped[:, 0] = slots[:, 0, ::-1]
        outside = swapped[:, 0].reshape(-1).view("<i4") > int(rearrange.LONGEST_INSIDE)
        swapped[outside, 2:] = slots[outside, 2:, ::-1]
    elif width == _INTERVALS:
        slots, swapped = data.reshape(-1, 2, 8), out.reshape(-1, 2, 8)
        swapped[:, 0] = slots[:, 0].reshape(-1, 2, 4)[:, :, ::-1].reshape(-1, 8)
        swapped[:, 1] = slots[:, 1, ::-1]
    elif width <= np.dtype(np.uint64).itemsize:
        out.view(f"<u{width}")[:] = data.view(f">u{width}")
    else:
        out.reshape(-1, width)[:] = data.reshape(-1, width)[:, ::-1]
