"""Doubles and floats put together and taken apart in integers: no arithmetic of floats is the same in every run."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bowstring.kernels.types import i64, u64

__all__ = ["SIGNATURES", "decimal_ratio", "packed_float", "parts_of_float", "scaled_float", "widened"]

ZERO = i64(0)
UNIT = i64(1)
NONE = u64(0)
ONE = u64(1)
SIGN = u64(63)
LAST = i64(63)
WORD = i64(64)
SIXTY_THREE = i64(63)
HALF = i64(32)
HALF_BITS = u64(32)
LOW_HALF = u64(0xFFFFFFFF)
WIDER = u64(29)
TOP_BIT = u64(1 << 63)
DOUBLE_BITS = i64(53)
SINGLE_BITS = i64(24)
DOUBLE_LEAST = i64(-1074)
SINGLE_LEAST = i64(-149)
DOUBLE_MOST = i64(1023)
SINGLE_MOST = i64(127)
DOUBLE_INFINITY = u64(0x7FF << 52)
SINGLE_INFINITY = u64(0xFF << 23)
DOUBLE_FRACTION = u64((1 << 52) - 1)
SINGLE_FRACTION = u64((1 << 23) - 1)
DOUBLE_SHIFT = u64(52)
SINGLE_SHIFT = u64(23)
DOUBLE_EXPONENTS = u64(0x7FF)
SINGLE_EXPONENTS = u64(0xFF)
SINGLE_SIGN = u64(31)

# 10 ** k in two words.
_TENS = [10**k for k in range(39)]
TENS_HIGH = np.array([each >> 64 for each in _TENS], np.uint64)
TENS_LOW = np.array([each & (2**64 - 1) for each in _TENS], np.uint64)
TENS_HIGH.flags.writeable = False
TENS_LOW.flags.writeable = False
FINITE: Final = i64(0)
INFINITE: Final = i64(1)
NOT_A_NUMBER: Final = i64(2)


def leading_zeros(word: Any) -> Any:
    """Return how many bits lie above the highest that is set; 64 where none is."""
    count = ZERO
    rest = word
    if rest == NONE:
        count = WORD
    else:
        step = HALF
        while step > ZERO:
            if rest >> u64(WORD - step) == NONE:
                rest = rest << u64(step)
                count += step
            step = step >> UNIT
    return count


def shifted_up(high: Any, low: Any, count: Any) -> Any:
    """Return a number of two words times ``2 ** count``, of less than 128."""
    upper = high
    lower = low
    if count >= WORD:
        upper = lower << u64(count - WORD)
        lower = NONE
    elif count > ZERO:
        upper = (upper << u64(count)) | (lower >> u64(WORD - count))
        lower = lower << u64(count)
    return upper, lower


def packed_float(negative: Any, mantissa: Any, exponent: Any, sticky: Any, single: Any) -> Any:
    """Return the bits of the double, or `single` float, nearest to ``mantissa * 2 ** exponent``; ties to even.

    `sticky` is not zero where the number is a little more than that.
    """
    digits = DOUBLE_BITS
    least = DOUBLE_LEAST
    most = DOUBLE_MOST
    infinity = DOUBLE_INFINITY
    sign = SIGN
    if single:
        digits = SINGLE_BITS
        least = SINGLE_LEAST
        most = SINGLE_MOST
        infinity = SINGLE_INFINITY
        sign = SINGLE_SIGN
    bits = NONE
    if mantissa != NONE:
        zeros = leading_zeros(mantissa)
        top = mantissa << u64(zeros)
        # The number lies in [2 ** power, 2 ** (power + 1)).
        power = exponent - zeros + LAST
        drop = max(WORD - digits, least - (power - LAST))
        if drop < WORD:
            bits = top >> u64(drop)
            rest = top << u64(WORD - drop)
        elif drop == WORD:
            rest = top
        else:
            rest = ONE
        if rest > TOP_BIT or (rest == TOP_BIT and (sticky != NONE or bits & ONE != NONE)):
            bits += ONE
        # A normal number has its highest bit where the exponent begins, which so counts one too many.
        if drop == WORD - digits:
            bits += u64(power + most - UNIT) << u64(digits - UNIT)
        if power > most or bits > infinity:
            bits = infinity
    if negative:
        bits |= ONE << sign
    return bits


def parts_of_float(bits: Any, single: Any) -> Any:
    """Return whether a float is negative, its mantissa and exponent, and its kind: finite, infinite or NaN."""
    shift = DOUBLE_SHIFT
    fraction = DOUBLE_FRACTION
    exponents = DOUBLE_EXPONENTS
    least = DOUBLE_LEAST
    sign = SIGN
    if single:
        shift = SINGLE_SHIFT
        fraction = SINGLE_FRACTION
        exponents = SINGLE_EXPONENTS
        least = SINGLE_LEAST
        sign = SINGLE_SIGN
    mantissa = bits & fraction
    biased = (bits >> shift) & exponents
    exponent = least
    kind = FINITE
    if biased == exponents:
        kind = NOT_A_NUMBER
        if mantissa == NONE:
            kind = INFINITE
    elif biased != NONE:
        mantissa |= ONE << shift
        exponent = least + i64(biased) - UNIT
    return (bits >> sign) & ONE != NONE, mantissa, exponent, kind


def widened(bits: Any) -> Any:
    """Return the bits of the double that a float is."""
    negative, mantissa, exponent, kind = parts_of_float(bits, True)
    wide = DOUBLE_INFINITY
    if kind == FINITE:
        wide = packed_float(negative, mantissa, exponent, NONE, False)
    else:
        # What is no number stays as it is, with its payload.
        if kind == NOT_A_NUMBER:
            wide |= mantissa << WIDER
        if negative:
            wide |= ONE << SIGN
    return wide


def decimal_ratio(high: Any, low: Any, scale: Any) -> Any:
    """Return ``number / 10 ** scale`` for a number of two words as a mantissa, an exponent, and what is more."""
    mantissa = NONE
    exponent = ZERO
    sticky = NONE
    if high | low != NONE:
        up = leading_zeros(high)
        if high == NONE:
            up = WORD + leading_zeros(low)
        # Both with their highest bits at the same place, one below the top.
        rest_high, rest_low = shifted_up(high, low, max(up - UNIT, ZERO))
        by_high = u64(TENS_HIGH[scale])
        by_low = u64(TENS_LOW[scale])
        by_up = leading_zeros(by_high)
        if by_high == NONE:
            by_up = WORD + leading_zeros(by_low)
        by_high, by_low = shifted_up(by_high, by_low, by_up - UNIT)
        exponent = by_up - up - SIXTY_THREE
        for _ in range(ZERO, WORD):
            mantissa = mantissa << ONE
            if rest_high > by_high or (rest_high == by_high and rest_low >= by_low):
                if rest_low < by_low:
                    rest_high -= ONE
                rest_high -= by_high
                rest_low -= by_low
                mantissa |= ONE
            rest_high = (rest_high << ONE) | (rest_low >> SIGN)
            rest_low = rest_low << ONE
        sticky = rest_high | rest_low
    return mantissa, exponent, sticky


def scaled_float(mantissa: Any, exponent: Any, factor: Any) -> Any:
    """Return ``mantissa * factor`` as a mantissa, an exponent and what is more, for numbers below ``2 ** 53``."""
    low = (mantissa & LOW_HALF) * factor
    high = (mantissa >> HALF_BITS) * factor + (low >> HALF_BITS)
    low = (high << HALF_BITS) | (low & LOW_HALF)
    high = high >> HALF_BITS
    zeros = leading_zeros(high)
    if high == NONE:
        zeros = WORD
    upper, lower = shifted_up(high, low, zeros)
    return upper, exponent + WORD - zeros, lower


SIGNATURES: dict[Any, tuple[str, ...]] = {}
