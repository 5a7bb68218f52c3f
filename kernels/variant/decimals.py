"""Variant's numbers as decimals of one scale: 128 bits in two words.

Work item: one row. Nothing is rounded: what the scale or the precision cannot hold is an overflow. A float, where
floats are taken, is the number of its shortest text.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from bowstring.kernels.floats import FINITE, parts_of_float
from bowstring.kernels.types import i64, u64
from bowstring.kernels.variant import encoding
from bowstring.kernels.variant.encoding import signed
from bowstring.kernels.variant.text.put import shortest
from bowstring.kernels.words import below, by_ten, negated, times_ten

LAST_WORD = i64(3)
ALL = u64(2**64 - 1)
LARGEST_SCALE: Final = u64(38)
# 10 ** 9, 10 ** 18 and 10 ** 38: what decimals of 4, 8 and 16 bytes do not reach.
BOUNDS_HIGH = np.array([0, 0, 10**38 >> 64], np.uint64)
BOUNDS_LOW = np.array([10**9, 10**18, 10**38 & (2**64 - 1)], np.uint64)
BOUNDS_HIGH.flags.writeable = BOUNDS_LOW.flags.writeable = False


def raw_number(data, at):
    """Return a status, whether the exact number at `at` is negative, its magnitude in two words, and its scale."""
    status = encoding.OK
    high = u64(0)
    low = u64(0)
    scale = u64(0)
    negative = False
    header = u64(data[at])
    kind = header >> 2
    width = i64(0)
    if header & encoding.BASIC != encoding.PRIMITIVE:
        status = encoding.TYPE_MISMATCH
    elif kind == 0:
        status = encoding.VARIANT_NULL
    elif kind >= encoding.INT8 and kind <= encoding.INT64:
        width = 1 << i64(kind - encoding.INT8)
        if at + u64(width) >= u64(len(data)):
            status = encoding.MALFORMED
    elif kind >= encoding.DECIMAL4 and kind <= encoding.DECIMAL16:
        width = 1 << i64(kind - 6)
        if at + 1 + u64(width) >= u64(len(data)):
            status = encoding.MALFORMED
        else:
            scale = u64(data[at + 1])
            if scale > LARGEST_SCALE:
                status = encoding.MALFORMED
    else:
        status = encoding.TYPE_MISMATCH
    if status == encoding.OK:
        first = at + 1
        if kind >= encoding.DECIMAL4:
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
        if kind >= encoding.DECIMAL4 and not below(
            high, low, u64(BOUNDS_HIGH[kind - encoding.DECIMAL4]), u64(BOUNDS_LOW[kind - encoding.DECIMAL4])
        ):
            status = encoding.MALFORMED
    return status, negative, high, low, scale


def moved(high, low, steps, rounded):
    """Return a status, and a number of two words times ``10 ** steps``: half a unit goes up if `rounded`, and else
    what would be cut off is an overflow.
    """
    status = encoding.OK
    upper = high
    lower = low
    last = u64(0)
    left = i64(steps)
    while status == encoding.OK and left > 0 and upper | lower != 0:
        upper, lower, fits = times_ten(upper, lower)
        if not fits:
            status = encoding.OVERFLOW
        left -= 1
    while status == encoding.OK and left < 0 and upper | lower | last != 0:
        upper, lower, last = by_ten(upper, lower)
        if last != 0 and not rounded:
            status = encoding.OVERFLOW
        left += 1
    if rounded and last >= 5:
        lower += 1
        if lower == 0:
            upper += 1
    return status, upper, lower


def number_at(data, at, floats):
    """Return what :func:`raw_number` does, and with `floats` the digits and the scale of a float's shortest text:
    the scale may be negative.
    """
    header = u64(data[at])
    kind = header >> 2
    status = encoding.OK
    negative = False
    high = u64(0)
    low = u64(0)
    scale = i64(0)
    if (
        floats != 0
        and header & encoding.BASIC == encoding.PRIMITIVE
        and (kind == encoding.KIND_DOUBLE or kind == encoding.KIND_FLOAT)
    ):
        size = i64(encoding.SIZES[kind])
        status = encoding.MALFORMED
        if at + u64(size) < u64(len(data)):
            bits = u64(signed(data, at + 1, size))
            negative, _mantissa, _exponent, finite = parts_of_float(bits, size)
            status = encoding.OVERFLOW
            if finite == FINITE:
                status = encoding.OK
                low, exponent = shortest(bits & ((u64(1) << u64(8 * size - 1)) - 1), size)
                scale = -exponent
    else:
        status, negative, high, low, found = raw_number(data, at)
        scale = i64(found)
    return status, negative, high, low, scale


def cast_decimals(i, data, places, scale, bound_high, bound_low, floats, statuses, out):
    """Write decimals of two words, the lower first; rows of a status other than ``OK`` become 0."""
    high = u64(0)
    low = u64(0)
    if statuses[i] == encoding.OK:
        at = u64(places[i])
        status = encoding.MALFORMED
        high = u64(0)
        low = u64(0)
        if at < u64(len(data)):
            status, negative, high, low, own = number_at(data, at, floats)
            if status == encoding.OK:
                status, high, low = moved(high, low, i64(scale) - own, False)
            if status == encoding.OK and not below(high, low, bound_high, bound_low):
                status = encoding.OVERFLOW
            if status != encoding.OK:
                high = u64(0)
                low = u64(0)
            elif negative:
                high, low = negated(high, low)
        statuses[i] = status
    out[i << 1] = low
    out[(i << 1) + 1] = high


def times_ten_wide(out, first):
    """Multiply a number of four words in `out` by ten; return what does not fit."""
    carry = u64(0)
    for k in range(first, first + 4):
        word = u64(out[k])
        lower = (word & 0xFFFFFFFF) * 10 + carry
        upper = (word >> 32) * 10 + (lower >> 32)
        out[k] = (upper << 32) | (lower & 0xFFFFFFFF)
        carry = upper >> 32
    return carry


def is_below_wide(out, first, bounds):
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


def cast_decimals_256(i, data, places, scale, floats, bounds, statuses, out):
    """Write decimals of four words below those of `bounds`; rows of a status other than ``OK`` become 0.

    Where `floats` is 0, no float becomes one.
    """
    first = i * 4
    for k in range(first, first + 4):
        out[k] = 0
    at = u64(places[i])
    if statuses[i] == encoding.OK:
        status = encoding.MALFORMED
        if at < u64(len(data)):
            status, negative, high, low, own = number_at(data, at, floats)
            steps = i64(scale) - own
            # Towards fewer digits nothing grows: two words are enough.
            if status == encoding.OK and steps < 0:
                status, high, low = moved(high, low, steps, False)
            if status == encoding.OK:
                out[first] = low
                out[first + 1] = high
                if high | low == 0:
                    steps = i64(0)
                while status == encoding.OK and steps > 0:
                    if times_ten_wide(out, first) != 0:
                        status = encoding.OVERFLOW
                    steps -= 1
                if status == encoding.OK and not is_below_wide(out, first, bounds):
                    status = encoding.OVERFLOW
                if status != encoding.OK:
                    for k in range(first, first + 4):
                        out[k] = 0
                elif negative:
                    borrow = u64(1)
                    for k in range(first, first + 4):
                        word = ~u64(out[k]) + borrow
                        if word != 0:
                            borrow = u64(0)
                        out[k] = word
        statuses[i] = status


SIGNATURES = {
    cast_decimals: ("u8[], u64[], u64, u64, u64, i64, u8[]!, u64[]!",),
    cast_decimals_256: ("u8[], u64[], u64, i64, u64[], u8[]!, u64[]!",),
}
