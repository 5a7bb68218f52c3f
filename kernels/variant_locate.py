"""Where the values lie that paths lead to: every row is walked once for all paths.

Work item: a block of rows, of one where there is a thread for each: a call with so many arguments costs more than a
row does.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.types import i64, u64
from bowstring.kernels.validity import bit_is_set
from bowstring.kernels.variant_format import (
    BROKEN,
    MALFORMED,
    MISSING,
    OBJECT,
    OK,
    PRIMITIVE,
    SHORT,
    SIZES,
    SQL_NULL,
    UNKNOWN,
    UNSUPPORTED,
    VARIANT_NULL,
    compared,
    dictionary,
    frame,
    little,
    name_at,
    value_end,
)
from bowstring.kernels.variant_metadata import ABSENT, FAULTY, FOUR_BYTE, ORDERED, slot_of

__all__ = ["BY_INDEX", "BY_NAME", "ROOT", "SIGNATURES", "locate"]

ROOT: Final = i64(0)
"""The step of a node that is the whole value."""
BY_NAME: Final = i64(1)
"""The step to a field; its operand is the number of the name."""
BY_INDEX: Final = i64(2)
"""The step to an element; its operand is the index."""

ZERO = i64(0)
UNIT = i64(1)
SAME = i64(0)
MORE = i64(1)
NONE = u64(0)
ONE = u64(1)
TWO = u64(2)
BASIC = u64(3)
ARRAY = u64(3)
# The primitives below binary and string: each type has one size.
COUNTED_HEADER = u64(15 << 2)


def locate(
    i: Any,
    validity: Any,
    value_validity: Any,
    starts: Any,
    stops: Any,
    data: Any,
    classes: Any,
    class_starts: Any,
    class_stops: Any,
    metadata: Any,
    marks: Any,
    texts: Any,
    ends: Any,
    ids: Any,
    parents: Any,
    steps: Any,
    operands: Any,
    block: Any,
    rows: Any,
    places: Any,
    statuses: Any,
) -> None:
    """Write the place and the status of every node of a tree of paths, node by node: ``[node * rows + row]``.

    Nodes come after their parents, and children of one parent together; parent -1 is the row. Row ``i`` has the
    metadata ``classes[i]``, of which `marks` and `ids` tell what :mod:`~bowstring.kernels.variant_metadata`
    found for the names in `texts`. A place is written where the status is ``OK``: the value there ends before
    the row does.
    """
    wanted = i64(len(ends)) - UNIT
    for row in range(i * block, min((i + UNIT) * block, rows)):
        group = i64(classes[row])
        mark = FAULTY
        if group >= ZERO and group < i64(len(marks)):
            mark = u64(marks[group])
        start, stop = slot_of(starts, stops, data, i64(row))
        state = OK
        if not bit_is_set(validity, i64(row)):
            state = SQL_NULL
        elif mark & FAULTY != NONE or (start == stop and bit_is_set(value_validity, i64(row))):
            state = MALFORMED
        elif not bit_is_set(value_validity, i64(row)):
            state = VARIANT_NULL
        for node in range(ZERO, i64(len(parents))):
            parent = i64(parents[node])
            step = i64(steps[node])
            found = state
            at = start
            if parent >= ZERO:
                found = statuses[parent * rows + row]
                at = places[parent * rows + row]
            if found == VARIANT_NULL and step != ROOT:
                found = MISSING
            if found == OK and step != ROOT:
                basic = u64(data[at]) & BASIC
                count, id_width, element_ids, width, offsets, values, end = frame(data, at, stop)
                position = BROKEN
                if (
                    basic < OBJECT
                    or (basic == OBJECT and step != BY_NAME)
                    or (basic == ARRAY and step != BY_INDEX)
                ):
                    found = MISSING
                elif count == BROKEN:
                    found = MALFORMED
                elif step == BY_INDEX:
                    position = u64(operands[node])
                else:
                    number = i64(operands[node])
                    wanted_id = i64(ids[group * wanted + number])
                    if wanted_id >= ZERO and mark & ORDERED != NONE:
                        # Written out here: a call would cost more than the search.
                        target = u64(wanted_id)
                        low = NONE
                        high = count
                        while low < high:
                            middle = (low + high) >> ONE
                            if little(data, element_ids + middle * id_width, id_width) < target:
                                low = middle + ONE
                            else:
                                high = middle
                        if low < count and little(data, element_ids + low * id_width, id_width) == target:
                            position = low
                    if position == BROKEN and wanted_id != ABSENT and mark & (ORDERED | FOUR_BYTE) != ORDERED:
                        first, until = slot_of(class_starts, class_stops, metadata, group)
                        position = by_name(
                            data,
                            element_ids,
                            id_width,
                            count,
                            metadata,
                            first,
                            until,
                            mark & FOUR_BYTE,
                            texts,
                            u64(ends[number]),
                            u64(ends[number + UNIT]),
                        )
                if found == OK and position >= count:
                    found = MISSING
                elif found == OK:
                    at = values + little(data, offsets + position * width, width)
                    if at >= end:
                        found = MALFORMED
            if found == OK and not is_short(data, at, stop):
                reached = value_end(data, at, stop)
                if reached == BROKEN:
                    found = MALFORMED
                elif reached == UNKNOWN:
                    found = UNSUPPORTED
            places[node * rows + row] = at
            statuses[node * rows + row] = found


def is_short(data: Any, at: Any, stop: Any) -> Any:
    """Return whether a value of a known size, as most are, lies before `stop`."""
    short = False
    if at < stop:
        header = u64(data[at])
        if header & BASIC == SHORT:
            short = at + (header >> TWO) < stop
        elif header & BASIC == PRIMITIVE and header < COUNTED_HEADER:
            short = at + u64(SIZES[header >> TWO]) < stop
    return short


def by_name(
    data: Any,
    ids: Any,
    width: Any,
    count: Any,
    metadata: Any,
    start: Any,
    stop: Any,
    legacy: Any,
    texts: Any,
    begin: Any,
    end: Any,
) -> Any:
    """Return where a name stands among ascending ones, which the ids name; BROKEN where it does not.

    Where the order may be a `legacy` one, names are looked at one after the other.
    """
    size, name_width, offsets, names, last_name = dictionary(metadata, start, stop)
    low = NONE
    high = count if size != BROKEN else NONE
    found = BROKEN
    while low < high:
        middle = low if legacy != NONE else (low + high) >> ONE
        number = little(data, ids + middle * width, width)
        order = MORE
        if number < size:
            first, last = name_at(metadata, number, name_width, offsets, names, last_name)
            order = compared(metadata, first, last, texts, begin, end)
        if order == SAME:
            found = middle
        if order < SAME or (legacy != NONE and order != SAME):
            low = middle + ONE
        else:
            high = middle
    return found


_SIGNATURE = (
    "u8[], u8[], {0}[], {0}[], u8[], i32[], i64[], i64[], u8[], u8[], u8[], i64[], i64[], "
    "i32[], i32[], i64[], i64, i64, u64[]!, u8[]!"
)
SIGNATURES = {locate: (_SIGNATURE.format("i32"), _SIGNATURE.format("i64"))}
