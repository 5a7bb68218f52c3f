# ruff: noqa: PLR1714, SIM109  a kernel has no "in"
"""Variant's values as Spark's ``try_variant_get`` casts them to numbers and times, all but text.

Work item: one row. A value that is text keeps its row for the kernels of `kernels.variant.spark.parse`. Whole
numbers and decimals are cut, not rounded, to integers; seconds become microseconds; UTC is the one time zone.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.floats import (
    FINITE,
    NOT_A_NUMBER,
    SINGLE_NAN,
    decimal_ratio,
    float_of_decimal,
    packed_float,
    parts_of_float,
    scaled_float,
    widened,
)
from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.variant.decimals import raw_number
from bowstring.kernels.variant.format import (
    BASIC,
    DAY,
    DECIMAL4,
    DECIMAL16,
    FALSE,
    INT64,
    KIND_BINARY,
    KIND_DATE,
    KIND_DOUBLE,
    KIND_FLOAT,
    KIND_STRING,
    KIND_UUID,
    MALFORMED,
    MICROS,
    MICROS_NTZ,
    OK,
    OVERFLOW,
    PRIMITIVE,
    SHORT,
    SIZES,
    TYPE_MISMATCH,
    UNSUPPORTED,
    VARIANT_NULL,
)
from bowstring.kernels.variant.numbers import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    fixed,
    with_sign,
)
from bowstring.kernels.words import by_ten, times_ten

IS_TEXT: Final = u8(255)
"""The status of a row whose value is text: another kernel casts it."""

BEYOND = i64(1024)


def cut_float(negative: Any, mantissa: Any, exponent: Any, kind: Any) -> Any:
    """Return a status, and a float without its fraction as Java does: 2 ** 63 is the largest number below it."""
    status = OK
    whole = u64(0)
    if kind != FINITE:
        status = OVERFLOW
    elif exponent < -i64(63):
        whole = u64(0)
    elif exponent <= 0:
        whole = mantissa >> u64(-exponent)
    elif exponent > 63 or (mantissa << u64(exponent)) >> u64(exponent) != mantissa:
        if mantissa != 0:
            status = OVERFLOW
    else:
        whole = mantissa << u64(exponent)
    found = i64(whole)
    if negative:
        found = i64(~whole + 1)
    if whole >= (1 << 63):
        if whole > (1 << 63):
            status = OVERFLOW
        elif not negative:
            found = i64(2**63 - 1)
    return status, found


def cut_decimal(negative: Any, high: Any, low: Any, scale: Any) -> Any:
    """Return a status, and a decimal without its fraction."""
    upper = high
    lower = low
    for _ in range(i64(scale)):
        upper, lower, _rest = by_ten(upper, lower)
    return with_sign(negative, upper, lower)


def magnitude(number: Any) -> Any:
    """Return a signed number without its sign."""
    found = u64(number)
    if number < 0:
        found = ~found + 1
    return found


def micros_as_double(micros: Any) -> Any:
    """Return the bits of the double that microseconds are in seconds: rounded as a double first, as Spark does."""
    first = packed_float(micros < 0, magnitude(micros), i64(0), u64(0), False)
    negative, mantissa, exponent, _kind = parts_of_float(first, False)
    ratio, power, sticky = decimal_ratio(u64(0), mantissa, u64(6))
    return packed_float(negative, ratio, power + exponent, sticky, False)


def other_float(bits: Any, single: Any) -> Any:
    """Return the bits of a double as those of a float, if `single`."""
    found = bits
    if single:
        negative, mantissa, exponent, kind = parts_of_float(bits, False)
        if kind == FINITE:
            found = packed_float(negative, mantissa, exponent, u64(0), True)
        else:
            found = SINGLE_NAN
            if kind != NOT_A_NUMBER:
                # Too large for any float: infinite.
                found = packed_float(negative, u64(1), BEYOND, u64(0), True)
    return found


def from_exact(data: Any, at: Any, kind: Any, family: Any, wide: Any) -> Any:
    """Return a status, and what an exact number or a boolean becomes."""
    status = OK
    found = i64(0)
    negative = False
    high = u64(0)
    low = u64(0)
    scale = u64(0)
    if kind <= FALSE:
        low = 2 - kind
        if family > DOUBLE:
            status = TYPE_MISMATCH
    elif family == DATE or family == TIMESTAMP_NTZ:
        status = TYPE_MISMATCH
    else:
        status, negative, high, low, scale = raw_number(data, at)
    if status == OK:
        if family == BOOLEAN:
            found = i64(high | low != 0)
        elif family == TIMESTAMP:
            fits = True
            for _ in range(i64(scale), 6):
                high, low, more = times_ten(high, low)
                fits = fits and more
            status, found = cut_decimal(negative, high, low, max(scale, u64(6)) - 6)
            if not fits:
                status = OVERFLOW
        elif family == INTEGER and (wide or kind < DECIMAL4):
            status, found = cut_decimal(negative, high, low, scale)
        elif family == INTEGER:
            # Spark takes decimals to narrow integers by way of doubles.
            less, mantissa, exponent, finite = parts_of_float(
                float_of_decimal(negative, high, low, scale, i64(8)), False
            )
            status, found = cut_float(less, mantissa, exponent, finite)
        else:
            size = i64(8)
            if family == FLOAT:
                size = i64(4)
            found = i64(float_of_decimal(negative, high, low, scale, size))
    return status, found


def from_real(bits: Any, single: Any, family: Any) -> Any:
    """Return a status, and what a float or double becomes."""
    status = OK
    found = i64(0)
    negative, mantissa, exponent, kind = parts_of_float(bits, single)
    if family == BOOLEAN:
        found = i64(mantissa != 0 or kind != FINITE)
    elif family == INTEGER:
        status, found = cut_float(negative, mantissa, exponent, kind)
    elif family == DOUBLE:
        found = i64(widened(bits) if single else bits)
    elif family == FLOAT:
        found = i64(bits if single else other_float(bits, True))
    elif family == TIMESTAMP:
        if kind != FINITE:
            status = OVERFLOW
        else:
            product, power, sticky = scaled_float(mantissa, exponent, u64(1_000_000))
            negative, mantissa, exponent, kind = parts_of_float(
                packed_float(negative, product, power, sticky, False), False
            )
            status, found = cut_float(negative, mantissa, exponent, kind)
    else:
        status = TYPE_MISMATCH
    return status, found


def from_moment(number: Any, kind: Any, family: Any) -> Any:
    """Return a status, and what a date, in days, or a timestamp, in microseconds, becomes."""
    status = TYPE_MISMATCH
    found = i64(0)
    if kind == KIND_DATE:
        if family == DATE:
            status = OK
            found = number
        elif family >= TIMESTAMP:
            status = OVERFLOW
            if number <= (2**63 - 1) // DAY and number >= -((2**63 - 1) // DAY):
                status = OK
                found = number * DAY
    elif family >= TIMESTAMP:
        status = OK
        found = number
    elif family == DATE:
        status = OK
        found = number // DAY
    elif kind == MICROS and family == INTEGER:
        status = OK
        found = number // 1_000_000
    elif kind == MICROS and (family == FLOAT or family == DOUBLE):
        status = OK
        found = i64(other_float(micros_as_double(number), family == FLOAT))
    return status, found


def spark_number(data: Any, at: Any, family: Any, low: Any, high: Any) -> Any:
    """Return a status, and what the value at `at` becomes: a number, or the bits of a float."""
    if at >= u64(len(data)):
        return MALFORMED, i64(0)
    header = u64(data[at])
    basic = header & BASIC
    kind = header >> 2
    status = TYPE_MISMATCH
    found = i64(0)
    if basic == SHORT or (basic == PRIMITIVE and kind == KIND_STRING):
        status = IS_TEXT
    elif basic == PRIMITIVE:
        if kind == 0:
            status = VARIANT_NULL
        elif kind <= INT64 or (kind >= DECIMAL4 and kind <= DECIMAL16):
            status, found = from_exact(data, at, kind, family, high == (2**63 - 1))
        elif kind == KIND_DOUBLE or kind == KIND_FLOAT:
            status, found = fixed(data, at, i64(SIZES[kind]))
            if status == OK and kind == KIND_FLOAT:
                status, found = from_real(u64(found) & (2**32 - 1), True, family)
            elif status == OK:
                status, found = from_real(u64(found), False, family)
        elif kind >= KIND_DATE and kind <= MICROS_NTZ:
            status, found = fixed(data, at, i64(SIZES[kind]))
            if status == OK:
                status, found = from_moment(found, kind, family)
        elif kind != KIND_BINARY and kind != KIND_UUID:
            status = UNSUPPORTED
    if status == OK and family == INTEGER and (found < low or found > high):
        status = OVERFLOW
    if status != OK:
        found = i64(0)
    return status, found


def spark_numbers(
    i: Any, data: Any, places: Any, family: Any, low: Any, high: Any, statuses: Any, out: Any
) -> None:
    """Write what the value of a row becomes; rows of a status other than ``OK`` become 0."""
    found = i64(0)
    if statuses[i] == OK:
        status, found = spark_number(data, u64(places[i]), family, low, high)
        statuses[i] = status
    out[i] = found


SIGNATURES = {spark_numbers: ("u8[], u64[], i64, i64, i64, u8[]!, i64[]!",)}
