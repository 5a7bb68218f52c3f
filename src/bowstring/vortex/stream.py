"""Streams of Vortex: read as encoded batches, and written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bowstring.closing import Closing
from bowstring.columnar.layout import Recent
from bowstring.columnar.validation import checked_choice
from bowstring.errors import BowstringError, ClosedError, EndOfStream, InvalidMetadata, Truncated
from bowstring.limits import Limits, limits_or_default
from bowstring.vortex.batch import EncodedBatch
from bowstring.vortex.dtype import DType, to_schema
from bowstring.vortex.message import Message, MessageKind, MessageReader
from bowstring.vortex.type_flatbuffer import decode_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bowstring.columnar.validation import Validated
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
    limits = limits_or_default(limits)
    return VortexStream(source, limits=limits, sentinel=sentinel, validate=validate)


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
        self,
        source: Any,
        *,
        limits: Limits | None = None,
        sentinel: bytes | None = None,
        validate: Validated = "structure",
    ) -> None:
        limits = limits_or_default(limits)
        self._limits = limits
        self._validate: Validated = checked_choice(validate) or "structure"
        self._ended = False
        self._reader: MessageReader | None = MessageReader(source, limits=limits, sentinel=sentinel)
        try:
            found = self._reader.read()
            if found is None:
                raise Truncated("the stream ends before its type", hint="It begins with a DType message.")
            message, body = found
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
        self._check_open()
        reader = self._reader
        assert reader is not None
        start = reader.position
        try:
            while not self._ended and (found := reader.read()) is not None:
                message, body = found
                if message.kind is MessageKind.ARRAY:
                    return EncodedBatch(message, body, self.dtype, self.schema, self._limits, self._validate)
                self._check_other(message, body)
        except BowstringError:
            raise
        except BaseException:  # an interrupt, or an error of the file
            reader.give_up(start)
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
            self._reader.close()
            self._reader = None

    def _check_open(self) -> None:
        if self._reader is None:
            raise ClosedError("the Vortex stream was closed")

    def _check_other(self, message: Message, body: Buffer) -> None:
        """Refuse what is neither a batch nor the same type again, as of streams one behind the other."""
        if message.kind is MessageKind.DTYPE and _typed(body, self._limits)[0] == self.dtype:
            return
        raise InvalidMetadata(
            "a stream of Vortex holds arrays of one type only",
            expected=f"an array of {str(self.dtype)[:200]}",
            found=f"a {message.kind.name} message"
            + (" of another type" if message.kind is MessageKind.DTYPE else ""),
        )


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
