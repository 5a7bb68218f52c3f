"""Variant's values as slots of Arrow's: strings, binaries, UUIDs and whole values as bytes, the elements of arrays
and the fields of objects as slots of their own.

Work item: one row; of what copies the bytes of rows, a part of one, ``2 ** log`` items sharing a row. Sizes and
children are counted first, then written where their sum says.

Children may share their bytes, and so be as many, and as long, as no value could hold: what they take together must
not be more than the whole that holds them. So the work at each level of a type is bounded by the bytes of the row.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import i8, i32, i64, u8, u32, u64
from bowstring.kernels.validation.text import is_text
from bowstring.kernels.variant import encoding
from bowstring.kernels.variant.encoding import child_at, compared, dictionary, frame, little, name_at
from bowstring.kernels.variant.metadata import FAULTY, NO_TEXT, slot_of

TEXT: Final = i64(0)
BINARY: Final = i64(1)
UUID: Final = i64(2)
VALUE: Final = i64(3)
"""The whole value as it is, a Variant null for one where there is none."""

EITHER: Final = i64(4)
"""Text or binary."""

NOTHING: Final = i64(5)
"""No value but a Variant null."""

NULL_VALUE = u8(0)
NO_KIND = i8(-1)
SHORT_KIND = i64(15)
CONTAINER = i64(18)
LONGEST_INSIDE = i64(12)


def payload_start(data, at):
    """Return where the bytes of a string, binary or UUID begin, which is one."""
    first = at + 1
    header = u64(data[at])
    if header & encoding.BASIC == encoding.PRIMITIVE and header >> 2 != encoding.KIND_UUID:
        first = at + 5
    return first


def is_family(header, family):
    """Return whether a value with this header is of a family."""
    basic = header & encoding.BASIC
    kind = header >> 2
    return (
        family == VALUE
        or (
            family == TEXT
            and (basic == encoding.SHORT or (basic == encoding.PRIMITIVE and kind == encoding.KIND_STRING))
        )
        or (family == BINARY and basic == encoding.PRIMITIVE and kind == encoding.KIND_BINARY)
        or (
            family == EITHER
            and (
                basic == encoding.SHORT
                or (basic == encoding.PRIMITIVE and encoding.KIND_BINARY <= kind <= encoding.KIND_STRING)
            )
        )
        or (family == UUID and basic == encoding.PRIMITIVE and kind == encoding.KIND_UUID)
    )


def measure(data, at, family):
    """Return a status, and where the bytes of the value at `at` begin and end."""
    first = at
    last = at
    status = encoding.MALFORMED
    if at < u64(len(data)):
        header = u64(data[at])
        if family != VALUE and header == 0:
            status = encoding.VARIANT_NULL
        elif not is_family(header, family):
            status = encoding.TYPE_MISMATCH
        else:
            status, size = child_at(data, at, u64(len(data)))
            last = at + size
            if family != VALUE and status == encoding.OK:
                first = payload_start(data, at)
    return status, first, last


def measure_bytes(i, data, places, family, wanted, statuses, sizes):
    """Write how many bytes a row has, none where it has no value; if `wanted` is not negative, it must be that.

    Text must be UTF-8. A Variant null is a value of one byte where whole values are wanted.
    """
    size = i64(0)
    if statuses[i] == encoding.OK:
        status, first, last = measure(data, u64(places[i]), family)
        if status == encoding.OK:
            size = i64(last - first)
            limit = wanted if wanted >= 0 else size
            if size != limit:
                status = encoding.OVERFLOW
            elif family == TEXT and not is_text(data, i64(first), i64(last)):
                status = encoding.MALFORMED
        if status != encoding.OK:
            size = i64(0)
        statuses[i] = status
    elif statuses[i] == encoding.VARIANT_NULL and family == VALUE:
        size = i64(1)
    sizes[i] = size


def copy_between(data, first, out, at, size):
    """Copy bytes as far as both arrays reach."""
    source = max(i64(first), i64(0))
    target = max(at, i64(0))
    count = min(size, i64(len(data)) - source, i64(len(out)) - target)
    for k in range(count):
        out[target + k] = data[source + k]


def copy_part(i, log, data, first, out, at, size):
    """Copy an item's part of bytes that ``2 ** log`` items share, each taking neighbours; as copy_between."""
    if log == 0:
        copy_between(data, first, out, at, size)
    else:
        source = max(i64(first), i64(0))
        target = max(at, i64(0))
        items = i64(1) << log
        for k in range(i & (items - 1), min(size, i64(len(data)) - source, i64(len(out)) - target), items):
            out[u64(target + k)] = data[u64(source + k)]


def copy_bytes(i, log, data, places, family, statuses, offsets, out):
    """Copy the bytes of a row, which ``2 ** log`` items share, to where its offsets say."""
    row = i >> log
    at = i64(offsets[row])
    size = i64(offsets[row + 1]) - at
    place = u64(places[row])
    if statuses[row] == encoding.OK and size > 0 and place < u64(len(data)):
        first = place
        if family != VALUE:
            first = payload_start(data, place)
        copy_part(i, log, data, first, out, at, size)
    elif size == 1 and at < i64(len(out)):
        out[max(at, i64(0))] = NULL_VALUE


def copy_fixed(i, log, data, places, width, statuses, out):
    """Copy the bytes of a row that are so many for each, which ``2 ** log`` items share."""
    row = i >> log
    place = u64(places[row])
    if statuses[row] == encoding.OK and place < u64(len(data)):
        copy_part(i, log, data, payload_start(data, place), out, row * width, width)


def write_views(i, offsets, data, views):
    """Write the view of a slot of `data`: its length, and the bytes, or the first four and where they all are."""
    at = max(i64(offsets[i]), i64(0))
    size = max(max(min(i64(offsets[i + 1]), i64(len(data))), i64(0)) - at, i64(0))
    first = i << 2
    views[first] = u32(size)
    for word in range(3):
        found = u64(0)
        if size <= LONGEST_INSIDE or word == 0:
            begin = at + (word << 2)
            for k in range(min(i64(4), size - (word << 2))):
                found |= u64(data[begin + k]) << u64(k << 3)
        elif word > 1:
            found = u64(at)
        views[first + 1 + word] = u32(found)


def name_kinds(i, data, places, statuses, kinds):
    """Write the type of each value, -1 where there is none.

    0 is null, 1 both booleans; then follow the other primitives as the format numbers them, objects and arrays.
    """
    place = u64(places[i])
    kind = NO_KIND
    if statuses[i] == encoding.OK and place < u64(len(data)):
        header = u64(data[place])
        basic = header & encoding.BASIC
        if basic == encoding.PRIMITIVE:
            kind = i8(i64(header >> 2) - i64(header >> 2 > 1))  # one type for both booleans
        elif basic == encoding.SHORT:
            kind = i8(SHORT_KIND)
        else:
            kind = i8(CONTAINER + i64(basic))
    elif statuses[i] == encoding.VARIANT_NULL:
        kind = i8(0)
    kinds[i] = kind


ANY_COUNT: Final = i64(-1)
"""As many children as there are."""
ONLY_KIND: Final = i64(-2)
"""Nothing is counted: it is only said whether the value is of the kind."""


def count_children(i, data, places, basic, wanted, statuses, counts):
    """Write how many children an array or object has; where `wanted` is not negative, it must be that many."""
    found = i64(0)
    if statuses[i] == encoding.OK:
        at = u64(places[i])
        status = encoding.MALFORMED
        if at < u64(len(data)):
            header = u64(data[at])
            status = encoding.TYPE_MISMATCH
            if header == 0:
                status = encoding.VARIANT_NULL
            elif header & encoding.BASIC == basic:
                status = encoding.OK
        if status == encoding.OK:
            count, _, _, width, offsets, values, end = frame(data, at, u64(len(data)))
            if count == encoding.BROKEN:
                status = encoding.MALFORMED
            elif wanted != ONLY_KIND:
                found = i64(count)
                room = end - at
                for k in range(found):
                    if status == encoding.OK:
                        _status, size = child_at(
                            data, values + little(data, offsets + u64(k) * width, width), end
                        )
                        if size > room:
                            status = encoding.TOO_DEEP
                        room -= min(size, room)
                if status == encoding.OK and wanted >= 0 and found != wanted:
                    status = encoding.OVERFLOW
        if status != encoding.OK:
            found = i64(0)
        statuses[i] = status
    counts[i] = found


def place_children(i, data, places, statuses, classes, offsets, child_places, child_statuses, child_classes):
    """Write places and statuses of the children of a row, and their metadata where `classes` has those of rows.

    Slots that a row has in excess, as those of a list of a fixed size under a null, are SQL NULL.
    """
    first = max(i64(offsets[i]), i64(0))
    last = min(i64(offsets[i + 1]), i64(len(child_places)))
    group = i32(0)
    if i < i64(len(classes)):
        group = i32(classes[i])
    at = u64(places[i])
    count = u64(0)
    width = u64(1)
    begin = u64(0)
    values = u64(0)
    end = u64(0)
    if (
        statuses[i] == encoding.OK
        and at < u64(len(data))
        and u64(data[at]) & encoding.BASIC >= encoding.OBJECT
    ):
        count, _, _, width, begin, values, end = frame(data, at, u64(len(data)))
        if count == encoding.BROKEN:  # the bytes have changed since they were counted
            count = u64(0)
    for slot in range(first, last):
        k = u64(slot - first)
        status = encoding.SQL_NULL
        child = u64(0)
        if k < count:
            child = values + little(data, begin + k * width, width)
            status, _size = child_at(data, child, end)
        child_places[slot] = child
        child_statuses[slot] = status
        if slot < i64(len(child_classes)):
            child_classes[slot] = group


def measure_keys(
    i,
    data,
    places,
    classes,
    class_starts,
    class_stops,
    metadata,
    marks,  # say whether names are text, so that rows that share metadata do not read it again
    statuses,
    counts,
):
    """Write how many fields an object has, if no two neighbours of its names are equal. Fields may share names:
    together these must not be longer than the metadata, so that the work stays bounded.
    """
    found = i64(0)
    at = u64(places[i])
    if statuses[i] == encoding.OK and counts[i] > 0 and at < u64(len(data)):
        count, id_width, ids, _, _, _, _ = frame(data, at, u64(len(data)))
        start, stop = slot_of(class_starts, class_stops, metadata, i64(classes[i]))
        size, name_width, offsets, names, last_name = dictionary(metadata, start, stop)
        status = encoding.OK
        group = i64(classes[i])
        mark = FAULTY
        if group >= 0 and group < i64(len(marks)):
            mark = u64(marks[group])
        if mark & (FAULTY | NO_TEXT) != 0:
            size = encoding.BROKEN
        if count == encoding.BROKEN or size == encoding.BROKEN:
            status = encoding.MALFORMED
            count = u64(0)
        room = stop - start
        before = encoding.BROKEN
        for k in range(i64(count)):
            if status == encoding.OK:
                number = little(data, ids + u64(k) * id_width, id_width)
                status = encoding.MALFORMED
                if number < size and number != before:
                    first, last = name_at(metadata, number, name_width, offsets, names, last_name)
                    if first != encoding.BROKEN and last - first <= room:
                        status = encoding.OK
                        room -= last - first
                before = number
        if status == encoding.OK:
            found = i64(count)
        statuses[i] = status
    counts[i] = found


def place_keys(
    i, data, places, classes, class_starts, class_stops, metadata, statuses, offsets, key_starts, key_stops
):
    """Write where the names of the fields of a row lie in the metadata."""
    begin = max(i64(offsets[i]), i64(0))
    until = min(i64(offsets[i + 1]), i64(len(key_starts)))
    at = u64(places[i])
    if (
        statuses[i] == encoding.OK
        and begin < until
        and at < u64(len(data))
        and u64(data[at]) & encoding.BASIC == encoding.OBJECT
    ):
        count, id_width, ids, _, _, _, _ = frame(data, at, u64(len(data)))
        start, stop = slot_of(class_starts, class_stops, metadata, i64(classes[i]))
        size, name_width, names_at, names, last_name = dictionary(metadata, start, stop)
        if count == encoding.BROKEN or size == encoding.BROKEN:
            size = u64(0)
            count = u64(0)
        for slot in range(begin, until):
            first = u64(0)
            last = u64(0)
            k = u64(slot - begin)
            if k < count:
                number = little(data, ids + k * id_width, id_width)
                if number < size:
                    first, last = name_at(metadata, number, name_width, names_at, names, last_name)
                    if first == encoding.BROKEN:
                        first = u64(0)
                        last = u64(0)
            key_starts[slot] = i64(first)
            key_stops[slot] = i64(last)


def note_disorder(i, offsets, starts, stops, data, flags):
    """Write 1 for a row whose keys do not ascend, each once, by their bytes; 0 for any other."""
    last = max(min(i64(offsets[i + 1]), i64(len(starts))), i64(0))
    first = min(max(i64(offsets[i]), i64(0)), last)
    found = u8(0)
    for slot in range(first + 1, last):
        begin, end = slot_of(starts, stops, data, slot)
        before, until = slot_of(starts, stops, data, slot - 1)
        if compared(data, before, until, data, begin, end) >= 0:
            found = u8(1)
    flags[i] = found


def copy_slots(i, log, starts, stops, data, offsets, out):
    """Copy the bytes of a slot, which ``2 ** log`` items share, to where its offsets say."""
    slot = i >> log
    start, stop = slot_of(starts, stops, data, slot)
    at = i64(offsets[slot])
    copy_part(i, log, data, start, out, at, min(i64(stop - start), i64(offsets[slot + 1]) - at))


def worst_of(i, offsets, child_statuses, statuses):
    """Write the worst of what became of the children of a row, where the row itself is well."""
    if statuses[i] == encoding.OK:
        worst = encoding.OK
        first = max(i64(offsets[i]), i64(0))
        last = min(i64(offsets[i + 1]), i64(len(child_statuses)))
        for slot in range(first, last):
            status = child_statuses[slot]
            if status > encoding.VARIANT_NULL and status > worst:
                worst = u8(status)
        statuses[i] = worst


_SLOTS = "i64[], i64[], u8[]"


SIGNATURES = {
    measure_bytes: ("u8[], u64[], i64, i64, u8[]!, i64[]!",),
    copy_bytes: ("i64, u8[], u64[], i64, u8[], i64[], u8[]!",),
    copy_fixed: ("i64, u8[], u64[], i64, u8[], u8[]!",),
    write_views: ("i64[], u8[], u32[]!",),
    name_kinds: ("u8[], u64[], u8[], i8[]!",),
    count_children: ("u8[], u64[], u64, i64, u8[]!, i64[]!",),
    place_children: ("u8[], u64[], u8[], i32[], i64[], u64[]!, u8[]!, i32[]!",),
    measure_keys: (f"u8[], u64[], i32[], {_SLOTS}, u8[], u8[]!, i64[]!",),
    place_keys: (f"u8[], u64[], i32[], {_SLOTS}, u8[], i64[], i64[]!, i64[]!",),
    note_disorder: (f"i64[], {_SLOTS}, u8[]!",),
    copy_slots: (f"i64, {_SLOTS}, i64[], u8[]!",),
    worst_of: ("i64[], u8[], u8[]!",),
}
