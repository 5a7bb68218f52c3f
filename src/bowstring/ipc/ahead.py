"""Reading ahead: record batches of a stream that lies in memory, checked and made many at a time.

Most of what a small batch costs is the price of a call, not of its bytes. The batches of one stream look alike, so
the same few operations check hundreds of them at once. Only what is surely right is taken; any other message, and
whatever is wrong with one, is left where it is, to be read and judged by itself.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from bowstring.columnar.batch import Batch
from bowstring.ipc.ahead_compressed import decompressed_ahead
from bowstring.ipc.ahead_numbers import (
    Flags,
    Numbers,
    Table,
    all_of,
    leading,
    minimum_sizes,
    nodes_are_right,
    numbers_of,
    places_are_right,
    sizes_are_right,
)
from bowstring.ipc.metadata import MetadataVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bowstring.columnar.dictionary import Dictionary
    from bowstring.columnar.layout import Layout
    from bowstring.ipc.likeness import Likeness
    from bowstring.limits import Limits
    from bowstring.memory import Buffer

__all__ = ["ReadAhead"]

_FIRST: Final = 4
_GROWTH: Final = 4
_MOST: Final = 256
_MOST_BYTES: Final = 1 << 20
_WORD: Final = 8
_INT64: Final = struct.Struct("<q")
_PREFIX: Final = struct.Struct("<II")
_CONTINUATION: Final = 0xFFFFFFFF
_NODE, _BUFFER, _WIDTH, _CHILD = range(4)


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
    use_threads
        Whether several threads may decompress.
    """

    def __init__(self, layout: Layout, memory: Buffer, limits: Limits, *, use_threads: bool = True) -> None:
        self._layout = layout
        self._memory = memory
        self._view = memory.to_host().data
        self._limits = limits
        self._most = _FIRST
        self._use_threads = use_threads

    def take(
        self, position: int, like: Likeness, dictionaries: Mapping[int, Dictionary]
    ) -> tuple[list[Batch], int]:
        """Return the batches at `position` that look like one that was read, and where they end.

        Parameters
        ----------
        position
            Where the next message begins.
        like
            What the messages look like.
        dictionaries
            What all the batches use: the first message that could change it is not taken any more.
        """
        if not self._can_take(position, like):
            return [], position
        wanted = min(self._most, _MOST, max(1, _MOST_BYTES // like.size))
        found = self._scan(position, like, wanted)
        if like.compression is None:
            batches = self._plain(found, like, dictionaries)
        else:
            batches = decompressed_ahead(
                found,
                like,
                self._layout,
                self._memory,
                dictionaries,
                self._limits,
                use_threads=self._use_threads,
            )
        # As far as it went well, for whoever writes dictionaries or other messages in between.
        self._most = _GROWTH * wanted if len(batches) == wanted else max(1, len(batches))
        if batches:
            last = len(batches) - 1
            position = int(found.places[last] + found.bodies[last])
        return batches, position

    def _can_take(self, position: int, like: Likeness) -> bool:
        return (
            like.version is MetadataVersion.V5
            and not self._layout.run_ends
            and like.nodes[1] == (self._layout.num_nodes, 2)
            and like.size % _WORD == 0
            and self._memory.address % _WORD == position % _WORD == 0
            and self._memory.region.address % _WORD == 0
            and len(like.variadic_counts) == len(self._layout.variadic_nodes)
            and like.buffers[1] == (self._layout.num_buffers + sum(like.variadic_counts), 2)
        )

    def _scan(self, position: int, like: Likeness, count: int) -> Numbers:
        """Copy the metadata of up to `count` messages, as long as they look alike and their bodies are there."""
        view, size, most = self._view, like.size, self._limits.message_bytes
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
            (body,) = _INT64.unpack_from(piece, like.body_length)
            place = start + size
            position = place + body
            if not 0 <= body <= most or body % _WORD or position > len(view):
                break
            pieces.append(piece)
            places.append(place)
        return numbers_of(b"".join(pieces), places, like)

    def _plain(self, found: Numbers, like: Likeness, dictionaries: Mapping[int, Dictionary]) -> list[Batch]:
        """Return the batches of the messages in front that are surely right, over the memory that they lie in."""
        layout = self._layout
        sizes = found.buffers[:, layout.fixed_buffers(like.variadic_counts), 1]
        right = nodes_are_right(found, layout) & places_are_right(found)
        count = leading(right & sizes_are_right(found, layout, sizes, minimum_sizes(found, layout)))
        spans = np.zeros((*found.buffers.shape[:2], 3), np.int64)
        spans[:, :, 1] = found.buffers[:, :, 0]
        spans[:, :, 1] += (found.places + self._memory.offset)[:, None]
        spans[:, :, 2] = found.buffers[:, :, 1]
        if count:
            count = leading(self._offsets_are_right(found, spans, like, count))
        return self._made(found, spans, like, dictionaries, count)

    def _offsets_are_right(self, found: Numbers, spans: Table, like: Likeness, count: int) -> Flags:
        """Whether first and last offsets lie in what they delimit, as `check_offsets` would find."""
        layout = self._layout
        fine = np.ones(count, np.bool_)
        fixed = layout.fixed_buffers(like.variadic_counts)
        for group in layout.offset_groups:
            lengths = found.nodes[:count, group[:, _NODE], 0]
            buffers, width = fixed[group[:, _BUFFER]], int(group[0, _WIDTH])
            if group[0, _CHILD] >= 0:
                limits = found.nodes[:count, group[:, _CHILD], 0]
            else:
                limits = spans[:count, buffers + 1, 2]
            region = self._memory.region
            whole = region.array(0, region.nbytes // width * width).view(f"<i{width}")
            # Where there are no slots there may be no offsets either: any number stands for them.
            used = lengths > 0
            first = np.where(used, spans[:count, buffers, 1] // width, 0)
            begin, end = whole[first], whole[first + lengths]
            fine &= all_of((begin >= 0) & (end >= begin) & (end <= limits) | ~used)
        return fine

    def _made(
        self,
        found: Numbers,
        spans: Table,
        like: Likeness,
        dictionaries: Mapping[int, Dictionary],
        count: int,
    ) -> list[Batch]:
        regions, lease = (self._memory.region,), self._memory.lease
        return [
            Batch.from_parts(
                self._layout,
                length,
                nodes,
                variadic_counts=like.variadic_counts,
                dictionaries=dictionaries,
                lease=lease,
                spans=table,
                regions=regions,
            )
            for length, nodes, table in zip(
                found.lengths[:count].tolist(), found.nodes[:count], spans[:count], strict=True
            )
        ]
