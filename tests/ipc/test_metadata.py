"""The metadata codec against pyarrow's bytes."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import ipc
from bowstring.columnar.layout import Layout
from bowstring.errors import InvalidMetadata, LimitExceeded, Unsupported, UsageError
from bowstring.ipc.flatbuf.message import (
    MessageKind,
    MetadataVersion,
    decode_dictionary,
    decode_message,
    decode_record_batch,
)
from bowstring.ipc.flatbuf.schema import decode_schema, encode_schema
from bowstring.ipc.flatbuf.template import Template
from bowstring.ipc.framing import frame
from bowstring.limits import DEFAULT_LIMITS
from tests import strategies


def messages_of(table: pa.Table, **options: Any) -> list[pa.Message]:
    """Return the messages of a stream of pyarrow's."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    found = []
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    while True:
        try:
            found.append(reader.read_next_message())
        except StopIteration:
            return found


@given(schema=strategies.schemas())
def test_schemas_survive_both_ways(schema: pa.Schema) -> None:
    """Any schema that we write is read equal by us and by pyarrow, with its metadata and its ids."""
    decoded = decode_schema(decode_message(encode_schema(schema)))
    assert decoded.schema.equals(schema, check_metadata=True)
    assert decoded.dictionary_ids == Layout.of(schema).dictionary_ids
    assert decoded.endianness == "little"


@given(schema=strategies.schemas(), data=st.data())
def test_dictionary_ids_can_be_chosen(schema: pa.Schema, data: st.DataObject) -> None:
    """Ids of any value can be written, zero too, and the schema stays what it was."""
    count = len(Layout.of(schema).dictionary_ids)
    ids = data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=count, max_size=count, unique=True))
    decoded = decode_schema(decode_message(encode_schema(schema, ids)))
    assert decoded.schema.equals(schema, check_metadata=True)
    assert decoded.dictionary_ids == tuple(ids)


@given(batches=strategies.tables())
def test_encoding_what_was_decoded_gives_the_same_bytes(batches: list[pa.RecordBatch]) -> None:
    """Metadata of record batches are byte for byte what Arrow C++ writes, but for the zeros it leaves out."""
    table = pa.Table.from_batches(batches)
    template = Template(Layout.of(table.schema))
    for original in messages_of(table):
        if original.type != "record batch":
            continue
        message = decode_message(original.metadata)
        header = decode_record_batch(message)
        again = template.encode_batch(
            header.length, header.nodes, header.buffers, message.body_length, header.variadic_counts
        )
        if header.length and message.body_length:
            assert again == original.metadata.to_pybytes()
        repeated = decode_message(again)
        assert repeated.body_length == message.body_length
        assert repr(decode_record_batch(repeated)) == repr(header)


def test_dictionaries_are_encoded_as_pyarrow_reads_them() -> None:
    """Dictionary messages carry id, delta flag and values."""
    layout = Layout.of(pa.schema({"values": pa.string_view()}))
    nodes, buffers = np.array([[3, 1]]), np.array([[0, 1], [8, 48], [56, 20], [80, 20]])
    for id_, is_delta in ((0, False), (7, True), (-1, False)):
        parts = 3, nodes, buffers, 104, (2,), {"k": "v"}
        data = Template(layout).encode_batch(*parts, dictionary=(id_, is_delta))
        message = decode_message(data)
        header = decode_dictionary(message)
        assert (header.id, header.is_delta, header.batch.length) == (id_, is_delta, 3)
        assert header.batch.nodes.tolist() == nodes.tolist()
        assert header.batch.buffers.tolist() == buffers.tolist()
        assert header.batch.variadic_counts == (2,)
        assert message.custom_metadata == {b"k": b"v"}
        framed = b"\xff\xff\xff\xff" + len(data).to_bytes(4, "little") + data + bytes(104)
        assert pa.ipc.read_message(framed).type == "dictionary"


def test_the_builder_of_flatbuffers_agrees() -> None:
    """A message made with the flatbuffers package is decoded to what was put in."""
    builder = flatbuffers.Builder()
    builder.StartVector(16, 2, 8)
    for offset, length in ((8, 24), (0, 0)):
        builder.Prep(8, 16)
        builder.PrependInt64(length)
        builder.PrependInt64(offset)
    buffers = builder.EndVector()
    builder.StartVector(16, 1, 8)
    builder.Prep(8, 16)
    builder.PrependInt64(0)
    builder.PrependInt64(3)
    nodes = builder.EndVector()
    builder.StartObject(5)
    builder.PrependInt64Slot(0, 3, 0)
    builder.PrependUOffsetTRelativeSlot(1, nodes, 0)
    builder.PrependUOffsetTRelativeSlot(2, buffers, 0)
    header = builder.EndObject()
    builder.StartObject(5)
    builder.PrependInt16Slot(0, 4, 0)
    builder.PrependUint8Slot(1, 3, 0)
    builder.PrependUOffsetTRelativeSlot(2, header, 0)
    builder.PrependInt64Slot(3, 32, 0)
    builder.Finish(builder.EndObject())
    message = decode_message(builder.Output())
    batch = decode_record_batch(message)
    assert (message.version, message.body_length, batch.length) == (MetadataVersion.V5, 32, 3)
    assert batch.nodes.tolist() == [[3, 0]]
    assert batch.buffers.tolist() == [[0, 0], [8, 24]]


def test_compression_is_decoded() -> None:
    """The codec of a compressed body is in the header, whether or not the body can be read."""
    table = pa.table({"a": [1, 2, 3]})
    for codec in ("lz4", "zstd"):
        metadata = messages_of(table, compression=codec)[1].metadata
        assert decode_record_batch(decode_message(metadata)).compression == codec


def _patched(position: int, value: bytes) -> bytes:
    data = bytearray(messages_of(pa.table({"a": [1, 2, 3]}))[1].metadata.to_pybytes())
    data[position : position + len(value)] = value
    return bytes(data)


# Where things are in what Arrow C++ writes for a record batch without variadic buffers.
ROOT, MESSAGE_VTABLE, MESSAGE, KIND, VERSION, HEADER, BODY_LENGTH = 0, 8, 20, 25, 26, 28, 32
BATCH_VTABLE, BATCH, NODES, BUFFERS, BUFFERS_COUNT = 42, 52, 56, 60, 76
LIES = {
    "root outside": (ROOT, b"\xff\xff\xff\x7f", InvalidMetadata),
    "root zero": (ROOT, b"\x00\x00\x00\x00", InvalidMetadata),
    "root misaligned": (ROOT, b"\x15\x00\x00\x00", InvalidMetadata),
    "vtable before the start": (MESSAGE, b"\xff\xff\xff\x7f", InvalidMetadata),
    "vtable behind the end": (MESSAGE, b"\x00\x00\x00\x80", InvalidMetadata),
    "vtable misaligned": (MESSAGE, b"\x0b\x00\x00\x00", InvalidMetadata),
    "vtable too large": (MESSAGE_VTABLE, b"\xfe\xff", InvalidMetadata),
    "vtable too small": (MESSAGE_VTABLE, b"\x02\x00", InvalidMetadata),
    "vtable of odd size": (MESSAGE_VTABLE, b"\x0d\x00", InvalidMetadata),
    "version outside": (MESSAGE_VTABLE + 4, b"\xfe\xff", InvalidMetadata),
    "kind outside": (MESSAGE_VTABLE + 6, b"\xff\xff", InvalidMetadata),
    "body length misaligned": (MESSAGE_VTABLE + 10, b"\x0d\x00", InvalidMetadata),
    "body length outside": (MESSAGE_VTABLE + 10, b"\xfc\xff", InvalidMetadata),
    "no header": (MESSAGE_VTABLE + 8, b"\x00\x00", InvalidMetadata),
    "no kind": (KIND, b"\x00", InvalidMetadata),
    "unknown kind": (KIND, b"\x06", Unsupported),
    "another kind": (KIND, b"\x01", InvalidMetadata),
    "version 1": (VERSION, b"\x00\x00", Unsupported),
    "version 3": (VERSION, b"\x02\x00", Unsupported),
    "version 6": (VERSION, b"\x05\x00", Unsupported),
    "version negative": (VERSION, b"\xff\xff", InvalidMetadata),
    "header outside": (HEADER, b"\xff\xff\xff\xff", InvalidMetadata),
    "header zero": (HEADER, b"\x00\x00\x00\x00", InvalidMetadata),
    "header misaligned": (HEADER, b"\x19\x00\x00\x00", InvalidMetadata),
    "body length negative": (BODY_LENGTH, b"\xff" * 8, InvalidMetadata),
    "body length huge": (BODY_LENGTH, b"\xff" * 7 + b"\x7f", LimitExceeded),
    "batch vtable outside": (BATCH, b"\x00\x00\x00\x80", InvalidMetadata),
    "batch length misaligned": (BATCH_VTABLE + 4, b"\x0d\x00", InvalidMetadata),
    "nodes outside": (NODES, b"\xff\xff\xff\x7f", InvalidMetadata),
    "buffers outside": (BUFFERS, b"\xf0\xff\xff\xff", InvalidMetadata),
    "buffers misaligned": (BUFFERS, b"\x2c\x00\x00\x00", InvalidMetadata),
    "buffers too many": (BUFFERS_COUNT, b"\xff\xff\xff\xff", InvalidMetadata),
    "buffers more than fit": (BUFFERS_COUNT, b"\x05\x00\x00\x00", InvalidMetadata),
}


@pytest.mark.parametrize("lie", LIES)
def test_each_lie_is_refused(lie: str) -> None:
    """One wrong number in the metadata is one error of the tree."""
    position, value, error = LIES[lie]
    decode_record_batch(decode_message(_patched(0, b"")))
    with pytest.raises(error):
        decode_record_batch(decode_message(_patched(position, value)))


def test_limits_hold_before_anything_is_read() -> None:
    """Metadata and bodies beyond the limits are refused."""
    data = _patched(0, b"")
    with pytest.raises(LimitExceeded, match="metadata"):
        decode_message(data, DEFAULT_LIMITS.replace(metadata_bytes=len(data) - 1))
    with pytest.raises(LimitExceeded, match="metadata"):
        decode_message(memoryview(data), DEFAULT_LIMITS.replace(metadata_bytes=len(data) - 1))
    with pytest.raises(LimitExceeded, match="body"):
        decode_message(data, DEFAULT_LIMITS.replace(message_bytes=16))


def test_any_bytes_like_object_is_copied_first() -> None:
    """Metadata in memory that may change are copied before they are checked."""
    data = bytearray(_patched(0, b""))
    header = decode_record_batch(decode_message(data))
    data[:] = bytes(len(data))
    assert header.length == 3
    assert not header.nodes.flags.writeable


def test_tables_of_the_wrong_shape_are_not_encoded() -> None:
    """An encoder refuses tables that do not fit its layout."""
    template = Template(Layout.of(pa.schema({"a": pa.int8()})))
    nodes, buffers = np.array([[1, 0]]), np.array([[0, 0], [0, 8]])
    with pytest.raises(UsageError, match="nodes"):
        template.encode_batch(1, nodes[:0], buffers, 8)
    with pytest.raises(UsageError, match="buffers"):
        template.encode_batch(1, nodes, buffers[:1], 8)
    with pytest.raises(UsageError, match="variadic"):
        template.encode_batch(1, nodes, buffers, 8, (1,))
    with pytest.raises(UsageError, match="nodes"):
        template.encode_batch(1, nodes.astype(np.int32), buffers, 8)
    with pytest.raises(UsageError, match="ids"):
        encode_schema(pa.schema({"a": pa.int8()}), [1])


def _nested_fields(depth: int, endianness: int = 0) -> bytes:
    """Return a schema in which every field has the next one twice: 2**depth fields in a few bytes."""
    builder = flatbuffers.Builder()
    builder.StartObject(0)
    struct_ = builder.EndObject()
    name = builder.CreateString("f")
    field = 0
    for _ in range(depth):
        children = 0
        if field:
            builder.StartVector(4, 2, 4)
            builder.PrependUOffsetTRelative(field)
            builder.PrependUOffsetTRelative(field)
            children = builder.EndVector()
        builder.StartObject(7)
        builder.PrependUOffsetTRelativeSlot(0, name, 0)
        builder.PrependUint8Slot(2, 13, 0)
        builder.PrependUOffsetTRelativeSlot(3, struct_, 0)
        builder.PrependUOffsetTRelativeSlot(5, children, 0)
        field = builder.EndObject()
    builder.StartVector(4, 1, 4)
    builder.PrependUOffsetTRelative(field)
    fields = builder.EndVector()
    builder.StartObject(4)
    builder.PrependInt16Slot(0, endianness, 0)
    builder.PrependUOffsetTRelativeSlot(1, fields, 0)
    schema = builder.EndObject()
    builder.StartObject(5)
    builder.PrependInt16Slot(0, 4, 0)
    builder.PrependUint8Slot(1, 1, 0)
    builder.PrependUOffsetTRelativeSlot(2, schema, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def test_schemas_that_unfold_are_refused_before_pyarrow_sees_them() -> None:
    """Fields that share their children unfold to any number; they are bounded while they are counted."""
    assert len(decode_schema(decode_message(_nested_fields(3))).schema.types) == 1
    with pytest.raises(InvalidMetadata, match="over and over"):
        decode_schema(decode_message(_nested_fields(40)))
    with pytest.raises(LimitExceeded, match="too many"):
        decode_schema(decode_message(_nested_fields(5)), DEFAULT_LIMITS.replace(columns=30))
    with pytest.raises(LimitExceeded, match="deep"):
        decode_schema(decode_message(_nested_fields(80)))


def test_the_byte_order_of_bodies_is_decoded() -> None:
    """Big-endian schemas are decoded as such, and their streams are read; there is no third order."""
    data = _nested_fields(1, endianness=1)
    assert decode_schema(decode_message(data)).endianness == "big"
    assert ipc.open_stream(frame(data)).schema.names == decode_schema(decode_message(data)).schema.names
    with pytest.raises(InvalidMetadata, match="byte order"):
        decode_schema(decode_message(_nested_fields(1, endianness=2)))


def test_names_that_are_not_text_are_refused() -> None:
    """A name, or a time zone, that is not UTF-8 is an error of the metadata, not of a later print."""
    for schema in (pa.schema({"name": pa.int8()}), pa.schema({"a": pa.timestamp("s", "name")})):
        data = encode_schema(schema).replace(b"name", b"n\xffme")
        with pytest.raises(InvalidMetadata, match="UTF-8"):
            decode_schema(decode_message(data))


def test_only_schemas_are_schemas() -> None:
    """A message of another kind, or a schema with a body, is not taken for a schema."""
    with pytest.raises(InvalidMetadata, match="SCHEMA"):
        decode_schema(decode_message(_patched(0, b"")))
    message = decode_message(encode_schema(pa.schema({"a": pa.int8()})))
    with pytest.raises(InvalidMetadata, match="body"):
        decode_schema(message._replace(body_length=8))
    with pytest.raises(InvalidMetadata, match="RECORD_BATCH"):
        decode_record_batch(message)
    with pytest.raises(InvalidMetadata, match="DICTIONARY_BATCH"):
        decode_dictionary(message)
    assert message.kind is MessageKind.SCHEMA
