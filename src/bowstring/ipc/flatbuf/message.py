"""Decoding the metadata of Arrow IPC messages (Message.fbs) into NumPy tables.

A message is raw flatbuffer bytes without length prefix. What changes with every batch is read here with a few
``struct`` calls and two ``np.frombuffer``; schemas, read once per stream, in :mod:`bowstring.ipc.flatbuf.schema`.
Structure only: whether the numbers fit a schema and a body is checked by :mod:`bowstring.ipc.body.check`.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.nodes import Kind
from bowstring.errors import InvalidMetadata, LimitExceeded, Unsupported
from bowstring.ipc.flatbuf.reader import KeyValueMetadata, Tables, follow, number, slots_of, vector
from bowstring.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import ReadableBuffer

    from bowstring.columnar.layout import Layout

Table64 = npt.NDArray[np.int64]


class MessageKind(enum.IntEnum):
    """The members of the union ``MessageHeader``."""

    SCHEMA = 1
    DICTIONARY_BATCH = 2
    RECORD_BATCH = 3
    TENSOR = 4
    SPARSE_TENSOR = 5


class MetadataVersion(enum.IntEnum):
    """The versions there were; V4 is what Arrow wrote before 1.0. Those before it are refused by name."""

    V1 = 0
    V2 = 1
    V3 = 2
    V4 = 3
    V5 = 4


class Message(NamedTuple):
    """The envelope of one message."""

    kind: MessageKind
    version: MetadataVersion
    body_length: int
    custom_metadata: KeyValueMetadata | None  # keeps repeated keys
    data: bytes  # the whole flatbuffer
    header: int  # position of the header's table in `data`


class RecordBatchHeader(NamedTuple):
    """``RecordBatch`` of Message.fbs."""

    length: int  # rows
    nodes: Table64  # shape (nodes, 2): length and null count
    buffers: Table64  # shape (buffers, 2): offset in the body and length
    variadic_counts: tuple[int, ...] = ()  # variadic buffers of each view node
    compression: str | None = None  # "lz4", "zstd" or None


class DictionaryHeader(NamedTuple):
    """``DictionaryBatch`` of Message.fbs: one column of values for the dictionary ``id``."""

    id: int
    is_delta: bool
    batch: RecordBatchHeader


_KINDS = {int(kind): kind for kind in MessageKind}
_VERSIONS = {int(version): version for version in (MetadataVersion.V4, MetadataVersion.V5)}
CODECS = {0: "lz4", 1: "zstd"}
"""The members of the enumeration ``CompressionType``."""
_INT64 = struct.Struct("<q")
_UINT8 = struct.Struct("<B")
_INT16 = struct.Struct("<h")
_SMALLEST = 8
_PAIR_BYTES = 16
_LITTLE_INT64 = np.dtype("<i8")
_NONE = np.empty((0, 2), dtype=np.int64)
_NONE.flags.writeable = False


def decode_message(data: ReadableBuffer, limits: Limits = DEFAULT_LIMITS) -> Message:
    """Decode the envelope of a message."""
    if type(data) is not bytes:
        view = memoryview(data)
        bound_metadata(view.nbytes, limits)
        data = view.tobytes()
    size = len(data)
    bound_metadata(size, limits)
    if size < _SMALLEST:
        raise InvalidMetadata("too short for a message", expected="8 bytes or more", found=f"{size} bytes")
    table = follow(data, size, 0, "Message")
    version, kind, header, body, custom, *_ = slots_of(data, size, table, "Message")
    id_ = number(data, size, table + version, _INT16, "Message.version") if version else 0
    known = _VERSIONS.get(id_)
    if known is None and id_ < 0:
        raise InvalidMetadata("no such metadata version", expected="V4 or V5", found=id_)
    if known is None:
        older = ", from before Arrow 0.8" if id_ < MetadataVersion.V4 else ""
        raise Unsupported(f"metadata version V{id_ + 1}{older}", expected="V4 or V5")
    id_ = number(data, size, table + kind, _UINT8, "Message.header_type") if kind else 0
    member = _KINDS.get(id_)
    if member is None and id_:
        kinds = ", ".join(kind.name for kind in MessageKind)
        raise Unsupported(f"messages of kind {id_}", expected=kinds)
    if member is None:
        raise InvalidMetadata("the message says of no kind that it is", where="Message.header_type")
    if not header:
        raise InvalidMetadata("the message has no header", where="Message.header")
    body_length = number(data, size, table + body, _INT64, "Message.bodyLength") if body else 0
    if body_length < 0:
        what = "the length of the body is negative"
        raise InvalidMetadata(what, found=body_length, where="Message.bodyLength")
    if body_length > limits.message_bytes:
        raise LimitExceeded(
            "the body of a message is too large",
            expected=f"at most {limits.message_bytes} bytes",
            found=f"{body_length} bytes",
            hint="Limits.message_bytes sets the bound.",
        )
    pairs = Tables(data).key_values(table, custom, "Message.custom_metadata") if custom else None
    return Message(
        member, known, body_length, pairs, data, follow(data, size, table + header, "Message.header")
    )


def expect_kind(message: Message, kind: MessageKind) -> None:
    """Raise InvalidMetadata if a message is of another kind."""
    if message.kind is not kind:
        raise InvalidMetadata(
            "another kind of message was expected", expected=kind.name, found=message.kind.name
        )


def decode_record_batch(message: Message) -> RecordBatchHeader:
    """Decode the header of a record batch message.

    The tables are read-only views of the message's bytes. An absent vector is empty.
    """
    expect_kind(message, MessageKind.RECORD_BATCH)
    return _record_batch(message.data, message.header)


def decode_dictionary(message: Message) -> DictionaryHeader:
    """Decode the header of a dictionary message."""
    expect_kind(message, MessageKind.DICTIONARY_BATCH)
    data, size, table = message.data, len(message.data), message.header
    id_, batch, delta, *_ = slots_of(data, size, table, "DictionaryBatch")
    if not batch:
        raise InvalidMetadata("the dictionary has no values", where="DictionaryBatch.data")
    return DictionaryHeader(
        number(data, size, table + id_, _INT64, "DictionaryBatch.id") if id_ else 0,
        bool(number(data, size, table + delta, _UINT8, "DictionaryBatch.isDelta")) if delta else False,
        _record_batch(data, follow(data, size, table + batch, "DictionaryBatch.data")),
    )


def _record_batch(data: bytes, table: int) -> RecordBatchHeader:
    size = len(data)
    length, nodes, buffers, compression, variadic, *_ = slots_of(data, size, table, "RecordBatch")
    counts: tuple[int, ...] = ()
    if variadic:
        where = "RecordBatch.variadicBufferCounts"
        start, count = vector(data, size, table + variadic, _INT64.size, where)
        counts = struct.unpack_from(f"<{count}q", data, start)
    codec = None
    if compression:
        at = follow(data, size, table + compression, "RecordBatch.compression")
        number_slot, method, *_ = slots_of(data, size, at, "BodyCompression")
        if method and number(data, size, at + method, _UINT8, "BodyCompression.method"):
            raise Unsupported(
                "a body compressed in another way than buffer by buffer", where="BodyCompression.method"
            )
        id_ = number(data, size, at + number_slot, _UINT8, "BodyCompression.codec") if number_slot else 0
        codec = CODECS.get(id_)
        if codec is None:
            raise Unsupported(f"compression codec {id_}", expected="0 (LZ4 frame) or 1 (ZSTD)")
    return RecordBatchHeader(
        number(data, size, table + length, _INT64, "RecordBatch.length") if length else 0,
        _pairs(data, size, table + nodes, "RecordBatch.nodes") if nodes else _NONE,
        _pairs(data, size, table + buffers, "RecordBatch.buffers") if buffers else _NONE,
        counts,
        codec,
    )


def _pairs(data: bytes, size: int, position: int, where: str) -> Table64:
    start, count = vector(data, size, position, _PAIR_BYTES, where)
    return np.ndarray((count, 2), _LITTLE_INT64, data, start)


def bound_metadata(nbytes: int, limits: Limits, where: str | None = None) -> None:
    """Raise LimitExceeded if a message has more bytes of metadata than it may."""
    if nbytes > limits.metadata_bytes:
        raise LimitExceeded(
            "the metadata of a message are too large",
            expected=f"at most {limits.metadata_bytes} bytes",
            found=f"{nbytes} bytes",
            where=where,
            hint="Limits.metadata_bytes sets the bound.",
        )


def bitmaps_of_4(layout: Layout) -> list[int]:
    """Return the nodes that have a validity bitmap in version 4 only."""
    return [
        index
        for index, node in enumerate(layout.nodes)
        if Kind.VALIDITY not in node.buffer_kinds and node.type.id != pa.lib.Type_NA
    ]


def without_bitmaps_of_4(header: RecordBatchHeader, layout: Layout) -> RecordBatchHeader:
    """Return the header of a batch of version 4 as version 5 has it."""
    nodes = bitmaps_of_4(layout)
    if not nodes:
        return header
    counts = header.variadic_counts
    expected = layout.num_buffers + sum(counts) + len(nodes)
    if (
        len(counts) != len(layout.variadic_nodes)
        or len(header.nodes) != layout.num_nodes
        or len(header.buffers) != expected
    ):
        raise InvalidMetadata(
            "wrong number of nodes or buffers for a schema with unions or runs",
            expected=f"{layout.num_nodes} and {expected}",
            found=f"{len(header.nodes)} and {len(header.buffers)}",
        )
    unions = [index for index in nodes if layout.nodes[index].buffer_kinds]
    if np.count_nonzero(header.nodes[unions, 1]):
        raise Unsupported("unions with nulls of their own, as Arrow had them before 1.0")
    extra = layout.first_buffers(counts)[nodes] + np.arange(len(nodes))
    return header._replace(buffers=np.delete(header.buffers, extra, axis=0))


def with_bitmaps_of_4(
    buffers: npt.NDArray[np.int64], layout: Layout, variadic_counts: Sequence[int] = ()
) -> npt.NDArray[np.int64]:
    """Return a table of buffers of version 5 as version 4 has it: the bitmaps are empty."""
    at = layout.first_buffers(variadic_counts)[bitmaps_of_4(layout)]
    result: npt.NDArray[np.int64] = np.insert(buffers, at, 0, axis=0)
    return result
