"""Whole record batch messages made by one call of a kernel: of batches on the host whose layout has a plan.

A batch is one of ours, or pyarrow's, which gives the structs of Arrow's C data interface. What the kernel does not
know goes the general way, :mod:`bowstring.ipc.body.pack`, which writes the same bytes.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.parts import batch_parts, owner_of
from bowstring.ipc.body.pack import compressed_pieces, host_pieces
from bowstring.ipc.framing import ALIGNMENT, frame
from bowstring.kernels.host import ALL_MEMORY, bound
from bowstring.kernels.ipc import batch as kernel
from bowstring.kernels.library import address_of
from bowstring.memory.dlpack import address_in

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch
    from bowstring.ipc.flatbuf.template import Template

# Bodies up to this are joined before they are written: a copy that costs less than many calls.
SMALL_BODY: Final = 1 << 16
_SMALL_BUFFER: Final = 1 << 13  # so are those of many buffers of this size
_MOST_JOINED: Final = 1 << 20
# Bytes of which several threads compress a part each: waking them takes as long as LZ4 does for less.
_WORTH_THREADS: Final = {"lz4": 1 << 20, "zstd": 1 << 18}
_DONE, _GROW, _STATE = int(kernel.DONE), int(kernel.GROW), int(kernel.STATE)
_WORD: Final = 8
_EXTENT: Final = operator.attrgetter("address", "nbytes")
_MEMORY: Final = np.array(ALL_MEMORY)  # the region of structs


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


class _Room:
    """Memory of a call: what a message is written to, and tables, of which `found` is the state at its end."""

    def __init__(self, encoder: BatchEncoder, size: int) -> None:
        num_pieces, num_room, num_nodes = encoder.sizes
        table = np.empty(_STATE + 2 * num_pieces + num_room + num_nodes, np.int64)
        at = address_of(table)
        pieces_at = at + _WORD * _STATE
        room_at = pieces_at + _WORD * num_pieces
        nodes_at = room_at + _WORD * num_room
        self.found = table[:_STATE]
        self.pieces = table[_STATE : _STATE + num_pieces].reshape(-1, 3)
        # Words of the call.
        self.of_struct = nodes_at, num_nodes, nodes_at + _WORD * num_nodes, num_pieces
        self._first, self._last = (room_at, num_room), (pieces_at, num_pieces, at, _STATE)
        self.make_out(size)

    def make_out(self, size: int) -> None:
        self.out = np.empty(size, np.uint8)
        self.out_at = address_of(self.out)
        self.rest = *self._first, self.out_at, size, *self._last


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
        self._metadata = slice(prefix, prefix + len(metadata))
        self._nodes_at, self._num_nodes = places[-1], layout.num_nodes
        self._places = np.array(places, np.int64) + prefix
        self._plan = address_of(layout.plan), layout.plan.size
        self._memory = address_of(_MEMORY), _MEMORY.size
        # Numbers of pieces or spans, of what the kernel notes, and of nodes.
        num_pieces = int(kernel.SPAN) * layout.num_buffers
        self.sizes = num_pieces, int(kernel.ROOM) * layout.num_nodes, 2 * layout.num_nodes
        self._joined = max(SMALL_BODY, min(_SMALL_BUFFER * layout.num_buffers, _MOST_JOINED))
        self._size = len(self._head) + self._joined
        tables = address_of(self._head), self._head.size, address_of(self._places), self._places.size
        self._rest = *tables, self._joined if codec is None else -1
        self._rest_apart = *tables, -1
        self._kept: list[_Room] = []  # for one thread each

    @classmethod
    def of(
        cls, template: Template, codec: pa.Codec | None = None, *, use_threads: bool = True
    ) -> BatchEncoder | None:
        """Return an encoder; None where no library is used, or the layout has no plan."""
        call = bound(kernel.write_batch)
        if call is None or template.layout.plan is None:
            return None
        return cls(template, call, codec, use_threads=use_threads)

    def encode(self, batch: Batch | pa.RecordBatch) -> Encoded | None:
        """Return the message of a batch of the layout; None where it must go the general way."""
        room = self._written(batch, self._rest)
        if room is None:
            return None
        _, body, begins, size = room.found.tolist()
        head = self._head.size
        if begins < 0:
            at, rows = room.out_at, room.pieces.tolist()
            buffers = [(at + start if is_new else start, nbytes) for is_new, start, nbytes in rows]
            owner = batch if isinstance(batch, pa.RecordBatch) else owner_of(batch), room.out
        data = room.out.data
        if 2 * size < data.nbytes and (begins >= 0 or size == head):
            data = memoryview(data[:size].tobytes())
        else:
            room.make_out(self._size)  # sinks may keep what they are given
        self._kept.append(room)
        if self._codec is not None:
            return self._compressed(buffers, owner, data[:head], self._codec)
        if begins < 0:
            pieces = [data[:head], *host_pieces(buffers, owner)]
        elif begins > head:
            pieces = [data[:head], data[begins:size]]
        else:
            pieces = [data[:size]]
        return Encoded(pieces, head, body)

    def lay_out(self, batch: Batch | pa.RecordBatch) -> LaidOut | None:
        """Return the message of a batch whose body does not follow it; None where it must go the general way."""
        room = self._written(batch, self._rest_apart)
        if room is None:
            return None
        metadata = room.out[self._metadata].tobytes()
        nodes = np.frombuffer(metadata, np.int64, 2 * self._num_nodes, self._nodes_at).reshape(-1, 2)
        is_new, starts, sizes = room.pieces.T.copy()
        laid = LaidOut(metadata, nodes, starts + room.out_at * (is_new != 0), sizes, room.out)
        if room.found[-1] > self._head.size:  # something of the body was made anew there
            room.make_out(self._size)
        self._kept.append(room)
        return laid

    def _written(self, batch: Batch | pa.RecordBatch, rest: tuple[int, ...]) -> _Room | None:
        """Have the kernel write a message; None where it does not know something."""
        tables = None
        if isinstance(batch, pa.RecordBatch):
            try:
                batch.validate()
            except pa.ArrowInvalid:
                return None
            capsule = batch.__arrow_c_array__()[1]
            words = address_in(capsule, b"arrow_array"), *self._plan, *self._memory, batch.num_rows
        else:
            parts = batch_parts(batch)
            spans, nodes = parts.spans.table, parts.nodes
            if not (batch.device.is_host and nodes.flags.c_contiguous and spans.flags.c_contiguous):
                return None
            regions = np.array([*map(_EXTENT, parts.spans.regions)], np.int64)
            words = 0, *self._plan, address_of(regions), regions.size, batch.num_rows
            tables = address_of(nodes), nodes.size, address_of(spans), spans.size
        try:
            room = self._kept.pop()
        except IndexError:
            room = _Room(self, self._size)
        tables = tables or room.of_struct
        self._call(*ALL_MEMORY, *words, *tables, *rest, *room.rest)
        if room.found[0] == _GROW:
            room.make_out(int(room.found[-1]))
            self._call(*ALL_MEMORY, *words, *tables, *rest, *room.rest)
        if room.found[0] == _DONE:
            return room
        self._kept.append(room)
        return None

    def _compressed(
        self, buffers: list[tuple[int, int]], owner: object, head: memoryview, codec: pa.Codec
    ) -> Encoded:
        in_threads = (
            self._use_threads and sum([nbytes for _, nbytes in buffers]) >= _WORTH_THREADS[codec.name]
        )
        plain = [pa.foreign_buffer(start, nbytes, owner) for start, nbytes in buffers if nbytes]
        sizes = [nbytes for _, nbytes in buffers]
        lengths, pieces = compressed_pieces(plain, sizes, codec, use_threads=in_threads)
        table: list[int] = []
        body = 0
        for stored in lengths:
            table += body, stored
            body += stored + -stored % ALIGNMENT
        metadata = bytearray(head)
        length_at, _, buffers_at, _ = self._places.tolist()
        struct.pack_into("<q", metadata, length_at, body)
        struct.pack_into(f"<{len(table)}q", metadata, buffers_at, *table)
        pieces[0] = bytes(metadata) + pieces[0]
        if body <= self._joined:
            pieces = [b"".join(pieces)]
        return Encoded(pieces, len(head), body)
