"""Batches in Spark's types, without Spark."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.errors import InvalidData, LimitExceeded, Unsupported
from bowstring.spark.batches import Normaliser, column_form
from tests.arrays import array_of
from tests.conformance.arrow_types import chains
from tests.conformance.intervals import DAY_TIME, MONTHS
from tests.spark.values import normalise, plain
from tests.strategies import record_batches


def column(type_: pa.DataType, values: list[Any]) -> pa.RecordBatch:
    """Return a batch of one column."""
    return pa.record_batch({"a": pa.array(values, type_)})


def made(type_: pa.DataType, values: list[Any], **options: Any) -> pa.Array:
    """Return a column as Spark takes it."""
    return normalise(column(type_, values), **options).column("a")


def taken(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    """Keep the types that Spark takes."""
    return types.filter(lambda type_: fits(pa.field("a", type_)))


def fits(field: pa.Field) -> bool:
    """Whether Spark takes a field."""
    try:
        column_form(field)
    except Unsupported:
        return False
    return True


@given(taken(chains()), st.integers(0, 2**32 - 1), st.integers(0, 12))
def test_values_stay(type_: pa.DataType, seed: int, rows: int) -> None:
    """Any type that Spark takes, nested in any way and sliced, holds the same values in the type announced."""
    array = array_of(type_, rows, np.random.default_rng(seed))
    batch = pa.RecordBatch.from_arrays([array], schema=pa.schema([pa.field("a", type_)]))
    normaliser = Normaliser(batch.schema, truncate=True)
    found = normaliser(batch)
    found.validate(full=True)
    assert found.schema.equals(normaliser.schema, check_metadata=True)
    assert plain(found.column("a")) == plain(array)


NANOSECONDS = pa.timestamp("ns")


@pytest.mark.parametrize(
    "type_",
    [
        pa.list_(NANOSECONDS),
        pa.large_list(NANOSECONDS),
        pa.list_(NANOSECONDS, 1),
        pa.list_view(NANOSECONDS),
        pa.large_list_view(NANOSECONDS),
        pa.map_(pa.string(), NANOSECONDS),
    ],
    ids=str,
)
def test_what_a_slice_does_not_hold_does_not_matter(type_: pa.DataType) -> None:
    """A value that Spark cannot hold is refused where it is in the rows, and only there."""
    rows: list[Any] = [[1], [2000], None, [3000]]
    if pa.types.is_map(type_):
        rows = [row and [("a", *row)] for row in rows]
    batch = column(type_, rows)
    with pytest.raises(Unsupported, match="microseconds"):
        normalise(batch)
    assert plain(normalise(batch.slice(1)).column("a")) == plain(batch.slice(1).column("a"))


@given(record_batches())
def test_any_batch_is_taken_or_refused_by_name(batch: pa.RecordBatch) -> None:
    """A batch of any types either comes out whole or is refused with the name of a column."""
    refused = [field.name for field in batch.schema if not fits(field)]
    if refused:
        with pytest.raises(Unsupported) as caught:
            normalise(batch, truncate=True)
        assert str(caught.value.where).startswith(refused[0])
        return
    found = normalise(batch, truncate=True)
    assert found.num_rows == batch.num_rows
    assert found.schema.names == batch.schema.names
    assert normalise(found).equals(found)


MILLION = 1_000_000


@pytest.mark.parametrize(
    ("type_", "values", "target"),
    [
        (pa.uint8(), [0, 255, None], pa.int16()),
        (pa.uint16(), [65_535], pa.int32()),
        (pa.uint32(), [2**32 - 1], pa.int64()),
        (pa.uint64(), [2**64 - 1, None], pa.decimal128(20, 0)),
        (pa.float16(), [np.float16(0.1), np.float16("inf"), np.float16(-0.0)], pa.float32()),
        (pa.decimal32(5, 2), [decimal.Decimal("123.45")], pa.decimal128(5, 2)),
        (pa.decimal256(60, 3), [decimal.Decimal("-1.234")], pa.decimal128(38, 3)),
        (pa.decimal128(3, -2), [decimal.Decimal(12300)], pa.decimal128(5, 0)),
        (pa.decimal128(2, 5), [None], pa.decimal128(5, 5)),
        (pa.timestamp("s"), [MILLION], pa.timestamp("us")),
        (pa.timestamp("ms", "Europe/Zurich"), [-1, 0], pa.timestamp("us", "UTC")),
        (pa.timestamp("ns", "+02:00"), [1_000, None], pa.timestamp("us", "UTC")),
        (pa.duration("s"), [-7], pa.duration("us")),
        (pa.time32("s"), [86_399], pa.time64("ns")),
        (pa.time64("us"), [1], pa.time64("ns")),
        (pa.date64(), [86_400_000], pa.date32()),
        (pa.binary(3), [b"abc", None], pa.binary()),
        (pa.string_view(), ["a", "longer than twelve"], pa.string()),
        (pa.large_binary(), [b""], pa.binary()),
        (pa.null(), [None], pa.null()),
        (pa.struct([]), [{}, None], pa.struct([])),
    ],
    ids=str,
)  # fmt: skip
def test_types_of_the_table(type_: pa.DataType, values: list[Any], target: pa.DataType) -> None:
    """Each type becomes the one that the table says, with the same values to their ends."""
    found = made(type_, values)
    assert found.type == target
    assert plain(found) == plain(pa.array(values, type_))


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        *(
            (type_, value)
            for type_ in (pa.timestamp("ns"), pa.duration("ns"))
            for value in (1_001, -1, -(2**63))
        ),
        (pa.time64("ns"), 1),
    ],
    ids=str,
)
def test_nanoseconds_are_not_lost_unasked(type_: pa.DataType, value: int) -> None:
    """Nanoseconds that Spark has no room for are an error, and cut downwards where that is asked for."""
    for nested in (type_, pa.list_(type_), pa.dictionary(pa.int8(), type_)):
        array = pa.array([value], pa.int64()).cast(type_)
        if nested != type_:
            array = (
                array.dictionary_encode()
                if pa.types.is_dictionary(nested)
                else pa.ListArray.from_arrays([0, 1], array)
            )
        batch = pa.record_batch({"a": array})
        with pytest.raises(Unsupported, match=r"truncate=True"):
            normalise(batch)
        assert plain(normalise(batch, truncate=True).column("a")) == plain(array)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.timestamp("s"), 2**62),
        (pa.duration("ms"), -(2**62)),
        (pa.decimal256(60, 0), 10**38),
        (pa.decimal256(76, 38), 1),
    ],
    ids=str,
)
def test_values_that_spark_cannot_hold_are_refused(type_: pa.DataType, value: int) -> None:
    """A value outside of Spark's type is an error that names the column, never another value."""
    numbers = [decimal.Decimal(value)] if pa.types.is_decimal(type_) else [value]
    with pytest.raises(Unsupported, match="at a"):
        made(type_, numbers)


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
@pytest.mark.parametrize("days", [-1e-4, 1, 1e3, 1e8], ids=str)
def test_times_are_of_one_day(unit: str, days: float) -> None:
    """A time before midnight or after the day is no time to Spark, up to what its type can hold."""
    numbers, type_ = (pa.int32(), pa.time32(unit)) if unit == "s" else (pa.int64(), pa.time64(unit))
    per_day = 86_400 * {"s": 1, "us": 10**6, "ns": 10**9}[unit]
    value = min(int(days * per_day), 2 ** (numbers.bit_width - 1) - 1)
    batch = pa.record_batch({"a": pa.array([0, value, None], numbers).cast(type_)})
    with pytest.raises(InvalidData, match="not of one day"):
        normalise(batch)


@pytest.mark.parametrize(
    "type_",
    [
        pa.month_day_nano_interval(),
        MONTHS,
        DAY_TIME,
        pa.sparse_union([pa.field("x", pa.int8())]),
        pa.dense_union([pa.field("x", pa.int8())]),
        pa.decimal256(76, 40),
        pa.decimal128(38, -3),
        pa.map_(pa.map_(pa.int8(), pa.int8()), pa.int8()),
        pa.map_(pa.struct([("m", pa.map_(pa.int8(), pa.int8()))]), pa.int8()),
    ],
    ids=str,
)
def test_types_that_spark_has_not_are_refused_by_name(type_: pa.DataType) -> None:
    """What has no place in Spark is refused with its place in the schema, at any depth."""
    for outer, where in (
        (type_, "a"),
        (pa.list_(type_), "a.element"),
        (pa.struct([("b", pa.map_(pa.string(), type_))]), "a.b.value"),
    ):
        with pytest.raises(Unsupported) as caught:
            Normaliser(pa.schema([("a", outer)]))
        assert str(caught.value.where).startswith(where)


@pytest.mark.parametrize(
    ("type_", "storage", "target"),
    [
        (pa.uuid(), [bytes(16)], pa.binary()),
        (pa.json_(), ["{}"], pa.string()),
        (pa.bool8(), [2], pa.bool_()),
        (pa.opaque(pa.int8(), "x", "y"), [7], pa.int8()),
        (pa.fixed_shape_tensor(pa.int8(), [2]), [[1, 2]], pa.list_(pa.field("element", pa.int8()))),
    ],
    ids=str,
)
def test_extension_types(type_: pa.DataType, storage: list[Any], target: pa.DataType) -> None:
    """An extension type counts as what it is stored as, whether pyarrow knows its name or the metadata says it."""
    array = pa.array(storage, type_.storage_type)
    known = pa.record_batch({"a": pa.ExtensionArray.from_storage(type_, array)})
    name = {"ARROW:extension:name": type_.extension_name, "ARROW:extension:metadata": ""}
    named = pa.RecordBatch.from_arrays([array], schema=pa.schema([pa.field("a", array.type, metadata=name)]))
    for batch in (known, named):
        found = normalise(batch)
        assert found.schema == pa.schema([("a", target)])
        assert found.column("a").to_pylist() == [bool(storage[0])] if target == pa.bool_() else storage


def test_nullability_is_kept() -> None:
    """Fields that allow no null allow none in Spark, at any depth, and their names are those that Spark gives."""
    type_ = pa.struct(
        [pa.field("l", pa.large_list(pa.field("x", pa.uint8(), nullable=False)), nullable=False)]
    )
    found = Normaliser(pa.schema([pa.field("a", type_, nullable=False)])).schema.field("a")
    assert not found.nullable
    assert not found.type.field("l").nullable
    assert found.type.field("l").type.value_field.equals(pa.field("element", pa.int16(), nullable=False))


@pytest.mark.parametrize("level", ["column", "struct", "list", "map"])
def test_a_null_where_none_may_be(level: str) -> None:
    """A null that the schema forbids is an error: Spark would read whatever lies there."""
    leaf = pa.array([1, None], pa.int8())
    if level == "column":
        array, nullable = leaf, False
    elif level == "struct":
        array, nullable = (
            pa.StructArray.from_arrays([leaf], fields=[pa.field("x", pa.int8(), nullable=False)]),
            True,
        )
    elif level == "list":
        type_ = pa.list_(pa.field("item", pa.int8(), nullable=False))
        array, nullable = pa.ListArray.from_arrays([0, 2], leaf).cast(pa.list_(pa.int8())), True
        array = pa.Array.from_buffers(type_, 1, array.buffers()[:2], children=[leaf])
    else:
        keys = pa.array(["a", "b"])
        type_ = pa.map_(pa.string(), pa.field("value", pa.int8(), nullable=False))
        array, nullable = pa.MapArray.from_arrays([0, 2], keys, leaf, type=type_), True
    batch = pa.RecordBatch.from_arrays([array], schema=pa.schema([pa.field("a", array.type, nullable)]))
    with pytest.raises(InvalidData, match="null"):
        normalise(batch)


def test_rows_that_spark_cannot_take_at_once_come_in_parts() -> None:
    """What is too long for 32-bit offsets comes as several batches; one row that is too long is refused."""
    type_ = pa.list_(pa.null(), 1 << 20)  # nulls take no memory
    rows = pa.Array.from_buffers(type_, 3_000, [None], children=[pa.nulls(3_000 << 20)])
    normaliser = Normaliser(pa.schema([("a", type_)]))
    batch = pa.record_batch({"a": rows})
    assert [part.num_rows for part in normaliser.batches(batch)] == [1_500, 1_500]
    lists = pa.record_batch({"a": pa.ListArray.from_arrays(pa.array(range(3_001), pa.int32()), rows)})
    assert [part.num_rows for part in Normaliser(lists.schema).batches(lists)] == [1_500, 1_500]
    with pytest.raises(LimitExceeded):
        normaliser(batch)
    one = pa.list_(pa.list_(pa.null(), 1 << 16), 1 << 16)
    inner = pa.Array.from_buffers(one.value_type, 1 << 16, [None], children=[pa.nulls(1 << 32)])
    row = pa.Array.from_buffers(one, 1, [None], children=[inner])
    with pytest.raises(LimitExceeded):
        list(Normaliser(pa.schema([("a", one)])).batches(pa.record_batch({"a": row})))
