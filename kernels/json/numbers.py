"""Numbers of JSON: integers, decimals with all their digits, and doubles.

There is no kernel here. Places are ``u64`` and lie before `stop`, the end of the row.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.floats import DOUBLE_INFINITY, nearest_double
from bowstring.kernels.json.tree import DECIMAL, END, INTEGER, RANGE, READ, UNDECIDED, UNEXPECTED, WIDE
from bowstring.kernels.types import i64, u64
from bowstring.kernels.words import negated, times_ten

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


SIGN: Final = u64(1 << 63)


def byte_at(data, at, stop):
    """Return a byte, 0 at the end."""
    return u64(data[at]) if at < stop else u64(0)


def number(data, start, stop, spark):
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
            status = READ
            head = u64(0)
            body = u64(0)
            size = u64(9)
            zero_below = digits == 0 and negative and spark == 0 and not whole
            if whole and not real and count == IN_A_WORD and digits <= ((1 << 63) - 1) + u64(negative):
                head = INTEGER | INT64 << 8
                body = ~digits + 1 if negative else digits
            elif not real and count <= 38 and scale <= 38 and not zero_below:
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
                head = kind | header << 8 | u64(scale) << 16
            else:
                cut = max(count - IN_A_WORD, i64(0))
                body, known = nearest_double(digits, exponent - scale + cut, u64(cut > 0))
                if known == 0:
                    head = UNDECIDED | DOUBLE << 8
                    body = start
                else:
                    head = INTEGER | DOUBLE << 8
                    if body == DOUBLE_INFINITY and spark == 0:
                        status = RANGE
                    if negative:
                        body |= SIGN
    if status == UNEXPECTED and at >= stop:
        status = END
    return at, status, head, body, size


def power(data, start, stop):
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


def integer(value, negative):
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


def wide_digits(data, start, stop):
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
            high, low, _ = times_ten(high, low)
            low += byte - ord("0")
            high += u64(low < byte - ord("0"))
        at += 1
        byte = byte_at(data, at, stop)
    if negative:
        high, low = negated(high, low)
    return high, low
