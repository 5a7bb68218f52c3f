"""Variants as JSON text: first how long it is, then the text; keys are quoted once for each distinct metadata.

Work item: a block of rows, or one distinct metadata. Nothing recurses, and nothing works longer than a value is
long: the children that it opens, and the bytes that they stand for, are counted down from the value's length,
whatever the offsets share.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import i64, u64
from bowstring.kernels.validity import bit_is_set
from bowstring.kernels.variant import encoding
from bowstring.kernels.variant.encoding import compared, dictionary, frame, little, name_at
from bowstring.kernels.variant.metadata import FAULTY, ORDERED, name_between_quotes, slot_of
from bowstring.kernels.variant.text.leaves import put_leaf
from bowstring.kernels.variant.text.put import copy, put, put_text
from bowstring.kernels.words import same_bytes

WORDS: Final = i64(4)
"""Words of room for each open container, and once for each work item."""
SPARE: Final = i64(8)
"""Bytes behind the quoted names, which are copied eight at a time."""
SHARING: Final = u64(16)
"""How many times its own length a value may have in payloads, where children share their bytes."""
PATIENCE: Final = u64(256)
"""How many names may be compared for each byte of a value, where its keys are in no order."""

# What the words of a container hold: where it begins and must end, which child is next, and its last name so far.
PLACE = i64(0)
STOP = i64(1)
NEXT = i64(2)
HIGHEST = i64(3)
# And those of the work item: comparisons and children that are left.
STEPS = i64(0)
NODES = i64(1)
NO_NAMES = i64(-1)


def quote_names(
    i,
    starts,
    stops,
    data,
    spark,
    bases,  # the ends of metadata i follow ends[bases[i]]
    begins,  # its text goes to [begins[i], limits[i]) of out
    limits,
    counts,  # of names; -1 where the metadata are malformed
    sizes,  # of the text
    ends,
    out,
):
    """Write the names of a metadata as they stand in an object, ``,"name":``, and where each ends."""
    start, stop = slot_of(starts, stops, data, i)
    count, width, offsets, names, end = dictionary(data, start, stop)
    limit = min(u64(limits[i]), u64(len(out)))
    begin = u64(max(i64(begins[i]), i64(0)))
    at = begin
    base = max(i64(bases[i]), i64(0))
    found = NO_NAMES
    if count != encoding.BROKEN:
        found = i64(count)
        k = i64(0)
        while k < found:
            first, last = name_at(data, u64(k), width, offsets, names, end)
            if first != encoding.BROKEN:
                at = put(out, limit, at, u64(ord(",")), u64(1))
                at = put_text(out, limit, at, data, first, last, spark)
            if max(first, at) == encoding.BROKEN:
                found = NO_NAMES
                at = begin
            else:
                at = put(out, limit, at, u64(ord(":")), u64(1))
                # Without room there are no ends either: those would be of the metadata behind a faulty one.
                if at <= limit and base + k + 1 < i64(len(ends)):
                    ends[base + k + 1] = i64(at)
            k += 1
    counts[i] = found
    sizes[i] = i64(at - begin)


def write_text(
    i,
    block,
    validity,
    starts,
    stops,
    data,
    classes,
    marks,  # as inspect_metadata writes them
    bases,  # this and the next three: as quote_names writes them
    counts,
    ends,
    names,
    depth,
    spark,
    begins,  # the text of the block goes to [begins[i], limits[i]) of out
    limits,
    room,  # WORDS words for each work item, and for each of depth levels of it
    statuses,
    sizes,
    out,
):
    """Write the text of a block of rows, one behind the other. Each row gets a status and a size, whether there
    was room for its text or not.
    """
    at = u64(max(i64(begins[i]), i64(0)))
    limit = min(u64(limits[i]), u64(len(out)))
    slot = i * (depth + 1) * WORDS
    for row in range(i * block, min((i + 1) * block, i64(len(statuses)))):
        group = i64(classes[row])
        count = NO_NAMES
        mark = FAULTY
        base = i64(0)
        if group >= 0 and group < i64(len(counts)):
            count = i64(counts[group])
            mark = u64(marks[group])
            base = max(i64(bases[group]), i64(0))
        start, stop = slot_of(starts, stops, data, i64(row))
        status = encoding.MALFORMED
        end = at
        if not bit_is_set(validity, i64(row)):
            status = encoding.SQL_NULL
        elif count >= 0:
            known = min(u64(count), u64(max(i64(len(ends)) - 1 - base, i64(0))))
            end = at
            room[slot + NODES] = stop - start
            letters = (stop - start) * SHARING
            room[slot + STEPS] = (stop - start) * PATIENCE + u64(len(names))
            top = slot
            place = start
            bound = stop
            # The open container: its next child, how many there are, and where its parts are.
            k = u64(0)
            children = u64(0)
            id_width = u64(0)
            ids = u64(0)
            width = u64(0)
            offsets = u64(0)
            status = encoding.OK
            going = True
            while going:
                going = False
                header = u64(0)
                if place < bound:
                    header = u64(data[place])
                if place >= bound:
                    status = encoding.MALFORMED
                elif header & encoding.BASIC < encoding.OBJECT:
                    status, end, letters = put_leaf(out, limit, end, data, place, bound, spark, letters)
                elif top == slot + depth * WORDS:
                    status = encoding.TOO_DEEP
                else:
                    room[top + NEXT] = k
                    top += WORDS
                    room[top + PLACE] = place
                    room[top + STOP] = bound
                    is_object = header & encoding.BASIC == encoding.OBJECT
                    end = put(out, limit, end, u64(ord("{")) if is_object else u64(ord("[")), u64(1))
                    children, id_width, ids, width, offsets, _, bound = frame(data, place, bound)
                    k = u64(0)
                    if children == encoding.BROKEN:
                        status = encoding.MALFORMED
                    elif children > u64(room[slot + NODES]):
                        status = encoding.TOO_DEEP
                    else:
                        room[slot + NODES] = u64(room[slot + NODES]) - children
                while status == encoding.OK and top > slot and not going:
                    if k < children:
                        if id_width == 0:
                            end = put(out, limit, end, u64(ord(",")), min(k, u64(1)))
                        else:
                            # Written out here: a call with so many arguments costs more than a name does.
                            number = little(data, ids + k * id_width, id_width)
                            highest = number
                            if number >= known:
                                status = encoding.MALFORMED
                                number = u64(0)
                            elif k > 0:
                                highest = u64(room[top + HIGHEST])
                                if number > highest and mark & ORDERED != 0:
                                    highest = number
                                else:
                                    status, highest = after(
                                        data,
                                        ids,
                                        id_width,
                                        k,
                                        number,
                                        mark,
                                        base,
                                        known,
                                        ends,
                                        names,
                                        room,
                                        slot,
                                        top,
                                    )
                            room[top + HIGHEST] = highest
                            if status == encoding.OK:
                                name = base + i64(number)
                                # The first has no comma.
                                first = u64(ends[name]) + 1 - min(k, u64(1))
                                end = copy(out, limit, end, names, first, u64(ends[name + 1]))
                        place = offsets + (children + 1) * width + little(data, offsets + k * width, width)
                        k += 1
                        going = status == encoding.OK
                    else:
                        end = put(out, limit, end, u64(ord("]")) if id_width == 0 else u64(ord("}")), u64(1))
                        top -= WORDS
                        if top > slot:
                            k = u64(room[top + NEXT])
                            children, id_width, ids, width, offsets, _, bound = frame(
                                data, u64(room[top + PLACE]), u64(room[top + STOP])
                            )
                            if children == encoding.BROKEN:
                                status = encoding.MALFORMED
        if status != encoding.OK:
            end = at
        statuses[row] = status
        sizes[row] = i64(end - at)
        at = end


def after(data, ids, width, k, number, mark, base, known, ends, names, room, slot, top):
    """Return whether field `k` may stand behind the others, and the last name with it: if its name comes behind
    theirs, or none of them has it; the comparisons for that are bounded.
    """
    status = encoding.OK
    highest = u64(room[top + HIGHEST])
    left = u64(room[slot + STEPS])
    first, last = name_between_quotes(ends, base, number)
    begin, end = name_between_quotes(ends, base, highest)
    searching = number <= highest
    if mark & ORDERED == 0:
        searching = compared(names, begin, end, names, first, last) >= 0
    if not searching:
        highest = number
    j = u64(0)
    while searching and j < k:
        other = little(data, ids + j * width, width)
        cost = u64(1)
        same = other == number
        if not same and mark & ORDERED == 0 and other < known:
            begin, end = name_between_quotes(ends, base, other)
            if end - begin == last - first:
                cost += (last - first) >> 3
                same = same_bytes(names, begin, names, first, last - first)
        if same:
            status = encoding.MALFORMED
        elif cost > left:
            status = encoding.TOO_DEEP
        else:
            left -= cost
        searching = status == encoding.OK
        j += 1
    room[slot + STEPS] = left
    return status, highest


_WRITE_TEXT = (
    "i64, u8[], i64[], i64[], u8[], i32[], u8[], i64[], i64[], i64[], u8[], i64, i64, i64[], i64[], "
    "u64[]!, u8[]!, i64[]!, u8[]!"
)
SIGNATURES = {
    quote_names: ("i64[], i64[], u8[], i64, i64[], i64[], i64[], i64[]!, i64[]!, i64[]!, u8[]!",),
    write_text: (_WRITE_TEXT,),
}
