"""Binary views as slots of one array of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.columnar.nodes import Kind
from bowstring.errors import InvalidBody

if TYPE_CHECKING:
    from bowstring.columnar.column import Column

__all__ = ["slots_of_views"]

_VIEW: Final = 16
_LONGEST_INSIDE: Final = 12
_PREFIX: Final = 4


def slots_of_views(column: Column) -> tuple[Any, Any, Any]:
    """Return starts, stops and bytes of a column of binary views: one copy of its buffers, on their device.

    A view that points outside of its buffer becomes a slot that is nowhere.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bowstring.columnar.batch import Batch
    >>> column = Batch.from_arrow({"a": pa.array([b"short", b"longer than twelve"], pa.binary_view())})["a"]
    >>> starts, stops, data = slots_of_views(column)
    >>> [bytes(data[start:stop]) for start, stop in zip(starts, stops)]
    [b'short', b'longer than twelve']
    """
    xp, rows = column.device.xp, len(column)
    batch, node = column.batch, column._node
    raw = column._array(np.uint8, Kind.VIEWS)[: rows * _VIEW]
    if len(raw) < rows * _VIEW:
        raise InvalidBody("a buffer of views is too short", expected=rows * _VIEW, found=len(raw))
    first = int(batch.layout.first_buffers(batch.variadic_counts)[column._index])
    first += node.buffer_kinds.index(Kind.VIEWS) + 1
    count = dict(zip(batch.layout.variadic_nodes, batch.variadic_counts, strict=True))[column._index]
    table = batch.spans.table[first : first + count]
    ends = np.cumsum(table[:, 2]) + rows * _VIEW
    bases = np.append(ends - table[:, 2], -1)
    sizes = np.append(table[:, 2], 0)
    data = xp.concatenate(
        [raw, *(batch.spans.array(first + each) for each in range(count) if table[each, 2])]
    )
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
