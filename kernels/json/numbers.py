"""Numbers of JSON: integers, decimals with all their digits, and doubles.

There is no kernel here. Places are ``u64`` and lie before `stop`, the end of the row.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bowstring.kernels.json.format import DECIMAL, END, INTEGER, RANGE, READ, UNDECIDED, UNEXPECTED, WIDE
from bowstring.kernels.types import i64, u64

__all__ = ["INFINITY", "SIGN", "nearest_double", "number", "wide_digits"]


CASE = u64(0x20)

IN_A_WORD: Final = i64(19)
"""Digits that a word holds, whatever they are."""
LARGEST_EXPONENT = i64(1 << 40)  # any text is shorter

# The first byte of the encoding of each type, and how long that is.
INT8 = u64(3 << 2)
INT16 = u64(4 << 2)
INT32 = u64(5 << 2)
INT64 = u64(6 << 2)
DOUBLE = u64(7 << 2)
DECIMAL4 = u64(8 << 2)
DECIMAL8 = u64(9 << 2)
DECIMAL16 = u64(10 << 2)
SIZE_DECIMAL4 = u64(6)
SIZE_DECIMAL8 = u64(10)
SIZE_DECIMAL16 = u64(18)


INFINITY: Final = u64(0x7FF << 52)
SIGN: Final = u64(1 << 63)

_FIRST: Final = -342
_LAST: Final = 308
_ROUNDED_FROM: Final = -27


def byte_at(data: Any, at: Any, stop: Any) -> Any:
    """Return a byte, 0 at the end."""
    return u64(data[at]) if at < stop else u64(0)


def number(data: Any, start: Any, stop: Any, spark: Any) -> Any:
    """Return where a number ends, a status, and the node's head, body and size."""
    at = start
    negative = u64(data[at]) == ord("-")
    if negative:
        at += 1
    digits = u64(0)
    count = i64(0)
    scale = i64(0)
    status = READ
    byte = byte_at(data, at, stop)
    if byte == ord("0"):
        at += 1
        byte = byte_at(data, at, stop)
    elif byte - ord("0") < 10:
        while byte - ord("0") < 10:
            if count < IN_A_WORD:
                digits = digits * 10 + (byte - ord("0"))
            count += 1
            at += 1
            byte = byte_at(data, at, stop)
    else:
        status = UNEXPECTED
    head = u64(0)
    body = u64(0)
    size = u64(9)
    if byte != ord(".") and (byte | 0x20) != ord("e") and count < IN_A_WORD:
        head, body, size = integer(i64(digits), negative)
    elif status == READ:
        whole = True
        if byte == ord("."):
            whole = False
            first = at + 1
            at = first
            byte = byte_at(data, at, stop)
            while byte - ord("0") < 10:
                if count > 0 or byte != ord("0"):
                    if count < IN_A_WORD:
                        digits = digits * 10 + (byte - ord("0"))
                    count += 1
                at += 1
                byte = byte_at(data, at, stop)
            scale = i64(at - first)
            if scale == 0:
                status = UNEXPECTED
        exponent = i64(0)
        real = False
        if status == READ and (byte | 0x20) == ord("e"):
            real = True
            at, exponent, status = power(data, at + 1, stop)
        if status == READ:
            head, body, size, status = typed(
                start, digits, count, scale, exponent, negative, whole, real, spark
            )
    if status == UNEXPECTED and at >= stop:
        status = END
    return at, status, head, body, size


def power(data: Any, start: Any, stop: Any) -> Any:
    """Return where an exponent ends, which begins behind its letter, its value, and a status."""
    at = start
    byte = byte_at(data, at, stop)
    negative = byte == ord("-")
    if negative or byte == ord("+"):
        at += 1
        byte = byte_at(data, at, stop)
    exponent = i64(0)
    status = UNEXPECTED
    while byte - ord("0") < 10:
        status = READ
        if exponent < LARGEST_EXPONENT:
            exponent = exponent * 10 + i64(byte - ord("0"))
        at += 1
        byte = byte_at(data, at, stop)
    if negative:
        exponent = -exponent
    return at, exponent, status


def integer(value: Any, negative: Any) -> Any:
    """Return the node of an integer of this magnitude, in the narrowest type that holds it."""
    signed = -value if negative else value
    least = ~signed if negative and value > 0 else signed
    header = INT64
    size = u64(9)
    if least <= 0x7F:
        header = INT8
        size = u64(2)
    elif least <= 0x7FFF:
        header = INT16
        size = u64(3)
    elif least <= 0x7FFFFFFF:
        header = INT32
        size = u64(5)
    return INTEGER | header << 8, u64(signed), size


def typed(
    start: Any,
    digits: Any,
    count: Any,
    scale: Any,
    exponent: Any,
    negative: Any,
    whole: Any,
    real: Any,
    spark: Any,
) -> Any:
    """Return the node of any other number, and a status.

    `digits` are the first of `count` significant ones, `scale` is how many of all are behind the point.
    """
    status = READ
    head = u64(0)
    body = u64(0)
    size = u64(9)
    zero_below = digits == 0 and negative and spark == 0 and not whole
    if whole and not real and count == IN_A_WORD and digits <= ((1 << 63) - 1) + u64(negative):
        head = INTEGER | INT64 << 8
        body = ~digits + 1 if negative else digits
    elif not real and count <= 38 and scale <= 38 and not zero_below:
        head, body, size = decimal(start, digits, count, scale, negative)
    else:
        cut = max(count - IN_A_WORD, i64(0))
        body, known = nearest_double(digits, exponent - scale + cut, u64(cut > 0))
        if known == 0:
            head = UNDECIDED | DOUBLE << 8
            body = start
        else:
            head = INTEGER | DOUBLE << 8
            if body == INFINITY and spark == 0:
                status = RANGE
            if negative:
                body |= SIGN
    return head, body, size, status


def decimal(start: Any, digits: Any, count: Any, scale: Any, negative: Any) -> Any:
    """Return the node of a decimal, in the narrowest type that holds its digits and its scale."""
    header = DECIMAL16
    size = SIZE_DECIMAL16
    if count <= 9 and scale <= 9:
        header = DECIMAL4
        size = SIZE_DECIMAL4
    elif count <= 18 and scale <= 18:
        header = DECIMAL8
        size = SIZE_DECIMAL8
    kind = DECIMAL
    body = ~digits + 1 if negative else digits
    if count > 18:
        kind = WIDE
        body = start
    return kind | header << 8 | u64(scale) << 16, body, size


def wide_digits(data: Any, start: Any, stop: Any) -> Any:
    """Return all digits of a number as an integer of two words, the upper first."""
    at = start
    negative = byte_at(data, at, stop) == ord("-")
    if negative:
        at += 1
    high = u64(0)
    low = u64(0)
    byte = byte_at(data, at, stop)
    while byte - ord("0") < 10 or byte == ord("."):
        if byte != ord("."):
            lower = (low & 0xFFFFFFFF) * 10 + (byte - ord("0"))
            upper = (low >> 32) * 10 + (lower >> 32)
            low = (lower & 0xFFFFFFFF) | (upper & 0xFFFFFFFF) << 32
            high = high * 10 + (upper >> 32)
        at += 1
        byte = byte_at(data, at, stop)
    if negative:
        low = ~low + 1
        high = ~high
        if low == 0:
            high += 1
    return high, low


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
TOO_CLOSE = u64((1 << 9) - 1)  # the bits of the upper word below the 55 that count
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
    if high & TOO_CLOSE == TOO_CLOSE:
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
