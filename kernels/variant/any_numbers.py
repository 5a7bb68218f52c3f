# ruff: noqa: PLR1714, SIM109  a kernel has no "in"
"""Variant's numbers of any type as whole numbers and floats: the rule ``number``.

Whole numbers take what is integral and in range. Floats take what is nearest, ties to even: what is beyond the
largest of them is an overflow, what is below the least one zero. Work item: a block of rows, of one where there is
a thread for each.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.floats import (
    FINITE,
    HALF_INFINITY,
    NOT_A_NUMBER,
    SINGLE_INFINITY,
    float_of_decimal,
    packed_float,
    packed_half,
    parts_of_float,
    widened,
)
from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.variant.decimals import exact_number, raw_number
from bowstring.kernels.variant.format import (
    BASIC,
    DECIMAL4,
    DECIMAL16,
    INT8,
    INT64,
    KIND_DOUBLE,
    KIND_FLOAT,
    MALFORMED,
    OK,
    OVERFLOW,
    PRIMITIVE,
    SIZES,
    TYPE_MISMATCH,
    VARIANT_NULL,
)
from bowstring.kernels.variant.numbers import fixed, number_of, small_integer, with_sign
from bowstring.kernels.variant.walk_fast import LOCATED

# Beside the families of bowstring.kernels.variant.numbers.
ANY_INTEGER: Final = i64(8)
ANY_UNSIGNED: Final = i64(9)
"""Whole numbers of 64 bits without a sign."""
ANY_HALF: Final = i64(10)
ANY_FLOAT: Final = i64(11)
ANY_DOUBLE: Final = i64(12)

QUIET_SINGLE = u64(1 << 22)
QUIET_HALF = u64(1 << 9)


def magnitude_of_float(mantissa: Any, exponent: Any, kind: Any) -> Any:
    """Return a status, and a float of which the parts are given as a whole number, if it is one."""
    status = OVERFLOW
    found = u64(0)
    if kind == FINITE and mantissa == 0:
        status = OK
    elif kind == FINITE and exponent >= 0 and exponent < 64:
        found = mantissa << u64(exponent)
        if found >> u64(exponent) == mantissa:
            status = OK
    elif kind == FINITE and exponent < 0 and exponent > -i64(64):
        found = mantissa >> u64(-exponent)
        if found << u64(-exponent) == mantissa:
            status = OK
    return status, found


def narrowed(bits: Any, single: Any, family: Any) -> Any:
    """Return a status, and the bits of the narrower float nearest to one of 8 bytes, or of 4 if `single`."""
    negative, mantissa, exponent, kind = parts_of_float(bits, single)
    status = OK
    sign = u64(0)
    if negative:
        sign = u64(1)
    found = HALF_INFINITY
    top = HALF_INFINITY
    quiet = QUIET_HALF
    sign = sign << 15
    if family == ANY_FLOAT:
        found = SINGLE_INFINITY
        top = SINGLE_INFINITY
        quiet = QUIET_SINGLE
        sign = sign << 16
    if kind == NOT_A_NUMBER:
        found |= quiet
    elif kind == FINITE:
        if family == ANY_FLOAT:
            found = packed_float(False, mantissa, exponent, u64(0), True)
        else:
            found = packed_half(False, mantissa, exponent, u64(0))
        if found == top:
            status = OVERFLOW
    return status, i64(found | sign)


def from_real(bits: Any, single: Any, family: Any) -> Any:
    """Return a status, and what a float becomes."""
    status = OK
    found = i64(0)
    if family <= ANY_UNSIGNED:
        negative, mantissa, exponent, kind = parts_of_float(bits, single)
        status, whole = magnitude_of_float(mantissa, exponent, kind)
        if status == OK:
            status, found = whole_number_of(negative, u64(0), whole, family)
    elif family == ANY_DOUBLE:
        found = i64(widened(bits) if single else bits)
    elif family == ANY_FLOAT and single:
        found = i64(bits)
    else:
        status, found = narrowed(bits, single, family)
    return status, found


def whole_number_of(negative: Any, high: Any, low: Any, family: Any) -> Any:
    """Return a status, and a magnitude of two words as a whole number: the bits of one without a sign."""
    status = OK
    found = i64(low)
    if family != ANY_UNSIGNED:
        status, found = with_sign(negative, high, low)
    elif high != 0 or (negative and low != 0):
        status = OVERFLOW
    return status, found


def from_exact(data: Any, at: Any, family: Any) -> Any:
    """Return a status, and what a whole number or a decimal becomes."""
    found = i64(0)
    if family <= ANY_UNSIGNED:
        status, negative, high, low = exact_number(data, at, u64(0))
        if status == OK:
            status, found = whole_number_of(negative, high, low, family)
    else:
        status, negative, high, low, scale = raw_number(data, at)
        if status == OK:
            size = i64(8)
            if family != ANY_DOUBLE:
                size = i64(family - ANY_HALF + 1) << 1
            bits = float_of_decimal(negative, high, low, scale, size)
            found = i64(bits)
            # No decimal is beyond the floats of four bytes.
            if size == 2 and bits & HALF_INFINITY == HALF_INFINITY:
                status = OVERFLOW
    return status, found


def any_number(data: Any, at: Any, family: Any, least: Any, most: Any) -> Any:
    """Return a status, and what the number at `at` becomes: a whole number, or the bits of a float."""
    status = MALFORMED
    found = i64(0)
    if at < u64(len(data)):
        header = u64(data[at])
        kind = header >> 2
        status = TYPE_MISMATCH
        if header & BASIC == PRIMITIVE:
            if kind == KIND_DOUBLE or kind == KIND_FLOAT:
                status, found = fixed(data, at, i64(SIZES[kind]))
                if status == OK and kind == KIND_FLOAT:
                    status, found = from_real(u64(found) & (2**32 - 1), True, family)
                elif status == OK:
                    status, found = from_real(u64(found), False, family)
            elif (kind >= INT8 and kind <= INT64) or (kind >= DECIMAL4 and kind <= DECIMAL16):
                status, found = from_exact(data, at, family)
            elif kind == 0:
                status = VARIANT_NULL
    if status == OK and family == ANY_INTEGER and (found < least or found > most):
        status = OVERFLOW
    if status != OK:
        found = i64(0)
    return status, found


def cast_any_numbers(
    i: Any,
    data: Any,
    places: Any,
    family: Any,
    least: Any,
    most: Any,
    spare: Any,
    block: Any,
    statuses: Any,
    out: Any,
) -> None:
    """Write numbers without their `spare` highest bits, and 0 for rows of a status other than ``OK``."""
    for row in range(i * block, min((i + 1) * block, i64(len(out)))):
        found = i64(0)
        if statuses[row] == OK:
            known = False
            if family == ANY_INTEGER:
                known, found = small_integer(data, u64(places[row]))
            if not known or found < least or found > most:
                status, found = any_number(data, u64(places[row]), family, least, most)
                statuses[row] = status
        out[row] = (found << spare) >> spare


def read_located(
    i: Any,
    data: Any,
    family: Any,
    least: Any,
    most: Any,
    unit: Any,
    spare: Any,
    block: Any,
    statuses: Any,
    numbers: Any,
) -> None:
    """Write the numbers of the rows of status ``LOCATED``, each of which has its place there.

    The arguments are those of the casts: the family is one of any numbers, or of exact ones.
    """
    for row in range(i * block, min((i + 1) * block, i64(len(numbers)))):
        if statuses[row] == LOCATED:
            at = (u64(i64(numbers[row])) << u64(spare)) >> u64(spare)
            status = OK
            found = i64(0)
            if family >= ANY_INTEGER:
                status, found = any_number(data, at, family, least, most)
            else:
                status, found = number_of(data, at, family, least, most, unit)
            statuses[row] = u8(status)
            numbers[row] = (found << spare) >> spare


SIGNATURES = {
    cast_any_numbers: tuple(
        f"u8[], u64[], i64, i64, i64, i64, i64, u8[]!, {each}[]!" for each in ("i8", "i16", "i32", "i64")
    ),
    read_located: tuple(f"u8[], i64, i64, i64, i64, i64, i64, u8[]!, {each}[]!" for each in ("i32", "i64")),
}
