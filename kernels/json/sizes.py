"""How many bytes each node takes in Variant's encoding, from the last to the first, and objects' fields in order.

Work item: one row. The children of a container are listed from where its body says: the number of each, and in the
upper half, in objects, the id of its key, which is the rank of the key among all.
"""

from __future__ import annotations

from typing import Any

from bowstring.kernels.json.format import ARRAY, BODY, HEAD, LINK, NODE, OBJECT, SIZE, width_of
from bowstring.kernels.types import i64, u64

__all__ = ["SIGNATURES", "measure_rows"]

ZERO = i64(0)
NONE = u64(0)
ONE = u64(1)
TWO = u64(2)
THREE = u64(3)
FOUR = u64(4)
SIX = u64(6)
BYTE = u64(8)
REMAINING = u64(24)
ONE_LESS = u64(1 << 24)
HALF = u64(32)
LOW_HALF = u64(0xFFFFFFFF)
KIND = u64(0xFF)
MOST_SMALL = u64(255)
FEW = u64(24)
OBJECT_HEADER = u64(2)
ARRAY_HEADER = u64(3)


def sort(children: Any, first: Any, count: Any) -> None:
    """Sort words: few of them by insertion, many on a heap, unless they are in order."""
    if count <= FEW:
        for k in range(i64(ONE), i64(count)):
            word = u64(children[first + u64(k)])
            at = first + u64(k)
            while at > first and u64(children[at - ONE]) > word:
                children[at] = children[at - ONE]
                at -= ONE
            children[at] = word
    elif not in_order(children, first, count):
        root = count >> ONE
        while root > NONE:
            root -= ONE
            sift(children, first, root, count)
        end = count - ONE
        while end > NONE:
            top = u64(children[first])
            children[first] = children[first + end]
            children[first + end] = top
            sift(children, first, NONE, end)
            end -= ONE


def in_order(children: Any, first: Any, count: Any) -> Any:
    """Return whether words ascend."""
    k = ONE
    while k < count and u64(children[first + k - ONE]) < u64(children[first + k]):
        k += ONE
    return k >= count


def sift(children: Any, first: Any, root: Any, count: Any) -> None:
    """Move a word down its heap to where none below it is greater."""
    word = u64(children[first + root])
    at = root
    below = at * TWO + ONE
    while below < count:
        if below + ONE < count and u64(children[first + below + ONE]) > u64(children[first + below]):
            below += ONE
        if u64(children[first + below]) <= word:
            break
        children[first + at] = children[first + below]
        at = below
        below = at * TWO + ONE
    children[first + at] = word


def close(nodes: Any, node: Any, children: Any, origin: Any) -> None:
    """Write the size and the header of a container whose children are listed."""
    kind = u64(nodes[node + HEAD]) & KIND
    body = u64(nodes[node + BODY])
    count = body & LOW_HALF
    first = origin + (body >> HALF)
    total = u64(nodes[node + SIZE])
    width = width_of(total)
    large = u64(count > MOST_SMALL)
    size = ONE + (ONE + large * THREE) + (count + ONE) * width + total
    header = ARRAY_HEADER | (width - ONE) << TWO | large << FOUR
    if kind == OBJECT:
        sort(children, first, count)
        id_width = ONE
        if count > NONE:
            id_width = width_of(u64(children[first + count - ONE]) >> HALF)
        size += count * id_width
        header = OBJECT_HEADER | (width - ONE) << TWO | (id_width - ONE) << FOUR | large << SIX
    nodes[node + HEAD] = kind | header << BYTE
    nodes[node + SIZE] = size


def measure_rows(
    i: Any, firsts: Any, counts: Any, bases: Any, ranks: Any, nodes: Any, children: Any, sizes: Any
) -> None:
    """Write how many bytes a row takes, none where it has no nodes; the ranks of its keys begin at its base."""
    origin = u64(firsts[i])
    base = u64(bases[i])
    k = u64(counts[i])
    size = NONE
    while k > NONE:
        k -= ONE
        node = (origin + k) * NODE
        if u64(nodes[node + HEAD]) & KIND >= ARRAY:
            close(nodes, node, children, origin)
        size = u64(nodes[node + SIZE])
        if k > NONE:
            link = u64(nodes[node + LINK])
            parent = (origin + (link >> HALF)) * NODE
            head = u64(nodes[parent + HEAD]) - ONE_LESS
            nodes[parent + HEAD] = head
            nodes[parent + SIZE] += size
            place = origin + (u64(nodes[parent + BODY]) >> HALF) + (head >> REMAINING)
            entry = k
            if head & KIND == OBJECT:
                entry |= u64(ranks[base + (link & LOW_HALF)]) << HALF
            children[place] = entry
    sizes[i] = i64(size)


SIGNATURES = {measure_rows: ("u64[], u64[], u64[], u32[], u64[]!, u64[]!, i64[]!",)}
