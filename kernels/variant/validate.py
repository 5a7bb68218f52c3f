"""Whether Variant values are what the format says, down to their last child.

Work item: a block of rows, with room of its own for the containers that are open. Nothing recurses, and nothing
works longer than a value is long: the nodes that it visits, and the bytes of text and of names that it reads,
are counted down from the value's length, whatever the offsets share.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import i64, u64
from bowstring.kernels.validation.text import is_text
from bowstring.kernels.variant import encoding
from bowstring.kernels.variant.decimals import raw_number
from bowstring.kernels.variant.encoding import (
    child_at,
    compared,
    dictionary,
    frame,
    little,
    name_at,
    payload,
    signed,
)
from bowstring.kernels.variant.metadata import FAULTY, NO_TEXT, ORDERED, row_state, slot_of

WORDS: Final = i64(3)
"""Words of room for each open container: where it begins, which child is next, and where it must end."""
SHARING: Final = u64(16)
"""How many times its own length a value may have in text, where children share their bytes."""

NEXT = i64(1)
BOUND = i64(2)


def validate_values(
    i,
    block,
    validity,
    value_validity,
    starts,
    stops,
    data,
    classes,
    class_starts,
    class_stops,
    metadata,
    marks,  # as inspect_metadata writes them, with the same full
    full,
    depth,
    room,  # WORDS words for each of depth levels of each work item
    statuses,
):
    """Write the status of each row; without `full`, of its header and its metadata alone."""
    base = i * depth * WORDS
    for row in range(i * block, min((i + 1) * block, i64(len(statuses)))):
        status, group, mark, start, stop = row_state(
            i64(row), validity, value_validity, starts, stops, data, classes, marks, FAULTY | NO_TEXT
        )
        if status == encoding.OK:
            status, _size = child_at(data, start, stop)
            if status == encoding.OK and full != 0:
                first, last = slot_of(class_starts, class_stops, metadata, group)
                nodes = stop - start
                letters = (stop - start) * SHARING + (last - first)
                level = i64(0)
                at = start
                bound = stop
                status = encoding.OK
                going = True
                while going:
                    if nodes == 0:
                        status = encoding.TOO_DEEP
                    else:
                        nodes -= 1
                        status, _size = child_at(data, at, bound)
                    if status == encoding.OK and u64(data[at]) & encoding.BASIC < encoding.OBJECT:
                        status, letters = leaf(data, at, bound, letters)
                    elif status == encoding.OK and level == depth:
                        status = encoding.TOO_DEEP
                    elif status == encoding.OK:
                        if u64(data[at]) & encoding.BASIC == encoding.OBJECT:
                            status, letters = fields(data, at, bound, metadata, first, last, mark, letters)
                        slot = base + level * WORDS
                        room[slot] = at
                        room[slot + NEXT] = 0
                        room[slot + BOUND] = bound
                        level += 1
                    going = False
                    while status == encoding.OK and level > 0 and not going:
                        slot = base + (level - 1) * WORDS
                        k = u64(room[slot + NEXT])
                        count, _, _, width, offsets, values, end = frame(
                            data, u64(room[slot]), u64(room[slot + BOUND])
                        )
                        if count == encoding.BROKEN:
                            status = encoding.MALFORMED
                        elif k < count:
                            room[slot + NEXT] = k + 1
                            at = values + little(data, offsets + k * width, width)
                            bound = end
                            going = True
                        else:
                            level -= 1
        statuses[row] = status


def leaf(data, at, stop, letters):
    """Return the status of a primitive or a string that ends before `stop`, and how much text is left."""
    header = u64(data[at])
    kind = header >> 2
    status = encoding.OK
    left = letters
    begin = at + 1
    is_short = header & encoding.BASIC == encoding.SHORT
    if is_short or (kind >= encoding.KIND_BINARY and kind <= encoding.KIND_STRING):
        begin, end = payload(data, at, stop)
        if end - begin > left:
            status = encoding.TOO_DEEP
        else:
            left -= end - begin
            if (is_short or kind == encoding.KIND_STRING) and not is_text(data, i64(begin), i64(end)):
                status = encoding.MALFORMED
    elif kind >= encoding.DECIMAL4 and kind <= encoding.DECIMAL16:
        status, _negative, _high, _low, _scale = raw_number(data, at)
    elif kind == encoding.KIND_TIME:
        time = signed(data, begin, i64(8))
        if time < 0 or time >= encoding.DAY:
            status = encoding.MALFORMED
    return status, left


def fields(data, at, stop, metadata, first, last, mark, letters):
    """Return whether the names of an object are in its metadata and ascend, and how much text is left."""
    count, width, ids, _, _, _, _ = frame(data, at, stop)
    size, name_width, offsets, names, end = dictionary(metadata, first, last)
    status = encoding.OK
    if max(count, size) == encoding.BROKEN:
        status = encoding.MALFORMED
        count = u64(0)
    left = letters
    before = u64(0)
    k = u64(0)
    while k < count and status == encoding.OK:
        number = little(data, ids + k * width, width)
        if number >= size:
            status = encoding.MALFORMED
        elif k > 0 and mark & ORDERED != 0:
            if number <= before:
                status = encoding.MALFORMED
        elif k > 0:
            begin, until = name_at(metadata, before, name_width, offsets, names, end)
            other, other_until = name_at(metadata, number, name_width, offsets, names, end)
            cost = min(until - begin, other_until - other) + 1
            if cost > left:
                status = encoding.TOO_DEEP
            else:
                left -= cost
                if compared(metadata, begin, until, metadata, other, other_until) >= 0:
                    status = encoding.MALFORMED
        before = number
        k += 1
    return status, left


SIGNATURES = {
    validate_values: tuple(
        f"i64, u8[], u8[], {each}[], {each}[], u8[], i32[], i64[], i64[], u8[], u8[], i64, i64, u64[]!, u8[]!"
        for each in ("i32", "i64")
    ),
}
