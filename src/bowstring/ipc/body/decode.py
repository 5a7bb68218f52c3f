"""Record batch messages read by one call of a kernel, many or one: decoded, checked, and their buffers placed.

What the kernel does not know, and what is wrong, is left to :mod:`bowstring.ipc.body.check`, message by message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bowstring.columnar.batch import Batch
from bowstring.columnar.parts import Dictionaries, Parts, unread_batch
from bowstring.columnar.spans import Spans, region_table
from bowstring.ipc.flatbuf.message import CODECS
from bowstring.kernels.host import ALL_MEMORY, bound
from bowstring.kernels.ipc import batch
from bowstring.kernels.ipc import read as kernel
from bowstring.kernels.library import address_of
from bowstring.limits import Limits
from bowstring.memory import Buffer, Lease, Region

if TYPE_CHECKING:
    from bowstring.columnar.layout import Layout

    Table = npt.NDArray[np.int64]

_STREAM, _PACKED, _POINTED, _LISTED = map(int, (kernel.STREAM, kernel.PACKED, kernel.POINTED, kernel.LISTED))
_HEADS, _STATE, _PLACE = int(kernel.HEADS), int(kernel.READ_STATE), int(kernel.PLACE)
_SPAN, _SPANS, _GROW = 3, (-1, 3), int(batch.GROW)
_WORD: Final = 8
_INT64: Final = np.dtype(np.int64)
_MOST_WORDS: Final = (1 << 16) // _WORD  # of the tables of one call: a batch that is kept keeps them
_MOST: Final = 256
_MOST_TOGETHER: Final = 64 << 20  # bytes that are decompressed in one call, but for the last batch
_LARGEST: Final = 1 << 62
_LONGEST_METADATA: Final = (1 << 31) - 1


# Of a head: its first span, how many it has, where its body lies in the region, and the bytes of its buffers.
FIRST, COUNT, BEGIN, END, NBYTES = 1, 2, 3, 4, 5

Head = tuple[int, int, int, int, int, int]


class Decoded(NamedTuple):
    """Valid messages, decoded by one call of a kernel."""

    codec: str | None  # of the bodies: "lz4", "zstd" or None
    heads: list[Head]  # one per message; the tables may be longer
    nodes: Table  # int64, shape (messages, nodes, 2)
    counts: list[tuple[int, ...]]  # variadic counts of each message
    spans: Table  # int64, shape (spans, 3); of a compressed body the first number is the claimed length

    def maker(
        self, layout: Layout, regions: Sequence[Region], dictionaries: Dictionaries, lease: Lease | None
    ) -> Callable[[int], Batch]:
        """Return what makes a batch, given its index, of bodies that are not compressed."""
        _, heads, nodes, counts, spans = self
        device = regions[0].device

        def parts(index: int) -> Parts:
            _, first, count, *_ = heads[index]
            return Parts(layout, nodes[index], Spans(spans[first : first + count], regions), counts[index])

        def batch(index: int) -> Batch:
            own = Lease(regions) if lease is None else lease
            return unread_batch(Batch, layout, heads[index][0], dictionaries, own, device, parts, index)

        return batch


class BatchDecoder:
    """Reads the record batches of one layout."""

    def __init__(self, layout: Layout, limits: Limits, call: Callable[..., None]) -> None:
        plan = layout.reading_plan
        assert plan is not None
        bounds = np.array(
            [
                min(int(limits.metadata_bytes), _LONGEST_METADATA),
                min(int(limits.message_bytes), _LARGEST),
                min(int(limits.decompressed_bytes), _LARGEST),
                min(int(limits.decompression_floor), _LARGEST),
                _MOST_TOGETHER,
            ],
            np.int64,
        )
        self._tables = plan, bounds
        words = address_of(plan), plan.size, address_of(bounds), bounds.size
        self._first = *ALL_MEMORY, *words, float(limits.decompression_ratio)
        self._call = call
        self._num_nodes, self._views = layout.num_nodes, len(layout.variadic_nodes)
        # Rows of spans of a batch, as many as the last call needed: those of views differ.
        self._spans = layout.num_buffers
        self._last: tuple[tuple[int, int], Table] = (0, 0), plan

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
        """Read up to `most` messages of a stream in memory of the host; None where the first is not right."""
        region = self._region(memory)
        return self._read((address_of(region), 2, 0, 0), _STREAM, position, most)

    def listed(self, memory: Buffer, blocks: Table, first: int, most: int) -> Decoded | None:
        """Read up to `most` messages of a file in memory of the host; None where the first is not right.

        Of each block, `blocks` has the place in the region of `memory` and the bytes of metadata and body.
        """
        region = self._region(memory)
        words = address_of(region), 2, address_of(blocks), blocks.size
        return self._read(words, _LISTED, first, min(most, len(blocks) - first))

    def _region(self, memory: Buffer) -> Table:
        """Return the table of one region, which ends where some memory does."""
        where = memory.region.address, memory.offset + memory.nbytes
        known, region = self._last
        if known != where:
            region = np.array(where)
            self._last = where, region
        return region

    def one(self, metadata: bytes, body: Buffer) -> Decoded | None:
        """Read one message, whose body is that of a stream or a file; None where it is not right."""
        region, data = body.region, np.frombuffer(metadata, np.uint8)
        is_host = region.device.is_host
        if not is_host and body.address % _WORD:
            return None
        address = region.address if is_host else 0
        words = np.array((address, region.nbytes, address_of(data), data.size, 0, body.offset, body.nbytes))
        at = address_of(words)
        return self._read((at, 2, at + 2 * _WORD, _PLACE), _PACKED, 0, 1)

    def run(self, messages: npt.NDArray[np.uint8], bodies: Buffer, body: int) -> Decoded | None:
        """Read messages whose bodies are equally long and lie one behind the other."""
        count = min(len(messages), self.most(self._spans))
        places = np.zeros((count, _PLACE), np.int64)
        places[:, 0] = address_of(messages) + messages.strides[0] * np.arange(count)
        places[:, 1] = messages.shape[1]
        places[:, 3] = bodies.offset + body * np.arange(count)
        places[:, 4] = body
        regions = region_table((bodies.region,))
        words = address_of(regions), regions.size, address_of(places), places.size
        return self._read(words, _PACKED, 0, count)

    def pointed(
        self,
        messages: Sequence[bytes],
        skipped: int,
        counts: Sequence[int],
        spans: Table,
        regions: Sequence[Region],
    ) -> Decoded | None:
        """Read messages, each behind `skipped` bytes, whose buffers lie anywhere: `counts` rows of `spans`."""
        data = np.frombuffer(b"".join(messages), np.uint8)
        rows, at = [], address_of(data)
        for message, count in zip(messages, counts, strict=False):
            rows.append((at + skipped, len(message) - skipped, 0, 0, count))
            at += len(message)
        places, table = np.array(rows, np.int64), region_table(regions)
        words = address_of(table), table.size, address_of(places), places.size
        return self._read(words, _POINTED, 0, len(rows), spans)

    def _read(
        self,
        words: tuple[int, int, int, int],
        how: int,
        start: int,
        most: int,
        given: Table | None = None,
        wanted: int = 0,
    ) -> Decoded | None:
        """Call the kernel, once more if it says how many spans are `wanted`; `words` tell of regions and places."""
        views, num_spans = self._views, wanted or self._spans
        if most > 1 and how in (_STREAM, _LISTED):
            most = min(most, self.most(num_spans))
        to_nodes = _STATE + _HEADS * most
        to_counts = to_nodes + 2 * self._num_nodes * most
        to_spans = to_counts + views * most
        size = to_spans if given is not None else to_spans + _SPAN * num_spans * most
        # Of this call's own, since other threads may read, too.
        room = np.empty(size, _INT64)
        at = address_of(room)
        to = (at + _WORD * to_spans, size - to_spans) if given is None else (address_of(given), given.size)
        self._call(*self._first, *words, how, start, most, *to, at, to_spans)
        results = room[:to_nodes].tolist()
        done, why, codec, needed = results[:_STATE]
        if not done:
            # Memory that changes meanwhile may need more again.
            if why != _GROW or given is not None or wanted or needed * _SPAN > _MOST_WORDS:
                return None
            return self._read(words, how, start, 1, wanted=needed)
        head = results[_STATE : _STATE + _HEADS * done]
        heads = [tuple(head)] if done == 1 else [*zip(*[iter(head)] * _HEADS, strict=True)]
        nodes = room[to_nodes:to_counts].reshape(most, self._num_nodes, 2)
        variadic: list[tuple[int, ...]] = [()] * done
        if views:
            variadic = [tuple(each) for each in room[to_counts:to_spans].reshape(most, views).tolist()]
            self._spans = max(each[COUNT] for each in heads)
        spans = given
        if spans is None:
            spans = room[to_spans:].reshape(_SPANS)
            used = heads[-1][FIRST] + heads[-1][COUNT]
            if 2 * (2 * self._num_nodes * done + _SPAN * used) < size:
                # The batches would keep all of a table that is mostly empty.
                nodes, spans = nodes[:done].copy(), spans[:used].copy()
        return Decoded(None if codec < 0 else CODECS[codec], heads, nodes, variadic, spans)
