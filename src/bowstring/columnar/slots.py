"""Columns of bytes and text as kernels take them: where each value begins and ends in one array."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Column
from bowstring.columnar.nodes import Kind, storage_type
from bowstring.columnar.parts import batch_parts
from bowstring.errors import InvalidBody
from bowstring.memory import Device

MOST_READ: Final = 16  # how often bytes may be read that several views share

_VIEW: Final = 16
_LONGEST_INSIDE: Final = 12
_PREFIX: Final = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Slots:
    """Slots of bytes: slot ``k`` is ``data[starts[k]:stops[k]]``, and nothing where that is not in `data`.

    `starts` and `stops` are int32 or int64 of shape (slots,), `data` is uint8.
    """

    starts: Any
    stops: Any
    data: Any
    validity: Any  # a bitmap, empty if nothing is null
    shared: bool  # whether slots may overlap, as views do

    def first(self, count: int) -> Slots:
        return dataclasses.replace(self, starts=self.starts[:count], stops=self.stops[:count])


def slots_of(column: Column) -> Slots:
    """Return a column of bytes or text as slots."""
    storage = storage_type(column.type)
    if storage.id in (pa.lib.Type_BINARY_VIEW, pa.lib.Type_STRING_VIEW):
        return Slots(*binary_view_slots(column), bitmap_of(column), shared=True)
    rows = len(column)
    offsets = column.offsets
    buffer = column._buffer(Kind.OFFSETS32, Kind.OFFSETS64)
    if buffer is not None and buffer.address % offsets.dtype.itemsize:
        offsets = offsets.copy()  # kernels take aligned arrays
    if not len(offsets):  # Arrow lets them be left out where there are no rows
        offsets = column.device.xp.zeros(1, np.int64)
    if len(offsets) <= rows:
        raise InvalidBody("a buffer of offsets is too short", expected=rows + 1, found=len(offsets))
    data = column._array(np.uint8, Kind.BYTES)
    return Slots(offsets[:rows], offsets[1 : rows + 1], data, bitmap_of(column), shared=False)


def binary_view_slots(column: Column) -> tuple[Any, Any, Any]:
    """Return starts, stops and bytes of a column of binary views: one copy of its buffers, on their device.

    A view that points outside of its buffer becomes a slot that is nowhere.
    """
    xp, rows = column.device.xp, len(column)
    batch, node = column.batch, column._node
    raw = column._array(np.uint8, Kind.VIEWS)[: rows * _VIEW]
    if len(raw) < rows * _VIEW:
        raise InvalidBody("a buffer of views is too short", expected=rows * _VIEW, found=len(raw))
    layout, _, spans, counts = batch_parts(batch)
    first = int(layout.first_buffers(counts)[column._index])
    first += node.buffer_kinds.index(Kind.VIEWS) + 1
    count = dict(zip(layout.variadic_nodes, counts, strict=True))[column._index]
    table = spans.table[first : first + count]
    ends = np.cumsum(table[:, 2]) + rows * _VIEW
    bases = np.append(ends - table[:, 2], -1)
    sizes = np.append(table[:, 2], 0)
    data = xp.concatenate([raw, *(spans.array(first + each) for each in range(count) if table[each, 2])])
    words = raw.view(np.int32).reshape(rows, 4)
    length = words[:, 0].astype(np.int64)
    buffer = words[:, 2].astype(np.int64)
    offset = words[:, 3].astype(np.int64)
    known = xp.where((buffer >= 0) & (buffer < count), buffer, np.int64(count))
    fits = (offset >= 0) & (offset + length <= xp.asarray(sizes)[known])
    outside = xp.where(fits, xp.asarray(bases)[known] + offset, np.int64(-1))
    inside = xp.arange(rows, dtype=np.int64) * np.int64(_VIEW) + np.int64(_PREFIX)
    starts = xp.where(length <= _LONGEST_INSIDE, inside, outside)
    starts = xp.where(length >= 0, starts, np.int64(-1))
    return starts, starts + length, data


def check_order(slots: Slots, device: Device, name: str) -> None:
    """Check that offsets do not decrease: only then is the work on all slots bounded by their bytes."""
    if slots.shared or not len(slots.starts):
        return
    with device.use():
        decreasing = device.to_host((slots.stops < slots.starts).sum(keepdims=True))[0]
    if decreasing:
        raise InvalidBody("the offsets of a column decrease", expected="offsets that ascend", where=name)


def distinct_slots(device: Device, starts: Any, stops: Any, size: int) -> tuple[Any, Any, Any] | None:
    """Return which of the distinct slots each is, and where these begin and end in an array of `size` bytes.

    ``None`` where they overlap so much that the work on them has no bound.
    """
    xp = device.xp
    end = np.int64(size + 1)
    if int(end) ** 2 >= 1 << 63:
        return None
    inside = (starts >= np.int64(0)) & (starts <= stops) & (stops < end)
    keys, numbers = xp.unique(xp.where(inside, starts * end + stops, np.int64(-1)), return_inverse=True)
    starts, stops = keys // end, keys % end
    if not are_bounded(device, starts, stops, size):
        return None
    return numbers.astype(np.int32), starts, stops


def are_bounded(device: Device, starts: Any, stops: Any, size: int) -> bool:
    """Return whether slots have few bytes altogether, each of `size` counted not much more often than once."""
    inside = (starts >= np.int64(0)) & (starts <= stops) & (stops <= np.int64(size))
    lengths = device.xp.where(inside, stops - starts, np.int64(0))
    work = int(device.to_host(lengths.sum(dtype=np.int64, keepdims=True))[0])
    return work <= MOST_READ * size


def bitmap_of(column: Column) -> Any:
    """Return the bitmap of a column, empty where nothing is null."""
    validity = column.validity
    return column.device.xp.empty(0, np.uint8) if validity is None else validity
