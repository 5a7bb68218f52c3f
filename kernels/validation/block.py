"""What the validation kernels have in common: blocks of rows, and what a block answers.

Each looks at a block of :data:`ROWS` rows twice at most: once over all slots, quickly and without a look at the
bitmap, and again, slot by slot, only where that found something. The answer is the first row that is wrong, or
:data:`NO_ROW`; the least of all answers is the first wrong row of the column.

Work item: none; there are no kernels here.
"""

from __future__ import annotations

from typing import Any, Final

from bowstring.kernels.types import i64

__all__ = ["NO_ROW", "ROWS", "SIGNATURES", "block_end", "block_start", "blocks_of"]

ROWS: Final = i64(256)
"""Rows that one work item looks at."""
NO_ROW: Final = i64(2**63 - 1)
"""The answer of a block without a wrong row."""


SIGNATURES: dict[Any, tuple[str, ...]] = {}


def blocks_of(rows: int) -> int:
    """Return how many blocks, and so work items, some rows are.

    Examples
    --------
    >>> blocks_of(0), blocks_of(256), blocks_of(257)
    (0, 1, 2)
    """
    return -(-rows // int(ROWS))


def block_start(i: Any) -> Any:
    """Return the first row of a block; the compiler sees that it is not negative, and makes better loops."""
    return max(i * ROWS, i64(0))


def block_end(i: Any, rows: Any, held: Any) -> Any:
    """Return one past the last row of a block, where there are so many rows, and arrays hold so many."""
    end = min(block_start(i) + ROWS, rows)
    return min(end, held)
