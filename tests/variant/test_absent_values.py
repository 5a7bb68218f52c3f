"""A row without a value is a Variant null to every call, as one whose value is written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from bowstring import variant
from bowstring.columnar.batch import Batch, Column
from bowstring.variant import Status, Value
from tests.variant.conftest import Move
from tests.variant.encoding import encode
from tests.variant.get_columns import MARK, VALUE_FORMS

FORMS = {"binary": pa.binary(), "large_binary": pa.large_binary(), "binary_view": pa.binary_view()}
OBJECT = encode(Value("object", {"a": Value("int8", 1)}))
BROKEN = b"\x02"
NULL = b"\x00"
TYPES = [pa.int32(), pa.bool_(), pa.float64(), pa.string(), pa.binary(), pa.list_(pa.int8()), variant.type()]


def columns(
    form: str = "binary", *, hidden: bytes | None = None, rows: int = 3, first: bool = True
) -> tuple[Column, Column]:
    """Return a column with a row without a value, then an SQL NULL, and one that has the null written out.

    The others are objects. Bytes may be `hidden` under the null.
    """
    values: list[bytes | None] = [OBJECT[1]] * rows
    absent = 0 if first else rows - 2
    mask = pa.array([row == absent + 1 for row in range(rows)])

    def column(value: bytes | None) -> Column:
        values[absent] = value
        made = pa.array(values, FORMS[form])
        if value is None and hidden is not None:
            shown = pa.array([hidden if each is None else each for each in values], FORMS[form])
            made = pa.Array.from_buffers(FORMS[form], rows, [made.buffers()[0], *shown.buffers()[1:]])
        array = pa.StructArray.from_arrays(
            [pa.array([OBJECT[0]] * rows, pa.binary()), made], ["metadata", "value"], mask=mask
        )
        schema = pa.schema([pa.field("v", array.type, metadata=MARK)])
        return Batch.from_arrow(pa.RecordBatch.from_arrays([array], schema=schema))["v"]

    return column(None), column(NULL)


def shown(result: Any) -> Any:
    """Return a column or batch as Python has it."""
    if isinstance(result, Column):
        result = result.as_batch()
    return result.to_device("cpu").to_arrow().to_pylist() if isinstance(result, Batch) else result


def getting(path: str, type_: pa.DataType) -> Callable[[Column], Any]:
    """Return the call that gets a path as a type."""
    return lambda column: variant.get(column, path, type_, with_status=True)


CALLS: dict[str, Callable[[Column], Any]] = {
    **{f"get {path} {type_}": getting(path, type_) for path in ("$", "$.a", "$[0]") for type_ in TYPES},
    "get as Spark": lambda column: variant.get(column, "$", pa.string(), cast="spark", with_status=True),
    "get_many": lambda column: variant.get_many(
        column,
        {"whole": ("$", variant.type()), "a": ("$.a", pa.int32()), "none": ("$.b", pa.string())},
        with_status=True,
    ),
    "type_of": variant.type_of,
    "to_json": variant.to_json,
    "to_json as Spark": lambda column: variant.to_json(column, rules="spark"),
    "equals itself": lambda column: variant.equals(column, column),
}
ON_HOST: dict[str, Callable[[Column], Any]] = {
    "to_python": variant.to_python,
    "to_python typed": lambda column: variant.to_python(column, typed=True),
    "keys": variant.keys,
    "schema_of": variant.schema_of,
    "explode": variant.explode,
    "explode outer": lambda column: variant.explode(column, outer=True),
}


@pytest.mark.parametrize("form", VALUE_FORMS)
@pytest.mark.parametrize("call", CALLS)
def test_calls_with_kernels(call: str, form: str, on_device: Move) -> None:
    """A call gives the same for a row without a value as for a Variant null, in every form and on a device."""
    absent, written = (on_device(each) for each in columns(form))
    assert shown(CALLS[call](absent)) == shown(CALLS[call](written))


@pytest.mark.parametrize("form", VALUE_FORMS)
@pytest.mark.parametrize("call", ON_HOST)
def test_calls_on_the_host(call: str, form: str) -> None:
    """So do the calls that have no kernels."""
    absent, written = columns(form)
    assert shown(ON_HOST[call](absent)) == shown(ON_HOST[call](written))


def test_what_the_calls_say(on_device: Move) -> None:
    """Text is ``null``, the type is ``null``; neither is what an SQL NULL gives."""
    column = on_device(columns()[0])
    assert shown(variant.to_json(column)) == [{"v": "null"}, {"v": None}, {"v": '{"a":1}'}]
    assert [each["$"] for each in shown(variant.type_of(column, "$"))] == ["null", None, "object"]
    assert variant.validate(column).as_batch().to_device("cpu")[0].values.tolist() == [
        Status.VARIANT_NULL,
        Status.SQL_NULL,
        Status.OK,
    ]


@pytest.mark.parametrize("call", [*CALLS, *ON_HOST])
@pytest.mark.parametrize("hidden", [BROKEN, OBJECT[1]], ids=["broken", "object"])
def test_bytes_under_the_null_count_for_nothing(call: str, hidden: bytes) -> None:
    """Whatever lies where the value is null is not read."""
    absent, written = columns(hidden=hidden)
    action = {**CALLS, **ON_HOST}[call]
    assert shown(action(absent)) == shown(action(written))


def test_equality_with_others(on_device: Move) -> None:
    """A row without a value equals one, and a Variant null, and nothing else, on either side."""
    absent, written = (on_device(each) for each in columns())
    others = on_device(variant.from_python([{"a": 1}, None, {"a": 1}]))
    for one in (absent, written):
        for other in (absent, written):
            assert shown(variant.equals(one, other)) == [{"v": True}, {"v": None}, {"v": True}]
    assert [row["v"] for row in shown(variant.equals(absent, others))] == [False, None, True]
    assert [row["variant"] for row in shown(variant.equals(others, absent))] == [False, None, True]


def test_rows_far_behind_the_first(on_device: Move) -> None:
    """The row is found wherever it stands: in the last of several blocks of a call."""
    absent, written = (on_device(each) for each in columns(rows=20_003, first=False))
    assert shown(variant.to_json(absent)) == shown(variant.to_json(written))
    assert shown(variant.equals(absent, written)) == shown(variant.equals(written, written))
    wanted = {"a": ("$.a", pa.int64())}
    assert shown(variant.get_many(absent, wanted)) == shown(variant.get_many(written, wanted))


def test_null_rows_without_a_value() -> None:
    """Children that are null under null rows, as readers of Parquet give them, are no rows without a value."""
    values = pa.array([OBJECT[1], None], pa.binary())
    array = pa.StructArray.from_arrays(
        [pa.array([OBJECT[0]] * 2, pa.binary()), values],
        ["metadata", "value"],
        mask=pa.array([False, True]),
    )
    schema = pa.schema([pa.field("v", array.type, metadata=MARK)])
    column = Batch.from_arrow(pa.RecordBatch.from_arrays([array], schema=schema))["v"]
    assert column.child("value").to_arrow().is_valid().to_pylist() == [True, False]
    assert shown(variant.to_json(column)) == [{"v": '{"a":1}'}, {"v": None}]
    assert variant.to_python(column) == [{"a": 1}, None]
