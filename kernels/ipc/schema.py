"""The flatbuffer of a schema, walked once: what bounds it, and what pyarrow's schema does not show.

Work item: a schema. It is walked as :mod:`bowstring.ipc.flatbuf.schema` walks it, and never accepts more: whatever
is malformed, too deep, too wide or out of the ordinary gets the status :data:`OTHER`, and the form in Python says
what it is.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.ipc import flatbuffer as flat
from bowstring.kernels.ipc.flatbuffer import field_at, followed, vector_at, vtable_of
from bowstring.kernels.types import i64, u64
from bowstring.kernels.validation.text import is_text
from bowstring.kernels.words import half_at, load_word, number_at

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

# Fields of Schema, and of Field.
METADATA = i64(2)
NAME = i64(0)
TYPE_ID = i64(2)
TYPE = i64(3)
DICTIONARY = i64(4)
CHILDREN = i64(5)
FIELD_METADATA = i64(6)

BEGIN = u64(0)


def table_in(data, at):
    """Return the table referred to at a place, its vtable, and the bytes of that: 0 where either is malformed."""
    table = followed(data, BEGIN, i64(len(data)), at)
    vtable, nbytes = vtable_of(data, BEGIN, i64(len(data)), table)
    return table, vtable, nbytes


def field_in(data, table, vtable, nbytes, index, width):
    """Return where a field of a table is: 0 where it is absent, -1 where it is not right."""
    return field_at(data, BEGIN, i64(len(data)), table, vtable, nbytes, index, width)


def vector_in(data, at, width):
    """Return the first element and the count of the vector referred to at a place: -1 where it is malformed."""
    start, count = vector_at(data, BEGIN, i64(len(data)), at, width, flat.START)
    if start < 0:
        count = i64(-1)
    return start, count


def string_nbytes(data, at, must_be_text):
    """Return the length of the string referred to at a place, 0 where it is absent, -1 where it is malformed."""
    start, count = vector_in(data, at, flat.BYTE)
    if at > 0 and count >= 0:
        if start + count >= i64(len(data)) or data[u64(start + count)] != 0:
            count = i64(-1)
        elif must_be_text and not is_text(data, start, start + count):
            count = i64(-1)
    return count


def metadata_nbytes(data, at):
    """Return how many bytes of vectors and strings a vector of pairs refers to: -1 where it is malformed."""
    start, count = vector_in(data, at, flat.REFERENCE)
    total = 4 * count
    while count > 0 and total >= 0:
        pair, vtable, nbytes = table_in(data, start)
        start += 4
        count -= 1
        for index in range(2):
            field = field_in(data, pair, vtable, nbytes, i64(index), flat.REFERENCE)
            length = string_nbytes(data, field, False)
            if field <= 0 or length < 0 or total > 32 * i64(len(data)):
                total = i64(-1)
            elif total >= 0:
                total += length
    return max(total, i64(-1))


def type_nbytes(data, kind, at):
    """Return how many bytes the table of a type refers to: -1 where it is malformed, or has a negative size."""
    total = i64(0)
    if (WITH_MORE >> kind) & 1 != 0:
        table, vtable, nbytes = table_in(data, at)
        size = field_in(data, table, vtable, nbytes, flat.FIELD0, flat.REFERENCE)
        more = field_in(data, table, vtable, nbytes, flat.FIELD1, flat.REFERENCE)
        if nbytes == 0:
            total = i64(-1)
        elif kind == TIMESTAMP:
            total = string_nbytes(data, more, True)
        elif kind == UNION:
            _, count = vector_in(data, more, flat.REFERENCE)
            total = 4 * count
        elif size < 0:
            total = i64(-1)
        elif size > 0 and i64(number_at(data, u64(size))) >= i64(2**31):
            total = i64(-1)
    return total


def dictionary_at(data, at):
    """Return the id in the encoding that is referred to at a place, and whether it is well-formed."""
    table, vtable, nbytes = table_in(data, at)
    place = field_in(data, table, vtable, nbytes, flat.FIELD0, flat.NUMBER)
    number = i64(0)
    if place > 0:
        number = i64(load_word(data, u64(place)))
    return number, nbytes > 0 and place >= 0


def walk_schema(_item, data, table, most_fields, most_depth, room, ids, state):
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
    vtable, nbytes = vtable_of(data, BEGIN, size, table)
    if nbytes > 0:
        why = DONE
        place = field_in(data, table, vtable, nbytes, flat.FIELD0, flat.SHORT)
        if place > 0:
            order = i64(half_at(data, u64(place)))
        pairs = metadata_nbytes(data, field_in(data, table, vtable, nbytes, METADATA, flat.REFERENCE))
        start, count = vector_in(
            data,
            field_in(data, table, vtable, nbytes, flat.FIELD1, flat.REFERENCE),
            flat.REFERENCE,
        )
        if place < 0 or order > 1 or pairs < 0 or count < 0 or i64(len(room)) < FRAME:
            why = OTHER
        else:
            budget -= pairs + 4 * count
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
            at, vtable, nbytes = table_in(data, room[frame])
            room[frame] += 4
            room[frame + 1] -= 1
            depth = room[frame + 2]
            is_real = room[frame + 3] != 0
            fields += 1
            if nbytes == 0 or fields > most_fields:
                why = OTHER
            else:
                name = string_nbytes(data, field_in(data, at, vtable, nbytes, NAME, flat.REFERENCE), True)
                place = field_in(data, at, vtable, nbytes, TYPE_ID, flat.BYTE)
                kind = i64(0)
                if place > 0:
                    kind = min(i64(data[u64(place)]), BEYOND)
                type_at = field_in(data, at, vtable, nbytes, TYPE, flat.REFERENCE)
                more = i64(0)
                if type_at != 0:
                    more = type_nbytes(data, kind, type_at)
                if kind < 1 or kind > LAST_TYPE or type_at == 0:
                    is_plain = False
                encoding = field_in(data, at, vtable, nbytes, DICTIONARY, flat.REFERENCE)
                if encoding != 0:
                    is_plain = False
                    depth += 1
                    if is_real:
                        number, is_right = dictionary_at(data, encoding)
                        if not is_right or dictionaries >= i64(len(ids)):
                            why = OTHER
                        else:
                            ids[dictionaries] = number
                            dictionaries += 1
                pairs = metadata_nbytes(
                    data, field_in(data, at, vtable, nbytes, FIELD_METADATA, flat.REFERENCE)
                )
                below = field_in(data, at, vtable, nbytes, CHILDREN, flat.REFERENCE)
                start, count = vector_in(data, below, flat.REFERENCE)
                budget -= name + more + pairs + 4 * count
                levels = max(levels, depth)
                if (
                    min(min(name, more), min(pairs, count)) < 0
                    or place < 0
                    or budget < 0
                    or depth > most_depth
                ):
                    why = OTHER
                elif count > 0:
                    level += 1
                    frame = FRAME * level
                    if frame + FRAME > i64(len(room)):
                        why = OTHER
                    else:
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
