"""Compressed messages, many at a time: claims are read and bounded together, and one call decompresses all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from bowstring.columnar.batch import Batch
from bowstring.columnar.nodes import Kind
from bowstring.errors import BowstringError, InvalidBody, LimitExceeded
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
from bowstring.ipc.body.offset_bounds import check_offsets
from bowstring.ipc.body.unused_bitmaps import leave_out_unused_bitmaps
from bowstring.ipc.compression.claims import SLACK
from bowstring.ipc.compression.codec import PREFIX_BYTES, STORED, Means, decompressed
from bowstring.ipc.compression.host import framed_regions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bowstring.columnar.dictionary import Dictionary
    from bowstring.columnar.layout import Layout
    from bowstring.ipc.body.template import Likeness
    from bowstring.limits import Limits
    from bowstring.memory import Buffer, Region

__all__ = ["decompressed_ahead"]

_MOST_BYTES: Final = 64 << 20


class _Claims(NamedTuple):
    """The lengths of the buffers of some messages, decompressed, and which are frames or stored as they are."""

    lengths: Table
    framed: Flags
    stored: Flags

    def first(self, count: int) -> _Claims:
        return _Claims(self.lengths[:count], self.framed[:count], self.stored[:count])


def decompressed_ahead(
    found: Numbers,
    like: Likeness,
    layout: Layout,
    memory: Buffer,
    dictionaries: Mapping[int, Dictionary],
    limits: Limits,
    means: Means,
) -> list[Batch]:
    """Return the batches of the messages in front that are surely right, up to the one that makes 64 MiB."""
    count = leading(nodes_are_right(found, layout) & places_are_right(found))
    if not count:
        return []
    found = Numbers(*(numbers[:count] for numbers in found))
    claims, fine = _claims(found, like, layout, memory, limits)
    # Only sound claims are summed up: a negative one would make sums that do not grow, which cannot be searched.
    claims = claims.first(leading(fine))
    if not len(claims.lengths):
        return []
    count = 1 + int(np.searchsorted(claims.lengths.sum(axis=1).cumsum(), _MOST_BYTES))
    claims = claims.first(count)
    count = len(claims.lengths)
    try:
        tables, regions = _opened(found, like, claims, memory, means)
    except (InvalidBody, LimitExceeded):
        # One of them is wrong, or together they need more memory than there is.
        return []
    leave_out_unused_bitmaps(tables, found.nodes[:count], layout, like.variadic_counts)
    batches: list[Batch] = []
    for row in range(count):
        batch = Batch.from_parts(
            layout,
            int(found.lengths[row]),
            found.nodes[row],
            variadic_counts=like.variadic_counts,
            dictionaries=dictionaries,
            spans=tables[row],
            regions=regions[row],
            device=memory.device,
        )
        try:
            check_offsets(batch)
        except BowstringError:
            break
        batches.append(batch)
    return batches


def _claims(
    found: Numbers, like: Likeness, layout: Layout, memory: Buffer, limits: Limits
) -> tuple[_Claims, Flags]:
    sizes = found.buffers[:, :, 1]
    present = sizes > 0
    readable = sizes >= PREFIX_BYTES
    words = memory.to_host()[: memory.nbytes & -PREFIX_BYTES].view("<i8")
    starts = np.where(readable, found.places[:, None] + found.buffers[:, :, 0], 0)
    claimed = words[starts // PREFIX_BYTES]
    stored = readable & (claimed == STORED)
    lengths = np.where(stored, sizes - PREFIX_BYTES, np.where(readable, claimed, 0))
    framed = readable & ~stored & ~((sizes == PREFIX_BYTES) & (claimed == 0))
    fine = all_of((present == readable) & (lengths >= 0) & (lengths <= limits.decompressed_bytes))
    most = np.maximum(limits.decompression_floor, limits.decompression_ratio * found.bodies)
    fine &= lengths.sum(axis=1) <= np.minimum(limits.decompressed_bytes, most)
    known = lengths[:, layout.fixed_buffers(like.variadic_counts)]
    minimum = minimum_sizes(found, layout)
    fine &= sizes_are_right(found, layout, known, minimum)
    fine &= all_of((known - SLACK <= 2 * minimum) | (layout.buffer_kinds == Kind.BYTES))
    return _Claims(lengths, framed, stored), fine


def _opened(
    found: Numbers, like: Likeness, claims: _Claims, memory: Buffer, means: Means
) -> tuple[Table, list[list[Region]]]:
    """Decompress, and say where the buffers of each message are: the table of its spans, and its regions.

    Raises
    ------
    InvalidBody
        One of the frames is not right.
    """
    count = len(claims.lengths)
    assert like.compression is not None
    offsets = found.buffers[:count, :, 0] + found.places[:count, None]
    rows, columns = np.nonzero(claims.framed)
    expected = claims.lengths[rows, columns]
    opened = []
    if len(rows):
        places = np.stack((offsets[rows, columns], found.buffers[rows, columns, 1]), axis=1)
        means = means.for_bytes(int(expected.sum()))
        opened = decompressed(memory.to_arrow(), places.astype("<i8").tobytes(), like.compression, means)
    if [buffer.size for buffer in opened] != expected.tolist():
        raise InvalidBody("the body changed while it was read")
    tables = np.zeros((*claims.lengths.shape, 3), np.int64)
    tables[:, :, 2] = claims.lengths
    regions = framed_regions(tables, claims.framed, opened, means.memory_pool)
    for row in np.flatnonzero(claims.stored.any(axis=1)).tolist():
        stored = claims.stored[row]
        tables[row, stored, 0] = len(regions[row])
        tables[row, stored, 1] = offsets[row, stored] + (memory.offset + PREFIX_BYTES)
        regions[row].append(memory.region)
    return tables, regions
