"""Variant's values of a fixed width as Arrow's: booleans, whole numbers, floats, dates, times and timestamps.

Work item: a block of rows, of one where there is a thread for each. By the rule ``exact``, a value is given where
it is of the family that is asked for, and only without any loss. By the rule ``number``, whole numbers take what is
integral and in range, and floats what is nearest, ties to even: what is beyond the largest of them is an overflow,
what is below the least one zero.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels import floats
from bowstring.kernels.floats import float_of_decimal, parts_of_float, widened
from bowstring.kernels.types import i8, i16, i32, i64, u8, u64
from bowstring.kernels.variant import encoding
from bowstring.kernels.variant.decimals import moved, raw_number
from bowstring.kernels.variant.encoding import little, signed
from bowstring.kernels.variant.walk import LOCATED

BOOLEAN: Final = i64(0)
INTEGER: Final = i64(1)
FLOAT: Final = i64(2)
DOUBLE: Final = i64(3)
DATE: Final = i64(4)
TIME: Final = i64(5)
TIMESTAMP: Final = i64(6)
TIMESTAMP_NTZ: Final = i64(7)
# Of any numbers, but for the second; up to here there is a least and a greatest number.
ANY_INTEGER: Final = i64(8)
UNSIGNED: Final = i64(9)
"""Whole numbers of 64 bits without a sign."""
ANY_UNSIGNED: Final = i64(10)
ANY_HALF: Final = i64(11)
ANY_FLOAT: Final = i64(12)
ANY_DOUBLE: Final = i64(13)
HALF: Final = i64(14)
"""Floats of two bytes, of those of four that are one."""

# Headers of the narrow whole numbers, less what they share.
INT8_HEADER = u64(3 << 2)
INT16_HEADER = u64(3 << 2 ^ 4 << 2)
INT32_HEADER = u64(3 << 2 ^ 5 << 2)
HALF_DIGITS = u64(1 << 11)
LEAST_OF_HALVES = i64(-24)


def scaled(number, source, target):
    """Return a status, and a number of `source` units a second as one of `target` units."""
    status = encoding.OK
    found = number
    if target > source:
        factor = target // source
        if number > (2**63 - 1) // factor or number < -((2**63 - 1) // factor):
            status = encoding.OVERFLOW
        else:
            found = number * factor
    elif target < source:
        divisor = source // target
        if number % divisor != 0:
            status = encoding.OVERFLOW
        found = number // divisor
    return status, found


def with_sign(negative, high, low):
    """Return a status, and a magnitude of two words as a signed number of one."""
    status = encoding.OK
    found = i64(low)
    if negative:
        found = i64(~low + 1)
    if high != 0 or (low >> 63 != 0 and not (negative and low == (1 << 63))):
        status = encoding.OVERFLOW
        found = i64(0)
    return status, found


def fixed(data, at, width):
    """Return a status, and the signed number behind the header at `at`."""
    status = encoding.MALFORMED
    found = i64(0)
    if at + u64(width) < u64(len(data)):
        status = encoding.OK
        found = signed(data, at + 1, width)
    return status, found


def bits_of(number, size):
    """Return the bits of a signed number of some bytes, and zeros above."""
    return (u64(number) << u64(64 - 8 * size)) >> u64(64 - 8 * size)


def narrowed(bits, size, target):
    """Return a status, and the bits of the nearest float of fewer bytes."""
    negative, mantissa, exponent, kind = floats.parts_of_float(bits, size)
    digits, most, sign = floats.format_of(target)
    infinity = u64(2 * most + 1) << u64(digits - 1)
    status = encoding.OK
    found = infinity
    if kind == floats.NOT_A_NUMBER:
        found |= u64(1) << u64(digits - 2)
    elif kind == floats.FINITE:
        found = floats.packed_float(False, mantissa, exponent, u64(0), target)
        if found == infinity:
            status = encoding.OVERFLOW
    if negative:
        found |= u64(1) << sign
    return status, i64(found)


def from_real(bits, size, family):
    """Return a status, and what a float becomes."""
    status = encoding.OK
    found = i64(0)
    if family <= ANY_UNSIGNED:
        negative, mantissa, exponent, kind = parts_of_float(bits, size)
        status = encoding.OVERFLOW
        whole = u64(0)
        if kind == floats.FINITE and mantissa == 0:
            status = encoding.OK
        elif kind == floats.FINITE and exponent >= 0 and exponent < 64:
            whole = mantissa << u64(exponent)
            if whole >> u64(exponent) == mantissa:
                status = encoding.OK
        elif kind == floats.FINITE and exponent < 0 and exponent > -i64(64):
            whole = mantissa >> u64(-exponent)
            if whole << u64(-exponent) == mantissa:
                status = encoding.OK
        if status == encoding.OK:
            status, found = whole_number_of(negative, u64(0), whole, family)
    elif family == ANY_DOUBLE:
        found = i64(widened(bits) if size == floats.SINGLE else bits)
    elif family == ANY_FLOAT and size == floats.SINGLE:
        found = i64(bits)
    else:
        status, found = narrowed(bits, size, floats.SINGLE if family == ANY_FLOAT else floats.HALF)
        if status == encoding.OK and family == HALF and not is_half(bits):
            status = encoding.OVERFLOW
    return status, found


def is_half(bits):
    """Return whether a float of four bytes has no more digits than one of two bytes; its range is not looked at."""
    _negative, mantissa, exponent, kind = parts_of_float(bits, floats.SINGLE)
    lowest = mantissa & (~mantissa + 1)
    fits = mantissa < lowest * HALF_DIGITS
    # The lowest digit that is set is at least that of the least half.
    below = u64(max(LEAST_OF_HALVES - exponent, i64(0)))
    if below > 63 or lowest >> below == 0:
        fits = False
    return fits or kind != floats.FINITE or mantissa == 0


def whole_number_of(negative, high, low, family):
    """Return a status, and a magnitude of two words as a whole number: the bits of one without a sign."""
    status = encoding.OK
    found = i64(low)
    if family < UNSIGNED:
        status, found = with_sign(negative, high, low)
    elif high != 0 or (negative and low != 0):
        status = encoding.OVERFLOW
    return status, found


def from_exact(data, at, family):
    """Return a status, and what a whole number or a decimal becomes."""
    found = i64(0)
    if family <= ANY_UNSIGNED:
        status, negative, high, low, scale = raw_number(data, at)
        if status == encoding.OK:
            status, high, low = moved(high, low, -i64(scale), False)
        if status == encoding.OK:
            status, found = whole_number_of(negative, high, low, family)
    else:
        status, negative, high, low, scale = raw_number(data, at)
        if status == encoding.OK:
            size = i64(8)
            if family != ANY_DOUBLE:
                size = i64(family - ANY_HALF + 1) << 1
            bits = float_of_decimal(negative, high, low, scale, size)
            found = i64(bits)
            # No decimal is beyond the floats of four bytes.
            if size == 2 and bits & floats.HALF_INFINITY == floats.HALF_INFINITY:
                status = encoding.OVERFLOW
    return status, found


def number_of(data, at, family, low, high, unit):
    """Return a status and the value at `at`: a number, or the bits of a float.

    `unit` is units a second, for a date units a day; `low` and `high` are the least and the greatest number.
    """
    if at >= u64(len(data)):
        return encoding.MALFORMED, i64(0)
    header = u64(data[at])
    kind = header >> 2
    status = encoding.TYPE_MISMATCH
    found = i64(0)
    if header & encoding.BASIC == encoding.PRIMITIVE:
        is_exact = (kind >= encoding.INT8 and kind <= encoding.INT64) or (
            kind >= encoding.DECIMAL4 and kind <= encoding.DECIMAL16
        )
        if is_exact and (family == INTEGER or (family >= ANY_INTEGER and family < HALF)):
            status, found = from_exact(data, at, family)
        elif kind == 0:
            status = encoding.VARIANT_NULL
        elif kind == encoding.KIND_DOUBLE or kind == encoding.KIND_FLOAT:
            single = kind == encoding.KIND_FLOAT
            if (
                (family == DOUBLE and not single)
                or ((family == FLOAT or family == HALF) and single)
                or family == ANY_INTEGER
                or (family >= ANY_UNSIGNED and family < HALF)
            ):
                size = i64(encoding.SIZES[kind])
                status, found = fixed(data, at, size)
                if status == encoding.OK and family >= ANY_INTEGER:
                    status, found = from_real(bits_of(found, size), size, family)
        elif family == BOOLEAN and kind >= encoding.TRUE and kind <= encoding.FALSE:
            status = encoding.OK
            found = i64(2 - kind)
        elif family == DATE and kind == encoding.KIND_DATE:
            status, found = fixed(data, at, i64(4))
            if status == encoding.OK:
                status, found = scaled(found, i64(1), unit)
        elif (
            (family == TIME and kind == encoding.KIND_TIME)
            or (family == TIMESTAMP and (kind == encoding.MICROS or kind == encoding.NANOS))
            or (family == TIMESTAMP_NTZ and (kind == encoding.MICROS_NTZ or kind == encoding.NANOS_NTZ))
        ):
            status, found = fixed(data, at, i64(8))
            source = i64(1_000_000)
            if kind >= encoding.NANOS:
                source = i64(1_000_000_000)
            if status == encoding.OK and kind == encoding.KIND_TIME and (found < 0 or found >= encoding.DAY):
                status = encoding.MALFORMED
            if status == encoding.OK:
                status, found = scaled(found, source, unit)
    if status == encoding.OK and family <= ANY_INTEGER and (found < low or found > high):
        status = encoding.OVERFLOW
    if status != encoding.OK:
        found = i64(0)
    return status, found


def small_integer(data, at):
    """Return whether a whole number of 1 to 4 bytes lies at `at`, and the number: most values are one."""
    known = False
    found = i64(0)
    if at < u64(len(data)) and at + 6 < u64(len(data)):
        kind = u64(data[at]) ^ INT8_HEADER
        if kind == 0:
            known = True
            found = i64(i8(data[at + 1]))
        elif kind == INT16_HEADER:
            known = True
            found = i64(i16(little(data, at + 1, u64(2))))
        elif kind == INT32_HEADER:
            known = True
            found = i64(i32(little(data, at + 1, u64(4))))
    return known, found


def cast_numbers(i, data, places, family, low, high, unit, spare, block, statuses, out):
    """Write values without their `spare` highest bits, so that the elements of `out` hold them; 0 for rows of a
    status other than ``OK``.
    """
    for row in range(i * block, min((i + 1) * block, i64(len(out)))):
        found = i64(0)
        if statuses[row] == encoding.OK:
            known = False
            if family == INTEGER or family == ANY_INTEGER:
                known, found = small_integer(data, u64(places[row]))
            if not known or found < low or found > high:
                status, found = number_of(data, u64(places[row]), family, low, high, unit)
                statuses[row] = status
        out[row] = (found << spare) >> spare


def read_located(i, data, family, low, high, unit, spare, block, statuses, numbers):
    """Write the numbers of the rows of status ``LOCATED``, each of which has its place there, as
    :func:`cast_numbers` does.
    """
    for row in range(i * block, min((i + 1) * block, i64(len(numbers)))):
        if statuses[row] == LOCATED:
            at = (u64(i64(numbers[row])) << u64(spare)) >> u64(spare)
            status, found = number_of(data, at, family, low, high, unit)
            statuses[row] = u8(status)
            numbers[row] = (found << spare) >> spare


SIGNATURES = {
    cast_numbers: tuple(
        f"u8[], u64[], i64, i64, i64, i64, i64, i64, u8[]!, {each}[]!" for each in ("i8", "i16", "i32", "i64")
    ),
    read_located: tuple(f"u8[], i64, i64, i64, i64, i64, i64, u8[]!, {each}[]!" for each in ("i32", "i64")),
}
