"""Nodes as Variant's encoding: each is written where its container says, in the order of the text.

Work item: one row.
"""

from __future__ import annotations

from typing import Any

from bowstring.kernels.json.format import (
    ARRAY,
    BODY,
    DECIMAL,
    HEAD,
    LINK,
    LITERAL,
    NODE,
    OBJECT,
    PLAIN,
    SIZE,
    WIDE,
    put,
    put_eight,
)
from bowstring.kernels.json.numbers import wide_digits
from bowstring.kernels.json.strings import copy, unescape
from bowstring.kernels.types import i64, u8, u64

__all__ = ["SIGNATURES", "write_rows"]

NONE = u64(0)
ONE = u64(1)
TWO = u64(2)
THREE = u64(3)
FOUR = u64(4)
FIVE = u64(5)
SIX = u64(6)
TEN = u64(10)
BYTE = u64(8)
TWO_BYTES = u64(16)
HALF = u64(32)
LOW_HALF = u64(0xFFFFFFFF)
LOW_BYTE = u64(0xFF)
KIND = u64(0xFF)
UNIT = i64(1)
LONGEST_SHORT = u64(64)
SIGN = u64(63)
WIDE_SIZE = u64(18)


def write_leaf(data: Any, stop: Any, node: Any, head: Any, at: Any, nodes: Any, out: Any) -> None:
    """Write what follows the first byte of a value that is no container, of a text that ends at `stop`."""
    kind = head & KIND
    body = u64(nodes[node + BODY])
    size = u64(nodes[node + SIZE])
    if kind >= PLAIN:
        target = at + ONE
        length = size - ONE
        if size > LONGEST_SHORT:
            length = size - FIVE
            put(out, target, length, FOUR)
            target += FOUR
        if kind == PLAIN:
            copy(data, body, out, target, length)
        else:
            unescape(data, body, stop, out, target, length)
    elif kind >= DECIMAL:
        out[at + ONE] = u8(head >> TWO_BYTES & LOW_BYTE)
        high = NONE - (body >> SIGN)
        low = body
        if kind == WIDE:
            high, low = wide_digits(data, body, stop)
        if size == WIDE_SIZE:
            put_eight(out, at + TWO, low)
            put_eight(out, at + TEN, high)
        else:
            put(out, at + TWO, low, size - TWO)
    elif kind > LITERAL:
        put(out, at + ONE, body, size - ONE)


def write_container(node: Any, head: Any, at: Any, origin: Any, nodes: Any, children: Any, out: Any) -> None:
    """Write count, ids and offsets of a container, and where each of its children is to be written."""
    header = head >> BYTE & LOW_BYTE
    body = u64(nodes[node + BODY])
    count = body & LOW_HALF
    first = origin + (body >> HALF)
    width = (header >> TWO & THREE) + ONE
    id_width = NONE
    large = header >> FOUR & ONE
    if head & KIND == OBJECT:
        id_width = (header >> FOUR & THREE) + ONE
        large = header >> SIX & ONE
    put(out, at + ONE, count, ONE + large * THREE)
    ids = at + TWO + large * THREE
    offsets = ids + count * id_width
    values = offsets + (count + ONE) * width
    offset = NONE
    for k in range(i64(count)):
        entry = u64(children[first + u64(k)])
        if id_width > NONE:
            put(out, ids, entry >> HALF, id_width)
            ids += id_width
        put(out, offsets, offset, width)
        offsets += width
        child = (origin + (entry & LOW_HALF)) * NODE
        nodes[child + LINK] = values + offset
        offset += u64(nodes[child + SIZE])
    put(out, offsets, offset, width)


def write_rows(
    i: Any,
    data: Any,
    stops: Any,
    firsts: Any,
    counts: Any,
    offsets: Any,
    nodes: Any,
    children: Any,
    out: Any,
) -> None:
    """Write the value of a row to where its offset says."""
    origin = u64(firsts[i])
    count = u64(counts[i])
    stop = u64(stops[i])
    if count > NONE:
        nodes[origin * NODE + LINK] = u64(offsets[i])
    k = NONE
    while k < count:
        node = (origin + k) * NODE
        head = u64(nodes[node + HEAD])
        at = u64(nodes[node + LINK])
        out[at] = u8(head >> BYTE & LOW_BYTE)
        if head & KIND >= ARRAY:
            write_container(node, head, at, origin, nodes, children, out)
        else:
            write_leaf(data, stop, node, head, at, nodes, out)
        k += ONE


SIGNATURES = {write_rows: ("u8[], i64[], u64[], u64[], i64[], u64[]!, u64[]!, u8[]!",)}
