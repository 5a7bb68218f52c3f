"""Marks: which object a key came in last, in open containers, so that one that comes twice is seen at once.

There is no kernel here. An object that closes gives those around it their marks back.
"""

from __future__ import annotations

from typing import Any

from bowstring.kernels.json.format import BODY, HEAD, NODE, READ, SIZE, TWICE, UNEXPECTED
from bowstring.kernels.json.names import NAME, OWNER
from bowstring.kernels.types import u64

__all__ = ["close", "take_key"]

ABOVE = u64(24)


def take_key(
    key: Any,
    origin: Any,
    parent: Any,
    undone: Any,
    before: Any,
    limit: Any,
    owned: Any,
    nodes: Any,
    children: Any,
    names: Any,
) -> Any:
    """Mark a key as the current object's; return a status, and how many marks must be found again.

    `before` is the last serial number of the row before: what the key was marked with later may be an object around
    this one, which must find its mark again. The lists of children are not made yet, and have room for that.
    """
    owner = u64(names[owned])
    current = u64(nodes[(origin + parent) * NODE + HEAD]) >> ABOVE
    status = READ
    marks = undone
    if owner == current:
        status = TWICE
    elif owner > before:
        if origin + marks < limit:
            children[origin + marks] = key << 32 | owner
            marks += 1
        else:
            status = UNEXPECTED
    names[owned] = current
    return status, marks


def close(
    node: Any,
    inside: Any,
    listed: Any,
    undone: Any,
    origin: Any,
    first: Any,
    nodes: Any,
    children: Any,
    names: Any,
) -> Any:
    """Close a container: say where its children will be listed, and give keys their marks back.

    Return how many are listed now, and how many marks are left.
    """
    count = u64(nodes[node + BODY])
    mark = u64(nodes[node + SIZE])
    left = undone
    while left > mark:
        left -= 1
        entry = u64(children[origin + left])
        names[(first + (entry >> 32)) * NAME + OWNER] = entry & 0xFFFFFFFF
    nodes[node + HEAD] = inside | count << ABOVE
    nodes[node + BODY] = listed << 32 | count
    nodes[node + SIZE] = 0
    return listed + count, left
