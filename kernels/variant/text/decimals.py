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

MINUS = u64(ord("-"))
POINT = u64(ord("."))
LARGEST_SCALE = u64(38)
# A number of 38 digits is two of 19.
PART = u64(19)
RECIPROCAL = u64((2**128 - 1) // 10**19 - 2**64)


def put_exact(out: Any, limit: Any, at: Any, data: Any, first: Any, kind: Any, spark: Any) -> Any:
    """Write a decimal with all its digits, in Spark's rules without zeros at its end; BROKEN where it is none."""
    scale, negative, upper, lower = decimal_at(data, first, kind)
    end = BROKEN
    if scale != BROKEN:
        if spark != 0:
            upper, lower, scale = without_zeros(upper, lower, scale)
        end = put(out, limit, at, MINUS, negative)
        end = put_scaled(out, limit, end, upper, lower, scale)
    return end


def decimal_at(data: Any, first: Any, kind: Any) -> Any:
    """Return scale, sign and magnitude, in two parts, of a decimal; the scale is BROKEN where it is none."""
    scale = u64(data[first])
    number = signed(data, first + 1, i64(4 << min(kind - DECIMAL4, u64(1))))
    low = u64(number)
    high = u64(number >> 63)
    if kind == DECIMAL16:
        high = word_at(data, first + 1 + 8)
    negative = high >> 63
    if negative != 0:
        high, low = negated(high, low)
    upper = u64(0)
    lower = u64(0)
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
    quotient += high + 1 + (1 if least < low else 0)
    rest = low - quotient * 10**19
    if rest > least:
        quotient -= 1
        rest += 10**19
    if rest >= 10**19:
        quotient += 1
        rest -= 10**19
    return quotient, rest


def without_zeros(upper: Any, lower: Any, scale: Any) -> Any:
    """Return a number of two parts, and its scale, without zeros behind the point."""
    high = upper
    low = lower
    left = scale
    while left > 0 and low % 10 == 0:
        low = low // 10 + high % 10 * 10**18
        high //= 10
        left -= 1
    return high, low, left


def put_scaled(out: Any, limit: Any, at: Any, upper: Any, lower: Any, scale: Any) -> Any:
    """Write a number of two parts with a scale."""
    whole = upper
    behind = u64(0)
    if scale >= PART:
        unit = u64(POWERS[scale - PART])
        whole = upper // unit
        behind = upper - whole * unit
    end = at
    if scale >= PART or upper != 0:
        end = put_number(out, limit, at, whole)
    if scale > PART:
        end = put(out, limit, end, POINT, u64(1))
        end = put_digits(out, limit, end, behind, scale - PART)
    if scale >= PART:
        if scale == PART:
            end = put(out, limit, end, POINT, u64(1))
        end = put_digits(out, limit, end, lower, PART)
    else:
        unit = u64(POWERS[scale])
        whole = lower // unit
        end = put_digits(out, limit, end, whole, digits_of(whole) if upper == 0 else PART - scale)
        if scale != 0:
            end = put(out, limit, end, POINT, u64(1))
            end = put_digits(out, limit, end, lower - whole * unit, scale)
    return end


SIGNATURES: dict[Any, tuple[str, ...]] = {}
