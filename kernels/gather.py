"""Gathering: many pieces of memory, copied one behind the other into one target, with zeros between them.

Work item: four words of 64 bits of the target. Eight items share a tile of 256 bytes and take every eighth word
of it, so that neighbouring threads of a GPU touch neighbouring words; pieces begin at whole tiles, so that a tile
is of one piece.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.types import i64, u64

__all__ = ["ITEMS_PER_TILE", "SIGNATURES", "TILE", "gather_pieces"]

TILE: Final = 256
"""Bytes of a tile; where pieces begin in the target is a multiple of it."""
ITEMS_PER_TILE: Final = 8
"""Work items for each tile."""

WORDS = i64(32)
TILE_BYTES = i64(TILE)
NOTHING = u64(0)


def gather_pieces(i: Any, source: Any, table: Any, pieces: Any, out: Any) -> None:
    """Write four words of the target.

    `table` holds, for all pieces one after the other: with which tile of those that are written each begins,
    rising from 0; which tile of the target that is; at which byte of `source` it lies; how many bytes it has. What
    is left of a piece's last tile is zeroed. No word of `source` is touched but those that hold a byte of a piece.
    """
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


SIGNATURES = {gather_pieces: ("u64[], i64[], i64, u64[]!",)}
