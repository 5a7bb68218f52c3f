"""Bytes in the other order: what a big-endian writer wrote, for a little-endian reader.

Work item: a block of :data:`BLOCK` bytes; for views and intervals, one slot of 16 bytes.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.types import i64, u64

__all__ = ["BLOCK", "SIGNATURES", "SLOT", "swap_elements", "swap_intervals", "swap_views"]

BLOCK: Final = i64(64)
"""Bytes that one work item of :func:`swap_elements` swaps; a multiple of every width."""
SLOT: Final = i64(16)
"""Bytes of a view and of an interval of months, days and nanoseconds."""

LONGEST_INSIDE = i64(12)


def swap_elements(i: Any, data: Any, last: Any, out: Any) -> None:
    """Write elements with their bytes turned around; `last` is their width, a power of 2, less 1."""
    first = i * BLOCK
    held = min(i64(len(data)), i64(len(out)))
    for at in range(first, min(first + BLOCK, held)):
        # With `last` all ones, this counts down within an element.
        out[at] = data[i64(at) ^ last]


def swap_intervals(i: Any, data: Any, out: Any) -> None:
    """Write an interval: months and days of four bytes each, then nanoseconds of eight."""
    first = i * SLOT
    for at in range(first, first + 8):
        out[at] = data[i64(at) ^ 3]
    for at in range(first + 8, first + SLOT):
        out[at] = data[i64(at) ^ 7]


def swap_views(i: Any, data: Any, out: Any) -> None:
    """Write a view: its size, and buffer and offset where it has them; text and prefix are bytes."""
    first = i * SLOT
    size = u64(0)
    for at in range(first, first + 4):
        out[at] = data[i64(at) ^ 3]
        size = (size << 8) | u64(data[at])
    for at in range(first + 4, first + SLOT):
        out[at] = data[at]
    # A negative size is as wrong before as after.
    if i64(size) > LONGEST_INSIDE and i64(size) <= (2**31 - 1):
        for at in range(first + 8, first + SLOT):
            out[at] = data[i64(at) ^ 3]


SIGNATURES = {
    swap_elements: ("u8[], i64, u8[]!",),
    swap_intervals: ("u8[], u8[]!",),
    swap_views: ("u8[], u8[]!",),
}
