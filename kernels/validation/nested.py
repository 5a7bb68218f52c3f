"""Whether offsets, list views and run ends point where they may.

Work item: a block of :data:`~bowstring.kernels.validation.block.ROWS` rows.
"""

from __future__ import annotations

from typing import Any

from bowstring.kernels.types import i64
from bowstring.kernels.validation.block import NO_ROW, block_end, block_start

__all__ = ["SIGNATURES", "check_list_views", "check_offsets", "check_run_ends"]


def check_offsets(i: Any, offsets: Any, rows: Any, limit: Any, bad: Any) -> None:
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


def check_list_views(i: Any, starts: Any, sizes: Any, rows: Any, limit: Any, bad: Any) -> None:
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


def check_run_ends(i: Any, ends: Any, runs: Any, bad: Any) -> None:
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


SIGNATURES = {
    check_offsets: ("i32[], i64, i64, i64[]!", "i64[], i64, i64, i64[]!"),
    check_list_views: ("i32[], i32[], i64, i64, i64[]!", "i64[], i64[], i64, i64, i64[]!"),
    check_run_ends: ("i16[], i64, i64[]!", "i32[], i64, i64[]!", "i64[], i64, i64[]!"),
}
