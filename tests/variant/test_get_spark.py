"""The `spark` mode of casts beyond the recorded cells: what its failures are called, and what it refuses."""

from __future__ import annotations

import decimal
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.errors import InvalidData, Unsupported
from bowstring.variant import Status, Value
from tests.variant.conftest import Move
from tests.variant.encoding import encode
from tests.variant.get_columns import column_of

pytestmark = pytest.mark.filterwarnings("ignore:.* became null")  # that values are lost, is no matter here

UTC = pa.timestamp("us", "UTC")


def text(word: str) -> Value:
    return Value("string", word)


FAILURES: list[tuple[Value, pa.DataType, Status]] = [
    (text("word"), pa.int8(), Status.TYPE_MISMATCH),
    (text("128"), pa.int8(), Status.OVERFLOW),
    (Value("int16", 128), pa.int8(), Status.OVERFLOW),
    (Value("double", float("nan")), pa.int64(), Status.OVERFLOW),
    (Value("double", 1e300), pa.decimal128(38, 0), Status.OVERFLOW),
    (text("1e40"), pa.decimal128(38, 0), Status.OVERFLOW),
    (text("5881580-07-12"), pa.date32(), Status.OVERFLOW),
    (Value("int64", 1 << 62), UTC, Status.OVERFLOW),
    (Value("date", 1), pa.int32(), Status.TYPE_MISMATCH),
    (Value("array", []), pa.int32(), Status.TYPE_MISMATCH),
    (Value("int8", 1), pa.list_(pa.int8()), Status.TYPE_MISMATCH),
    (Value("boolean", True), UTC, Status.TYPE_MISMATCH),
    (Value("binary", b"\xff"), pa.string(), Status.OVERFLOW),
    (Value("time", 1), pa.string(), Status.UNSUPPORTED),
    (Value("timestamp_ns", 1), UTC, Status.UNSUPPORTED),
    (Value("timestamp_ntz_ns", 1), pa.decimal64(18, 0), Status.UNSUPPORTED),
    (text("2024-01-02 03:04:05 Europe/Bonn"), UTC, Status.TYPE_MISMATCH),
    (text("2024-01-02 03:04:05 Europe/Bonn"), pa.timestamp("us"), Status.TYPE_MISMATCH),
    (text("2024-01-02 03:04:05 " + "Europe/" * 7), UTC, Status.TYPE_MISMATCH),
    (text("294247-01-10 00:00:00 America/Los_Angeles"), UTC, Status.OVERFLOW),
    (text("24:04:05"), UTC, Status.TYPE_MISMATCH),
    (text("03:04:05"), pa.timestamp("us"), Status.TYPE_MISMATCH),
]


def test_names_of_failures(on_device: Move) -> None:
    """What Spark gives NULL for has a status that tells why, beside a null."""
    for value, type_, status in FAILURES:
        column = on_device(column_of([encode(value), encode(Value("null", None)), None]))
        got = variant.get(column, "$", type_, cast="spark", with_status=True)
        got.validate(full=True)
        assert got["status"].to_arrow().to_pylist() == [status, Status.VARIANT_NULL, Status.SQL_NULL], value
        assert got.columns[0].null_count == 3
        with pytest.raises((InvalidData, Unsupported), match=status.name):
            variant.get(column, "$", type_, cast="spark", on_error="raise")


@pytest.mark.parametrize(
    "type_",
    [
        *(
            pa.uint8(),
            pa.float16(),
            pa.date64(),
            pa.time64("us"),
            pa.timestamp("ns"),
            pa.uuid(),
            pa.binary(2),
        ),
        *(pa.timestamp("us", "Europe/Berlin"), pa.decimal256(40, 2), pa.list_(pa.uint8())),
    ],
    ids=str,
)
def test_types_that_spark_has_not(type_: pa.DataType) -> None:
    """A type that is none of Spark's is refused by name, inside others too."""
    with pytest.raises(Unsupported, match="Spark has no type"):
        variant.get(variant.from_python([1]), "$", type_, cast="spark")


def test_every_width_of_a_type(on_device: Move) -> None:
    """Narrow decimals, large text and views hold what the types beside them hold."""
    column = on_device(
        variant.from_python(["12.345", -1, decimal.Decimal("7.5"), "text of some length", None, 0.25])
    )
    wanted: dict[str, tuple[str, Any]] = {
        str(type_): ("$", type_)
        for type_ in (
            *(pa.decimal32(5, 1), pa.decimal64(5, 1), pa.decimal128(5, 1), pa.string(), pa.large_string()),
            *(pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()),
        )
    }
    got = variant.get_many(column, wanted, cast="spark").to_device("cpu").to_arrow().to_pydict()
    tens = [
        None if each is None else decimal.Decimal(each) for each in ("12.3", "-1.0", "7.5", None, None, "0.3")
    ]
    assert all(column == tens for name, column in got.items() if name.startswith("decimal"))
    words = ["12.345", "-1", "7.5", "text of some length", None, "0.25"]
    assert all(column == words for name, column in got.items() if "string" in name)
    data = [b"12.345", None, None, b"text of some length", None, None]
    assert all(column == data for name, column in got.items() if "binary" in name)


def test_holders_inside_others_become_text(on_device: Move) -> None:
    """Arrays and objects inside others become JSON text, where there are more of them than rows and where fewer."""
    documents: list[Any] = [
        [[1, 2], {"a": None, "é": "x"}, "plain", [], 1.5, [{"b": [True]}]],
        None,
        [{"z": [1]}],
        [],
    ]
    column = on_device(variant.from_python(documents))
    got = variant.get(column, "$", pa.list_(pa.string()), cast="spark")
    assert got.to_arrow().to_pylist() == [
        ["[1,2]", '{"a":null,"é":"x"}', "plain", "[]", "1.5", '[{"b":[true]}]'],
        None,
        ['{"z":[1]}'],
        [],
    ]
    inside = variant.get(column, "$[0]", pa.map_(pa.string(), pa.string()), cast="spark")
    assert inside.to_arrow().to_pylist() == [None, None, [("z", "[1]")], None]


def written(number: float) -> str:
    """Return all the digits of a float."""
    return f"{decimal.Decimal(number):f}"


def between(number: float) -> float:
    """Return the double that is in the middle of two floats."""
    return (number + float(np.nextafter(np.float32(number), np.float32(0)))) / 2


NUMBERS = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**40), max_value=10**40).map(str),
    st.tuples(st.integers(-(10**25), 10**25), st.integers(-400, 400)).map(
        lambda pair: f"{pair[0]}e{pair[1]}"
    ),
    st.floats(allow_nan=False, allow_infinity=False).map(written),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(between).map(written),
)
"""Numbers as text: of many digits, far out, and such as lie exactly on a float or between two."""


EDGES = [
    "3.40282356779733667e38",
    "340282356779733661637539395458142568447",
    "3.40282356779733662e38",
    "7.0064923216240853e-46",
]
EDGES += [
    "16777217",
    "16777217.0000000000000000000001",
    "1.00000017881393432617187499",
    "1.000000178813934326171875",
]


EDGES += [each + "0" * 5000 + "1" for each in ("1.000000178813934326171875", "0.5")]


def nearest_single(number: Fraction) -> float:
    """Return the float nearest to a number, worked out in fractions."""
    if abs(number) >= Fraction(2) ** 128 - Fraction(2) ** 103:
        return float("-inf" if number < 0 else "inf")
    largest = float(np.finfo(np.float32).max)
    middle = np.float32(min(max(float(number), -largest), largest))
    with np.errstate(over="ignore"):
        near = [np.nextafter(middle, np.float32(-np.inf)), middle, np.nextafter(middle, np.float32(np.inf))]
    finite = [each for each in near if np.isfinite(each)]
    return float(
        min(finite, key=lambda each: (abs(Fraction(float(each)) - number), int(each.view(np.int32)) & 1))
    )


@example([sign + edge for edge in EDGES for sign in ("", "-")])
@given(st.lists(NUMBERS, min_size=1, max_size=8))
def test_text_becomes_the_nearest_float(words: list[str]) -> None:
    """Text is the float or double that is nearest to it, however many digits it has; ties go to even ones."""
    column = column_of([encode(text(each)) for each in words], "binary")
    doubles = variant.get(column, "$", pa.float64(), cast="spark").to_arrow().to_pylist()
    assert [struct.pack("<d", each) for each in doubles] == [struct.pack("<d", float(each)) for each in words]
    singles = variant.get(column, "$", pa.float32(), cast="spark").to_arrow().to_pylist()
    assert singles == [nearest_single(Fraction(decimal.Decimal(each))) for each in words]


@example([99_999_999_999_999_999_999_999_999_995_000_000_000], 2)
@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=6), st.integers(0, 38))
def test_decimals_become_numbers(unscaled: list[int], scale: int) -> None:
    """Decimals are cut to integers, rounded half up to decimals and to the nearest float, and written in full."""
    context = decimal.Context(prec=80, rounding=decimal.ROUND_HALF_UP)
    numbers = [decimal.Decimal(each).scaleb(-scale, context) for each in unscaled]
    column = column_of([encode(Value("decimal16", each)) for each in numbers], "binary")
    got = (
        variant.get_many(
            column,
            {
                "whole": ("$", pa.int64()),
                "rounded": ("$", pa.decimal128(38, 2)),
                "double": ("$", pa.float64()),
                "single": ("$", pa.float32()),
                "text": ("$", pa.string()),
            },
            cast="spark",
        )
        .to_arrow()
        .to_pydict()
    )
    cut = [int(each) for each in numbers]
    assert got["whole"] == [each if -(1 << 63) <= each < 1 << 63 else None for each in cut]
    near = [each.quantize(decimal.Decimal("0.01"), context=context) for each in numbers]
    assert got["rounded"] == [each if each.copy_abs() < 10**36 else None for each in near]
    assert got["double"] == [float(each) for each in numbers]
    assert got["single"] == [nearest_single(Fraction(each)) for each in numbers]
    plain = [f"{each:f}".rstrip("0").rstrip(".") if "." in f"{each:f}" else f"{each:f}" for each in numbers]
    assert got["text"] == ["0" if each in ("-0", "") else each for each in plain]


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=6))
def test_times_become_others(micros: list[int]) -> None:
    """Timestamps become whole seconds below them, days below them, and decimals without loss."""
    column = column_of([encode(Value("timestamp", each)) for each in micros], "binary")
    wanted = {
        "seconds": ("$", pa.int64()),
        "days": ("$", pa.date32()),
        "decimal": ("$", pa.decimal128(38, 6)),
    }
    got = variant.get_many(column, wanted, cast="spark")
    assert got["seconds"].to_arrow().to_pylist() == [each // 1_000_000 for each in micros]
    assert got["days"].to_arrow().view(pa.int32()).to_pylist() == [each // 86_400_000_000 for each in micros]
    assert got["decimal"].to_arrow().to_pylist() == [decimal.Decimal(each).scaleb(-6) for each in micros]


def test_doubles_become_text_as_in_java_19() -> None:
    """1e23 becomes the text and the decimal of Java 19 and later, as the docstring of ``get`` has it."""
    column = variant.from_python([1e23])
    for type_, expected in (
        (pa.string(), "1.0E23"),
        (pa.decimal128(38, 0), decimal.Decimal(10**23)),
    ):
        assert variant.get(column, "$", type_, cast="spark").to_arrow().to_pylist() == [expected]
    assert variant.get.__doc__
    assert "99999999999999990000000" in variant.get.__doc__
