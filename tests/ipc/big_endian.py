"""Streams and files as a big-endian machine writes them, made of those that pyarrow wrote here."""

from __future__ import annotations

import struct
from typing import NamedTuple

import pyarrow as pa

from bowstring.columnar.layout import Layout
from bowstring.columnar.nodes import Kind
from bowstring.ipc.flatbuf.footer import FILE_MAGIC, FILE_START
from bowstring.ipc.flatbuf.message import (
    MessageKind,
    RecordBatchHeader,
    decode_dictionary,
    decode_message,
    decode_record_batch,
)
from bowstring.ipc.flatbuf.reader import Tables
from bowstring.ipc.flatbuf.schema import decode_schema
from bowstring.ipc.framing import end_of_stream, frame

__all__ = ["big_endian_file", "big_endian_stream"]

INTERVAL_DAY_TIME = 22


def big_endian_schema(metadata: bytes, table: int) -> bytes:
    """Return a flatbuffer whose ``Schema`` says Big: its table gets a new vtable, which names a 1 behind it."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    size = struct.unpack_from("<H", metadata, vtable)[0]
    changed = bytearray(metadata + bytes(-len(metadata) % 8))
    one_at = len(changed)
    changed += struct.pack("<H6x", 1)
    struct.pack_into("<i", changed, table, table - len(changed))
    changed += (
        struct.pack("<HHH", size, one_at + 2 - table, one_at - table) + metadata[vtable + 6 : vtable + size]
    )
    return bytes(changed) + bytes(-len(changed) % 8)


def turned(data: bytes, type_: pa.DataType, kind: Kind, width: int) -> bytes:
    """Return a little-endian buffer as a big-endian machine has it; all our own elements, one after the other."""
    parts: tuple[int, ...] = (width,)
    if kind in (Kind.VALIDITY, Kind.BITS, Kind.BYTES, Kind.TYPE_IDS):
        return data
    if kind is Kind.VIEWS:
        views = [data[at : at + 16] for at in range(0, len(data) - 15, 16)]
        short = [view[3::-1] + view[4:] for view in views]
        long = [view[3::-1] + view[4:8] + view[11:7:-1] + view[:11:-1] for view in views]
        is_short = [int.from_bytes(view[:4], "little") <= 12 for view in views]
        return b"".join(
            each[0] if first else each[1]
            for each, first in zip(zip(short, long, strict=True), is_short, strict=True)
        )
    if kind is Kind.DATA:
        if type_.id == pa.lib.Type_FIXED_SIZE_BINARY:
            return data
        if type_.id == INTERVAL_DAY_TIME:
            parts = 4, 4
        elif type_.id == pa.lib.Type_INTERVAL_MONTH_DAY_NANO:
            parts = 4, 4, 8
    result, at = b"", 0
    while at + sum(parts) <= len(data):
        for part in parts:
            result += data[at : at + part][::-1]
            at += part
    return result + data[at:]


def big_endian_body(header: RecordBatchHeader, layout: Layout, body: bytes) -> bytes:
    """Return a body as a big-endian machine writes it."""
    changed = bytearray(body)
    rows = layout.fixed_buffers(header.variadic_counts).tolist()
    for position, row in enumerate(rows):
        offset, length = header.buffers[row].tolist()
        kind = Kind(layout.buffer_kinds[position])
        node = layout.nodes[layout.buffer_nodes[position]]
        width = node.width if kind is Kind.DATA else kind.bits >> 3
        changed[offset : offset + length] = turned(body[offset : offset + length], node.type, kind, width)
    return bytes(changed)


class Piece(NamedTuple):
    """A message: what it is, its prefix and metadata, and its body."""

    kind: MessageKind
    first: bytes
    body: bytes


def big_endian_pieces(stream: bytes) -> list[Piece]:
    """Return the messages of a stream, the schema first, as a big-endian machine writes them."""
    pieces: list[Piece] = []
    for each in pa.ipc.MessageReader.open_stream(stream):
        metadata, body = each.metadata.to_pybytes(), b""
        message = decode_message(metadata)
        if message.kind is MessageKind.SCHEMA:
            decoded = decode_schema(message)
            layout = Layout.of(decoded.schema, decoded.dictionary_ids)
            metadata = big_endian_schema(metadata, message.header)
        elif message.kind is MessageKind.DICTIONARY_BATCH:
            id_, _, header = decode_dictionary(message)
            body = big_endian_body(header, layout.dictionaries[id_], each.body.to_pybytes())
        else:
            body = big_endian_body(decode_record_batch(message), layout, each.body.to_pybytes())
        pieces.append(Piece(message.kind, frame(metadata, alignment=8), body))
    return pieces


def big_endian_stream(stream: bytes) -> bytes:
    """Return a little-endian stream as a big-endian machine writes it."""
    pieces = (piece.first + piece.body for piece in big_endian_pieces(stream))
    return b"".join(pieces) + end_of_stream()


def big_endian_file(file: bytes) -> bytes:
    """Return a little-endian file as a big-endian machine writes it: its footer is little-endian, too."""
    result = FILE_START
    blocks: dict[MessageKind, list[tuple[int, int, int]]] = {kind: [] for kind in MessageKind}
    for kind, first, body in big_endian_pieces(file[len(FILE_START) :]):
        blocks[kind].append((len(result), len(first), len(body)))
        result += first + body
    end = len(file) - len(FILE_MAGIC) - 4
    footer = bytearray(file[end - struct.unpack_from("<i", file, end)[0] : end])
    tables = Tables(bytes(footer))
    root = tables.follow(0, "Footer")
    _, schema, dictionaries, batches, *_ = tables.slots(root, "Footer")
    for slot, kind in ((dictionaries, MessageKind.DICTIONARY_BATCH), (batches, MessageKind.RECORD_BATCH)):
        start, count = tables.vector(root, slot, 24, "Footer")
        assert count == len(blocks[kind])
        for index, block in enumerate(blocks[kind]):
            struct.pack_into("<qi4xq", footer, start + 24 * index, *block)
    turned_footer = big_endian_schema(bytes(footer), tables.reference(root, schema, "Footer"))
    return result + end_of_stream() + turned_footer + struct.pack("<i", len(turned_footer)) + FILE_MAGIC
