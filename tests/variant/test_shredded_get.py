"""Values by path in shredded columns are those of the unshredded twin, and views where nothing is in ``value``."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.testing import fake_device
from bowstring.variant import Value
from tests.variant.conftest import Move
from tests.variant.shredded_columns import (
    DECIMALS,
    EVENT_TYPE,
    LEAVES,
    TREES,
    TYPES,
    event,
    group,
    metadata,
    shredded_rows,
    shredded_type,
    typed,
    unmarked,
    untyped,
)
from tests.variant.typed_values import PRIMITIVE_VALUES

WANTED = (
    *(type_ for type_ in LEAVES if type_ != pa.binary(16)),
    *DECIMALS,
    pa.uuid(),
    variant.type(),
    pa.list_(pa.int64()),
    pa.struct({"a": pa.string(), "b": pa.list_(pa.int32())}),
    pa.map_(pa.string(), variant.type()),
)
PATHS: tuple[list[str | int], ...] = (
    [],
    ["a"],
    ["b"],
    [0],
    [1],
    ["a", "b"],
    ["a", 1],
    ["b", 0, "a"],
    ["é", ""],
    [2, "a"],
)


def _twins(column: Column, path: list[str | int], type_: pa.DataType, cast: Any = "exact") -> None:
    """Check that a shredded column gives what its twin gives, with its statuses."""
    twin = variant.unshred(column)
    theirs = variant.get(twin, path, type_, cast=cast, with_status=True)
    ours = variant.get(column, path, type_, cast=cast, with_status=True).to_device("cpu")
    assert ours["status"].to_arrow() == theirs.to_device("cpu")["status"].to_arrow()
    assert _shown(ours[0]) == _shown(theirs.to_device("cpu")[0])


def _shown(column: Column) -> str:
    if column.type.id == pa.lib.Type_STRUCT and column.type.names[:1] == ["metadata"]:
        return repr(variant.to_json(column, plain=True).to_arrow().to_pylist())
    if pa.types.is_map(column.type):
        return repr(
            [None if row is None else [key for key, _ in row] for row in column.to_arrow().to_pylist()]
        )
    array = column.to_arrow()
    temporal = pa.types.is_temporal(column.type)
    return str(array.cast(pa.int64() if array.type.bit_width == 64 else pa.int32()) if temporal else array)


@given(
    st.lists(st.none() | TREES, max_size=6),
    TYPES,
    st.sampled_from(PATHS),
    st.sampled_from(WANTED),
    st.randoms(),
)
def test_a_value_by_path_is_that_of_the_twin(
    trees: list[Value | None],
    type_: pa.DataType,
    path: list[str | int],
    wanted: pa.DataType,
    drawn: random.Random,
) -> None:
    column = shredded_rows(trees, type_, drawn)
    _twins(column, path, wanted)
    _twins(column.as_batch().to_device(fake_device())[0], path, wanted)


@pytest.mark.parametrize("type_", [*LEAVES, *DECIMALS], ids=str)
def test_every_type_is_got_as_every_type_as_from_the_twin(type_: pa.DataType) -> None:
    trees = [Value("object", {"a": leaf}) for leaf in PRIMITIVE_VALUES if len(str(leaf.value)) < 1000]
    column = shredded_rows([*trees, None, Value("object", {})], pa.struct({"a": type_}), random.Random(5))
    for wanted in WANTED:
        _twins(column, ["a"], wanted)


@pytest.mark.parametrize(
    "wanted", [pa.int32(), pa.float64(), pa.string(), pa.bool_(), pa.decimal128(20, 3)], ids=str
)
def test_the_casts_of_spark_are_those_of_the_twin(wanted: pa.DataType) -> None:
    for type_ in (pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.decimal128(18, 0)):
        trees = [Value("object", {"a": leaf}) for leaf in PRIMITIVE_VALUES if len(str(leaf.value)) < 1000]
        column = shredded_rows(trees, pa.struct({"a": type_}), random.Random(6))
        _twins(column, ["a"], wanted, "spark")


EVENTS = [
    event({"email": "x", "click": {"n": [5]}}, {"event_type": typed("noop")}),
    event("text"),
    None,
    event(None, {"event_type": untyped(7)}),
    event(),
    event({"event_type": "login"}),
]


@pytest.mark.parametrize("path", ["$", "event_type", "email", "click.n[0]", "event_ts", "nowhere"])
def test_rows_that_leave_the_typed_columns_are_found_in_value(path: str, on_device: Move) -> None:
    column = on_device(unmarked(pa.array(EVENTS, EVENT_TYPE)))
    twin = variant.unshred(column, plain=True)
    for wanted in (pa.string(), pa.int64(), variant.type()):
        ours = variant.get(column, path, wanted, plain=True, with_status=True).to_device("cpu")
        theirs = variant.get(twin, path, wanted, with_status=True).to_device("cpu")
        assert ours["status"].to_arrow() == theirs["status"].to_arrow()
        assert _shown(ours[0]) == _shown(theirs[0])
    kinds = [variant.type_of(each, path, plain=True) for each in (column, twin)]
    assert len({str(each.as_batch().to_device("cpu")[0].to_arrow().to_pylist()) for each in kinds}) == 1


def test_several_paths_are_got_at_once() -> None:
    column = pa.array(EVENTS, EVENT_TYPE)
    wanted = {"t": ("event_type", pa.string()), "n": ("click.n[0]", pa.int8()), "v": ("$", variant.type())}
    batch = variant.get_many(column, wanted, plain=True, with_status=True)
    assert batch["t"].to_arrow().to_pylist() == ["noop", None, None, None, None, "login"]
    assert batch["t.status"].to_arrow().to_pylist() == [0, 2, 1, 4, 2, 0]
    assert batch["n"].to_arrow().to_pylist() == [5, None, None, None, None, None]
    assert variant.to_python(batch["v"])[3] == {"event_type": 7}


def _numbers(rows: int, *, nulls: bool) -> pa.Array:
    missing = [None if nulls and row % 3 == 0 else row for row in range(rows)]
    type_ = shredded_type(pa.struct([pa.field("a", group(pa.int64()), nullable=False)]))
    made = [
        {"metadata": metadata(["a"]), "value": None, "typed_value": {"a": typed(each)}} for each in missing
    ]
    return pa.array(made, type_)


@pytest.mark.parametrize("nulls", [False, True])
def test_a_typed_column_without_values_beside_it_is_a_view(nulls: bool) -> None:
    column = unmarked(_numbers(100, nulls=nulls))
    leaf = column.child("typed_value").child("a").child("typed_value")
    got = variant.get(column, "a", pa.int64(), plain=True)
    assert got.raw_values.ctypes.data == leaf.raw_values.ctypes.data
    assert got.null_count == (34 if nulls else 0)


def test_a_view_has_the_nulls_of_what_holds_it() -> None:
    array = _numbers(4, nulls=False)
    holder = pa.StructArray.from_arrays(
        [array.field(0), array.field(1), array.field(2)],
        fields=list(array.type),
        mask=pa.array([False, True, False, False]),
    )
    batch = variant.get(holder, "a", pa.int64(), plain=True, with_status=True)
    assert batch["a"].to_arrow().to_pylist() == [0, None, 2, 3]
    assert batch["status"].to_arrow().to_pylist() == [0, 1, 0, 0]
