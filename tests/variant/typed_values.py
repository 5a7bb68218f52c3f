"""Typed Variant values: every type at its bounds, drawn at random, and what the golden files hold."""

from __future__ import annotations

import decimal
import functools
import uuid
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from bowstring.variant.codec.primitives import Value

D = decimal.Decimal


def leaf(type_: str, value: Any) -> Value:
    return Value(type_, value)


def _integers(bits: int) -> list[int]:
    return [-(1 << bits - 1), -1, 0, 1, (1 << bits - 1) - 1]


def _decimals(digits: int) -> list[decimal.Decimal]:
    largest = 10**digits - 1
    return [
        D(number).scaleb(-scale, decimal.Context(prec=64))
        for number in (largest, -largest, 1, 0)
        for scale in (0, 2, digits)
    ]


BOUNDS: dict[str, list[Any]] = {
    "null": [None],
    "boolean": [True, False],
    **{f"int{bits}": _integers(bits) for bits in (8, 16, 32, 64)},
    "double": [0.0, -0.0, 1.5, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf")],
    "float": [0.0, -0.0, 1.5, 2.0**-149, 3.4028234663852886e38, float("inf"), float("-inf")],
    **{name: _decimals(digits) for name, digits in (("decimal4", 9), ("decimal8", 18), ("decimal16", 38))},
    "date": _integers(32),
    **{name: _integers(64) for name in ("timestamp", "timestamp_ntz", "timestamp_ns", "timestamp_ntz_ns")},
    "time": [0, 1, 86_399_999_999],
    "binary": [b"", b"\x00\xff", b"x" * 64, b"y" * 70_000],
    "string": ["", "a", "x" * 63, "ä" * 32, "😀" * 16, "z" * 64, "long" * 20_000, "\x00", "\uffff"],
    "uuid": [
        uuid.UUID(int=0),
        uuid.UUID(int=(1 << 128) - 1),
        uuid.UUID("f24f9b64-81fa-49d1-b74e-8c09a6e31c56"),
    ],
}
"""Every type with the values at the bounds of what it holds."""

PRIMITIVE_VALUES = [Value(type_, value) for type_, values in BOUNDS.items() for value in values]

KEYS = st.one_of(
    st.sampled_from(["", "a", "b", "ab", "é", "\uffe5", "😀", "x.y", "'", '"', "\\", "\x00", "$"]),
    st.text(st.characters(codec="utf-8"), max_size=6),
)
"""Keys: empty, with quotes and dots, of two, three and four bytes."""


def _sized(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


@st.composite
def _decimal(draw: st.DrawFn, digits: int) -> decimal.Decimal:
    number = draw(st.integers(-(10**digits) + 1, 10**digits - 1))
    return D(number).scaleb(-draw(st.integers(0, digits)), decimal.Context(prec=64))


_RANDOM: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
    "null": st.none,
    "boolean": st.booleans,
    **{f"int{bits}": functools.partial(_sized, bits) for bits in (8, 16, 32, 64)},
    "double": lambda: st.floats(allow_nan=False),
    "float": lambda: st.floats(width=32, allow_nan=False),
    "decimal4": lambda: _decimal(9),
    "decimal8": lambda: _decimal(18),
    "decimal16": lambda: _decimal(38),
    "date": lambda: _sized(32),
    "timestamp": lambda: _sized(64),
    "timestamp_ntz": lambda: _sized(64),
    "timestamp_ns": lambda: _sized(64),
    "timestamp_ntz_ns": lambda: _sized(64),
    "time": lambda: st.integers(0, 86_399_999_999),
    "binary": lambda: st.binary(max_size=80),
    "string": lambda: st.text(st.characters(codec="utf-8"), max_size=80),
    "uuid": st.uuids,
}

LEAVES = st.one_of(
    st.sampled_from([value for value in PRIMITIVE_VALUES if len(str(value.value)) < 1000]),
    *(st.builds(Value, st.just(type_), make()) for type_, make in _RANDOM.items()),
)


def _containers(inside: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.one_of(
        st.builds(Value, st.just("array"), st.lists(inside, max_size=5)),
        st.builds(Value, st.just("object"), st.dictionaries(KEYS, inside, max_size=5)),
    )


VALUES = st.recursive(LEAVES, _containers, max_leaves=12)
"""Random typed trees of every type; no NaN, which equals nothing."""


def _object(**fields: Value) -> Value:
    return Value("object", fields)


def _array(*items: Value) -> Value:
    return Value("array", list(items))


def _text(text: str) -> Value:
    return Value("string", text)


def _i8(number: int) -> Value:
    return Value("int8", number)


_MARKS = "characters such as 🐢, 💖, ♥️, 🎣 and 🤦!!"

GOLDEN: dict[str, Value] = {
    "array_empty": _array(),
    "array_nested": _array(
        _object(id=_i8(1), thing=_object(names=_array(_text("Contrarian"), _text("Spider")))),
        Value("null", None),
        _object(id=_i8(2), names=_array(_text("Apple"), _text("Ray"), Value("null", None)), type=_text("if")),
    ),
    "array_primitive": _array(_i8(2), _i8(1), _i8(5), _i8(9)),
    "long_string": _text(
        "This string is for sure and certainly longer than 64 bytes and it also includes several non ascii "
        + _MARKS
    ),
    "object_empty": _object(),
    "object_nested": _object(
        id=_i8(1),
        observation=_object(
            location=_text("In the Volcano"),
            time=_text("12:34:56"),
            value=_object(humidity=Value("int16", 456), temperature=_i8(123)),
        ),
        species=_object(name=_text("lava monster"), population=Value("int16", 6789)),
    ),
    "object_primitive": _object(
        boolean_false_field=Value("boolean", False),
        boolean_true_field=Value("boolean", True),
        double_field=Value("decimal4", D("1.23456789")),
        int_field=_i8(1),
        null_field=Value("null", None),
        string_field=_text("Apache Parquet"),
        timestamp_field=_text("2025-04-16T12:34:56.78"),
    ),
    "primitive_binary": Value("binary", bytes.fromhex("031337deadbeefcafe")),
    "primitive_boolean_false": Value("boolean", False),
    "primitive_boolean_true": Value("boolean", True),
    "primitive_date": Value("date", 20_194),
    "primitive_decimal16": Value("decimal16", D("12345678912345678.90")),
    "primitive_decimal4": Value("decimal4", D("12.34")),
    "primitive_decimal8": Value("decimal8", D("12345678.90")),
    "primitive_double": Value("double", 1234567890.1234),
    "primitive_float": Value("float", 1234567936.0),
    "primitive_int16": Value("int16", 1234),
    "primitive_int32": Value("int32", 123_456),
    "primitive_int64": Value("int64", 1_234_567_890_123_456_789),
    "primitive_int8": _i8(42),
    "primitive_null": Value("null", None),
    "primitive_string": _text(
        "This string is longer than 64 bytes and therefore does not fit in a short_string and it also includes "
        f"several non ascii {_MARKS}"
    ),
    "primitive_time": Value("time", 45_234_123_456),
    "primitive_timestamp": Value("timestamp", 1_744_821_296_780_000),
    "primitive_timestamp_nanos": Value("timestamp_ns", 1_730_982_834_123_456_789),
    "primitive_timestampntz": Value("timestamp_ntz", 1_744_806_896_780_000),
    "primitive_timestampntz_nanos": Value("timestamp_ntz_ns", 1_730_982_834_123_456_789),
    "primitive_uuid": Value("uuid", uuid.UUID("f24f9b64-81fa-49d1-b74e-8c09a6e31c56")),
    "short_string": _text("Less than 64 bytes (❤️ with utf8)"),
}
"""What the 29 files of parquet-testing's `variant` hold; their own expectations are lossy."""
