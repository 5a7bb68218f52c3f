"""Record batch messages read by one call of a kernel, many or one: decoded, checked, and their buffers placed.

What the kernel does not know, and what is wrong, is left to :mod:`bowstring.ipc.body.check`, message by message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from bowstring.columnar.batch import Batch
from bowstring.columnar.dictionary import Dictionaries
from bowstring.ipc.flatbuf.message import CODECS
from bowstring.kernels.host import ALL_MEMORY, bound
from bowstring.kernels.ipc import batch
from bowstring.kernels.ipc import read as kernel
from bowstring.kernels.library import address_of
from bowstring.memory import Lease

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from bowstring.columnar.dictionary import Dictionary
    from bowstring.columnar.layout import Layout
    from bowstring.limits import Limits
    from bowstring.memory import Buffer, Region

    Table = npt.NDArray[np.int64]

_STREAM, _PACKED, _POINTED = int(kernel.STREAM), int(kernel.PACKED), int(kernel.POINTED)
_HEADS, _STATE, _PLACE = int(kernel.HEADS), int(kernel.READ_STATE), int(kernel.PLACE)
_SPAN, _GROW = 3, int(batch.GROW)
_WORD: Final = 8
_MOST_WORDS: Final = (1 << 16) // _WORD
"""Of the tables of one call: a batch that is kept keeps them."""
_MOST: Final = 256
_MOST_TOGETHER: Final = 64 << 20
"""Bytes that are decompressed in one call, but for the last batch."""
_LARGEST: Final = 1 << 62
_LONGEST_METADATA: Final = (1 << 31) - 1


class Decoded(NamedTuple):
    """Messages that are right, from one call.

    Attributes
    ----------
    codec
        Of the bodies: ``"lz4"``, ``"zstd"``, or none.
    heads
        Of each message its rows, its first span, how many it has, where its body ends in the region, and the bytes
        of its buffers as the metadata say.
    nodes : ndarray of int64, shape (messages, nodes, 2)
    counts : ndarray of int64, shape (messages, nodes with variadic buffers)
    spans : ndarray of int64, shape (spans, 3)
        Of compressed bodies the first number is the claim of a buffer.
    """

    codec: str | None
    heads: list[tuple[int, int, int, int, int]]
    nodes: Table
    counts: Table
    spans: Table

    def batches(
        self,
        layout: Layout,
        regions: Sequence[Region],
        dictionaries: Mapping[int, Dictionary],
        lease: Lease | None,
    ) -> Iterator[Batch]:
        """Yield the batches of bodies that are not compressed, each made when it is asked for."""
        held = Dictionaries(dictionaries)
        made, spans = Batch.from_parts, self.spans
        counts = self.counts.tolist() if self.counts.size else [()] * len(self.heads)
        for (rows, first, many, _, _), nodes, variadic in zip(self.heads, self.nodes, counts, strict=True):
            table = spans[first : first + many]
            yield made(layout, rows, nodes, None, variadic, held, lease, spans=table, regions=regions)


class BatchDecoder:
    """Reads the record batches of one layout.

    Parameters
    ----------
    layout
        With a plan for reading.
    limits
        Of metadata, bodies, and what is decompressed.
    call
        The kernel, bound.
    """

    def __init__(self, layout: Layout, limits: Limits, call: Callable[..., None]) -> None:
        plan = layout.reading_plan
        assert plan is not None
        most = limits.metadata_bytes, limits.message_bytes, limits.decompressed_bytes
        bounds = min(most[0], _LONGEST_METADATA), *most[1:], limits.decompression_floor, _MOST_TOGETHER
        self._tables = plan, np.array([min(each, _LARGEST) for each in bounds], np.int64)
        self._first = (
            *ALL_MEMORY,
            *(word for table in self._tables for word in (address_of(table), table.size)),
            float(limits.decompression_ratio),
        )
        self._call = call
        self._num_nodes, self._views = layout.num_nodes, len(layout.variadic_nodes)
        # Rows of spans, as many as the last batch had: those of views differ.
        self._spans = layout.num_buffers

    @classmethod
    def of(cls, layout: Layout, limits: Limits) -> BatchDecoder | None:
        """Return a decoder; None where no library is used, or the layout has no plan."""
        call = bound(kernel.read_batches)
        return None if call is None or layout.reading_plan is None else cls(layout, limits, call)

    def most(self, spans: int) -> int:
        """Return how many messages of so many buffers one call reads at most."""
        words = 2 * self._num_nodes + self._views + _SPAN * spans + _HEADS
        return max(1, min(_MOST, _MOST_WORDS // words))

    def stream(self, memory: Buffer, position: int, most: int) -> Decoded | None:
        """Read up to `most` messages of a stream in memory of the host; None where the first is not right.

        Parameters
        ----------
        memory
            All of the stream.
        position
            Where in its region the next message begins.
        most
            How many.
        """
        regions = np.array([memory.region.address, memory.offset + memory.nbytes], np.int64)
        return self._read(regions, None, _STREAM, position, min(most, self.most(self._spans)))

    def one(self, metadata: bytes, body: Buffer) -> Decoded | None:
        """Read one message, whose body is that of a stream or a file; None where it is not right."""
        region, data = body.region, np.frombuffer(metadata, np.uint8)
        if not region.device.is_host and body.address % _WORD:
            return None
        regions = _table_of((region,))
        places = np.array([address_of(data), data.size, 0, body.offset, body.nbytes], np.int64)
        return self._read(regions, places, _PACKED, 0, 1)

    def run(self, messages: npt.NDArray[np.uint8], bodies: Buffer, body: int) -> Decoded | None:
        """Read messages whose bodies are equally long and lie one behind the other.

        Parameters
        ----------
        messages : ndarray of uint8, shape (messages, bytes)
            Their metadata.
        bodies
            All bodies, on the host.
        body
            Bytes of each.
        """
        count = min(len(messages), self.most(self._spans))
        places = self._places(messages, count)
        places[:, 3] = bodies.offset + body * np.arange(count)
        places[:, 4] = body
        return self._read(_table_of((bodies.region,)), places, _PACKED, 0, count)

    def pointed(
        self, messages: npt.NDArray[np.uint8], spans: Table, regions: Sequence[Region]
    ) -> Decoded | None:
        """Read messages whose buffers lie anywhere.

        Parameters
        ----------
        messages : ndarray of uint8, shape (messages, bytes)
            Their metadata.
        spans : ndarray of int64, shape (messages, buffers, 3)
            Where the buffers of each lie; it becomes the table of what is returned.
        regions
            What the spans point into. Offsets in memory of a device are not looked at.
        """
        places = self._places(messages, len(messages))
        places[:, 4] = spans.shape[1]
        return self._read(_table_of(regions), places, _POINTED, 0, len(messages), spans.reshape(-1, _SPAN))

    @staticmethod
    def _places(messages: npt.NDArray[np.uint8], count: int) -> Table:
        places = np.zeros((count, _PLACE), np.int64)
        places[:, 0] = address_of(messages) + messages.strides[0] * np.arange(count)
        places[:, 1] = messages.shape[1]
        return places

    def _read(
        self,
        regions: Table,
        places: Table | None,
        how: int,
        start: int,
        most: int,
        given: Table | None = None,
    ) -> Decoded | None:
        sizes = [2 * self._num_nodes, self._views, 0 if given is not None else _SPAN * self._spans, _HEADS]
        nodes_words, counts_words, spans_words, heads_words = [each * most for each in sizes]
        # Of this call's own, since other threads may read, too.
        room = np.empty(nodes_words + counts_words + spans_words + heads_words + _STATE, np.int64)
        at = address_of(room)
        counts = at + _WORD * nodes_words
        spans = counts + _WORD * counts_words
        heads = spans + _WORD * spans_words
        self._call(
            *self._first,
            address_of(regions),
            regions.size,
            0 if places is None else address_of(places),
            0 if places is None else places.size,
            how,
            start,
            most,
            at,
            nodes_words,
            counts,
            counts_words,
            spans if given is None else address_of(given),
            spans_words if given is None else given.size,
            heads,
            heads_words,
            heads + _WORD * heads_words,
            _STATE,
        )
        done, why, codec, wanted = room[-_STATE:].tolist()
        if not done:
            if why != _GROW or given is not None or wanted * _SPAN > _MOST_WORDS:
                return None
            self._spans = wanted
            return self._read(regions, places, how, start, 1)
        to = nodes_words + counts_words
        return Decoded(
            CODECS.get(codec),
            room[to + spans_words : -_STATE].reshape(most, _HEADS)[:done].tolist(),
            room[:nodes_words].reshape(most, self._num_nodes, 2)[:done],
            room[nodes_words:to].reshape(most, self._views)[:done],
            room[to : to + spans_words].reshape(-1, _SPAN) if given is None else given,
        )


def _table_of(regions: Sequence[Region]) -> Table:
    """Return address and bytes of each region; an address of 0 where the host must not look."""
    return np.array([(each.address if each.device.is_host else 0, each.nbytes) for each in regions], np.int64)
