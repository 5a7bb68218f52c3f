"""Variant's binary encoding, as kernels read it: little-endian numbers, headers, and where a value ends.

There is no kernel here. Places are ``u64`` throughout, so a wrong one is far outside and never counted from an
end; `stop` is one past the last byte that may be looked at. What cannot be is :data:`BROKEN`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from bowstring.kernels.types import i64, u8, u64

# The statuses of bowstring.variant.status.
OK: Final = u8(0)
SQL_NULL: Final = u8(1)
MISSING: Final = u8(2)
VARIANT_NULL: Final = u8(3)
TYPE_MISMATCH: Final = u8(4)
OVERFLOW: Final = u8(5)
MALFORMED: Final = u8(6)
UNSUPPORTED: Final = u8(7)
TOO_DEEP: Final = u8(8)

BROKEN: Final = u64(2**64 - 1)
"""No place, and no count: the bytes are not what the format says."""
UNKNOWN: Final = u64(2**64 - 2)
"""No place: a primitive type that is not in the format yet, and so has no known size."""

BASIC: Final = u64(3)
"""The bits of a header that are its basic type."""
PRIMITIVE: Final = u64(0)
SHORT: Final = u64(1)
OBJECT: Final = u64(2)
ARRAY: Final = u64(3)

# The primitive types that bound a class of them, or that casts tell apart.
TRUE: Final = u64(1)
FALSE: Final = u64(2)
INT8: Final = u64(3)
INT64: Final = u64(6)
KIND_DOUBLE: Final = u64(7)
DECIMAL4: Final = u64(8)
DECIMAL16: Final = u64(10)
KIND_DATE: Final = u64(11)
MICROS: Final = u64(12)
MICROS_NTZ: Final = u64(13)
KIND_FLOAT: Final = u64(14)
KIND_BINARY: Final = u64(15)
KIND_STRING: Final = u64(16)
KIND_TIME: Final = u64(17)
NANOS: Final = u64(18)
NANOS_NTZ: Final = u64(19)
KIND_UUID: Final = u64(20)
PRIMITIVES: Final = u64(21)
"""How many primitive types there are."""
DAY: Final = i64(86_400_000_000)
"""Microseconds of a day: times are less."""

VERSION = u64(15)
START = i64(0)

# Bytes behind the header of each primitive; binary and string carry their own length.
COUNTED = u64(255)
SIZES: Final = np.array(
    [0, 0, 0, 1, 2, 4, 8, 8, 5, 9, 17, 4, 8, 8, 4, 255, 255, 8, 8, 8, 16],
    np.uint8,
)
SIZES.flags.writeable = False


def little(data, at, width):
    """Return an unsigned number of 1 to 4 bytes."""
    word = u64(data[at])
    if width > 1:
        word |= u64(data[at + 1]) << 8
        if width > 2:
            word |= u64(data[at + 2]) << 16
            if width > 3:
                word |= u64(data[at + 3]) << 24
    return word


def signed(data, at, width):
    """Return a signed number of 1 to 8 bytes."""
    word = u64(0)
    for k in range(START, width):
        word |= u64(data[at + u64(k)]) << u64(k * 8)
    spare = 64 - width * 8
    return i64(word << u64(spare)) >> spare


def frame(data, at, stop):
    """Return the parts of the object or array that begins at `at`, which is before `stop`: the number of
    elements, or :data:`BROKEN` if the parts do not fit; bytes per field id (0 in an array); begin of the ids;
    bytes per offset; begin of the offsets; begin and end of the values.
    """
    header = u64(data[at])
    offset_width = ((header >> 2) & 3) + 1
    id_width = u64(0)
    large = (header >> 4) & 1
    if header & 3 == OBJECT:
        id_width = ((header >> 4) & 3) + 1
        large = (header >> 6) & 1
    count_width = 1 + large * 3
    ids = at + 1 + count_width
    count = BROKEN
    offsets = ids
    values = ids
    end = ids
    if ids <= stop:
        found = little(data, at + 1, count_width)
        offsets = ids + found * id_width
        values = offsets + (found + 1) * offset_width
        if values <= stop:
            end = values + little(data, values - offset_width, offset_width)
            if end <= stop:
                count = found
    return count, id_width, ids, offset_width, offsets, values, end


def value_end(data, at, stop):
    """Return where the value that begins at `at` ends: by its own header, whatever offsets say.

    :data:`BROKEN` where that is not before or at `stop`, :data:`UNKNOWN` where its type has no known size.
    """
    if at >= stop:
        return BROKEN
    header = u64(data[at])
    basic = header & 3
    end = BROKEN
    if basic == PRIMITIVE:
        if header >> 2 >= PRIMITIVES:
            return UNKNOWN
        size = u64(SIZES[header >> 2])
        if size != COUNTED:
            end = at + 1 + size
        elif at + 5 <= stop:
            end = at + 5 + little(data, at + 1, u64(4))
    elif basic == SHORT:
        end = at + 1 + (header >> 2)
    else:
        count, _, _, _, _, _, last = frame(data, at, stop)
        if count != BROKEN:
            end = last
    if end > stop:
        end = BROKEN
    return end


def child_at(data, at, end):
    """Return the status of a child, which must lie before `end`, and the bytes that it takes, one at least."""
    status = OK
    size = u64(1)
    reached = value_end(data, at, end)
    if reached == BROKEN:
        status = MALFORMED
    elif reached == UNKNOWN:
        status = UNSUPPORTED
    else:
        size = reached - at
    return status, size


def payload(data, at, stop):
    """Return where the bytes behind the header of a primitive or a string lie, nowhere if not before `stop`."""
    first = stop
    last = stop
    if at < stop:
        header = u64(data[at])
        kind = header >> 2
        begin = at + 1
        end = begin + kind
        if header & BASIC == PRIMITIVE:
            if kind >= KIND_BINARY and kind <= KIND_STRING:
                begin = at + 5
                end = begin
                if begin <= stop:
                    end += little(data, at + 1, u64(4))
            else:
                end = begin + u64(SIZES[min(kind, KIND_UUID)])
        if end <= stop:
            first = begin
            last = end
    return first, last


def dictionary(data, start, stop):
    """Return the parts of the metadata in ``[start, stop)`` of `data`: the number of names, or :data:`BROKEN`
    if it is malformed; bytes per offset; begin of the offsets; begin and end of the names.
    """
    count = BROKEN
    width = u64(1)
    offsets = start
    names = start
    end = start
    if start < stop and u64(data[start]) & VERSION == 1:
        width = (u64(data[start]) >> 6) + 1
        offsets = start + 1 + width
        if offsets <= stop:
            found = little(data, start + 1, width)
            names = offsets + (found + 1) * width
            if names <= stop and little(data, offsets, width) == 0:
                end = names + little(data, names - width, width)
                if end <= stop:
                    count = found
    return count, width, offsets, names, end


def name_at(data, index, width, offsets, names, end):
    """Return where a name of a dictionary begins and ends; it begins at BROKEN where its offsets are wrong."""
    at = offsets + index * width
    first = names + little(data, at, width)
    last = names + little(data, at + width, width)
    if first > last or last > end:
        first = BROKEN
        last = BROKEN
    return first, last


def compared(left, start, stop, right, begin, end):
    """Return whether bytes come before, with or after others: -1, 0 or 1; unsigned, the shorter first."""
    size = min(stop - start, end - begin)
    k = u64(0)
    while k < size and u64(left[start + k]) == u64(right[begin + k]):
        k += 1
    order = i64(0)
    if k < size:
        order = i64(1)
        if u64(left[start + k]) < u64(right[begin + k]):
            order = i64(-1)
    elif stop - start < end - begin:
        order = i64(-1)
    elif stop - start > end - begin:
        order = i64(1)
    return order
