"""Whether views of binary and text hold what they say: 16 bytes each, of a value or of where it lies.

Work item: a block of :data:`~bowstring.kernels.validation.text.ROWS` rows.
"""

from __future__ import annotations

from typing import Any

from bowstring.kernels.types import i64, u64
from bowstring.kernels.validation.text import HIGH, NO_ROW, block_end, block_start, faults, is_text_by_blocks
from bowstring.kernels.validity import bit_is_set

__all__ = ["SIGNATURES", "check_views"]

LONGEST_INSIDE = i64(12)


def inner_is_right(low: Any, high: Any, size: Any, text: Any) -> Any:
    """Return whether a value inside a view, 8 bytes and 4 more, ends in zeros, and is UTF-8 if it is text."""
    spare = high
    if size < 8:
        spare |= low >> u64(size << 3)
    elif size > 8:
        spare >>= u64((size - 8) << 3)
    if size >= LONGEST_INSIDE:
        spare = u64(0)
    right = spare == 0
    if text != 0 and (low | high) & HIGH != 0:
        right = right and faults(low, u64(0)) | faults(high, low) == 0
    return right


def starts_with(data: Any, at: Any, prefix: Any) -> Any:
    """Return whether four bytes are those of a prefix."""
    begin = max(at, i64(0))
    found = u64(0)
    for k in range(4):
        found |= u64(data[begin + k]) << u64(k << 3)
    return found == prefix


def check_views(
    i: Any,
    parts: Any,
    validity: Any,
    data: Any,
    firsts: Any,
    sizes: Any,
    rows: Any,
    text: Any,
    broken: Any,
    lead: Any,
    bad: Any,
) -> None:
    """Find the first valid row whose view is wrong, as far as `data` tells.

    `parts` are the views, four numbers each. Variadic buffer ``b`` has ``sizes[b]`` bytes; they begin at
    ``firsts[b]`` in `data`, or lie elsewhere where that is negative, and then only the numbers are looked at.
    `text` says whether values must be UTF-8; `broken` and `lead` then say how much of `data` is, as
    :func:`~bowstring.kernels.validation.text.is_text_by_blocks` takes them.
    """
    row = block_start(i)
    stop = block_end(i, rows, i64(len(parts)) // 4)
    found = NO_ROW
    while row < stop and found == NO_ROW:
        if bit_is_set(validity, row) and not view_is_right(
            parts, row * 4, data, firsts, sizes, text, broken, lead
        ):
            found = row
        row += 1
    bad[i] = found


def view_is_right(
    parts: Any, at: Any, data: Any, firsts: Any, sizes: Any, text: Any, broken: Any, lead: Any
) -> Any:
    """Return whether a view, whose first part is at `at`, holds what it says; see :func:`check_views`."""
    begin = max(at, i64(0))
    size = i64(parts[begin])
    prefix = u64(parts[begin + 1])
    third = u64(parts[begin + 2])
    fourth = u64(parts[begin + 3])
    right = size <= (2**31 - 1)
    if size <= LONGEST_INSIDE:
        right = inner_is_right(prefix | (third << 32), fourth, size, text)
    elif right:
        right = outer_is_right(data, firsts, sizes, i64(third), i64(fourth), size, prefix, text, broken, lead)
    return right


def outer_is_right(
    data: Any,
    firsts: Any,
    sizes: Any,
    buffer: Any,
    offset: Any,
    size: Any,
    prefix: Any,
    text: Any,
    broken: Any,
    lead: Any,
) -> Any:
    """Return whether a value outside its view lies in its buffer, begins with the prefix, and is as it must be."""
    right = offset <= (2**31 - 1) and buffer < min(i64(len(firsts)), i64(len(sizes)))
    if right:
        right = offset + size <= sizes[buffer]
    if right and firsts[buffer] >= 0:
        start = firsts[buffer] + offset
        right = start + size <= i64(len(data)) and starts_with(data, start, prefix)
        if right and text != 0:
            right = is_text_by_blocks(data, broken, lead, start, start + size)
    return right


SIGNATURES = {
    check_views: ("u32[], u8[], u8[], i64[], i64[], i64, i64, i64[], i64, i64[]!",),
}
