"""Variant's values as Spark's ``try_variant_get`` writes them: plain decimals, Java's floats, times in UTC.

Work item: one row. One function measures and writes: where nothing may be written, it says how much there would be.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.floats import FINITE, NOT_A_NUMBER, parts_of_float
from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.validation.text import is_text
from bowstring.kernels.variant import encoding
from bowstring.kernels.variant.encoding import payload
from bowstring.kernels.variant.numbers import bits_of, fixed
from bowstring.kernels.variant.slots import copy_between
from bowstring.kernels.variant.text.leaves import put_date, put_exact, put_time, put_uuid
from bowstring.kernels.variant.text.put import digits_of, put, put_digits, put_real

IS_HOLDER: Final = u8(255)
"""The status of a row whose value is an array or object: it is written as JSON."""

JAVA = i64(1)
TRUE_WORD = u64(int.from_bytes(b"true", "little"))
FALSE_WORD = u64(int.from_bytes(b"false", "little"))
MICROSECONDS = u64(6)
SPARK = i64(1)
NAN_WORD = u64(int.from_bytes(b"NaN", "little"))
INFINITY_WORD = u64(int.from_bytes(b"Infinity", "little"))


def put_float(out, limit, at, bits, size):
    """Write a float as Java does."""
    negative, _mantissa, _exponent, kind = parts_of_float(bits, size)
    end = at
    if kind == FINITE:
        end = put_real(out, limit, at, bits, size, JAVA)
    elif kind == NOT_A_NUMBER:
        end = put(out, limit, at, NAN_WORD, u64(3))
    else:
        end = put(out, limit, at, u64(ord("-")), u64(negative))
        end = put(out, limit, end, INFINITY_WORD, u64(8))
    return end


def put_value(data, at, out, limit, begin):
    """Write a primitive that is neither text nor binary; return a status, and where it ends in `out`."""
    kind = u64(data[at]) >> 2
    status = encoding.OK
    end = begin
    if kind == 0:
        status = encoding.VARIANT_NULL
    elif kind == encoding.TRUE:
        end = put(out, limit, begin, TRUE_WORD, u64(4))
    elif kind == encoding.FALSE:
        end = put(out, limit, begin, FALSE_WORD, u64(5))
    elif kind <= encoding.INT64:
        status, number = fixed(data, at, 1 << i64(kind - encoding.INT8))
        if status == encoding.OK:
            end = put(out, limit, begin, u64(ord("-")), u64(number < 0))
            whole = u64(max(number, -number))
            end = put_digits(out, limit, end, whole, digits_of(whole))
    elif kind >= encoding.DECIMAL4 and kind <= encoding.DECIMAL16:
        status = encoding.MALFORMED
        if at + 1 + (4 << (kind - encoding.DECIMAL4)) < u64(len(data)):
            end = put_exact(out, limit, begin, data, at + 1, kind, SPARK)
            if end != encoding.BROKEN:
                status = encoding.OK
    elif (
        kind == encoding.KIND_DOUBLE
        or kind == encoding.KIND_FLOAT
        or (kind >= encoding.KIND_DATE and kind <= encoding.MICROS_NTZ)
    ):
        size = i64(encoding.SIZES[kind])
        status, number = fixed(data, at, size)
        if status == encoding.OK and (kind == encoding.KIND_DOUBLE or kind == encoding.KIND_FLOAT):
            end = put_float(out, limit, begin, bits_of(number, size), size)
        elif status == encoding.OK and kind == encoding.KIND_DATE:
            end = put_date(out, limit, begin, number)
        elif status == encoding.OK:
            end = put_date(out, limit, begin, number // encoding.DAY)
            end = put(out, limit, end, u64(ord(" ")), u64(1))
            end = put_time(out, limit, end, u64(number % encoding.DAY), MICROSECONDS, SPARK)
    elif kind == encoding.KIND_UUID:
        status = encoding.MALFORMED
        if at + 16 < u64(len(data)):
            status = encoding.OK
            end = put_uuid(out, limit, begin, data, at + 1)
    else:
        status = encoding.UNSUPPORTED
    return status, end


def is_bytes(data, at):
    """Return whether the value at `at` is text or binary."""
    header = u64(data[at])
    kind = header >> 2
    return header & encoding.BASIC == encoding.SHORT or (
        header & encoding.BASIC == encoding.PRIMITIVE
        and kind >= encoding.KIND_BINARY
        and kind <= encoding.KIND_STRING
    )


def measure_spark_strings(i, data, places, statuses, nowhere, sizes):
    """Write how many bytes the text of a row has. Binary must be UTF-8."""
    size = i64(0)
    at = u64(places[i])
    if statuses[i] == encoding.OK:
        status = encoding.MALFORMED
        if at < u64(len(data)):
            if is_bytes(data, at):
                first, last = payload(data, at, u64(len(data)))
                status = encoding.OK
                size = i64(last - first)
                if not is_text(data, i64(first), i64(last)):
                    status = encoding.MALFORMED
                    if (
                        u64(data[at]) >> 2 == encoding.KIND_BINARY
                        and u64(data[at]) & encoding.BASIC == encoding.PRIMITIVE
                    ):
                        status = encoding.OVERFLOW
            elif u64(data[at]) & encoding.BASIC == encoding.PRIMITIVE:
                status, end = put_value(data, at, nowhere, u64(0), u64(0))
                size = i64(end)
            else:
                status = IS_HOLDER
        if status != encoding.OK:
            size = i64(0)
        statuses[i] = status
    sizes[i] = size


def write_spark_strings(i, data, places, statuses, offsets, out):
    """Write the text of a row to where its offsets say."""
    at = u64(places[i])
    begin = max(i64(offsets[i]), i64(0))
    end = min(i64(offsets[i + 1]), i64(len(out)))
    if statuses[i] == encoding.OK and begin < end and at < u64(len(data)):
        if is_bytes(data, at):
            first, last = payload(data, at, u64(len(data)))
            copy_between(data, first, out, begin, min(i64(last - first), end - begin))
        elif u64(data[at]) & encoding.BASIC == encoding.PRIMITIVE:
            _status, _end = put_value(data, at, out, u64(end), u64(begin))


SIGNATURES = {
    measure_spark_strings: ("u8[], u64[], u8[]!, u8[]!, i64[]!",),
    write_spark_strings: ("u8[], u64[], u8[], i64[], u8[]!",),
}
