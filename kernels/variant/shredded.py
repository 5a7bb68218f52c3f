"""Typed leaves, values and arrays as Variant's bytes: their sizes first, then the bytes where they are to be.

Work item: one slot. A size is 0 where there is nothing, and one of the errors below where the slot breaks a rule of
the specification; a container takes on the error of a child. Places are -1 where nothing is to be written. The
output begins as zeros: a place where nothing is written is a Variant null.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.json.tree import put, width_of
from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.validation.text import is_text
from bowstring.kernels.variant.encoding import BROKEN, UNKNOWN, signed, value_end
from bowstring.kernels.variant.metadata import slot_of
from bowstring.kernels.variant.slots import copy_part
from bowstring.kernels.words import below, negated

CONFLICT: Final = i64(-1)
"""A value beside a typed value that is no object."""
NOT_OBJECT: Final = i64(-2)
"""A value that is no object beside shredded fields."""
NO_NAME: Final = i64(-3)
"""A shredded field whose name the metadata do not have."""
BROKEN_VALUE: Final = i64(-4)
"""Bytes that are no Variant value, or not within their buffer."""
OUT_OF_RANGE: Final = i64(-5)
"""A decimal with more digits than its type has, or a time that Variant does not have."""
TOO_LARGE: Final = i64(-6)
"""A container whose values take more than 4 GiB."""
NO_TEXT: Final = i64(-7)
"""A string that is not UTF-8."""
TOO_MANY: Final = i64(-8)
"""Fields that share their bytes, or two fields of one name."""

LONGEST_SHORT = u64(63)
SHORT_HEADER = u64(1)
STRING_HEADER = u64(16 << 2)
BINARY_HEADER = u64(15 << 2)
ARRAY_HEADER = u64(3)
MOST_SMALL = u64(255)
MOST_BYTES = i64(0xFFFFFFFF)
FOUR = u64(4)
EIGHT = i64(8)


def measure_values(i, starts, stops, data, flags, sizes):
    """Write how many bytes the value of a slot has; a size that is there already is a conflict."""
    if flags[i] != 0:
        size = CONFLICT
        if sizes[i] == 0:
            start, stop = slot_of(starts, stops, data, i)
            end = value_end(data, start, stop)
            size = i64(end - start)
            if end == BROKEN:
                size = BROKEN_VALUE
            elif end == UNKNOWN:
                size = i64(stop - start)
        sizes[i] = size


def copy_values(i, log, starts, stops, data, flags, sizes, places, out):
    """Copy the value of a slot, which ``2 ** log`` items share."""
    slot = i >> log
    if flags[slot] != 0 and places[slot] >= 0:
        start, stop = slot_of(starts, stops, data, slot)
        copy_part(i, log, data, start, out, i64(places[slot]), min(i64(sizes[slot]), i64(stop - start)))


def measure_texts(i, starts, stops, data, flags, text, sizes):
    """Write how many bytes a string takes as a Variant, or binary where `text` is 0."""
    if flags[i] != 0:
        first = i64(starts[i])
        last = i64(stops[i])
        size = BROKEN_VALUE
        if 0 <= first <= last <= i64(len(data)):
            size = last - first + 5
            if size > MOST_BYTES:
                size = TOO_LARGE
            elif text != 0:
                if u64(last - first) <= LONGEST_SHORT:
                    size = last - first + 1
                if not is_text(data, first, last):
                    size = NO_TEXT
        sizes[i] = size


def write_texts(i, log, starts, stops, data, text, sizes, places, out):
    """Write a string or binary, which ``2 ** log`` items share: each writes the header."""
    slot = i >> log
    at = i64(places[slot])
    size = i64(sizes[slot])
    if at >= 0 and size > 0:
        start, stop = slot_of(starts, stops, data, slot)
        length = stop - start
        body = at + 1
        if text != 0 and length <= LONGEST_SHORT:
            out[u64(at)] = u8(length << 2 | SHORT_HEADER)
        else:
            out[u64(at)] = u8(STRING_HEADER if text != 0 else BINARY_HEADER)
            put(out, u64(at) + 1, length, FOUR)
            body = at + 5
        copy_part(i, log, data, start, out, body, min(i64(length), at + size - body))


def measure_decimals(i, data, stride, width, bound, flags, sizes):
    """Write how many bytes a decimal takes whose digits are to be `width` bytes; it must be within the bound.

    `bound` is the largest absolute value, low word first.
    """
    if flags[i] != 0:
        at = u64(i) * u64(stride)
        low = u64(signed(data, at, min(stride, EIGHT)))
        high = 0 - (low >> 63)
        if stride > 8:
            high = u64(signed(data, at + 8, EIGHT))
        if high >> 63 != 0:
            high, low = negated(high, low)
        size = width + 2
        if below(bound[1], bound[0], high, low):
            size = OUT_OF_RANGE
        sizes[i] = size


def write_fixed(i, data, stride, width, header, scale, sizes, places, out):
    """Write a value of a fixed width: header and scale unless they are negative, and the first bytes of a slot."""
    if places[i] >= 0 and sizes[i] > 0:
        at = u64(places[i])
        source = u64(i) * u64(stride)
        if header >= 0:
            out[at] = u8(header)
            at += 1
        if scale >= 0:
            out[at] = u8(scale)
            at += 1
        for k in range(width):
            out[at + u64(k)] = data[source + u64(k)]


def bounds(starts, stops, i, most):
    """Return the first and the last slot of a list, -1 where they are not among the children."""
    first = i64(starts[i])
    last = i64(stops[i])
    if first < 0 or first > last or last > most:
        first = i64(-1)
        last = i64(-1)
    return first, last


def measure_arrays(i, starts, stops, flags, children, sizes):
    """Write how many bytes an array takes whose elements have such sizes."""
    if flags[i] != 0:
        first, last = bounds(starts, stops, i, i64(len(children)))
        total = i64(0)
        error = i64(0)
        if first < 0:
            error = BROKEN_VALUE
        for k in range(first, last):
            size = i64(children[u64(k)])
            if size < 0:
                error = size
            else:
                total += size
        if total > MOST_BYTES:
            error = TOO_LARGE
        if error == 0:
            count = u64(last - first)
            large = u64(count > MOST_SMALL)
            error = 2 + 3 * i64(large) + i64((count + 1) * width_of(u64(total))) + total
        sizes[i] = error


def write_arrays(i, starts, stops, flags, children, places, child_places, out):
    """Write count and offsets of an array, and where its elements are to be."""
    if flags[i] != 0 and places[i] >= 0:
        first, last = bounds(starts, stops, i, i64(len(children)))
        total = i64(0)
        for k in range(first, last):
            total += i64(children[u64(k)])
        width = width_of(u64(total))
        count = u64(last - first)
        large = u64(count > MOST_SMALL)
        at = u64(places[i])
        out[at] = u8(ARRAY_HEADER | (width - 1) << 2 | large << 4)
        put(out, at + 1, count, 1 + large * 3)
        offsets = at + 2 + large * 3
        values = offsets + (count + 1) * width
        offset = u64(0)
        for k in range(first, last):
            put(out, offsets, offset, width)
            offsets += width
            child_places[u64(k)] = i64(values + offset)
            offset += u64(children[u64(k)])
        put(out, offsets, offset, width)


def place_groups(i, starts, stops, groups, child_groups):
    """Write for the elements of an array which metadata are theirs: those of the array."""
    first, last = bounds(starts, stops, i, i64(len(child_groups)))
    for k in range(first, last):
        child_groups[u64(k)] = groups[i]


SIGNATURES = {
    measure_values: ("i32[], i32[], u8[], u8[], i64[]!", "i64[], i64[], u8[], u8[], i64[]!"),
    copy_values: (
        "i64, i32[], i32[], u8[], u8[], i64[], i64[], u8[]!",
        "i64, i64[], i64[], u8[], u8[], i64[], i64[], u8[]!",
    ),
    measure_texts: ("i32[], i32[], u8[], u8[], i64, i64[]!", "i64[], i64[], u8[], u8[], i64, i64[]!"),
    write_texts: (
        "i64, i32[], i32[], u8[], i64, i64[], i64[], u8[]!",
        "i64, i64[], i64[], u8[], i64, i64[], i64[], u8[]!",
    ),
    measure_decimals: ("u8[], i64, i64, u64[], u8[], i64[]!",),
    write_fixed: ("u8[], i64, i64, i64, i64, i64[], i64[], u8[]!",),
    measure_arrays: ("i64[], i64[], u8[], i64[], i64[]!",),
    write_arrays: ("i64[], i64[], u8[], i64[], i64[], i64[]!, u8[]!",),
    place_groups: ("i64[], i64[], i32[], i32[]!",),
}
