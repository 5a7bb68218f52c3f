"""Doubles and floats put together, taken apart and found from decimals, in integers.

No arithmetic of floats is the same in every run. There is no kernel here.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bowstring.kernels.types import i64, u64
from bowstring.kernels.words import leading_zeros, product, shifted_up

HALF: Final = i64(2)
SINGLE: Final = i64(4)
DOUBLE: Final = i64(8)
"""Floats, by their bytes."""

WIDER = u64(29)
HALF_INFINITY: Final = u64(0x1F << 10)
# The least double that is a normal float of four and of two bytes.
SINGLE_LEAST_NORMAL: Final = u64(897 << 52)
HALF_LEAST_NORMAL = u64(1009 << 52)
DOUBLE_INFINITY: Final = u64(0x7FF << 52)
SINGLE_INFINITY: Final = u64(0xFF << 23)
SINGLE_NAN: Final = u64(0x7FC << 20)
DOUBLE_FRACTION = u64((1 << 52) - 1)
DOUBLE_SHIFT = u64(52)

# 10 ** k in two words.
_TENS = [10**k for k in range(39)]
TENS_HIGH = np.array([each >> 64 for each in _TENS], np.uint64)
TENS_LOW = np.array([each & (2**64 - 1) for each in _TENS], np.uint64)
TENS_HIGH.flags.writeable = False
TENS_LOW.flags.writeable = False
FINITE: Final = i64(0)
INFINITE: Final = i64(1)
NOT_A_NUMBER: Final = i64(2)


def format_of(size):
    """Return the digits of a float of some bytes, its largest exponent, and the bit of its sign."""
    digits = i64(53)
    if size == SINGLE:
        digits = i64(24)
    elif size == HALF:
        digits = i64(11)
    return digits, (i64(1) << (8 * size - digits - 1)) - 1, u64(8 * size - 1)


def packed_float(negative, mantissa, exponent, sticky, size):
    """Return the bits of the float of some bytes nearest to ``mantissa * 2 ** exponent``; ties to even.

    `sticky` is not zero where the number is a little more than that.
    """
    digits, most, sign = format_of(size)
    infinity = u64(2 * most + 1) << u64(digits - 1)
    bits = u64(0)
    if mantissa != 0:
        zeros = leading_zeros(mantissa)
        top = mantissa << u64(zeros)
        # The number lies in [2 ** power, 2 ** (power + 1)); the least float is 2 ** (2 - most - digits).
        power = exponent - zeros + 63
        drop = max(64 - digits, 2 - most - digits - (power - 63))
        if drop < 64:
            bits = top >> u64(drop)
            rest = top << u64(64 - drop)
        elif drop == 64:
            rest = top
        else:
            rest = u64(1)
        if rest > (1 << 63) or (rest == (1 << 63) and (sticky != 0 or bits & 1 != 0)):
            bits += 1
        # A normal number has its highest bit where the exponent begins, which so counts one too many.
        if drop == 64 - digits:
            bits += u64(power + most - 1) << u64(digits - 1)
        if power > most or bits > infinity:
            bits = infinity
    if negative:
        bits |= 1 << sign
    return bits


def parts_of_float(bits, size):
    """Return whether a float is negative, its mantissa and exponent, and its kind: finite, infinite or NaN."""
    digits, most, sign = format_of(size)
    hidden = u64(1) << u64(digits - 1)
    exponents = u64(2 * most + 1)
    mantissa = bits & (hidden - 1)
    biased = (bits >> u64(digits - 1)) & exponents
    exponent = 2 - most - digits
    kind = FINITE
    if biased == exponents:
        kind = NOT_A_NUMBER
        if mantissa == 0:
            kind = INFINITE
    elif biased != 0:
        mantissa |= hidden
        exponent += i64(biased) - 1
    return (bits >> sign) & 1 != 0, mantissa, exponent, kind


def widened(bits):
    """Return the bits of the double that a float is."""
    negative, mantissa, exponent, kind = parts_of_float(bits, SINGLE)
    wide = DOUBLE_INFINITY
    if kind == FINITE:
        wide = packed_float(negative, mantissa, exponent, u64(0), DOUBLE)
    else:
        # What is no number stays as it is, with its payload.
        if kind == NOT_A_NUMBER:
            wide |= mantissa << WIDER
        if negative:
            wide |= u64(1) << u64(63)
    return wide


def decimal_ratio(high, low, scale):
    """Return ``number / 10 ** scale`` for a number of two words as a mantissa, an exponent, and what is more."""
    mantissa = u64(0)
    exponent = i64(0)
    sticky = u64(0)
    if high | low != 0:
        up = leading_zeros(high)
        if high == 0:
            up = 64 + leading_zeros(low)
        # Both with their highest bits at the same place, one below the top.
        rest_high, rest_low = shifted_up(high, low, max(up - 1, i64(0)))
        by_high = u64(TENS_HIGH[scale])
        by_low = u64(TENS_LOW[scale])
        by_up = leading_zeros(by_high)
        if by_high == 0:
            by_up = 64 + leading_zeros(by_low)
        by_high, by_low = shifted_up(by_high, by_low, by_up - 1)
        exponent = by_up - up - 63
        for _ in range(64):
            mantissa = mantissa << 1
            if rest_high > by_high or (rest_high == by_high and rest_low >= by_low):
                if rest_low < by_low:
                    rest_high -= 1
                rest_high -= by_high
                rest_low -= by_low
                mantissa |= 1
            rest_high = (rest_high << 1) | (rest_low >> 63)
            rest_low = rest_low << 1
        sticky = rest_high | rest_low
    return mantissa, exponent, sticky


def float_of_decimal(negative, high, low, scale, size):
    """Return the bits of the float of 2, 4 or 8 bytes nearest to a decimal of two words; ties to even."""
    bits = u64(0)
    known = high == 0
    mantissa = low
    exponent = i64(0)
    sticky = u64(0)
    if known and scale != 0:
        bits, _known = nearest_double(low, -i64(scale), u64(0))
        # A narrower float is that of the double, but where this lies half way between two of them.
        known = size == DOUBLE or not is_halfway(bits, size)
        _negative, mantissa, exponent, _kind = parts_of_float(bits, DOUBLE)
    if not known:
        mantissa, exponent, sticky = decimal_ratio(high, low, scale)
    if size != DOUBLE or not known or scale == 0:
        bits = packed_float(negative, mantissa, exponent, sticky, size)
    elif negative:
        bits |= 1 << 63
    return bits


def is_halfway(bits, size):
    """Return whether a positive double may be half way between two floats of 2 or 4 bytes."""
    drop = WIDER
    least_normal = SINGLE_LEAST_NORMAL
    if size == HALF:
        drop = u64(42)
        least_normal = HALF_LEAST_NORMAL
    half = u64(1) << (drop - 1)
    rest = bits & ((half << 1) - 1)
    # Below the normal floats more digits are dropped, how many is not asked.
    return rest == half or (bits < least_normal and rest & (half - 1) == 0)


def scaled_float(mantissa, exponent, factor):
    """Return ``mantissa * factor`` as a mantissa, an exponent and what is more, for numbers below ``2 ** 53``."""
    high, low = product(mantissa, factor)
    zeros = leading_zeros(high)
    if high == 0:
        zeros = i64(64)
    upper, lower = shifted_up(high, low, zeros)
    return upper, exponent + 64 - zeros, lower


_FIRST: Final = -342
_LAST: Final = 308
_ROUNDED_FROM: Final = -27


def powers_of_ten(first: int, last: int, *, up_from: int, up_to: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return the first 128 bits of powers of ten, upper and lower word: those of some exponents rounded up."""
    words: list[int] = []
    for exponent in range(first, last + 1):
        power = 5 ** abs(exponent)
        exact = power << 128 if exponent >= 0 else (1 << 2 * power.bit_length() + 128) // power
        kept = exact >> exact.bit_length() - 128
        if up_from <= exponent < up_to:
            kept += exponent < 0 or kept << exact.bit_length() - 128 != exact
        words += (kept >> 64, kept & (1 << 64) - 1)
    table = np.array(words, np.uint64)
    table.flags.writeable = False
    return table


# Cut off, but for the reciprocals of powers that fit 64 bits, which must be rounded up.
POWERS = powers_of_ten(_FIRST, _LAST, up_from=_ROUNDED_FROM, up_to=0)

SMALLEST = i64(_FIRST)
LARGEST = i64(_LAST)
TOO_CLOSE = u64((1 << 9) - 1)  # the bits of the upper word below the 55 that count
DROPPED = u64(9)
LOG = i64(217_706)  # 65,536 · log2(10)
LOG_BITS = i64(16)
BIAS = i64(63 + 1023)
# Only here can a product be exactly between two doubles.
EXACT_FROM = i64(-4)
EXACT_TO = i64(23)


def double_of(digits, exponent):
    """Return the bits of the double nearest to ``digits · 10^exponent``."""
    if digits == 0 or exponent < SMALLEST:
        return u64(0)
    if exponent > LARGEST:
        return DOUBLE_INFINITY
    zeros = u64(leading_zeros(digits))
    word = digits << zeros
    index = u64((exponent - SMALLEST) * 2)
    power = u64(POWERS[index])
    high, low = product(word, power)
    if high & TOO_CLOSE == TOO_CLOSE:
        further, _ = product(word, u64(POWERS[index + 1]))
        low += further
        if further > low:
            high += 1
    upper = high >> 63
    fraction = high >> (upper + DROPPED)
    place = ((LOG * exponent) >> LOG_BITS) + BIAS + i64(upper) - i64(zeros)
    if place <= 0:
        # Below the normal doubles there is no hidden bit, and fewer digits.
        if 1 - place >= 64:
            return u64(0)
        fraction = fraction >> u64(1 - place)
        return (fraction + (fraction & 1)) >> 1
    tie = low <= 1 and EXACT_FROM <= exponent <= EXACT_TO and fraction & 3 == 1
    if tie and fraction << (upper + DROPPED) == high:
        fraction = fraction & ~u64(1)
    fraction = (fraction + (fraction & 1)) >> 1
    if fraction >= 1 << 53:
        fraction = u64(1 << 52)
        place += 1
    if place >= 0x7FF:
        return DOUBLE_INFINITY
    return (u64(place) << DOUBLE_SHIFT) | (fraction & DOUBLE_FRACTION)


def nearest_double(digits, exponent, more):
    """Return the bits of the double nearest to ``digits · 10^exponent``, without sign, and 1 where that is known.
    `digits` are the first significant ones, at most 19; `more` is 1 where there were further ones.
    Below the doubles it is 0, beyond them infinity.
    """
    bits = double_of(digits, exponent)
    known = u64(1)
    if more != 0 and double_of(digits + 1, exponent) != bits:
        known = u64(0)
    return bits, known
