"""Compact batches of a device are those of the host, and offsets that do not fit are refused alike."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bowstring.columnar import Batch, compacted
from bowstring.columnar.parts import batch_parts, make_batch
from bowstring.columnar.slice import slice_parts
from bowstring.columnar.spans import buffer_of
from bowstring.errors import InvalidBody
from bowstring.memory import Device, cpu
from bowstring.testing import fake_device
from tests.strategies import record_batches

ROWS = st.integers(0, 45)
WILD = st.sampled_from([-(2**31), -5, -1, 0, 1, 2, 3, 6, 40, 1000, 2**31 - 1])


@given(source=record_batches(), start=ROWS, rows=ROWS)
def test_any_slice_becomes_compact_on_a_device(source: pa.RecordBatch, start: int, rows: int) -> None:
    """Whatever the types and however deep, the values are right and all null counts are known."""
    device = fake_device(0)
    batch = Batch.from_arrow(source).to_device(device).slice(start, rows)
    for dictionary in batch.dictionaries.values():
        dictionary._is_compact = False
    compact = compacted(batch)
    assert (batch_parts(compact).nodes[:, 1] >= 0).all()
    assert compact.to_device("cpu").to_arrow().equals(source.slice(start, rows))


def test_a_long_bitmap_of_a_child_is_counted() -> None:
    """Nulls of a child are counted in its range alone, with its ends inside of words."""
    rows = 300_000
    values = np.random.default_rng(3).random(rows) < 0.3
    child = pa.array(np.arange(rows), mask=values)
    lists = pa.ListArray.from_arrays(pa.array([0, 77, 150_001, 299_990, rows], pa.int32()), child)
    device = fake_device(0)
    batch = Batch.from_arrow(pa.record_batch({"l": lists})).to_device(device).slice(1, 2)
    compact = compacted(batch)
    assert batch_parts(compact).nodes[1].tolist() == [299_990 - 77, int(values[77:299_990].sum())]


NESTED = pa.record_batch(
    {
        "l": pa.array([[["a", "bc"], []], None, [["def"]], [["g"], ["h", "ij"]]]),
        "m": pa.array([[("k", [1, 2])], [], [("l", [3])], None], pa.map_(pa.string(), pa.list_(pa.int8()))),
        "r": pa.RunEndEncodedArray.from_arrays(pa.array([1, 4], pa.int32()), pa.array(["x", "yz"])),
    }
)


def broken(places: list[tuple[int, int]], short: int, device: Device) -> Batch:
    """Return a batch with some offsets or run ends replaced, and the buffer of one of them maybe too short.

    `places` holds which of all numbers, and what stands there; `short` is which buffer lacks its last bytes.
    """
    whole = Batch.from_arrow(NESTED)
    layout = whole.layout
    rows = [position for _, position, _, _ in layout.offsets]
    rows += [layout.nodes[layout.nodes[node].children[0]].first_buffer + 1 for node in layout.run_ends]
    arrays = {row: batch_parts(whole).spans.array(row).copy() for row in range(len(batch_parts(whole).spans))}
    places_of = [(row, at) for row in rows for at in range(len(arrays[row]) // 4)]
    for which, value in places:
        row, at = places_of[which % len(places_of)]
        arrays[row].view(np.int32)[at] = value
    if short < len(rows):
        arrays[rows[short]] = arrays[rows[short]][:-5]
    there = [device.from_host(array) if len(array) else None for array in arrays.values()]
    buffers = [None if array is None else buffer_of(array, device) for array in there]
    return make_batch(Batch, layout, whole.num_rows, batch_parts(whole).nodes, buffers)


@given(
    places=st.lists(st.tuples(st.integers(0, 60), WILD), max_size=3),
    short=st.integers(0, 30),
    start=st.integers(0, 3),
)
def test_what_does_not_fit_is_refused_as_on_the_host(
    places: list[tuple[int, int]], short: int, start: int
) -> None:
    """Offsets that lead outside, decrease or are missing are refused alike, and nothing is read outside."""
    results = []
    for device in (cpu(), fake_device(0)):
        batch = broken(places, short, device)
        try:
            parts = slice_parts(batch_parts(batch), device, start, 4 - start)
            compact = compacted(make_batch(Batch, parts.layout, 4 - start, parts.nodes, list(parts.spans)))
            results.append(
                [batch_parts(compact).nodes.tolist(), batch_parts(compact).spans.table[:, 2].tolist()]
            )
        except InvalidBody:
            results.append([])
    assert results[0] == results[1]
