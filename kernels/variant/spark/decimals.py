"""Variant's values as Spark's ``try_variant_get`` casts them to decimals: half a unit is rounded away from zero.

Work item: one row. Floats become the decimal of fewest digits that stands for them, as when they are written.
"""

from __future__ import annotations

import numpy as np

from bowstring.kernels.floats import DOUBLE, FINITE, parts_of_float, widened
from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.variant import encoding
from bowstring.kernels.variant.decimals import moved, raw_number
from bowstring.kernels.variant.encoding import payload
from bowstring.kernels.variant.numbers import fixed
from bowstring.kernels.variant.spark.numbers import IS_TEXT
from bowstring.kernels.variant.spark.parse import ONLY_LOW, sign_at, trimmed
from bowstring.kernels.variant.text.put import shortest
from bowstring.kernels.words import below, negated, times_ten

DIGITS_OF_MICROS = i64(6)
MOST_EXPONENT = i64(2**31 - 1)
FARTHEST = i64(1 << 40)
LONGEST_EXPONENT = i64(10)
ASCII = u64(0x80)

# Where the ten digits of each script begin: Java's decimals take them all.
_SCRIPTS = (
    "660 6f0 7c0 966 9e6 a66 ae6 b66 be6 c66 ce6 d66 de6 e50 ed0 f20 1040 1090 17e0 1810 1946 19d0 1a80 1a90 "
    "1b50 1bb0 1c40 1c50 a620 a8d0 a900 a9d0 a9f0 aa50 abf0 ff10"
)
ZEROS = np.array([int(each, 16) for each in _SCRIPTS.split()], np.uint64)
ZEROS.flags.writeable = False
SCRIPTS = i64(len(ZEROS))


def write_decimal(i, status, negative, high, low, bound_high, bound_low, statuses, out):
    """Write a decimal that is below its bound, the lower word first, and 0 for what is none."""
    state = status
    upper = high
    lower = low
    if state == encoding.OK and not below(high, low, bound_high, bound_low):
        state = encoding.OVERFLOW
    if state != encoding.OK:
        upper = u64(0)
        lower = u64(0)
    elif negative:
        upper, lower = negated(high, low)
    statuses[i] = state
    out[i << 1] = lower
    out[(i << 1) + 1] = upper


def spark_decimals(i, data, places, scale, bound_high, bound_low, statuses, out):
    """Write what the value of a row becomes; rows of a status other than ``OK`` become 0."""
    status = u8(statuses[i])
    negative = False
    high = u64(0)
    low = u64(0)
    if status == encoding.OK:
        status = encoding.MALFORMED
        if u64(places[i]) < u64(len(data)):
            at = u64(places[i])
            status = encoding.TYPE_MISMATCH
            negative = False
            high = u64(0)
            low = u64(0)
            header = u64(data[at])
            basic = header & encoding.BASIC
            kind = header >> 2
            if basic == encoding.SHORT or (basic == encoding.PRIMITIVE and kind == encoding.KIND_STRING):
                status = IS_TEXT
            elif basic == encoding.PRIMITIVE:
                if kind == 0:
                    status = encoding.VARIANT_NULL
                elif kind <= encoding.FALSE:
                    status, high, low = moved(u64(0), 2 - kind, i64(scale), True)
                elif kind <= encoding.INT64 or (kind >= encoding.DECIMAL4 and kind <= encoding.DECIMAL16):
                    status, negative, high, low, found = raw_number(data, at)
                    if status == encoding.OK:
                        status, high, low = moved(high, low, i64(scale) - i64(found), True)
                elif kind == encoding.MICROS:
                    status, number = fixed(data, at, i64(8))
                    if status == encoding.OK:
                        negative = number < 0
                        status, high, low = moved(
                            u64(0), u64(max(number, -number)), i64(scale) - DIGITS_OF_MICROS, True
                        )
                elif kind == encoding.KIND_DOUBLE or kind == encoding.KIND_FLOAT:
                    status, number = fixed(data, at, i64(encoding.SIZES[kind]))
                    if status == encoding.OK:
                        bits = u64(number)
                        if kind == encoding.KIND_FLOAT:
                            bits = widened(bits & (2**32 - 1))
                        negative, _mantissa, _exponent, finite = parts_of_float(bits, DOUBLE)
                        status = encoding.OVERFLOW
                        high = u64(0)
                        low = u64(0)
                        if finite == FINITE:
                            digits, exponent = shortest(bits & (2**63 - 1), DOUBLE)
                            status, high, low = moved(u64(0), digits, exponent + i64(scale), True)
                elif (
                    kind != encoding.KIND_DATE
                    and kind != encoding.MICROS_NTZ
                    and kind != encoding.KIND_BINARY
                    and kind != encoding.KIND_UUID
                ):
                    status = encoding.UNSUPPORTED
    write_decimal(i, status, negative, high, low, bound_high, bound_low, statuses, out)


def digit_at(data, at, stop):
    """Return the digit at `at`, ten where there is none, and the bytes that it takes."""
    byte = u64(data[at])
    digit = u64(10)
    size = u64(1)
    if byte < ASCII:
        digit = min(byte - ord("0"), u64(10))
    else:
        letter = u64(0)
        if byte >= 0xC0 and byte < 0xE0 and at + 1 < stop:
            letter = ((byte & 0x1F) << 6) | (u64(data[at + 1]) & 0x3F)
            size = u64(2)
        elif byte >= 0xE0 and byte < 0xF0 and at + 2 < stop:
            letter = ((byte & 0x0F) << 6) | (u64(data[at + 1]) & 0x3F)
            letter = (letter << 6) | (u64(data[at + 2]) & 0x3F)
            size = u64(3)
        for script in range(SCRIPTS):
            digit = min(digit, letter - u64(ZEROS[script]))
    return digit, size


def decimal_exponent(data, start, stop):
    """Return a status, and the exponent that goes from `start` to the end."""
    negative, at = sign_at(data, start, stop)
    status = encoding.TYPE_MISMATCH
    total = i64(0)
    digits = i64(0)
    if at < stop:
        status = encoding.OK
    while at < stop:
        digit, size = digit_at(data, at, stop)
        if digit >= 10:
            status = encoding.TYPE_MISMATCH
        else:
            total = min(total * 10 + i64(digit), FARTHEST)
            if total > 0:
                digits += 1
        at += size
    if digits > LONGEST_EXPONENT:
        status = encoding.TYPE_MISMATCH
    if negative:
        total = -total
    return status, total


def decimal_of_text(data, start, stop, scale):
    """Return a status, whether text is negative as a decimal, and its magnitude at a scale in two words."""
    negative, at = sign_at(data, start, stop)
    begin = at
    digits = i64(0)
    fraction = i64(0)
    pointed = False
    going = True
    while going and at < stop:
        digit, size = digit_at(data, at, stop)
        if digit < 10:
            digits += 1
            if pointed:
                fraction += 1
        elif u64(data[at]) == ord(".") and not pointed:
            pointed = True
        else:
            going = False
        if going:
            at += size
    end = at
    status = encoding.OK
    exponent = i64(0)
    if digits == 0:
        status = encoding.TYPE_MISMATCH
    elif at < stop:
        status = encoding.TYPE_MISMATCH
        if u64(data[at]) | 0x20 == ord("e"):
            status, exponent = decimal_exponent(data, at + 1, stop)
    # Java's scales are of 32 bits.
    if fraction - exponent > MOST_EXPONENT or fraction - exponent < -MOST_EXPONENT - 1:
        status = encoding.TYPE_MISMATCH
    kept = digits - fraction + exponent + i64(scale)
    high = u64(0)
    low = u64(0)
    count = i64(0)
    at = begin
    while status == encoding.OK and at < end:
        digit, size = digit_at(data, at, end)
        if digit < 10:
            if count < kept:
                high, low, fits = times_ten(high, low)
                if not fits:
                    status = encoding.OVERFLOW
                low += digit
                if low < digit:
                    high += 1
            elif count == kept and digit >= 5:
                low += 1
                if low == 0:
                    high += 1
            count += 1
        at += size
    if status == encoding.OK and kept > digits:
        status, high, low = moved(high, low, kept - digits, True)
    return status, negative, high, low


def spark_text_decimals(i, data, places, scale, bound_high, bound_low, statuses, out):
    """Write the decimal that the text of a row is."""
    if statuses[i] == IS_TEXT:
        start, stop = payload(data, u64(places[i]), u64(len(data)))
        first, last = trimmed(data, start, stop, ONLY_LOW)
        status, negative, high, low = decimal_of_text(data, first, last, scale)
        write_decimal(i, status, negative, high, low, bound_high, bound_low, statuses, out)


_ARGUMENTS = "u8[], u64[], u64, u64, u64, u8[]!, u64[]!"
SIGNATURES = {spark_decimals: (_ARGUMENTS,), spark_text_decimals: (_ARGUMENTS,)}
