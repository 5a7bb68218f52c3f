"""Reading ahead: record batches of a stream that lies in memory, checked and made many at a time.

Most of what a small batch costs is the price of a call, not of its bytes. The batches of one stream look alike, so
the same few operations check hundreds of them at once. Only what is surely right is taken; any other message, and
whatever is wrong with one, is left where it is, to be read and judged by itself.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from bowstring.ipc.body.message_table import Numbers, can_take, numbers_of
from bowstring.ipc.body.readahead_compressed import decompressed_ahead
from bowstring.ipc.body.readahead_plain import plain_ahead

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bowstring.columnar.batch import Batch
    from bowstring.columnar.dictionary import Dictionary
    from bowstring.columnar.layout import Layout
    from bowstring.ipc.body.template import Likeness
    from bowstring.ipc.compression.codec import Means
    from bowstring.limits import Limits
    from bowstring.memory import Buffer

__all__ = ["ReadAhead"]

_FIRST: Final = 64
_GROWTH: Final = 4
_MOST: Final = 256
_MOST_BYTES: Final = 1 << 20
_WORD: Final = 8
_INT64: Final = struct.Struct("<q")
_PREFIX: Final = struct.Struct("<II")
_CONTINUATION: Final = 0xFFFFFFFF


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
    means
        By what to decompress.
    """

    def __init__(self, layout: Layout, memory: Buffer, limits: Limits, means: Means) -> None:
        self._layout = layout
        self._memory = memory
        self._view = memory.to_host().data
        self._limits = limits
        self._most = _FIRST
        self._means = means

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
        batches = [] if found is None else self._made(found, like, dictionaries)
        # As far as it went well, for whoever writes dictionaries or other messages in between.
        self._most = _GROWTH * wanted if len(batches) == wanted else max(1, len(batches))
        if found is not None and batches:
            last = len(batches) - 1
            position = int(found.places[last] + found.bodies[last])
        return batches, position

    def _made(self, found: Numbers, like: Likeness, dictionaries: Mapping[int, Dictionary]) -> list[Batch]:
        if like.compression is None:
            return plain_ahead(found, like, self._layout, self._memory, dictionaries)
        parts = (found, like, self._layout, self._memory, dictionaries)
        return decompressed_ahead(*parts, self._limits, self._means)

    def _can_take(self, position: int, like: Likeness) -> bool:
        return (
            can_take(like, self._layout)
            and self._memory.address % _WORD == position % _WORD == 0
            and self._memory.region.address % _WORD == 0
        )

    def _scan(self, position: int, like: Likeness, count: int) -> Numbers | None:
        """Copy the metadata of up to `count` messages, as long as they look alike and their bodies are there.

        None where not even the first does.
        """
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
        return numbers_of(b"".join(pieces), places, like) if pieces else None
