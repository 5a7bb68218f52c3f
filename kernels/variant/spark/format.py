# ruff: noqa: PLR1714, SIM109  a kernel has no "in"
"""Variant's values as Spark's ``try_variant_get`` writes them: plain decimals, Java's floats, times in UTC.

Work item: one row. One function measures and writes: where nothing may be written, it says how much there would be.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.floats import FINITE, NOT_A_NUMBER, parts_of_float
from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.validation.text import is_text
from bowstring.kernels.variant.bytes import copy_between
from bowstring.kernels.variant.format import (
    BASIC,
    BROKEN,
    DAY,
    DECIMAL4,
    DECIMAL16,
    FALSE,
    INT8,
    INT64,
    KIND_BINARY,
    KIND_DATE,
    KIND_DOUBLE,
    KIND_FLOAT,
    KIND_STRING,
    KIND_UUID,
    MALFORMED,
    MICROS_NTZ,
    OK,
    OVERFLOW,
    PRIMITIVE,
    SHORT,
    SIZES,
    TRUE,
    UNSUPPORTED,
    VARIANT_NULL,
)
from bowstring.kernels.variant.numbers import fixed
from bowstring.kernels.variant.spark.numbers import magnitude
from bowstring.kernels.variant.spark.parse import text_at
from bowstring.kernels.variant.text.leaves import put_date, put_exact, put_time, put_uuid
from bowstring.kernels.variant.text.put import put, put_number
from bowstring.kernels.variant.text.reals import put_real

IS_HOLDER: Final = u8(255)
"""The status of a row whose value is an array or object: it is written as JSON."""

JAVA = i64(1)
TRUE_WORD = u64(int.from_bytes(b"true", "little"))
FALSE_WORD = u64(int.from_bytes(b"false", "little"))
MICROSECONDS = u64(6)
SPARK = i64(1)
NAN_WORD = u64(int.from_bytes(b"NaN", "little"))
INFINITY_WORD = u64(int.from_bytes(b"Infinity", "little"))


def put_float(out: Any, limit: Any, at: Any, bits: Any, single: Any) -> Any:
    """Write a float as Java does."""
    negative, _mantissa, _exponent, kind = parts_of_float(bits, single)
    end = at
    if kind == FINITE:
        end = put_real(out, limit, at, bits, i64(single), JAVA)
    elif kind == NOT_A_NUMBER:
        end = put(out, limit, at, NAN_WORD, u64(3))
    else:
        end = put(out, limit, at, u64(ord("-")), u64(negative))
        end = put(out, limit, end, INFINITY_WORD, u64(8))
    return end


def put_value(data: Any, at: Any, out: Any, limit: Any, begin: Any) -> Any:
    """Write a primitive that is neither text nor binary; return a status, and where it ends in `out`."""
    kind = u64(data[at]) >> 2
    status = OK
    end = begin
    if kind == 0:
        status = VARIANT_NULL
    elif kind == TRUE:
        end = put(out, limit, begin, TRUE_WORD, u64(4))
    elif kind == FALSE:
        end = put(out, limit, begin, FALSE_WORD, u64(5))
    elif kind <= INT64:
        status, number = fixed(data, at, 1 << i64(kind - INT8))
        if status == OK:
            end = put(out, limit, begin, u64(ord("-")), u64(number < 0))
            end = put_number(out, limit, end, magnitude(number))
    elif kind >= DECIMAL4 and kind <= DECIMAL16:
        status = MALFORMED
        if at + 1 + (4 << (kind - DECIMAL4)) < u64(len(data)):
            end = put_exact(out, limit, begin, data, at + 1, kind, SPARK)
            if end != BROKEN:
                status = OK
    elif kind == KIND_DOUBLE or kind == KIND_FLOAT or (kind >= KIND_DATE and kind <= MICROS_NTZ):
        status, number = fixed(data, at, i64(SIZES[kind]))
        if status == OK and kind == KIND_DOUBLE:
            end = put_float(out, limit, begin, u64(number), False)
        elif status == OK and kind == KIND_FLOAT:
            end = put_float(out, limit, begin, u64(number) & (2**32 - 1), True)
        elif status == OK and kind == KIND_DATE:
            end = put_date(out, limit, begin, number)
        elif status == OK:
            end = put_date(out, limit, begin, number // DAY)
            end = put(out, limit, end, u64(ord(" ")), u64(1))
            end = put_time(out, limit, end, u64(number % DAY), MICROSECONDS, SPARK)
    elif kind == KIND_UUID:
        status = MALFORMED
        if at + 16 < u64(len(data)):
            status = OK
            end = put_uuid(out, limit, begin, data, at + 1)
    else:
        status = UNSUPPORTED
    return status, end


def is_bytes(data: Any, at: Any) -> Any:
    """Return whether the value at `at` is text or binary."""
    header = u64(data[at])
    kind = header >> 2
    return header & BASIC == SHORT or (
        header & BASIC == PRIMITIVE and kind >= KIND_BINARY and kind <= KIND_STRING
    )


def measure_spark_strings(i: Any, data: Any, places: Any, statuses: Any, nowhere: Any, sizes: Any) -> None:
    """Write how many bytes the text of a row has. Binary must be UTF-8."""
    size = i64(0)
    at = u64(places[i])
    if statuses[i] == OK:
        status = MALFORMED
        if at < u64(len(data)):
            if is_bytes(data, at):
                first, last = text_at(data, at)
                status = OK
                size = i64(last - first)
                if not is_text(data, i64(first), i64(last)):
                    status = MALFORMED
                    if u64(data[at]) >> 2 == KIND_BINARY and u64(data[at]) & BASIC == PRIMITIVE:
                        status = OVERFLOW
            elif u64(data[at]) & BASIC == PRIMITIVE:
                status, end = put_value(data, at, nowhere, u64(0), u64(0))
                size = i64(end)
            else:
                status = IS_HOLDER
        if status != OK:
            size = i64(0)
        statuses[i] = status
    sizes[i] = size


def write_spark_strings(i: Any, data: Any, places: Any, statuses: Any, offsets: Any, out: Any) -> None:
    """Write the text of a row to where its offsets say."""
    at = u64(places[i])
    begin = max(i64(offsets[i]), i64(0))
    end = min(i64(offsets[i + 1]), i64(len(out)))
    if statuses[i] == OK and begin < end and at < u64(len(data)):
        if is_bytes(data, at):
            first, last = text_at(data, at)
            copy_between(data, first, out, begin, min(i64(last - first), end - begin))
        elif u64(data[at]) & BASIC == PRIMITIVE:
            _status, _end = put_value(data, at, out, u64(end), u64(begin))


SIGNATURES = {
    measure_spark_strings: ("u8[], u64[], u8[]!, u8[]!, i64[]!",),
    write_spark_strings: ("u8[], u64[], u8[], i64[], u8[]!",),
}
