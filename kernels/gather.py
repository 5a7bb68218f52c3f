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

ZERO = i64(0)
ONE = i64(1)
TWO = i64(2)
THREE = i64(3)
FOUR = i64(4)
SEVEN = i64(7)
EIGHT = i64(8)
WORDS = i64(32)
STRIDE = i64(64)
TILE_BYTES = i64(TILE)
NOTHING = u64(0)
BIT = u64(1)
WORD_BITS = i64(64)


def gather_pieces(i: Any, source: Any, table: Any, pieces: Any, out: Any) -> None:
    """Write four words of the target.

    `table` holds, for all pieces one after the other: with which tile of those that are written each begins,
    rising from 0; which tile of the target that is; at which byte of `source` it lies; how many bytes it has. What
    is left of a piece's last tile is zeroed. No word of `source` is touched but those that hold a byte of a piece.
    """
    tile, lane = i >> THREE, i & SEVEN
    if pieces < ONE or pieces > i64(len(table)) >> TWO:
        return
    low, high = ZERO, pieces
    while high - low > ONE:
        middle = (low + high) >> ONE
        if table[middle] <= tile:
            low = middle
        else:
            high = middle
    at, size = table[TWO * pieces + low], table[THREE * pieces + low]
    inside = tile - table[low]
    begin = (table[pieces + low] + inside) * WORDS + lane
    first = inside * TILE_BYTES + lane * EIGHT
    held, room = i64(len(source)), i64(len(out))
    for step in range(FOUR):
        byte = first + i64(step) * STRIDE
        word = NOTHING
        place = (at + byte) >> THREE
        if ZERO <= byte < size and ZERO <= place < held:
            shift = ((at + byte) & SEVEN) << THREE
            word = source[place] >> u64(shift)
            following = place + ONE
            if shift > ZERO and following <= (at + size - ONE) >> THREE and following < held:
                word |= source[following] << u64(WORD_BITS - shift)
            if size - byte < EIGHT:
                word &= (BIT << u64((size - byte) << THREE)) - BIT
        target = begin + i64(step) * EIGHT
        if ZERO <= target < room:
            out[target] = word


SIGNATURES = {gather_pieces: ("u64[], i64[], i64, u64[]!",)}
