"""The first and the last of offsets and of run ends: what structure alone cannot show, in O(columns)."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bowstring.columnar.offset_bounds import offset_bounds
from bowstring.errors import InvalidBody
from bowstring.ipc.body.check import node_name
from bowstring.memory.arrays import distinct

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch
    from bowstring.columnar.spans import Spans
    from bowstring.memory import Region

__all__ = ["check_offsets"]

Table = npt.NDArray[np.int64]

_count = np.count_nonzero
_NODE, _BUFFER, _WIDTH, _CHILD = range(4)
_REGION, _OFFSET, _NBYTES = range(3)
_NOTHING = np.array(0)
_ROWS_PER_REGION = 8
"""Up to so many buffers in a region, on average, they are read one by one sooner than region by region."""


def check_offsets(batch: Batch) -> None:
    """Check the first and the last offset of every offsets buffer of a batch, and its run ends alike.

    On the host, offsets are gathered with a few operations for all columns at once; of a device it reads once.

    Raises
    ------
    InvalidBody
        They are negative, decrease, or end beyond the bytes or the child that they delimit; or runs end before
        the column does.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bowstring.columnar.batch import Batch
    >>> check_offsets(Batch.from_arrow(pa.record_batch({"a": ["x", "yz"]})))
    """
    if not batch.device.is_host:
        _check_on_device(batch)
        return
    for group in batch.layout.offset_groups:
        _check_group(batch, group)
    for node in batch.layout.run_ends:
        _check_runs(batch, node)


def _check_group(batch: Batch, group: Table) -> None:
    """Check the buffers of one width that all delimit bytes, or all delimit children."""
    everything = batch.nodes[:, 0]
    lengths = everything[group[:, _NODE]]
    if _count(lengths) != len(lengths):
        group, lengths = group[lengths > 0], lengths[lengths > 0]
        if not len(lengths):
            return
    width = int(group[0, _WIDTH])
    is_list = group[0, _CHILD] >= 0
    buffers = group[:, _BUFFER]
    if batch.variadic_counts:
        buffers = batch.layout.fixed_buffers(batch.variadic_counts)[buffers]
    spans = batch.spans.table
    rows = spans[buffers]
    limits = everything[group[:, _CHILD]] if is_list else spans[buffers + 1, _NBYTES]
    nbytes = lengths * width
    short = rows[:, _NBYTES] - nbytes < width
    if _count(short):
        _refuse(batch, group, short, "an offsets buffer is too short", rows[:, _NBYTES], nbytes + width)
    first, last = _ends(batch.spans, rows, lengths, width)
    wrong = (first < _NOTHING) | (last < first)
    if _count(wrong):
        _refuse(batch, group, wrong, "offsets are negative or decrease", last, first)
    wrong = last > limits
    if _count(wrong):
        _refuse(batch, group, wrong, "offsets point behind what they delimit", last, limits)


def _check_on_device(batch: Batch) -> None:
    """Check the same of a batch on a device, with one read by the host."""
    layout = batch.layout
    for node in layout.run_ends:
        child = layout.nodes[node].children[0]
        if batch.nodes[node, 0] and batch.nodes[child, 0] <= 0:
            raise InvalidBody("run ends are missing", found="0 runs", where=node_name(layout, child))
    for node, first, last, bound, is_runs in offset_bounds(batch):
        if is_runs:
            right, what = 0 < first <= last and last >= bound, "runs do not cover their column"
        else:
            right, what = 0 <= first <= last <= bound, "offsets decrease, or point outside what they delimit"
        if not right:
            found = f"{first} to {last}"
            raise InvalidBody(what, expected=f"against {bound}", found=found, where=node_name(layout, node))


def _check_runs(batch: Batch, node: int) -> None:
    layout = batch.layout
    length = int(batch.nodes[node, 0])
    child = layout.nodes[node].children[0]
    runs = int(batch.nodes[child, 0])
    if not length:
        return
    width = layout.nodes[child].width
    values = int(layout.fixed_buffers(batch.variadic_counts)[layout.nodes[child].first_buffer + 1])
    rows = batch.spans.table[values : values + 1]
    if not 0 < runs * width <= int(rows[0, _NBYTES]):
        raise InvalidBody("run ends are missing", found=f"{runs} runs", where=node_name(layout, child))
    first, last = _ends(batch.spans, rows, np.array([runs - 1]), width)
    if not 0 < first[0] <= last[0] or last[0] < length:
        raise InvalidBody(
            "runs do not cover their column",
            expected=f"ends from 1 to at least {length}",
            found=f"{first[0]} to {last[0]}",
            where=node_name(layout, child),
        )


def _ends(spans: Spans, rows: Table, lengths: Table, width: int) -> tuple[Table, Table]:
    """Read the first and the last offset of the buffers in ``rows``, each of ``lengths + 1`` offsets."""
    if len(spans.regions) == 1:
        return _ends_in(spans.regions[0], rows[:, _OFFSET], lengths, width)
    if spans.device.is_host and len(rows) < _ROWS_PER_REGION * len(spans.regions):
        return _scattered_ends(spans, rows, lengths, width)
    first, last = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    for index in distinct(rows[:, _REGION]):
        chosen = rows[:, _REGION] == index
        places = rows[chosen, _OFFSET]
        first[chosen], last[chosen] = _ends_in(spans.regions[index], places, lengths[chosen], width)
    return first, last


def _ends_in(region: Region, starts: Table, lengths: Table, width: int) -> tuple[Table, Table]:
    dtype = np.dtype(f"<i{width}")
    shift = int(starts[0]) % width
    places = starts - shift if shift else starts
    if not region.device.is_host or _count(places & (width - 1)):
        return _one_by_one(region, starts, dtype), _one_by_one(region, starts + lengths * width, dtype)
    whole = region.array(shift, (region.nbytes - shift) // width * width).view(dtype)
    indices = places // width
    return whole[indices], whole[indices + lengths]


def _scattered_ends(spans: Spans, rows: Table, lengths: Table, width: int) -> tuple[Table, Table]:
    """Read the same where the buffers lie here and there on the host; their sizes have been checked."""
    first, last = [], []
    for (region, offset, _), length in zip(rows.tolist(), lengths.tolist(), strict=True):
        address = spans.regions[region].address + offset
        first.append(ctypes.string_at(address, width))
        last.append(ctypes.string_at(address + length * width, width))
    dtype = f"<i{width}"
    return (
        np.frombuffer(b"".join(first), dtype).astype(np.int64),
        np.frombuffer(b"".join(last), dtype).astype(np.int64),
    )


def _one_by_one(region: Region, places: Table, dtype: np.dtype[np.signedinteger[Any]]) -> Table:
    read = region.device.to_host
    numbers = [int(read(region.array(place, dtype.itemsize)).view(dtype)[0]) for place in places.tolist()]
    return np.array(numbers, np.int64)


def _refuse(
    batch: Batch, group: Table, wrong: npt.NDArray[np.bool_], what: str, found: Table, bound: Table
) -> None:
    position = int(np.flatnonzero(wrong)[0])
    raise InvalidBody(
        what,
        expected=f"against {bound[position]}",
        found=int(found[position]),
        where=node_name(batch.layout, int(group[position, _NODE])),
    )
