"""Arrow data come in and go out as they are: every type, nested, sliced at any depth, on every device."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.columnar import Batch, Layout, compacted, is_compact, placed, placed_bytes
from bowstring.columnar.parts import batch_parts
from bowstring.memory import Device, Pool, cpu
from bowstring.testing import FakeDevice, fake_device
from tests.arrays import array_of
from tests.strategies import LEAF_TYPES, record_batches

ROWS = st.integers(0, 45)
NESTED_TYPES = [
    pa.list_(pa.string()),
    pa.large_list(pa.int16()),
    pa.list_(pa.bool_(), 3),
    pa.list_(pa.string(), 0),
    pa.list_view(pa.string()),
    pa.large_list_view(pa.int8()),
    pa.map_(pa.string(), pa.list_(pa.int32())),
    pa.struct([("a", pa.bool_()), ("b", pa.string_view())]),
    pa.struct([]),
    pa.sparse_union([pa.field("a", pa.bool_()), pa.field("b", pa.string())]),
    pa.dense_union([pa.field("a", pa.bool_()), pa.field("b", pa.string())]),
    pa.run_end_encoded(pa.int16(), pa.bool_()),
    pa.run_end_encoded(pa.int64(), pa.string()),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint16(), pa.string_view()),
    pa.dictionary(pa.int32(), pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    pa.list_(pa.dictionary(pa.int16(), pa.int64())),
]


def there(batch: Batch, device: Device) -> Batch:
    """Return a batch on a device."""
    return batch.to_device(device)


@given(source=record_batches(), start=ROWS, rows=ROWS)
def test_what_comes_in_goes_out_equal(device: Device, source: pa.RecordBatch, start: int, rows: int) -> None:
    """Importing any slice and exporting it gives an equal and fully valid record batch with the same schema."""
    part = source.slice(start, rows)
    result = there(Batch.from_arrow(part), device).to_arrow()
    result.validate(full=True)
    assert result.equals(part)
    assert result.schema.equals(part.schema, check_metadata=True)


@given(source=record_batches(), start=ROWS, rows=ROWS)
def test_slices_of_a_batch_are_slices(device: Device, source: pa.RecordBatch, start: int, rows: int) -> None:
    """Slicing a batch is slicing its data, and a slice of a slice too."""
    batch = there(Batch.from_arrow(source), device).slice(start, rows)
    batch.validate()
    assert batch.to_arrow().equals(source.slice(start, rows))
    again = batch.slice(3, 7)
    again.validate()
    assert again.to_arrow().equals(source.slice(start, rows).slice(3, 7))


@given(source=record_batches(), start=ROWS, rows=ROWS)
def test_a_compact_batch_is_equal_and_no_larger(
    device: Device, source: pa.RecordBatch, start: int, rows: int
) -> None:
    """A compact batch holds the same values, no more bytes than before, counted nulls, and is compact for good."""
    batch = there(Batch.from_arrow(source), device).slice(start, rows)
    compact = compacted(batch)
    compact.validate()
    assert compact.to_arrow().equals(source.slice(start, rows))
    assert compact.nbytes <= batch.nbytes
    assert (batch_parts(compact).nodes[:, 1] >= 0).all()
    assert is_compact(compact)
    assert compacted(compact) is compact


@given(source=record_batches(), start=ROWS, rows=ROWS)
def test_compact_offsets_start_at_zero(source: pa.RecordBatch, start: int, rows: int) -> None:
    """Nothing is left in a compact batch that its offsets do not span, and unneeded bitmaps are gone."""
    batch = compacted(Batch.from_arrow(source).slice(start, rows))
    layout, lengths = batch.layout, batch_parts(batch).nodes[:, 0]
    fixed = layout.fixed_buffers(batch_parts(batch).variadic_counts)
    for node, position, width, child in layout.offsets:
        offsets = batch_parts(batch).spans.array(int(fixed[position]), f"<i{width}")
        end = lengths[child] if child >= 0 else batch_parts(batch).spans.table[fixed[position + 1], 2]
        assert [*offsets[:1], *offsets[-1:]] == ([0, end] if lengths[node] else [])
    validity = batch_parts(batch).spans.table[fixed[layout.validity_buffers], 2]
    nulls = batch_parts(batch).nodes[layout.validity_nodes, 1]
    assert np.array_equal(validity != 0, nulls != 0)


@given(source=record_batches(), start=ROWS, rows=ROWS)
def test_placed_batches_are_equal_and_shareable(
    device: Device, source: pa.RecordBatch, start: int, rows: int
) -> None:
    """Placing copies everything into aligned slices of one shareable region, and a second time nothing."""
    pool = Pool(device, budget=16 << 20)
    batch = Batch.from_arrow(source).slice(start, rows)
    result = placed(batch, pool.allocator())
    result.validate()
    assert result.device is device
    assert result.to_arrow().equals(source.slice(start, rows))
    for each in (result, *(dictionary.values for dictionary in result.dictionaries.values())):
        buffers = [buffer for buffer in each.buffers if buffer is not None]
        assert all(buffer.region.shareable for buffer in buffers)
        assert all(buffer.address % device.alignment == 0 for buffer in buffers)
    again = placed(result, pool.allocator())
    assert batch_parts(again).spans.addresses().tolist() == batch_parts(result).spans.addresses().tolist()


@given(source=record_batches(), start=ROWS, rows=ROWS)
def test_every_column_stands_alone(device: Device, source: pa.RecordBatch, start: int, rows: int) -> None:
    """A column is exported in its storage type, equal to pyarrow's, with the same null count and length."""
    batch = there(Batch.from_arrow(source), device).slice(start, rows)
    for column, expected in zip(batch.columns, source.slice(start, rows).columns, strict=True):
        storage = expected.storage if isinstance(expected, pa.ExtensionArray) else expected
        assert column.to_arrow().equals(storage)
        assert column.null_count == expected.null_count
        assert len(column) == len(expected)
        for child in column.children:
            child.to_arrow().validate(full=True)


@given(source=record_batches(min_columns=1), data=st.data())
def test_selected_columns_are_those_columns(
    device: Device, source: pa.RecordBatch, data: st.DataObject
) -> None:
    """Selecting names gives those columns in that order, dictionaries included."""
    names = data.draw(st.lists(st.sampled_from(source.schema.names), unique=True))
    chosen = there(Batch.from_arrow(source), device).select(names)
    assert chosen.schema.names == names
    assert set(chosen.dictionaries) == set(chosen.layout.dictionary_ids)
    result = chosen.to_arrow()
    for name in names:
        assert result.column(name).equals(source.column(name))


@pytest.mark.parametrize("type_", [*LEAF_TYPES, *NESTED_TYPES], ids=str)
def test_each_type_at_each_bit_offset(device: Device, type_: pa.DataType) -> None:
    """Each type comes through whole, sliced at every offset of a byte, and inside a struct and a list."""
    rng = np.random.default_rng(1)
    array = array_of(type_, 27, rng)
    struct = pa.StructArray.from_arrays([array], fields=[pa.field("inner", type_)])
    lists = pa.ListArray.from_arrays(pa.array([0, 3, 3, 20, 27], pa.int32()), array)
    for start in range(9):
        for whole in (array, struct, lists):
            source = pa.record_batch({"c": whole}).slice(start)
            assert there(Batch.from_arrow(source), device).to_arrow().equals(source)


@pytest.mark.parametrize("word", ["tiM", "tiD"])
def test_intervals_that_pyarrow_cannot_show(word: str) -> None:
    """Intervals of months and of days, which pyarrow has no Python type for, come through."""
    values = pa.array([1, None, 3, 4], pa.int32() if word == "tiM" else pa.int64())
    schema_capsule, array_capsule = pa.record_batch({"c": values}).__arrow_c_array__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # struct ArrowSchema: format, name, metadata, flags, n_children, children …
    words = (ctypes.c_int64 * 6).from_address(pointer(schema_capsule, b"arrow_schema"))
    child = ctypes.c_int64.from_address(words[5]).value
    kept = ctypes.create_string_buffer(word.encode())
    ctypes.c_void_p.from_address(child).value = ctypes.addressof(kept)

    class Producer:
        def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
            return schema_capsule, array_capsule

    source = pa.record_batch(Producer())
    assert Batch.from_arrow(source.slice(1)).to_arrow().equals(source.slice(1))


def test_the_host_reads_a_device_only_where_it_must(fake: FakeDevice, pool: Pool) -> None:
    """Making a batch on a device compact takes a bounded number of reads, whatever the number of columns."""
    columns = {f"c{index}": pa.array([["a", None], [], ["b"]]) for index in range(20)}
    batch = Batch.from_arrow(columns).to_device(fake)
    fake.stats.reset()
    batch["c3"].children[0].validity  # noqa: B018  a view is made
    batch["c3"].offsets  # noqa: B018
    batch.select(["c1", "c2"])
    batch.__arrow_c_device_array__()
    assert fake.stats.host_reads == 0
    assert is_compact(batch)
    assert fake.stats.host_reads == 1
    sliced = batch.slice(1)
    assert fake.stats.host_reads == 1
    compacted(sliced)
    # One to see that it is not compact, one a level of nesting, one for the null counts.
    assert fake.stats.host_reads <= 1 + 1 + 2 + 1


@pytest.fixture
def fake() -> FakeDevice:
    """Return the fake device."""
    return fake_device()


def test_placing_takes_what_it_says(device: Device) -> None:
    """`placed_bytes` bounds what one placed batch takes from its allocator, dictionaries included."""
    batch = compacted(Batch.from_arrow({"a": [1, None], "b": pa.array(["x", "y"]).dictionary_encode()}))
    needed = placed_bytes(batch, device)
    result = placed(batch, Pool(device, budget=2 << 20).allocator(needed))
    regions = {buffer.region.uuid for buffer in result.buffers if buffer is not None}
    assert len(regions) == 1
    values = result.dictionaries[0].values
    ends = [buffer.offset + buffer.nbytes for each in (result, values) for buffer in each.buffers if buffer]
    assert max(ends) <= needed


def test_layouts_of_empty_schemas(device: Device) -> None:
    """A batch without columns keeps its number of rows on its way everywhere."""
    empty = pa.StructArray.from_buffers(pa.struct([]), 7, [None], children=[])
    source = pa.RecordBatch.from_struct_array(empty)
    batch = Batch.from_arrow(source).to_device(device)
    assert batch.device is device
    assert batch.num_rows == 7
    assert batch.slice(2, 3).to_arrow().num_rows == 3
    assert batch.layout is Layout.of(pa.schema([]))
    assert placed(batch, Pool(cpu()).allocator()).num_rows == 7
