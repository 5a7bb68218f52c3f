"""Null slots that pyarrow follows: what lies under a null is undefined, and never matters.

pyarrow's cast of views adds up the sizes of null ones, and its unification of dictionaries looks up null indices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.columnar.nodes import Kind
from bowstring.columnar.parts import batch_parts

if TYPE_CHECKING:
    import numpy.typing as npt

    from bowstring.columnar.batch import Batch
    from bowstring.columnar.layout import Layout
    from bowstring.columnar.spans import Table

_LONGEST_INSIDE: Final = 12  # bytes of a value that lies in its view


class Followed(NamedTuple):
    """A node whose null slots pyarrow follows, and the rows of its buffers: validity, slots, and behind them."""

    node: int
    validity: int
    end: int
    dictionary: int | None


def followed_nodes(layout: Layout, first: Table) -> list[Followed]:
    """Return the nodes of views and of indices; `first` has the first buffer of each node, and the end."""
    return [
        Followed(index, int(first[index]), int(first[index + 1]), node.dictionary_id)
        for index, node in enumerate(layout.nodes)
        if node.dictionary_id is not None or Kind.VIEWS in node.buffer_kinds
    ]


def replace_strays(batch: Batch, nodes: list[Followed], addresses: Table) -> list[npt.NDArray[Any]]:
    """Let `addresses` point to copies of slots where a null one leads outside, with zeros for the null ones.

    Returns the copies, which must be kept. Only null slots are looked at, and other buffers stay where they are.
    """
    parts = batch_parts(batch)
    kept = []
    spans = parts.spans
    for node, validity, end, dictionary in nodes:
        rows, nulls = parts.nodes[node].tolist()
        if not (nulls and spans.table[validity, 2]):
            continue
        width = batch.layout.nodes[node].width or 16
        raw = spans.array(validity + 1)
        slots = raw[: min(rows, len(raw) // width) * width].reshape(-1, width)
        is_null = np.unpackbits(spans.array(validity), count=len(slots), bitorder="little") == 0
        null = slots[is_null]
        if dictionary is None:
            strays = _stray_views(null.view("<i4"), spans.table[validity + 2 : end, 2])
        else:
            indices = null.view(f"<u{width}")  # negative ones are the largest
            size = len(batch.dictionaries[dictionary])
            if str(batch.layout.nodes[node].type).startswith("u"):
                strays = indices >= size
            else:
                most = np.iinfo(indices.dtype).max
                # -1 is what pandas has under nulls: it stays in pyarrow's own memory, and is not worth a copy.
                strays = (indices >= min(size, most // 2 + 1)) & (indices != most)
        if strays.any():
            slots = slots.copy()
            slots[is_null] = 0
            addresses[validity + 1] = slots.ctypes.data
            kept.append(slots)
    return kept


def _stray_views(views: npt.NDArray[np.int32], sizes: Table) -> npt.NDArray[np.bool_]:
    """Return which views lead outside the buffers of these sizes."""
    size, _, buffer, offset = views.T
    known = (buffer >= 0) & (buffer < len(sizes))
    reach = np.zeros(len(views), np.int64)
    reach[known] = sizes[buffer[known]]
    inside = (offset >= 0) & (offset.astype(np.int64) + size <= reach)
    is_stray: npt.NDArray[np.bool_] = (size < 0) | ((size > _LONGEST_INSIDE) & ~inside)
    return is_stray
