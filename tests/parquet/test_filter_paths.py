"""Filters on paths into Variant columns: numbers compare as what they are, however they are stored and read."""

from __future__ import annotations

import math
import warnings
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring import variant
from bowstring.errors import InvalidData
from bowstring.variant import path
from tests.parquet.test_filter_meaning import OPERATORS, compared, is_nan

READ_AS = [pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(9, 2), pa.decimal128(38, 0)]
SHREDDED_AS = [
    None,
    "infer",
    *(
        {"v": pa.struct({"a": type_})}
        for type_ in (pa.int64(), pa.float32(), pa.float64(), pa.decimal128(38, 10), pa.string())
    ),
]
INTEGERS = [0, 1, -1, 100, 2**24 + 1, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)]
DECIMALS = [
    Decimal(text) for text in ("0.1", "2.50", "100.0", "4611686018427387904.0", "100000000000000000000000")
]
FLOATS = [0.0, -0.0, 0.1, 2.5, 100.0, 2.0**53, 2.0**62, 1e23, math.nan, math.inf, -math.inf]
VALUES: st.SearchStrategy[Any] = st.sampled_from([*INTEGERS, *DECIMALS, *FLOATS, "text", True, [], None])
CALLS = st.sampled_from([*OPERATORS, "in"])


def file_of(rows: list[Any], shred: Any) -> bytes:
    """Return a file of documents in row groups of two."""
    column = variant.from_python(rows).to_arrow()
    data = pa.table(
        [pa.array(range(len(rows))), column], schema=pa.schema([("id", pa.int64()), ("v", column.type)])
    )
    sink = pa.BufferOutputStream()
    bow.parquet.write(data, sink, row_group_size=2, **({} if shred is None else {"shred": shred}))
    return bytes(sink.getvalue())


def holds(value: Any, call: str, literals: list[Any]) -> bool | None:
    """Return what a comparison is for a value of a document: null where it is not a number."""
    if isinstance(value, bool | str | list) or value is None:
        return None
    each_literal = [_compared(value, "==" if call == "in" else call, literal) for literal in literals]
    if call == "in" and isinstance(value, float):
        each_literal = [
            one and math.copysign(1, value) == math.copysign(1, literal) if value == 0 else one
            for one, literal in zip(each_literal, literals, strict=True)
        ]
        each_literal += [math.isnan(value) and is_nan(literal) for literal in literals]
    return any(each_literal) if call == "in" else each_literal[0]


def _compared(value: Any, symbol: str, literal: Any) -> bool | None:
    # Integers and decimals are one class: what may be stored as either compares with a large float as an integer.
    if isinstance(value, int | Decimal) and isinstance(literal, float) and math.isfinite(literal):
        literal = Decimal(literal) if 2**53 <= abs(literal) <= 2**63 else Decimal(repr(literal))
    return compared(value, symbol, literal)


@settings(max_examples=80)
@given(
    values=st.lists(VALUES, min_size=1, max_size=7),
    type_=st.sampled_from(READ_AS),
    shred=st.sampled_from(SHREDDED_AS),
    call=CALLS,
    literals=st.lists(st.sampled_from([*INTEGERS, *DECIMALS, *FLOATS]), min_size=1, max_size=3),
)
def test_numbers_at_paths_compare_as_what_they_are(
    values: list[Any], type_: pa.DataType, shred: Any, call: str, literals: list[Any]
) -> None:
    """Whatever they are read as and however they are shredded; text and the like match nothing, also negated."""
    rows = [None if number % 5 == 4 else {"a": value} for number, value in enumerate(values)]
    file = file_of(rows, shred)
    place = path("v", "$.a", type_)
    # Float16 and float32 hold other numbers than the documents had: the twin is what the file has.
    with bow.parquet.read(file, columns=["v"]) as stream:
        stored = [row and row["a"] for batch in stream for row in variant.to_python(batch[0])]
    compare = place.isin(literals) if call == "in" and _alike(literals) else None
    asked = [compare, ~compare] if compare is not None else []
    if call != "in":
        try:
            compare = OPERATORS[call](place, literals[0])
            asked = [compare, ~compare]
        except OverflowError:
            pass
    for filters in [*asked, [(place, call, literals if call == "in" else literals[0])]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with bow.parquet.read(file, columns=["id"], filters=filters) as stream:
                rows_read = stream.read_all()["id"].to_pylist()
        negated = len(asked) == 2 and filters is asked[1]
        expected = [holds(value, call, literals) for value in stored]
        if negated:
            expected = [None if each is None else not each for each in expected]
            if call == "in":  # as of columns, a null is not in a list
                expected = [True if row is None else each for row, each in zip(stored, expected, strict=True)]
        assert rows_read == [number for number, each in enumerate(expected) if each], filters


def _alike(literals: list[Any]) -> bool:
    return all(isinstance(each, float) for each in literals)


@pytest.mark.parametrize("shred", [None, "infer", {"v": pa.struct({"a": pa.string()})}])
@pytest.mark.parametrize("window", [1, 1 << 20])
def test_values_of_other_classes_are_counted_once_for_a_read(shred: Any, window: int) -> None:
    """There is one warning for all row groups and files, or an error, also where statistics rule out a group."""
    rows = [{"a": value} for value in (1, 2.5, "text", None, True, 3, Decimal("0.5"), [1])]
    place = path("v", "$.a", pa.float64())
    files = [file_of(rows, shred), file_of(rows[:2], shred)]
    limits = bow.Limits(window_bytes=window)
    for filters in (place > 0, ~(place > 0), [(place, "not in", [7])]):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with bow.parquet.read(files, filters=filters, limits=limits) as stream:
                list(stream)
        [message] = [str(each.message) for each in caught]
        assert message.startswith("3 of 9 values at $.a of v are not numbers")
    unmatched = (place > 0) & (path("v", "$.b", pa.int64()) > 0)
    for filters in (place > 0, unmatched, (place > 0) & (pc.field("id") > 1000)):
        with (
            bow.parquet.read(files, filters=filters, on_error="raise", limits=limits) as stream,
            pytest.raises(InvalidData, match="not numbers"),
        ):
            stream.read_all()
    with bow.parquet.read(files[1], filters=place > 0, on_error="raise") as stream:
        assert stream.read_all().num_rows == 2


def test_paths_of_other_types_compare_what_is_of_their_type() -> None:
    """Text, dates and booleans compare as they are read, and numbers are of another class than these."""
    rows = [{"a": "x"}, {"a": "y"}, {"a": 5}, {}, None]
    place = path("v", "$.a", pa.string())
    for shred in (None, "infer", {"v": pa.struct({"a": pa.string()})}):
        file = file_of(rows, shred)
        for filters, expected in (
            (place == "x", [0]),
            (place != "x", [1]),
            (place.isin(["x"]), [0]),
            (~place.isin(["x"]), [1, 3, 4]),
            (place.is_valid(), [0, 1]),
            (place.is_null(), [2, 3, 4]),
        ):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with bow.parquet.read(file, columns=["id"], filters=filters) as stream:
                    assert stream.read_all()["id"].to_pylist() == expected, filters
