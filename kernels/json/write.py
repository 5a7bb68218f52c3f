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

KIND = u64(0xFF)
LONGEST_SHORT = u64(64)
WIDE_SIZE = u64(18)


def write_leaf(data: Any, stop: Any, node: Any, head: Any, at: Any, nodes: Any, out: Any) -> None:
    """Write what follows the first byte of a value that is no container, of a text that ends at `stop`."""
    kind = head & KIND
    body = u64(nodes[node + BODY])
    size = u64(nodes[node + SIZE])
    if kind >= PLAIN:
        target = at + 1
        length = size - 1
        if size > LONGEST_SHORT:
            length = size - 5
            put(out, target, length, u64(4))
            target += 4
        if kind == PLAIN:
            copy(data, body, out, target, length)
        else:
            unescape(data, body, stop, out, target, length)
    elif kind >= DECIMAL:
        out[at + 1] = u8(head >> 16 & 0xFF)
        high = 0 - (body >> 63)
        low = body
        if kind == WIDE:
            high, low = wide_digits(data, body, stop)
        if size == WIDE_SIZE:
            put_eight(out, at + 2, low)
            put_eight(out, at + 10, high)
        else:
            put(out, at + 2, low, size - 2)
    elif kind > LITERAL:
        put(out, at + 1, body, size - 1)


def write_container(node: Any, head: Any, at: Any, origin: Any, nodes: Any, children: Any, out: Any) -> None:
    """Write count, ids and offsets of a container, and where each of its children is to be written."""
    header = head >> 8 & 0xFF
    body = u64(nodes[node + BODY])
    count = body & 0xFFFFFFFF
    first = origin + (body >> 32)
    width = (header >> 2 & 3) + 1
    id_width = u64(0)
    large = header >> 4 & 1
    if head & KIND == OBJECT:
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
        child = (origin + (entry & 0xFFFFFFFF)) * NODE
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
    if count > 0:
        nodes[origin * NODE + LINK] = u64(offsets[i])
    k = u64(0)
    while k < count:
        node = (origin + k) * NODE
        head = u64(nodes[node + HEAD])
        at = u64(nodes[node + LINK])
        out[at] = u8(head >> 8 & 0xFF)
        if head & KIND >= ARRAY:
            write_container(node, head, at, origin, nodes, children, out)
        else:
            write_leaf(data, stop, node, head, at, nodes, out)
        k += 1


SIGNATURES = {write_rows: ("u8[], i64[], u64[], u64[], i64[], u64[]!, u64[]!, u8[]!",)}
