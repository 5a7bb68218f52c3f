"""Shredded columns become Variants of metadata and value as the specification says."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring as bow
from bowstring import Batch, variant
from bowstring.columnar.batch import Column
from bowstring.errors import BowstringError, InvalidBody, LimitExceeded, Unsupported
from bowstring.limits import DEFAULT_LIMITS
from bowstring.variant import Value
from tests.variant.conftest import Move
from tests.variant.decoding import decode
from tests.variant.shredded_columns import (
    EVENT_TYPE,
    event,
    group,
    metadata,
    shredded_type,
    typed,
    unmarked,
    untyped,
    value,
)

_SHARED = Path(__file__).parents[3] / "shared" / "data" / "parquet-testing"
GOLDEN = Path(os.environ.get("PARQUET_TEST_DATA", _SHARED)) / "shredded_variant"


def _cases() -> list[dict[str, Any]]:
    if not GOLDEN.is_dir():
        return []
    cases = json.loads((GOLDEN / "cases.json").read_text())
    return [case for case in cases if (GOLDEN / case.get("parquet_file", "none")).is_file()]


def _trees(column: Column) -> list[Value | None]:
    return variant.to_python(column.as_batch().to_device("cpu")[0], typed=True, plain=True)


def _expected(name: str | None) -> Value | None:
    if name is None:
        return None
    data = (GOLDEN / name).read_bytes()
    width = (data[0] >> 6) + 1
    count = int.from_bytes(data[1 : 1 + width], "little")
    last = int.from_bytes(data[1 + width * (count + 1) : 1 + width * (count + 2)], "little")
    end = 1 + width + (count + 1) * width + last
    return decode(data[:end], data[end:])


@pytest.mark.parametrize("case", _cases(), ids=lambda case: case["parquet_file"])
def test_a_case_of_parquet_testing_is_read_or_refused_as_it_expects(
    case: dict[str, Any], on_device: Move
) -> None:
    with bow.parquet.read(GOLDEN / case["parquet_file"], columns=["var"]) as stream:
        column = on_device(Batch.from_arrow(stream.read_all())[0])
    if "error_message" in case:
        with pytest.raises(BowstringError, match="rule"):
            variant.unshred(column, plain=True)
        return
    files = case.get("variant_files") or [case["variant_file"]]
    expected = repr([_expected(name) for name in files])
    try:
        assert repr(_trees(variant.unshred(column, plain=True))) == expected
    except BowstringError:
        # Their README leaves it to readers whether these are errors.
        if "INVALID" not in case["parquet_file"]:
            raise


@pytest.mark.parametrize("case", _cases(), ids=lambda case: case["parquet_file"])
def test_a_file_of_parquet_testing_is_read_with_its_variants_marked(case: dict[str, Any]) -> None:
    """What ``bow.parquet.read`` gives is the same column as the one made from pyarrow's struct."""
    path = GOLDEN / case["parquet_file"]
    if "error_message" in case:
        with pytest.raises(BowstringError, match="rule"), bow.parquet.read(path) as stream:
            variant.unshred(stream.read_next_batch()["var"])
        return
    column = Batch.from_arrow(pq.read_table(path).select(["var"]))[0]
    with bow.parquet.read(path) as stream:
        found = variant.unshred(stream.read_next_batch()["var"], plain=True)
    assert repr(_trees(found)) == repr(_trees(variant.unshred(column, plain=True)))


def _read(type_: pa.DataType, row: Any, on_device: Move) -> Any:
    column = on_device(unmarked(pa.array([row], type_)))
    got = variant.unshred(column, plain=True)
    assert got.to_arrow().storage.type.names == ["metadata", "value"]
    return variant.to_python(got.as_batch().to_device("cpu")[0])


@pytest.mark.parametrize(
    ("held", "number", "expected"),
    [(None, 34, 34), (b"\x00", None, None), (b"\x0d\x6e\x2f\x61", None, "n/a"), (None, 100, 100)],
)
def test_the_table_of_measurements_is_read(
    held: bytes | None, number: int | None, expected: Any, on_device: Move
) -> None:
    row = {"metadata": metadata([]), "value": held, "typed_value": number}
    assert _read(shredded_type(pa.int64()), row, on_device) == [expected]


@pytest.mark.parametrize(
    "tags", [["comedy", "drama"], ["horror", None], ["comedy", "drama", "romance"], None, []]
)
def test_the_table_of_arrays_is_read(tags: list[str | None] | None, on_device: Move) -> None:
    items = [typed(tag) if tag is not None else untyped(None) for tag in tags or []]
    row = {
        "metadata": metadata([]),
        "value": b"\x00" if tags is None else None,
        "typed_value": None if tags is None else items,
    }
    type_ = shredded_type(pa.list_(pa.field("element", group(pa.string()), nullable=False)))
    assert _read(type_, row, on_device) == [tags]


def _time(micros: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)


NOOP, LOGIN, CLICK, NULL = map(_time, (1729794114937, 1729794146402, 1729794240241, 1729794954163))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            event(None, {"event_type": typed("noop"), "event_ts": typed(NOOP)}),
            {"event_type": "noop", "event_ts": NOOP},
        ),
        (
            event({"email": "user@example.com"}, {"event_type": typed("login"), "event_ts": typed(LOGIN)}),
            {"event_type": "login", "event_ts": LOGIN, "email": "user@example.com"},
        ),
        (event({"error_msg": "malformed: ..."}, {}), {"error_msg": "malformed: ..."}),
        (event("malformed: not an object"), "malformed: not an object"),
        (event({"click": "_button"}, {"event_ts": typed(CLICK)}), {"event_ts": CLICK, "click": "_button"}),
        (
            event(None, {"event_type": untyped(None), "event_ts": typed(NULL)}),
            {"event_type": None, "event_ts": NULL},
        ),
        (
            event(None, {"event_type": typed("noop"), "event_ts": untyped("2024-10-24")}),
            {"event_type": "noop", "event_ts": "2024-10-24"},
        ),
        (event(None, {}), {}),
        (event(None, has_value=True), None),
        (event(), None),
        # Invalid rows that a reader may read: the typed column wins, and so does that a field is missing there.
        (
            event({"event_type": "other"}, {"event_type": typed("login"), "event_ts": typed(LOGIN)}),
            {"event_type": "login", "event_ts": LOGIN},
        ),
        (event({"event_type": "login"}, {"event_ts": typed(LOGIN)}), {"event_ts": LOGIN}),
        (event({"event_type": "login"}), {"event_type": "login"}),
        (event({}), {}),
    ],
)
def test_the_table_of_objects_is_read(row: dict[str, Any], expected: Any, on_device: Move) -> None:
    assert _read(EVENT_TYPE, row, on_device) == [expected]


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        (event("a", {}), "no object"),
        (event(None, {"event_type": {"value": b"\x00", "typed_value": "x"}}), "beside"),
        ({**event(None, {"event_type": typed("x")}), "metadata": metadata(["event_ts"])}, "name"),
        ({**event(None, {}), "value": b"\x02\x01"}, "no Variant value"),
        ({**event(None, {}), "value": b"\x02\x02\x01\x01\x00\x01\x02\x00\x00"}, "name twice"),
    ],
)
def test_a_row_that_breaks_a_rule_is_an_error_of_unshred_and_malformed_to_others(
    row: dict[str, Any], rule: str, on_device: Move
) -> None:
    good = event(None, {"event_type": typed("noop")})
    column = on_device(unmarked(pa.array([good, row, None], EVENT_TYPE)))
    with pytest.raises(InvalidBody, match=f"{re.escape(rule)}.*row 1"):
        variant.unshred(column, plain=True)
    kinds = variant.type_of(column, plain=True).as_batch().to_device("cpu")[0]
    assert kinds.to_arrow().to_pylist() == ["object", None, None]


@pytest.mark.parametrize(
    ("type_", "rule"),
    [
        (shredded_type(pa.uint64()), "type of typed_value"),
        (shredded_type(pa.float16()), "type of typed_value"),
        (shredded_type(pa.binary(4)), "type of typed_value"),
        (shredded_type(pa.time32("ms")), "type of typed_value"),
        (shredded_type(pa.time64("ns")), "type of typed_value"),
        (shredded_type(pa.timestamp("ms")), "type of typed_value"),
        (shredded_type(pa.decimal256(40, 2)), "type of typed_value"),
        (shredded_type(pa.duration("us")), "type of typed_value"),
        (shredded_type(pa.map_(pa.string(), pa.int8())), "type of typed_value"),
        (shredded_type(pa.dictionary(pa.int8(), pa.string())), "type of typed_value"),
        (shredded_type(pa.list_(pa.string())), "element of an array"),
        (shredded_type(pa.struct({"a": pa.int8()})), "field of an object"),
        (shredded_type(pa.struct({"a": pa.struct({"metadata": pa.binary()})})), "field of an object"),
        (pa.struct({"metadata": pa.binary(), "value": pa.int8(), "typed_value": pa.int8()}), "type of value"),
        (pa.struct({"value": pa.binary(), "typed_value": pa.int8()}), "group of a Variant"),
        (
            pa.struct({"metadata": pa.binary(), "typed_value": pa.int8(), "x": pa.int8()}),
            "group of a Variant",
        ),
    ],
)
def test_a_column_of_another_type_is_refused_by_the_name_of_its_rule(type_: pa.DataType, rule: str) -> None:
    with pytest.raises(Unsupported, match=f"rule for the {rule}"):
        variant.unshred(pa.array([], type_), plain=True)


def test_children_are_found_by_name_in_any_order_and_value_may_lack() -> None:
    type_ = pa.struct({"typed_value": pa.int8(), "metadata": pa.binary()})
    rows = [
        {"typed_value": 5, "metadata": metadata([])},
        None,
        {"typed_value": None, "metadata": metadata([])},
    ]
    got = variant.unshred(pa.array(rows, type_), plain=True)
    assert variant.to_python(got) == [5, None, None]
    assert got.to_arrow().is_null().to_pylist() == [False, True, False]


def test_a_column_that_is_not_shredded_is_returned_as_it_is() -> None:
    column = variant.from_python([1, {"a": 2}])
    assert variant.unshred(column) is column


def test_values_are_within_the_limits() -> None:
    rows = pa.array(
        [{"metadata": metadata([]), "value": None, "typed_value": "x" * 100}], shredded_type(pa.string())
    )
    with pytest.raises(LimitExceeded):
        variant.unshred(rows, plain=True, limits=DEFAULT_LIMITS.replace(extracted_bytes=50))


def test_other_functions_take_shredded_columns() -> None:
    column = pa.array([event({"email": "x"}, {"event_type": typed("noop")}), event("text")], EVENT_TYPE)
    assert variant.to_json(column, plain=True).to_arrow().to_pylist() == [
        '{"email":"x","event_type":"noop"}',
        '"text"',
    ]
    assert variant.validate(column, plain=True).to_arrow().to_pylist() == [0, 0]
    assert variant.keys(column, plain=True).to_arrow().to_pylist() == [["email", "event_type"], None]


def test_keys_are_ordered_whatever_the_order_of_the_metadata() -> None:
    names = [f"k{index:03}" for index in reversed(range(300))]
    fields = {name: typed(index) for index, name in enumerate(names) if index % 3 == 0}
    residual = {name: index for index, name in enumerate(names) if index % 3}
    type_ = shredded_type(pa.struct([pa.field(name, group(pa.int16()), nullable=False) for name in fields]))
    row = {"metadata": metadata(names), "value": value(names, residual), "typed_value": fields}
    got = variant.unshred(pa.array([row], type_), plain=True)
    assert variant.to_python(got) == [{name: index for index, name in enumerate(names)}]
    assert variant.keys(got).to_arrow().to_pylist() == [sorted(names)]
    assert variant.get(got, "k100", pa.int64()).to_arrow().to_pylist() == [199]
