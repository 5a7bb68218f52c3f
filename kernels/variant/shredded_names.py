# ruff: noqa: PLR1714  a kernel has no "in"
"""The names of distinct metadata, for shredded objects: their order, and which of them a typed field has.

Work item: one distinct metadata, or one pair of it and a name.
"""

from __future__ import annotations

from typing import Any

from bowstring.kernels.types import i32, i64, u64
from bowstring.kernels.variant.format import BROKEN, compared, dictionary, name_at
from bowstring.kernels.variant.metadata import FAULTY, ORDERED, slot_of

ABSENT = i64(-1)


def count_names(i: Any, starts: Any, stops: Any, data: Any, marks: Any, counts: Any) -> None:
    """Write how many names distinct metadata have."""
    start, stop = slot_of(starts, stops, data, i)
    count, _, _, _, _ = dictionary(data, start, stop)
    if count == BROKEN or u64(marks[i]) & FAULTY != 0:
        count = u64(0)
    counts[i] = i64(count)


def order_of(data: Any, one: Any, other: Any, width: Any, offsets: Any, names: Any, end: Any) -> Any:
    """Return whether a name comes before, with or after another of the same metadata: -1, 0 or 1."""
    first, last = name_at(data, one, width, offsets, names, end)
    begin, stop = name_at(data, other, width, offsets, names, end)
    order = i64(0)
    if first != BROKEN and begin != BROKEN:
        order = compared(data, first, last, data, begin, stop)
    return order


def sink(
    order: Any, base: Any, root: Any, count: Any, data: Any, width: Any, offsets: Any, names: Any, end: Any
) -> None:
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


def rank_names(
    i: Any, starts: Any, stops: Any, data: Any, marks: Any, bases: Any, order: Any, ranks: Any
) -> None:
    """Write the ids of distinct metadata in the order of their names, and for each id its rank.

    Names that are there twice have one rank.
    """
    start, stop = slot_of(starts, stops, data, i)
    found, width, offsets, names, end = dictionary(data, start, stop)
    base = u64(bases[i])
    count = u64(bases[i + 1]) - base
    if found == BROKEN:
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


def find_fields(
    i: Any,
    starts: Any,
    stops: Any,
    data: Any,
    bases: Any,
    order: Any,
    texts: Any,
    ends: Any,
    ids: Any,
) -> None:
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
    if found == BROKEN or found < high:  # the bytes have changed since they were counted
        high = u64(0)
    while low < high:
        middle = (low + high) >> 1
        number = u64(order[base + middle])
        first, last = name_at(data, number, width, offsets, names, end)
        place = i64(1)
        if first != BROKEN:
            place = compared(data, first, last, texts, begin, until)
        if place == 0:
            known = i64(number)
        if place < 0:
            low = middle + 1
        else:
            high = middle
    ids[i] = i32(known)


SIGNATURES = {
    count_names: ("i64[], i64[], u8[], u8[], i64[]!",),
    rank_names: ("i64[], i64[], u8[], u8[], i64[], i32[]!, i32[]!",),
    find_fields: ("i64[], i64[], u8[], i64[], i32[], u8[], i64[], i32[]!",),
}
