"""Plain batches of many messages that look alike: views of the memory that their bodies lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bowstring.columnar.batch import Batch
from bowstring.ipc.body.message_table import (
    Flags,
    Numbers,
    Table,
    all_of,
    leading,
    minimum_sizes,
    nodes_are_right,
    places_are_right,
    sizes_are_right,
)
from bowstring.ipc.body.unused_bitmaps import leave_out_unused_bitmaps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bowstring.columnar.dictionary import Dictionary
    from bowstring.columnar.layout import Layout
    from bowstring.ipc.body.template import Likeness
    from bowstring.memory import Buffer, Region

__all__ = ["offsets_are_right", "plain_ahead"]

_NODE, _BUFFER, _WIDTH, _CHILD = range(4)


def plain_ahead(
    found: Numbers, like: Likeness, layout: Layout, memory: Buffer, dictionaries: Mapping[int, Dictionary]
) -> list[Batch]:
    """Return the batches of the messages in front that are surely right.

    Parameters
    ----------
    found
        What the messages say; their places are offsets in `memory`.
    like
        What they look like; the layout can take that.
    layout
        Of the stream's schema.
    memory
        All the bodies. Its lease is that of the batches; without one, each gets its own.
    dictionaries
        What all the batches use.
    """
    fixed = layout.fixed_buffers(like.variadic_counts)
    sizes = found.buffers[:, fixed, 1]
    right = nodes_are_right(found, layout) & places_are_right(found)
    count = leading(right & sizes_are_right(found, layout, sizes, minimum_sizes(found, layout)))
    spans = np.zeros((*found.buffers.shape[:2], 3), np.int64)
    spans[:, :, 1] = found.buffers[:, :, 0]
    spans[:, :, 1] += (found.places + memory.offset)[:, None]
    spans[:, :, 2] = found.buffers[:, :, 1]
    if count:
        count = leading(
            offsets_are_right(found.nodes[:count, :, 0], spans[:count], fixed, layout, memory.region)
        )
    leave_out_unused_bitmaps(spans[:count], found.nodes[:count], layout, like.variadic_counts)
    regions = (memory.region,)
    return [
        Batch.from_parts(
            layout,
            length,
            nodes,
            variadic_counts=like.variadic_counts,
            dictionaries=dictionaries,
            lease=memory.lease,
            spans=table,
            regions=regions,
        )
        for length, nodes, table in zip(
            found.lengths[:count].tolist(), found.nodes[:count], spans[:count], strict=True
        )
    ]


def offsets_are_right(lengths: Table, spans: Table, fixed: Table, layout: Layout, region: Region) -> Flags:
    """Whether first and last offsets lie in what they delimit, as `check_offsets` would find.

    Parameters
    ----------
    lengths : ndarray of int64, shape (batches, nodes)
        Of nodes that are right.
    spans : ndarray of int64, shape (batches, buffers, 3)
        Buffers that are as long as their nodes need, each at a multiple of 8 bytes of the region.
    fixed
        Which of the buffers are the layout's own.
    layout
        Of the batches.
    region
        Where all of them lie, on the host.
    """
    fine = np.ones(len(lengths), np.bool_)
    for group in layout.offset_groups:
        slots = lengths[:, group[:, _NODE]]
        buffers, width = fixed[group[:, _BUFFER]], int(group[0, _WIDTH])
        limits = lengths[:, group[:, _CHILD]] if group[0, _CHILD] >= 0 else spans[:, buffers + 1, 2]
        whole = region.array(0, region.nbytes // width * width).view(f"<i{width}")
        # Where there are no slots there may be no offsets either: any number stands for them.
        used = slots > 0
        first = np.where(used, spans[:, buffers, 1] // width, 0)
        begin, end = whole[first], whole[first + slots]
        fine &= all_of((begin >= 0) & (end >= begin) & (end <= limits) | ~used)
    return fine
