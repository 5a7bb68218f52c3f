"""What a layout says of a few buffers in flat columns, in plain integers.

Where other code has driven ours from the processor's caches, a batch of a few buffers costs what the code costs
that is fetched again for it, and plain integers take far less of that than NumPy does.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, NamedTuple

from bowstring.columnar.nodes import Kind

if TYPE_CHECKING:
    from bowstring.columnar.layout import Layout

__all__ = ["MOST_FEW", "Rule", "nodes_are_right", "rules_of"]

MOST_FEW: Final = 32
_LAYOUTS: Final = 32
_UNKNOWN: Final = -1


class Rule(NamedTuple):
    """What a layout says of a buffer."""

    node: int
    bits: int
    end_bits: int
    is_bitmap: bool
    is_bytes: bool
    offset_width: int
    """Of offsets into the buffer behind; 0 for all others."""

    def needed(self, rows: int) -> int:
        """Return how many bytes so many slots take, if the buffer is there at all."""
        return (rows * self.bits + (self.end_bits if rows else 0) + 7) >> 3


def nodes_are_right(nodes: list[list[int]], rows: int) -> bool:
    """Whether all nodes have the length of their batch, and a null count that can be."""
    for length, nulls in nodes:
        if length != rows or not _UNKNOWN <= nulls <= rows:
            return False
    return rows >= 0


@functools.lru_cache(_LAYOUTS)
def rules_of(layout: Layout) -> tuple[Rule, ...] | None:
    """Return what a layout says of its buffers; ``None`` where that is not all that there is to check.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bowstring.columnar.layout import Layout
    >>> [rule.needed(9) for rule in rules_of(Layout.of(pa.schema({"a": pa.int16(), "b": pa.string()})))]
    [2, 18, 2, 40, 0]
    """
    if not layout.is_flat or layout.variadic_nodes or layout.num_buffers > MOST_FEW:
        return None
    kinds = layout.buffer_kinds.tolist()
    return tuple(
        Rule(node, bits, end_bits, kind == Kind.VALIDITY, kind == Kind.BYTES, end_bits >> 3)
        for node, bits, end_bits, kind in zip(
            layout.buffer_nodes.tolist(),
            layout.buffer_bits.tolist(),
            layout.buffer_end_bits.tolist(),
            kinds,
            strict=True,
        )
    )
