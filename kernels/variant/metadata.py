"""The names of Variant metadata: which rows share one, what it holds, the order of its names, and the ids of those
that are asked for.

Work item: one row, one distinct metadata, or one pair of a distinct metadata and a name.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import i32, i64, u8, u64
from bowstring.kernels.validation.text import is_text
from bowstring.kernels.validity import bit_is_set
from bowstring.kernels.variant import encoding
from bowstring.kernels.variant.encoding import compared, dictionary, name_at

FAULTY: Final = u64(1)
"""The mark of bytes that are no metadata."""
ORDERED: Final = u64(2)
"""The mark of names that really ascend, whatever the flag says."""
NO_TEXT: Final = u64(8)
"""The mark of names that are not UTF-8, or of a flag that lies: what only a validation refuses."""
TEXT_ALONE: Final = i64(2)
"""How full an inspection is that looks at the text of names, and not at the flag."""
ABSENT: Final = i64(-1)
"""The id of a name that the metadata do not hold."""
SEVERAL: Final = i64(-2)
"""The id of a name that the metadata hold more than once: names must be compared."""

NAMED: Final = i64(-(1 << 63))
"""No index: a node is found by its name."""

SORTED_FLAG = u64(0x10)
CHANGED = u8(1)


def slot_of(starts, stops, data, row):
    """Return where the bytes of a slot begin and end in `data`; nowhere, where its offsets are wrong."""
    start = u64(0)
    stop = u64(0)
    if row >= 0 and row < i64(len(starts)):
        first = i64(starts[row])
        last = i64(stops[row])
        if first >= 0 and first <= last <= i64(len(data)):
            start = u64(first)
            stop = u64(last)
    return start, stop


def name_between_quotes(ends, base, number):
    """Return where a name begins and ends among quoted names, without its quotes; nowhere beyond the last one."""
    at = base + i64(number)
    begin = u64(0)
    end = u64(0)
    if at + 1 < i64(len(ends)):
        begin = u64(ends[at]) + 2
        end = u64(ends[at + 1]) - 2
    return begin, end


def row_state(row, validity, value_validity, starts, stops, data, classes, marks, faults):
    """Return what of a row is known before its value is read: a status; which metadata it has, and their mark; and
    where its value begins and ends. Metadata with one of the marks `faults` are malformed.
    """
    group = i64(classes[row])
    mark = FAULTY
    if group >= 0 and group < i64(len(marks)):
        mark = u64(marks[u64(group)])
    start, stop = slot_of(starts, stops, data, row)
    status = encoding.OK
    if not bit_is_set(validity, row):
        status = encoding.SQL_NULL
    elif mark & faults != 0:
        status = encoding.MALFORMED
    elif not bit_is_set(value_validity, row):
        status = encoding.VARIANT_NULL
    elif start == stop:
        status = encoding.MALFORMED
    return status, group, mark, start, stop


def mark_changes(i, starts, stops, data, changed):
    """Mark a row whose metadata are not those of the row before."""
    start, stop = slot_of(starts, stops, data, i)
    before, end = slot_of(starts, stops, data, i - 1)
    mark = CHANGED
    if i > 0 and start == before and stop == end:  # views often share their bytes
        mark = u8(0)
    elif i > 0 and stop - start == end - before:
        one = max(i64(start), i64(0))
        other = max(i64(before), i64(0))
        difference = u64(0)
        # Without a way out of the loop, it is done with wide instructions.
        for k in range(i64(stop - start)):
            difference |= u64(data[one + k]) ^ u64(data[other + k])
        if difference == 0:
            mark = u8(0)
    changed[i] = mark


def inspect_metadata(i, starts, stops, data, full, marks):
    """Write the marks of one distinct metadata; with `full`, :data:`NO_TEXT` too, of text alone if `TEXT_ALONE`."""
    start, stop = slot_of(starts, stops, data, i)
    count, width, offsets, names, end = dictionary(data, start, stop)
    mark = FAULTY
    if count != encoding.BROKEN:
        mark = ORDERED
        first_before = names
        last_before = names
        k = u64(0)
        while k < count and mark & FAULTY == 0:
            first, last = name_at(data, k, width, offsets, names, end)
            if first == encoding.BROKEN:
                mark = FAULTY
            else:
                if k > 0 and compared(data, first_before, last_before, data, first, last) >= 0:
                    mark = mark & ~ORDERED
                if full != 0 and not is_text(data, i64(first), i64(last)):
                    mark |= NO_TEXT
                first_before = first
                last_before = last
            k += 1
        if mark & (FAULTY | ORDERED) == 0 and u64(data[start]) & SORTED_FLAG != 0 and full == 1:
            mark |= NO_TEXT
    marks[i] = u8(mark)


def find_names(
    i,
    starts,
    stops,
    data,
    marks,
    texts,  # name k lies between ends[k] and the next end
    ends,
    operands,  # which name a node seeks
    indices,  # NAMED, or an index: below 0 it counts from the end
    ids,
):
    """Write the id that a node of a tree of paths seeks in a distinct metadata: of its name, or :data:`ABSENT`,
    or :data:`SEVERAL`. An index is written as it is.
    """
    nodes = i64(len(indices))
    item = i // nodes
    node = i % nodes
    found = i64(indices[node])
    if found == NAMED:
        found = ABSENT
        number = i64(operands[node])
        begin = u64(ends[number])
        stop_of_name = u64(ends[number + 1])
        size = u64(0)
        start, stop = slot_of(starts, stops, data, item)
        count, width, offsets, names, end = dictionary(data, start, stop)
        if (
            u64(marks[item]) & FAULTY == 0 and count != encoding.BROKEN
        ):  # bytes may have changed since they were marked
            size = count
        for k in range(i64(size)):
            first, last = name_at(data, u64(k), width, offsets, names, end)
            if (
                first != encoding.BROKEN
                and last - first == stop_of_name - begin
                and compared(data, first, last, texts, begin, stop_of_name) == 0
            ):
                found = i64(k) if found == ABSENT else SEVERAL
    ids[i] = found


def count_names(i, starts, stops, data, marks, counts):
    """Write how many names distinct metadata have."""
    start, stop = slot_of(starts, stops, data, i)
    count, _, _, _, _ = dictionary(data, start, stop)
    if count == encoding.BROKEN or u64(marks[i]) & FAULTY != 0:
        count = u64(0)
    counts[i] = i64(count)


def order_of(data, one, other, width, offsets, names, end):
    """Return whether a name comes before, with or after another of the same metadata: -1, 0 or 1."""
    first, last = name_at(data, one, width, offsets, names, end)
    begin, stop = name_at(data, other, width, offsets, names, end)
    order = i64(0)
    if first != encoding.BROKEN and begin != encoding.BROKEN:
        order = compared(data, first, last, data, begin, stop)
    return order


def sink(order, base, root, count, data, width, offsets, names, end):
    """Move an id down its heap to where no name below it is greater."""
    held = u64(order[base + root])
    at = root
    below = at * 2 + 1
    while below < count:
        if below + 1 < count:
            left = u64(order[base + below])
            right = u64(order[base + below + 1])
            if order_of(data, right, left, width, offsets, names, end) > 0:
                below += 1
        if order_of(data, u64(order[base + below]), held, width, offsets, names, end) <= 0:
            break
        order[base + at] = order[base + below]
        at = below
        below = at * 2 + 1
    order[base + at] = i32(held)


def rank_names(i, starts, stops, data, marks, bases, order, ranks):
    """Write the ids of distinct metadata in the order of their names, and for each id its rank.

    Names that are there twice have one rank.
    """
    start, stop = slot_of(starts, stops, data, i)
    found, width, offsets, names, end = dictionary(data, start, stop)
    base = u64(bases[i])
    count = u64(bases[i + 1]) - base
    if found == encoding.BROKEN:
        found = u64(0)
    if count > 0 and found >= count:
        for k in range(i64(count)):
            order[base + u64(k)] = i32(k)
        if u64(marks[i]) & ORDERED == 0:
            root = count >> 1
            while root > 0:
                root -= 1
                sink(order, base, root, count, data, width, offsets, names, end)
            last = count - 1
            while last > 0:
                top = order[base]
                order[base] = order[base + last]
                order[base + last] = top
                sink(order, base, u64(0), last, data, width, offsets, names, end)
                last -= 1
        rank = i64(0)
        ranks[base + u64(order[base])] = i32(0)
        for k in range(1, i64(count)):
            here = u64(order[base + u64(k)])
            before = u64(order[base + u64(k) - 1])
            if order_of(data, before, here, width, offsets, names, end) != 0:
                rank = i64(k)
            ranks[base + here] = i32(rank)


def find_fields(i, starts, stops, data, bases, order, texts, ends, ids):
    """Write the id that a name has in distinct metadata, -1 where it is not there."""
    fields = i64(len(ends)) - 1
    item = i // fields
    field = i % fields
    begin = u64(ends[field])
    until = u64(ends[field + 1])
    start, stop = slot_of(starts, stops, data, item)
    found, width, offsets, names, end = dictionary(data, start, stop)
    base = u64(bases[item])
    low = u64(0)
    high = u64(bases[item + 1]) - base
    known = ABSENT
    if found == encoding.BROKEN or found < high:  # the bytes have changed since they were counted
        high = u64(0)
    while low < high:
        middle = (low + high) >> 1
        number = u64(order[base + middle])
        first, last = name_at(data, number, width, offsets, names, end)
        place = i64(1)
        if first != encoding.BROKEN:
            place = compared(data, first, last, texts, begin, until)
        if place == 0:
            known = i64(number)
        if place < 0:
            low = middle + 1
        else:
            high = middle
    ids[i] = i32(known)


SIGNATURES = {
    mark_changes: ("i32[], i32[], u8[], u8[]!", "i64[], i64[], u8[], u8[]!"),
    inspect_metadata: ("i64[], i64[], u8[], i64, u8[]!",),
    find_names: ("i64[], i64[], u8[], u8[], u8[], i64[], i64[], i64[], i64[]!",),
    count_names: ("i64[], i64[], u8[], u8[], i64[]!",),
    rank_names: ("i64[], i64[], u8[], u8[], i64[], i32[]!, i32[]!",),
    find_fields: ("i64[], i64[], u8[], i64[], i32[], u8[], i64[], i32[]!",),
}
