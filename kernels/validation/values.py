"""Whether values of a fixed width lie in the range of their type; slots that are null may hold anything.

Work item: a block of :data:`~bowstring.kernels.validation.text.ROWS` rows.
"""

from __future__ import annotations

from typing import Any

from bowstring.kernels.types import i64, u64
from bowstring.kernels.validation.text import NO_ROW, block_end, block_start
from bowstring.kernels.validity import bit_is_set

__all__ = ["SIGNATURES", "check_days", "check_range", "check_range_128", "check_range_256"]

DAY = i64(86_400_000)


def check_range(
    i: Any, values: Any, validity: Any, rows: Any, lowest: Any, mask: Any, count: Any, bad: Any
) -> None:
    """Find the first valid row that is none of the `count` numbers from `lowest` on.

    Numbers are compared as unsigned ones of the width that `mask` has; `lowest` may wrap around there, and so
    one comparison serves for indices, times of day and narrow decimals alike.
    """
    first = block_start(i)
    stop = block_end(i, rows, i64(len(values)))
    wrong = i64(0)
    for k in range(stop - first):
        if (u64(values[first + k]) - lowest) & mask >= count:
            wrong = i64(1)
    found = NO_ROW
    if wrong != 0:
        for k in range(stop - first):
            moved = (u64(values[first + k]) - lowest) & mask
            if found == NO_ROW and moved >= count and bit_is_set(validity, first + k):
                found = first + k
    bad[i] = found


def check_days(i: Any, values: Any, validity: Any, rows: Any, bad: Any) -> None:
    """Find the first valid row whose milliseconds are no whole number of days."""
    stop = block_end(i, rows, i64(len(values)))
    found = NO_ROW
    for row in range(block_start(i), stop):
        if found == NO_ROW and i64(values[row]) % DAY != 0 and bit_is_set(validity, i64(row)):
            found = i64(row)
    bad[i] = found


def is_beyond(words: Any, at: Any, limbs: Any, bounds: Any) -> Any:
    """Return whether a number of several words is none of those that `bounds` names; see `check_range_128`."""
    begin = max(at, i64(0))
    carry = u64(0)
    beyond = i64(0)
    for k in range(limbs):
        moved = u64(words[begin + k]) + u64(bounds[k])
        total = moved + carry
        passed = moved < u64(bounds[k]) or total < moved
        carry = u64(0)
        if passed:
            carry = u64(1)
        if total > u64(bounds[limbs + k]):
            beyond = i64(1)
        elif total < u64(bounds[limbs + k]):
            beyond = i64(0)
    return beyond != 0


def check_range_128(i: Any, words: Any, bounds: Any, validity: Any, rows: Any, bad: Any) -> None:
    """Find the first valid row that is out of range, for numbers of two 64-bit words, the lower first.

    `bounds` holds what to add to a number so that the lowest becomes 0, and then the highest after that.
    """
    bad[i] = first_beyond(i, words, i64(2), bounds, validity, rows)


def check_range_256(i: Any, words: Any, bounds: Any, validity: Any, rows: Any, bad: Any) -> None:
    """Do the same for numbers of four words."""
    bad[i] = first_beyond(i, words, i64(4), bounds, validity, rows)


def first_beyond(i: Any, words: Any, limbs: Any, bounds: Any, validity: Any, rows: Any) -> Any:
    """Return the first valid row of a block that is out of range."""
    row = block_start(i)
    stop = block_end(i, rows, i64(len(words)) // limbs)
    found = NO_ROW
    while row < stop and found == NO_ROW:
        if is_beyond(words, row * limbs, limbs, bounds) and bit_is_set(validity, row):
            found = row
        row += 1
    return found


SIGNATURES = {
    check_range: tuple(
        f"{width}[], u8[], i64, u64, u64, u64, i64[]!" for width in ("u8", "u16", "u32", "u64")
    ),
    check_days: ("i64[], u8[], i64, i64[]!",),
    check_range_128: ("u64[], u64[], u8[], i64, i64[]!",),
    check_range_256: ("u64[], u64[], u8[], i64, i64[]!",),
}
