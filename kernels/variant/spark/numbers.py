"""Variant's values as Spark's ``try_variant_get`` casts them to numbers and times, all but text.

Work item: one row. A value that is text keeps its row for the kernels of `kernels.variant.spark.parse`. Whole
numbers and decimals are cut, not rounded, to integers; seconds become microseconds; UTC is the one time zone.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels import floats
from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.variant import encoding, numbers
from bowstring.kernels.variant.decimals import raw_number
from bowstring.kernels.variant.numbers import bits_of, fixed, with_sign
from bowstring.kernels.words import by_ten, times_ten

IS_TEXT: Final = u8(255)
"""The status of a row whose value is text: another kernel casts it."""

BEYOND = i64(1024)


def cut_float(negative, mantissa, exponent, kind):
    """Return a status, and a float without its fraction as Java does: 2 ** 63 is the largest number below it."""
    status = encoding.OK
    whole = u64(0)
    if kind != floats.FINITE:
        status = encoding.OVERFLOW
    elif exponent < -i64(63):
        whole = u64(0)
    elif exponent <= 0:
        whole = mantissa >> u64(-exponent)
    elif exponent > 63 or (mantissa << u64(exponent)) >> u64(exponent) != mantissa:
        if mantissa != 0:
            status = encoding.OVERFLOW
    else:
        whole = mantissa << u64(exponent)
    found = i64(whole)
    if negative:
        found = i64(~whole + 1)
    if whole >= (1 << 63):
        if whole > (1 << 63):
            status = encoding.OVERFLOW
        elif not negative:
            found = i64(2**63 - 1)
    return status, found


def cut_decimal(negative, high, low, scale):
    """Return a status, and a decimal without its fraction."""
    upper = high
    lower = low
    for _ in range(i64(scale)):
        upper, lower, _rest = by_ten(upper, lower)
    return with_sign(negative, upper, lower)


def micros_as_double(micros):
    """Return the bits of the double that microseconds are in seconds: rounded as a double first, as Spark does."""
    first = floats.packed_float(micros < 0, u64(max(micros, -micros)), i64(0), u64(0), floats.DOUBLE)
    negative, mantissa, exponent, _kind = floats.parts_of_float(first, floats.DOUBLE)
    ratio, power, sticky = floats.decimal_ratio(u64(0), mantissa, u64(6))
    return floats.packed_float(negative, ratio, power + exponent, sticky, floats.DOUBLE)


def as_single(bits):
    """Return the bits of the float of four bytes nearest to a double; what is too large becomes infinite."""
    negative, mantissa, exponent, kind = floats.parts_of_float(bits, floats.DOUBLE)
    single = floats.SINGLE_NAN
    if kind == floats.FINITE:
        single = floats.packed_float(negative, mantissa, exponent, u64(0), floats.SINGLE)
    elif kind == floats.INFINITE:
        single = floats.packed_float(negative, u64(1), BEYOND, u64(0), floats.SINGLE)
    return single


def from_exact(data, at, kind, family, wide):
    """Return a status, and what an exact number or a boolean becomes."""
    status = encoding.OK
    found = i64(0)
    negative = False
    high = u64(0)
    low = u64(0)
    scale = u64(0)
    if kind <= encoding.FALSE:
        low = 2 - kind
        if family > numbers.DOUBLE:
            status = encoding.TYPE_MISMATCH
    elif family == numbers.DATE or family == numbers.TIMESTAMP_NTZ:
        status = encoding.TYPE_MISMATCH
    else:
        status, negative, high, low, scale = raw_number(data, at)
    if status == encoding.OK:
        if family == numbers.BOOLEAN:
            found = i64(high | low != 0)
        elif family == numbers.TIMESTAMP:
            fits = True
            for _ in range(i64(scale), 6):
                high, low, more = times_ten(high, low)
                fits = fits and more
            status, found = cut_decimal(negative, high, low, max(scale, u64(6)) - 6)
            if not fits:
                status = encoding.OVERFLOW
        elif family == numbers.INTEGER and (wide or kind < encoding.DECIMAL4):
            status, found = cut_decimal(negative, high, low, scale)
        elif family == numbers.INTEGER:
            # Spark takes decimals to narrow integers by way of doubles.
            less, mantissa, exponent, finite = floats.parts_of_float(
                floats.float_of_decimal(negative, high, low, scale, floats.DOUBLE), floats.DOUBLE
            )
            status, found = cut_float(less, mantissa, exponent, finite)
        else:
            size = i64(8)
            if family == numbers.FLOAT:
                size = i64(4)
            found = i64(floats.float_of_decimal(negative, high, low, scale, size))
    return status, found


def from_real(bits, size, family):
    """Return a status, and what a float or double becomes."""
    status = encoding.OK
    found = i64(0)
    negative, mantissa, exponent, kind = floats.parts_of_float(bits, size)
    if family == numbers.BOOLEAN:
        found = i64(mantissa != 0 or kind != floats.FINITE)
    elif family == numbers.INTEGER:
        status, found = cut_float(negative, mantissa, exponent, kind)
    elif family == numbers.DOUBLE:
        found = i64(floats.widened(bits) if size == floats.SINGLE else bits)
    elif family == numbers.FLOAT:
        found = i64(bits if size == floats.SINGLE else as_single(bits))
    elif family == numbers.TIMESTAMP:
        if kind != floats.FINITE:
            status = encoding.OVERFLOW
        else:
            product, power, sticky = floats.scaled_float(mantissa, exponent, u64(1_000_000))
            negative, mantissa, exponent, kind = floats.parts_of_float(
                floats.packed_float(negative, product, power, sticky, floats.DOUBLE), floats.DOUBLE
            )
            status, found = cut_float(negative, mantissa, exponent, kind)
    else:
        status = encoding.TYPE_MISMATCH
    return status, found


def from_moment(number, kind, family):
    """Return a status, and what a date, in days, or a timestamp, in microseconds, becomes."""
    status = encoding.TYPE_MISMATCH
    found = i64(0)
    if kind == encoding.KIND_DATE:
        if family == numbers.DATE:
            status = encoding.OK
            found = number
        elif family >= numbers.TIMESTAMP:
            status = encoding.OVERFLOW
            if number <= (2**63 - 1) // encoding.DAY and number >= -((2**63 - 1) // encoding.DAY):
                status = encoding.OK
                found = number * encoding.DAY
    elif family >= numbers.TIMESTAMP:
        status = encoding.OK
        found = number
    elif family == numbers.DATE:
        status = encoding.OK
        found = number // encoding.DAY
    elif kind == encoding.MICROS and family == numbers.INTEGER:
        status = encoding.OK
        found = number // 1_000_000
    elif kind == encoding.MICROS and (family == numbers.FLOAT or family == numbers.DOUBLE):
        status = encoding.OK
        bits = micros_as_double(number)
        found = i64(as_single(bits) if family == numbers.FLOAT else bits)
    return status, found


def spark_number(data, at, family, low, high):
    """Return a status, and what the value at `at` becomes: a number, or the bits of a float."""
    if at >= u64(len(data)):
        return encoding.MALFORMED, i64(0)
    header = u64(data[at])
    basic = header & encoding.BASIC
    kind = header >> 2
    status = encoding.TYPE_MISMATCH
    found = i64(0)
    if basic == encoding.SHORT or (basic == encoding.PRIMITIVE and kind == encoding.KIND_STRING):
        status = IS_TEXT
    elif basic == encoding.PRIMITIVE:
        if kind == 0:
            status = encoding.VARIANT_NULL
        elif kind <= encoding.INT64 or (kind >= encoding.DECIMAL4 and kind <= encoding.DECIMAL16):
            status, found = from_exact(data, at, kind, family, high == (2**63 - 1))
        elif kind == encoding.KIND_DOUBLE or kind == encoding.KIND_FLOAT:
            size = i64(encoding.SIZES[kind])
            status, found = fixed(data, at, size)
            if status == encoding.OK:
                status, found = from_real(bits_of(found, size), size, family)
        elif kind >= encoding.KIND_DATE and kind <= encoding.MICROS_NTZ:
            status, found = fixed(data, at, i64(encoding.SIZES[kind]))
            if status == encoding.OK:
                status, found = from_moment(found, kind, family)
        elif kind != encoding.KIND_BINARY and kind != encoding.KIND_UUID:
            status = encoding.UNSUPPORTED
    if status == encoding.OK and family == numbers.INTEGER and (found < low or found > high):
        status = encoding.OVERFLOW
    if status != encoding.OK:
        found = i64(0)
    return status, found


def spark_numbers(i, data, places, family, low, high, statuses, out):
    """Write what the value of a row becomes; rows of a status other than ``OK`` become 0."""
    found = i64(0)
    if statuses[i] == encoding.OK:
        status, found = spark_number(data, u64(places[i]), family, low, high)
        statuses[i] = status
    out[i] = found


SIGNATURES = {spark_numbers: ("u8[], u64[], i64, i64, i64, u8[]!, i64[]!",)}
