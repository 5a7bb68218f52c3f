"""``cast="number"``: every number of a Variant as every number of Arrow's, against fractions."""

from __future__ import annotations

import decimal
import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.testing import fake_device
from bowstring.variant import Status, Value
from tests.variant.conftest import Move
from tests.variant.encoding import Widths, encode
from tests.variant.get_columns import column_of
from tests.variant.number_oracle import expected, same
from tests.variant.shredded_columns import shredded_rows

D = decimal.Decimal
CONTEXT = decimal.Context(prec=80)
WIDTHS = Widths(1, 1, False)
INTEGERS = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
)
TARGETS = (
    *INTEGERS,
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal32(9, 2), pa.decimal64(18, 0), pa.decimal128(38, 10), pa.decimal128(38, 38)),
    *(pa.decimal256(76, 40), pa.decimal256(45, 2)),
)
TYPED = (
    *(pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.decimal128(9, 2), pa.decimal128(18, 4), pa.decimal128(38, 10)),
)
"""Types of a ``typed_value``."""

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
DIGITS = {"decimal4": 9, "decimal8": 18, "decimal16": 38}


def _around(number: int) -> list[int]:
    return [sign * (number + step) for sign in (1, -1) for step in (-1, 0, 1)]


WHOLE = sorted(
    {0, *(each for bits in (7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 64) for each in _around(1 << bits))}
)
"""Whole numbers where a type ends, or where not every one is a float."""


def _edges() -> list[Value]:
    found = [
        Value(name, each)
        for name, bits in BITS.items()
        for each in {*WHOLE, (1 << bits - 1) - 1, -(1 << bits - 1)}
        if -(1 << bits - 1) <= each < 1 << bits - 1
    ]
    for name, digits in DIGITS.items():
        largest = 10**digits - 1
        unscaled = [
            *(each for each in WHOLE if abs(each) <= largest),
            1,
            5,
            15,
            25,
            10**digits // 4,
            largest,
            -largest,
        ]
        found += [
            Value(name, D(each).scaleb(-scale, CONTEXT))
            for each in unscaled
            for scale in {0, 1, 2, digits // 2, digits}
        ]
        # Half way between two floats of 4 and of 2 bytes, and hardly beside.
        for halfway in (
            "16777217",
            "2049",
            "1.000000059604644775390625",
            "65519.99",
            "65520",
            "0.0000000298023223876953125",
        ):
            for less in ("0", "1e-25"):
                exact = CONTEXT.add(D(halfway), D(less)).normalize(CONTEXT)
                _, all_digits, exponent = exact.as_tuple()
                if len(all_digits) <= digits and -int(exponent) <= digits and int(exponent) <= 0:
                    found.append(Value(name, exact))
    reals = [
        *(float(each) for each in WHOLE),
        *(0.0, -0.0, 0.1, -1.5, 1e2, 100.25, 1e15, 1e16, 1e17, 1e22, 1e23, 1e37, 1e38, 1e39, 1e300, 5e-324),
        *(
            2.0**-149,
            2.0**-150,
            3 * 2.0**-150,
            2.0**-24,
            2.0**-25,
            3 * 2.0**-25,
            2.0**-126,
            2.0**-127,
            1e-40,
            1e-7,
        ),
        *(
            65504.0,
            65519.99,
            65520.0,
            3.4028234663852886e38,
            3.4028235677973366e38,
            1 + 2.0**-24,
            1 + 3 * 2.0**-24,
        ),
        *(1.7976931348623157e308, math.inf, -math.inf, math.nan, 2.0**63, 2.0**64, 1 - 2.0**-53),
    ]
    found += [Value("double", each) for each in reals]
    with np.errstate(over="ignore"):
        found += [Value("float", float(np.float32(each))) for each in reals]
    return found


EDGES = _edges()
OTHERS = [
    Value("boolean", True),
    Value("string", "1"),
    Value("date", 1),
    Value("array", []),
    Value("object", {}),
]

NUMBERS: st.SearchStrategy[Value] = st.one_of(
    st.sampled_from(EDGES),
    *(
        st.builds(Value, st.just(name), st.integers(-(1 << bits - 1), (1 << bits - 1) - 1))
        for name, bits in BITS.items()
    ),
    *(
        st.builds(
            lambda name, number, scale: Value(name, D(number).scaleb(-scale, CONTEXT)),
            st.just(name),
            st.integers(-(10**digits) + 1, 10**digits - 1) | st.integers(-999, 999),
            st.integers(0, digits),
        )
        for name, digits in DIGITS.items()
    ),
    st.builds(Value, st.just("double"), st.floats() | st.integers(-(2**70), 2**70).map(float)),
    st.builds(Value, st.just("float"), st.floats(width=32) | st.floats(width=16)),
)


def _same(got: list[Any], values: list[Value], type_: pa.DataType) -> None:
    for value, number in zip(values, got, strict=True):
        _, wanted = expected(value, type_)
        assert same(number, wanted), (value, number, wanted)


def _check(column: Column, path: str, values: list[Value], type_: pa.DataType) -> None:
    """Check the value of each row, and its status."""
    batch = variant.get(column, path, type_, with_status=True).to_device("cpu")
    batch.validate(full=True)
    _same(batch.columns[0].to_arrow().to_pylist(), values, type_)
    assert batch["status"].to_arrow().to_pylist() == [expected(each, type_)[0] for each in values]


def _rows(column: Column, path: str, type_: pa.DataType) -> Any:
    return (
        variant.get(column, path, type_, with_status=True).to_device("cpu").columns[0].to_arrow().to_pylist()
    )


def _column(values: list[Value]) -> Column:
    return column_of([encode(each, WIDTHS) for each in values])


def _under_a(values: list[Value]) -> list[Value]:
    return [Value("object", {"a": each}) for each in values]


def _check_every_kind_of_path(values: list[Value], type_: pa.DataType, move: Move) -> None:
    _check(move(_column(values)), "$", values, type_)
    fields = move(_column(_under_a(values)))
    _check(fields, "$.a", values, type_)
    _same([each["a"] for each in _rows(fields, "$", pa.struct({"a": type_}))], values, type_)
    listed = move(_column([Value("array", list(values))]))
    for path, wanted in (("$[*]", type_), ("$", pa.list_(type_))):
        _same(_rows(listed, path, wanted)[0], values, type_)
    named = Value("object", {f"{k:04}": each for k, each in enumerate(values)})
    [entries] = _rows(move(_column([named])), "$", pa.map_(pa.string(), type_))
    _same([each for _, each in entries], values, type_)


@pytest.mark.parametrize("type_", TARGETS, ids=str)
def test_numbers_at_the_bounds_of_every_type(type_: pa.DataType, on_device: Move) -> None:
    """Numbers at the bounds of types become what fractions say: alone, as fields, in lists, structs, maps."""
    _check_every_kind_of_path([*EDGES, *OTHERS], type_, on_device)


@given(st.lists(NUMBERS, min_size=1, max_size=8), st.sampled_from(TARGETS))
def test_any_number(values: list[Value], type_: pa.DataType) -> None:
    """Any number becomes what fractions say, whatever the path goes through."""
    _check_every_kind_of_path(values, type_, lambda column: column)


@pytest.mark.parametrize("typed", TYPED, ids=str)
def test_numbers_of_typed_columns(typed: pa.DataType, on_device: Move) -> None:
    """Numbers of typed columns, and those beside them, become what the same numbers without shredding do."""
    values = [*EDGES, *OTHERS]
    column = on_device(shredded_rows(_under_a(values), pa.struct({"a": typed}), random.Random(3)))
    for type_ in TARGETS:
        _check(column, "$.a", values, type_)


@given(
    st.lists(NUMBERS, min_size=1, max_size=6), st.sampled_from(TYPED), st.sampled_from(TARGETS), st.randoms()
)
def test_any_number_shredded(
    values: list[Value], typed: pa.DataType, type_: pa.DataType, drawn: random.Random
) -> None:
    """Shredding changes no number: alone, as a field, and in a list, on the host and on a device."""
    alone = shredded_rows(values, typed, drawn)
    fields = shredded_rows(_under_a(values), pa.struct({"a": typed}), drawn)
    listed = shredded_rows([Value("array", list(values))], pa.list_(typed), drawn)
    for device in ("cpu", fake_device()):

        def move(column: Column, device: Any = device) -> Column:
            return column.as_batch().to_device(device)[0]

        _check(move(alone), "$", values, type_)
        _check(move(fields), "$.a", values, type_)
        _same(_rows(move(listed), "$[*]", type_)[0], values, type_)


def test_a_number_reads_alike_however_it_is_written() -> None:
    """What JSON spells in other ways, and so is stored in other types, is one number."""
    column = variant.from_json(["100", "100.0", "1e2", "100.00", "1.0e+2"])
    for type_ in (
        *INTEGERS,
        pa.float16(),
        pa.float32(),
        pa.float64(),
        pa.decimal128(5, 2),
        pa.decimal256(40, 0),
    ):
        assert variant.get(column, "$", type_).to_arrow().to_pylist() == [100] * 5


def test_exact_keeps_the_classes_apart() -> None:
    """By the rule of shredding, decimals are no floats, and floats no whole numbers."""
    column = variant.from_json(["1.5", "2", "1e2"])
    got = variant.get(column, "$", pa.float64(), cast="exact", with_status=True)
    assert got["status"].to_arrow().to_pylist() == [Status.TYPE_MISMATCH, Status.TYPE_MISMATCH, Status.OK]
    got = variant.get(column, "$", pa.int64(), cast="exact", with_status=True)
    assert got["status"].to_arrow().to_pylist() == [Status.OVERFLOW, Status.OK, Status.TYPE_MISMATCH]
