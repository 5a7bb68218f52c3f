"""Variant's decimals as JSON text, of up to 38 digits.

There is no kernel here.
"""

from __future__ import annotations

from typing import Any

from bowstring.kernels.types import i64, u64
from bowstring.kernels.variant.decimals import BOUNDS_HIGH, BOUNDS_LOW, below, negated
from bowstring.kernels.variant.format import BROKEN, DECIMAL4, DECIMAL16, signed
from bowstring.kernels.variant.text.put import POWERS, digits_of, put, put_digits, put_number, word_at
from bowstring.kernels.variant.text.reals import product

__all__ = ["SIGNATURES", "decimal_at", "put_exact", "without_zeros"]

ZERO = i64(0)
NONE = u64(0)
ONE = u64(1)
FOUR = u64(4)
EIGHT = u64(8)
TEN = u64(10)
MINUS = u64(ord("-"))
SIGN = u64(63)
POINT = u64(ord("."))
LARGEST_SCALE = u64(38)
# A number of 38 digits is two of 19.
PART = u64(19)
UNIT_OF_PART = u64(10**19)
TENTH_OF_PART = u64(10**18)
RECIPROCAL = u64((2**128 - 1) // 10**19 - 2**64)


def put_exact(out: Any, limit: Any, at: Any, data: Any, first: Any, kind: Any, spark: Any) -> Any:
    """Write a decimal with all its digits, in Spark's rules without zeros at its end; BROKEN where it is none."""
    scale, negative, upper, lower = decimal_at(data, first, kind)
    end = BROKEN
    if scale != BROKEN:
        if spark != ZERO:
            upper, lower, scale = without_zeros(upper, lower, scale)
        end = put(out, limit, at, MINUS, negative)
        end = put_scaled(out, limit, end, upper, lower, scale)
    return end


def decimal_at(data: Any, first: Any, kind: Any) -> Any:
    """Return scale, sign and magnitude, in two parts, of a decimal; the scale is BROKEN where it is none."""
    scale = u64(data[first])
    number = signed(data, first + ONE, i64(FOUR << min(kind - DECIMAL4, ONE)))
    low = u64(number)
    high = u64(number >> i64(SIGN))
    if kind == DECIMAL16:
        high = word_at(data, first + ONE + EIGHT)
    negative = high >> SIGN
    if negative != NONE:
        high, low = negated(high, low)
    upper = NONE
    lower = NONE
    if scale <= LARGEST_SCALE and below(
        high, low, u64(BOUNDS_HIGH[kind - DECIMAL4]), u64(BOUNDS_LOW[kind - DECIMAL4])
    ):
        upper, lower = parts_of(high, low)
    else:
        scale = BROKEN
    return scale, negative, upper, lower


def parts_of(high: Any, low: Any) -> Any:
    """Return quotient and remainder of a number below 10 ** 38, of two words, and 10 ** 19.

    The division of Möller and Granlund ("Improved division by invariant integers").
    """
    quotient, least = product(RECIPROCAL, high)
    least += low
    quotient += high + ONE + (ONE if least < low else NONE)
    rest = low - quotient * UNIT_OF_PART
    if rest > least:
        quotient -= ONE
        rest += UNIT_OF_PART
    if rest >= UNIT_OF_PART:
        quotient += ONE
        rest -= UNIT_OF_PART
    return quotient, rest


def without_zeros(upper: Any, lower: Any, scale: Any) -> Any:
    """Return a number of two parts, and its scale, without zeros behind the point."""
    high = upper
    low = lower
    left = scale
    while left > NONE and low % TEN == NONE:
        low = low // TEN + high % TEN * TENTH_OF_PART
        high //= TEN
        left -= ONE
    return high, low, left


def put_scaled(out: Any, limit: Any, at: Any, upper: Any, lower: Any, scale: Any) -> Any:
    """Write a number of two parts with a scale."""
    whole = upper
    behind = NONE
    if scale >= PART:
        unit = u64(POWERS[scale - PART])
        whole = upper // unit
        behind = upper - whole * unit
    end = at
    if scale >= PART or upper != NONE:
        end = put_number(out, limit, at, whole)
    if scale > PART:
        end = put(out, limit, end, POINT, ONE)
        end = put_digits(out, limit, end, behind, scale - PART)
    if scale >= PART:
        if scale == PART:
            end = put(out, limit, end, POINT, ONE)
        end = put_digits(out, limit, end, lower, PART)
    else:
        unit = u64(POWERS[scale])
        whole = lower // unit
        end = put_digits(out, limit, end, whole, digits_of(whole) if upper == NONE else PART - scale)
        if scale != NONE:
            end = put(out, limit, end, POINT, ONE)
            end = put_digits(out, limit, end, lower - whole * unit, scale)
    return end


SIGNATURES: dict[Any, tuple[str, ...]] = {}
