"""Text as Spark's ``try_variant_get`` casts it to booleans, whole numbers and floats.

Work item: one row, of those that `kernels.variant.spark.numbers` left because they are text. Blanks and control
characters around a number do not matter.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels import floats
from bowstring.kernels.floats import nearest_double, packed_float, parts_of_float
from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.variant.encoding import OK, OVERFLOW, TYPE_MISMATCH, payload
from bowstring.kernels.variant.numbers import BOOLEAN, FLOAT
from bowstring.kernels.variant.spark.numbers import IS_TEXT

IS_LONG: Final = u8(254)
"""The status of a row whose text has so many digits that it is not known which float is nearest."""

DELETE = u64(127)
CONTROLS = i64(1)
ONLY_LOW = i64(0)
MOST_LETTERS = u64(8)
# Words as numbers, the first letter lowest.
TRUE_WORD = u64(int.from_bytes(b"true", "little"))
FALSE_WORD = u64(int.from_bytes(b"false", "little"))
YES_WORD = u64(int.from_bytes(b"yes", "little"))
NO_WORD = u64(int.from_bytes(b"no", "little"))
INF_WORD = u64(int.from_bytes(b"inf", "little"))
NAN_WORD = u64(int.from_bytes(b"nan", "little"))
INFINITY_WORD = u64(int.from_bytes(b"infinity", "little"))
# What may still be multiplied by ten, and by 16.
TOP_DIGIT = u64((2**64 - 1) // 10 - 1)
FULL = u64((1 << 59) - 1)
MOST_EXPONENT = i64(1_000_000)
DOUBLE_NAN = u64(0x7FF8 << 48)
HALFWAY = u64(1 << 28)
NARROW = u64((1 << 29) - 1)


def trimmed(data, start, stop, controls):
    """Return where text begins and ends without what is blank around it."""
    first = start
    last = stop
    while first < last and (u64(data[first]) <= ord(" ") or (controls != 0 and u64(data[first]) == DELETE)):
        first += 1
    while last > first and (
        u64(data[last - 1]) <= ord(" ") or (controls != 0 and u64(data[last - 1]) == DELETE)
    ):
        last -= 1
    return first, last


def sign_at(data, at, stop):
    """Return whether a minus stands at a place, and the place behind a sign if there is one."""
    negative = at < stop and u64(data[at]) == ord("-")
    behind = at
    if negative or (at < stop and u64(data[at]) == ord("+")):
        behind += 1
    return negative, behind


def word_of(data, first, last):
    """Return up to 8 letters as a number, in lower case; 0 for more."""
    word = u64(0)
    if last - first <= MOST_LETTERS:
        shift = u64(0)
        for k in range(i64(first), i64(last)):
            letter = u64(data[u64(k)])
            if letter >= ord("A") and letter <= ord("Z"):
                letter |= 0x20
            word |= letter << shift
            shift += 8
    return word


def whole_of(data, start, stop):
    """Return a status, and the whole number that text is."""
    negative, at = sign_at(data, start, stop)
    status = TYPE_MISMATCH
    total = i64(0)
    if at < stop:
        status = OK
    while at < stop:
        digit = u64(data[at]) - ord("0")
        if digit >= 10:
            status = TYPE_MISMATCH
        elif status == OK:
            # Counted downwards: there is one negative number more.
            if total < -i64((2**63 - 1) // 10) or total * 10 < -i64(2**63 - 1) - i64(1) + i64(digit):
                status = OVERFLOW
            else:
                total = total * 10 - i64(digit)
        at += 1
    if status == OK and not negative:
        if total < -i64(2**63 - 1):
            status = OVERFLOW
        total = -total
    return status, total


def spark_text_numbers(i, data, places, family, low, high, statuses, out):
    """Write the boolean or whole number that the text of a row is."""
    if statuses[i] == IS_TEXT:
        start, stop = payload(data, u64(places[i]), u64(len(data)))
        first, last = trimmed(data, start, stop, CONTROLS)
        status = OK
        found = i64(0)
        if family == BOOLEAN:
            word = word_of(data, first, last)
            status = OK
            found = i64(0)
            if (
                word == TRUE_WORD
                or word == ord("t")
                or word == YES_WORD
                or word == ord("y")
                or word == ord("1")
            ):
                found = i64(1)
            elif not (
                word == FALSE_WORD
                or word == ord("f")
                or word == NO_WORD
                or word == ord("n")
                or word == ord("0")
            ):
                status = TYPE_MISMATCH
        else:
            status, found = whole_of(data, first, last)
            if status == OK and (found < low or found > high):
                status = OVERFLOW
        if status != OK:
            found = i64(0)
        statuses[i] = status
        out[i] = found


def exponent_at(data, start, stop):
    """Return the exponent that begins at `start`, and where it ends: at `start` where there is none."""
    negative, at = sign_at(data, start, stop)
    exponent = i64(0)
    first = at
    while at < stop and u64(data[at]) - ord("0") < 10:
        exponent = min(exponent * 10 + i64(u64(data[at]) - ord("0")), MOST_EXPONENT)
        at += 1
    if at == first:
        at = start
    if negative:
        exponent = -exponent
    return exponent, at


def without_suffix(data, first, last):
    """Return where a number ends before a letter d or f, as Java's may have one."""
    end = last
    if last > first:
        letter = u64(data[last - 1]) | 0x20
        if letter == ord("d") or letter == ord("f"):
            end = last - 1
    return end


def digits_at(data, start, stop, base, most):
    """Return where digits with a point end, the first of them, up to `most`, and the exponent of the last.

    Besides: whether there are any, and what is not 0 where others than zeros were cut off.
    """
    at = start
    digits = u64(0)
    exponent = i64(0)
    more = u64(0)
    seen = False
    pointed = False
    going = True
    while going and at < stop:
        byte = u64(data[at])
        digit = byte - ord("0")
        if base == 16 and digit >= 10:
            digit = (byte | 0x20) - ord("a")
            if digit < 6:
                digit += 10
            else:
                digit = u64(16)
        if digit < base:
            seen = True
            if digits <= most:
                digits = digits * base + digit
                if pointed:
                    exponent -= 1
            else:
                more |= digit
                if not pointed:
                    exponent += 1
        elif byte == ord(".") and not pointed:
            pointed = True
        else:
            going = False
        if going:
            at += 1
    return at, digits, exponent, seen, more


def decimal_real(data, start, stop):
    """Return a status, the first 19 digits of a number, its exponent, and whether digits were cut off."""
    at, digits, exponent, seen, more = digits_at(data, start, stop, u64(10), TOP_DIGIT)
    status = OK
    if not seen:
        status = TYPE_MISMATCH
    elif at < stop and u64(data[at]) | 0x20 == ord("e"):
        power, end = exponent_at(data, at + 1, stop)
        if end == at + 1:
            status = TYPE_MISMATCH
        exponent += power
        at = end
    if at < without_suffix(data, at, stop):
        status = TYPE_MISMATCH
    return status, digits, exponent, more


def hex_real(data, start, stop, negative, size):
    """Return a status, and the bits of a float in hexadecimal, whose digits begin at `start`."""
    at, digits, exponent, seen, more = digits_at(data, start, stop, u64(16), FULL)
    exponent = exponent * 4
    status = TYPE_MISMATCH
    if seen and at < stop and u64(data[at]) | 0x20 == ord("p"):
        power, end = exponent_at(data, at + 1, stop)
        if end > at + 1 and end == without_suffix(data, end, stop):
            status = OK
            exponent += power
    return status, packed_float(negative, digits, exponent, more, size)


def named_real(data, start, stop, signed):
    """Return a status, and the bits of the double that a word is: infinity or NaN, as Java and Spark spell it."""
    word = word_of(data, start, stop)
    status = OK
    bits = floats.DOUBLE_INFINITY
    if word == NAN_WORD and stop - start == 3:
        # Spark's own word has no sign; Java's has, and is written in one way.
        bits = DOUBLE_NAN
        exact = u64(data[start]) == ord("N") and u64(data[start + 1]) == ord("a")
        if signed and not (exact and u64(data[start + 2]) == ord("N")):
            status = TYPE_MISMATCH
    elif word != INF_WORD and word != INFINITY_WORD:
        status = TYPE_MISMATCH
    return status, bits


def real_of(data, start, stop, size):
    """Return a status, and the bits of the float that text is."""
    negative, at = sign_at(data, start, stop)
    status = TYPE_MISMATCH
    bits = u64(0)
    sign = u64(8 * size - 1)
    single = size == floats.SINGLE
    if at + 1 < stop and u64(data[at]) == ord("0") and u64(data[at + 1]) | 0x20 == ord("x"):
        status, bits = hex_real(data, at + 2, stop, negative, size)
    elif at < stop and (u64(data[at]) | 0x20) - ord("a") < 26:
        status, bits = named_real(data, at, stop, at > start)
        if single and bits == floats.DOUBLE_INFINITY:
            bits = floats.SINGLE_INFINITY
        elif single:
            bits = floats.SINGLE_NAN
        if negative:
            bits |= 1 << sign
    else:
        status, digits, exponent, more = decimal_real(data, at, stop)
        if status == OK:
            bits, known = nearest_double(digits, exponent, more)
            if single and bits < floats.DOUBLE_INFINITY:
                if (bits >= floats.SINGLE_LEAST_NORMAL and bits & NARROW == HALFWAY) or (
                    bits < floats.SINGLE_LEAST_NORMAL and bits & (HALFWAY - 1) == 0 and bits != 0
                ):
                    known = u64(0)
                _negative, mantissa, power, _kind = parts_of_float(bits, floats.DOUBLE)
                bits = packed_float(False, mantissa, power, u64(0), floats.SINGLE)
            elif single:
                bits = floats.SINGLE_INFINITY
            if known == 0:
                status = IS_LONG
            if negative:
                bits |= 1 << sign
    return status, bits


def spark_text_reals(i, data, places, family, statuses, out):
    """Write the bits of the float or double that the text of a row is."""
    if statuses[i] == IS_TEXT:
        start, stop = payload(data, u64(places[i]), u64(len(data)))
        first, last = trimmed(data, start, stop, ONLY_LOW)
        status, bits = real_of(data, first, last, floats.SINGLE if family == FLOAT else floats.DOUBLE)
        if status != OK:
            bits = u64(0)
        statuses[i] = status
        out[i] = i64(bits)


SIGNATURES = {
    spark_text_numbers: ("u8[], u64[], i64, i64, i64, u8[]!, i64[]!",),
    spark_text_reals: ("u8[], u64[], i64, u8[]!, i64[]!",),
}
