"""Variant's exact numbers, whole ones and decimals, as decimals of one scale: 128 bits in two words.

Work item: one row. Nothing is rounded: what the scale or the precision cannot hold is an overflow.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bowstring.kernels.types import i64, u64
from bowstring.kernels.variant.format import (
    BASIC,
    DECIMAL4,
    DECIMAL16,
    INT8,
    INT64,
    MALFORMED,
    OK,
    OVERFLOW,
    PRIMITIVE,
    TYPE_MISMATCH,
    VARIANT_NULL,
    signed,
)
from bowstring.kernels.words import below, by_ten, negated, times_ten

__all__ = [
    "BOUNDS_HIGH",
    "BOUNDS_LOW",
    "SIGNATURES",
    "cast_decimals",
    "cast_decimals_256",
    "exact_number",
    "raw_number",
]

LAST_WORD = i64(3)
ALL = u64(2**64 - 1)
LARGEST_SCALE: Final = u64(38)
# 10 ** 9, 10 ** 18 and 10 ** 38: what decimals of 4, 8 and 16 bytes do not reach.
BOUNDS_HIGH = np.array([0, 0, 10**38 >> 64], np.uint64)
BOUNDS_LOW = np.array([10**9, 10**18, 10**38 & (2**64 - 1)], np.uint64)
BOUNDS_HIGH.flags.writeable = BOUNDS_LOW.flags.writeable = False


def raw_number(data: Any, at: Any) -> Any:
    """Return a status, whether the exact number at `at` is negative, its magnitude in two words, and its scale."""
    status = OK
    high = u64(0)
    low = u64(0)
    scale = u64(0)
    negative = False
    header = u64(data[at])
    kind = header >> 2
    width = i64(0)
    if header & BASIC != PRIMITIVE:
        status = TYPE_MISMATCH
    elif kind == 0:
        status = VARIANT_NULL
    elif kind >= INT8 and kind <= INT64:
        width = 1 << i64(kind - INT8)
        if at + u64(width) >= u64(len(data)):
            status = MALFORMED
    elif kind >= DECIMAL4 and kind <= DECIMAL16:
        width = 1 << i64(kind - 6)
        if at + 1 + u64(width) >= u64(len(data)):
            status = MALFORMED
        else:
            scale = u64(data[at + 1])
            if scale > LARGEST_SCALE:
                status = MALFORMED
    else:
        status = TYPE_MISMATCH
    if status == OK:
        first = at + 1
        if kind >= DECIMAL4:
            first += 1
        number = signed(data, first, min(width, i64(8)))
        low = u64(number)
        negative = number < 0
        if negative:
            high = ALL
        if width > 8:
            number = signed(data, first + 8, i64(8))
            high = u64(number)
            negative = number < 0
        if negative:
            high, low = negated(high, low)
        if kind >= DECIMAL4 and not below(
            high, low, u64(BOUNDS_HIGH[kind - DECIMAL4]), u64(BOUNDS_LOW[kind - DECIMAL4])
        ):
            status = MALFORMED
    return status, negative, high, low, scale


def exact_number(data: Any, at: Any, wanted_scale: Any) -> Any:
    """Return a status, whether the number at `at` is negative, and its magnitude at a scale in two words."""
    status, negative, high, low, scale = raw_number(data, at)
    while status == OK and scale < wanted_scale:
        high, low, fits = times_ten(high, low)
        if not fits:
            status = OVERFLOW
        scale += 1
    while status == OK and scale > wanted_scale:
        high, low, rest = by_ten(high, low)
        if rest != 0:
            status = OVERFLOW
        scale -= 1
    return status, negative, high, low


def decimal_of(data: Any, at: Any, scale: Any, bound_high: Any, bound_low: Any, negatives: Any) -> Any:
    """Return a status and the decimal at `at`, at a scale and below a bound, in two words.

    Where `negatives` is 0, none is negative.
    """
    status = MALFORMED
    high = u64(0)
    low = u64(0)
    if at < u64(len(data)):
        status, negative, high, low = exact_number(data, at, scale)
        unsigned = negatives == 0 and negative and high | low != 0
        if status == OK and (unsigned or not below(high, low, bound_high, bound_low)):
            status = OVERFLOW
        if status != OK:
            high = u64(0)
            low = u64(0)
        elif negative:
            high, low = negated(high, low)
    return status, high, low


def cast_decimals(
    i: Any,
    data: Any,
    places: Any,
    scale: Any,
    bound_high: Any,
    bound_low: Any,
    negatives: Any,
    statuses: Any,
    out: Any,
) -> None:
    """Write decimals of two words, the lower first; what is no row of status ``OK`` becomes 0."""
    high = u64(0)
    low = u64(0)
    if statuses[i] == OK:
        status, high, low = decimal_of(data, u64(places[i]), scale, bound_high, bound_low, negatives)
        statuses[i] = status
    out[i << 1] = low
    out[(i << 1) + 1] = high


def times_ten_wide(out: Any, first: Any) -> Any:
    """Multiply a number of four words in `out` by ten; return what does not fit."""
    carry = u64(0)
    for k in range(first, first + 4):
        word = u64(out[k])
        lower = (word & 0xFFFFFFFF) * 10 + carry
        upper = (word >> 32) * 10 + (lower >> 32)
        out[k] = (upper << 32) | (lower & 0xFFFFFFFF)
        carry = upper >> 32
    return carry


def is_below_wide(out: Any, first: Any, bounds: Any) -> Any:
    """Return whether a number of four words in `out` is less than that in `bounds`."""
    order = i64(0)
    for k in range(4):
        word = u64(out[first + LAST_WORD - k])
        bound = u64(bounds[LAST_WORD - k])
        if order == 0 and word < bound:
            order = i64(-1)
        elif order == 0 and word > bound:
            order = i64(1)
    return order < 0


def negate_wide(out: Any, first: Any) -> None:
    """Change the sign of a number of four words in `out`."""
    carry = u64(1)
    for k in range(first, first + 4):
        word = ~u64(out[k]) + carry
        if word != 0:
            carry = u64(0)
        out[k] = word


def cast_decimals_256(
    i: Any, data: Any, places: Any, scale: Any, bounds: Any, statuses: Any, out: Any
) -> None:
    """Write decimals of four words below those of `bounds`; what is no row of status ``OK`` becomes 0."""
    first = i * 4
    for k in range(first, first + 4):
        out[k] = 0
    at = u64(places[i])
    if statuses[i] == OK:
        status = MALFORMED
        if at < u64(len(data)):
            status, negative, high, low, found = raw_number(data, at)
            # Towards fewer digits nothing grows: two words are enough.
            while status == OK and found > scale:
                high, low, rest = by_ten(high, low)
                if rest != 0:
                    status = OVERFLOW
                found -= 1
            if status == OK:
                out[first] = low
                out[first + 1] = high
                while status == OK and found < scale:
                    if times_ten_wide(out, first) != 0:
                        status = OVERFLOW
                    found += 1
                if status == OK and not is_below_wide(out, first, bounds):
                    status = OVERFLOW
                if status != OK:
                    for k in range(first, first + 4):
                        out[k] = 0
                elif negative:
                    negate_wide(out, first)
        statuses[i] = status


SIGNATURES = {
    cast_decimals: ("u8[], u64[], u64, u64, u64, i64, u8[]!, u64[]!",),
    cast_decimals_256: ("u8[], u64[], u64, u64[], u8[]!, u64[]!",),
}
