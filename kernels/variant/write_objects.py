"""Variant values as what ``marshal`` reads, in version 4: lists, dicts and leaves of Python.

Work item: all of it. Rows are written one after another until there is no room; a name is written once for each
call, and named again. Values without such a form are None, and listed: for each there follow the container that
holds it, and its key or index.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.floats import widened
from bowstring.kernels.json.strings import copy
from bowstring.kernels.json.tree import put
from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.variant import encoding
from bowstring.kernels.variant.encoding import dictionary, frame, little, name_at, signed, value_end
from bowstring.kernels.variant.metadata import slot_of
from bowstring.kernels.words import load_word, store_word

LEVEL: Final = u64(3)
"""Words of room for each open container: where it begins, which child is next, and its number."""
NEXT = u64(1)
NUMBER = u64(2)

NAMED: Final = u64(2)
"""Words in `named` for each name of a metadata: the call and the metadata it was written for, and its number."""
ODD: Final = u64(3)
"""Words in `odd` for each value without a form: the number of what holds it, the key or index, and its place."""
BY_KEY = u64(1 << 63)  # the mark of the number of a key

# In `states`: what is read and written.
ROW: Final = u64(0)
"""The row to begin with; then the one behind the last that was written."""
CALL: Final = u64(1)
"""The number of the call, which no two have."""
BYTES: Final = u64(2)
"""How many bytes were written; none, where there is no room for a row."""
ODDS: Final = u64(3)
"""How many values have no form."""
NUMBERS = u64(4)  # objects that may be named again
STATES: Final = u64(5)

REFERRED = u64(0x80)
HEAD = u64(7)  # bytes before the rows: a tuple of two, and a list
LEAF = u64(32)  # more than a number takes, with what follows it
ODD_BYTES = u64(10)
DOUBLE_BYTES = u64(9)
SINGLE_BYTES = u64(5)
LONGEST = u64(1 << 31)  # no leaf that ``marshal`` reads takes as much
DIGIT_BITS = u64(15)
DIGIT = u64((1 << 15) - 1)
HALF = i64(1 << 31)


def put_sized(out, at, code, number):
    """Write a code and a number of four bytes; return where they end."""
    out[at] = u8(code)
    put(out, at + 1, number, u64(4))
    return at + 5


def put_integer(out, at, number):
    """Write an int; return where it ends."""
    end = at
    if number >= -HALF and number < HALF:
        end = put_sized(out, at, u64(ord("i")), u64(number))
    else:
        rest = u64(number) if number >= 0 else ~u64(number) + 1
        end = at + 5
        digits = u64(0)
        while rest != 0:
            put(out, end, rest & DIGIT, u64(2))
            rest = rest >> DIGIT_BITS
            end += 2
            digits += 1
        out[at] = u8(ord("l"))
        put(out, at + 1, digits if number >= 0 else ~digits + 1, u64(4))
    return end


def put_bytes(data, begin, end, code, out, at, limit):
    """Write text or bytes; return where they end, or `at` where there is no room."""
    stop = at
    if end - begin + LEAF < limit - at:
        stop = put_sized(out, at, code, end - begin)
        copy(data, begin, out, stop, end - begin)
        stop += end - begin
    return stop


def put_leaf(data, place, end, out, at, limit):
    """Write a leaf; return where it ends, or `at` where there is no room, and whether it
    has no form.
    """
    header = u64(data[place])
    kind = header >> 2
    # Bytes that are shared may have changed since `end` was found: nothing behind it is read.
    is_double = kind == encoding.KIND_DOUBLE and end - place == DOUBLE_BYTES
    is_single = kind == encoding.KIND_FLOAT and end - place == SINGLE_BYTES
    is_text = kind == encoding.KIND_STRING
    stop = at + 1
    odd = False
    if header & encoding.BASIC == encoding.SHORT:
        stop = put_bytes(data, min(place + 1, end), end, u64(ord("u")), out, at, limit)
    elif kind >= encoding.INT8 and kind <= encoding.INT64:
        stop = put_integer(out, at, signed(data, place + 1, i64(end - place) - 1))
    elif is_double or is_single:
        out[at] = u8(ord("g"))
        word = load_word(data, place + 1) if is_double else widened(little(data, place + 1, u64(4)))
        store_word(out, at + 1, word)
        stop = at + 9
    elif is_text or kind == encoding.KIND_BINARY:
        code = u64(ord("u")) if is_text else u64(ord("s"))
        stop = put_bytes(data, min(place + 5, end), end, code, out, at, limit)
    elif kind == encoding.TRUE:
        out[at] = u8(ord("T"))
    elif kind == encoding.FALSE:
        out[at] = u8(ord("F"))
    else:
        out[at] = u8(ord("N"))
        odd = kind != 0
    return stop, odd


def put_key(id_, group, first, last, metadata, named, out, at, limit, states):
    """Write a name; return where it ends, or `at` where there is no room, its number, and whether it is there."""
    call = u64(states[CALL]) << 32 | u64(group)
    slot = id_ * NAMED
    number = u64(states[NUMBERS])
    end = at
    known = slot + 1 < u64(len(named))
    there = True
    if known and u64(named[slot]) == call:
        number = u64(named[slot + 1])
        end = put_sized(out, at, u64(ord("r")), number)
    else:
        count, width, offsets, names, stop = dictionary(metadata, first, last)
        begin = encoding.BROKEN
        until = encoding.BROKEN
        if count != encoding.BROKEN and id_ < count:
            begin, until = name_at(metadata, id_, width, offsets, names, stop)
        there = begin != encoding.BROKEN
        if there:
            end = put_bytes(metadata, begin, until, u64(ord("u")) | REFERRED, out, at, limit)
            states[NUMBERS] = number + 1
            if known:
                named[slot] = call
                named[slot + 1] = number
    return end, number, there


def write_objects(
    _item,
    statuses,  # of the rows that are right OK; those that are nested too deeply get another
    starts,
    stops,
    data,
    groups,
    group_starts,
    group_stops,
    metadata,
    depth,
    room,
    named,
    odd,
    out,
    states,
):
    """Write a list of rows, and one of two entries for each value in them without a form."""
    row = i64(states[ROW])
    begin = row
    size = u64(len(out))
    at = HEAD
    states[ODDS] = 0
    states[NUMBERS] = 1
    right = True
    while right and size > HEAD + LEAF and row < i64(len(statuses)):
        odds = u64(states[ODDS])
        if LEAF + odds * ODD_BYTES >= size - at:
            break
        end = at
        if statuses[row] == encoding.OK:
            group = i64(groups[row])
            start, stop = slot_of(starts, stops, data, row)
            first, last = slot_of(group_starts, group_stops, metadata, group)
            index = u64(row - begin)
            to = at
            level = u64(0)
            place = start
            holder = u64(0)
            key_or_index = index
            child = u64(0)
            children = u64(0)
            id_width = u64(0)
            ids = u64(0)
            width = u64(1)
            offsets = u64(0)
            values = u64(0)
            nodes = stop - start
            going = True
            fits = True
            right = True
            while going and fits and right:
                listed = u64(states[ODDS])
                limit = u64(len(out)) - listed * ODD_BYTES
                behind = value_end(data, place, stop)
                right = nodes > 0 and behind < encoding.UNKNOWN
                if limit - to <= LEAF or (listed + 1) * ODD > u64(len(odd)):
                    fits = False
                if not (fits and right):
                    break
                nodes -= 1
                if u64(data[place]) & encoding.BASIC < encoding.OBJECT:
                    right = behind - place < LONGEST
                    after, is_odd = put_leaf(data, place, behind, out, to, limit)
                    fits = after != to
                    to = after
                    if is_odd:
                        odd[listed * ODD] = holder
                        odd[listed * ODD + 1] = key_or_index
                        odd[listed * ODD + 2] = place
                        states[ODDS] = listed + 1
                        limit -= ODD_BYTES
                elif i64(level) >= depth:
                    right = False
                else:
                    if level > 0:
                        room[(level - 1) * LEVEL + NEXT] = child
                    holder = u64(states[NUMBERS])
                    states[NUMBERS] = holder + 1
                    room[level * LEVEL] = place
                    room[level * LEVEL + NUMBER] = holder
                    level += 1
                    children, id_width, ids, width, offsets, values, _ = frame(data, place, stop)
                    right = children != encoding.BROKEN
                    child = u64(0)
                    if id_width > 0:
                        out[to] = u8(ord("{") | REFERRED)
                        to += 1
                    else:
                        to = put_sized(out, to, ord("[") | REFERRED, children)
                while right and fits and level > 0 and child >= children:
                    if id_width > 0:
                        out[to] = u8(ord("0"))
                        to += 1
                    level -= 1
                    if level > 0:
                        slot = (level - 1) * LEVEL
                        children, id_width, ids, width, offsets, values, _ = frame(
                            data, u64(room[slot]), stop
                        )
                        right = children != encoding.BROKEN
                        child = u64(room[slot + NEXT])
                        holder = u64(room[slot + NUMBER])
                        fits = limit - to > LEAF
                if level == 0:
                    going = False
                if going and fits and right:
                    key_or_index = child
                    if id_width > 0:
                        id_ = little(data, ids + child * id_width, id_width)
                        after, number, right = put_key(
                            id_, group, first, last, metadata, named, out, to, limit, states
                        )
                        fits = after != to
                        key_or_index = number | BY_KEY
                        to = after
                    place = values + little(data, offsets + child * width, width)
                    child += 1
            end = to if fits and right else at
            if end == at:
                states[ODDS] = odds
                if right:
                    break
                statuses[row] = (
                    encoding.TOO_DEEP  # and names that it wrote are not there: the next call writes them again
                )
        if end == at:
            out[at] = u8(ord("N"))
            end = at + 1
        at = end
        row += 1
    count = u64(row - begin)
    states[ROW] = u64(row)
    states[BYTES] = 0
    if count > 0:
        out[0] = u8(ord(")"))
        out[1] = u8(2)
        out[2] = u8(ord("[") | REFERRED)
        put(out, u64(3), count, u64(4))
        odds = u64(states[ODDS])
        at = put_sized(out, at, u64(ord("[")), odds * 2)
        for k in range(i64(odds)):
            at = put_sized(out, at, u64(ord("r")), u64(odd[u64(k) * ODD]))
            step = u64(odd[u64(k) * ODD + 1])
            at = put_sized(out, at, u64(ord("r")) if step >= BY_KEY else u64(ord("i")), step & ~BY_KEY)
        states[BYTES] = at


SIGNATURES = {
    write_objects: tuple(
        f"u8[]!, {each}[], {each}[], u8[], i32[], i64[], i64[], u8[], i64, "
        "u64[]!, u64[]!, u64[]!, u8[]!, u64[]!"
        for each in ("i32", "i64")
    ),
}
