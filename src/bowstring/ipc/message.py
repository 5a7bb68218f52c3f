"""Single messages: reading them one by one, and making one of a batch or a schema."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Literal

import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.errors import BowstringError, EndOfStream, InvalidMetadata, UsageError
from bowstring.ipc.body.encode import Encoded
from bowstring.ipc.decoder import Decoder
from bowstring.ipc.dictionary.reader import DictionaryMemo
from bowstring.ipc.flatbuf import message as wire
from bowstring.ipc.flatbuf.message import MetadataVersion
from bowstring.ipc.flatbuf.reader import KeyValueMetadata
from bowstring.ipc.flatbuf.schema import DecodedSchema, decode_schema, encode_schema, in_native_order
from bowstring.ipc.framing import frame, read_metadata, write_all
from bowstring.ipc.options import IpcReadOptions
from bowstring.ipc.source import Source, open_source
from bowstring.ipc.stream import RecordBatchStreamWriter
from bowstring.limits import Limits, limits_or_default
from bowstring.memory import Buffer


class Message:
    """One message: its metadata and its body. Made by :func:`read_message` and `MessageReader`.

    Examples
    --------
    >>> message = read_message(serialize_record_batch(pa.record_batch({"a": [1, 2]})))
    >>> message.type, message.metadata_version.name, message.body.size
    ('record batch', 'V5', 64)
    """

    def __init__(self, envelope: wire.Message, body: Buffer) -> None:
        self.envelope = envelope
        self._body = body

    @property
    def type(self) -> str:
        """``"schema"``, ``"dictionary"``, ``"record batch"``, ``"tensor"`` or ``"sparse tensor"``."""
        name = self.envelope.kind.name.lower().replace("_", " ")
        return name.replace("dictionary batch", "dictionary")

    @property
    def metadata(self) -> pa.Buffer:
        """The flatbuffer, without prefix."""
        return pa.py_buffer(self.envelope.data)

    @property
    def metadata_version(self) -> MetadataVersion:
        """V4 or V5."""
        return self.envelope.version

    @property
    def custom_metadata(self) -> KeyValueMetadata | None:
        """The message's own key-value pairs."""
        return self.envelope.custom_metadata

    @property
    def body(self) -> pa.Buffer:
        """The body, without a copy where the source allows that; empty for a schema."""
        return self._body.to_arrow()

    @property
    def buffer(self) -> Buffer:
        """The body as a Buffer."""
        return self._body

    def equals(self, other: Message) -> bool:
        """Whether another message has the same bytes."""
        return self.envelope.data == other.envelope.data and bool(
            self._body.to_arrow().equals(other._body.to_arrow())
        )

    def serialize(self, alignment: int = 8, memory_pool: pa.MemoryPool | None = None) -> pa.Buffer:
        """Return the message with its prefix, as a stream has it.

        Parameters
        ----------
        alignment
            What the body's place is a multiple of: a multiple of 8.
        memory_pool
            Where the memory comes from; it must live as long as the buffer does.
        """
        sink = pa.BufferOutputStream(memory_pool)
        self.serialize_to(sink, alignment)
        return sink.getvalue()

    def serialize_to(self, sink: Any, alignment: int = 8, memory_pool: pa.MemoryPool | None = None) -> None:  # noqa: ARG002  as in pyarrow; nothing is allocated here
        """Write the message with its prefix to a file."""
        if alignment < 1 or alignment % 8:
            raise UsageError("bodies are aligned to multiples of 8", found=alignment)
        sink.write(frame(self.envelope.data, alignment=alignment))
        sink.write(self._body.to_arrow())
        sink.write(bytes(-self._body.nbytes % 8))

    def __repr__(self) -> str:
        return f"<Message {self.type}, {len(self.envelope.data)} + {self._body.nbytes} bytes>"


class MessageReader:
    """Reads the messages of a stream one by one; make it with :meth:`open_stream`.

    Examples
    --------
    >>> table = pa.table({"a": [1, 2]})
    >>> sink = pa.BufferOutputStream()
    >>> with RecordBatchStreamWriter(sink, table.schema) as writer:
    ...     writer.write(table)
    >>> [message.type for message in MessageReader.open_stream(sink.getvalue())]
    ['schema', 'record batch']
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._ended = False

    @classmethod
    def open_stream(cls, source: Any, *, limits: Limits | None = None) -> MessageReader:
        """Begin to read a path, memory or a file."""
        limits = limits_or_default(limits)
        return cls(open_source(source), limits)

    def read_next_message(self) -> Message:
        """Return the next message.

        Raises
        ------
        EndOfStream
            There are no more; it is a ``StopIteration``, as in pyarrow.
        InvalidData
            The next message is malformed, or cut off (`Truncated`).
        """
        source = self._source
        start = source.position
        try:
            metadata = None if self._ended else read_metadata(source, self._limits)
            if metadata is not None:
                envelope = wire.decode_message(metadata, self._limits)
                return Message(envelope, source.body(envelope.body_length))
        except BowstringError:
            raise
        except BaseException:  # an interrupt, or an error of the file
            source.give_up(start)
            raise
        self._ended = True
        raise EndOfStream("the stream has no more messages")

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        try:
            return self.read_next_message()
        except EndOfStream:
            raise StopIteration from None


def read_message(source: Any, *, limits: Limits | None = None) -> Message:
    """Read one message.

    Parameters
    ----------
    source
        A path, bytes or a buffer, or a binary file, which is read up to the message's end.
    limits
        Bounds on metadata and body.

    Raises
    ------
    EndOfStream
        There is none.
    InvalidData
        It is malformed, or cut off (`Truncated`).

    Examples
    --------
    >>> read_message(serialize_schema(pa.schema({"a": pa.int8()}))).type
    'schema'
    """
    limits = limits_or_default(limits)
    return MessageReader.open_stream(source, limits=limits).read_next_message()


def read_schema(
    obj: Any, dictionary_memo: DictionaryMemo | None = None, *, limits: Limits | None = None
) -> pa.Schema:
    """Read a schema from its message.

    Parameters
    ----------
    obj
        A `Message`, or what :func:`read_message` takes.
    dictionary_memo
        Takes note of the ids of the schema's dictionaries.
    limits
        Bounds on metadata and nesting.

    Raises
    ------
    InvalidMetadata
        It is not a schema.

    Examples
    --------
    >>> read_schema(serialize_schema(pa.schema({"a": pa.int8()})))
    a: int8
    """
    limits = limits_or_default(limits)
    decoded = decode_schema(_message(obj, limits).envelope, limits)
    if dictionary_memo is not None:
        dictionary_memo.expect(Layout.of(decoded.schema, decoded.dictionary_ids, limits=limits))
    return decoded.schema


def read_dictionary(obj: Any, dictionary_memo: DictionaryMemo, *, limits: Limits | None = None) -> None:
    """Read a dictionary from its message into a memo that :func:`read_schema` has prepared.

    pyarrow has no such function: there, single batches with dictionaries cannot be read.

    Raises
    ------
    InvalidData
        It is not a dictionary, is malformed, or is none of the schema's.

    Examples
    --------
    >>> table = pa.table({"a": pa.array(["x", "y", "x"]).dictionary_encode()})
    >>> sink = pa.BufferOutputStream()
    >>> with RecordBatchStreamWriter(sink, table.schema) as writer:
    ...     writer.write(table)
    >>> schema, dictionary, batch = MessageReader.open_stream(sink.getvalue())
    >>> memo = DictionaryMemo()
    >>> schema = read_schema(schema, memo)
    >>> read_dictionary(dictionary, memo)
    >>> read_record_batch(batch, schema, memo)["a"].to_arrow().to_pylist()
    ['x', 'y', 'x']
    """
    limits = limits_or_default(limits)
    message = _message(obj, limits)
    layout = dictionary_memo.layout
    if layout is None:
        raise UsageError("the memo knows no schema", hint="read_schema(schema, memo) comes first.")
    _decoder(layout, dictionary_memo, limits).take_dictionary(message.envelope, message.buffer)


def read_record_batch(
    obj: Any,
    schema: pa.Schema,
    dictionary_memo: DictionaryMemo | None = None,
    *,
    limits: Limits | None = None,
) -> Batch:
    """Read a batch from its message.

    Parameters
    ----------
    obj
        A `Message`, or what :func:`read_message` takes.
    schema
        Of the batch.
    dictionary_memo
        With the dictionaries that the batch uses.
    limits
        Bounds on metadata and body.

    Raises
    ------
    InvalidData
        It is not a record batch, does not fit the schema, or uses a dictionary that the memo does not have.

    Examples
    --------
    >>> batch = pa.record_batch({"a": [1, 2]})
    >>> read_record_batch(serialize_record_batch(batch), batch.schema).equals(batch)
    True
    """
    limits = limits_or_default(limits)
    memo = DictionaryMemo() if dictionary_memo is None else dictionary_memo
    layout = memo.layout
    if layout is None:
        layout = Layout.of(schema, limits=limits)
        memo.expect(layout)
    elif not layout.schema.equals(schema):
        raise UsageError("the memo is of another schema", expected=layout.schema, found=schema)
    message = _message(obj, limits)
    return _decoder(layout, memo, limits).batch(message.envelope, message.buffer)


def serialize_schema(schema: pa.Schema) -> pa.Buffer:
    """Return a schema as a message with its prefix, as ``pyarrow.Schema.serialize`` does.

    Examples
    --------
    >>> pa.ipc.read_schema(serialize_schema(pa.schema({"a": pa.int8()}))).names
    ['a']
    """
    return pa.py_buffer(frame(encode_schema(schema), alignment=8))


def serialize_record_batch(batch: Any, *, options: Any = None) -> pa.Buffer:
    """Return a batch as a message with its prefix, without schema and dictionaries.

    As ``pyarrow.RecordBatch.serialize``, but every buffer is placed at a multiple of 64 bytes.

    Parameters
    ----------
    batch
        A Batch, or anything that ``Batch.from_arrow`` takes.
    options
        `IpcWriteOptions`, ours or pyarrow's.

    Examples
    --------
    >>> batch = pa.record_batch({"a": [1, 2]})
    >>> pa.ipc.read_record_batch(serialize_record_batch(batch), batch.schema).equals(batch)
    True
    """
    sink = pa.BufferOutputStream()
    write_all(sink, *_encoded(batch, options).pieces)
    return sink.getvalue()


def get_record_batch_size(batch: Any, *, options: Any = None) -> int:
    """Return how many bytes :func:`serialize_record_batch` makes of a batch.

    That is more than pyarrow makes of it, since our bodies keep buffers at multiples of 64 bytes, not of 8.

    Examples
    --------
    >>> batch = pa.record_batch({"a": [1, 2]})
    >>> get_record_batch_size(batch) == serialize_record_batch(batch).size
    True
    """
    message = _encoded(batch, options)
    return message.head + message.body


def _encoded(batch: Any, options: Any) -> Encoded:
    batch = batch if isinstance(batch, Batch) else Batch.from_arrow(batch)
    return RecordBatchStreamWriter(io.BytesIO(), batch.schema, options=options)._encoded(batch)


def _message(source: Any, limits: Limits) -> Message:
    if isinstance(source, Message):
        return source
    try:
        return read_message(source, limits=limits)
    except EndOfStream as error:
        raise InvalidMetadata("there is no message") from error


def _decoder(layout: Layout, memo: DictionaryMemo, limits: Limits) -> Decoder:
    schema, ids, native = layout.schema, layout.dictionary_ids, in_native_order(layout.schema)
    order: Literal["little", "big"] = "little"
    if not schema.equals(
        native
    ):  # the byte order is all that they can differ in, and pyarrow does not show it
        layout, order = Layout.of(native, ids, limits=limits), "big"
    return Decoder(DecodedSchema(schema, ids, order, layout), IpcReadOptions(), limits, memo)
