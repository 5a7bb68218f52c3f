"""How an attempt describes what it wrote, and the data set that this becomes over the slabs lent to it.

One part is one IPC message: its metadata, and slab (as borrowed), offset and length of each buffer of its body::

    u32 length of the metadata | u32 number of buffers | metadata, padded to 8 | i64 × 3 for each buffer

The parts are checked like what a reader receives; readers get what passes as the writer encoded it.
"""

from __future__ import annotations

import copy
import dataclasses
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring import errors
from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import batch_parts, make_batch
from bowstring.depot.slabs import Piece
from bowstring.dissociated.items import IpcMessage
from bowstring.ipc.body.check import check_offsets, check_pairs
from bowstring.ipc.body.decode import BatchDecoder
from bowstring.ipc.dictionary.reader import DictionaryMemo
from bowstring.ipc.flatbuf.message import (
    MessageKind,
    MetadataVersion,
    decode_dictionary,
    decode_message,
    decode_record_batch,
)
from bowstring.ipc.flatbuf.schema import decode_schema
from bowstring.server.materialized import MaterializedSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from bowstring.ipc.flatbuf.message import Message, RecordBatchHeader
    from bowstring.limits import Limits
    from bowstring.memory import Region

_HEAD: Final = struct.Struct("<II")
_ROW: Final = 3
_ROW_BYTES: Final = 24


def pack_part(metadata: bytes, table: npt.NDArray[np.int64]) -> list[bytes]:
    """Return the pieces of one part; `table` has slab, offset and length of each buffer, shape (buffers, 3)."""
    head = _HEAD.pack(len(metadata), len(table))
    return [head, metadata, bytes(-len(metadata) % 8), np.ascontiguousarray(table, "<i8").tobytes()]


def unpack_parts(body: Any) -> Iterator[tuple[bytes, npt.NDArray[np.int64]]]:
    """Yield metadata and table of each part of a message."""
    view = memoryview(body).cast("B")
    at = 0
    while at < len(view):
        start = at + _HEAD.size
        length, count = _HEAD.unpack_from(view, at) if start <= len(view) else (len(view), 0)
        rows = start + -(-length // 8) * 8
        end = rows + count * _ROW_BYTES
        if end > len(view):
            raise errors.ProtocolError(
                "a part of an attempt is cut short", found=f"a message of {len(view)} bytes"
            )
        table = np.frombuffer(view, "<i8", count * _ROW, rows).reshape(-1, _ROW).astype(np.int64)
        yield bytes(view[start : start + length]), table
        at = end


_ALIGNMENT: Final = 8
_MOST_METADATA: Final = 1 << 30


class Rebuilder:
    """Turns the parts of one attempt into a data set."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._memo = DictionaryMemo()
        self._layout: Layout | None = None
        # A kernel that reads ordinary batches; others, and those that are not right, are left to the checks below.
        self._decoder: BatchDecoder | None = None
        self._metadata_bytes = 0
        self.schema: pa.Schema | None = None
        self._batches: list[Batch] = []
        self._encoded: list[IpcMessage] = []

    def source(self) -> MaterializedSource:
        """Return the data set of what was taken; its metadata stay encoded as the writer sent them."""
        return MaterializedSource.of_placed(self.schema, self._batches, self._encoded)

    def take(self, metadata: bytes, table: npt.NDArray[np.int64], regions: Sequence[Region]) -> None:
        self._metadata_bytes += len(metadata)
        if self._metadata_bytes > _MOST_METADATA:
            raise errors.LimitExceeded(
                "the metadata of one attempt are too large", expected=f"at most {_MOST_METADATA} bytes"
            )
        spans = table * (table[:, 2:] != 0)
        if self._decoder is not None and len(regions) == 1 and not (spans[:, 1] % _ALIGNMENT).any():
            decoded = self._decoder.pointed([metadata], 0, [len(spans)], spans, regions)
            if decoded is not None and decoded.codec is None:
                assert self._layout is not None
                rows, *_, nbytes = decoded.heads[0]
                nodes, counts = decoded.nodes[0], decoded.counts[0]
                self._batches.append(
                    make_batch(Batch, self._layout, rows, nodes, None, counts, spans=spans, regions=regions)
                )
                self._encoded.append(IpcMessage(metadata, spans, regions, nbytes=nbytes))
                return
        message = decode_message(metadata, self._limits)
        if message.kind is MessageKind.SCHEMA:
            self._take_schema(message)
            self._encoded.append(IpcMessage(metadata))
            return
        if self._layout is None:
            raise errors.ProtocolError("an attempt says its schema first", found=message.kind.name)
        if message.kind is MessageKind.DICTIONARY_BATCH:
            dictionary = decode_dictionary(message)
            if dictionary.is_delta:
                raise errors.Unsupported("deltas of dictionaries in an attempt")
            layout = self._memo.layout_of(dictionary.id)
            batch = self._batch(message, dictionary.batch, layout, table, regions, inner=True)
            self._memo.take(dictionary.id, batch, is_delta=False)
        else:
            batch = self._batch(message, decode_record_batch(message), self._layout, table, regions)
            self._batches.append(batch)
        used = batch_parts(batch).spans
        self._encoded.append(IpcMessage(metadata, used.table, used.regions, nbytes=batch.nbytes))

    def _take_schema(self, message: Message) -> None:
        if self.schema is not None:
            raise errors.ProtocolError("an attempt has one schema", found="a second one")
        decoded = decode_schema(message, self._limits)
        if decoded.endianness != "little":
            raise errors.Unsupported("big-endian bodies")
        self._layout = decoded.layout
        self._memo.expect(self._layout)
        if not self._layout.dictionaries:
            self._decoder = BatchDecoder.of(self._layout, self._limits)
        self.schema = decoded.schema

    def _batch(
        self,
        message: Message,
        header: RecordBatchHeader,
        layout: Layout,
        table: npt.NDArray[np.int64],
        regions: Sequence[Region],
        *,
        inner: bool = False,
    ) -> Batch:
        if header.compression is not None or message.version is not MetadataVersion.V5:
            raise errors.Unsupported("what lies in a slab must be plain and of metadata version V5")
        check_pairs(header, layout, table[:, 2])
        spans, used = _within(table, regions)
        # Dictionaries inside a dictionary are looked for when a batch uses it.
        dictionaries = {} if inner else self._memo.complete(layout, header.nodes)
        batch = make_batch(
            Batch,
            layout,
            header.length,
            header.nodes,
            spans=spans,
            regions=used,
            variadic_counts=header.variadic_counts,
            dictionaries=dictionaries,
            custom_metadata=message.custom_metadata,
        )
        check_offsets(batch)
        return batch


def pieces_of(source: MaterializedSource) -> list[Piece]:
    """Return what a data set uses of each region that it lies in."""
    pieces: dict[Region, list[int]] = {}
    for item in source.encoded():
        for index, offset, length in () if item.spans is None else item.spans.tolist():
            if length:
                ends = pieces.setdefault(item.regions[index], [offset, 0])
                ends[:] = min(ends[0], offset), max(ends[1], offset + length)
    return [Piece(region, *ends) for region, ends in pieces.items()]


def moved(
    source: MaterializedSource,
    pieces: Iterable[Piece],
    region: Region,
    offsets: Iterable[int],
    limits: Limits,
) -> MaterializedSource:
    """Return the same data set where each of its pieces was copied into one region, to an offset there."""
    by = {piece.region: offset - piece.first for piece, offset in zip(pieces, offsets, strict=True)}
    rebuilder = Rebuilder(limits)
    for item in source.encoded():
        table = np.zeros((0, _ROW), np.int64)
        if item.spans is not None:
            table = item.spans * (item.spans[:, 2:] != 0)
            used = table[:, 2] != 0
            table[used, 1] += np.array([by.get(each, 0) for each in item.regions] or [0])[table[used, 0]]
            table[:, 0] = 0
        rebuilder.take(item.metadata, table, (region,))
    return rebuilder.source()


def _within(
    table: npt.NDArray[np.int64], regions: Sequence[Region]
) -> tuple[npt.NDArray[np.int64], tuple[Region, ...]]:
    """Return the rows of a batch, and the regions that they index: only those that it uses."""
    spans = table * (table[:, 2:] != 0)
    rows = spans[spans[:, 2] != 0]
    if not len(rows):
        return spans, ()
    sizes = np.array([region.nbytes for region in regions] or [0], np.int64)
    slabs, offsets, lengths = rows.T
    known = (slabs >= 0) & (slabs < len(regions))
    room = sizes[np.where(known, slabs, 0)]
    fits = known & (offsets >= 0) & (lengths > 0) & (lengths <= room) & (offsets <= room - lengths)
    if not fits.all() or (offsets % _ALIGNMENT).any():
        raise errors.InvalidBody(
            "a buffer does not lie in what was lent",
            expected=f"8-byte aligned, in one of {len(regions)} slabs",
            found=rows[~fits][:4].tolist() or rows[:4].tolist(),
        )
    used, numbers = np.unique(slabs, return_inverse=True)
    spans[spans[:, 2] != 0, 0] = numbers.reshape(-1)
    return spans, tuple(regions[index] for index in used.tolist())


@dataclasses.dataclass(eq=False, slots=True)
class BegunAttempt:
    """One try of a task to write one partition of a data set."""

    application: str
    dataset: str
    partition: int
    number: int
    readers: int | None
    folder: str
    limits: Limits
    regions: list[Region] = dataclasses.field(default_factory=list)
    rebuilt: Rebuilder = dataclasses.field(init=False)
    _error: errors.BowstringError | None = None

    def __post_init__(self) -> None:
        self.rebuilt = Rebuilder(self.limits)

    def lend(self, region: Region) -> int:
        if len(self.regions) >= self.limits.regions:
            raise errors.LimitExceeded(
                "an attempt borrows too many slabs",
                expected=f"at most {self.limits.regions} (Limits.regions)",
            )
        self.regions.append(region)
        return len(self.regions) - 1

    def hear(self, body: Any) -> None:
        """Take what the attempt says it wrote; what is wrong with it is raised by `check`."""
        if self._error is not None:
            return
        try:
            for metadata, table in unpack_parts(body):
                self.rebuilt.take(metadata, table, tuple(self.regions))
        except errors.BowstringError as error:
            self.fail(error)

    def fail(self, error: errors.BowstringError) -> None:
        """Let the attempt fail with its next request."""
        self._error = self._error or errors.without_frames(error)

    def check(self) -> None:
        if self._error is not None:
            raise copy.copy(self._error) from self._error.__cause__

    def let_go(self, kept: Iterable[int] | None) -> None:
        """Let go of what was lent, but for the slabs in `kept`, all by default, that the writer may still write."""
        for index in range(len(self.regions)) if kept is None else kept:
            if 0 <= index < len(self.regions):
                self.regions[index].retire()
        self.regions = []
        self.rebuilt = Rebuilder(self.limits)
