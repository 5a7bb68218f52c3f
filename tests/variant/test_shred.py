"""A shredded column has the values of the column that it was made of, in typed columns wherever these hold them."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.errors import BowstringError, InvalidBody, LimitExceeded, Truncated, Unsupported, UsageError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.testing import fake_device
from bowstring.variant import Value, from_python
from bowstring.variant.shredded.schema import schema_of_storage, union
from tests.variant.conftest import Move
from tests.variant.shredded_columns import DECIMALS, LEAVES, TREES, TYPES, shredded_rows
from tests.variant.typed_values import PRIMITIVE_VALUES

JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=3),
    ),
    lambda inside: st.one_of(
        st.lists(inside, max_size=4), st.dictionaries(st.sampled_from("abcd"), inside, max_size=4)
    ),
    max_leaves=12,
)


def _same(one: Column, other: Column) -> bool:
    found = variant.equals(one.as_batch().to_device("cpu")[0], other.as_batch().to_device("cpu")[0])
    return all(each is not False for each in found.to_arrow().to_pylist())


def _check_rules(group: dict[str, Any] | None, *, field: bool) -> None:
    """Check what the specification says of value and typed_value of one slot, and of all inside."""
    if group is None:
        return
    value, typed = group.get("value"), group.get("typed_value")
    assert field or value is not None or typed is not None
    if isinstance(typed, dict):
        assert value is None or value[0] & 3 == 2
        for child in typed.values():
            _check_rules(child, field=True)
    elif isinstance(typed, list):
        assert value is None
        for child in typed:
            _check_rules(child, field=False)
    else:
        assert value is None or typed is None


def _nested(scalar: Any) -> Any:
    """Return a row as dicts, lists, None and scalars: Python has no dates before year 1."""
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(scalar.type):
        return {field.name: _nested(scalar[field.name]) for field in scalar.type}
    if pa.types.is_list(scalar.type):
        return list(map(_nested, scalar))
    return scalar.as_py() if pa.types.is_binary(scalar.type) else scalar


@given(st.lists(st.none() | TREES, max_size=6), TYPES | st.just("infer"))
def test_unshredding_gives_the_values_that_were_shredded(trees: list[Value | None], schema: Any) -> None:
    column = from_python(trees, name="v")
    for each in (column, column.as_batch().to_device(fake_device())[0]):
        shredded = variant.shred(each, schema)
        assert shredded.device is each.device
        assert _same(variant.unshred(shredded), column)
        for row in shredded.as_batch().to_device("cpu")[0].to_arrow().storage:
            _check_rules(_nested(row), field=False)


@given(st.lists(JSON, max_size=30))
def test_what_is_inferred_from_documents_holds_them(documents: list[Any]) -> None:
    column = variant.from_json([json.dumps(each) for each in documents])
    assert _same(variant.unshred(variant.shred(column)), column)


@given(st.lists(st.none() | TREES, max_size=5), TYPES, TYPES, st.randoms())
def test_a_shredded_column_is_shredded_anew(
    trees: list[Value | None], before: pa.DataType, after: pa.DataType, drawn: random.Random
) -> None:
    column = shredded_rows(trees, before, drawn)
    assert _same(variant.unshred(variant.shred(column, after)), from_python(trees, name="v"))


@pytest.mark.parametrize("type_", [*LEAVES, *DECIMALS], ids=str)
def test_every_value_that_a_type_holds_is_typed(type_: pa.DataType, on_device: Move) -> None:
    leaves = [leaf for leaf in PRIMITIVE_VALUES if len(str(leaf.value)) < 1000]
    wanted = pa.uuid() if type_ == pa.binary(16) else type_
    column = on_device(from_python([Value("object", {"a": leaf}) for leaf in leaves], name="v"))
    shredded = variant.shred(column, pa.struct({"a": type_}))
    assert _same(variant.unshred(shredded), column)
    got = variant.get(column, "a", wanted, cast="exact", with_status=True).to_device("cpu")
    fits = got["status"].to_arrow().to_pylist()
    inside = shredded.as_batch().to_device("cpu")[0].child("typed_value").child("a")
    assert inside.child("typed_value").to_arrow().is_valid().to_pylist() == [each == 0 for each in fits]
    assert inside.child("value").to_arrow().is_null().to_pylist() == [each == 0 for each in fits]


def test_fields_that_are_not_named_stay_in_value() -> None:
    column = variant.from_json(['{"b": 1, "a": 2, "c": {"a": 3}}', '{"a": 4}', "{}", '"a"'])
    rows = variant.shred(column, pa.struct({"a": pa.int64()})).to_arrow().storage.to_pylist()
    assert [row["value"] is None for row in rows] == [False, True, True, False]
    left = [{"metadata": rows[0]["metadata"], "value": rows[0]["value"]}]
    array = pa.array(left, variant.type().storage_type)
    assert variant.to_python(array, plain=True) == [{"b": 1, "c": {"a": 3}}]
    assert [row["typed_value"] and row["typed_value"]["a"]["typed_value"] for row in rows] == [
        2,
        4,
        None,
        None,
    ]


def _inferred(*documents: Any, **options: Any) -> pa.DataType:
    return schema_of_storage(variant.shred(variant.from_python(list(documents)), **options).type)


@pytest.mark.parametrize(
    ("documents", "schema"),
    [
        ([1, 300, None, -5], pa.int64()),
        ([1, decimal.Decimal("2.25")], pa.decimal128(18, 2)),
        ([2**40, decimal.Decimal("2.25")], pa.decimal128(38, 2)),
        ([1.5, 2.5], pa.float64()),
        (["a", "b", 1], pa.string()),
        ([1, "a"], variant.type()),
        ([True], pa.bool_()),
        ([b"x"], pa.binary()),
        ([dt.date(2020, 1, 1)], pa.date32()),
        ([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
        ([[1, 2], [], None], pa.list_(pa.int64())),
        ([[1, "a"], []], variant.type()),
        ([{"b": 1, "a": {"x": "y"}}], pa.struct({"a": pa.struct({"x": pa.string()}), "b": pa.int64()})),
        ([[{"a": 1}, {"a": 2}]], pa.list_(pa.struct({"a": pa.int64()}))),
        ([{"a": 1, "m": "x"}, {"m": 2}], pa.struct({"a": pa.int64(), "m": variant.type()})),
        ([{}], variant.type()),
        ([None], variant.type()),
        ([], variant.type()),
    ],
    ids=str,
)
def test_the_kind_of_most_values_is_inferred(documents: list[Any], schema: pa.DataType) -> None:
    assert _inferred(*documents) == schema


def test_fields_that_few_rows_have_are_no_columns() -> None:
    documents: list[Any] = [{"a": 1} for _ in range(89)] + [{"a": 1, "b": 2} for _ in range(11)]
    assert _inferred(*documents) == pa.struct({"a": pa.int64(), "b": pa.int64()})
    assert _inferred(*documents, *documents[:20]) == pa.struct({"a": pa.int64()})


def test_the_most_frequent_columns_are_kept() -> None:
    documents = [{"often": 1, "c": "x", "n": {"deep": 1}}, {"often": 2, "c": "y"}, {"often": 3}]
    assert _inferred(*documents, max_columns=2) == pa.struct({"c": pa.string(), "often": pa.int64()})
    assert _inferred(*documents, max_columns=1) == pa.struct({"often": pa.int64()})


def test_documents_are_shredded_to_a_depth_that_batches_have() -> None:
    document: Any = 1
    for _ in range(60):
        document = {"a": document}
    column = variant.from_python([document])
    assert _same(variant.unshred(variant.shred(column)), column)
    schema: pa.DataType = pa.int64()
    for _ in range(40):
        schema = pa.struct({"a": schema})
    with pytest.raises(LimitExceeded):
        variant.shred(column, schema)


@pytest.mark.parametrize(
    "schema",
    [
        pa.uint8(),
        pa.float16(),
        pa.null(),
        pa.time64("ns"),
        pa.timestamp("ms"),
        pa.map_(pa.string(), pa.int8()),
    ],
    ids=str,
)
def test_types_that_the_specification_does_not_have_are_refused(schema: pa.DataType) -> None:
    with pytest.raises(Unsupported, match="not shredded as this type"):
        variant.shred(variant.from_python([1]), pa.struct({"a": schema}))


@pytest.mark.parametrize(
    "schema", ["int64", None, pa.struct([]), pa.struct([("a", pa.int8()), ("a", pa.int8())])]
)
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(UsageError):
        variant.shred(variant.from_python([1]), schema)


def _plain(value: bytes, metadata: bytes = b"\x01\x02\x00\x01\x02ab") -> pa.Array:
    return pa.array([{"metadata": metadata, "value": value}], variant.type().storage_type)


@pytest.mark.parametrize(
    "value",
    [
        bytes([2, 2, 0, 0, 0, 2, 4, 12, 7, 12, 8]),  # a name twice
        bytes([2, 1, 7, 0, 2, 12, 7]),  # a name that the metadata do not have
        bytes([2, 1, 0, 0, 2, 12]),  # cut
        bytes([2, 2, 0, 1, 0, 0, 9]) + bytes([33]) + b"abcdefgh",  # both fields are the same long bytes
        bytes([3, 1, 0, 9, 12]),  # an array that is cut
    ],
    ids=["twice", "unnamed", "cut", "shared", "array"],
)
def test_values_that_cannot_be_taken_apart_are_errors(value: bytes) -> None:
    with pytest.raises((InvalidBody, Truncated)):
        variant.shred(_plain(value), pa.struct({"a": pa.int64()}), plain=True)


def test_fields_that_share_few_bytes_become_two() -> None:
    shared = variant.shred(_plain(bytes([2, 2, 0, 1, 0, 0, 1, 4])), pa.struct({"a": pa.bool_()}), plain=True)
    assert variant.to_python(shared) == [{"a": True, "b": True}]


def test_a_type_that_is_not_known_is_refused_inside_of_objects() -> None:
    with pytest.raises(Unsupported):
        variant.shred(_plain(bytes([2, 1, 0, 0, 1, 252])), pa.struct({"b": pa.int64()}), plain=True)


@given(st.binary(max_size=24), st.binary(max_size=12), TYPES | st.just("infer"))
def test_random_bytes_are_shredded_without_loss_or_refused(
    value: bytes, metadata: bytes, schema: Any
) -> None:
    for blob in (metadata, b"\x01\x02\x00\x01\x02ab"):
        array = _plain(value, blob)
        try:
            shredded = variant.shred(array, schema, plain=True)
        except BowstringError:
            continue
        again = variant.unshred(shredded, plain=True)
        statuses = variant.validate(array, plain=True).to_arrow().to_pylist()
        if statuses == [0]:
            assert variant.equals(again, array, plain=True).to_arrow().to_pylist() == [True]


@given(TYPES, TYPES)
def test_the_union_of_schemas_holds_what_both_hold(one: pa.DataType, other: pa.DataType) -> None:
    found = union(one, other)
    assert union(one, one) == one
    assert union(one, variant.type()) == one
    assert found is None or union(found, one) == found == union(found, other)
    mirrored = union(other, one)
    assert (found is None) == (mirrored is None)


def test_columns_larger_than_the_limits_are_refused() -> None:
    column = variant.from_python([{"a": "x" * 1000}] * 3)
    with pytest.raises(LimitExceeded):
        variant.shred(column, limits=DEFAULT_LIMITS.replace(extracted_bytes=2000))
