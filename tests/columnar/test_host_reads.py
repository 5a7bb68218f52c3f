"""How often the host reads of a device: as often as a batch has levels, not columns, and nothing of a body."""

from __future__ import annotations

import decimal
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.memory import Pool
from bowstring.testing import FakeDevice, fake_device
from tests.arrays import array_of

ROWS = 5_000
MIB = 1 << 20
TEXTS = [None if row % 7 == 0 else f"text {row}" for row in range(ROWS)]


def fixed() -> pa.RecordBatch:
    """Return columns without offsets."""
    prices = pa.array([decimal.Decimal(row) for row in range(ROWS)], pa.decimal128(20, 2))
    return pa.record_batch({"n": np.arange(ROWS), "f": np.linspace(0, 1, ROWS), "p": prices})


def strings() -> pa.RecordBatch:
    """Return text of both widths, with nulls."""
    return pa.record_batch({"s": TEXTS, "l": pa.array(TEXTS, pa.large_string()), "n": np.arange(ROWS)})


def nested() -> pa.RecordBatch:
    """Return lists of lists of text, and structs."""
    lists = [[[f"{row}"], ["a", "b"]] if row % 3 else None for row in range(ROWS)]
    structs = pa.array([{"x": row, "y": str(row)} for row in range(ROWS)])
    return pa.record_batch({"l": pa.array(lists), "s": structs})


def dictionaries() -> pa.RecordBatch:
    """Return dictionaries of text, and one inside of another."""
    words = pa.array(["one", "two", None, "one"] * (ROWS // 4)).dictionary_encode()
    inner = pa.array(["x", "y", "x", "z"]).dictionary_encode()
    outer = pa.DictionaryArray.from_arrays(
        pa.array([0, 1] * (ROWS // 2), pa.int32()), pa.ListArray.from_arrays([0, 2, 4], inner)
    )
    return pa.record_batch({"w": words, "o": outer, "s": TEXTS})


def runs() -> pa.RecordBatch:
    """Return a column of runs."""
    ends = pa.array([10, ROWS], pa.int32())
    return pa.record_batch({"r": pa.RunEndEncodedArray.from_arrays(ends, ["a", "b"])})


def variant() -> pa.RecordBatch:
    """Return a Variant column whose metadata is dictionary-encoded."""
    batch = bow.variant.from_json([f'{{"a": {row}, "b": "text"}}' for row in range(ROWS)]).as_batch()
    return batch.to_arrow()


TABLES = [fixed, strings, nested, dictionaries, runs, variant]


@pytest.fixture
def device() -> FakeDevice:
    """Return a fake device."""
    return fake_device(0)


def published(device: FakeDevice, batch: bow.Batch, most: int) -> pa.Table:
    """Publish a batch on a device by at most so many reads, and return what a reader gets.

    Reads are counted from before until the reader has its views.
    """
    with bow.Server("unix:", pool=Pool(device, budget=64 * MIB)) as server:
        device.stats.reset()
        endpoint = server.publish("t", batch)
        reads, read_bytes = device.stats.host_reads, device.stats.host_read_bytes
        assert read_bytes < 1000
        with bow.connect(endpoint) as stream:
            got = list(stream)
        assert device.stats.host_read_bytes - read_bytes < 1000
        counted = reads, device.stats.host_reads - reads
        table = pa.Table.from_batches([each.to_arrow() for each in got])
        del got
    assert counted[0] <= most, f"{counted[0]} reads while publishing"
    # One for each message: the batch, and each of its dictionaries.
    assert counted[1] <= 1 + len(batch.dictionaries), f"{counted[1]} reads while reading"
    return table


@pytest.mark.parametrize("make", TABLES)
def test_publishing_reads_once(device: FakeDevice, make: Callable[[], pa.RecordBatch]) -> None:
    """All ends of text and lists come to the host by one small read, and those of each dictionary by another."""
    expected = make()
    batch = bow.Batch.from_arrow(expected).to_device(device)
    # As another library would hand it over: nobody knows yet how its dictionaries are.
    for dictionary in batch.dictionaries.values():
        dictionary._is_compact = False
    table = published(device, batch, 1 + len(batch.dictionaries))
    assert table.to_pydict() == pa.Table.from_batches([expected]).to_pydict()


def reads_of_a_slice(batch: bow.Batch) -> int:
    """Return the most reads for a slice: to see that it is one, two a level, and one for unknown null counts."""
    depths = [each.layout.depth for each in (batch, *(each.values for each in batch.dictionaries.values()))]
    return sum(2 * depth for depth in depths)


@pytest.mark.parametrize("make", TABLES)
def test_publishing_a_slice_reads_level_by_level(
    device: FakeDevice, make: Callable[[], pa.RecordBatch]
) -> None:
    """Where rows are left out, the ends of each level come by one read, and so do unknown null counts."""
    expected = make()
    batch = bow.Batch.from_arrow(expected).to_device(device).slice(13, 1000)
    table = published(device, batch, reads_of_a_slice(batch))
    assert table.to_pydict() == pa.Table.from_batches([expected.slice(13, 1000)]).to_pydict()


LIST = pa.list_(pa.string())
NESTED_TYPES = [
    pa.list_(LIST),
    pa.large_list(pa.large_list(pa.large_string())),
    pa.list_(pa.list_(pa.list_(pa.list_(pa.int16())))),
    pa.list_(LIST, 2),
    pa.list_(pa.list_(pa.bool_(), 3)),
    pa.list_view(LIST),
    pa.large_list_view(pa.list_(pa.string_view())),
    pa.map_(pa.string(), pa.map_(pa.string(), LIST)),
    pa.struct([("a", LIST), ("b", pa.struct([("c", pa.list_(pa.bool_()))]))]),
    pa.list_(pa.struct([("a", LIST), ("b", pa.decimal128(20, 2))])),
    pa.list_(pa.sparse_union([pa.field("a", LIST), pa.field("b", pa.int8())])),
    pa.dense_union([pa.field("a", LIST), pa.field("b", pa.list_(LIST))]),
    pa.run_end_encoded(pa.int16(), pa.string()),
    pa.struct([("a", pa.run_end_encoded(pa.int32(), pa.string())), ("b", LIST)]),
    pa.list_(pa.run_end_encoded(pa.int64(), pa.int32())),
    pa.list_(pa.dictionary(pa.int16(), pa.string())),
    pa.list_(pa.list_(pa.string_view())),
]


@pytest.mark.parametrize("type_", NESTED_TYPES, ids=str)
def test_slices_of_nested_columns_read_level_by_level(device: FakeDevice, type_: pa.DataType) -> None:
    """Where children begin stands in what their parents hold: reads grow with the levels and not with columns."""
    column = array_of(type_, ROWS, np.random.default_rng(11))
    expected = pa.record_batch({**{f"c{number}": column for number in range(5)}, "n": np.arange(ROWS)})
    batch = bow.Batch.from_arrow(expected).to_device(device).slice(13, 1000)
    table = published(device, batch, reads_of_a_slice(batch))
    assert table.equals(pa.Table.from_batches([expected.slice(13, 1000)]))


def test_two_hundred_columns_are_one_launch(device: FakeDevice) -> None:
    """Columns of as many allocations are published by one launch, told by one small write what to gather."""
    xp = device.xp
    columns = {f"c{number}": xp.asarray(np.arange(number, number + 100)) for number in range(200)}
    with bow.Server("unix:", pool=Pool(device, budget=64 * MIB)) as server:
        device.stats.reset()
        endpoint = server.publish("t", columns)
        counted = device.stats
        assert (counted.launches, counted.host_reads, counted.host_writes) == (1, 0, 1)
        assert counted.host_written_bytes == 200 * 4 * 8
        with bow.connect(endpoint) as stream:
            table = stream.read_all()
    assert all(table[f"c{number}"][0].as_py() == number for number in range(200))
