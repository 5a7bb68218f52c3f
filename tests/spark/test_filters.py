"""Pushed filters, without Spark."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.spark.filters import keep, predicate
from tests.spark.asked import (
    COMPARISONS,
    TEXTS,
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    In,
    IsNotNull,
    IsNull,
    NeverHeardOf,
    Not,
    StringStartsWith,
    answer,
)

OLD = dt.datetime.fromisoformat("0001-01-01T00:00:00")
WORDS = st.text("aAbé漢😀", max_size=3)
TYPES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-3, 3),
    pa.int64(): st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]),
    pa.float64(): st.sampled_from([math.nan, -math.inf, -0.0, 0.0, 1.5, 1e300, math.inf]),
    pa.float32(): st.sampled_from([math.nan, -math.inf, -0.0, 0.0, 1.5, math.inf]),
    pa.decimal128(5, 2): st.sampled_from(
        [decimal.Decimal(text) for text in ("-1.50", "0", "1.25", "999.99")]
    ),
    pa.string(): WORDS,
    pa.binary(): st.binary(max_size=2),
    pa.date32(): st.sampled_from([dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
    pa.timestamp("us"): st.sampled_from([OLD, dt.datetime.fromisoformat("2026-01-01T00:00:00.000001")]),
    pa.timestamp("us", "UTC"): st.sampled_from(
        [dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, 0, 0, 0, 1, dt.UTC)]
    ),
}


@st.composite
def questions(draw: st.DrawFn) -> tuple[pa.DataType, list[Any], Any]:
    """Draw a type, a column, and a filter on it."""
    type_ = draw(st.sampled_from(list(TYPES)))
    values = TYPES[type_]
    column = draw(st.lists(st.none() | values, max_size=12))
    kinds: list[st.SearchStrategy[Any]] = [
        st.sampled_from([IsNull(("a",)), IsNotNull(("a",))]),
        st.builds(lambda kind, value: kind(("a",), value), st.sampled_from(COMPARISONS), st.none() | values),
        st.builds(lambda several: In(("a",), tuple(several)), st.lists(st.none() | values, max_size=4)),
    ]
    if type_ == pa.string():
        kinds.append(st.builds(lambda kind, value: kind(("a",), value), st.sampled_from(TEXTS), WORDS))
    asked = draw(st.one_of(kinds))
    return type_, column, Not(asked) if draw(st.booleans()) else asked


@given(questions())
def test_rows_are_those_that_spark_keeps(question: tuple[pa.DataType, list[Any], Any]) -> None:
    """What is taken is answered as Spark answers it, for every value, null, NaN and zero of either sign."""
    type_, column, asked = question
    batch = pa.record_batch({"n": pa.array(range(len(column)), pa.int32()), "a": pa.array(column, type_)})
    found, rest = keep(batch, [asked])
    if rest:
        assert rest == [asked]
        assert found is batch
        return
    wanted = [row for row, value in enumerate(column) if answer(asked, value)]
    assert found.column("n").to_pylist() == wanted


@pytest.mark.parametrize(
    ("type_", "asked"),
    [
        (pa.int64(), EqualTo(("a",), 1)),
        (pa.int8(), Not(In(("a",), (1, 2)))),
        (pa.float32(), GreaterThan(("a",), 1.5)),
        (pa.string(), StringStartsWith(("a",), "x")),
        (pa.decimal128(5, 2), EqualTo(("a",), decimal.Decimal("1.5"))),
        (pa.timestamp("us", "UTC"), GreaterThan(("a",), dt.datetime(2026, 1, 1, tzinfo=dt.UTC))),
        (pa.list_(pa.int8()), IsNull(("a",))),
        (pa.binary(), EqualNullSafe(("a",), None)),
    ],
    ids=str,
)
def test_common_filters_are_taken(type_: pa.DataType, asked: Any) -> None:
    """What is asked most is answered here, and travels to tasks by pickle."""
    found = predicate(asked, pa.schema([("a", type_)]))
    assert found is not None
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("type_", "asked"),
    [
        (pa.float64(), EqualTo(("a",), math.nan)),
        (pa.float64(), In(("a",), (0.0,))),
        (pa.float32(), EqualTo(("a",), 0.1)),
        (pa.float32(), EqualTo(("a",), 1e300)),
        (pa.int8(), EqualTo(("a",), 300)),
        (pa.int8(), EqualTo(("a",), True)),
        (pa.bool_(), GreaterThan(("a",), False)),
        (pa.int64(), EqualTo(("a",), "1")),
        (pa.decimal128(5, 1), EqualTo(("a",), decimal.Decimal("1.55"))),
        (pa.timestamp("us"), EqualTo(("a",), dt.datetime(2026, 1, 1, tzinfo=dt.UTC))),
        (pa.date32(), EqualTo(("a",), OLD)),
        (pa.list_(pa.int8()), EqualTo(("a",), [1])),
        (pa.string(), EqualTo(("b",), "x")),
        (pa.int8(), Not(In(("a",), (1, None)))),
        (pa.int8(), NeverHeardOf(("a",), 1)),
        (pa.int8(), Not(Not(IsNull(("a",))))),
        (pa.int8(), IsNull(("a", "b"))),
        (pa.int8(), IsNull(())),
    ],
    ids=str,
)
def test_doubtful_filters_are_left_to_spark(type_: pa.DataType, asked: Any) -> None:
    """What would not surely be Spark's answer is Spark's to give."""
    assert predicate(asked, pa.schema([("a", type_)])) is None


def test_names_that_are_there_twice_are_left_to_spark() -> None:
    """A column that is not the only one of its name is not guessed."""
    assert predicate(IsNull(("a",)), pa.schema([("a", pa.int8()), ("a", pa.int8())])) is None


def test_children_of_structs() -> None:
    """A child is null where its parent is, whatever lies there."""
    child = pa.array([1, 2, 2, None], pa.int8())
    array = pa.StructArray.from_arrays([child], ["b"], mask=pa.array([False, False, True, False]))
    batch = pa.record_batch({"a": array})
    assert keep(batch, [EqualTo(("a", "b"), 2)])[0].num_rows == 1
    assert keep(batch, [IsNull(("a", "b"))])[0].num_rows == 2
    assert keep(batch, [Not(EqualTo(("a", "b"), 2))])[0].num_rows == 1


def test_several_filters_hold_together() -> None:
    """Rows must meet all filters; a null of one is no yes."""
    batch = pa.record_batch({"a": [1, 2, None, 4], "b": ["x", None, "x", "x"]})
    found, rest = keep(batch, [GreaterThan(("a",), 0), EqualTo(("b",), "x"), NeverHeardOf(("a",))])
    assert found.column("a").to_pylist() == [1, 4]
    assert rest == [NeverHeardOf(("a",))]
