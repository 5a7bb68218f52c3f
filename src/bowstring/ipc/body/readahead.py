"""Reading ahead: record batches of a stream that lies in memory, checked and made many at a time.

Most of what a small batch costs is the price of a call, not of its bytes. The batches of one stream look alike, so
the same few operations check hundreds of them at once. Only what is surely right is taken; any other message is
left where it is, and read by itself.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from bowstring.columnar.batch import Batch
from bowstring.errors import BowstringError, InvalidBody, LimitExceeded
from bowstring.ipc.body.check_bulk import (
    Flags,
    MessageTable,
    Table,
    leading,
    leave_out_unused_bitmaps,
    minimum_sizes,
    nodes_are_right,
    offsets_are_right,
    places_are_right,
    sizes_are_right,
)
from bowstring.ipc.body.check_scalar import check_offsets
from bowstring.ipc.compression.body import ClaimTable, claims_of
from bowstring.ipc.compression.codec import PREFIX_BYTES, DecompressOptions, decompressed
from bowstring.ipc.source import region_around

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from bowstring.columnar.dictionary import Dictionary
    from bowstring.columnar.layout import Layout
    from bowstring.ipc.body.template import MessageTemplate
    from bowstring.limits import Limits
    from bowstring.memory import Buffer, Region

__all__ = ["ReadAhead", "plain_ahead"]

_FIRST: Final = 64
_GROWTH: Final = 4
_MOST: Final = 256
_MOST_BYTES: Final = 1 << 20
_WORD: Final = 8
_INT64: Final = struct.Struct("<q")
_PREFIX: Final = struct.Struct("<II")
_CONTINUATION: Final = 0xFFFFFFFF
_MOST_DECOMPRESSED: Final = 64 << 20


class ReadAhead:
    """Takes record batches of a stream that lies in memory.

    Parameters
    ----------
    layout
        Of the stream's schema.
    memory
        All of the stream.
    limits
        ``message_bytes`` applies, and the bounds on what is decompressed.
    decompression
        By what to decompress.
    """

    def __init__(
        self, layout: Layout, memory: Buffer, limits: Limits, decompression: DecompressOptions
    ) -> None:
        self._layout = layout
        self._memory = memory
        self._view = memory.to_host().data
        self._limits = limits
        self._most = _FIRST
        self._decompression = decompression

    def take(
        self, position: int, template: MessageTemplate, dictionaries: Mapping[int, Dictionary]
    ) -> tuple[list[Batch], int]:
        """Return the batches at `position` that look like one that was read, and where they end.

        Parameters
        ----------
        position
            Where the next message begins.
        template
            What the metadata of the messages looks like.
        dictionaries
            What all the batches use: the first message that could change it is not taken any more.
        """
        if not self._can_take(position, template):
            return [], position
        wanted = min(self._most, _MOST, max(1, _MOST_BYTES // template.size))
        found = self._scan(position, template, wanted)
        batches = [] if found is None else self._made(found, template, dictionaries)
        # As far as it went well, for streams with dictionaries or other messages in between.
        self._most = _GROWTH * wanted if len(batches) == wanted else max(1, len(batches))
        if found is not None and batches:
            last = len(batches) - 1
            position = int(found.places[last] + found.bodies[last])
        return batches, position

    def _made(
        self, found: MessageTable, template: MessageTemplate, dictionaries: Mapping[int, Dictionary]
    ) -> list[Batch]:
        if template.compression is None:
            return plain_ahead(found, template, self._layout, self._memory, dictionaries)
        parts = (found, template, self._layout, self._memory, dictionaries)
        return _decompressed_ahead(*parts, self._limits, self._decompression)

    def _can_take(self, position: int, template: MessageTemplate) -> bool:
        return (
            template.fits(self._layout)
            and self._memory.address % _WORD == position % _WORD == 0
            and self._memory.region.address % _WORD == 0
        )

    def _scan(self, position: int, template: MessageTemplate, count: int) -> MessageTable | None:
        """Copy the metadata of up to `count` messages, as long as they look alike and their bodies are there.

        None where not even the first does.
        """
        view, size, most = self._view, template.size, self._limits.message_bytes
        prefix = _PREFIX.pack(_CONTINUATION, size)
        pieces: list[bytes] = []
        places: list[int] = []
        for _ in range(count):
            start = position + _PREFIX.size
            if view[position:start] != prefix:
                break
            piece = bytes(view[start : start + size])
            if len(piece) < size:
                break
            (body,) = _INT64.unpack_from(piece, template.body_length)
            place = start + size
            position = place + body
            if not 0 <= body <= most or body % _WORD or position > len(view):
                break
            pieces.append(piece)
            places.append(place)
        return template.table(b"".join(pieces), places) if pieces else None


def plain_ahead(
    found: MessageTable,
    template: MessageTemplate,
    layout: Layout,
    memory: Buffer,
    dictionaries: Mapping[int, Dictionary],
) -> list[Batch]:
    """Return the batches of the messages in front that are surely right.

    Parameters
    ----------
    found
        What the messages say; their places are offsets in `memory`.
    template
        What their metadata looks like; the layout can take that.
    layout
        Of the stream's schema.
    memory
        All the bodies. Its lease is that of the batches; without one, each gets its own.
    dictionaries
        What all the batches use.
    """
    found = found.first(leading(nodes_are_right(found, layout) & places_are_right(found)))
    fixed = layout.fixed_buffers(template.variadic_counts)
    sizes = found.buffers[:, fixed, 1]
    count = leading(sizes_are_right(found, layout, sizes, minimum_sizes(found, layout)))
    spans = np.zeros((*found.buffers.shape[:2], 3), np.int64)
    spans[:, :, 1] = found.buffers[:, :, 0]
    spans[:, :, 1] += (found.places + memory.offset)[:, None]
    spans[:, :, 2] = found.buffers[:, :, 1]
    if count:
        lengths, counts = found.nodes[:count, :, 0], template.variadic_counts
        count = leading(offsets_are_right(lengths, spans[:count], layout, counts, memory.region))
    leave_out_unused_bitmaps(spans[:count], found.nodes[:count], layout, template.variadic_counts)
    regions = (memory.region,)
    return [
        Batch.from_parts(
            layout,
            length,
            nodes,
            variadic_counts=template.variadic_counts,
            dictionaries=dictionaries,
            lease=memory.lease,
            spans=table,
            regions=regions,
        )
        for length, nodes, table in zip(
            found.lengths[:count].tolist(), found.nodes[:count], spans[:count], strict=True
        )
    ]


def _decompressed_ahead(
    found: MessageTable,
    template: MessageTemplate,
    layout: Layout,
    memory: Buffer,
    dictionaries: Mapping[int, Dictionary],
    limits: Limits,
    decompression: DecompressOptions,
) -> list[Batch]:
    """Return the batches of the messages in front that are surely right, up to the one that makes 64 MiB."""
    count = leading(nodes_are_right(found, layout) & places_are_right(found))
    if not count:
        return []
    found = found.first(count)
    claims, fine = claims_of(found, template.variadic_counts, layout, memory, limits)
    # Only sound claims are summed up: a negative one would make sums that do not grow, which cannot be searched.
    claims = claims.first(leading(fine))
    if not len(claims.lengths):
        return []
    count = 1 + int(np.searchsorted(claims.lengths.sum(axis=1).cumsum(), _MOST_DECOMPRESSED))
    claims = claims.first(count)
    count = len(claims.lengths)
    try:
        tables, regions = _opened(found, template, claims, memory, decompression)
    except (InvalidBody, LimitExceeded):
        # One of them is wrong, or together they need more memory than there is.
        return []
    leave_out_unused_bitmaps(tables, found.nodes[:count], layout, template.variadic_counts)
    batches: list[Batch] = []
    for row in range(count):
        batch = Batch.from_parts(
            layout,
            int(found.lengths[row]),
            found.nodes[row],
            variadic_counts=template.variadic_counts,
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


def _opened(
    found: MessageTable,
    template: MessageTemplate,
    claims: ClaimTable,
    memory: Buffer,
    decompression: DecompressOptions,
) -> tuple[Table, list[list[Region]]]:
    """Decompress, and say where the buffers of each message are: the table of its spans, and its regions.

    Raises
    ------
    InvalidBody
        One of the frames is not right.
    """
    count = len(claims.lengths)
    assert template.compression is not None
    offsets = found.buffers[:count, :, 0] + found.places[:count, None]
    rows, columns = np.nonzero(claims.framed)
    expected = claims.lengths[rows, columns]
    opened = []
    if len(rows):
        places = np.stack((offsets[rows, columns], found.buffers[rows, columns, 1]), axis=1)
        decompression = decompression.for_bytes(int(expected.sum()))
        opened = decompressed(
            memory.to_arrow(), places.astype("<i8").tobytes(), template.compression, decompression
        )
    if [buffer.size for buffer in opened] != expected.tolist():
        raise InvalidBody("the body changed while it was read")
    tables = np.zeros((*claims.lengths.shape, 3), np.int64)
    tables[:, :, 2] = claims.lengths
    regions = _framed_regions(tables, claims.framed, opened, decompression.memory_pool)
    for row in np.flatnonzero(claims.stored.any(axis=1)).tolist():
        stored = claims.stored[row]
        tables[row, stored, 0] = len(regions[row])
        tables[row, stored, 1] = offsets[row, stored] + (memory.offset + PREFIX_BYTES)
        regions[row].append(memory.region)
    return tables, regions


def _framed_regions(
    tables: Table,
    framed: Flags,
    buffers: Sequence[pa.Buffer],
    memory_pool: pa.MemoryPool | None = None,
) -> list[list[Region]]:
    """Return the regions of decompressed messages: for each one around all its frames, or none.

    Parameters
    ----------
    tables : ndarray of int64, shape (messages, buffers, 3)
        The spans of each message, with their lengths; indices and offsets of the frames are written.
    framed : ndarray of bool, shape (messages, buffers)
        Which buffers were frames.
    buffers
        What was in them, message by message.
    memory_pool
        Where they come from. It is kept as long as they are: their memory goes back to it.
    """
    regions: list[list[Region]] = []
    offsets: list[int] = []
    remaining = iter(buffers)
    for count in framed.sum(axis=1).tolist():
        begins, around = region_around(list(itertools.islice(remaining, count)), memory_pool)
        offsets += begins
        regions.append(around)
    tables[framed, 1] = offsets
    return regions
