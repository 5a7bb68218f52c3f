"""Variant's primitives as JSON text.

There is no kernel here. A leaf lies in ``[at, stop)`` of `data` and says its own length; `spark` is not 0 for the
rules of Spark's ``to_json``.
"""

from __future__ import annotations

import numpy as np

from bowstring.kernels.floats import DOUBLE, SINGLE
from bowstring.kernels.types import i64, u64
from bowstring.kernels.variant import encoding
from bowstring.kernels.variant.decimals import BOUNDS_HIGH, BOUNDS_LOW
from bowstring.kernels.variant.encoding import little, signed
from bowstring.kernels.variant.text.put import (
    POWERS,
    digits_of,
    eight_digits,
    put,
    put_digits,
    put_real,
    put_text,
)
from bowstring.kernels.words import EACH, ZEROS, below, load_word, negated, product

NULL_TEXT = u64(int.from_bytes(b"null", "little"))
TRUE_TEXT = u64(int.from_bytes(b"true", "little"))
FALSE_TEXT = u64(int.from_bytes(b"false", "little"))

LARGEST_SCALE = u64(38)
# A number of 38 digits is two of 19.
PART = u64(19)
RECIPROCAL = u64((2**128 - 1) // 10**19 - 2**64)


def put_leaf(out, limit, at, data, place, stop, spark, letters):
    """Write the primitive or string at `place`; return its status, where the text ends, and `letters`.

    `letters` are the bytes that values may still have.
    """
    header = u64(data[place])
    kind = header >> 2
    is_short = header & encoding.BASIC == encoding.SHORT
    first = place + 1
    size = kind
    status = encoding.OK
    end = at
    left = letters
    if not is_short:
        if kind >= encoding.PRIMITIVES:
            status = encoding.UNSUPPORTED
        elif kind >= encoding.KIND_BINARY and kind <= encoding.KIND_STRING:
            first = place + 5
            if first <= stop:
                size = little(data, place + 1, u64(4))
            else:
                status = encoding.MALFORMED
        else:
            size = u64(encoding.SIZES[kind])
    if status == encoding.OK and first + size > stop:
        status = encoding.MALFORMED
    elif status == encoding.OK and size > left:
        status = encoding.TOO_DEEP
    if status == encoding.OK:
        left -= size
        if is_short or kind == encoding.KIND_STRING:
            end = put_text(out, limit, at, data, first, first + size, spark)
            if end == encoding.BROKEN:
                status = encoding.MALFORMED
        elif kind <= encoding.FALSE:
            word = NULL_TEXT
            if kind == encoding.TRUE:
                word = TRUE_TEXT
            elif kind == encoding.FALSE:
                word = FALSE_TEXT
            end = put(out, limit, at, word, 4 + (kind >> 1))
        elif kind == encoding.KIND_BINARY:
            end = put_base64(out, limit, at, data, first, size)
        elif kind == encoding.KIND_UUID:
            end = put(out, limit, at, u64(ord('"')), u64(1))
            end = put_uuid(out, limit, end, data, first)
            end = put(out, limit, end, u64(ord('"')), u64(1))
        elif kind >= encoding.DECIMAL4 and kind <= encoding.DECIMAL16:
            end = put_exact(out, limit, at, data, first, kind, spark)
            if end == encoding.BROKEN:
                status = encoding.MALFORMED
        else:
            # All others are up to eight bytes: read in one step, where that many may be.
            number = i64(0)
            spare = (8 - size) << 3
            if first + 8 <= u64(len(data)):
                number = i64(load_word(data, first) << spare) >> i64(spare)
            else:
                number = signed(data, first, i64(size))
            magnitude = u64(max(number, -number))
            if kind <= encoding.INT64 and magnitude < 10**8:
                count = digits_of(magnitude)
                end = put(out, limit, at, u64(ord("-")), u64(number < 0))
                end = put(out, limit, end, eight_digits(magnitude) >> ((8 - count) << 3), count)
            elif kind <= encoding.INT64:
                end = put(out, limit, at, u64(ord("-")), u64(number < 0))
                end = put_digits(out, limit, end, magnitude, digits_of(magnitude))
            elif kind == encoding.KIND_DOUBLE:
                end = put_real(out, limit, at, u64(number), DOUBLE, spark)
            elif kind == encoding.KIND_FLOAT:
                end = put_real(out, limit, at, u64(number) & 0xFFFFFFFF, SINGLE, spark)
            else:
                end = put_moment(out, limit, at, number, kind, spark)
                if kind == encoding.KIND_TIME and (number < 0 or number >= encoding.DAY):
                    status = encoding.MALFORMED
    return status, end, left


LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
GROUP = u64(0x3F)
TEN_LETTERS = u64(ord("a") - ord("0") - 10)
LOW = u64(15)
ABOVE_NINE = u64(0x0606060606060606)
DASHES = u64(0b0011_1100)  # of the groups of two bytes, those with a dash in front


def put_base64(out, limit, at, data, first, size):
    """Write bytes as Base64, in quotes."""
    end = put(out, limit, at, u64(ord('"')), u64(1))
    k = u64(0)
    while k < size:
        left = min(size - k, u64(3))
        group = u64(data[first + k]) << 16
        if left > 1:
            group |= u64(data[first + k + 1]) << 8
        if left > 2:
            group |= u64(data[first + k + 2])
        third = u64(LETTERS[(group >> 6) & GROUP]) if left > 1 else u64(ord("="))
        fourth = u64(LETTERS[group & GROUP]) if left > 2 else u64(ord("="))
        word = u64(LETTERS[group >> 18]) | (u64(LETTERS[(group >> 12) & GROUP]) << 8)
        end = put(out, limit, end, word | (third << 16) | (fourth << 24), u64(4))
        k += 3
    return put(out, limit, end, u64(ord('"')), u64(1))


def put_uuid(out, limit, at, data, first):
    """Write sixteen bytes as a UUID, in groups of hexadecimal digits."""
    end = at
    k = u64(0)
    while k < 8:
        if (DASHES >> k) & 1 != 0:
            end = put(out, limit, end, u64(ord("-")), u64(1))
        byte = u64(data[first + k + k])
        other = u64(data[first + k + k + 1])
        word = (byte >> 4) | ((byte & LOW) << 8) | ((other >> 4) << 16) | ((other & LOW) << 24)
        # 6 more than 9 carries into the next bit.
        letters = ((word + ABOVE_NINE) >> 4) & EACH
        end = put(out, limit, end, word + ZEROS + letters * TEN_LETTERS, u64(4))
        k += 1
    return end


def put_exact(out, limit, at, data, first, kind, spark):
    """Write a decimal with all its digits, in Spark's rules without zeros at its end; BROKEN where it is none."""
    scale, negative, upper, lower = decimal_at(data, first, kind)
    end = encoding.BROKEN
    if scale != encoding.BROKEN:
        if spark != 0:
            upper, lower, scale = without_zeros(upper, lower, scale)
        end = put(out, limit, at, u64(ord("-")), negative)
        whole = upper
        behind = u64(0)
        if scale >= PART:
            unit = u64(POWERS[scale - PART])
            whole = upper // unit
            behind = upper - whole * unit
        if scale >= PART or upper != 0:
            end = put_digits(out, limit, end, whole, digits_of(whole))
        if scale > PART:
            end = put(out, limit, end, u64(ord(".")), u64(1))
            end = put_digits(out, limit, end, behind, scale - PART)
        if scale >= PART:
            if scale == PART:
                end = put(out, limit, end, u64(ord(".")), u64(1))
            end = put_digits(out, limit, end, lower, PART)
        else:
            unit = u64(POWERS[scale])
            whole = lower // unit
            end = put_digits(out, limit, end, whole, digits_of(whole) if upper == 0 else PART - scale)
            if scale != 0:
                end = put(out, limit, end, u64(ord(".")), u64(1))
                end = put_digits(out, limit, end, lower - whole * unit, scale)
    return end


def decimal_at(data, first, kind):
    """Return scale, sign and magnitude, in two parts, of a decimal; the scale is BROKEN where it is none."""
    scale = u64(data[first])
    number = signed(data, first + 1, i64(4 << min(kind - encoding.DECIMAL4, u64(1))))
    low = u64(number)
    high = u64(number >> 63)
    if kind == encoding.DECIMAL16:
        high = load_word(data, first + 1 + 8)
    negative = high >> 63
    if negative != 0:
        high, low = negated(high, low)
    upper = u64(0)
    lower = u64(0)
    if scale <= LARGEST_SCALE and below(
        high, low, u64(BOUNDS_HIGH[kind - encoding.DECIMAL4]), u64(BOUNDS_LOW[kind - encoding.DECIMAL4])
    ):
        upper, lower = parts_of(high, low)
    else:
        scale = encoding.BROKEN
    return scale, negative, upper, lower


def parts_of(high, low):
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


def without_zeros(upper, lower, scale):
    """Return a number of two parts, and its scale, without zeros behind the point."""
    high = upper
    low = lower
    left = scale
    while left > 0 and low % 10 == 0:
        low = low // 10 + high % 10 * 10**18
        high //= 10
        left -= 1
    return high, low, left


OFFSET = u64(int.from_bytes(b"+00:00", "little"))
MICROSECONDS = u64(6)
NANOSECONDS = u64(9)
MONTHS = i64(5)
MOST_YEAR = i64(9999)


def put_moment(out, limit, at, number, kind, spark):
    """Write a date, a time or a timestamp."""
    fraction_digits = NANOSECONDS if kind >= encoding.NANOS and kind <= encoding.NANOS_NTZ else MICROSECONDS
    days = number
    rest = i64(0)
    end = put(out, limit, at, u64(ord('"')), u64(1))
    if kind != encoding.KIND_DATE:
        per_day = 86_400 * i64(POWERS[fraction_digits])
        days = number // per_day
        rest = number - days * per_day
    if kind != encoding.KIND_TIME:
        end = put_date(out, limit, end, days)
    if kind != encoding.KIND_DATE:
        if kind != encoding.KIND_TIME:
            end = put(out, limit, end, u64(ord(" ")) if spark != 0 else u64(ord("T")), u64(1))
        end = put_time(out, limit, end, u64(rest), fraction_digits, spark)
    if kind >= encoding.MICROS and (kind - encoding.MICROS) % 6 == 0:  # in nanoseconds, six further on
        end = put(out, limit, end, OFFSET if spark != 0 else u64(ord("Z")), u64(6) if spark != 0 else u64(1))
    return put(out, limit, end, u64(ord('"')), u64(1))


def two_digits(number):
    """Return a number below 100 as two digits."""
    tens = number // 10
    return ord("0") + tens | ((ord("0") + number - tens * 10) << 8)


def put_time(out, limit, at, rest, fraction_digits, spark):
    """Write a time of day."""
    unit = u64(POWERS[fraction_digits])
    seconds = rest // unit
    fraction = rest - seconds * unit
    hours = seconds // 3600
    minutes = seconds // 60 % 60
    word = two_digits(hours) | (u64(ord(":")) << 16) | (two_digits(minutes) << 24) | (u64(ord(":")) << 40)
    end = put(out, limit, at, word | (two_digits(seconds % 60) << 48), u64(8))
    digits = fraction_digits
    if spark != 0:
        while digits > 0 and fraction % 10 == 0:
            fraction //= 10
            digits -= 1
    if digits > 0:
        end = put(out, limit, end, u64(ord(".")), u64(1))
        end = put_digits(out, limit, end, fraction, digits)
    return end


def put_date(out, limit, at, days):
    """Write days since 1970 in ISO 8601, years beyond 9999 and before 0 with a sign."""
    # Eras of 400 years, which begin in March: leap days end a year then.
    day = days + 719_468
    era = day // 146_097
    day -= era * 146_097
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (MONTHS * day + 2) // 153
    day -= (153 * month + 2) // MONTHS
    year += era * 400
    if month < 10:
        month += 3
    else:
        month -= 9
        year += 1
    end = put(out, limit, at, u64(ord("-")) if year < 0 else u64(ord("+")), u64(year < 0 or year > MOST_YEAR))
    size = u64(max(year, -year))
    end = put_digits(out, limit, end, size, max(digits_of(size), u64(4)))
    word = ord("-") | (two_digits(u64(month)) << 8) | (u64(ord("-")) << 24) | (two_digits(u64(day + 1)) << 32)
    return put(out, limit, end, word, u64(6))
