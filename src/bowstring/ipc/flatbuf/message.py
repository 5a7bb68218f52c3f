"""Decoding the metadata of Arrow IPC messages (Message.fbs) into NumPy tables.

A message is raw flatbuffer bytes without length prefix. What changes with every batch is read here with a few
``struct`` calls and two ``np.frombuffer``; schemas, read once per stream, in :mod:`bowstring.ipc.flatbuf.schema`.
Structure only: whether the numbers fit a schema and a body is checked by :mod:`bowstring.ipc.body.check`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.nodes import Kind
from bowstring.errors import InvalidMetadata, LimitExceeded, Unsupported
from bowstring.ipc.flatbuf.reader import KeyValueMetadata, Tables
from bowstring.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
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
CODECS = {0: "lz4", 1: "zstd"}  # the members of the enumeration ``CompressionType``
_SMALLEST = 8
_PAIR_BYTES = 16
_LITTLE_INT64 = np.dtype("<i8")


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
    tables = Tables(data)
    table = tables.follow(0, "Message")
    version, kind, header, body, custom, *_ = tables.slots(table, "Message")
    id_ = tables.scalar(table, version, "h", 0, "Message.version")
    known = _VERSIONS.get(id_)
    if known is None and id_ < 0:
        raise InvalidMetadata("no such metadata version", expected="V4 or V5", found=id_)
    if known is None:
        older = ", from before Arrow 0.8" if id_ < MetadataVersion.V4 else ""
        raise Unsupported(f"metadata version V{id_ + 1}{older}", expected="V4 or V5")
    id_ = tables.scalar(table, kind, "B", 0, "Message.header_type")
    member = _KINDS.get(id_)
    if member is None and id_:
        kinds = ", ".join(kind.name for kind in MessageKind)
        raise Unsupported(f"messages of kind {id_}", expected=kinds)
    if member is None:
        raise InvalidMetadata("the message says of no kind that it is", where="Message.header_type")
    if not header:
        raise InvalidMetadata("the message has no header", where="Message.header")
    body_length = tables.scalar(table, body, "q", 0, "Message.bodyLength")
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
    pairs = tables.key_values(table, custom, "Message.custom_metadata") if custom else None
    return Message(member, known, body_length, pairs, data, tables.follow(table + header, "Message.header"))


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
    return _record_batch(Tables(message.data), message.header)


def decode_dictionary(message: Message) -> DictionaryHeader:
    """Decode the header of a dictionary message."""
    expect_kind(message, MessageKind.DICTIONARY_BATCH)
    tables, table = Tables(message.data), message.header
    id_, batch, delta, *_ = tables.slots(table, "DictionaryBatch")
    if not batch:
        raise InvalidMetadata("the dictionary has no values", where="DictionaryBatch.data")
    return DictionaryHeader(
        tables.scalar(table, id_, "q", 0, "DictionaryBatch.id"),
        bool(tables.scalar(table, delta, "B", 0, "DictionaryBatch.isDelta")),
        _record_batch(tables, tables.follow(table + batch, "DictionaryBatch.data")),
    )


def _record_batch(tables: Tables, table: int) -> RecordBatchHeader:
    length, nodes, buffers, compression, variadic, *_ = tables.slots(table, "RecordBatch")
    pairs: list[Table64] = []
    for slot, where in ((nodes, "RecordBatch.nodes"), (buffers, "RecordBatch.buffers")):
        start, count = tables.vector(table, slot, _PAIR_BYTES, where)
        pairs.append(np.ndarray((count, 2), _LITTLE_INT64, tables.data, start))
    start, count = tables.vector(table, variadic, 8, "RecordBatch.variadicBufferCounts")
    codec = None
    if compression:
        at = tables.follow(table + compression, "RecordBatch.compression")
        number, method, *_ = tables.slots(at, "BodyCompression")
        if tables.scalar(at, method, "B", 0, "BodyCompression.method"):
            raise Unsupported(
                "a body compressed in another way than buffer by buffer", where="BodyCompression.method"
            )
        id_ = tables.scalar(at, number, "B", 0, "BodyCompression.codec")
        codec = CODECS.get(id_)
        if codec is None:
            raise Unsupported(f"compression codec {id_}", expected="0 (LZ4 frame) or 1 (ZSTD)")
    rows = tables.scalar(table, length, "q", 0, "RecordBatch.length")
    counts = struct.unpack_from(f"<{count}q", tables.data, start)
    return RecordBatchHeader(rows, pairs[0], pairs[1], counts, codec)


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
