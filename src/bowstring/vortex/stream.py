"""Streams of Vortex, read as encoded batches; and these as rows of a binary column, which every transport carries.

The column is ``vortex: large_binary`` with the extension name ``bowstring.vortex``; the extension's metadata are
the type of the stream in base64. Each row is one array message, header and body. The protocol does not change.
"""

from __future__ import annotations

import base64
import binascii
import itertools
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.closing import Closing
from bowstring.columnar.batch import Batch, batches
from bowstring.columnar.layout import Layout, Recent
from bowstring.columnar.marks import NAME_KEY, SERIALIZED_KEY
from bowstring.columnar.parts import make_batch
from bowstring.columnar.spans import buffer_of
from bowstring.columnar.validation import checked_choice
from bowstring.errors import (
    BowstringError,
    ClosedError,
    EndOfStream,
    InvalidBody,
    InvalidMetadata,
    Truncated,
    UsageError,
)
from bowstring.ipc.reader import IteratedReader
from bowstring.limits import Limits, limits_or_default
from bowstring.vortex.batch import EncodedBatch
from bowstring.vortex.dtype import DType, decode_dtype, encode_dtype, to_schema
from bowstring.vortex.message import MessageKind, MessageReader, encode_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bowstring.columnar.parts import Validated
    from bowstring.memory import Buffer


_MOST_KEPT = 1 << 14
"""Bytes of a type that is kept, decoded, for other streams of it."""


def open_stream(
    source: Any,
    *,
    limits: Limits | None = None,
    sentinel: bytes | None = None,
    validate: Validated = "structure",
) -> VortexStream:
    """Open a Vortex IPC stream and read its type.

    Parameters
    ----------
    source
        A path (memory-mapped), bytes or anything with the buffer protocol, a ``Buffer`` on any device (batches are
        slices of it), or a binary file (each body is read into memory of its own).
    limits
        Bounds on messages, nesting, and on what is decoded.
    sentinel
        Four bytes that an application put in the place of the next message's length to end the stream. By default
        the end of the source is the end.
    validate
        What is checked of decoded columns: ``"structure"``, what decoding needs; or ``"full"``, every element, for
        streams of others. See `Batch.validated`.

    Raises
    ------
    Truncated
        The source ends before the type does.
    InvalidData
        The bytes are not a stream of Vortex.
    Unsupported
        Its type, or the version of a message, is not known; the message names it.

    Examples
    --------
    >>> import bowstring as bow, io
    >>> sink = io.BytesIO()
    >>> with bow.vortex.new_stream(sink, pa.schema({"a": pa.int64()})) as writer:
    ...     writer.write_batch(pa.record_batch({"a": [1, 2]}))
    >>> with bow.vortex.open_stream(sink.getvalue()) as stream:
    ...     stream.read_all().to_pydict()
    {'a': [1, 2]}
    """
    return VortexStream(source, limits_or_default(limits), sentinel, validate)


class VortexStream(Closing):
    """Reads the batches of a stream, which stay encoded; parameters are those of :func:`open_stream`.

    Batches keep the memory that they lie in alive, also after the stream is closed. A batch with an encoding that
    is not known is read like any other: decoding it raises, and the rest of the stream can be read.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of decoded batches. A stream whose type is no struct, or one that may be null, has one column ``c``.
    dtype
        The type that Vortex has for the stream.
    """

    def __init__(
        self, source: Any, limits: Limits, sentinel: bytes | None = None, validate: Validated = "structure"
    ) -> None:
        self._limits = limits
        self._validate: Validated = checked_choice(validate) or "structure"
        self._ended = False
        self._reader: MessageReader | None = MessageReader(source, limits=limits, sentinel=sentinel)
        try:
            first = self._reader.read()
            if first is None:
                raise Truncated("the stream ends before its type", hint="It begins with a DType message.")
            message, body = first
            if message.kind is not MessageKind.DTYPE:
                raise InvalidMetadata(
                    "a stream of Vortex begins with its type", expected="DTYPE", found=message.kind.name
                )
            dtype, schema = _typed(body, limits)
            self.dtype: DType = dtype
            self.schema: pa.Schema = schema
        except BaseException:
            self.close()
            raise

    def read_next_batch(self) -> EncodedBatch:
        """Return the next batch.

        Raises
        ------
        EndOfStream
            There are no more.
        Truncated
            The source ends inside a message.
        InvalidData
            The next message is malformed.
        ClosedError
            The stream was closed.
        """
        reader = self._check_open()
        start = reader.source.position
        try:
            while not self._ended and (pair := reader.read()) is not None:
                message, body = pair
                if message.kind is MessageKind.ARRAY:
                    return EncodedBatch(message, body, self.dtype, self.schema, self._limits, self._validate)
                is_type = message.kind is MessageKind.DTYPE
                # The same type again: streams one behind the other.
                if not is_type or _typed(body, self._limits)[0] != self.dtype:
                    raise InvalidMetadata(
                        "a stream of Vortex holds arrays of one type only",
                        expected=f"an array of {str(self.dtype)[:200]}",
                        found=f"a {message.kind.name} message{' of another type' * is_type}",
                    )
        except BowstringError:
            raise
        except BaseException:  # an interrupt, or an error of the file
            reader.source.give_up(start)
            raise
        self._ended = True
        raise EndOfStream("the stream has no more batches")

    def read_all(self) -> pa.Table:
        """Decode all batches that are left and return them as one ``pyarrow.Table``.

        Raises
        ------
        Unsupported
            A batch has an encoding that is not known.
        InvalidData
            A batch is malformed, or the stream is cut off (`Truncated`).
        """
        self._check_open()
        return pa.Table.from_batches([batch.to_arrow() for batch in self], schema=self.schema)

    def __iter__(self) -> Iterator[EncodedBatch]:
        self._check_open()
        return self

    def __next__(self) -> EncodedBatch:
        try:
            return self.read_next_batch()
        except EndOfStream:
            raise StopIteration from None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Decode the batches that are left, each when it is asked for, by the Arrow PyCapsule interface."""
        self._check_open()
        batches = (batch.to_arrow() for batch in self)
        return pa.RecordBatchReader.from_batches(self.schema, batches).__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def close(self) -> None:
        """Let go of the source; batches that were read live on."""
        if self._reader is not None:
            self._reader.source.close()
            self._reader = None

    def _check_open(self) -> MessageReader:
        if self._reader is None:
            raise ClosedError("the Vortex stream was closed")
        return self._reader


def _typed(body: Buffer, limits: Limits) -> tuple[DType, pa.Schema]:
    """Return the type in a body, and its schema: many streams have one, so that few and short ones are kept."""
    if body.nbytes > limits.metadata_bytes:
        raise InvalidMetadata(
            "the type of a stream is too large",
            expected=f"at most {limits.metadata_bytes}",
            found=body.nbytes,
        )
    data = bytes(body.to_host())
    key = data, limits
    for kept in _recent.of(key) if len(data) <= _MOST_KEPT else ():
        return kept
    dtype = decode_dtype(data, limits)
    schema = to_schema(dtype)
    if len(data) <= _MOST_KEPT:
        _recent.keep(key, (dtype, schema), _weight_of(dtype))
    return dtype, schema


def _weight_of(dtype: DType, level: int = 1) -> int:
    """Return about how many bytes a type and its schema take, which repeats a field for each level around it."""
    own = 64 + sum(map(len, dtype.names)) + len(dtype.id) + len(dtype.metadata)
    return level * own + sum([_weight_of(each, level + 1) for each in dtype.children])


# References of a peer's unfold: types are kept by what they become.
_recent: Final[Recent[tuple[DType, pa.Schema]]] = Recent(64, 1 << 20)


_NAME: Final = b"bowstring.vortex"
_COLUMN: Final = "vortex"


def to_messages(stream: VortexStream | Iterable[EncodedBatch]) -> IteratedReader:
    """Return encoded batches as batches of a binary column, to be published, written or sent as they are.

    Parameters
    ----------
    stream
        What :func:`bowstring.vortex.open_stream` gave, or encoded batches of one type.

    Returns
    -------
    IteratedReader
        One batch of one row for each; anything that takes batches takes it. Bytes are copied once, or not at all
        where a message lies in memory as a whole.

    Raises
    ------
    UsageError
        It is empty and has no type, or a batch has another type than the first.

    Examples
    --------
    >>> import bowstring as bow, io
    >>> sink = io.BytesIO()
    >>> with bow.vortex.new_stream(sink, pa.schema({"a": pa.int64()})) as writer:
    ...     writer.write_batch(pa.record_batch({"a": [1, 2]}))
    >>> with bow.Server() as server:
    ...     stream = bow.vortex.open_stream(sink.getvalue())
    ...     endpoint = server.publish("t", bow.vortex.to_messages(stream), readers=1)
    ...     with bow.connect(endpoint) as received:
    ...         [batch] = bow.vortex.from_messages(received)
    >>> batch["a"].values.tolist()
    [1, 2]
    """
    taken = iter(stream)
    dtype: DType | None = getattr(stream, "dtype", None)
    if dtype is None:
        first = next(taken, None)
        if not isinstance(first, EncodedBatch):
            raise UsageError("no encoded batches", expected="EncodedBatch", found=type(first).__name__)
        dtype = first.dtype
        taken = itertools.chain([first], taken)
    metadata = {NAME_KEY: _NAME, SERIALIZED_KEY: base64.b64encode(encode_dtype(dtype))}
    schema = pa.schema([pa.field(_COLUMN, pa.large_binary(), nullable=False, metadata=metadata)])
    layout = Layout.of(schema)
    return IteratedReader(schema, (_message_batch(batch, layout, dtype) for batch in taken))


def _message_batch(batch: Any, layout: Layout, dtype: DType) -> Batch:
    if not isinstance(batch, EncodedBatch) or batch.dtype != dtype:
        raise UsageError(
            "encoded batches of a stream have one type",
            expected=str(dtype),
            found=str(getattr(batch, "dtype", type(batch).__name__)),
        )
    # The header anew, which aligns the body, and the body.
    device, header = batch.device, np.frombuffer(encode_message(batch.message), np.uint8)
    with device.use():
        whole = device.xp.concatenate([device.xp.asarray(header), batch.buffer.array()])
        data = buffer_of(whole, device)
    offsets = device.from_host(np.array([0, data.nbytes], np.int64))
    nodes = np.array([[1, 0]], np.int64)
    return make_batch(Batch, layout, 1, nodes, [None, buffer_of(offsets, device), data], device=device)


def is_messages(schema: pa.Schema) -> bool:
    """Whether batches of a schema are encoded batches of Vortex, as :func:`to_messages` makes them."""
    return len(schema) == 1 and (schema.field(0).metadata or {}).get(NAME_KEY) == _NAME


def messages_dtype(schema: pa.Schema, limits: Limits | None = None) -> DType:
    """Return the type of the encoded batches in batches of a schema."""
    limits = limits_or_default(limits)
    if not is_messages(schema) or schema.field(0).type != pa.large_binary():
        raise UsageError(
            "these are not encoded batches of Vortex",
            expected=f"a column of large_binary with the extension name {_NAME.decode()}",
            found=str(schema)[:200],
        )
    text = schema.field(0).metadata.get(SERIALIZED_KEY, b"")
    try:
        return decode_dtype(base64.b64decode(text, validate=True), limits)
    except binascii.Error as error:
        raise InvalidMetadata("the type of encoded batches is not base64", found=repr(text[:40])) from error


def from_messages(source: Any, *, limits: Limits | None = None) -> Iterator[EncodedBatch]:
    """Return the encoded batches of what :func:`to_messages` made, wherever it came by.

    Parameters
    ----------
    source
        A stream of :func:`bowstring.connect`, or any other Arrow data.
    limits
        Bounds on messages, and on what is decoded.

    Raises
    ------
    UsageError
        It holds no encoded batches. (While iterating:)
    InvalidData
        A message is malformed.
    """
    limits = limits_or_default(limits)
    is_stream = isinstance(getattr(source, "schema", None), pa.Schema) and callable(
        getattr(source, "__iter__", None)
    )
    schema, taken = (source.schema, iter(source)) if is_stream else batches(source)
    dtype = messages_dtype(schema, limits)
    decoded = to_schema(dtype)
    return (
        each
        for batch in taken
        for each in encoded_batches(
            batch if isinstance(batch, Batch) else Batch.from_arrow(batch), dtype, decoded, limits
        )
    )


def encoded_batches(batch: Batch, dtype: DType, schema: pa.Schema, limits: Limits) -> Iterator[EncodedBatch]:
    """Yield the encoded batches of one batch, over the same memory; they are checked as it was."""
    column = batch[0]
    data = batch.buffers[2]
    bounds = batch.device.to_host(column.offsets).tolist() if len(column) else [0]
    for start, end in itertools.pairwise(bounds):
        if data is None or not 0 <= start <= end <= data.nbytes:
            raise InvalidBody("a row of encoded batches holds no message", found=f"{end - start} bytes")
        pair = MessageReader(data.slice(start, end - start), limits=limits).read()
        if pair is None or pair[0].kind is not MessageKind.ARRAY:
            raise InvalidBody("a row of encoded batches holds no array message")
        yield EncodedBatch(pair[0], pair[1], dtype, schema, limits, batch.validated)
