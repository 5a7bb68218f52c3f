"""Shredded objects as Variant's bytes: typed fields and those of a residual value, in the order of their names.

Names are compared once for each distinct metadata, and become ranks: places in their order
(:mod:`bowstring.kernels.variant.metadata`). A field is then a word, its rank above where it comes from: typed
fields are below `fields`, and those of a residual value behind. Work item: one slot.
"""

from __future__ import annotations

from bowstring.kernels.json.tree import put, width_of
from bowstring.kernels.json.write import sort
from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.variant import shredded
from bowstring.kernels.variant.encoding import BROKEN, OBJECT, child_at, frame, little
from bowstring.kernels.variant.metadata import slot_of
from bowstring.kernels.variant.shredded import bounds
from bowstring.kernels.variant.slots import copy_between

OBJECT_HEADER = u64(2)
BASIC = u64(3)
SOURCE = u64(0xFFFFFFFF)
HALF = u64(32)
ABSENT = i64(-1)


def shape_of(count, most, total):
    """Return the widths of an object's ids, the largest of which is `most`, and of its offsets, and its size."""
    id_width = width_of(most)
    width = width_of(u64(total))
    large = u64(count > shredded.MOST_SMALL)
    return id_width, width, i64(2 + large * 3 + count * id_width + (count + 1) * width) + total


def put_header(out, at, count, id_width, width):
    """Write an object's first byte and its number of fields, and return where ids, offsets and values begin."""
    large = u64(count > shredded.MOST_SMALL)
    out[at] = u8(OBJECT_HEADER | (width - 1) << 2 | (id_width - 1) << 4 | large << 6)
    put(out, at + 1, count, 1 + large * 3)
    ids = at + 2 + large * 3
    offsets = ids + count * id_width
    return ids, offsets, offsets + (count + 1) * width


def count_fields(i, starts, stops, data, typed, flags, fields, counts):
    """Write how many words the fields of an object take at most."""
    count = i64(0)
    if typed[i] != 0:
        count = fields
        if i < i64(len(flags)) and flags[i] != 0:
            start, stop = slot_of(starts, stops, data, i)
            if start < stop and u64(data[start]) & BASIC == OBJECT:
                found, _, _, _, _, _, _ = frame(data, start, stop)
                if found != BROKEN:
                    count += i64(found)
    counts[i] = count


def residual_words(start, stop, data, fields, group, bases, ranks, first, room, words):
    """Write a word for each field of a residual value, and return their number and an error, or 0."""
    count = u64(0)
    error = shredded.BROKEN_VALUE
    if start < stop:
        error = i64(0)
        if u64(data[start]) & BASIC != OBJECT:
            error = shredded.NOT_OBJECT
        else:
            found, id_width, ids, _, _, _, _ = frame(data, start, stop)
            if found == BROKEN or found > room or group < 0 or group >= i64(len(bases)) - 1:
                error = shredded.BROKEN_VALUE
            else:
                base = u64(bases[u64(group)])
                names = u64(bases[u64(group) + 1]) - base
                while count < found and error == 0:
                    number = little(data, ids + count * id_width, id_width)
                    if number >= names:
                        error = shredded.BROKEN_VALUE
                    else:
                        words[first + count] = u64(ranks[base + number]) << HALF | (u64(fields) + count)
                        count += 1
    return count, error


def field_of(source, start, stop, data):
    """Return id, place and size of a field of a residual value, the size BROKEN where it has none."""
    number = u64(0)
    child = u64(0)
    size = BROKEN
    if start < stop:
        found, id_width, ids, width, offsets, values, end = frame(data, start, stop)
        if found != BROKEN and source < found:
            number = little(data, ids + source * id_width, id_width)
            child = values + little(data, offsets + source * width, width)
            status, length = child_at(data, child, end)
            if status == 0:
                size = length
    return number, child, size


def measure_objects(
    i,
    starts,
    stops,
    data,
    typed,
    flags,
    fields,
    rows,
    groups,
    child_sizes,
    bases,
    ranks,
    ids,
    word_starts,
    words,
    shapes,
    sizes,
):
    """Write the words of an object, sorted and each once, its number of fields and widths, and its size."""
    if typed[i] != 0:
        first = u64(word_starts[i])
        room = u64(word_starts[i + 1]) - first
        group = i64(groups[i])
        residual = i < i64(len(flags)) and flags[i] != 0
        count = u64(0)
        error = i64(0)
        known = group >= 0 and group < i64(len(bases)) - 1
        for k in range(fields):
            size = i64(child_sizes[u64(k * rows + i)])
            if size < 0:
                error = size
            elif size > 0 or residual:
                number = ABSENT
                if known:
                    number = i64(ids[u64(group * fields + k)])
                if number >= 0:
                    rank = u64(k)
                    if i64(len(ranks)) > 0:
                        rank = u64(ranks[u64(bases[u64(group)]) + u64(number)])
                    words[first + count] = rank << HALF | u64(k)
                    count += 1
                elif size > 0:
                    error = shredded.NO_NAME
        start = u64(0)
        stop = u64(0)
        if residual and error == 0:
            start, stop = slot_of(starts, stops, data, i)
            more, error = residual_words(
                start, stop, data, fields, group, bases, ranks, first + count, room - count, words
            )
            count += more
        if error == 0:
            sort(words, first, count)
            error = kept(
                i, start, stop, data, fields, rows, group, count, child_sizes, ids, first, words, shapes
            )
        sizes[i] = error


def kept(i, start, stop, data, fields, rows, group, count, child_sizes, ids, first, words, shapes):
    """Keep the words of the fields that there are, write their shape, and return the size, or an error."""
    held = u64(0)
    total = i64(0)
    most = u64(0)
    room = i64(stop - start)
    error = i64(0)
    before = BROKEN
    from_typed = False
    k = u64(0)
    while k < count:
        word = u64(words[first + k])
        source = i64(word & SOURCE)
        size = i64(0)
        number = u64(0)
        if source < fields:
            size = i64(child_sizes[u64(source * rows + i)])
            number = u64(i64(ids[u64(group * fields + source)]))
            from_typed = True
        elif word >> HALF != before:
            number, _child, length = field_of(u64(source - fields), start, stop, data)
            size = i64(length)
            from_typed = False
            if length == BROKEN:
                error = shredded.BROKEN_VALUE
                size = i64(0)
            room -= size
        elif not from_typed:
            error = shredded.TOO_MANY
        before = word >> HALF
        if size > 0:
            words[first + held] = word
            held += 1
            total += size
            most = max(most, number)
        k += 1
    if room < 0:
        error = shredded.TOO_MANY
    if total > shredded.MOST_BYTES:
        error = shredded.TOO_LARGE
    if error == 0:
        id_width, width, error = shape_of(held, most, total)
        shapes[i] = held | (id_width << HALF) | (width << 40)
    return error


def write_objects(
    i,
    starts,
    stops,
    data,
    typed,
    fields,
    rows,
    groups,
    child_sizes,
    ids,
    word_starts,
    words,
    shapes,
    places,
    child_places,
    out,
):
    """Write count, ids and offsets of an object, its residual fields, and where typed ones are to be."""
    if typed[i] != 0 and places[i] >= 0:
        start = u64(0)
        stop = u64(0)
        if i < i64(len(starts)):
            start, stop = slot_of(starts, stops, data, i)
        first = u64(word_starts[i])
        shape = u64(shapes[i])
        count = shape & SOURCE
        id_width = shape >> HALF & 0xFF
        width = shape >> 40
        next_id, offsets, values = put_header(out, u64(places[i]), count, id_width, width)
        offset = u64(0)
        k = u64(0)
        while k < count:
            source = i64(u64(words[first + k]) & SOURCE)
            number = u64(0)
            size = i64(0)
            if source < fields:
                slot = u64(source * rows + i)
                number = u64(i64(ids[u64(i64(groups[i]) * fields + source)]))
                size = i64(child_sizes[slot])
                child_places[slot] = i64(values + offset)
            else:
                number, child, length = field_of(u64(source - fields), start, stop, data)
                if length != BROKEN:
                    size = i64(length)
                    copy_between(data, child, out, i64(values + offset), size)
            put(out, next_id, number, id_width)
            put(out, offsets, offset, width)
            next_id += id_width
            offsets += width
            offset += u64(size)
            k += 1
        put(out, offsets, offset, width)


def measure_maps(i, starts, stops, flags, ids, children, words, sizes):
    """Write the words of a map as an object, sorted, and its size: ids of ordered names, above the entries."""
    if flags[i] != 0:
        first, last = bounds(starts, stops, i, i64(len(children)))
        count = u64(last - first)
        total = i64(0)
        error = i64(0)
        for k in range(first, last):
            size = i64(children[u64(k)])
            if size < 0:
                error = size
            total += size
            words[u64(k)] = u64(i64(ids[u64(k)])) << HALF | u64(k - first)
        most = u64(0)
        if first < 0:
            error = shredded.BROKEN_VALUE
        elif count > 0:
            sort(words, u64(first), count)
            most = u64(words[u64(last - 1)]) >> HALF
            for k in range(first + 1, last):
                if u64(words[u64(k)]) >> HALF == u64(words[u64(k - 1)]) >> HALF:
                    error = shredded.TOO_MANY
        if total > shredded.MOST_BYTES:
            error = shredded.TOO_LARGE
        if error == 0:
            _, _, error = shape_of(count, most, total)
        sizes[i] = error


def write_maps(i, starts, stops, flags, children, words, places, child_places, out):
    """Write count, ids and offsets of a map as an object, and where its values are to be."""
    if flags[i] != 0 and places[i] >= 0:
        first, last = bounds(starts, stops, i, i64(len(children)))
        count = u64(last - first)
        total = i64(0)
        for k in range(first, last):
            total += i64(children[u64(k)])
        most = u64(0)
        if count > 0:
            most = u64(words[u64(last - 1)]) >> HALF
        id_width, width, _ = shape_of(count, most, total)
        next_id, offsets, values = put_header(out, u64(places[i]), count, id_width, width)
        offset = u64(0)
        for k in range(first, last):
            word = u64(words[u64(k)])
            entry = u64(first) + (word & SOURCE)
            put(out, next_id, word >> HALF, id_width)
            put(out, offsets, offset, width)
            next_id += id_width
            offsets += width
            child_places[entry] = i64(values + offset)
            offset += u64(i64(children[entry]))
        put(out, offsets, offset, width)


SIGNATURES = {
    measure_maps: ("i64[], i64[], u8[], i32[], i64[], u64[]!, i64[]!",),
    write_maps: ("i64[], i64[], u8[], i64[], u64[], i64[], i64[]!, u8[]!",),
    count_fields: ("i64[], i64[], u8[], u8[], u8[], i64, i64[]!",),
    measure_objects: (
        (
            "i64[], i64[], u8[], u8[], u8[], i64, i64, i32[], i64[], i64[], i32[], i32[], i64[], "
            "u64[]!, u64[]!, i64[]!"
        ),
    ),
    write_objects: (
        "i64[], i64[], u8[], u8[], i64, i64, i32[], i64[], i32[], i64[], u64[], u64[], i64[], i64[]!, u8[]!",
    ),
}
