"""Variant's values taken apart for shredding: the fields of objects into columns, what is left of each object, and
the kinds of values, from which a shredding schema is inferred.

Work item: one distinct metadata, or one slot. A size is 0 where there is nothing, and one of the errors of
:mod:`bowstring.kernels.variant.shredded` where a value cannot be taken apart. Children may share their bytes: those
of one object must not take more together than the object does.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.json.tree import put
from bowstring.kernels.types import i32, i64, u8, u64
from bowstring.kernels.variant import encoding
from bowstring.kernels.variant.decimals import raw_number
from bowstring.kernels.variant.encoding import child_at, dictionary, frame, little, name_at
from bowstring.kernels.variant.metadata import slot_of
from bowstring.kernels.variant.shredded import BROKEN_VALUE, TOO_MANY
from bowstring.kernels.variant.shredded_objects import put_header, shape_of
from bowstring.kernels.variant.slots import copy_between
from bowstring.kernels.words import by_ten

UNSIZED: Final = i64(-9)
"""A value of a type that is not known: nobody can say where it ends."""

# What a value is to inference: the numbers of primitive types, but for those below.
NULL_KIND: Final = i32(0)
BOOLEAN_KIND: Final = i32(1)
STRING_KIND: Final = i32(16)
OBJECT_KIND: Final = i32(21)
ARRAY_KIND: Final = i32(22)
OTHER_KIND: Final = i32(23)
"""A primitive type that is not known."""
ABSENT_KIND: Final = i32(24)
EXACT_KIND: Final = i32(64)
"""The first of the decimals: here follow :data:`SCALES` digits before the point for each scale."""
SCALES: Final = i32(39)
KINDS: Final = i32(64 + 39 * 39)

HALF = u64(32)
LOWER = u64(0xFFFFFFFF)
FIRST_HASH = u64(0xCBF29CE484222325)
HASH_FACTOR = u64(0x100000001B3)
DIGITS_4 = i64(9)
DIGITS_8 = i64(18)


def map_fields(
    i,
    bases,
    ranks,
    ids,  # of the fields, in each metadata
    fields,
    by_rank,  # scratch of the size of numbers; both begin as -1
    numbers,
):
    """Write for each name of a distinct metadata which field it is; other names are left at -1. A name that is
    there twice is that field twice.
    """
    base = u64(bases[i])
    count = u64(bases[i + 1]) - base
    for k in range(fields):
        number = i64(ids[u64(i * fields + k)])
        if number >= 0 and u64(number) < count:
            by_rank[base + u64(i64(ranks[base + u64(number)]))] = i32(k)
    for k in range(i64(count)):
        numbers[base + u64(k)] = by_rank[base + u64(i64(ranks[base + u64(k)]))]


def names_of(groups, bases, i):
    """Return where the names of the metadata of a slot begin, and their number: none, where it has none."""
    group = i64(groups[i])
    base = u64(0)
    count = u64(0)
    if group >= 0 and group < i64(len(bases)) - 1:
        base = u64(bases[u64(group)])
        count = u64(bases[u64(group) + 1]) - base
    return base, count


def split_objects(
    i,
    data,
    places,
    statuses,
    groups,
    bases,
    numbers,  # which field each name is
    first,  # of the fields that are written: as many as there are columns of rows slots
    rows,
    child_places,
    child_statuses,
    typed,  # 1 for an object
    shapes,  # how many fields are left, and the widths of their ids and offsets
    sizes,
):
    """Write where the fields of an object lie, and how many bytes an object of its other fields takes."""
    size = i64(0)
    at = u64(places[i])
    if (
        statuses[i] == encoding.OK
        and at < u64(len(data))
        and u64(data[at]) & encoding.BASIC == encoding.OBJECT
    ):
        typed[i] = u8(1)
        count, id_width, ids, width, offsets, values, end = frame(data, at, u64(len(data)))
        base, names = names_of(groups, bases, i)
        columns = i64(len(child_statuses)) // max(rows, i64(1))
        if count == encoding.BROKEN:
            size = BROKEN_VALUE
            count = u64(0)
        room = end - at
        total = u64(0)
        held = u64(0)
        most = u64(0)
        before = i64(-1)
        k = u64(0)
        while k < count and size == 0:
            number = little(data, ids + k * id_width, id_width)
            child = values + little(data, offsets + k * width, width)
            status, length = child_at(data, child, end)
            if status == encoding.UNSUPPORTED:
                size = UNSIZED
            elif status != encoding.OK or number >= names:
                size = BROKEN_VALUE
            elif length > room:
                size = TOO_MANY
            else:
                room -= length
                field = i64(numbers[base + number])
                column = field - first
                if field < 0:
                    held += 1
                    total += length
                    most = max(most, number)
                elif field == before:
                    size = TOO_MANY
                elif column >= 0 and column < columns:
                    slot = u64(column * rows + i)
                    if child_statuses[slot] != encoding.MISSING:
                        size = TOO_MANY
                    child_places[slot] = child
                    child_statuses[slot] = encoding.OK
                before = field
            k += 1
        if held > 0 and size == 0:
            new_id_width, new_width, size = shape_of(held, most, i64(total))
            shapes[i] = held | new_id_width << HALF | new_width << 40
    sizes[i] = size


def write_residuals(i, data, places, groups, bases, numbers, shapes, ends, out):
    """Write an object of the fields that are no columns, in their order, to where its end before says."""
    shape = u64(shapes[i])
    held = shape & LOWER
    at = u64(places[i])
    stop = u64(ends[i + 1])
    if held > 0 and at < u64(len(data)) and stop <= u64(len(out)):
        count, id_width, ids, width, offsets, values, end = frame(data, at, u64(len(data)))
        base, names = names_of(groups, bases, i)
        if count == encoding.BROKEN:  # the bytes have changed since they were measured
            count = u64(0)
        new_id_width = shape >> HALF & 0xFF
        new_width = shape >> 40
        next_id, next_offset, begin = put_header(out, u64(ends[i]), held, new_id_width, new_width)
        offset = u64(0)
        written = u64(0)
        k = u64(0)
        while k < count and written < held:
            number = little(data, ids + k * id_width, id_width)
            if number < names and i64(numbers[base + number]) < 0:
                child = values + little(data, offsets + k * width, width)
                status, length = child_at(data, child, end)
                if status != encoding.OK or begin + offset + length > stop:
                    length = u64(0)
                put(out, next_id, number, new_id_width)
                put(out, next_offset, offset, new_width)
                copy_between(data, child, out, i64(begin + offset), i64(length))
                next_id += new_id_width
                next_offset += new_width
                offset += length
                written += 1
            k += 1
        put(out, next_offset, offset, new_width)


def digits_of(data, at, kind, scale, exact):
    """Return how many digits before the point the decimal at `at` may have: counted, or by its width.

    Without `exact`, they are counted in decimals of 16 bytes alone.
    """
    digits = DIGITS_4
    if kind > encoding.DECIMAL4:
        digits = DIGITS_8
    if kind == encoding.DECIMAL16 or exact != 0:
        digits = i64(0)
        _status, _negative, high, low, _scale = raw_number(data, at)
        while high | low != 0 and digits < 38:
            high, low, _rest = by_ten(high, low)
            digits += 1
    return max(digits - scale, i64(0))


def name_shapes(i, data, places, statuses, exact, kinds):
    """Write what a value is to inference; with `exact`, the digits of all decimals are counted."""
    kind = ABSENT_KIND
    at = u64(places[i])
    if statuses[i] == encoding.OK and at < u64(len(data)):
        header = u64(data[at])
        basic = header & encoding.BASIC
        number = header >> 2
        kind = OTHER_KIND
        if basic == encoding.SHORT:
            kind = STRING_KIND
        elif basic == encoding.OBJECT:
            kind = OBJECT_KIND
        elif basic > encoding.OBJECT:
            kind = ARRAY_KIND
        elif number >= encoding.TRUE and number <= encoding.FALSE:
            kind = BOOLEAN_KIND
        elif number >= encoding.DECIMAL4 and number <= encoding.DECIMAL16:
            scale = i64(SCALES)
            if at + 1 < u64(len(data)):
                scale = i64(data[at + 1])
            if scale < i64(SCALES):
                kind = i32(i64(EXACT_KIND) + scale * i64(SCALES) + digits_of(data, at, number, scale, exact))
        elif basic == encoding.PRIMITIVE and number < encoding.PRIMITIVES:
            kind = i32(i64(number))
    elif statuses[i] == encoding.VARIANT_NULL:
        kind = NULL_KIND
    kinds[i] = kind


def hash_names(i, starts, stops, data, bases, seed, hashes):
    """Write a number for each name of a distinct metadata: the same for the same names.

    Under a `seed` that nobody can foresee, nobody can choose names that have one number.
    """
    start, stop = slot_of(starts, stops, data, i)
    base = u64(bases[i])
    count = u64(bases[i + 1]) - base
    found, width, offsets, names, end = dictionary(data, start, stop)
    if found == encoding.BROKEN or found < count:  # the bytes have changed since they were counted
        count = u64(0)
    for k in range(i64(count)):
        begin, until = name_at(data, u64(k), width, offsets, names, end)
        word = FIRST_HASH ^ seed
        if begin != encoding.BROKEN:
            for place in range(i64(begin), i64(until)):
                word = (word ^ u64(data[u64(place)])) * HASH_FACTOR
        hashes[base + u64(k)] = word


def list_fields(i, data, places, groups, bases, numbers, offsets, children):
    """Write the number that the name of each field of an object has, -1 where it has none."""
    first = max(i64(offsets[i]), i64(0))
    last = min(i64(offsets[i + 1]), i64(len(children)))
    at = u64(places[i])
    if first < last and at < u64(len(data)):
        count, id_width, ids, _, _, _, _ = frame(data, at, u64(len(data)))
        base, names = names_of(groups, bases, i)
        if count == encoding.BROKEN:
            count = u64(0)
        for slot in range(first, last):
            found = i32(-1)
            if u64(slot - first) < count:
                number = little(data, ids + u64(slot - first) * id_width, id_width)
                if number < names:
                    found = i32(numbers[base + number])
            children[u64(slot)] = found


SIGNATURES = {
    map_fields: ("i64[], i32[], i32[], i64, i32[]!, i32[]!",),
    split_objects: (
        "u8[], u64[], u8[], i32[], i64[], i32[], i64, i64, u64[]!, u8[]!, u8[]!, u64[]!, i64[]!",
    ),
    write_residuals: ("u8[], u64[], i32[], i64[], i32[], u64[], i64[], u8[]!",),
    name_shapes: ("u8[], u64[], u8[], i64, i32[]!",),
    hash_names: ("i64[], i64[], u8[], i64[], u64, u64[]!",),
    list_fields: ("u8[], u64[], i32[], i64[], i32[], i64[], i32[]!",),
}
