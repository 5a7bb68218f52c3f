"""The Arrow type of what is in a column: the same in any order of rows, and wide enough for each of them."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.errors import UsageError
from bowstring.testing import fake_device
from bowstring.variant.codec.primitives import Value
from tests.variant.encoding import column_of, encode, variant_array, variant_field
from tests.variant.typed_values import VALUES

D = decimal.Decimal
VARIANT = variant.type()


def schema_of(*things: Any) -> pa.DataType:
    return variant.schema_of(variant.from_python(things))


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        ([], pa.null()),
        ([None, Value("null", None)], pa.null()),
        ([True, None], pa.bool_()),
        ([1, 2], pa.int8()),
        ([1, 1000], pa.int16()),
        ([1 << 40, 1], pa.int64()),
        ([D("1.50")], pa.decimal128(3, 2)),
        ([D("0.001")], pa.decimal128(3, 3)),
        ([D("0")], pa.decimal128(1, 0)),
        ([D("1.50"), D("100.125")], pa.decimal128(6, 3)),
        ([D("1.5"), 1], pa.decimal128(4, 1)),
        ([D("1.5"), 1 << 40], pa.decimal128(20, 1)),
        ([D("1e-38"), 1], pa.float64()),
        ([1, 2.5], pa.float64()),
        ([D("1.5"), 2.5], pa.float64()),
        ([Value("float", 1.5)], pa.float32()),
        ([Value("float", 1.5), 2.5], pa.float64()),
        ([Value("float", 1.5), 1], pa.float64()),
        ([Value("timestamp", 1)], pa.timestamp("us", "UTC")),
        ([Value("timestamp", 1), Value("timestamp_ns", 1)], pa.timestamp("ns", "UTC")),
        ([Value("timestamp_ntz", 1), Value("timestamp_ntz_ns", 1)], pa.timestamp("ns")),
        ([Value("timestamp", 1), Value("timestamp_ntz", 1)], VARIANT),
        ([Value("date", 1), Value("timestamp", 1)], VARIANT),
        ([Value("time", 1)], pa.time64("us")),
        (["a", b"a"], VARIANT),
        (["a", 1], VARIANT),
        ([True, 1], VARIANT),
        ([{"a": 1}, [1]], VARIANT),
        ([[1], 1], VARIANT),
        ([{}], pa.struct([])),
        ([[]], pa.list_(pa.null())),
        ([[], [1], [None, 1000]], pa.list_(pa.int16())),
        ([[1, "a"]], pa.list_(VARIANT)),
        ([{"b": 1}, {"a": "x", "b": None}], pa.struct([("a", pa.string()), ("b", pa.int8())])),
        ([{"a": {"b": 1}}, {"a": {"b": "x"}}], pa.struct([("a", pa.struct([("b", VARIANT)]))])),
    ],
    ids=repr,
)
def test_types(things: list[Any], expected: pa.DataType) -> None:
    """Values meet in the narrowest type that holds them all."""
    assert schema_of(*things) == expected
    assert schema_of(*reversed(things)) == expected


@given(values=st.lists(VALUES, max_size=4), data=st.data())
def test_the_order_of_rows_is_nothing(values: list[Value], data: st.DataObject) -> None:
    """Rows in another order, and rows twice, have the same type."""
    shuffled = data.draw(st.permutations(values + values[:1]))
    assert schema_of(*values) == schema_of(*shuffled)


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_a_sample_is_looked_at(rows: int) -> None:
    """So many rows, at the same distance from each other, decide; the first is always among them."""
    column = variant.from_python([300, *[1] * 7])
    assert variant.schema_of(column, sample=rows) == pa.int16()
    assert variant.schema_of(column.batch.slice(1)[0], sample=rows) == pa.int8()
    with pytest.raises(UsageError, match="sample"):
        variant.schema_of(column, sample=0)


@pytest.mark.parametrize("device", ["cpu", "fake"])
@given(values=st.lists(st.none() | VALUES, max_size=5))
def test_kernels_find_what_decoding_finds(device: str, values: list[Value | None]) -> None:
    """A column whose rows are in an old order of fields, and so are decoded, has the type of one that is not."""
    expected = variant.schema_of(variant.from_python(values))
    old = {"\uffe5": Value("int8", 1), "\U0001f600": Value("int8", 2)}
    metadata, value = encode(Value("object", old))
    reversed_ids = value[:2] + value[3:1:-1] + value[4:]
    rows = [None if each is None else encode(each) for each in values]
    column = column_of(variant_array(rows), variant_field("v"))
    legacy = column_of(variant_array([(metadata, reversed_ids)]), variant_field("v"))
    if device == "fake":
        column, legacy = (each.as_batch().to_device(fake_device())[0] for each in (column, legacy))
    assert variant.schema_of(column) == expected
    assert variant.schema_of(legacy) == pa.struct({"\uffe5": pa.int8(), "\U0001f600": pa.int8()})


@given(value=VALUES)
def test_each_leaf_has_an_arrow_type(value: Value) -> None:
    """One value never needs Variant, unless it is in an array of different things."""
    found = schema_of(value)
    if value.type not in ("object", "array"):
        assert found != VARIANT
        assert (found == pa.null()) == (value.type == "null")


def test_keys_are_in_the_order_of_utf8() -> None:
    """Four-byte keys come after three-byte ones, where UTF-16 would have them before."""
    assert [field.name for field in schema_of({"😀": 1, "\uffe5": 2, "": 3})] == ["", "\uffe5", "😀"]
