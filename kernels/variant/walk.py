"""Where the values lie that paths lead to, and the numbers among them: every row is walked once for all paths.

Work item: a block of rows, of one where there is a thread for each: a call with so many arguments costs more than a
row does.
"""

from __future__ import annotations

from typing import Any

from bowstring.kernels.types import i8, i16, i32, i64, u8, u64
from bowstring.kernels.validity import bit_is_set
from bowstring.kernels.variant.format import (
    BASIC,
    BROKEN,
    MALFORMED,
    MISSING,
    OK,
    OVERFLOW,
    SQL_NULL,
    UNKNOWN,
    UNSUPPORTED,
    VARIANT_NULL,
    compared,
    dictionary,
    frame,
    little,
    name_at,
    signed,
    value_end,
)
from bowstring.kernels.variant.metadata import ABSENT, FAULTY, ORDERED, slot_of
from bowstring.kernels.variant.walk_fast import (
    BY_NAME,
    FOUR_WIDE,
    LATER,
    LOCATED,
    PLACE,
    ROOT,
    TWO_WIDE,
    WHOLE,
    position_of,
)

BYTES = i64(8)
THIRD = i64(3)
LOWER = u64(255)
STATUS = u64(31)


def locate(
    i: Any,
    validity: Any,
    value_validity: Any,
    starts: Any,
    stops: Any,
    data: Any,
    classes: Any,  # which metadata each row has
    class_starts: Any,
    class_stops: Any,
    metadata: Any,
    marks: Any,  # as inspect_metadata writes them
    texts: Any,
    ends: Any,
    ids: Any,  # as find_names writes them, for each metadata and node
    families: Any,  # parent (below 0: the row), kind of step, and end of the nodes of each family
    operands: Any,  # which name in texts each node seeks
    kinds: Any,  # what node k writes at columns[k] + row
    columns: Any,
    meanings: Any,  # how each node reads headers
    block: Any,
    rows: Any,
    stride: Any,
    chosen: Any,  # rows; empty for all
    places: Any,
    statuses: Any,  # of node k at k * stride + row, where it is not OK
    numbers_8: Any,
    numbers_16: Any,
    numbers_32: Any,
    numbers_64: Any,
) -> None:
    """Write the status of every node of a tree of paths, and its place or its number: a place if the status is
    ``OK``, of a value that ends before its parent does.
    """
    nodes = u64(len(kinds))
    some = i64(len(chosen))
    for item in range(i * block, min((i + 1) * block, some if some > 0 else rows)):
        each = i64(chosen[item]) if some > 0 else item
        row = u64(each)
        state = OK
        mark = FAULTY
        names = u64(0)
        group = i64(classes[row])
        start, stop = slot_of(starts, stops, data, each)
        family = u64(0)
        if group >= 0 and group < i64(len(marks)):
            mark = u64(marks[u64(group)])
            names = u64(group) * nodes
        if not bit_is_set(validity, each):
            state = SQL_NULL
        elif mark & FAULTY != 0 or (start == stop and bit_is_set(value_validity, each)):
            state = MALFORMED
        elif not bit_is_set(value_validity, each):
            state = VARIANT_NULL
        node = u64(0)
        while family < u64(len(families)):
            parent = i64(families[family])
            step = i64(families[family + 1])
            until = u64(families[family + 2])
            family += 3
            shared = state
            at = start
            if parent >= 0:
                shared = statuses[u64(parent * stride) + row]
                if shared == OK:
                    at = places[u64(columns[u64(parent)]) + row]
            if shared == VARIANT_NULL and step != ROOT:
                shared = MISSING
            count = u64(0)
            id_width = u64(0)
            width = u64(1)
            element_ids = at
            offsets = at
            values = at
            end = stop
            if shared == OK and step != ROOT:
                if u64(data[at]) & BASIC != u64(step) + 1:
                    shared = MISSING
                else:
                    count, id_width, element_ids, width, offsets, values, end = frame(data, at, stop)
                    if count == BROKEN:
                        shared = MALFORMED
            while node < until:
                status = shared
                where = at
                if status == OK and step != ROOT:
                    known = i64(ids[names + node])
                    position = u64(known)
                    if step != BY_NAME and known < 0:
                        position += count  # from the end; far outside where there are not so many
                    if step == BY_NAME:
                        position = BROKEN
                        if known >= 0:
                            if mark & ORDERED != 0:
                                position = by_id(data, element_ids, id_width, count, u64(known))
                            if position == BROKEN:
                                # Without names in order, and where a writer keeps none, it may stand anywhere.
                                position = position_of(data, element_ids, id_width, count, u64(known))
                        elif known != ABSENT:
                            first, until_name = slot_of(class_starts, class_stops, metadata, group)
                            number = u64(operands[node])
                            position = by_name(
                                data,
                                element_ids,
                                id_width,
                                count,
                                metadata,
                                first,
                                until_name,
                                texts,
                                u64(ends[number]),
                                u64(ends[number + 1]),
                            )
                    if position >= count:
                        status = MISSING
                    else:
                        where = values + little(data, offsets + position * width, width)
                        if where >= end:
                            status = MALFORMED
                found = i64(0)
                kind = kinds[node]
                column = u64(columns[node]) + row
                if status == OK:
                    meaning = u64(meanings[(node << 8) | u64(data[where])])
                    if meaning <= LOWER or where + (meaning >> 8) > end:
                        reached = value_end(data, where, end)
                        if reached == BROKEN:
                            status = MALFORMED
                        elif reached == UNKNOWN:
                            status = UNSUPPORTED
                    meaning = meaning & LOWER
                    if status == OK and kind == PLACE:
                        places[column] = where
                    elif status == OK and meaning < WHOLE:
                        found = signed(data, where + 1, 8 - (i64(meaning) >> THIRD))
                    elif status == OK and meaning == LATER:
                        status = LOCATED
                        found = i64(where)
                    elif status == OK:
                        status = u8(meaning & STATUS)
                        found = i64((meaning >> 5) & 1)
                if kind == FOUR_WIDE:
                    if status != LOCATED and i64(i32(found)) != found:
                        status = OVERFLOW
                        found = i64(0)
                    numbers_32[column] = i32(found)
                elif kind > FOUR_WIDE:
                    numbers_64[column] = found
                elif kind == TWO_WIDE:
                    if status != LOCATED and i64(i16(found)) != found:
                        status = OVERFLOW
                        found = i64(0)
                    numbers_16[column] = i16(found)
                elif kind > PLACE:
                    if status != LOCATED and i64(i8(found)) != found:
                        status = OVERFLOW
                        found = i64(0)
                    numbers_8[column] = i8(found)
                if status != OK:
                    statuses[node * u64(stride) + row] = status
                node += 1


def by_id(data: Any, ids: Any, width: Any, count: Any, wanted: Any) -> Any:
    """Return where an id stands among ascending ones; BROKEN where it does not."""
    found = BROKEN
    if count > 0:
        # Field k of ascending ids has at least the id k; and the distance of two ids is at least that of places.
        high = min(wanted, count - 1)
        seen = little(data, ids + high * width, width)
        low = high - min(high, max(seen, wanted) - wanted)
        while low < high:
            middle = (low + high) >> 1
            if little(data, ids + middle * width, width) < wanted:
                low = middle + 1
            else:
                high = middle
        if little(data, ids + low * width, width) == wanted:
            found = low
    return found


def by_name(
    data: Any,
    ids: Any,
    width: Any,
    count: Any,
    metadata: Any,
    start: Any,
    stop: Any,
    texts: Any,
    begin: Any,
    end: Any,
) -> Any:
    """Return where a name stands among those of some ids, in any order; BROKEN where it does not."""
    size, name_width, offsets, names, last_name = dictionary(metadata, start, stop)
    if size == BROKEN:
        size = u64(0)
    found = BROKEN
    k = u64(0)
    while k < count and found == BROKEN:
        number = little(data, ids + k * width, width)
        if number < size:
            first, last = name_at(metadata, number, name_width, offsets, names, last_name)
            same = first != BROKEN and last - first == end - begin
            if same and compared(metadata, first, last, texts, begin, end) == 0:
                found = k
        k += 1
    return found


_SIGNATURE = (
    "u8[], u8[], {0}[], {0}[], u8[], i32[], i64[], i64[], u8[], u8[], u8[], i64[], i64[], "
    "i64[], i64[], u8[], i64[], u16[], i64, i64, i64, i64[], u64[]!, u8[]!, i8[]!, i16[]!, i32[]!, i64[]!"
)
SIGNATURES = {locate: (_SIGNATURE.format("i32"), _SIGNATURE.format("i64"))}
