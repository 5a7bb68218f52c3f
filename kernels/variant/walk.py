"""Where the values lie that paths lead to, and the numbers among them: every row is walked once for all paths.

Most rows are plain from end to end: objects and arrays of fewer than 256 values, under ordered names, with plain
values at the ends of paths. :func:`read_plain` calls nothing that is not small, and so has registers for all it
needs; what is not plain is left to :func:`locate`, which knows all. Work item: a block of rows, of one where there
is a thread for each: a call with so many arguments costs more than a row does.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.prefetch import prefetch, prefetch_page
from bowstring.kernels.types import i8, i16, i32, i64, u8, u64
from bowstring.kernels.validity import bit_is_set
from bowstring.kernels.variant import encoding
from bowstring.kernels.variant.encoding import child_at, compared, dictionary, frame, little, name_at, signed
from bowstring.kernels.variant.metadata import ABSENT, FAULTY, ORDERED, row_state, slot_of
from bowstring.kernels.words import EACH, HIGH, load_word

ROOT: Final = i64(0)
"""The step of nodes that are the whole value."""
BY_NAME: Final = i64(1)
"""The step to fields."""
BY_INDEX: Final = i64(2)
"""The step to elements."""

PLACE: Final = u8(0)
"""What a node without a number writes; others write numbers of 1, 2, 4 or 8 bytes."""
ONE_WIDE = u8(1)
TWO_WIDE: Final = u8(2)
FOUR_WIDE: Final = u8(4)

# What a header means to a node: in the upper byte how long the value is, 0 where more must be looked at, and in the
# lower how it is read. Less than 64: how far the eight bytes behind the header are shifted, so that those of the
# number remain. From 64 on: a status, and with 32 the number 1; or, last, that a cast must decide.
WHOLE: Final = u64(64)
LATER: Final = u64(127)

LOCATED: Final = u8(255)
"""The status of a number that only a cast can read: its place is written, as far as it fits."""

LEFT: Final = u8(1)
"""The mark of a row that is not plain."""

SPARE = i64(8)
LONG = i64(192)
MANY = i64(5)
# Bytes are asked for so many rows before they are read.
AHEAD = i64(64)
WIDE = i64(768)
MOST_LINES = i64(16)
ABOUT = u64(12)
NOWHERE = i64(-1)
LOWER = u64(255)
STATUS = u64(31)
# Basic type and the bit for large, and what they are in plain objects and arrays.
OBJECT_BITS = u64(0x43)
ARRAY_BITS = u64(0x13)
# The lowest and the highest bit of each two bytes.
EACH_PAIR = u64(0x0001000100010001)
HIGH_OF_PAIR = u64(0x8000800080008000)
THIRD = i64(3)


def read_plain(
    i,
    validity,
    value_validity,
    starts,
    stops,
    data,
    classes,
    marks,
    ids,
    families,
    kinds,
    columns,
    meanings,
    block,
    rows,
    stride,
    left,
    places,
    statuses,
    numbers_8,
    numbers_16,
    numbers_32,
    numbers_64,
):
    """Write what :func:`locate` writes, of rows that are plain; mark the others.

    The arguments are those of `locate`. A row that is `left` has been written in part.
    """
    nodes = u64(len(kinds))
    size = i64(len(data))
    # Long rows to come are asked for long before they are read: whole, or what few nodes read of them, where they
    # are longer: they are much as this one, or stretched.
    whole = size <= rows * WIDE
    long = size > rows * LONG
    far = long and (whole or i64(len(kinds)) < MANY)
    for each in range(i * block, min((i + 1) * block, rows)):
        row = u64(each)
        node = u64(0)
        group = i64(classes[row])
        first = NOWHERE
        last = NOWHERE
        if each < i64(len(starts)):
            first = i64(starts[row])
            last = i64(stops[row])
        if not long:
            prefetch_page(data, u64(first) + 4096)
        # Eight bytes behind the row can be read, whatever lies there.
        plain = (
            group >= 0
            and group < i64(len(marks))
            and u64(marks[u64(group)]) == ORDERED
            and first >= 0
            and first < last
            and last <= size - SPARE
            and bit_is_set(validity, each)
            and bit_is_set(value_validity, each)
        )
        stop = u64(last)
        names = u64(max(group, i64(0))) * nodes
        family = u64(0)
        while plain and family < u64(len(families)):
            parent = i64(families[family])
            step = i64(families[family + 1])
            until = u64(families[family + 2])
            family += 3
            at = u64(first)
            if parent >= 0:
                plain = statuses[u64(parent * stride) + row] == encoding.OK
                if plain:
                    at = places[u64(columns[u64(parent)]) + row]
            header = u64(data[at])
            width = ((header >> 2) & 3) + 1
            id_width = u64(0)
            if step == BY_NAME:
                id_width = ((header >> 4) & 3) + 1
                plain = plain and header & OBJECT_BITS == encoding.OBJECT
            else:
                plain = plain and step == BY_INDEX and header & ARRAY_BITS == encoding.ARRAY
            element_ids = at + 2
            if plain and element_ids <= stop:
                count = u64(data[at + 1])
                offsets = element_ids + count * id_width
                values = offsets + (count + 1) * width
                end = u64(0)
                if values <= stop:
                    end = values + little(data, values - width, width)
                plain = values <= stop and end <= stop and count > 0
                if plain and far and parent < 0 and each + AHEAD < i64(len(starts)):
                    begin = u64(starts[u64(each + AHEAD)])
                    length = u64(stops[u64(each + AHEAD)]) - begin
                    if whole:
                        for k in range(min(i64((length + 63) >> 6), MOST_LINES)):
                            prefetch(data, begin + (u64(k) << 6))
                    else:
                        body = begin + (values - at)
                        length -= values - at
                        prefetch(data, begin)
                        prefetch(data, body - width)
                        coming = node
                        while coming < until:
                            position = min(u64(ids[names + coming]), count - 1)
                            place = offsets + position * width
                            share = length * little(data, place, width) // max(end - values, u64(1))
                            prefetch(data, begin + (element_ids - at) + position * id_width)
                            prefetch(data, begin + (place - at))
                            prefetch(data, body + share - ABOUT)
                            prefetch(data, body + share + ABOUT)
                            coming += 1
                while plain and node < until:
                    wanted = u64(ids[names + node])
                    column = u64(columns[node]) + row
                    kind = kinds[node]
                    found = i64(0)
                    status = encoding.OK
                    position = wanted
                    if step == BY_NAME:
                        # As by_id does it: called, that makes reading one field of a row a fifth slower.
                        position = min(wanted, count - 1)
                        seen = little(data, element_ids + position * id_width, id_width)
                        if seen != wanted:
                            # Ids differ, so the distance of two is at least that of their places.
                            low = position - min(position, max(seen, wanted) - wanted)
                            while low < position:
                                middle = (low + position) >> 1
                                if little(data, element_ids + middle * id_width, id_width) < wanted:
                                    low = middle + 1
                                else:
                                    position = middle
                            if little(data, element_ids + low * id_width, id_width) != wanted:
                                # A writer that keeps no order has the field elsewhere: such rows are left.
                                if (
                                    i64(wanted) >= 0
                                    and position_of(data, element_ids, id_width, count, wanted)
                                    != encoding.BROKEN
                                ):
                                    break
                                position = encoding.BROKEN
                    elif i64(wanted) < 0:
                        position = wanted + count  # from the end; far outside where there are not so many
                    if position >= count:
                        status = encoding.MISSING
                    else:
                        where = values + little(data, offsets + position * width, width)
                        if where >= end:
                            break
                        meaning = u64(meanings[(node << 8) | u64(data[where])])
                        if meaning <= LOWER or where + (meaning >> 8) > end:
                            break
                        if kind == PLACE:
                            places[column] = where
                        elif meaning & LOWER < WHOLE:
                            shift = meaning & 63
                            found = i64(load_word(data, where + 1) << shift) >> i64(shift)
                        else:
                            status = u8(meaning & STATUS)
                            found = i64((meaning >> 5) & 1)
                            if meaning & LOWER == LATER:
                                status = LOCATED
                                found = i64(where)
                    if kind == FOUR_WIDE:
                        numbers_32[column] = i32(found)
                    elif kind > FOUR_WIDE:
                        numbers_64[column] = found
                    elif kind == TWO_WIDE:
                        numbers_16[column] = i16(found)
                    elif kind > PLACE:
                        numbers_8[column] = i8(found)
                    if status != encoding.OK:
                        statuses[node * u64(stride) + row] = status
                    node += 1
            plain = node == until
        if node < nodes:
            left[row] = LEFT


def locate(
    i,
    validity,
    value_validity,
    starts,
    stops,
    data,
    classes,  # which metadata each row has
    class_starts,
    class_stops,
    metadata,
    marks,  # as inspect_metadata writes them
    texts,
    ends,
    ids,  # as find_names writes them, for each metadata and node
    families,  # parent (below 0: the row), kind of step, and end of the nodes of each family
    operands,  # which name in texts each node seeks
    kinds,  # what node k writes at columns[k] + row
    columns,
    meanings,  # how each node reads headers
    block,
    rows,
    stride,
    chosen,  # rows; empty for all
    places,
    statuses,  # of node k at k * stride + row, where it is not OK
    numbers_8,
    numbers_16,
    numbers_32,
    numbers_64,
):
    """Write the status of every node of a tree of paths, and its place or its number: a place if the status is
    ``OK``, of a value that ends before its parent does.
    """
    nodes = u64(len(kinds))
    some = i64(len(chosen))
    for item in range(i * block, min((i + 1) * block, some if some > 0 else rows)):
        each = i64(chosen[item]) if some > 0 else item
        row = u64(each)
        state, group, mark, start, stop = row_state(
            each, validity, value_validity, starts, stops, data, classes, marks, FAULTY
        )
        names = u64(max(group, i64(0))) * nodes
        family = u64(0)
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
                if shared == encoding.OK:
                    at = places[u64(columns[u64(parent)]) + row]
            if shared == encoding.VARIANT_NULL and step != ROOT:
                shared = encoding.MISSING
            count = u64(0)
            id_width = u64(0)
            width = u64(1)
            element_ids = at
            offsets = at
            values = at
            end = stop
            if shared == encoding.OK and step != ROOT:
                if u64(data[at]) & encoding.BASIC != u64(step) + 1:
                    shared = encoding.MISSING
                else:
                    count, id_width, element_ids, width, offsets, values, end = frame(data, at, stop)
                    if count == encoding.BROKEN:
                        shared = encoding.MALFORMED
            while node < until:
                status = shared
                where = at
                if status == encoding.OK and step != ROOT:
                    known = i64(ids[names + node])
                    position = u64(known)
                    if step != BY_NAME and known < 0:
                        position += count  # from the end; far outside where there are not so many
                    if step == BY_NAME:
                        position = encoding.BROKEN
                        if known >= 0:
                            if mark & ORDERED != 0:
                                position = by_id(data, element_ids, id_width, count, u64(known))
                            if position == encoding.BROKEN:
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
                        status = encoding.MISSING
                    else:
                        where = values + little(data, offsets + position * width, width)
                        if where >= end:
                            status = encoding.MALFORMED
                found = i64(0)
                kind = kinds[node]
                column = u64(columns[node]) + row
                if status == encoding.OK:
                    meaning = u64(meanings[(node << 8) | u64(data[where])])
                    if meaning <= LOWER or where + (meaning >> 8) > end:
                        status, _size = child_at(data, where, end)
                    meaning = meaning & LOWER
                    if status == encoding.OK and kind == PLACE:
                        places[column] = where
                    elif status == encoding.OK and meaning < WHOLE:
                        found = signed(data, where + 1, 8 - (i64(meaning) >> THIRD))
                    elif status == encoding.OK and meaning == LATER:
                        status = LOCATED
                        found = i64(where)
                    elif status == encoding.OK:
                        status = u8(meaning & STATUS)
                        found = i64((meaning >> 5) & 1)
                if status != LOCATED and (
                    (kind == FOUR_WIDE and i64(i32(found)) != found)
                    or (kind == TWO_WIDE and i64(i16(found)) != found)
                    or (kind == ONE_WIDE and i64(i8(found)) != found)
                ):
                    status = encoding.OVERFLOW
                    found = i64(0)
                if kind == FOUR_WIDE:
                    numbers_32[column] = i32(found)
                elif kind > FOUR_WIDE:
                    numbers_64[column] = found
                elif kind == TWO_WIDE:
                    numbers_16[column] = i16(found)
                elif kind == ONE_WIDE:
                    numbers_8[column] = i8(found)
                if status != encoding.OK:
                    statuses[node * u64(stride) + row] = status
                node += 1


def position_of(data, ids, width, count, wanted):
    """Return where an id stands among others in any order; BROKEN where it does not."""
    found = encoding.BROKEN
    k = u64(0)
    if width <= 2:
        # Eight bytes at a time: those of an id that is the wanted one become zero.
        each = EACH
        high = HIGH
        if width == 2:
            each = EACH_PAIR
            high = HIGH_OF_PAIR
        lanes = 8 // width
        clear = True
        if wanted >> (width << 3) != 0:
            k = count
        while clear and k < count and ids + k * width + 8 <= u64(len(data)):
            word = load_word(data, ids + k * width) ^ (wanted * each)
            zeros = (word - each) & ~word & high
            if count - k < lanes:
                zeros &= (u64(1) << ((count - k) * width << 3)) - 1
            clear = zeros == 0
            if clear:
                k += lanes
    while k < count and found == encoding.BROKEN:
        if little(data, ids + k * width, width) == wanted:
            found = k
        k += 1
    return found


def by_id(data, ids, width, count, wanted):
    """Return where an id stands among ascending ones; BROKEN where it does not."""
    found = encoding.BROKEN
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


def by_name(data, ids, width, count, metadata, start, stop, texts, begin, end):
    """Return where a name stands among those of some ids, in any order; BROKEN where it does not."""
    size, name_width, offsets, names, last_name = dictionary(metadata, start, stop)
    if size == encoding.BROKEN:
        size = u64(0)
    found = encoding.BROKEN
    k = u64(0)
    while k < count and found == encoding.BROKEN:
        number = little(data, ids + k * width, width)
        if number < size:
            first, last = name_at(metadata, number, name_width, offsets, names, last_name)
            same = first != encoding.BROKEN and last - first == end - begin
            if same and compared(metadata, first, last, texts, begin, end) == 0:
                found = k
        k += 1
    return found


_READ_PLAIN = (
    "u8[], u8[], {0}[], {0}[], u8[], i32[], u8[], i64[], i64[], u8[], i64[], u16[], i64, i64, i64, "
    "u8[]!, u64[]!, u8[]!, i8[]!, i16[]!, i32[]!, i64[]!"
)
_LOCATE = (
    "u8[], u8[], {0}[], {0}[], u8[], i32[], i64[], i64[], u8[], u8[], u8[], i64[], i64[], "
    "i64[], i64[], u8[], i64[], u16[], i64, i64, i64, i64[], u64[]!, u8[]!, i8[]!, i16[]!, i32[]!, i64[]!"
)
SIGNATURES = {
    read_plain: (_READ_PLAIN.format("i32"), _READ_PLAIN.format("i64")),
    locate: (_LOCATE.format("i32"), _LOCATE.format("i64")),
}
