r"""The file format: a stream between ``ARROW1\0\0`` and a footer that says where its batches are."""

from __future__ import annotations

import functools
import itertools
import operator
import struct
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.chunked import unify_dictionaries
from bowstring.columnar.validation import check_once, checked_choice
from bowstring.errors import BowstringError, InvalidMetadata, UsageError
from bowstring.ipc.body.encode import Encoded
from bowstring.ipc.decoder import GROWTH, MOST_AHEAD, Decoder, DeviceTarget, ReadAhead
from bowstring.ipc.dictionary.reader import Arrival
from bowstring.ipc.flatbuf import footer as file_footer
from bowstring.ipc.flatbuf.footer import FILE_MAGIC, FILE_START, Block
from bowstring.ipc.flatbuf.message import Message, MessageKind, decode_message, decode_record_batch
from bowstring.ipc.flatbuf.schema import decode_schema
from bowstring.ipc.framing import read_metadata
from bowstring.ipc.options import IpcReadOptions, check_reading
from bowstring.ipc.reader import ReadCounts, RecordBatchReader, RecordBatchWithMetadata
from bowstring.ipc.source import Source, open_source
from bowstring.ipc.writer import RecordBatchWriter
from bowstring.limits import Limits, limits_or_default
from bowstring.memory import Device

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch
    from bowstring.columnar.parts import Validated

_LENGTH = struct.Struct("<i")
_MOST_SHOWN = 500


class RecordBatchFileReader(RecordBatchReader):
    """Reads the batches of an Arrow IPC file in any order, also named `open_file`; it reads the footer at once.

    Batches keep the memory that they lie in alive, also after the reader is closed. Several threads may read at
    once. Iterating over a reader reads all batches, each time.

    Attributes
    ----------
    metadata : dict of bytes to bytes, or None
        Key-value pairs of the footer.

    Parameters
    ----------
    source
        A path (memory-mapped), bytes or anything with the buffer protocol (batches are slices of it), or a
        binary file that can seek: what is needed of each body is read into memory of its own, or is a slice of
        an ``io.BytesIO``, a ``pyarrow.BufferReader`` or a memory map as it was when it was opened.
    footer_offset
        Where the file ends, if something else follows it: bytes from the beginning of the source.
    options, memory_pool, limits, device, trusted, validate
        As of :class:`RecordBatchStreamReader`.

    Raises
    ------
    InvalidData
        The bytes are not an Arrow file, or its footer is malformed or says another schema than its first message.
    Unsupported
        It holds a type that is not known.
    UsageError
        The source cannot seek.

    Examples
    --------
    >>> import pyarrow as pa
    >>> sink = pa.BufferOutputStream()
    >>> with new_file(sink, pa.schema({"a": pa.int64()})) as writer:
    ...     writer.write_batch(pa.record_batch({"a": [1, 2]}))
    ...     writer.write_batch(pa.record_batch({"a": [3]}))
    >>> with open_file(sink.getvalue()) as reader:
    ...     reader.num_record_batches, reader.get_batch(1).num_rows
    (2, 1)
    """

    _decoder: Decoder

    def __init__(
        self,
        source: Any,
        footer_offset: int | None = None,
        *,
        options: Any = None,
        memory_pool: pa.MemoryPool | None = None,
        limits: Limits | None = None,
        device: Device | str | None = None,
        trusted: bool = False,
        validate: Validated = "structure",
    ) -> None:
        limits = limits_or_default(limits)
        check_reading(limits, memory_pool)
        self._checks = checked_choice(validate) == "full"
        self._limits = limits
        self._counts = ReadCounts()
        chosen, target = IpcReadOptions.of(options), DeviceTarget.of(device, trusted=trusted)
        self._turn = threading.RLock()
        self._source: Source | None = open_source(source, memory_pool, whole=True)
        try:
            footer = file_footer.read_footer(
                self._source, _footer_end(footer_offset, self._source.size()), limits
            )
            _check_first_schema(self._source, footer, limits)
            self._decoder = Decoder(footer.schema, chosen, limits, target=target, memory_pool=memory_pool)
        except BaseException:
            self.close()
            raise
        self._counts.messages = 1
        self._end = footer.start
        self._batch_blocks = footer.batches
        self._overlaps = file_footer.overlapping(footer.batches, footer.start)
        memory = self._source.memory()
        reads_ahead = memory is not None and self._decoder.reads_ahead(memory)
        self._memory = memory.slice(0, footer.start) if memory is not None and reads_ahead else None
        # Which batch is the first of those that were read together, and these.
        self._ahead = -1, ReadAhead()
        self._dictionary_blocks: npt.NDArray[np.void] | None = footer.dictionaries
        self.metadata = footer.metadata

    @property
    def num_record_batches(self) -> int:
        """The number of batches."""
        return len(self._batch_blocks)

    def get_batch(self, i: int) -> Batch:
        """Return a batch.

        Parameters
        ----------
        i
            From 0.

        Raises
        ------
        UsageError
            There is no such batch.
        InvalidData
            The footer says something else than what is there, or what is there is malformed.
        ClosedError
            The reader was closed.
        """
        count = len(self._batch_blocks)
        try:
            index = operator.index(i)  # as Python's: those of NumPy overflow
        except TypeError:
            index = -1
        if not 0 <= index < count:
            raise UsageError("no such batch", expected=f"0 to {count - 1}", found=repr(i))
        with self._turn:
            first, ahead = self._ahead
            at = index - first
            batch = ahead.batch(at) if 0 <= at < len(ahead.heads) else None
            if batch is None and self._memory is not None:
                batch = self._from_memory(index, at, ahead)
            if batch is None:
                batch = self._alone(index)
            else:
                self._counts.messages += 1
            self._counts.batches += 1
        return check_once(batch) if self._checks else batch

    get_record_batch = get_batch

    def _from_memory(self, i: int, at: int, before: ReadAhead) -> Batch | None:
        """Return a batch out of memory, and more behind it in readiness; None where it needs more care.

        It is `at` batches behind the first of those that were read `before`.
        """
        if self._dictionary_blocks is not None:
            self._read_dictionaries()
        assert self._memory is not None
        count = len(before.heads) or 1
        most = min(GROWTH * count, MOST_AHEAD) if at == count else 1
        ahead = self._decoder.ahead(self._memory, i, most, self._listed)
        self._ahead = i, ahead
        return ahead.batch(0)

    def _alone(self, i: int) -> Batch:
        block, where = self._batch_block(i)
        self._read_dictionaries()
        message = self._message(block, MessageKind.RECORD_BATCH, where)
        body = self._check_open().body(message.body_length, self._decoder.parts_of_body(message))
        return self._decoder.batch(message, body)

    @functools.cached_property
    def _listed(self) -> npt.NDArray[np.int64]:
        """The blocks of the batches as the decoder takes them: in their region, or nowhere if not right."""
        offsets, metadata, bodies = (self._batch_blocks[name].astype(np.int64) for name in Block._fields)
        assert self._memory is not None
        wrong = self._overlaps | (offsets < len(FILE_START)) | ((offsets | metadata | bodies) % 8 != 0)
        offsets += self._memory.offset
        offsets[wrong] = -1
        return np.stack((offsets, metadata, bodies), axis=1)

    def get_batch_with_custom_metadata(self, i: int) -> RecordBatchWithMetadata:
        """Return a batch and the key-value pairs of its message, which are in the batch, too."""
        batch = self.get_batch(i)
        return RecordBatchWithMetadata(batch, batch.custom_metadata)

    def count_rows(self) -> int:
        """Return how many rows the file has, without reading bodies."""
        total = 0
        for index in range(self.num_record_batches):
            block, where = self._batch_block(index)
            with self._turn:
                total += decode_record_batch(self._message(block, MessageKind.RECORD_BATCH, where)).length
        return total

    def close(self) -> None:
        """Let go of the source; batches that were read live on."""
        with self._turn:
            if self._source is not None:
                self._source.close()
                self._source = self._memory = None
                self._ahead = -1, ReadAhead()

    def __iter__(self) -> Iterator[Batch]:
        self._check_open()
        return (self.get_batch(index) for index in range(self.num_record_batches))

    def _batch_block(self, i: int) -> tuple[Block, str]:
        block, where = Block(*self._batch_blocks[i].tolist()), f"record batch {i}"
        if self._overlaps[i]:
            raise _lies_over_another(block, where)
        return block, where

    def _read_dictionaries(self) -> None:
        if self._dictionary_blocks is None:
            return
        overlaps = file_footer.overlapping(self._dictionary_blocks, self._end)
        self._decoder.memo.expect(self.layout)
        for index, entry in enumerate(self._dictionary_blocks.tolist()):
            block, where = Block(*entry), f"dictionary {index}"
            if overlaps[index]:
                raise _lies_over_another(block, where)
            message = self._message(block, MessageKind.DICTIONARY_BATCH, where)
            if not self._decoder.needs_dictionary(message):
                continue
            body = self._check_open().body(message.body_length)
            arrival = self._decoder.take_dictionary(message, body)
            if arrival is Arrival.REPLACEMENT:
                raise InvalidMetadata("a file cannot replace a dictionary", where=where)
            self._counts.dictionary(arrival)
        self._dictionary_blocks = None

    def _message(self, block: Block, kind: MessageKind, where: str) -> Message:
        offset, metadata_length, body_length = block
        whole = offset + metadata_length + body_length
        if offset < len(FILE_START) or metadata_length <= 0 or body_length < 0 or whole > self._end:
            raise InvalidMetadata(
                "a block of the footer lies outside the messages",
                expected=f"within {len(FILE_START)} to {self._end}",
                found=block,
                where=where,
            )
        if (offset | metadata_length | body_length) % 8:
            raise InvalidMetadata(
                "a block of the footer is misaligned", expected="multiples of 8", found=block, where=where
            )
        source = self._check_open()
        source.seek(offset)
        metadata = read_metadata(source, self._limits)
        if metadata is None:
            raise InvalidMetadata("a block of the footer points to no message", found=block, where=where)
        message = decode_message(metadata, self._limits)
        for what, expected, found in (
            ("kind of message", kind.name, message.kind.name),
            ("length of metadata", metadata_length, source.position - offset),
            ("length of the body", body_length, message.body_length),
        ):
            if expected != found:
                raise InvalidMetadata(
                    f"the footer says another {what} than the message",
                    expected=expected,
                    found=found,
                    where=where,
                )
        self._counts.messages += 1
        return message


open_file = RecordBatchFileReader


def _lies_over_another(block: Block, where: str) -> InvalidMetadata:
    return InvalidMetadata("a block of the footer lies over another one", found=block, where=where)


def _footer_end(offset: Any, size: int) -> int:
    """Return where a file ends within a source of some size; by default at the end of the source."""
    if offset is None:
        return size
    if isinstance(offset, bool) or not hasattr(offset, "__index__"):
        raise UsageError("footer_offset is a number of bytes", found=repr(offset)[:80])
    end = operator.index(offset)
    if not 0 <= end <= size:
        raise UsageError("footer_offset lies outside the source", expected=f"0 to {size}", found=end)
    return end or size


def _check_first_schema(source: Source, footer: file_footer.Footer, limits: Limits) -> None:
    """Refuse a footer that says other columns than the stream inside the file; their metadata may differ.

    Arrow C++ does not ask for a schema there.
    """
    source.seek(len(FILE_START))
    there = footer.schema
    try:
        metadata = read_metadata(source, limits)
        if metadata is None or source.position > footer.start:
            return
        here = decode_schema(decode_message(metadata, limits), limits)
    except BowstringError:
        return
    if there.schema.equals(here.schema) and there[1:3] == here[1:3]:
        return
    words = ([f"{each.endianness}-endian", *map(str, each.schema)] for each in (here, there))
    differ = (pair for pair in itertools.zip_longest(*words) if pair[0] != pair[1])
    expected, found = next(differ, (here.dictionary_ids, there.dictionary_ids))
    raise InvalidMetadata(
        "the footer has another schema than the file begins with",
        expected=str(expected)[:_MOST_SHOWN],
        found=str(found)[:_MOST_SHOWN],
    )


class RecordBatchFileWriter(RecordBatchWriter):
    """Writes batches to an Arrow IPC file, which is one only once the writer was closed; also named `new_file`.

    Parameters
    ----------
    sink, schema, options
        As of :class:`RecordBatchStreamWriter`.
    metadata
        Key-value pairs for the footer, text or bytes.

    Raises
    ------
    Unsupported
        pyarrow cannot write a type of the schema.

    Examples
    --------
    >>> import io
    >>> import pyarrow as pa
    >>> sink = io.BytesIO()
    >>> new_file(sink, pa.schema([]), metadata={"made": "by hand"}).close()
    >>> pa.ipc.open_file(sink.getvalue()).num_record_batches, open_file(sink.getvalue()).metadata
    (0, {b'made': b'by hand'})
    """

    _start = FILE_START

    def __init__(
        self,
        sink: Any,
        schema: pa.Schema,
        *,
        options: Any = None,
        metadata: Mapping[Any, Any] | None = None,
    ) -> None:
        self._metadata = metadata
        self._blocks = {MessageKind.DICTIONARY_BATCH: [], MessageKind.RECORD_BATCH: []}
        super().__init__(sink, schema, options=options)

    def write_table(self, table: pa.Table, max_chunksize: int | None = None) -> None:
        """Write a pyarrow table, one batch per chunk.

        Parameters
        ----------
        table
            Of the schema. With the option ``unify_dictionaries`` its chunks get common dictionaries first.
        max_chunksize
            Most rows per batch.

        Raises
        ------
        InvalidBody
            With that option: the table has malformed dictionaries, or indices into them.
        """
        if self._options.unify_dictionaries:
            table = unify_dictionaries(table)
        super().write_table(table, max_chunksize)

    def _put_end(self) -> None:
        assert self._blocks is not None
        blocks = self._blocks[MessageKind.DICTIONARY_BATCH], self._blocks[MessageKind.RECORD_BATCH]
        footer = file_footer.encode_footer(
            self._schema_message, *blocks, self._metadata, self._options.metadata_version
        )
        self._put(None, Encoded([footer + _LENGTH.pack(len(footer)) + FILE_MAGIC], 0, 0))


new_file = RecordBatchFileWriter
