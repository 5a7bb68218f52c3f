"""Numbers of JSON: integers, decimals with all their digits, and doubles.

There is no kernel here. Places are ``u64`` and lie before `stop`, the end of the row.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.json.doubles import INFINITY, SIGN, nearest_double
from bowstring.kernels.json.format import DECIMAL, END, INTEGER, RANGE, READ, UNDECIDED, UNEXPECTED, WIDE
from bowstring.kernels.types import i64, u64

__all__ = ["number", "wide_digits"]

ZERO = i64(0)
UNIT = i64(1)
NONE = u64(0)
ONE = u64(1)
TEN = u64(10)
BASE = i64(10)
BYTE = u64(8)
TWO_BYTES = u64(16)
HALF = u64(32)
LOW_HALF = u64(0xFFFFFFFF)

MINUS = u64(0x2D)
PLUS = u64(0x2B)
POINT = u64(0x2E)
DIGIT_0 = u64(0x30)
CASE = u64(0x20)
LETTER_E = u64(0x65)
NO_BYTE = u64(0)

IN_A_WORD: Final = i64(19)
"""Digits that a word holds, whatever they are."""
DIGITS_4 = i64(9)
DIGITS_8 = i64(18)
DIGITS_16 = i64(38)
LARGEST_EXPONENT = i64(1 << 40)  # any text is shorter
LARGEST = u64((1 << 63) - 1)

# The first byte of the encoding of each type, and how long that is.
INT8 = u64(3 << 2)
INT16 = u64(4 << 2)
INT32 = u64(5 << 2)
INT64 = u64(6 << 2)
DOUBLE = u64(7 << 2)
DECIMAL4 = u64(8 << 2)
DECIMAL8 = u64(9 << 2)
DECIMAL16 = u64(10 << 2)
SIZE_1 = u64(2)
SIZE_2 = u64(3)
SIZE_4 = u64(5)
SIZE_8 = u64(9)
SIZE_DECIMAL4 = u64(6)
SIZE_DECIMAL8 = u64(10)
SIZE_DECIMAL16 = u64(18)
MOST_1 = i64(0x7F)
MOST_2 = i64(0x7FFF)
MOST_4 = i64(0x7FFFFFFF)


def byte_at(data: Any, at: Any, stop: Any) -> Any:
    """Return a byte, 0 at the end."""
    return u64(data[at]) if at < stop else NO_BYTE


def number(data: Any, start: Any, stop: Any, spark: Any) -> Any:
    """Return where a number ends, a status, and the node's head, body and size."""
    at = start
    negative = u64(data[at]) == MINUS
    if negative:
        at += ONE
    digits = NONE
    count = ZERO
    scale = ZERO
    status = READ
    byte = byte_at(data, at, stop)
    if byte == DIGIT_0:
        at += ONE
        byte = byte_at(data, at, stop)
    elif byte - DIGIT_0 < TEN:
        while byte - DIGIT_0 < TEN:
            if count < IN_A_WORD:
                digits = digits * TEN + (byte - DIGIT_0)
            count += UNIT
            at += ONE
            byte = byte_at(data, at, stop)
    else:
        status = UNEXPECTED
    head = NONE
    body = NONE
    size = SIZE_8
    if byte != POINT and (byte | CASE) != LETTER_E and count < IN_A_WORD:
        head, body, size = integer(i64(digits), negative)
    elif status == READ:
        whole = True
        if byte == POINT:
            whole = False
            first = at + ONE
            at = first
            byte = byte_at(data, at, stop)
            while byte - DIGIT_0 < TEN:
                if count > ZERO or byte != DIGIT_0:
                    if count < IN_A_WORD:
                        digits = digits * TEN + (byte - DIGIT_0)
                    count += UNIT
                at += ONE
                byte = byte_at(data, at, stop)
            scale = i64(at - first)
            if scale == ZERO:
                status = UNEXPECTED
        exponent = ZERO
        real = False
        if status == READ and (byte | CASE) == LETTER_E:
            real = True
            at, exponent, status = power(data, at + ONE, stop)
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
    negative = byte == MINUS
    if negative or byte == PLUS:
        at += ONE
        byte = byte_at(data, at, stop)
    exponent = ZERO
    status = UNEXPECTED
    while byte - DIGIT_0 < TEN:
        status = READ
        if exponent < LARGEST_EXPONENT:
            exponent = exponent * BASE + i64(byte - DIGIT_0)
        at += ONE
        byte = byte_at(data, at, stop)
    if negative:
        exponent = -exponent
    return at, exponent, status


def integer(value: Any, negative: Any) -> Any:
    """Return the node of an integer of this magnitude, in the narrowest type that holds it."""
    signed = -value if negative else value
    least = ~signed if negative and value > ZERO else signed
    header = INT64
    size = SIZE_8
    if least <= MOST_1:
        header = INT8
        size = SIZE_1
    elif least <= MOST_2:
        header = INT16
        size = SIZE_2
    elif least <= MOST_4:
        header = INT32
        size = SIZE_4
    return INTEGER | header << BYTE, u64(signed), size


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
    head = NONE
    body = NONE
    size = SIZE_8
    zero_below = digits == NONE and negative and spark == ZERO and not whole
    if whole and not real and count == IN_A_WORD and digits <= LARGEST + u64(negative):
        head = INTEGER | INT64 << BYTE
        body = ~digits + ONE if negative else digits
    elif not real and count <= DIGITS_16 and scale <= DIGITS_16 and not zero_below:
        head, body, size = decimal(start, digits, count, scale, negative)
    else:
        cut = max(count - IN_A_WORD, ZERO)
        body, known = nearest_double(digits, exponent - scale + cut, u64(cut > ZERO))
        if known == NONE:
            head = UNDECIDED | DOUBLE << BYTE
            body = start
        else:
            head = INTEGER | DOUBLE << BYTE
            if body == INFINITY and spark == ZERO:
                status = RANGE
            if negative:
                body |= SIGN
    return head, body, size, status


def decimal(start: Any, digits: Any, count: Any, scale: Any, negative: Any) -> Any:
    """Return the node of a decimal, in the narrowest type that holds its digits and its scale."""
    header = DECIMAL16
    size = SIZE_DECIMAL16
    if count <= DIGITS_4 and scale <= DIGITS_4:
        header = DECIMAL4
        size = SIZE_DECIMAL4
    elif count <= DIGITS_8 and scale <= DIGITS_8:
        header = DECIMAL8
        size = SIZE_DECIMAL8
    kind = DECIMAL
    body = ~digits + ONE if negative else digits
    if count > DIGITS_8:
        kind = WIDE
        body = start
    return kind | header << BYTE | u64(scale) << TWO_BYTES, body, size


def wide_digits(data: Any, start: Any, stop: Any) -> Any:
    """Return all digits of a number as an integer of two words, the upper first."""
    at = start
    negative = byte_at(data, at, stop) == MINUS
    if negative:
        at += ONE
    high = NONE
    low = NONE
    byte = byte_at(data, at, stop)
    while byte - DIGIT_0 < TEN or byte == POINT:
        if byte != POINT:
            lower = (low & LOW_HALF) * TEN + (byte - DIGIT_0)
            upper = (low >> HALF) * TEN + (lower >> HALF)
            low = (lower & LOW_HALF) | (upper & LOW_HALF) << HALF
            high = high * TEN + (upper >> HALF)
        at += ONE
        byte = byte_at(data, at, stop)
    if negative:
        low = ~low + ONE
        high = ~high
        if low == NONE:
            high += ONE
    return high, low


SIGNATURES: dict[Any, tuple[str, ...]] = {}
