"""Alignment: what arrives where its type cannot be read is copied to where it can, and nothing else is.

Bowstring writes every buffer at a multiple of 64 bytes. Others need only keep to 8, and what comes through gRPC may
lie at any address. Elements are read at multiples of their own width, or of 8 where they are wider: that is what
kernels, NumPy and the processor want. Text, bitmaps and fixed-size binary may lie anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.ipc import Alignment

from bowstring.columnar.nodes import Kind
from bowstring.columnar.spans import Spans, buffer_of

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch
    from bowstring.columnar.layout import Layout
    from bowstring.memory import Buffer, Device

__all__ = ["aligned", "needed_alignment"]

_WIDEST = 8
_ALL = 64

Table = npt.NDArray[np.int64]


def aligned(batch: Batch, how: Alignment = Alignment.Any) -> Batch:
    """Return a batch whose buffers can all be read where they are: the batch itself where they can already.

    Parameters
    ----------
    batch
        On any device. Its dictionaries are left as they are.
    how
        ``Alignment.At64Byte`` copies what does not lie at a multiple of 64 bytes; the others what does not lie at a
        multiple of :func:`needed_alignment`.

    Examples
    --------
    >>> from bowstring.columnar.batch import Batch
    >>> from bowstring.columnar.layout import Layout
    >>> from bowstring.memory import wrap
    >>> layout = Layout.of(pa.schema({"a": pa.int32()}))
    >>> odd = wrap(np.zeros(3, np.int32)).slice(1, 8)
    >>> batch = Batch.from_parts(layout, 2, np.array([[2, 0]]), [None, odd])
    >>> batch.buffers[1].address % 4, aligned(batch).buffers[1].address % 4
    (1, 0)
    """
    if how is Alignment.At64Byte:
        needed: Table | int = _ALL
    else:
        needed = needed_alignment(batch.layout, batch.variadic_counts)
    wrong = np.flatnonzero(batch.spans.addresses() % needed)
    if not len(wrong):
        return batch
    spans = _moved(batch.spans, wrong, batch.device)
    return batch.derived(batch.parts._replace(spans=spans), batch.num_rows, batch.dictionaries)


def needed_alignment(layout: Layout, variadic_counts: tuple[int, ...] = ()) -> Table:
    """Return what the address of each buffer must be a multiple of, so that its elements can be read.

    Examples
    --------
    >>> from bowstring.columnar.layout import Layout
    >>> schema = pa.schema({"a": pa.int16(), "b": pa.decimal128(5), "c": pa.string(), "d": pa.binary(4)})
    >>> needed_alignment(Layout.of(schema)).tolist()
    [1, 2, 1, 8, 1, 4, 1, 1, 1]
    """
    fixed: Table = np.clip(layout.buffer_bits >> 3, 1, _WIDEST)
    for node in layout.nodes:
        if node.type.id == pa.lib.Type_FIXED_SIZE_BINARY:
            fixed[node.first_buffer + node.buffer_kinds.index(Kind.DATA)] = 1
    if not variadic_counts:
        return fixed
    needed = np.ones(layout.num_buffers + sum(variadic_counts), np.int64)
    needed[layout.fixed_buffers(variadic_counts)] = fixed
    return needed


def _moved(spans: Spans, rows: Table, device: Device) -> Spans:
    """Copy some of the buffers, each to a multiple of 64 bytes in one new region of the device."""
    sizes = spans.table[rows, 2]
    ends = np.cumsum(-(-sizes // _ALL) * _ALL)
    with device.use():
        room = device.xp.zeros(int(ends[-1]) + _ALL, np.uint8)
        target: Buffer = buffer_of(room, device)
        starts = -target.address % _ALL + np.concatenate(([0], ends[:-1]))
        for row, start, nbytes in zip(rows.tolist(), starts.tolist(), sizes.tolist(), strict=True):
            room[start : start + nbytes] = spans.array(row)
        table = spans.table.copy()
        table[rows, 0] = len(spans.regions)
        table[rows, 1] = starts
        return Spans(table, (*spans.regions, target.region))
