"""Programs of Vortex: the tree of a body as words, and the registers of programs that decode its columns.

Work item: of :func:`read_nodes` one body, of :func:`evaluate` one column. Nothing is believed: what lies outside, a
number that does not fit, a comparison with another outcome than the program was made for end both without success.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.ipc import flatbuffer as flat
from bowstring.kernels.ipc.flatbuffer import field_at, followed, vector_at, vtable_of
from bowstring.kernels.types import i64, u64
from bowstring.kernels.words import half_at, load_word, number_at

# `heads` of a tree: 1 if all is right, the nodes, the words, and the children of the root.
HEADS: Final = i64(4)
# The shape of a node: number of its encoding, children and buffers, from these bits on.
CHILDREN: Final = u64(16)
BUFFERS: Final = u64(40)
# A level of a tree that is walked: where its children are, how many, and how many of them were walked.
LEVEL: Final = i64(3)
# A row of `links`: the first row of a column's code, how many there are, and where its registers begin.
LINK: Final = i64(3)
# A row of `code`: stage, operation, register of the result, two registers, and a number.
CODE_ROW: Final = i64(6)
# A row of `tops`: 1 if all is right; bytes that a stage needs for itself, and for results.
TOP: Final = i64(3)

# Registers of each program: rows of the message; bytes that may be allocated; addresses of its faults, of its
# registers, and of the memory of a stage, for itself and for results. The words of its nodes follow.
ROWS: Final = i64(0)
ROOM: Final = i64(1)
FAULTS: Final = i64(2)
OWN: Final = i64(3)
MEMORY: Final = i64(4)
WORDS: Final = i64(6)

ADD: Final = i64(0)
SUBTRACT: Final = i64(1)
MULTIPLY: Final = i64(2)
DIVIDE: Final = i64(3)
AND: Final = i64(4)
SHIFT: Final = i64(5)
COPY: Final = i64(6)
EQUAL: Final = i64(7)
DIFFERENT: Final = i64(8)
LESS: Final = i64(9)
AT_LEAST: Final = i64(10)
ALLOCATE: Final = i64(11)
ALIGN: Final = i64(12)
FIELD: Final = i64(13)
LAST: Final = i64(14)
ELEMENT: Final = i64(15)

ABSENT: Final = i64(-1)
BROKEN: Final = i64(-2)
VARINT: Final = i64(0)
FIXED64: Final = i64(1)
BYTES: Final = i64(2)
FIXED32: Final = i64(5)

BUFFER: Final = i64(8)
ANYWHERE: Final = i64(0)
LINE: Final = i64(63)
HALF: Final = i64(1 << 31)
MOST: Final = i64(1 << 62)
EXPONENT: Final = i64(16)


def vector_of(body, begin, size, table, index, width):
    """Return where the elements of a vector of a table begin, NOWHERE if that is not right, and their number."""
    field = flat.NOWHERE
    vtable, nbytes = vtable_of(body, begin, size, table)
    if nbytes > 0:
        field = field_at(body, begin, size, table, vtable, nbytes, index, flat.REFERENCE)
    return vector_at(body, begin, size, field, width, ANYWHERE)


def place_buffers(body, begin, first, count, end, base, stored):
    """Note address and bytes of the buffers of a body; return whether they lie in it and are as they are."""
    fits = True
    at = i64(0)
    for k in range(count):
        row = begin + u64(first + k * BUFFER)
        nbytes = i64(number_at(body, row + 4))
        # Neither a large alignment nor compression is a matter of programs.
        if i64(body[row + 2]) > EXPONENT or i64(body[row + 3]) != 0:
            fits = False
        at += i64(half_at(body, row))
        stored[u64(2 * k)] = base + at
        stored[u64(2 * k + 1)] = nbytes
        at += nbytes
        if at > end:
            fits = False
    return fits


def read_nodes(i, body, base, most, stored, stack, shapes, words, starts, heads):
    """Write the nodes of a body in their order, and with which node and word each child of the root begins.

    Of each node, `shapes` has a word, and `words` address and bytes of the metadata and of each buffer. `stored` is
    room for two words of each buffer of the body, `stack` for as many levels as may be.
    """
    heads[u64(i)] = 0
    size = i64(len(body)) - 4
    if size < 8:
        return
    length = i64(number_at(body, u64(size)))
    if length > min(size, most) or length < 8:
        return
    end = size - length
    begin = u64(end)
    root = followed(body, begin, length, flat.START)
    vtable, nbytes = vtable_of(body, begin, length, root)
    if nbytes == 0:
        return
    reference = field_at(body, begin, length, root, vtable, nbytes, flat.FIELD0, flat.REFERENCE)
    first, buffers = vector_of(body, begin, length, root, flat.FIELD1, BUFFER)
    if reference <= 0 or first < 0 or 2 * buffers > i64(len(stored)):
        return
    if not place_buffers(body, begin, first, buffers, end, base, stored):
        return
    node = i64(0)
    word = i64(0)
    level = i64(0)
    below = i64(0)
    while reference > 0:
        table = followed(body, begin, length, reference)
        encoding = flat.NOWHERE
        vtable, nbytes = vtable_of(body, begin, length, table)
        hints = flat.NOWHERE
        if nbytes > 0:
            hints = field_at(body, begin, length, table, vtable, nbytes, flat.FIELD4, flat.REFERENCE)
            if hints > 0:
                hints = followed(body, begin, length, hints)
        if hints >= 0:
            field = field_at(body, begin, length, table, vtable, nbytes, flat.FIELD0, flat.SHORT)
            if field == 0:
                encoding = i64(0)
            elif field > 0:
                encoding = i64(half_at(body, begin + u64(field)))
        data, held = vector_of(body, begin, length, table, flat.FIELD1, flat.BYTE)
        children, count = vector_of(body, begin, length, table, flat.FIELD2, flat.REFERENCE)
        own, others = vector_of(body, begin, length, table, flat.FIELD3, flat.SHORT)
        if (
            min(encoding, data) < 0
            or min(children, own) < 0
            or node >= i64(len(shapes))
            or word + 2 + 2 * others > i64(len(words))
            or max(count, others) >> 16 != 0
            or (count > 0 and (level + 1) * LEVEL > i64(len(stack)))
        ):
            return
        if level == 1:
            if 2 * below + 2 > i64(len(starts)):
                return
            starts[u64(2 * below)] = node
            starts[u64(2 * below + 1)] = word
            below += 1
        shapes[u64(node)] = i64(u64(encoding) | u64(count) << CHILDREN | u64(others) << BUFFERS)
        words[u64(word)] = base + end + data
        words[u64(word + 1)] = held
        for at in range(others):
            index = i64(half_at(body, begin + u64(own + 2 * at)))
            if index >= buffers:
                return
            words[u64(word + 2 + 2 * at)] = stored[u64(2 * index)]
            words[u64(word + 3 + 2 * at)] = stored[u64(2 * index + 1)]
        node += 1
        word += 2 + 2 * others
        if count > 0:
            stack[u64(level * LEVEL)] = children
            stack[u64(level * LEVEL + 1)] = count
            stack[u64(level * LEVEL + 2)] = 0
            level += 1
        while level > 0 and stack[u64(level * LEVEL - 1)] == stack[u64(level * LEVEL - 2)]:
            level -= 1
        reference = i64(0)
        if level > 0:
            top = u64(level * LEVEL - 3)
            reference = stack[top] + 4 * stack[top + 2]
            stack[top + 2] = stack[top + 2] + 1
    heads[u64(i + 1)] = node
    heads[u64(i + 2)] = word
    heads[u64(i + 3)] = below
    heads[u64(i)] = 1


def varint_at(body, at, end):
    """Return a number of less than 63 bits, and where it ends: NOWHERE where it is cut off or has more."""
    value = u64(0)
    shift = u64(0)
    place = at
    after = flat.NOWHERE
    while place < end and shift < 63 and after < 0:
        byte = u64(body[u64(place)])
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            after = place
    return i64(value), after


def field_in(body, at, end, wanted):
    """Return wire, value, place and number of a field of a message: that of a number, or for 0 the last of all.

    The wire is ABSENT where there is none, BROKEN where something is wrong; of bytes, the value is how many.
    """
    found = ABSENT
    value = i64(0)
    place = i64(0)
    number = i64(0)
    while at < end and found != BROKEN:
        key, after = varint_at(body, at, end)
        wire = key & 7
        each = i64(0)
        start = after
        if after < 0 or key < 8:
            wire = BROKEN
        elif wire == VARINT:
            each, after = varint_at(body, after, end)
        elif wire == BYTES:
            each, start = varint_at(body, after, end)
            after = flat.NOWHERE
            if start >= 0 and each <= end - start:
                after = start + each
        elif wire == FIXED64 or wire == FIXED32:
            at = after
            each = i64(0)
            after = flat.NOWHERE
            if wire == FIXED32:
                if end - at >= 4:
                    each = i64(number_at(body, u64(at)))
                    after = at + 4
            elif end - at >= 8:
                each = i64(load_word(body, u64(at)))
                if each >= 0:
                    after = at + 8
        else:
            wire = BROKEN
        if after < 0:
            wire = BROKEN
        if key >> 3 == wanted and found != ABSENT:  # of a repeated one, all would count
            wire = BROKEN
        if wire == BROKEN or wanted == 0 or key >> 3 == wanted:
            found = wire
            value = each
            place = start
            number = key >> 3
        at = after
    return found, value, place, number


def computed(operation, left, right):
    """Return the result of an operation on two numbers, and whether it is one that a word can hold."""
    value = i64(0)
    fits = left > -MOST and left < MOST and right > -MOST and right < MOST
    if operation == AND:
        fits = True
        value = left & right
    elif operation == SHIFT:
        fits = right >= 0 and right < 64
        if fits:
            value = left >> right
    elif fits and operation == ADD:
        value = left + right
    elif fits and operation == SUBTRACT:
        value = left - right
    elif fits and operation == MULTIPLY:
        fits = left > -HALF and left < HALF and right > -HALF and right < HALF
        if not fits and right != 0:
            bound = MOST // max(right, -right)
            fits = -bound <= left <= bound
        elif not fits:
            fits = True
        if fits:
            value = left * right
    elif fits and operation == DIVIDE:
        fits = right > 0
        if fits:
            value = left // right
    return value, fits


def evaluate(i, body, base, links, code, stage, tops, registers):
    """Compute the registers of a stage of one column, and how much memory the stage needs."""
    first = links[u64(i * LINK)]
    own = links[u64(i * LINK + 2)]
    top = u64(i * TOP)
    tops[top] = 0
    tops[top + 1] = 0
    tops[top + 2] = 0
    for k in range(links[u64(i * LINK + 1)]):
        row = u64((first + k) * CODE_ROW)
        if code[row] == stage:
            operation = code[row + 1]
            to = u64(own + code[row + 2])
            source = u64(own + code[row + 3])
            left = registers[source]
            right = registers[u64(own + code[row + 4])]
            extra = code[row + 5]
            fits = True
            if operation < COPY:
                value, fits = computed(operation, left, right)
                registers[to] = value
            elif operation == COPY:
                registers[to] = left
            elif operation <= AT_LEAST:
                fits = (
                    (operation == EQUAL and left == right)
                    or (operation == DIFFERENT and left != right)
                    or (operation == LESS and left < right)
                    or (operation == AT_LEAST and left >= right)
                )
            elif operation <= ALIGN:
                # ALLOCATE has the bytes; ALIGN an address and the bytes, which stay where they are if aligned.
                arena = extra & 1
                nbytes = left
                if operation == ALIGN:
                    nbytes = right
                    registers[to + 1] = 0
                fits = nbytes >= 0 and nbytes < MOST
                if operation == ALIGN and left & ((extra >> 8) - 1) == 0:
                    registers[to] = left
                elif fits:
                    used = top + 1 + u64(arena)
                    registers[to] = registers[u64(own + MEMORY + arena)] + tops[used]
                    tops[used] = tops[used] + ((nbytes + LINE) & ~LINE)
                    fits = tops[used] < MOST
                    if operation == ALIGN:
                        registers[to + 1] = nbytes
            else:
                # A message: its address, and behind that its bytes; `extra` has the number and what is expected.
                at = left - base
                end = at + registers[source + 1]
                wanted = extra >> 8
                fits = at >= 0 and at <= end <= i64(len(body))
                if fits and operation == ELEMENT:
                    count = extra & 255
                    value = i64(0)
                    seen = i64(0)
                    while at >= 0 and at < end:
                        each, at = varint_at(body, at, end)
                        if seen == wanted:
                            value = each
                        seen += 1
                    fits = at == end and seen == count
                    registers[to] = value
                elif fits:
                    number = wanted
                    if operation == LAST:
                        wanted = i64(0)
                    wire, value, place, found = field_in(body, at, end, wanted)
                    fits = wire + 1 == extra & 255 and (wire == ABSENT or found == number)
                    registers[to] = value
                    if wire == BYTES:
                        registers[to] = base + place
                        registers[to + 1] = value
            if not fits:
                return
    tops[top] = 1


SIGNATURES = {
    read_nodes: ("u8[], i64, i64, i64[]!, i64[]!, i64[]!, i64[]!, i64[]!, i64[]!",),
    evaluate: ("u8[], i64, i64[], i64[], i64, i64[]!, i64[]!",),
}
