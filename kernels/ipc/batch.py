"""Record batches by the plan of their layout: written as a message, and taken over from Arrow's C structs.

Work item: a batch. A plan (:mod:`bowstring.columnar.plan`) is a head, a row for each node, and one for each buffer.
Nodes come behind their parents, so that the slots which a node needs are known when it is reached. Whatever a
kernel does not know it leaves to the form in Python, by the status :data:`OTHER`.

`memory` is what all addresses count from. Called with all memory of the process, from 0 on, it bounds nothing:
spans are bounded by their regions, and structs are believed, which share the process with whoever made them.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.ipc.flatbuffer import integer_at
from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.validity import set_bits_of
from bowstring.kernels.words import load_word, number_at, store_number, store_word

# A plan: its head,
NODES: Final = i64(0)
BUFFERS: Final = i64(1)
LONGEST: Final = i64(2)
"""Node lengths up to this cannot overflow when they are turned into bits."""
VARIADIC: Final = i64(3)
"""Nodes with variadic buffers."""
HEAD: Final = i64(4)
# a row for each node,
PARENT: Final = i64(0)
"""The node that it is a child of, -1 for a column."""
ORDINAL: Final = i64(1)
"""Which child of its parent it is, or which column."""
FACTOR: Final = i64(2)
"""Its slots for each slot of its parent, -1 where the offsets of the parent say."""
RULE: Final = i64(3)
FIRST: Final = i64(4)
"""Its first buffer."""
COUNT: Final = i64(5)
"""How many buffers it has."""
CHILDREN: Final = i64(6)
NODE_ROW: Final = i64(7)
# and a row for each buffer.
NODE: Final = i64(0)
BITS: Final = i64(1)
"""Bits for each slot, and beyond the last one."""
END_BITS: Final = i64(2)
ROLE: Final = i64(3)
BUFFER_ROW: Final = i64(4)

# Rules of null counts: that of the metadata, all slots, none whatever the metadata say, the same of runs, and none.
COUNTED: Final = i64(0)
ALL_NULL: Final = i64(1)
NO_NULLS: Final = i64(2)
RUNS: Final = i64(3)
NEVER_NULL: Final = i64(4)
# Roles of buffers.
FIXED: Final = i64(0)
VALIDITY: Final = i64(1)
OFFSETS: Final = i64(2)
BYTES: Final = i64(3)
VIEWS: Final = i64(4)
"""Of a fixed width; variadic buffers are behind them."""

DONE: Final = i64(0)
OTHER: Final = i64(1)
"""Something here is not known, or not right: the form in Python knows, or says what."""
GROW: Final = i64(2)
"""There is too little room for what must be copied."""

ROOM: Final = i64(6)
"""Numbers of room for each node:"""
START: Final = i64(0)
"""the first slot that is needed, as its buffers count,"""
TAKEN: Final = i64(1)
"""how many are,"""
FROM: Final = i64(2)
"""the first of their offsets,"""
TO: Final = i64(3)
"""and the last;"""
BASE: Final = i64(4)
"""which slot of its buffers is its first one,"""
STRUCT_AT: Final = i64(5)
"""and the address of its struct."""
SPAN: Final = i64(3)
STATE: Final = i64(4)

# Words of a struct ArrowArray, and its bytes.
LENGTH_AT = u64(0)
NULLS_AT = u64(8)
OFFSET_AT = u64(16)
BUFFERS_AT = u64(24)
CHILDREN_AT = u64(32)
POINTERS_AT = u64(40)
BELOW_AT = u64(48)
STRUCT = u64(80)
POINTER = u64(8)

MOST_SLOTS = i64(2**31 - 1)
MOST_BITS = i64(2**61)
ALIGNED = i64(63)


def bits_at(memory, bit, count):
    """Return up to 64 bits from one on, the first one lowest; no byte behind the last is touched."""
    first = bit >> 3
    shift = bit & 7
    size = (shift + count + 7) >> 3
    word = u64(0)
    if size >= 8:
        word = load_word(memory, u64(first)) >> u64(shift)
        if size > 8:
            word |= u64(memory[u64(first + 8)]) << u64(64 - shift)
    else:
        for k in range(size):
            word |= u64(memory[u64(first + k)]) << u64(8 * k)
        word = word >> u64(shift)
    if count < 64:
        word &= (u64(1) << u64(count)) - 1
    return word


def set_bits(memory, bit, count):
    """Return how many of some bits are set."""
    total = i64(0)
    at = i64(0)
    while at < count:
        total += set_bits_of(bits_at(memory, bit + at, min(count - at, i64(64))))
        at += 64
    return total


def copy_bits(memory, bit, count, out, to):
    """Copy bits to a whole byte, and zeros behind the last."""
    at = i64(0)
    while at < count:
        taken = min(count - at, i64(64))
        word = bits_at(memory, bit + at, taken)
        size = (taken + 7) >> 3
        if size == 8:
            store_word(out, u64(to), word)
        else:
            for k in range(size):
                out[u64(to + k)] = u8((word >> u64(8 * k)) & 0xFF)
        to += size
        at += 64


def nulls_among(length, before, nulls):
    """Return the null count of so many slots of a node with `before` slots: -1 where it is unknown."""
    found = i64(-1)
    if length == before:
        found = nulls
    elif nulls == before:
        found = length
    elif nulls == 0:
        found = i64(0)
    return found


def times(slots, factor):
    """Return the slots of a child, -1 where they are more than can be."""
    found = slots * factor
    if factor > 0 and slots > MOST_BITS // factor:
        found = i64(-1)
    return found


def span_at(spans, regions, at, memory):
    """Return region, address and bytes of a buffer, none if it is not inside of its region; and whether it is."""
    region = spans[SPAN * at]
    start = spans[SPAN * at + 1]
    nbytes = spans[SPAN * at + 2]
    address = i64(0)
    inside = nbytes == 0
    if nbytes > 0 and region >= 0 and region < i64(len(regions)) // 2:
        whole = regions[2 * region + 1]
        address = regions[2 * region] + start
        inside = start >= 0 and nbytes <= whole and start <= whole - nbytes
        if address < 0 or address > i64(len(memory)) - nbytes:
            inside = False
    if not inside or nbytes == 0:
        nbytes = i64(0)
        region = i64(0)
    return region, address, nbytes, inside


def slots_of(plan, k, rows, whole, nodes, room):
    """Note the slots that some rows need of a node; return whether it has them.

    With `whole`, all slots are needed of what offsets point into.
    """
    row = HEAD + k * NODE_ROW
    before = nodes[2 * k]
    start = i64(0)
    length = rows
    parent = plan[row + PARENT]
    if parent >= 0:
        factor = plan[row + FACTOR]
        if factor >= 0:
            start = times(room[ROOM * parent + START], factor)
            length = times(room[ROOM * parent + TAKEN], factor)
        elif whole != 0:
            length = before
        else:
            start = room[ROOM * parent + FROM]
            length = room[ROOM * parent + TO] - start
    known = length >= 0 and before <= plan[LONGEST] and start >= 0
    if not known or length > before or start > before - length:
        known = False
        length = i64(0)
        start = i64(0)
    room[ROOM * k + START] = start + room[ROOM * k + BASE]
    room[ROOM * k + TAKEN] = length
    return known


def ends_of(memory, plan, k, regions, spans, room):
    """Note the first and the last offset of a node, if it has offsets; return whether they can be right."""
    row = HEAD + k * NODE_ROW
    start = room[ROOM * k + START]
    length = room[ROOM * k + TAKEN]
    first = i64(0)
    last = i64(0)
    known = True
    if length > 0 and plan[row + COUNT] > 1:
        at = plan[row + FIRST] + 1
        ends = HEAD + plan[NODES] * NODE_ROW + at * BUFFER_ROW
        if plan[ends + ROLE] == OFFSETS:
            width = plan[ends + END_BITS] >> 3
            _, address, nbytes, inside = span_at(spans, regions, at, memory)
            known = inside and nbytes >= (start + length + 1) * width
            if known:
                first = integer_at(memory, u64(address + start * width), width << 3)
                last = integer_at(memory, u64(address + (start + length) * width), width << 3)
                known = first >= 0 and last >= first and last <= MOST_BITS >> 3
    if not known:
        first = i64(0)
        last = i64(0)
    room[ROOM * k + FROM] = first
    room[ROOM * k + TO] = last
    return known


def shape_of(memory, struct, plan, row):
    """Return length, null count, offset and pointers of a struct, and whether it is what the plan says."""
    length = i64(0)
    nulls = i64(0)
    offset = i64(0)
    pointers = u64(0)
    is_known = struct != 0
    if is_known:
        end = u64(len(memory))
        longest = plan[LONGEST] >> 2
        length = i64(load_word(memory, struct + LENGTH_AT))
        nulls = i64(load_word(memory, struct + NULLS_AT))
        offset = i64(load_word(memory, struct + OFFSET_AT))
        pointers = load_word(memory, struct + POINTERS_AT)
        buffers = i64(load_word(memory, struct + BUFFERS_AT))
        children = i64(load_word(memory, struct + CHILDREN_AT))
        is_known = buffers == plan[row + COUNT] and children == plan[row + CHILDREN]
        if length < 0 or offset < 0 or max(length, offset) > longest:
            is_known = False
        elif buffers > 0 and (pointers == 0 or pointers > end or end - pointers < POINTER * u64(buffers)):
            is_known = False
    return length, nulls, offset, pointers, is_known


def read_structs(memory, address, plan, rows, room, nodes, spans):
    """Note nodes and buffers of the struct ArrowArray of a batch, whole as they lie there; return a status.

    A buffer that slots need and that is not there gets a negative length.
    """
    num_nodes = plan[NODES]
    end = u64(len(memory))
    longest = plan[LONGEST] >> 2
    why = OTHER
    begins = i64(0)
    children = u64(0)
    columns = i64(0)
    top = u64(address)
    if top > 0 and top <= end and end - top >= STRUCT:
        begins = i64(load_word(memory, top + OFFSET_AT))
        children = load_word(memory, top + BELOW_AT)
        columns = i64(load_word(memory, top + CHILDREN_AT))
        if load_word(memory, top + NULLS_AT) == 0 and i64(load_word(memory, top + LENGTH_AT)) == rows:
            why = DONE
            if columns < 0 or columns > num_nodes or begins < 0 or rows < 0 or max(begins, rows) > longest:
                why = OTHER
    for k in range(num_nodes):
        if why == DONE:
            row = HEAD + k * NODE_ROW
            parent = plan[row + PARENT]
            above = children
            count = columns
            skipped = begins
            if parent >= 0:
                outer = u64(room[ROOM * parent + STRUCT_AT])
                above = load_word(memory, outer + BELOW_AT)
                count = i64(load_word(memory, outer + CHILDREN_AT))
                skipped = i64(0)
            ordinal = plan[row + ORDINAL]
            end = u64(len(memory))
            struct = u64(0)
            if ordinal < count and above > 0 and above <= end and end - above >= POINTER * (u64(ordinal) + 1):
                struct = load_word(memory, above + POINTER * u64(ordinal))
                if struct > end or end - struct < STRUCT:
                    struct = u64(0)
            length, nulls, offset, pointers, is_known = shape_of(memory, struct, plan, row)
            if not is_known or skipped > length:
                why = OTHER
            room[ROOM * k + STRUCT_AT] = i64(struct)
            room[ROOM * k + BASE] = skipped + offset
            nodes[2 * k] = length - skipped
            nodes[2 * k + 1] = nulls_among(length - skipped, length, nulls)
            slots = length + offset
            behind = i64(0)
            for b in range(plan[row + COUNT]):
                at = plan[row + FIRST] + b
                rule = HEAD + num_nodes * NODE_ROW + at * BUFFER_ROW
                role = plan[rule + ROLE]
                bits = plan[rule + BITS]
                if why == DONE:
                    pointer = load_word(memory, pointers + POINTER * u64(b))
                    nbytes = behind
                    if role != BYTES and slots > 0:
                        nbytes = (slots * bits + plan[rule + END_BITS] + 7) >> 3
                    if pointer > 0 and (pointer > end or nbytes > i64(end - pointer)):
                        why = OTHER
                    elif pointer == 0 and nbytes > 0:
                        nbytes = i64(-1)
                        if role == VALIDITY:
                            nbytes = i64(0)
                    elif role == OFFSETS and slots > 0:
                        behind = integer_at(memory, pointer + u64(slots * (bits >> 3)), bits)
                    spans[SPAN * at] = 0
                    spans[SPAN * at + 1] = i64(pointer)
                    spans[SPAN * at + 2] = nbytes
    return why


def write_batch(
    _item, memory, struct, plan, regions, rows, nodes, spans, head, places, most, room, out, pieces, state
):
    """Write a message: its prefix and metadata, and behind them the body if it has no more bytes than `most`.

    The batch is the one at the address of a struct ArrowArray, whose `nodes` and `spans` are noted first, in one
    region, all of the memory. Where that is 0 they are those of the batch. `head` is the message of another batch
    of the schema, without its body; `places` are where in it the length of the body, the rows, the buffers and the
    nodes stand.

    A body that is longer is not copied: `pieces` are its buffers, each 0, its address and its bytes. What must be
    made anew, bits from an odd one on and offsets that do not begin at 0, is in `out`; pieces of that are 1, where
    in there, and their bytes. `state` gets a status, the bytes of the body, where it begins in `out` (-1: it is not
    there), and the bytes that `out` must have.
    """
    num_nodes = plan[NODES]
    num_buffers = plan[BUFFERS]
    size = i64(len(out))
    cursor = i64(len(head))
    why = DONE
    if struct != 0:
        why = read_structs(memory, struct, plan, rows, room, nodes, spans)
    else:
        for k in range(num_nodes):
            room[ROOM * k + BASE] = 0
    if why != DONE:
        num_nodes = i64(0)
        num_buffers = i64(0)
    if size < cursor:
        why = OTHER
        cursor = i64(0)
    for k in range(cursor):
        out[k] = head[k]
    body = i64(0)
    for k in range(num_nodes):
        row = HEAD + k * NODE_ROW
        if not slots_of(plan, k, rows, i64(0), nodes, room):
            why = OTHER
        if not ends_of(memory, plan, k, regions, spans, room):
            why = OTHER
        start = room[ROOM * k + START]
        length = room[ROOM * k + TAKEN]
        nulls = nulls_among(length, nodes[2 * k], nodes[2 * k + 1])
        if plan[row + RULE] == ALL_NULL:
            nulls = length
        elif nulls < 0:
            nulls = i64(0)
            _, address, nbytes, inside = span_at(spans, regions, plan[row + FIRST], memory)
            if not inside or (nbytes > 0 and nbytes < (start + length + 7) >> 3):
                why = OTHER
            elif nbytes > 0:
                nulls = length - set_bits(memory, (address << 3) + start, length)
        if nulls > length or length > MOST_SLOTS:
            why = OTHER
        if why == DONE:
            store_word(out, u64(places[3] + 16 * k), u64(length))
            store_word(out, u64(places[3] + 16 * k + 8), u64(nulls))
        first = room[ROOM * k + FROM]
        last = room[ROOM * k + TO]
        for b in range(plan[row + COUNT]):
            at = plan[row + FIRST] + b
            rule = HEAD + num_nodes * NODE_ROW + at * BUFFER_ROW
            role = plan[rule + ROLE]
            bits = plan[rule + BITS]
            _, address, nbytes, inside = span_at(spans, regions, at, memory)
            needed = i64(0)
            begin = i64(0)
            if role == BYTES:
                needed = last - first
                begin = first << 3
            elif length > 0 and (role != VALIDITY or nulls > 0):
                needed = (length * bits + plan[rule + END_BITS] + 7) >> 3
                begin = start * bits
            if not inside or (needed > 0 and nbytes < needed + (begin >> 3)):
                why = OTHER
            elif begin & 7 != 0 and nbytes < (begin + length * bits + 7) >> 3:
                why = OTHER
            padded = (needed + ALIGNED) & ~ALIGNED
            address += begin >> 3
            is_new = needed > 0 and (begin & 7 != 0 or (role == OFFSETS and first != 0))
            if is_new and why == DONE:
                if cursor + padded > size:
                    why = GROW
                elif role == OFFSETS:
                    count = length + 1
                    if bits == 32:
                        for slot in range(count):
                            store_number(
                                out,
                                u64(cursor + 4 * slot),
                                number_at(memory, u64(address + 4 * slot)) - u64(first),
                            )
                    else:
                        for slot in range(count):
                            store_word(
                                out,
                                u64(cursor + 8 * slot),
                                u64(i64(load_word(memory, u64(address + 8 * slot))) - first),
                            )
                else:
                    copy_bits(memory, (address << 3) + (begin & 7), length, out, cursor)
                address = cursor
            if is_new:
                cursor += padded
            if why == DONE:
                store_word(out, u64(places[2] + 16 * at), u64(body))
                store_word(out, u64(places[2] + 16 * at + 8), u64(needed))
                pieces[SPAN * at] = i64(is_new)
                pieces[SPAN * at + 1] = address
                pieces[SPAN * at + 2] = needed
            body += padded
    begins = i64(-1)
    if body <= most:
        begins = cursor
        cursor += body
    if cursor > size and why == DONE:
        why = GROW
    if why == DONE:
        store_word(out, u64(places[0]), u64(body))
        store_word(out, u64(places[1]), u64(rows))
        if begins >= 0:
            to = begins
            for k in range(num_buffers):
                needed = pieces[SPAN * k + 2]
                source = pieces[SPAN * k + 1]
                if pieces[SPAN * k] != 0:
                    for b in range(needed):
                        out[u64(to + b)] = out[u64(source + b)]
                else:
                    for b in range(needed):
                        out[u64(to + b)] = memory[u64(source + b)]
                to += needed
                padding = -needed & ALIGNED
                for b in range(padding):
                    out[u64(to + b)] = u8(0)
                to += padding
    state[0] = why
    state[1] = body
    state[2] = begins
    state[3] = cursor


def import_batch(_item, memory, address, plan, rows, room, nodes, spans, out, state):
    """Note nodes and buffers of the struct ArrowArray of a batch; each buffer begins with the first row.

    `room` gets the address of the struct of each node. Bits that begin within a byte are copied to `out`. The spans
    are in region 0, which is [low, high), or in `out`, which is region 1; `state` gets a status, low, high, and
    how much of `out` is needed.
    """
    num_nodes = plan[NODES]
    used = i64(0)
    low = i64(2**62)
    high = i64(0)
    why = read_structs(memory, address, plan, rows, room, nodes, spans)
    for k in range(num_nodes):
        if why != OTHER and not slots_of(plan, k, rows, i64(1), nodes, room):
            why = OTHER
        if why != OTHER:
            row = HEAD + k * NODE_ROW
            start = room[ROOM * k + START]
            wanted = room[ROOM * k + TAKEN]
            nulls = nulls_among(wanted, nodes[2 * k], nodes[2 * k + 1])
            if plan[row + RULE] == ALL_NULL:
                nulls = wanted
            for b in range(plan[row + COUNT]):
                at = plan[row + FIRST] + b
                rule = HEAD + num_nodes * NODE_ROW + at * BUFFER_ROW
                role = plan[rule + ROLE]
                pointer = spans[SPAN * at + 1]
                there = spans[SPAN * at + 2]
                needed = i64(0)
                bit = i64(0)
                if wanted > 0 and role == BYTES:
                    needed = there
                elif wanted > 0:
                    needed = (wanted * plan[rule + BITS] + plan[rule + END_BITS] + 7) >> 3
                    bit = start * plan[rule + BITS]
                if role == VALIDITY:
                    if nulls < 0 and needed > 0 and there > 0:
                        nulls = wanted - set_bits(memory, (pointer << 3) + bit, wanted)
                    elif nulls < 0:
                        nulls = i64(0)
                    if nulls == 0:
                        needed = i64(0)
                if needed < 0 or (needed > 0 and there < needed):
                    why = OTHER
                    needed = i64(0)
                spans[SPAN * at + 1] = 0
                spans[SPAN * at + 2] = needed
                if needed > 0 and bit & 7 == 0:
                    begin = pointer + (bit >> 3)
                    spans[SPAN * at + 1] = begin
                    low = min(low, begin)
                    high = max(high, begin + needed)
                elif needed > 0:
                    if used + needed > i64(len(out)):
                        why = GROW
                    else:
                        copy_bits(memory, (pointer << 3) + bit, wanted, out, used)
                    spans[SPAN * at] = 1
                    spans[SPAN * at + 1] = used
                    used += (needed + 7) & ~i64(7)
            nodes[2 * k] = wanted
            nodes[2 * k + 1] = nulls
            if nulls < 0 or nulls > wanted:
                if plan[row + COUNT] > 0:
                    why = OTHER
                nodes[2 * k + 1] = 0
    if why == DONE:
        for k in range(plan[BUFFERS]):
            if spans[SPAN * k] == 0 and spans[SPAN * k + 2] > 0:
                spans[SPAN * k + 1] -= low
    state[0] = why
    state[1] = low
    state[2] = high
    state[3] = used


SIGNATURES = {
    write_batch: (
        "u8[], i64, i64[], i64[], i64, i64[]!, i64[]!, u8[], i64[], i64, i64[]!, u8[]!, i64[]!, i64[]!",
    ),
    import_batch: ("u8[], i64, i64[], i64, i64[]!, i64[]!, i64[]!, u8[]!, i64[]!",),
}
