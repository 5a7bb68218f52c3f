"""Whole record batch messages made by one call of a kernel: of batches on the host whose layout has a plan.

What the kernel does not know goes the general way, :mod:`bowstring.ipc.body.pack`, which writes the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.ipc.body.pack import host_pieces
from bowstring.ipc.compression.codec import all_compressed
from bowstring.ipc.framing import ALIGNMENT, frame
from bowstring.kernels.host import ALL_MEMORY, bound
from bowstring.kernels.ipc import batch as kernel
from bowstring.kernels.library import address_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    import pyarrow as pa

    from bowstring.columnar.batch import Batch
    from bowstring.ipc.flatbuf.template import Template

SMALL_BODY: Final = 1 << 16
"""Bodies up to this are joined before they are written: a copy that costs less than many calls."""
_SMALL_BUFFER: Final = 1 << 13
"""So are those of many buffers of this size."""
_MOST_JOINED: Final = 1 << 20
_WORTH_THREADS: Final = {"lz4": 1 << 20, "zstd": 1 << 18}
"""Bytes of which several threads compress a part each: waking them takes as long as LZ4 does for less."""
_DONE, _GROW, _STATE = int(kernel.DONE), int(kernel.GROW), int(kernel.STATE)


class Encoded(NamedTuple):
    """A message: pieces of memory, the bytes before its body, and of its body."""

    pieces: list[Any]
    head: int
    body: int


class LaidOut(NamedTuple):
    """A message without its body, and where the buffers lie of which that consists: no more than it needs."""

    metadata: bytes  # without a prefix
    nodes: npt.NDArray[np.int64]  # shape (nodes, 2): length and null count
    addresses: npt.NDArray[np.int64]  # of the buffers
    sizes: npt.NDArray[np.int64]  # their bytes; where there are none, the address means nothing
    owner: object  # holds what had to be made anew; the batch holds the rest


class BatchEncoder:
    """Makes the messages of the batches of one layout, one at a time, by a kernel."""

    def __init__(
        self, template: Template, call: Callable[..., None], codec: pa.Codec | None, *, use_threads: bool
    ) -> None:
        metadata, places = template.form(None if codec is None else codec.name)
        layout = template.layout
        assert layout.plan is not None
        self._call = call
        self._codec = codec
        self._use_threads = use_threads
        prefix = len(frame(b"", alignment=8))
        self._head = np.frombuffer(frame(metadata), np.uint8)
        self._places = np.array(places, np.int64) + prefix
        tables = layout.plan, self._head, self._places
        self._plan, self._template, self._places_at = [(address_of(each), each.size) for each in tables]
        self._metadata = slice(prefix, prefix + len(metadata))
        self._nodes_at, self._num_nodes = places[-1], layout.num_nodes
        self._sizes = int(kernel.ROOM) * layout.num_nodes, int(kernel.SPAN) * layout.num_buffers
        joined = max(SMALL_BODY, min(_SMALL_BUFFER * layout.num_buffers, _MOST_JOINED))
        self._size = len(self._head) + joined
        self._most = joined if codec is None else -1
        self._kept: list[npt.NDArray[np.uint8]] = []

    @classmethod
    def of(
        cls, template: Template, codec: pa.Codec | None = None, *, use_threads: bool = True
    ) -> BatchEncoder | None:
        """Return an encoder; None where no library is used, or the layout has no plan."""
        call = bound(kernel.write_batch)
        if call is None or template.layout.plan is None:
            return None
        return cls(template, call, codec, use_threads=use_threads)

    def encode(self, batch: Batch) -> Encoded | None:
        """Return the message of a batch of the layout; None where it must go the general way."""
        written = self._write(batch, self._most)
        if written is None:
            return None
        out, spans, _, (_, body, begins, size) = written
        head = self._head.size
        if self._codec is not None:
            return self._compressed(batch, out, spans)
        if 2 * size < out.size:
            # Sinks may keep what they are given: copies of little, so that the room can be used again.
            self._kept.append(out)
            out = np.frombuffer(out[:size].tobytes(), np.uint8)
        if begins >= 0:
            pieces = [out[:size].data] if begins == head else [out[:head].data, out[begins:size].data]
            return Encoded(pieces, head, body)
        pieces = host_pieces(_regions_of(batch, out), spans)
        return Encoded([out[:head].data, *pieces], head, body)

    def lay_out(self, batch: Batch) -> LaidOut | None:
        """Return the message of a batch whose body does not follow it; None where it must go the general way."""
        written = self._write(batch, -1)
        if written is None:
            return None
        out, spans, regions, (*_, size) = written
        metadata = out[self._metadata].tobytes()
        nodes = np.frombuffer(metadata, np.int64, 2 * self._num_nodes, self._nodes_at).reshape(-1, 2)
        bases = np.append(regions[:, 0], address_of(out))
        addresses = spans[:, 1] + bases[spans[:, 0]]
        if size == self._head.size:  # nothing of the body was made anew
            self._kept.append(out)
        return LaidOut(metadata, nodes, addresses, spans[:, 2], out)

    def _write(
        self, batch: Batch, most: int
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64], list[int]] | None:
        """Have the kernel write a message; return its memory, spans, regions, and the state of the kernel."""
        spans, nodes = batch.spans, batch.nodes
        table = spans.table
        if not (batch.device.is_host and nodes.flags.c_contiguous and table.flags.c_contiguous):
            return None
        regions = np.empty((len(spans.regions), 2), np.int64)
        for index, region in enumerate(spans.regions):
            regions[index] = region.address, region.nbytes
        # Room of this call's own, since other threads may write, too.
        num_room, num_pieces = self._sizes
        room = np.empty(num_room + num_pieces + _STATE, np.int64)
        at = address_of(room)
        pieces_at = at + 8 * num_room
        try:
            out = self._kept.pop()
        except IndexError:
            out = np.empty(self._size, np.uint8)
        while True:
            self._call(
                *ALL_MEMORY,
                *self._plan,
                address_of(regions),
                regions.size,
                batch.num_rows,
                address_of(nodes),
                nodes.size,
                address_of(table),
                table.size,
                *self._template,
                *self._places_at,
                most,
                at,
                num_room,
                address_of(out),
                out.size,
                pieces_at,
                num_pieces,
                pieces_at + 8 * num_pieces,
                _STATE,
            )
            state = room[-_STATE:].tolist()
            if state[0] != _GROW:
                break
            out = np.empty(state[-1], np.uint8)
        if state[0] != _DONE:
            return None
        return out, room[num_room:-_STATE].reshape(-1, 3), regions, state

    def _compressed(self, batch: Batch, out: npt.NDArray[np.uint8], spans: npt.NDArray[np.int64]) -> Encoded:
        """Return the message in `out` with the buffers at these spans, each of them compressed."""
        assert self._codec is not None
        regions = _regions_of(batch, out)
        rows = spans.tolist()
        buffers = [regions[region][start : start + nbytes] for region, start, nbytes in rows if nbytes]
        in_threads = (
            self._use_threads and sum([nbytes for *_, nbytes in rows]) >= _WORTH_THREADS[self._codec.name]
        )
        framed = iter(all_compressed(buffers, self._codec, use_threads=in_threads))
        pieces: list[Any] = [b""]
        table: list[int] = []
        body = 0
        for _, _, nbytes in rows:
            stored = 0
            if nbytes:
                prefix, data = next(framed)
                stored = len(prefix) + memoryview(data).nbytes
                pieces += prefix, data, bytes(-stored % ALIGNMENT)
            table += body, stored
            body += stored + -stored % ALIGNMENT
        head = out[: self._head.size].copy()
        length_at, _, buffers_at, _ = self._places.tolist()
        head[length_at : length_at + 8] = np.frombuffer(np.int64(body).tobytes(), np.uint8)
        head[buffers_at : buffers_at + 8 * len(table)] = np.array(table, np.int64).view(np.uint8)
        pieces[0] = head.data
        if body <= _MOST_JOINED:
            # Else what is stored may lie in the room, and sinks may keep what they are given.
            pieces = [b"".join(pieces)]
            self._kept.append(out)
        return Encoded(pieces, head.size, body)


def _regions_of(batch: Batch, out: npt.NDArray[np.uint8]) -> list[memoryview]:
    owner = batch.owner()
    return [*[region.array(0, region.nbytes, owner).data for region in batch.spans.regions], out.data]
