"""Nodes as Variant's encoding: each is written where its container says, in the order of the text.

Work item: one row.
"""

from __future__ import annotations

from bowstring.kernels.json import tree
from bowstring.kernels.json.numbers import wide_digits
from bowstring.kernels.json.strings import copy, unescape
from bowstring.kernels.json.tree import put, width_of
from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.words import store_word

KIND = u64(0xFF)
LONGEST_SHORT = u64(64)
WIDE_SIZE = u64(18)


REMAINING = u64(24)
ONE_LESS = u64(1 << 24)
MOST_SMALL = u64(255)
FEW = u64(24)
OBJECT_HEADER = u64(2)
ARRAY_HEADER = u64(3)


def write_leaf(data, stop, node, head, at, nodes, out):
    """Write what follows the first byte of a value that is no container, of a text that ends at `stop`."""
    kind = head & KIND
    body = u64(nodes[node + tree.BODY])
    size = u64(nodes[node + tree.SIZE])
    if kind >= tree.PLAIN:
        target = at + 1
        length = size - 1
        if size > LONGEST_SHORT:
            length = size - 5
            put(out, target, length, u64(4))
            target += 4
        if kind == tree.PLAIN:
            copy(data, body, out, target, length)
        else:
            unescape(data, body, stop, out, target, length)
    elif kind >= tree.DECIMAL:
        out[at + 1] = u8(head >> 16 & 0xFF)
        high = 0 - (body >> 63)
        low = body
        if kind == tree.WIDE:
            high, low = wide_digits(data, body, stop)
        if size == WIDE_SIZE:
            store_word(out, at + 2, low)
            store_word(out, at + 10, high)
        else:
            put(out, at + 2, low, size - 2)
    elif kind > tree.LITERAL:
        put(out, at + 1, body, size - 1)
    elif size > 1:
        copy(data, body + 1, out, at + 1, size - 1)


def write_container(node, head, at, origin, nodes, children, out):
    """Write count, ids and offsets of a container, and where each of its children is to be written."""
    header = head >> 8 & 0xFF
    body = u64(nodes[node + tree.BODY])
    count = body & 0xFFFFFFFF
    first = origin + (body >> 32)
    width = (header >> 2 & 3) + 1
    id_width = u64(0)
    large = header >> 4 & 1
    if head & KIND == tree.OBJECT:
        id_width = (header >> 4 & 3) + 1
        large = header >> 6 & 1
    put(out, at + 1, count, 1 + large * 3)
    ids = at + 2 + large * 3
    offsets = ids + count * id_width
    values = offsets + (count + 1) * width
    offset = u64(0)
    for k in range(i64(count)):
        entry = u64(children[first + u64(k)])
        if id_width > 0:
            put(out, ids, entry >> 32, id_width)
            ids += id_width
        put(out, offsets, offset, width)
        offsets += width
        child = (origin + (entry & 0xFFFFFFFF)) * tree.NODE
        nodes[child + tree.LINK] = values + offset
        offset += u64(nodes[child + tree.SIZE])
    put(out, offsets, offset, width)


def write_rows(i, data, stops, firsts, counts, offsets, nodes, children, out):
    """Write the value of a row to where its offset says."""
    origin = u64(firsts[i])
    count = u64(counts[i])
    stop = u64(stops[i])
    if count > 0:
        nodes[origin * tree.NODE + tree.LINK] = u64(offsets[i])
    k = u64(0)
    while k < count:
        node = (origin + k) * tree.NODE
        head = u64(nodes[node + tree.HEAD])
        at = u64(nodes[node + tree.LINK])
        if head & tree.DROPPED != 0:
            if head & KIND >= tree.ARRAY:
                held = u64(nodes[node + tree.BODY])
                for j in range(i64(held & 0xFFFFFFFF)):
                    entry = u64(children[origin + (held >> 32) + u64(j)])
                    nodes[(origin + (entry & 0xFFFFFFFF)) * tree.NODE + tree.HEAD] |= tree.DROPPED
        elif head & KIND >= tree.ARRAY:
            out[at] = u8(head >> 8 & 0xFF)
            write_container(node, head, at, origin, nodes, children, out)
        else:
            out[at] = u8(head >> 8 & 0xFF)
            write_leaf(data, stop, node, head, at, nodes, out)
        k += 1


def sort(children, first, count):
    """Sort words: few of them by insertion, many on a heap, unless they are in order."""
    if count <= FEW:
        for k in range(1, i64(count)):
            word = u64(children[first + u64(k)])
            at = first + u64(k)
            while at > first and u64(children[at - 1]) > word:
                children[at] = children[at - 1]
                at -= 1
            children[at] = word
    elif not in_order(children, first, count):
        root = count >> 1
        while root > 0:
            root -= 1
            sift(children, first, root, count)
        end = count - 1
        while end > 0:
            top = u64(children[first])
            children[first] = children[first + end]
            children[first + end] = top
            sift(children, first, u64(0), end)
            end -= 1


def in_order(children, first, count):
    """Return whether words ascend."""
    k = u64(1)
    while k < count and u64(children[first + k - 1]) < u64(children[first + k]):
        k += 1
    return k >= count


def sift(children, first, root, count):
    """Move a word down its heap to where none below it is greater."""
    word = u64(children[first + root])
    at = root
    below = at * 2 + 1
    while below < count:
        if below + 1 < count and u64(children[first + below + 1]) > u64(children[first + below]):
            below += 1
        if u64(children[first + below]) <= word:
            break
        children[first + at] = children[first + below]
        at = below
        below = at * 2 + 1
    children[first + at] = word


def close(nodes, node, children, origin):
    """Write the size and the header of a container whose children are listed."""
    head = u64(nodes[node + tree.HEAD])
    kind = head & KIND
    body = u64(nodes[node + tree.BODY])
    count = body & 0xFFFFFFFF
    first = origin + (body >> 32)
    total = u64(nodes[node + tree.SIZE])
    if kind == tree.OBJECT:
        sort(children, first, count)
        if head & tree.REPEATS != 0:
            kept = u64(0)
            dropped = u64(0)
            for k in range(i64(count)):
                entry = u64(children[first + u64(k)])
                if kept > 0 and (u64(children[first + kept - 1]) ^ entry) >> 32 == 0:
                    kept -= 1
                    before = (origin + (u64(children[first + kept]) & 0xFFFFFFFF)) * tree.NODE
                    nodes[before + tree.HEAD] |= tree.DROPPED
                    dropped += u64(nodes[before + tree.SIZE])
                children[first + kept] = entry
                kept += 1
            count = kept
            total -= dropped
            nodes[node + tree.BODY] = body >> 32 << 32 | count
    width = width_of(total)
    large = u64(count > MOST_SMALL)
    size = 1 + (1 + large * 3) + (count + 1) * width + total
    header = ARRAY_HEADER | (width - 1) << 2 | large << 4
    if kind == tree.OBJECT:
        id_width = u64(1)
        if count > 0:
            id_width = width_of(u64(children[first + count - 1]) >> 32)
        size += count * id_width
        header = OBJECT_HEADER | (width - 1) << 2 | (id_width - 1) << 4 | large << 6
    nodes[node + tree.HEAD] = kind | header << 8
    nodes[node + tree.SIZE] = size


def measure_rows(i, firsts, counts, bases, ranks, nodes, children, sizes):
    """Write how many bytes a row takes, none where it has no nodes; the ranks of its keys begin at its base."""
    origin = u64(firsts[i])
    base = u64(bases[i])
    k = u64(counts[i])
    size = u64(0)
    while k > 0:
        k -= 1
        node = (origin + k) * tree.NODE
        if u64(nodes[node + tree.HEAD]) & KIND >= tree.ARRAY:
            close(nodes, node, children, origin)
        size = u64(nodes[node + tree.SIZE])
        if k > 0:
            link = u64(nodes[node + tree.LINK])
            parent = (origin + (link >> 32)) * tree.NODE
            head = u64(nodes[parent + tree.HEAD]) - ONE_LESS
            nodes[parent + tree.HEAD] = head
            nodes[parent + tree.SIZE] += size
            place = origin + (u64(nodes[parent + tree.BODY]) >> 32) + (head >> REMAINING)
            entry = k
            if head & KIND == tree.OBJECT:
                entry |= u64(ranks[base + (link & 0xFFFFFFFF)]) << 32
            children[place] = entry
    sizes[i] = i64(size)


SIGNATURES = {
    write_rows: ("u8[], i64[], u64[], u64[], i64[], u64[]!, u64[]!, u8[]!",),
    measure_rows: ("u64[], u64[], u64[], u32[], u64[]!, u64[]!, i64[]!",),
}
