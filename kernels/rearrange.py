"""Bytes at another place or in another order: pieces gathered into one target, elements with their bytes reversed.

Work item: of :func:`gather_pieces`, four words of 64 bits of the target. Eight items share a tile of 256 bytes and
take every eighth word of it, so that neighbouring threads of a GPU touch neighbouring words; pieces begin at whole
tiles, so that a tile is of one piece. Of :func:`swap_elements`, which makes what a big-endian writer wrote
little-endian, :data:`BLOCK` bytes; of views and intervals, one slot of 16 bytes.
"""

from __future__ import annotations

from typing import Final

from bowstring.kernels.types import i64, u64

TILE: Final = 256
"""Bytes of a tile; where pieces begin in the target is a multiple of it."""
ITEMS_PER_TILE: Final = 8
"""Work items for each tile."""

TILE_BYTES = i64(TILE)


def gather_pieces(i, source, table, pieces, out):
    """Write four words of the target. What is left of a piece's last tile is zeroed."""
    # table, for all pieces one after the other: the written tile at which each begins, rising from 0; the tile of
    # the target; its byte in `source`; its bytes. No word of `source` without a byte of a piece is touched.
    tile, lane = i >> 3, i & 7
    if pieces < 1 or pieces > i64(len(table)) >> 2:
        return
    low, high = i64(0), pieces
    while high - low > 1:
        middle = (low + high) >> 1
        if table[middle] <= tile:
            low = middle
        else:
            high = middle
    at, size = table[2 * pieces + low], table[3 * pieces + low]
    inside = tile - table[low]
    begin = (table[pieces + low] + inside) * 32 + lane
    first = inside * TILE_BYTES + lane * 8
    held, room = i64(len(source)), i64(len(out))
    for step in range(4):
        byte = first + i64(step) * 64
        word = u64(0)
        place = (at + byte) >> 3
        if 0 <= byte < size and 0 <= place < held:
            shift = ((at + byte) & 7) << 3
            word = source[place] >> u64(shift)
            following = place + 1
            if shift > 0 and following <= (at + size - 1) >> 3 and following < held:
                word |= source[following] << u64(64 - shift)
            if size - byte < 8:
                word &= (1 << u64((size - byte) << 3)) - 1
        target = begin + i64(step) * 8
        if 0 <= target < room:
            out[target] = word


BLOCK: Final = i64(64)
"""Bytes that one work item of :func:`swap_elements` swaps; a multiple of every width."""
SLOT: Final = i64(16)
"""Bytes of a view and of an interval of months, days and nanoseconds."""

LONGEST_INSIDE = i64(12)


def swap_elements(i, data, last, out):
    """Write elements with their bytes turned around; `last` is their width, a power of 2, less 1."""
    first = i * BLOCK
    held = min(i64(len(data)), i64(len(out)))
    for at in range(first, min(first + BLOCK, held)):
        # With `last` all ones, this counts down within an element.
        out[at] = data[i64(at) ^ last]


def swap_intervals(i, data, out):
    """Write an interval: months and days of four bytes each, then nanoseconds of eight."""
    first = i * SLOT
    for at in range(first, first + 8):
        out[at] = data[i64(at) ^ 3]
    for at in range(first + 8, first + SLOT):
        out[at] = data[i64(at) ^ 7]


def swap_views(i, data, out):
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
    gather_pieces: ("u64[], i64[], i64, u64[]!",),
    swap_elements: ("u8[], i64, u8[]!",),
    swap_intervals: ("u8[], u8[]!",),
    swap_views: ("u8[], u8[]!",),
}
