"""Equality by meaning: of one class of the specification, whatever the bytes."""

from __future__ import annotations

import decimal
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.errors import UsageError
from bowstring.variant.codec.primitives import Value
from tests.variant.encoding import Widths, column_of, encode, variant_array, variant_field
from tests.variant.typed_values import VALUES

D = decimal.Decimal
NAN = Value("double", math.nan)
MOMENT = 1_700_000_000_000_000


def equals(left: list[Any], right: list[Any]) -> list[bool | None]:
    found: list[bool | None] = (
        variant.equals(variant.from_python(left), variant.from_python(right)).to_arrow().to_pylist()
    )
    return found


@given(values=st.lists(VALUES, max_size=4), widths=st.builds(Widths, st.integers(1, 4), st.integers(1, 4)))
def test_other_bytes_of_the_same_values(values: list[Value], widths: Widths) -> None:
    """The same trees in other widths, over other metadata, are equal."""
    other = column_of(variant_array([encode(value, widths) for value in values]), variant_field("v"))
    found = variant.equals(variant.from_python(values), other)
    assert found.to_arrow().to_pylist() == [True] * len(values)


@given(left=VALUES, right=VALUES)
def test_equality_is_symmetric(left: Value, right: Value) -> None:
    """Left equals right where right equals left, and whenever the trees are the same."""
    assert equals([left], [right]) == equals([right], [left])
    assert equals([left], [right]) == [True] or left != right


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (Value("int8", 1), Value("int64", 1), True),
        (Value("int8", 1), Value("decimal16", D("1.00")), True),
        (Value("int8", 1), Value("decimal4", D("1.01")), False),
        (Value("decimal16", D("9" * 38)), Value("decimal16", D("9" * 37 + "8")), False),
        (Value("int8", 1), Value("double", 1.0), False),
        (Value("float", 1.0), Value("double", 1.0), False),
        (Value("int8", 1), Value("boolean", True), False),
        (NAN, NAN, True),
        (NAN, Value("double", 1.0), False),
        (Value("double", 1.0), NAN, False),
        (Value("double", 0.0), Value("double", -0.0), True),
        (Value("timestamp", MOMENT), Value("timestamp_ns", MOMENT * 1000), True),
        (Value("timestamp", MOMENT), Value("timestamp_ns", MOMENT * 1000 + 1), False),
        (Value("timestamp", MOMENT), Value("timestamp_ntz", MOMENT), False),
        (Value("timestamp_ntz", MOMENT), Value("timestamp_ntz_ns", MOMENT * 1000), True),
        (Value("string", "a"), Value("binary", b"a"), False),
        (Value("null", None), Value("null", None), True),
        (Value("null", None), Value("int8", 0), False),
        ({"a": 1, "b": 2}, {"b": 2, "a": D("1.0")}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1}, {"b": 1}, False),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ([], {}, False),
        (None, 1, None),
        (None, None, None),
    ],
    ids=repr,
)
def test_classes(left: Any, right: Any, expected: bool | None) -> None:
    """Each pair is equal or not as the classes of the specification say; an SQL NULL is neither."""
    assert equals([left], [right]) == [expected]


def test_long_and_short_strings_are_one() -> None:
    """A short string in its long form is the same string."""
    short, long = bytes([1 | 1 << 2]) + b"a", bytes([16 << 2, 1, 0, 0, 0]) + b"a"
    metadata = encode(Value("null", None))[0]
    left, right = (column_of(variant_array([(metadata, each)]), variant_field("v")) for each in (short, long))
    assert variant.equals(left, right).to_arrow().to_pylist() == [True]


def test_lengths_must_agree() -> None:
    """Columns of different lengths are refused."""
    with pytest.raises(UsageError, match="lengths"):
        equals([1], [1, 2])
