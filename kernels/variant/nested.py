"""The elements of Variant's arrays and the fields of its objects, as slots of their own.

Work item: one row; its children are counted first, then placed where a sum of the counts says.

Children may share their bytes, and so be as many, and as long, as no value could hold: what they take together must
not be more than the whole that holds them. So the work at each level of a type is bounded by the bytes of the row.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import i32, i64, u8, u64
from bowstring.kernels.variant import encoding
from bowstring.kernels.variant.bytes import copy_part
from bowstring.kernels.variant.encoding import compared, dictionary, frame, little, name_at, value_end
from bowstring.kernels.variant.metadata import FAULTY, NO_TEXT, slot_of

ANY_COUNT: Final = i64(-1)
"""As many children as there are."""
ONLY_KIND: Final = i64(-2)
"""Nothing is counted: it is only said whether the value is of the kind."""


def kind_at(data, at, basic):
    """Return whether the value at `at` is an array or an object, as a status."""
    status = encoding.MALFORMED
    if at < u64(len(data)):
        header = u64(data[at])
        status = encoding.TYPE_MISMATCH
        if header == 0:
            status = encoding.VARIANT_NULL
        elif header & encoding.BASIC == basic:
            status = encoding.OK
    return status


def child_at(data, at, end):
    """Return the status of a child, which must lie before `end`, and the bytes that it takes, one at least."""
    status = encoding.OK
    size = u64(1)
    reached = value_end(data, at, end)
    if reached == encoding.BROKEN:
        status = encoding.MALFORMED
    elif reached == encoding.UNKNOWN:
        status = encoding.UNSUPPORTED
    else:
        size = reached - at
    return status, size


def count_children(i, data, places, basic, wanted, statuses, counts):
    """Write how many children an array or object has; where `wanted` is not negative, it must be that many."""
    found = i64(0)
    if statuses[i] == encoding.OK:
        at = u64(places[i])
        status = kind_at(data, at, basic)
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
    if log == 0:  # as in copy_bytes
        copy_slot(i, i, log, starts, stops, data, offsets, out)
    else:
        copy_slot(i >> log, i, log, starts, stops, data, offsets, out)


def copy_slot(slot, i, log, starts, stops, data, offsets, out):
    """Copy an item's part of a slot."""
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
    count_children: ("u8[], u64[], u64, i64, u8[]!, i64[]!",),
    place_children: ("u8[], u64[], u8[], i32[], i64[], u64[]!, u8[]!, i32[]!",),
    measure_keys: (f"u8[], u64[], i32[], {_SLOTS}, u8[], u8[]!, i64[]!",),
    place_keys: (f"u8[], u64[], i32[], {_SLOTS}, u8[], i64[], i64[]!, i64[]!",),
    note_disorder: (f"i64[], {_SLOTS}, u8[]!",),
    copy_slots: (f"i64, {_SLOTS}, i64[], u8[]!",),
    worst_of: ("i64[], u8[], u8[]!",),
}
