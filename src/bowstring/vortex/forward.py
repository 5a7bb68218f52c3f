"""Forwarding: encoded batches as rows of a binary column, which every transport carries as it is.

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

from bowstring.columnar.batch import Batch, batches
from bowstring.columnar.layout import Layout
from bowstring.columnar.marks import NAME_KEY, SERIALIZED_KEY
from bowstring.columnar.parts import make_batch
from bowstring.columnar.spans import buffer_of
from bowstring.errors import InvalidBody, InvalidMetadata, UsageError
from bowstring.ipc.reader import IteratedReader
from bowstring.limits import Limits, limits_or_default
from bowstring.vortex.batch import EncodedBatch
from bowstring.vortex.dtype import DType, to_schema
from bowstring.vortex.message import MessageKind, MessageReader, encode_message
from bowstring.vortex.type_flatbuffer import decode_dtype, encode_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bowstring.memory import Buffer
    from bowstring.vortex.stream import VortexStream

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
    schema = _schema(dtype)
    layout = Layout.of(schema)
    return IteratedReader(schema, (_message_batch(batch, layout, dtype) for batch in taken))


def _schema(dtype: DType) -> pa.Schema:
    metadata = {NAME_KEY: _NAME, SERIALIZED_KEY: base64.b64encode(encode_dtype(dtype))}
    return pa.schema([pa.field(_COLUMN, pa.large_binary(), nullable=False, metadata=metadata)])


def _message_batch(batch: Any, layout: Layout, dtype: DType) -> Batch:
    if not isinstance(batch, EncodedBatch) or batch.dtype != dtype:
        raise UsageError(
            "encoded batches of a stream have one type",
            expected=str(dtype),
            found=str(getattr(batch, "dtype", type(batch).__name__)),
        )
    data, device = _whole(batch), batch.device
    offsets = device.from_host(np.array([0, data.nbytes], np.int64))
    nodes = np.array([[1, 0]], np.int64)
    return make_batch(Batch, layout, 1, nodes, [None, buffer_of(offsets, device), data], device=device)


def _whole(batch: EncodedBatch) -> Buffer:
    """Return the message of a batch as one buffer: the header anew, which aligns the body, and the body."""
    device, body = batch.device, batch.buffer
    header = np.frombuffer(encode_message(batch.message), np.uint8)
    with device.use():
        return buffer_of(device.xp.concatenate([device.xp.asarray(header), body.array()]), device)


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
        found = MessageReader(data.slice(start, end - start), limits=limits).read()
        if found is None or found[0].kind is not MessageKind.ARRAY:
            raise InvalidBody("a row of encoded batches holds no array message")
        yield EncodedBatch(found[0], found[1], dtype, schema, limits, batch.validated)
