"""Columns as arrays of their device."""

from __future__ import annotations

import io
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.columnar import Batch, Column
from bowstring.columnar.parts import batch_parts
from bowstring.errors import NotOnDevice, UnknownColumn, Unsupported, UsageError
from bowstring.ipc import open_stream
from bowstring.memory import Device, cpu
from bowstring.testing import FakeArray, fake_device
from tests.arrays import array_of
from tests.ipc.null_counts import stream_without_nulls

# type, dtype of `raw_values`, shape of one value
FIXED: list[tuple[pa.DataType, Any, tuple[int, ...]]] = [
    *((pa.from_numpy_dtype(np.dtype(code)), code, ()) for code in "bhiqBHIQefd"),
    (pa.date32(), np.int32, ()),
    (pa.date64(), np.int64, ()),
    (pa.time32("ms"), np.int32, ()),
    (pa.timestamp("us", "UTC"), np.int64, ()),
    (pa.duration("s"), np.int64, ()),
    (pa.decimal32(7, 2), np.int32, ()),
    (pa.decimal64(15, 3), np.int64, ()),
    (pa.decimal128(30, 4), np.uint8, (16,)),
    (pa.month_day_nano_interval(), np.uint8, (16,)),
    (pa.binary(5), np.uint8, (5,)),
    (pa.uuid(), np.uint8, (16,)),
    (pa.dictionary(pa.int16(), pa.string()), np.int16, ()),
]

VALUELESS = [pa.null(), pa.string_view(), pa.list_(pa.int8()), pa.run_end_encoded(pa.int16(), pa.int8())]


def host(column: Column, array: Any) -> np.ndarray[Any, Any]:
    """Return an array of the column's device on the host, and check that it was there."""
    assert isinstance(array, np.ndarray if column.device.is_host else FakeArray)
    return column.device.to_host(array)


@pytest.mark.parametrize(("type_", "dtype", "shape"), FIXED, ids=str)
def test_values_of_fixed_width(
    device: Device, type_: pa.DataType, dtype: Any, shape: tuple[int, ...]
) -> None:
    """`raw_values` is an array of the storage's dtype over the very bytes, null slots included."""
    array = array_of(type_, 13, np.random.default_rng(3), nulls=False)
    column = Batch.from_arrow({"c": array}).to_device(device)["c"]
    values = host(column, column.raw_values)
    assert values.dtype == dtype
    assert values.shape == (13, *shape)
    storage = array.storage if isinstance(array, pa.ExtensionArray) else array
    storage = storage.indices if isinstance(storage, pa.DictionaryArray) else storage
    width = storage.type.bit_width // 8
    data = np.frombuffer(storage.buffers()[1], np.uint8)[
        storage.offset * width : (storage.offset + 13) * width
    ]
    assert values.tobytes() == data.tobytes()


@given(flags=st.lists(st.booleans() | st.none(), max_size=30), start=st.integers(0, 30))
def test_booleans_are_unpacked(device: Device, flags: list[bool | None], start: int) -> None:
    """Booleans come one a byte, and the bitmap says which are null."""
    source = {"c": pa.array(flags, pa.bool_())}
    column = Batch.from_arrow(source).to_device(device).slice(start)["c"]
    expected = flags[start:]
    values = host(column, column.raw_values)
    assert values.dtype == np.bool_
    validity = column.validity
    bits = np.ones(len(expected), np.bool_)
    if validity is not None:
        bits = np.unpackbits(host(column, validity), count=len(expected), bitorder="little").view(np.bool_)
    assert [flag if valid else None for flag, valid in zip(values.tolist(), bits, strict=True)] == expected
    assert column.null_count == expected.count(None)


def test_text_is_bytes_and_offsets(device: Device) -> None:
    """Text gives all its bytes and the offsets of its values, large text wider ones."""
    for type_, dtype in ((pa.string(), np.int32), (pa.large_string(), np.int64)):
        column = Batch.from_arrow({"c": pa.array(["one", "", "Zürich"], type_)}).to_device(device)["c"]
        offsets = host(column, column.offsets)
        assert (offsets.dtype, offsets.tolist()) == (dtype, [0, 3, 3, 10])
        assert host(column, column.raw_values).tobytes().decode() == "oneZürich"


def test_nested_columns_have_children(device: Device) -> None:
    """Nested columns give their children by position and name, and refuse `raw_values`."""
    source = {"c": pa.array([{"k": [1, 2]}, {"k": None}, {"k": [3]}])}
    column = Batch.from_arrow(source).to_device(device)["c"]
    with pytest.raises(Unsupported, match="children"):
        column.raw_values  # noqa: B018  it raises
    child = column.child("k")
    assert child.field.name == "k"
    assert host(child, child.offsets).tolist() == [0, 2, 2, 3]
    assert host(child, child.child(0).raw_values).tolist() == [1, 2, 3]
    assert child.to_arrow().to_pylist() == [[1, 2], None, [3]]
    for wrong in ("x", 1, -1):
        with pytest.raises(UsageError, match="no such child"):
            column.child(wrong)


@pytest.mark.parametrize("type_", VALUELESS, ids=str)
def test_what_has_no_raw_values_says_so(type_: pa.DataType) -> None:
    """Types without one array of raw values raise Unsupported, naming the type."""
    column = Batch.from_arrow({"c": array_of(type_, 3, np.random.default_rng(0))})["c"]
    with pytest.raises(Unsupported, match=str(type_).split("<")[0]):
        column.raw_values  # noqa: B018  it raises


def test_dictionary_encoded_columns(device: Device) -> None:
    """A dictionary-encoded column gives indices as `raw_values`, and the dictionary as a column."""
    column = Batch.from_arrow({"c": pa.array(["x", "y", "x"]).dictionary_encode()}).to_device(device)["c"]
    assert host(column, column.raw_values).tolist() == [0, 1, 0]
    assert column.dictionary is not None
    assert column.dictionary.to_arrow().to_pylist() == ["x", "y"]
    assert column.dictionary.dictionary is None


def test_null_counts_are_counted_once(device: Device) -> None:
    """A slice counts its nulls when somebody asks, with one read, and remembers."""
    column = Batch.from_arrow({"c": pa.array([1, None, 3, None, 5] * 20)}).to_device(device).slice(3, 50)["c"]
    assert batch_parts(column.batch).nodes[0, 1] == -1
    assert column.null_count == 20
    assert batch_parts(column.batch).nodes[0, 1] == 20
    batch_parts(column.batch).nodes.flags.writeable = False
    assert column.null_count == 20


def test_null_counts_that_a_message_leaves_open_are_counted_once() -> None:
    """A null count of -1 in metadata, which cannot be written, is counted at the first access only."""
    sink = io.BytesIO()
    data = pa.record_batch({"a": [1, None, 3, None], "b": ["x", None, "y", "z"]})
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_batch(data)
    (batch,) = open_stream(stream_without_nulls(sink.getvalue(), -1))
    for name, nulls in (("a", 2), ("b", 1)):
        entered = [0, 0, 0]
        for access in range(3):
            column = batch[name]

            def note(_: object, event: str, __: object, access: int = access) -> None:
                entered[access] += event == "call"  # noqa: B023  of this column

            sys.setprofile(note)
            try:
                found = column.null_count
            finally:
                sys.setprofile(None)
            assert found == nulls
        assert entered[0] > entered[1] == entered[2], entered


def test_empty_columns(device: Device) -> None:
    """Columns without rows have empty arrays."""
    batch = Batch.from_arrow(pa.schema({"n": pa.int32(), "s": pa.string(), "b": pa.bool_()}).empty_table())
    batch = batch.to_device(device)
    for name in "nsb":
        assert len(batch[name].raw_values) == 0
    assert batch["n"].validity is None
    assert len(batch["s"].offsets) == 0


def test_numpy_views() -> None:
    """`to_numpy` is zero-copy or says why not, and copies when told."""
    days = np.array(["2013-01-01"] * 3, "M8[s]")
    batch = Batch.from_arrow({"n": np.arange(3.0), "t": days, "x": pa.array([1, None, 3])})
    assert batch["n"].to_numpy().tolist() == [0.0, 1.0, 2.0]
    assert batch["t"].to_numpy().dtype == np.dtype("M8[s]")
    with pytest.raises(UsageError, match="without a copy"):
        batch["x"].to_numpy()
    assert np.isnan(batch["x"].to_numpy(zero_copy_only=False)[1])
    with pytest.raises(NotOnDevice):
        batch.to_device(fake_device())["n"].to_numpy()
    assert batch.to_device(fake_device())["n"].to_numpy(zero_copy_only=False).tolist() == [0.0, 1.0, 2.0]


def test_numpy_takes_columns_of_the_host() -> None:
    """`np.asarray` gives the values, if possible without a copy; a column of a device is refused, never wrapped."""
    batch = Batch.from_arrow(
        {"n": np.arange(3.0), "x": pa.array([1, None, 3]), "s": pa.array(["a", None, "c"])}
    )
    assert np.shares_memory(np.asarray(batch["n"]), batch["n"].raw_values)
    assert np.asarray(batch["n"], np.int8).tolist() == [0, 1, 2]
    assert np.nanmax(np.asarray(batch["x"])) == 3
    assert np.asarray(batch["s"]).tolist() == ["a", None, "c"]
    assert not np.shares_memory(np.array(batch["n"], copy=True), batch["n"].raw_values)
    with pytest.raises(ValueError, match="without a copy"):
        np.array(batch["x"], copy=False)
    with pytest.raises(NotOnDevice):
        np.asarray(batch.to_device(fake_device())["n"])


@pytest.mark.parametrize(
    ("key", "raised"), [("z", KeyError), ("b", KeyError), (3, IndexError), (-4, IndexError)]
)
def test_unknown_columns_are_what_python_calls_them(key: str | int, raised: type[Exception]) -> None:
    """A name that is not there, or twice, is a KeyError, a position an IndexError; what is there is named."""
    batch = Batch.from_arrow(pa.record_batch([[1], [2], [3]], ["a", "b", "b"]))
    for choose in (lambda: batch[key], lambda: batch.select([key])):
        with pytest.raises(raised, match="expected one of") as caught:
            choose()
        assert isinstance(caught.value, UnknownColumn)


def test_columns_by_name_and_position() -> None:
    """Columns are found by name and position, from the end too; what is not there, or twice, is refused."""
    batch = Batch.from_arrow(pa.record_batch([[1], [2], [3]], ["a", "b", "b"]))
    assert batch[-1].raw_values.tolist() == [3]
    assert batch["a"].name == "a"
    assert [column.name for column in batch.columns] == ["a", "b", "b"]
    for wrong in ("b", "z", 3, -4):
        with pytest.raises(UsageError):
            batch[wrong]
    with pytest.raises(TypeError, match="not iterable"):
        list(batch)  # type: ignore[call-overload]


def test_a_batch_says_what_it_is(device: Device) -> None:
    """Length, size, columns and repr of a batch and of a column."""
    batch = Batch.from_arrow({"a": np.arange(3)}).to_device(device)
    assert (len(batch), batch.num_rows, batch.num_columns, batch.nbytes) == (3, 3, 1, 24)
    assert repr(batch) == f"<Batch 3 rows × 1 columns, 24 bytes on {device.name}>"
    assert repr(batch["a"]) == f"<Column 'a' 3 × int64 on {device.name}>"
    assert batch.to_pandas()["a"].tolist() == [0, 1, 2]
    assert batch.equals(Batch.from_arrow({"a": np.arange(3)}))
    assert not batch.equals({"a": np.arange(1, 4)})
    assert batch.to_device(device) is batch
    assert batch.to_device("cpu").device is cpu()
    with pytest.raises(UsageError):
        batch.to_device("cuda:99")
    for wrong in ((-1, None), (0, -1)):
        with pytest.raises(UsageError):
            batch.slice(*wrong)


def test_what_chooses_a_column() -> None:
    """Any integer is a position; what is neither name nor position is refused, and one name is no list of names."""
    batch = Batch.from_arrow({"a": [1], "b": [2]})
    assert batch[np.int64(1)].to_arrow().to_pylist() == [2]
    wrong: list[Any] = [None, slice(0, 1), ("a",), 1.0, b"a"]
    for key in wrong:
        with pytest.raises(UsageError, match="neither the name nor the position"):
            batch[key]
    with pytest.raises(UsageError, match="chosen by a list"):
        batch.select("ab")
