"""The flatbuffer of a schema, walked once: what bounds it, and what pyarrow's schema does not show.

Work item: a schema. It is walked as :mod:`bowstring.ipc.flatbuf.schema` walks it, and never accepts more: whatever
is malformed, too deep, too wide or out of the ordinary gets the status :data:`OTHER`, and the form in Python says
what it is.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.ipc.flatbuffer import followed, half_at, vtable_of, word_at
from bowstring.kernels.types import i64, u64
from bowstring.kernels.validation.text import is_text
from bowstring.kernels.words import load_word

DONE: Final = i64(0)
OTHER: Final = i64(1)

STATE: Final = i64(7)
"""Numbers that a call returns: status, byte order, dictionaries, fields, if all are plain, levels, and bytes."""
FRAME: Final = i64(4)
"""Numbers of room for each level."""

# Members of the union Type, and sets of them as bits.
TIMESTAMP = i64(10)
UNION = i64(14)
LAST_TYPE = i64(26)
WITH_MORE = i64(1 << 10 | 1 << 14 | 1 << 15 | 1 << 16)
"""Timestamp, Union, FixedSizeBinary, FixedSizeList: their tables hold text, a vector, or a size."""
NESTED = i64(sum(1 << kind for kind in (12, 13, 14, 16, 17, 21, 22, 25, 26)))
BEYOND = i64(63)

# Places in a vtable.
ENDIANNESS = i64(0)
FIELDS = i64(1)
SCHEMA_METADATA = i64(2)
NAME = i64(0)
TYPE_ID = i64(2)
TYPE = i64(3)
DICTIONARY = i64(4)
CHILDREN = i64(5)
FIELD_METADATA = i64(6)
SIZE = i64(0)
MORE = i64(1)

BEGIN = u64(0)


def vtable_at(data: Any, table: Any) -> Any:
    """Return where the vtable of a table is; -1 where either is out of bounds or misaligned."""
    vtable, nbytes = vtable_of(data, BEGIN, i64(len(data)), table)
    if nbytes == 0:
        vtable = i64(-1)
    return vtable


def slot_of(data: Any, vtable: Any, index: Any) -> Any:
    """Return where in its table a field is, 0 where it is absent."""
    slot = i64(0)
    if 4 + 2 * index + 2 <= i64(half_at(data, u64(vtable))):
        slot = i64(half_at(data, u64(vtable + 4 + 2 * index)))
    return slot


def vector_at(data: Any, at: Any, width: Any) -> Any:
    """Return the first element and the count of the vector referred to at a place: -1 where it is malformed."""
    start = followed(data, BEGIN, i64(len(data)), at)
    count = i64(-1)
    if start >= 0 and start & 3 == 0 and start + 4 <= i64(len(data)):
        count = i64(word_at(data, u64(start)))
        start += 4
        if start + count * width > i64(len(data)):
            count = i64(-1)
    return start, count


def string_at(data: Any, at: Any) -> Any:
    """Return the first byte and the length of the string referred to at a place: -1 where it is malformed."""
    start, count = vector_at(data, at, i64(1))
    if count >= 0 and (start + count >= i64(len(data)) or data[u64(start + count)] != 0):
        count = i64(-1)
    return start, count


def text_nbytes(data: Any, at: Any) -> Any:
    """Return the length of a string of UTF-8: -1 where it is malformed."""
    start, count = string_at(data, at)
    if count >= 0 and not is_text(data, start, start + count):
        count = i64(-1)
    return count


def metadata_nbytes(data: Any, at: Any) -> Any:
    """Return how many bytes of vectors and strings a vector of pairs refers to: -1 where it is malformed."""
    size = i64(len(data))
    start, count = vector_at(data, at, i64(4))
    total = 4 * count
    while count > 0 and total >= 0:
        pair = followed(data, BEGIN, size, start)
        start += 4
        count -= 1
        vtable = i64(-1)
        if pair >= 0:
            vtable = vtable_at(data, pair)
        for index in range(2):
            slot = i64(0)
            if vtable >= 0:
                slot = slot_of(data, vtable, i64(index))
            nbytes = i64(-1)
            if slot > 0:
                _, nbytes = string_at(data, pair + slot)
            if nbytes < 0 or total > 32 * size:
                total = i64(-1)
            elif total >= 0:
                total += nbytes
    if count < 0:
        total = i64(-1)
    return total


def type_nbytes(data: Any, kind: Any, at: Any) -> Any:
    """Return how many bytes the table of a type refers to: -1 where it is malformed, or has a negative size."""
    total = i64(0)
    if (WITH_MORE >> kind) & 1 != 0:
        table = followed(data, BEGIN, i64(len(data)), at)
        vtable = i64(-1)
        if table >= 0:
            vtable = vtable_at(data, table)
        total = vtable
        if vtable >= 0:
            total = i64(0)
            slot = slot_of(data, vtable, MORE)
            size = slot_of(data, vtable, SIZE)
            if slot > 0 and kind == TIMESTAMP:
                total = text_nbytes(data, table + slot)
            elif slot > 0 and kind == UNION:
                _, count = vector_at(data, table + slot, i64(4))
                total = 4 * count
            elif size > 0 and kind > UNION:
                place = table + size
                if (
                    place & 3 != 0
                    or place + 4 > i64(len(data))
                    or i64(word_at(data, u64(place))) >= i64(2**31)
                ):
                    total = i64(-1)
    return total


def dictionary_at(data: Any, at: Any) -> Any:
    """Return the id in the encoding that is referred to at a place, and whether it is well-formed."""
    table = followed(data, BEGIN, i64(len(data)), at)
    vtable = i64(-1)
    if table >= 0:
        vtable = vtable_at(data, table)
    is_right = vtable >= 0
    number = i64(0)
    if is_right:
        slot = slot_of(data, vtable, i64(0))
        if slot > 0:
            place = table + slot
            is_right = place & 7 == 0 and place + 8 <= i64(len(data))
            if is_right:
                number = i64(load_word(data, u64(place)))
    return number, is_right


def walk_schema(
    _item: Any, data: Any, table: Any, most_fields: Any, most_depth: Any, room: Any, ids: Any, state: Any
) -> None:
    """Walk the table `table` of a flatbuffer; `ids` gets the dictionary of each field that has one, in pre-order.

    `room` is for the levels that are open: where the references to their fields go on, how many are left, how deep
    they are, and whether pyarrow keeps them.
    """
    size = i64(len(data))
    why = OTHER
    is_plain = True
    order = i64(0)
    level = i64(-1)
    fields = i64(0)
    dictionaries = i64(0)
    # References may share what they point at: without a bound a small flatbuffer could unfold to any size.
    budget = 16 * size + 1024
    levels = i64(1)
    vtable = vtable_at(data, table)
    if vtable >= 0:
        why = DONE
        slot = slot_of(data, vtable, ENDIANNESS)
        if slot > 0:
            place = table + slot
            if place & 1 != 0 or place + 2 > size:
                why = OTHER
            else:
                order = i64(half_at(data, u64(place)))
                if order > 1:
                    why = OTHER
        slot = slot_of(data, vtable, SCHEMA_METADATA)
        if slot > 0:
            nbytes = metadata_nbytes(data, table + slot)
            budget -= nbytes
            if nbytes < 0:
                why = OTHER
        slot = slot_of(data, vtable, FIELDS)
        if slot > 0:
            start, count = vector_at(data, table + slot, i64(4))
            if count < 0 or i64(len(room)) < FRAME:
                why = OTHER
            else:
                budget -= 4 * count
                level = i64(0)
                room[0] = start
                room[1] = count
                room[2] = 2
                room[3] = 1
    while level >= 0 and why == DONE:
        frame = FRAME * level
        if room[frame + 1] <= 0:
            level -= 1
        else:
            at = followed(data, BEGIN, size, room[frame])
            room[frame] += 4
            room[frame + 1] -= 1
            depth = room[frame + 2]
            is_real = room[frame + 3] != 0
            fields += 1
            vtable = i64(-1)
            if at >= 0 and fields <= most_fields:
                vtable = vtable_at(data, at)
            if vtable < 0:
                why = OTHER
            else:
                nbytes = i64(0)
                slot = slot_of(data, vtable, NAME)
                if slot > 0:
                    nbytes = text_nbytes(data, at + slot)
                budget -= nbytes
                kind = i64(0)
                slot = slot_of(data, vtable, TYPE_ID)
                if slot > 0 and at + slot < size:
                    kind = min(i64(data[u64(at + slot)]), BEYOND)
                elif slot > 0:
                    why = OTHER
                slot = slot_of(data, vtable, TYPE)
                if slot > 0:
                    more = type_nbytes(data, kind, at + slot)
                    nbytes = min(nbytes, more)
                    budget -= more
                if kind < 1 or kind > LAST_TYPE or slot == 0:
                    is_plain = False
                slot = slot_of(data, vtable, DICTIONARY)
                if slot > 0:
                    is_plain = False
                    depth += 1
                    if is_real:
                        number, is_right = dictionary_at(data, at + slot)
                        if not is_right or dictionaries >= i64(len(ids)):
                            why = OTHER
                        else:
                            ids[dictionaries] = number
                            dictionaries += 1
                slot = slot_of(data, vtable, FIELD_METADATA)
                if slot > 0:
                    more = metadata_nbytes(data, at + slot)
                    nbytes = min(nbytes, more)
                    budget -= more
                slot = slot_of(data, vtable, CHILDREN)
                levels = max(levels, depth)
                if nbytes < 0 or budget < 0 or depth > most_depth:
                    why = OTHER
                elif slot > 0:
                    start, count = vector_at(data, at + slot, i64(4))
                    level += 1
                    frame = FRAME * level
                    if count < 0 or frame + FRAME > i64(len(room)):
                        why = OTHER
                    else:
                        budget -= 4 * count
                        room[frame] = start
                        room[frame + 1] = count
                        room[frame + 2] = depth + 1
                        room[frame + 3] = i64(is_real and (NESTED >> kind) & 1 != 0)
    if budget < 0:
        why = OTHER
    state[0] = why
    state[1] = order
    state[2] = dictionaries
    state[3] = fields
    state[4] = i64(is_plain)
    state[5] = levels
    state[6] = 16 * size + 1024 - budget


SIGNATURES = {walk_schema: ("u8[], i64, i64, i64, i64[]!, i64[]!, i64[]!",)}
