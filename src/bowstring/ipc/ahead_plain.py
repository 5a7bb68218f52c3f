"""Plain batches of many messages that look alike: views of the memory that their bodies lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bowstring.columnar.batch import Batch
from bowstring.ipc.ahead_numbers import (
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

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bowstring.columnar.dictionary import Dictionary
    from bowstring.columnar.layout import Layout
    from bowstring.ipc.likeness import Likeness
    from bowstring.memory import Buffer

__all__ = ["plain_ahead"]

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
    sizes = found.buffers[:, layout.fixed_buffers(like.variadic_counts), 1]
    right = nodes_are_right(found, layout) & places_are_right(found)
    count = leading(right & sizes_are_right(found, layout, sizes, minimum_sizes(found, layout)))
    spans = np.zeros((*found.buffers.shape[:2], 3), np.int64)
    spans[:, :, 1] = found.buffers[:, :, 0]
    spans[:, :, 1] += (found.places + memory.offset)[:, None]
    spans[:, :, 2] = found.buffers[:, :, 1]
    if count:
        count = leading(_offsets_are_right(found, spans, like, layout, memory, count))
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


def _offsets_are_right(
    found: Numbers, spans: Table, like: Likeness, layout: Layout, memory: Buffer, count: int
) -> Flags:
    """Whether first and last offsets lie in what they delimit, as `check_offsets` would find."""
    fine = np.ones(count, np.bool_)
    fixed = layout.fixed_buffers(like.variadic_counts)
    for group in layout.offset_groups:
        lengths = found.nodes[:count, group[:, _NODE], 0]
        buffers, width = fixed[group[:, _BUFFER]], int(group[0, _WIDTH])
        if group[0, _CHILD] >= 0:
            limits = found.nodes[:count, group[:, _CHILD], 0]
        else:
            limits = spans[:count, buffers + 1, 2]
        region = memory.region
        whole = region.array(0, region.nbytes // width * width).view(f"<i{width}")
        # Where there are no slots there may be no offsets either: any number stands for them.
        used = lengths > 0
        first = np.where(used, spans[:count, buffers, 1] // width, 0)
        begin, end = whole[first], whole[first + lengths]
        fine &= all_of((begin >= 0) & (end >= begin) & (end <= limits) | ~used)
    return fine
