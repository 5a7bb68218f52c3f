"""Whether the slots of a union name one of its children, and a slot of that child.

Work item: a block of :data:`~bowstring.kernels.validation.block.ROWS` rows; for :func:`check_dense_order`, a child.
"""

from __future__ import annotations

from typing import Any

from bowstring.kernels.types import i64
from bowstring.kernels.validation.block import NO_ROW, block_end, block_start

__all__ = ["SIGNATURES", "check_dense", "check_dense_order", "check_type_ids"]

NOWHERE = i64(-1)


def check_type_ids(i: Any, type_ids: Any, children: Any, rows: Any, bad: Any) -> None:
    """Find the first row whose type id no child has.

    `children` gives the position of the child for each of the 256 type ids, read as unsigned, or -1.
    """
    stop = block_end(i, rows, i64(len(type_ids)))
    found = NO_ROW
    for row in range(block_start(i), stop):
        if found == NO_ROW and children[i64(type_ids[row])] < 0:
            found = i64(row)
    bad[i] = found


def check_dense(
    i: Any,
    type_ids: Any,
    starts: Any,
    children: Any,
    lengths: Any,
    rows: Any,
    firsts: Any,
    lasts: Any,
    bad: Any,
) -> None:
    """Find the first row that names no child, or no slot of it, or one before the block's last of that child.

    The first and the last slot of each child that the block names are written to `firsts` and `lasts`, one row
    of children per block, -1 where there is none.
    """
    stop = block_end(i, rows, min(i64(len(type_ids)), i64(len(starts))))
    count = i64(len(lengths))
    for k in range(i * count, i * count + count):
        firsts[k] = NOWHERE
        lasts[k] = NOWHERE
    found = NO_ROW
    for row in range(block_start(i), stop):
        child = i64(children[i64(type_ids[row])])
        start = i64(starts[row])
        if (
            child < 0
            or child >= count
            or start < 0
            or start >= lengths[child]
            or start < lasts[i * count + child]
        ):
            found = min(found, i64(row))
        else:
            if lasts[i * count + child] < 0:
                firsts[i * count + child] = start
            lasts[i * count + child] = start
    bad[i] = found


def first_row_of(type_ids: Any, children: Any, child: Any, block: Any, rows: Any) -> Any:
    """Return the first row of a block that names a child."""
    found = NO_ROW
    for row in range(block_start(block), block_end(block, rows, i64(len(type_ids)))):
        if found == NO_ROW and children[i64(type_ids[row])] == child:
            found = i64(row)
    return found


def check_dense_order(
    i: Any, type_ids: Any, children: Any, firsts: Any, lasts: Any, count: Any, rows: Any, bad: Any
) -> None:
    """Find the first row of a child that lies before a slot which an earlier block named.

    `firsts` and `lasts` are what :func:`check_dense` wrote for `count` children.
    """
    found = NO_ROW
    last = NOWHERE
    for block in range(i64(len(firsts)) // count):
        at = block * count + i
        if firsts[at] >= 0:
            if firsts[at] < last:
                found = min(found, first_row_of(type_ids, children, i, i64(block), rows))
            last = lasts[at]
    bad[i] = found


SIGNATURES = {
    check_type_ids: ("u8[], i64[], i64, i64[]!",),
    check_dense: ("u8[], i32[], i64[], i64[], i64, i64[]!, i64[]!, i64[]!",),
    check_dense_order: ("u8[], i64[], i64[], i64[], i64, i64, i64[]!",),
}
