"""Whether offsets, list views and run ends point where they may.

Work item: a block of :data:`~bowstring.kernels.validation.text.ROWS` rows.
"""

from __future__ import annotations

from bowstring.kernels.types import i64
from bowstring.kernels.validation.text import NO_ROW, block_end, block_start

NOWHERE = i64(-1)


def check_offsets(i, offsets, rows, limit, bad):
    """Find the first row whose end lies before its start, whose start is negative, or whose end passes `limit`.

    `offsets` has one element more than there are rows.
    """
    first = block_start(i)
    count = block_end(i, rows, i64(len(offsets)) - 1) - first
    wrong = i64(0)
    for k in range(count):
        start = i64(offsets[first + k])
        end = i64(offsets[first + k + 1])
        if start < 0 or end < start or end > limit:
            wrong = i64(1)
    found = NO_ROW
    if wrong != 0:
        for k in range(count):
            start = i64(offsets[first + k])
            end = i64(offsets[first + k + 1])
            if found == NO_ROW and (start < 0 or end < start or end > limit):
                found = first + k
    bad[i] = found


def check_list_views(i, starts, sizes, rows, limit, bad):
    """Find the first row that does not lie within the `limit` slots of the child, null rows too."""
    stop = block_end(i, rows, min(i64(len(starts)), i64(len(sizes))))
    found = NO_ROW
    for row in range(block_start(i), stop):
        start = i64(starts[row])
        size = i64(sizes[row])
        # Once the start is within the limit, the difference cannot wrap.
        if found == NO_ROW and (start < 0 or start > limit or size < 0 or size > limit - start):
            found = i64(row)
    bad[i] = found


def check_run_ends(i, ends, runs, bad):
    """Find the first run that does not end behind the run before it."""
    stop = block_end(i, runs, i64(len(ends)))
    found = NO_ROW
    for run in range(block_start(i), stop):
        before = i64(0)
        if run > 0:
            before = i64(ends[run - 1])
        if found == NO_ROW and i64(ends[run]) <= before:
            found = i64(run)
    bad[i] = found


def check_type_ids(i, type_ids, children, rows, bad):
    """Find the first row whose type id no child has.

    `children` gives the position of the child for each of the 256 type ids, read as unsigned, or -1.
    """
    stop = block_end(i, rows, i64(len(type_ids)))
    found = NO_ROW
    for row in range(block_start(i), stop):
        if found == NO_ROW and children[i64(type_ids[row])] < 0:
            found = i64(row)
    bad[i] = found


def check_dense(i, type_ids, starts, children, lengths, rows, firsts, lasts, bad):
    """Find the first row that names no child, or no slot of it, or one before the block's last of that child."""
    # firsts, lasts: the first and last slot of each child in the block, one row of children per block; -1 for none
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


def check_dense_order(i, type_ids, children, firsts, lasts, count, rows, bad):
    """Find the first row of a child that lies before a slot which an earlier block named.

    `firsts` and `lasts` are what :func:`check_dense` wrote for `count` children.
    """
    found = NO_ROW
    last = NOWHERE
    for block in range(i64(len(firsts)) // count):
        at = block * count + i
        if firsts[at] >= 0:
            if firsts[at] < last:
                # Its first row is among those of the block.
                for row in range(block_start(i64(block)), block_end(i64(block), rows, i64(len(type_ids)))):
                    if children[i64(type_ids[row])] == i:
                        found = min(found, i64(row))
            last = lasts[at]
    bad[i] = found


SIGNATURES = {
    check_offsets: ("i32[], i64, i64, i64[]!", "i64[], i64, i64, i64[]!"),
    check_list_views: ("i32[], i32[], i64, i64, i64[]!", "i64[], i64[], i64, i64, i64[]!"),
    check_run_ends: ("i16[], i64, i64[]!", "i32[], i64, i64[]!", "i64[], i64, i64[]!"),
    check_type_ids: ("u8[], i64[], i64, i64[]!",),
    check_dense: ("u8[], i32[], i64[], i64[], i64, i64[]!, i64[]!, i64[]!",),
    check_dense_order: ("u8[], i64[], i64[], i64[], i64, i64, i64[]!",),
}
