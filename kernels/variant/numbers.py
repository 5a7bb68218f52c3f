"""Variant's values of a fixed width as Arrow's: booleans, whole numbers, floats, dates, times and timestamps.

Work item: a block of rows, of one where there is a thread for each. A value is given where it is of the family
that is asked for, and only without any loss.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.floats import SINGLE_EXPONENTS, SINGLE_FRACTION, SINGLE_SHIFT
from bowstring.kernels.types import i8, i16, i32, i64, u16, u64
from bowstring.kernels.variant.decimals import exact_number
from bowstring.kernels.variant.format import (
    BASIC,
    DAY,
    DECIMAL4,
    DECIMAL16,
    FALSE,
    INT8,
    INT64,
    KIND_DATE,
    KIND_DOUBLE,
    KIND_FLOAT,
    KIND_TIME,
    MALFORMED,
    MICROS,
    MICROS_NTZ,
    NANOS,
    NANOS_NTZ,
    OK,
    OVERFLOW,
    PRIMITIVE,
    TRUE,
    TYPE_MISMATCH,
    VARIANT_NULL,
    little,
    signed,
)

BOOLEAN: Final = i64(0)
INTEGER: Final = i64(1)
FLOAT: Final = i64(2)
DOUBLE: Final = i64(3)
DATE: Final = i64(4)
TIME: Final = i64(5)
TIMESTAMP: Final = i64(6)
TIMESTAMP_NTZ: Final = i64(7)

BETWEEN = NANOS - MICROS
# Headers of the narrow whole numbers, less what they share.
INT8_HEADER = u64(3 << 2)
INT16_HEADER = u64(3 << 2 ^ 4 << 2)
INT32_HEADER = u64(3 << 2 ^ 5 << 2)
# Floats of four and of two bytes: the fraction has 23 and 10 bits, the exponent is 127 and 15 too large.
SINGLE_HIDDEN = u64(1 << 23)
NOT_FINITE = i64(0xFF)
HALF_FRACTION = u64(10)
HALF_INFINITY = u64(0x7C00)
HALF_QUIET = u64(0x200)
HALF_SIGN = u64(0x8000)
LEAST_HALF = i64(127 - 15)
MOST_HALF = i64(127 + 15)
DROPPED = u64(13)
DROPPED_MASK = u64((1 << 13) - 1)
MOST_DROPPED = i64(20)


def scaled(number: Any, source: Any, target: Any) -> Any:
    """Return a status, and a number of `source` units a second as one of `target` units."""
    status = OK
    found = number
    if target > source:
        factor = target // source
        if number > (2**63 - 1) // factor or number < -((2**63 - 1) // factor):
            status = OVERFLOW
        else:
            found = number * factor
    elif target < source:
        divisor = source // target
        if number % divisor != 0:
            status = OVERFLOW
        found = number // divisor
    return status, found


def whole_number(data: Any, at: Any, kind: Any) -> Any:
    """Return a status, and the number of an exact type as a signed one."""
    status = OK
    found = i64(0)
    if kind <= INT64:
        width = 1 << i64(kind - INT8)
        if at + u64(width) >= u64(len(data)):
            status = MALFORMED
        else:
            found = signed(data, at + 1, width)
    else:
        status, negative, high, low = exact_number(data, at, u64(0))
        if status == OK:
            status, found = with_sign(negative, high, low)
    return status, found


def with_sign(negative: Any, high: Any, low: Any) -> Any:
    """Return a status, and a magnitude of two words as a signed number of one."""
    status = OK
    found = i64(low)
    if negative:
        found = i64(~low + 1)
    if high != 0 or (low >> 63 != 0 and not (negative and low == (1 << 63))):
        status = OVERFLOW
        found = i64(0)
    return status, found


def fixed(data: Any, at: Any, width: Any) -> Any:
    """Return a status, and the signed number behind the header at `at`."""
    status = MALFORMED
    found = i64(0)
    if at + u64(width) < u64(len(data)):
        status = OK
        found = signed(data, at + 1, width)
    return status, found


def in_micros(kind: Any) -> Any:
    """Return the type in microseconds beside that of a timestamp in nanoseconds, and any other as it is."""
    found = kind
    if kind >= NANOS and kind <= NANOS_NTZ:
        found = kind - BETWEEN
    return found


def moment(data: Any, at: Any, kind: Any, target: Any) -> Any:
    """Return a status, and the time or timestamp at `at` in `target` units a second."""
    status, found = fixed(data, at, i64(8))
    source = i64(1_000_000)
    if kind >= NANOS:
        source = i64(1_000_000_000)
    if status == OK and kind == KIND_TIME and (found < 0 or found >= DAY):
        status = MALFORMED
    if status == OK:
        status, found = scaled(found, source, target)
    return status, found


def number_of(data: Any, at: Any, family: Any, low: Any, high: Any, unit: Any) -> Any:
    """Return a status and the value at `at`: a number, or the bits of a float.

    `unit` is units a second, for a date units a day; `low` and `high` are the least and the greatest number.
    """
    if at >= u64(len(data)):
        return MALFORMED, i64(0)
    header = u64(data[at])
    kind = header >> 2
    status = TYPE_MISMATCH
    found = i64(0)
    if header & BASIC == PRIMITIVE:
        if family == INTEGER and (
            (kind >= INT8 and kind <= INT64) or (kind >= DECIMAL4 and kind <= DECIMAL16)
        ):
            status, found = whole_number(data, at, kind)
        elif kind == 0:
            status = VARIANT_NULL
        elif (family == DOUBLE and kind == KIND_DOUBLE) or (family == FLOAT and kind == KIND_FLOAT):
            width = i64(8)
            if family == FLOAT:
                width = i64(4)
            status, found = fixed(data, at, width)
        elif family == BOOLEAN and kind >= TRUE and kind <= FALSE:
            status = OK
            found = i64(2 - kind)
        elif family == DATE and kind == KIND_DATE:
            status, found = fixed(data, at, i64(4))
            if status == OK:
                status, found = scaled(found, i64(1), unit)
        elif (
            (family == TIME and kind == KIND_TIME)
            or (family == TIMESTAMP and in_micros(kind) == MICROS)
            or (family == TIMESTAMP_NTZ and in_micros(kind) == MICROS_NTZ)
        ):
            status, found = moment(data, at, kind, unit)
    if status == OK and (found < low or found > high):
        status = OVERFLOW
    if status != OK:
        found = i64(0)
    return status, found


def small_integer(data: Any, at: Any) -> Any:
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


def number_in(
    row: Any,
    data: Any,
    places: Any,
    family: Any,
    low: Any,
    high: Any,
    unit: Any,
    statuses: Any,
) -> Any:
    """Return what the value of a row becomes, 0 where its status is not ``OK``, and write its status."""
    found = i64(0)
    if statuses[row] == OK:
        known = False
        if family == INTEGER:
            known, found = small_integer(data, u64(places[row]))
        if not known or found < low or found > high:
            status, found = number_of(data, u64(places[row]), family, low, high, unit)
            statuses[row] = status
    return found


def cast_numbers(
    i: Any,
    data: Any,
    places: Any,
    family: Any,
    low: Any,
    high: Any,
    unit: Any,
    spare: Any,
    block: Any,
    statuses: Any,
    out: Any,
) -> None:
    """Write values without their `spare` highest bits, so that the elements of `out` hold them.

    `block` rows are one work item.
    """
    for row in range(i * block, min((i + 1) * block, i64(len(out)))):
        out[row] = (number_in(row, data, places, family, low, high, unit, statuses) << spare) >> spare


def half_of(bits: Any) -> Any:
    """Return a status, and the bits of the float of two bytes that a float of four is, if it is one."""
    exponent = i64((bits >> SINGLE_SHIFT) & SINGLE_EXPONENTS)
    fraction = bits & SINGLE_FRACTION
    found = u64(0)
    status = OK
    if exponent == NOT_FINITE:
        found = HALF_INFINITY
        if fraction != 0:
            found |= HALF_QUIET
    elif exponent > LEAST_HALF:
        found = (u64(exponent - LEAST_HALF) << HALF_FRACTION) | (fraction >> DROPPED)
        if exponent > MOST_HALF or fraction & DROPPED_MASK != 0:
            status = OVERFLOW
    elif exponent | i64(fraction) != 0:
        # Below the least exponent of halves, digits go one after the other.
        whole = fraction | SINGLE_HIDDEN
        drop = u64(min(LEAST_HALF - exponent, MOST_DROPPED)) + DROPPED + 1
        found = whole >> drop
        if found << drop != whole or exponent == 0:
            status = OVERFLOW
    return status, found | ((bits >> 16) & HALF_SIGN)


def cast_halves(i: Any, data: Any, places: Any, statuses: Any, out: Any) -> None:
    """Write floats of four bytes as such of two, where nothing is lost. The work item is one row."""
    found = u64(0)
    if statuses[i] == OK:
        status, bits = number_of(data, u64(places[i]), FLOAT, i64(-(2**63)), i64(2**63 - 1), i64(1))
        if status == OK:
            status, found = half_of(u64(bits))
        if status != OK:
            found = u64(0)
        statuses[i] = status
    out[i] = u16(found)


SIGNATURES = {
    cast_halves: ("u8[], u64[], u8[]!, u16[]!",),
    cast_numbers: tuple(
        f"u8[], u64[], i64, i64, i64, i64, i64, i64, u8[]!, {each}[]!" for each in ("i8", "i16", "i32", "i64")
    ),
}
