"""The streaming format: batches one after the other behind a schema, read and written without copying bodies."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bowstring.columnar.validation import check_once, checked_choice
from bowstring.errors import BowstringError, EndOfStream, InvalidMetadata, Truncated
from bowstring.ipc.body.decode import END
from bowstring.ipc.decoder import GROWTH, MOST_AHEAD, Decoder, DeviceTarget, ReadAhead
from bowstring.ipc.flatbuf.message import Message, MessageKind, decode_message
from bowstring.ipc.flatbuf.schema import decode_schema
from bowstring.ipc.framing import read_metadata
from bowstring.ipc.options import IpcReadOptions, check_reading
from bowstring.ipc.reader import ReadCounts, SequentialReader
from bowstring.ipc.source import FollowedSource, Source, open_source
from bowstring.ipc.writer import RecordBatchWriter
from bowstring.limits import Limits, limits_or_default
from bowstring.memory import Buffer, Device

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch
    from bowstring.columnar.parts import Validated


class RecordBatchStreamReader(SequentialReader):
    """Reads the batches of an Arrow IPC stream, also named `open_stream`; it reads the schema at once.

    Batches keep the memory that they lie in alive, also after the reader is closed. At the end,
    :meth:`read_next_batch` raises `EndOfStream`, which is a ``StopIteration`` as in pyarrow.

    Parameters
    ----------
    source
        A path (memory-mapped), bytes or anything with the buffer protocol (batches are slices of it), or a
        binary file: each body is read into memory of its own, or is a slice of an ``io.BytesIO``, a
        ``pyarrow.BufferReader`` or a memory map. The file stays behind the last batch that was read.
    options
        `IpcReadOptions`, ours or pyarrow's.
    memory_pool
        Where the memory comes from of bodies that are read from a file and of buffers that are decompressed on
        the host; by default, of what is decompressed, from pyarrow's default pool. It is kept as long as they are.
    limits
        Bounds on metadata, nesting and bodies.
    device
        Where the batches shall be, such as ``"cuda:0"``; by default where the source is. Each batch is one upload,
        of compressed frames where the device can decompress them; ``stats.decompressed`` says what was done.
    trusted
        Whether the source is known to be sound. nvCOMP does not find out every damaged ZSTD frame, and is only
        given those that are trusted; all others are decompressed on the host.
    validate
        What is checked of each batch: ``"structure"``, sizes and ends, in time that grows with the columns only;
        or ``"full"``, every element, for files of others. See `Batch.validated`.

    Raises
    ------
    InvalidData
        The bytes are not a stream, or end before the schema does (`Truncated`).
    Unsupported
        It holds a type that is not known.

    Examples
    --------
    >>> import pyarrow as pa
    >>> sink = pa.BufferOutputStream()
    >>> with new_stream(sink, pa.schema({"a": pa.int64()})) as writer:
    ...     writer.write_batch(pa.record_batch({"a": [1, 2]}))
    >>> with open_stream(sink.getvalue()) as reader:
    ...     reader.read_all().to_pydict()
    {'a': [1, 2]}
    """

    _decoder: Decoder

    def __init__(
        self,
        source: Any,
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
        self._source: Source | None = open_source(source, memory_pool, whole=True)
        self._followed = self._source if isinstance(self._source, FollowedSource) else None
        self._ended = False
        self._turn = threading.RLock()
        self._ahead = ReadAhead()
        self._memory: Buffer | None = None
        self._most = 1
        try:
            message = self._next_message()
            if message is None:
                raise Truncated("the stream ends before its schema")
            decoded = decode_schema(message, limits)
            self._decoder = Decoder(decoded, chosen, limits, target=target, memory_pool=memory_pool)
            memory = self._source.memory()
            if memory is not None and self._decoder.reads_ahead(memory):
                self._memory = memory
        except BaseException:
            self.close()
            raise

    def read_next_batch(self) -> Batch:
        """Return the next batch.

        Raises
        ------
        EndOfStream
            There are no more.
        InvalidData
            The next message is malformed, or cut off (`Truncated`).
        ClosedError
            The reader was closed.
        """
        with self._turn:
            followed = self._followed
            if followed is not None and not self._ended and not followed.is_in_place():
                # Read on from where somebody else has left the file.
                self._source = followed.as_file()
                self._ahead, self._memory, self._followed = ReadAhead(), None, None
                followed = None
            ahead, memory = self._ahead, self._memory
            taken = ahead.taken
            batch = ahead.batch(taken) if taken < len(ahead.heads) else None
            if batch is None and memory is not None and not self._ended:
                ahead, taken = self._read_ahead(memory), 0
                batch = ahead.batch(0)
            if batch is None:
                batch = self._next_batch()
            else:
                if followed is not None and memory is not None:
                    followed.seek(ahead.heads[taken][END] - memory.offset)
                ahead.taken = taken + 1
                counts = self._counts
                counts.messages += 1
                counts.batches += 1
        if not self._checks:
            return batch
        try:
            return check_once(batch)
        except BowstringError:
            raise
        except BaseException:  # an interrupt: going on would leave the batch out in silence
            self.close()
            raise

    # Its end is a StopIteration.
    __next__ = read_next_batch

    def _next_batch(self) -> Batch:
        """Read the next batch by itself, and the dictionaries before it."""
        decoder, source, counts = self._decoder, self._check_open(), self._counts
        start, messages, is_taken = source.position, counts.messages, True
        try:
            while (message := self._next_message()) is not None:
                if message.kind is MessageKind.RECORD_BATCH:
                    parts = decoder.parts_of_body(message)
                    batch = decoder.batch(message, source.body(message.body_length, parts))
                    counts.batches += 1
                    return batch
                if message.kind is not MessageKind.DICTIONARY_BATCH:
                    raise InvalidMetadata(
                        "a stream holds record batches and dictionaries only", found=message.kind.name
                    )
                body = source.body(message.body_length)
                is_taken = False
                if decoder.needs_dictionary(message):
                    counts.dictionary(decoder.take_dictionary(message, body))
                start, messages, is_taken = source.position, counts.messages, True
        except BowstringError:
            raise
        except BaseException:  # an interrupt, or an error of the file
            counts.messages = messages
            if is_taken:
                source.give_up(start)
            else:  # a delta that is taken twice would change values
                self.close()
            raise
        self._ended = True
        expected, found = len(self.layout.dictionaries), decoder.memo.num_known
        if not self._counts.batches and 0 < found < expected:  # it was cut off, as Arrow C++ judges
            raise Truncated(
                "the stream ends between its dictionaries", expected=f"{expected} of them", found=found
            )
        raise EndOfStream("the stream has no more batches")

    def close(self) -> None:
        """Let go of the source; batches that were read live on."""
        self._ahead, self._memory, self._followed = ReadAhead(), None, None
        if self._source is not None:
            self._source.close()
            self._source = None

    def _next_message(self) -> Message | None:
        source = self._check_open()
        metadata = None if self._ended else read_metadata(source, self._limits)
        if metadata is None:
            return None
        self._counts.messages += 1
        return decode_message(metadata, self._limits)

    def _read_ahead(self, memory: Buffer) -> ReadAhead:
        """Read the next messages behind those that were taken; none where the next one needs more care."""
        source, wanted, before = self._check_open(), self._most, self._ahead
        if before.taken:
            source.seek(before.heads[before.taken - 1][END] - memory.offset)
        ahead = self._decoder.ahead(memory, source.position, wanted)
        count = len(ahead.heads)
        # More each time, as long as that goes well: a stream may be left soon, or have other messages in between.
        self._most = min(GROWTH * wanted, MOST_AHEAD) if count == wanted else max(1, count)
        self._ahead = ahead
        return ahead


open_stream = RecordBatchStreamReader


class RecordBatchStreamWriter(RecordBatchWriter):
    """Writes batches to an Arrow IPC stream; also named `new_stream`.

    Parameters
    ----------
    sink
        A path, a binary file opened for writing, or a ``pyarrow.NativeFile``. What a path names is replaced when
        the writer is closed, and stays if an error leaves the ``with`` block; readers of it go on.
    schema
        Of all batches to come.
    options
        `IpcWriteOptions`, ours or pyarrow's.

    Raises
    ------
    Unsupported
        pyarrow cannot write a type of the schema.

    Examples
    --------
    >>> import io
    >>> import pyarrow as pa
    >>> sink = io.BytesIO()
    >>> new_stream(sink, pa.schema([])).close()
    >>> pa.ipc.open_stream(sink.getvalue()).schema.names
    []
    """


new_stream = RecordBatchStreamWriter


def serialize_pandas(
    df: Any, *, nthreads: int | None = None, preserve_index: bool | None = None
) -> pa.Buffer:
    """Return a ``pandas.DataFrame`` as a stream of one batch.

    Parameters
    ----------
    df
        The data frame.
    nthreads
        Threads that pyarrow may use to convert it; all processors by default.
    preserve_index
        Whether the index becomes a column; by default a ``RangeIndex`` becomes metadata, and any other a column.

    Examples
    --------
    >>> import pandas as pd
    >>> deserialize_pandas(serialize_pandas(pd.DataFrame({"a": [1, 2]})))["a"].tolist()
    [1, 2]
    """
    batch = pa.RecordBatch.from_pandas(df, nthreads=nthreads, preserve_index=preserve_index)
    sink = pa.BufferOutputStream()
    with new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def deserialize_pandas(buf: Any, *, use_threads: bool = True) -> Any:
    """Return the ``pandas.DataFrame`` of a stream.

    Parameters
    ----------
    buf
        What :func:`serialize_pandas` gave; anything with the buffer protocol.
    use_threads
        Whether pyarrow may convert columns by several threads.

    Raises
    ------
    InvalidData
        It is not a stream.

    Examples
    --------
    >>> import pandas as pd
    >>> deserialize_pandas(serialize_pandas(pd.DataFrame({"a": ["x"]}, index=[7]))).index.tolist()
    [7]
    """
    with open_stream(buf) as reader:
        return reader.read_pandas(use_threads=use_threads)
