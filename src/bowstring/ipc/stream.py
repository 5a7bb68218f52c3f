"""The streaming format: batches one after the other behind a schema, read and written without copying bodies."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.dictionary import Dictionary
from bowstring.columnar.layout import Layout
from bowstring.errors import (
    ClosedError,
    EndOfStream,
    InvalidMetadata,
    Truncated,
    Unsupported,
    UsageError,
)
from bowstring.ipc.dictionaries import complete, join, same_values
from bowstring.ipc.framing import END_OF_STREAM, Source, frame, open_source, read_metadata
from bowstring.ipc.metadata import (
    Message,
    MessageKind,
    decode_dictionary,
    decode_message,
    decode_record_batch,
)
from bowstring.ipc.packing import Packed, pack, unpack
from bowstring.ipc.schema import decode_schema, encode_schema
from bowstring.ipc.template import Template
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.memory import Buffer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Self

__all__ = ["StreamReader", "StreamWriter", "new_stream", "open_stream"]

_SMALL_BODY = 1 << 16
"""Bodies up to this are joined before they are written: a copy that costs less than many calls."""


def open_stream(source: Any, *, limits: Limits = DEFAULT_LIMITS) -> StreamReader:
    """Open an Arrow IPC stream and read its schema.

    Parameters
    ----------
    source
        A path (memory-mapped), bytes or anything with the buffer protocol (batches are slices of it), or a
        binary file (each body is read into memory of its own).
    limits
        Bounds on metadata, nesting and bodies.

    Raises
    ------
    InvalidData
        The bytes are not a stream, or end before the schema does (`Truncated`).
    Unsupported
        The stream is big-endian, or holds a type that is not known.

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
    return StreamReader(source, limits=limits)


def new_stream(sink: Any, schema: pa.Schema) -> StreamWriter:
    """Begin an Arrow IPC stream.

    Parameters
    ----------
    sink
        A path, a binary file opened for writing, or a ``pyarrow.NativeFile``.
    schema
        Of all batches to come.

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
    return StreamWriter(sink, schema)


class StreamReader:
    """Reads the batches of a stream; make it with :func:`open_stream`.

    Batches keep the memory that they lie in alive, also after the reader is closed.

    Attributes
    ----------
    schema : pyarrow.Schema
    layout : Layout
        With the stream's own dictionary ids.
    """

    def __init__(self, source: Any, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._source: Source | None = open_source(source)
        self._dictionaries: dict[int, Dictionary] = {}
        self._ended = False
        message = self._next_message()
        if message is None:
            raise Truncated("the stream ends before its schema")
        self.schema, ids, endianness = decode_schema(message, limits)
        if endianness != "little":
            raise Unsupported("big-endian streams")
        self.layout = Layout.of(self.schema, ids, limits=limits)

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
        while (message := self._next_message()) is not None:
            body = self._open().body(message.body_length)
            if message.kind is MessageKind.RECORD_BATCH:
                return self._batch(message, body)
            if message.kind is not MessageKind.DICTIONARY_BATCH:
                raise InvalidMetadata(
                    "a stream holds record batches and dictionaries only", found=message.kind.name
                )
            self._take_dictionary(message, body)
        self._ended = True
        raise EndOfStream("the stream has no more batches")

    def read_all(self) -> pa.Table:
        """Return the batches that are left as one table."""
        return pa.Table.from_batches(list(self._arrow_batches()), schema=self.schema)

    def read_pandas(self, **options: Any) -> Any:
        """Return the batches that are left as a pandas DataFrame; ``options`` go to ``Table.to_pandas``."""
        return self.read_all().to_pandas(**options)

    def close(self) -> None:
        """Let go of the source; batches that were read live on."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        try:
            return self.read_next_batch()
        except EndOfStream:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the batches that are left as a capsule of the Arrow PyCapsule interface."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self._arrow_batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _arrow_batches(self) -> Iterator[pa.RecordBatch]:
        return (batch.to_arrow() for batch in self)

    def _open(self) -> Source:
        if self._source is None:
            raise ClosedError("the stream reader was closed")
        return self._source

    def _next_message(self) -> Message | None:
        source = self._open()
        metadata = None if self._ended else read_metadata(source, self._limits)
        return None if metadata is None else decode_message(metadata, self._limits)

    def _batch(self, message: Message, body: Buffer) -> Batch:
        header = decode_record_batch(message)
        return unpack(
            header,
            self.layout,
            body,
            version=message.version,
            dictionaries=complete(self.layout, header, self._dictionaries),
            custom_metadata=message.custom_metadata,
        )

    def _take_dictionary(self, message: Message, body: Buffer) -> None:
        id_, is_delta, header = decode_dictionary(message)
        layout = self.layout.dictionaries.get(id_)
        if layout is None:
            raise InvalidMetadata(
                "no field has a dictionary of this id", expected=list(self.layout.dictionaries), found=id_
            )
        inner = complete(layout, header, self._dictionaries)
        values = unpack(header, layout, body, version=message.version, dictionaries=inner)
        if is_delta:
            if id_ not in self._dictionaries:
                raise InvalidMetadata("a delta for a dictionary that was never sent", found=f"id {id_}")
            values = join(self._dictionaries[id_].values, values)
        # A new mapping each time: batches that were read keep the one they were given.
        self._dictionaries = {**self._dictionaries, id_: Dictionary(id_, values)}


class StreamWriter:
    """Writes batches to a stream; make it with :func:`new_stream`.

    The bodies go from the batches' own buffers to the sink, each placed at a multiple of 64 bytes.
    """

    def __init__(self, sink: Any, schema: pa.Schema) -> None:
        self.schema = schema
        self.layout = Layout.of(schema)
        first = encode_schema(schema)
        self._template = Template(self.layout)
        self._value_templates = {id_: Template(values) for id_, values in self.layout.dictionaries.items()}
        self._written: dict[int, Batch] = {}
        self._position = 0
        self._owned = isinstance(sink, str | os.PathLike)
        self._sink = open(sink, "wb") if self._owned else sink  # noqa: SIM115  # closed by `close`
        self._closed = False
        self._put(frame(first))

    def write(self, data: Any) -> None:
        """Write a Batch, or a pyarrow record batch or table."""
        if isinstance(data, pa.Table):
            self.write_table(data)
        else:
            self.write_batch(data)

    def write_table(self, table: pa.Table, max_chunksize: int | None = None) -> None:
        """Write a pyarrow table, one batch per chunk.

        Parameters
        ----------
        table
            Of the stream's schema.
        max_chunksize
            Most rows per batch.
        """
        for batch in table.to_batches(max_chunksize=max_chunksize):
            self.write_batch(batch)

    def write_batch(self, batch: Any, custom_metadata: Mapping[bytes, bytes] | None = None) -> None:
        """Write a batch, and before it those of its dictionaries that have changed.

        Parameters
        ----------
        batch
            A Batch, or anything that ``Batch.from_arrow`` takes.
        custom_metadata
            Key-value pairs for the message; without them, those of the batch.

        Raises
        ------
        UsageError
            The batch has another schema than the stream.
        ClosedError
            The writer was closed.
        """
        if self._closed:
            raise ClosedError("the stream writer was closed")
        if not isinstance(batch, Batch):
            batch = Batch.from_arrow(batch)
        if not (batch.schema.equals(self.schema) and batch.layout.is_like(self.layout)):
            raise UsageError(
                "the batch has another schema than the stream", expected=self.schema, found=batch.schema
            )
        self._write_dictionaries(batch, self.layout, batch.layout)
        packed = pack(batch)
        metadata = self._template.encode_batch(
            batch.num_rows,
            packed.nodes,
            packed.buffers,
            packed.body_length,
            batch.variadic_counts,
            custom_metadata or batch.custom_metadata,
        )
        self._put_message(metadata, packed)

    def close(self) -> None:
        """End the stream with its marker. Does nothing the second time."""
        if self._closed:
            return
        self._closed = True
        self._put(END_OF_STREAM)
        if self._owned:
            self._sink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_dictionaries(self, batch: Batch, ours: Layout, theirs: Layout) -> None:
        names = dict(zip(ours.dictionary_ids, theirs.dictionary_ids, strict=True))
        for id_ in self.layout.dictionaries:
            if id_ in names:
                self._write_dictionary(id_, batch.dictionaries[names[id_]].values)

    def _write_dictionary(self, id_: int, values: Batch) -> None:
        known = self._written.get(id_)
        if known is not None and same_values(known, values):
            return
        packed = pack(values)
        metadata = self._value_templates[id_].encode_dictionary(
            id_,
            False,
            values.num_rows,
            packed.nodes,
            packed.buffers,
            packed.body_length,
            values.variadic_counts,
        )
        self._put_message(metadata, packed)
        self._written[id_] = values

    def _put_message(self, metadata: bytes, packed: Packed) -> None:
        first = frame(metadata, self._position)
        if packed.body_length <= _SMALL_BODY:
            self._put(b"".join((first, *packed.pieces)))
            return
        self._put(first)
        for piece in packed.pieces:
            self._put(piece)

    def _put(self, piece: Any) -> None:
        view = memoryview(piece)
        self._position += view.nbytes
        while view.nbytes:
            count = self._sink.write(view)
            # Unbuffered files may take a part only; others say nothing, or that they took it all.
            if not isinstance(count, int) or count >= view.nbytes:
                return
            view = view[count:]
