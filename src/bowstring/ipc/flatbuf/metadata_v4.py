"""What differs in metadata of version 4, from before Arrow 1.0: all nodes but nulls have a validity bitmap.

So unions have one buffer more than today, which is empty. Arrow C++ does the same with run-end encoded columns,
though these came later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.nodes import Kind
from bowstring.errors import InvalidMetadata, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.columnar.layout import Layout
    from bowstring.ipc.flatbuf.message import RecordBatchHeader

__all__ = ["bitmaps_of_4", "with_bitmaps_of_4", "without_bitmaps_of_4"]


def bitmaps_of_4(layout: Layout) -> list[int]:
    """Return the nodes that have a validity bitmap in version 4 only."""
    return [
        index
        for index, node in enumerate(layout.nodes)
        if Kind.VALIDITY not in node.buffer_kinds and node.type.id != pa.lib.Type_NA
    ]


def without_bitmaps_of_4(header: RecordBatchHeader, layout: Layout) -> RecordBatchHeader:
    """Return the header of a batch of version 4 as version 5 has it.

    Raises
    ------
    InvalidMetadata
        There are too few nodes or buffers.
    Unsupported
        A union has nulls of its own.
    """
    nodes = bitmaps_of_4(layout)
    if not nodes:
        return header
    counts = header.variadic_counts
    expected = layout.num_buffers + sum(counts) + len(nodes)
    if (
        len(counts) != len(layout.variadic_nodes)
        or len(header.nodes) != layout.num_nodes
        or len(header.buffers) != expected
    ):
        raise InvalidMetadata(
            "wrong number of nodes or buffers for a schema with unions or runs",
            expected=f"{layout.num_nodes} and {expected}",
            found=f"{len(header.nodes)} and {len(header.buffers)}",
        )
    unions = [index for index in nodes if layout.nodes[index].buffer_kinds]
    if np.count_nonzero(header.nodes[unions, 1]):
        raise Unsupported("unions with nulls of their own, as Arrow had them before 1.0")
    extra = layout.first_buffers(counts)[nodes] + np.arange(len(nodes))
    return header._replace(buffers=np.delete(header.buffers, extra, axis=0))


def with_bitmaps_of_4(
    buffers: npt.NDArray[np.int64], layout: Layout, variadic_counts: Sequence[int] = ()
) -> npt.NDArray[np.int64]:
    """Return a table of buffers of version 5 as version 4 has it: the bitmaps are empty."""
    at = layout.first_buffers(variadic_counts)[bitmaps_of_4(layout)]
    result: npt.NDArray[np.int64] = np.insert(buffers, at, 0, axis=0)
    return result
