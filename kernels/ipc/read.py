"""Record batch messages read by the plan of their layout: decoded, checked, and their buffers placed.

Work item: some messages of one stream. Positions in metadata count from its first byte, and each is checked before
it is followed. What is read is checked as it was read: nothing is looked at twice, so memory that changes meanwhile
does no harm.

A message is right (:data:`DONE`), wrong, or of a kind that only the form in Python knows; that form has the same
rules, and names what is wrong (:mod:`bowstring.ipc.body.check`). The first message that is not right ends a call.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.ipc import batch
from bowstring.kernels.ipc import flatbuffer as flat
from bowstring.kernels.ipc.batch import span_at, times
from bowstring.kernels.types import f64, i64, u64
from bowstring.kernels.words import half_at, load_word, number_at

WRONG: Final = i64(3)
"""The message does not fit its layout, its body, or the format."""

# Where messages are.
STREAM: Final = i64(0)
"""One behind the other in region 0, each with its prefix and before its body."""
PACKED: Final = i64(1)
"""Where `places` says, and so are their bodies."""
POINTED: Final = i64(2)
"""Where `places` says; `spans` has the buffers already, which lie anywhere."""
LISTED: Final = i64(3)
"""In region 0, where the blocks of a file in `places` say, from number `start` on; each with its prefix."""

# A row of `places`: address and bytes of the metadata; region of the body, its offset there, and its bytes. Of a
# body of pointers only the last counts: how many these are.
PLACE: Final = i64(5)
# Of a file: where the message is in its region, and the bytes of its metadata with their prefix and of its body.
BLOCK: Final = i64(3)
# A row of `heads`: the rows of the batch, its first row of `spans`, how many it has, where the body begins and
# ends, and the bytes of its buffers as the metadata say.
HEADS: Final = i64(6)
# What `room` begins with: messages that are right, the status of the next one, the codec of the bodies (-1: they
# are not compressed), and the rows of `spans` that the next one needs. Behind it: the heads of all messages, their
# nodes, and their variadic counts.
READ_STATE: Final = i64(4)
# `limits`: of metadata and bodies, of what a body becomes decompressed, up to where its ratio does not matter, and
# of what is decompressed together.
MOST_METADATA: Final = i64(0)
MOST_BODY: Final = i64(1)
MOST_DECOMPRESSED: Final = i64(2)
FLOOR: Final = i64(3)
TOGETHER: Final = i64(4)

STORED: Final = i64(-1)
"""Of a compressed body, the first number of a span is what its prefix claims; this, that no frame follows."""
PREFIX: Final = i64(8)
SLACK: Final = i64(1 << 16)
"""Bytes that a buffer may be longer than twice what its node needs: some writers send all that they allocated."""
MOST_EXACT: Final = i64(1 << 53)

NO_CODEC: Final = i64(-1)
BAD_CODEC: Final = i64(-2)
CONTINUATION = u64(0xFFFFFFFF)
V5: Final = u64(4)
RECORD_BATCH: Final = u64(3)
SMALLEST: Final = i64(8)

PAIR: Final = i64(16)
ALIGNED: Final = i64(7)


def envelope(memory, begin, size, most):
    """Return a status, where the table of a record batch is, and the bytes of the body."""
    why = WRONG
    header = flat.NOWHERE
    body = i64(0)
    root = flat.NOWHERE
    if size >= SMALLEST:
        root = flat.followed(memory, begin, size, flat.START)
    vtable, nbytes = flat.vtable_of(memory, begin, size, root)
    if nbytes > 0:
        version = flat.field_at(memory, begin, size, root, vtable, nbytes, flat.FIELD0, flat.SHORT)
        kind = flat.field_at(memory, begin, size, root, vtable, nbytes, flat.FIELD1, flat.BYTE)
        inner = flat.field_at(memory, begin, size, root, vtable, nbytes, flat.FIELD2, flat.REFERENCE)
        length = flat.field_at(memory, begin, size, root, vtable, nbytes, flat.FIELD3, flat.NUMBER)
        custom = flat.field_at(memory, begin, size, root, vtable, nbytes, flat.FIELD4, flat.REFERENCE)
        if min(version, min(kind, inner)) > 0 and min(length, custom) >= 0:
            header = flat.followed(memory, begin, size, inner)
            if length > 0:
                body = i64(load_word(memory, begin + u64(length)))
            if (
                half_at(memory, begin + u64(version)) != V5
                or u64(memory[begin + u64(kind)]) != RECORD_BATCH
                or custom != 0
            ):
                why = batch.OTHER
            elif header >= 0 and body >= 0 and body <= most:
                why = batch.DONE
    return why, header, body


def codec_at(memory, begin, size, position):
    """Return the number of a codec that a field refers to, BAD_CODEC if that is not one."""
    codec = NO_CODEC
    if position != 0:
        codec = BAD_CODEC
        table = flat.followed(memory, begin, size, position)
        vtable, nbytes = flat.vtable_of(memory, begin, size, table)
        if nbytes > 0:
            which = flat.field_at(memory, begin, size, table, vtable, nbytes, flat.FIELD0, flat.BYTE)
            method = flat.field_at(memory, begin, size, table, vtable, nbytes, flat.FIELD1, flat.BYTE)
            is_known = min(which, method) >= 0
            if is_known and method > 0:
                is_known = u64(memory[begin + u64(method)]) == 0
            if is_known:
                codec = i64(0)
                if which > 0:
                    codec = i64(memory[begin + u64(which)])
                if codec > 1:
                    codec = BAD_CODEC
    return codec


def nodes_in(memory, begin, first, plan, rows, is_pointed, nodes, to):
    """Note length and null count of each node; return a status."""
    why = batch.DONE
    longest = plan[batch.LONGEST]
    for k in range(plan[batch.NODES]):
        if why == batch.DONE:
            row = batch.HEAD + k * batch.NODE_ROW
            length = i64(load_word(memory, begin + u64(first + PAIR * k)))
            nulls = i64(load_word(memory, begin + u64(first + PAIR * k + 8)))
            rule = plan[row + batch.RULE]
            parent = plan[row + batch.PARENT]
            if is_pointed == 0 and rule == batch.ALL_NULL:
                nulls = length
            elif is_pointed == 0 and rule >= batch.NO_NULLS and rule <= batch.RUNS:
                nulls = i64(0)
            if length < 0 or nulls < -1 or nulls > length or (rule >= batch.NO_NULLS and nulls != 0):
                why = WRONG
            elif length > longest or (rule == batch.ALL_NULL and nulls != length):
                why = batch.OTHER
            if parent < 0:
                if length != rows:
                    why = WRONG
            else:
                outer = nodes[to + 2 * parent]
                if plan[row + batch.FACTOR] >= 0:
                    needed = times(outer, plan[row + batch.FACTOR])
                    if needed < 0 and why == batch.DONE:
                        why = batch.OTHER
                    elif length < needed:
                        why = WRONG
                if (
                    plan[batch.HEAD + parent * batch.NODE_ROW + batch.RULE] == batch.RUNS
                    and plan[row + batch.ORDINAL] == 1
                ):
                    ends = nodes[to + 2 * parent + 2]
                    if length < ends or (outer > 0 and ends == 0):
                        why = WRONG
            nodes[to + 2 * k] = length
            nodes[to + 2 * k + 1] = nulls
    return why


def last_offset(memory, address, plan, row, role, bits, nodes, of, slots):
    """Return the last offset of a buffer, 0 where it has none, NOWHERE where offsets or run ends are wrong."""
    last = i64(0)
    if role == batch.OFFSETS:
        start = flat.integer_at(memory, u64(address), bits)
        last = flat.integer_at(memory, u64(address + slots * (bits >> 3)), bits)
        # A child is the node behind.
        if (
            start < 0
            or last < start
            or (
                plan[row + batch.CHILDREN] > 0
                and last > nodes[of + 2 * ((row - batch.HEAD) // batch.NODE_ROW) + 2]
            )
        ):
            last = flat.NOWHERE
    elif role == batch.FIXED and plan[row + batch.PARENT] >= 0 and plan[row + batch.ORDINAL] == 0:
        parent = plan[row + batch.PARENT]
        length = nodes[of + 2 * parent]
        if plan[batch.HEAD + parent * batch.NODE_ROW + batch.RULE] == batch.RUNS and length > 0:
            start = flat.integer_at(memory, u64(address), bits)
            end = flat.integer_at(memory, u64(address + (slots - 1) * (bits >> 3)), bits)
            if start <= 0 or end < start or end < length:
                last = flat.NOWHERE
    return last


def buffers_in(
    memory, begin, first, plan, regions, region, place, body, is_pointed, codec, room, of, counts, spans, to
):
    """Note where each buffer lies; return a status, and the bytes of all, decompressed and as they are."""
    why = batch.DONE
    total = i64(0)
    sent = i64(0)
    at = i64(0)
    seen = i64(0)
    num_nodes = plan[batch.NODES]
    for k in range(num_nodes):
        row = batch.HEAD + k * batch.NODE_ROW
        slots = room[of + 2 * k]
        nulls = room[of + 2 * k + 1]
        last = i64(0)
        own = plan[row + batch.COUNT]
        many = own
        for b in range(own):
            if (
                plan[
                    batch.HEAD
                    + num_nodes * batch.NODE_ROW
                    + (plan[row + batch.FIRST] + b) * batch.BUFFER_ROW
                    + batch.ROLE
                ]
                == batch.VIEWS
            ):
                many = own + room[counts + seen]
                seen += 1
        for b in range(many):
            if why == batch.DONE:
                span = to + batch.SPAN * at
                offset = i64(load_word(memory, begin + u64(first + PAIR * at)))
                nbytes = i64(load_word(memory, begin + u64(first + PAIR * at + 8)))
                sent += nbytes
                claim = region
                becomes = nbytes
                address = i64(0)
                looks = i64(0)
                if is_pointed != 0:
                    if nbytes < 0 or nbytes != spans[span + 2]:
                        why = WRONG
                    elif nbytes > 0:
                        which, address, _, inside = span_at(spans, regions, span // batch.SPAN, memory)
                        looks = regions[2 * which]
                        if not inside:
                            why = batch.OTHER
                else:
                    if nbytes < 0:
                        why = WRONG
                    elif nbytes > 0:
                        if offset < 0 or offset & 7 != 0 or nbytes > body or offset > body - nbytes:
                            why = WRONG
                            nbytes = i64(0)
                    if why == batch.DONE:
                        address = regions[2 * region] + place + offset
                        if nbytes > 0:
                            looks = regions[2 * region]
                        spans[span + 1] = place + offset
                        if codec >= 0:
                            looks = i64(0)
                            claim_at = u64(address)
                            why = batch.DONE
                            claim = i64(0)
                            becomes = i64(0)
                            if nbytes > 0 and nbytes < PREFIX:
                                why = WRONG
                            elif nbytes > 0:
                                claim = i64(load_word(memory, claim_at))
                                becomes = claim
                                if claim == STORED:
                                    becomes = nbytes - PREFIX
                                elif claim < 0:
                                    why = WRONG
                            if becomes > MOST_EXACT - total and why == batch.DONE:
                                why = batch.OTHER
                            else:
                                total += becomes
                if b < own and why == batch.DONE:
                    rule = (
                        batch.HEAD
                        + num_nodes * batch.NODE_ROW
                        + (plan[row + batch.FIRST] + b) * batch.BUFFER_ROW
                    )
                    role = plan[rule + batch.ROLE]
                    bits = plan[rule + batch.BITS]
                    needed = i64(0)
                    if slots > 0:
                        needed = (slots * bits + plan[rule + batch.END_BITS] + 7) >> 3
                    if becomes < needed:
                        if role != batch.VALIDITY or becomes > 0 or nulls > 0:
                            why = WRONG
                    elif codec >= 0 and role != batch.BYTES and becomes - SLACK > 2 * needed:
                        why = WRONG
                    if role == batch.VALIDITY and nulls == 0 and codec < 0:
                        becomes = i64(0)
                    elif looks != 0 and role != batch.BYTES and slots > 0 and why == batch.DONE:
                        last = last_offset(memory, address, plan, row, role, bits, room, of, slots)
                        if last < 0:
                            why = WRONG
                    if role == batch.BYTES and last > becomes and why == batch.DONE:
                        why = WRONG
                if codec >= 0:
                    becomes = nbytes
                if is_pointed == 0:
                    spans[span] = claim
                spans[span + 2] = becomes
                at += 1
    return why, total, sent


def batch_in(
    memory,
    begin,
    size,
    header,
    body,
    plan,
    limits,
    ratio,
    regions,
    region,
    place,
    is_pointed,
    spans,
    to,
    room,
    head,
    of,
    counts,
):
    """Note one batch; return a status, its codec, its rows of spans, and its bytes decompressed.

    Its spans begin with row `to`; `head`, `of` and `counts` are where in `room` its head, nodes and counts are.
    """
    why = WRONG
    codec = NO_CODEC
    total = i64(0)
    sent = i64(0)
    rows = i64(0)
    num_buffers = i64(0)
    views = plan[batch.VARIADIC]
    first_node = i64(0)
    first_buffer = i64(0)
    vtable, nbytes = flat.vtable_of(memory, begin, size, header)
    if nbytes > 0:
        length = flat.field_at(memory, begin, size, header, vtable, nbytes, flat.FIELD0, flat.NUMBER)
        nodes_at = flat.field_at(memory, begin, size, header, vtable, nbytes, flat.FIELD1, flat.REFERENCE)
        buffers_at = flat.field_at(memory, begin, size, header, vtable, nbytes, flat.FIELD2, flat.REFERENCE)
        packing = flat.field_at(memory, begin, size, header, vtable, nbytes, flat.FIELD3, flat.REFERENCE)
        variadic = flat.field_at(memory, begin, size, header, vtable, nbytes, flat.FIELD4, flat.REFERENCE)
        if min(min(length, nodes_at), min(buffers_at, min(packing, variadic))) >= 0:
            if length > 0:
                rows = i64(load_word(memory, begin + u64(length)))
            first_node, num_nodes = flat.vector_at(memory, begin, size, nodes_at, PAIR, ALIGNED)
            first_buffer, num_buffers = flat.vector_at(memory, begin, size, buffers_at, PAIR, ALIGNED)
            first_count, num_counts = flat.vector_at(memory, begin, size, variadic, flat.NUMBER, ALIGNED)
            codec = codec_at(memory, begin, size, packing)
            fits = min(first_node, min(first_buffer, first_count)) >= 0 and codec >= NO_CODEC
            if fits and rows >= 0 and num_nodes == plan[batch.NODES] and num_counts == views:
                left = num_buffers - plan[batch.BUFFERS]
                for v in range(views):
                    count = i64(load_word(memory, begin + u64(first_count + 8 * v)))
                    if count < 0 or count > left:
                        left = i64(-1)
                        count = i64(0)
                    room[counts + v] = count
                    left -= count
                if left == 0:
                    why = batch.DONE
                    if batch.SPAN * (to + num_buffers) > i64(len(spans)):
                        why = batch.GROW
                    elif is_pointed != 0 and num_buffers != body:
                        why = WRONG
                    elif (is_pointed != 0 and codec >= 0) or (codec >= 0 and regions[2 * region] == 0):
                        why = batch.OTHER
    if why == batch.DONE:
        why = nodes_in(memory, begin, first_node, plan, rows, is_pointed, room, of)
        if why == batch.DONE:
            why, total, sent = buffers_in(
                memory,
                begin,
                first_buffer,
                plan,
                regions,
                region,
                place,
                body,
                is_pointed,
                codec,
                room,
                of,
                counts,
                spans,
                batch.SPAN * to,
            )
        if why == batch.DONE and codec >= 0:
            if total > limits[MOST_DECOMPRESSED] or (
                total > limits[FLOOR] and f64(total) > ratio * f64(body)
            ):
                why = WRONG
    if why == batch.DONE:
        room[head] = rows
        room[head + 1] = to
        room[head + 2] = num_buffers
        room[head + 5] = sent
    return why, codec, num_buffers, total


def read_batches(_item, memory, plan, limits, ratio, regions, places, how, start, most, spans, room):
    """Read up to `most` messages, from `start` on where they are a stream or listed; all of one codec.

    `regions` has an address for each region and its bytes; 0 is that of one that must not be looked into.
    `room` has a state, and for each message a head, nodes, and as many counts as the layout has nodes with variadic
    buffers.
    """
    size = i64(len(memory))
    in_stream = how == STREAM
    if how == LISTED:
        in_stream = True
    whole = i64(0)
    if in_stream:
        whole = regions[1]
        if regions[0] <= 0 or whole < 0 or whole > size or regions[0] > size - whole:
            whole = i64(0)
    views = plan[batch.VARIADIC]
    to_nodes = READ_STATE + HEADS * most
    to_counts = to_nodes + 2 * plan[batch.NODES] * most
    position = start
    done = i64(0)
    to = i64(0)
    wanted = i64(0)
    together = i64(0)
    codec = NO_CODEC
    why = batch.DONE
    is_open = most > 0 and to_counts + views * most <= i64(len(room))
    while is_open:
        begin = i64(0)
        nbytes = i64(0)
        region = i64(0)
        place = i64(0)
        there = i64(0)
        row = i64(0)
        why = batch.OTHER
        if in_stream:
            if how == LISTED:
                row = BLOCK * (start + done)
                position = flat.NOWHERE
                if row >= 0 and row <= i64(len(places)) - BLOCK:
                    position = places[row]
            if position >= 0 and position <= whole - 8:
                at = u64(regions[0] + position)
                nbytes = i64(number_at(memory, at + 4))
                begin = regions[0] + position + 8
                place = position + 8 + nbytes
                there = whole - place
                if (
                    number_at(memory, at) == CONTINUATION
                    and nbytes > 0
                    and nbytes <= limits[MOST_METADATA]
                    and there >= 0
                ):
                    why = batch.DONE
        else:
            begin = places[PLACE * done]
            nbytes = places[PLACE * done + 1]
            region = places[PLACE * done + 2]
            place = places[PLACE * done + 3]
            there = places[PLACE * done + 4]
            if begin > 0 and nbytes >= 0 and nbytes <= size and begin <= size - nbytes:
                if nbytes <= limits[MOST_METADATA] and region >= 0 and region < i64(len(regions)) // 2:
                    why = batch.DONE
        body = i64(0)
        header = i64(0)
        if why == batch.DONE:
            why, header, body = envelope(memory, u64(begin), nbytes, limits[MOST_BODY])
        if how == LISTED and why == batch.DONE and (8 + nbytes != places[row + 1] or body != places[row + 2]):
            why = WRONG
        is_pointed = i64(0)
        if how == POINTED:
            is_pointed = i64(1)
            body = there
        elif why == batch.DONE:
            address = regions[2 * region]
            if body > there or (how == PACKED and body != there):
                why = WRONG
            elif place < 0 or regions[2 * region + 1] < body or place > regions[2 * region + 1] - body:
                why = batch.OTHER
            elif address != 0:
                last = size - regions[2 * region + 1]
                if address < 0 or address > last or (address + place) & 7 != 0:
                    why = batch.OTHER
        if why == batch.DONE:
            head = READ_STATE + HEADS * done
            why, used, rows, total = batch_in(
                memory,
                u64(begin),
                nbytes,
                header,
                body,
                plan,
                limits,
                ratio,
                regions,
                region,
                place,
                is_pointed,
                spans,
                to,
                room,
                head,
                to_nodes + 2 * plan[batch.NODES] * done,
                to_counts + views * done,
            )
            if why == batch.GROW:
                wanted = rows
            elif why == batch.DONE:
                if done > 0 and used != codec:
                    is_open = False
                else:
                    position = place + body
                    room[head + 3] = place
                    room[head + 4] = position
                    codec = used
                    done += 1
                    to += rows
                    together += total
        if why != batch.DONE or done == most or together > limits[TOGETHER]:
            is_open = False
    room[0] = done
    room[1] = why
    room[2] = codec
    room[3] = wanted


def check_batches(item, memory, plan, regions, drops, nodes, counts, firsts, spans, state):
    """Check the first and last offsets of batches whose buffers are as long as their nodes need.

    Work item: a batch, whose spans begin with a row that `firsts` has. Where `drops` is not 0, bitmaps of nodes
    without nulls are emptied. `state` gets a status of each.
    """
    why = batch.DONE
    is_there = item < i64(len(firsts))
    num_nodes = i64(0)
    shift = i64(0)
    if is_there:
        num_nodes = plan[batch.NODES]
        shift = firsts[item]
    of = 2 * num_nodes * item
    seen = plan[batch.VARIADIC] * item
    for k in range(num_nodes):
        row = batch.HEAD + k * batch.NODE_ROW
        slots = nodes[of + 2 * k]
        last = i64(0)
        for b in range(plan[row + batch.COUNT]):
            at = plan[row + batch.FIRST] + b + shift
            rule = batch.HEAD + num_nodes * batch.NODE_ROW + (plan[row + batch.FIRST] + b) * batch.BUFFER_ROW
            role = plan[rule + batch.ROLE]
            bits = plan[rule + batch.BITS]
            which, address, nbytes, inside = span_at(spans, regions, at, memory)
            if not inside or (nbytes > 0 and regions[2 * which] == 0):
                why = batch.OTHER
            elif role == batch.VALIDITY:
                if drops != 0 and nodes[of + 2 * k + 1] == 0:
                    spans[batch.SPAN * at + 2] = 0
            elif role == batch.BYTES:
                if last > nbytes:
                    why = WRONG
            elif slots > 0 and slots <= plan[batch.LONGEST]:
                if (slots * bits + plan[rule + batch.END_BITS] + 7) >> 3 > nbytes:
                    why = batch.OTHER
                elif nbytes > 0:
                    last = last_offset(memory, address, plan, row, role, bits, nodes, of, slots)
                    if last < 0:
                        why = WRONG
            elif slots != 0:
                why = batch.OTHER
            if role == batch.VIEWS:
                shift += counts[seen]
                seen += 1
        if plan[row + batch.RULE] == batch.RUNS and slots > 0 and nodes[of + 2 * k + 2] <= 0:
            why = WRONG
    if is_there:
        state[item] = why


SIGNATURES = {
    check_batches: ("u8[], i64[], i64[], i64, i64[], i64[], i64[], i64[]!, i64[]!",),
    read_batches: ("u8[], i64[], i64[], f64, i64[], i64[], i64, i64, i64, i64[]!, i64[]!",),
}
