"""Decimal digits as the nearest double, in integers alone: the method of Eisel and Lemire.

There is no kernel here. ``digits · 10^exponent`` is taken times a power of five of 128 bits, of which the upper 64
decide nearly always, and all 128 always, as Mushtak and Lemire proved (https://arxiv.org/abs/2212.06644). What is
left is a number whose digits were cut off: it lies between two, which may have different doubles.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bowstring.kernels.types import i64, u64

__all__ = ["INFINITY", "SIGN", "nearest_double"]

INFINITY: Final = u64(0x7FF << 52)
SIGN: Final = u64(1 << 63)

_FIRST: Final = -342
_LAST: Final = 308
_ROUNDED_FROM: Final = -27


def _powers() -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return the first 128 bits of each power of five, upper and lower word.

    They are cut off, but for the reciprocals of powers that fit 64 bits, which must be rounded up.
    """
    words: list[int] = []
    for exponent in range(_FIRST, _LAST + 1):
        power = 5 ** abs(exponent)
        found = power << 128 if exponent >= 0 else (1 << 2 * power.bit_length() + 128) // power
        found >>= found.bit_length() - 128
        if _ROUNDED_FROM <= exponent < 0:
            found += 1
        words += (found >> 64, found & (1 << 64) - 1)
    return np.array(words, np.uint64)


POWERS = _powers()
POWERS.flags.writeable = False

SMALLEST = i64(_FIRST)
LARGEST = i64(_LAST)
TWICE = i64(2)
UNDECIDED = u64((1 << 9) - 1)  # the bits of the upper word below the 55 that count
DROPPED = u64(9)
WHOLE = u64(1 << 53)
HIDDEN = u64(1 << 52)
FRACTION = u64(52)
LARGEST_POWER = i64(0x7FF)
LOG = i64(217_706)  # 65,536 · log2(10)
LOG_BITS = i64(16)
BIAS = i64(63 + 1023)
BITS = i64(64)
# Only here can a product be exactly between two doubles.
EXACT_FROM = i64(-4)
EXACT_TO = i64(23)


def high_product(left: Any, right: Any) -> Any:
    """Return the upper 64 bits of a product."""
    left_low = left & 0xFFFFFFFF
    left_high = left >> 32
    right_low = right & 0xFFFFFFFF
    right_high = right >> 32
    middle = left_high * right_low + (left_low * right_low >> 32)
    other = left_low * right_high + (middle & 0xFFFFFFFF)
    return left_high * right_high + (middle >> 32) + (other >> 32)


def leading_zeros(word: Any) -> Any:
    """Return how many zeros are before the first bit of a word that is not 0."""
    rest = word
    count = u64(0)
    step = u64(32)
    while step > 0:
        if rest >> (64 - step) == 0:
            rest = rest << step
            count += step
        step = step >> 1
    return count


def magnitude(digits: Any, exponent: Any) -> Any:
    """Return the bits of the double nearest to ``digits · 10^exponent``."""
    if digits == 0 or exponent < SMALLEST:
        return u64(0)
    if exponent > LARGEST:
        return INFINITY
    zeros = leading_zeros(digits)
    word = digits << zeros
    index = u64((exponent - SMALLEST) * 2)
    power = u64(POWERS[index])
    high = high_product(word, power)
    low = word * power
    if high & UNDECIDED == UNDECIDED:
        further = high_product(word, u64(POWERS[index + 1]))
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
    if fraction >= WHOLE:
        fraction = HIDDEN
        place += 1
    if place >= LARGEST_POWER:
        return INFINITY
    return (u64(place) << FRACTION) | (fraction & ~HIDDEN)


def nearest_double(digits: Any, exponent: Any, more: Any) -> Any:
    """Return the bits of the double nearest to ``digits · 10^exponent``, and 1 where that is known.

    No sign is taken or given; below the doubles it is 0, beyond them infinity.

    `digits` are the first significant ones, at most 19; `more` is 1 where there were further ones behind them,
    which may leave it open.
    """
    bits = magnitude(digits, exponent)
    known = u64(1)
    if more != 0 and magnitude(digits + 1, exponent) != bits:
        known = u64(0)
    return bits, known


SIGNATURES: dict[Any, tuple[str, ...]] = {}
