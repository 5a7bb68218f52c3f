"""Vortex as a target: streams, of which encodings, metadata, children and buffers of trees are changed."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import random
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

import bowstring as bow
from bowstring.errors import BowstringError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import wrap
from bowstring.vortex.dtype import PTYPES, DType, decode_dtype, encode_dtype
from bowstring.vortex.message import (
    ArrayNode,
    Body,
    Message,
    MessageKind,
    MessageReader,
    Piece,
    array_message,
    encode_message,
    read_body,
)
from tests.fuzz.mutators import changed_bytes, changed_fields, other_number, rearranged
from tests.vortex.streams import stream_of
from tests.vortex.trees import TYPES, Trees

_LIMITS: Final = bow.Limits(
    metadata_bytes=1 << 16, message_bytes=1 << 20, decompressed_bytes=1 << 24, decompression_floor=1 << 22
)
_ENCODINGS: Final = sorted(bow.vortex.encodings())
_TREES: Final = 25
_TIMES: Final = 3
"""Decoded by rules, recorded, and by a program, if the shape of a column is new."""


def vortex(data: Any) -> None:
    """Read a stream: the encoding and the values of each column, by itself and with the others."""
    with contextlib.suppress(BowstringError):
        for batch in bow.vortex.open_stream(data, limits=_LIMITS):
            for position in range(batch.num_columns):
                with contextlib.suppress(BowstringError):
                    batch.encoding(position)
                for _ in range(_TIMES):
                    with contextlib.suppress(BowstringError):
                        found = batch.decode([position])
                        found.validate(full=True)
                        found.to_arrow().validate(full=True)


def mutated_vortex(data: bytes, rng: random.Random) -> bytes:
    """Return a stream with another message, of another tree of encodings or type; or with other bytes anywhere."""
    if rng.random() < 0.1:
        return changed_bytes(data, rng)
    messages = [(message, bytes(body.to_host())) for message, body in iter(MessageReader(data).read, None)]
    changed = rearranged(messages, lambda each: _other_message(*each, rng), rng, 0.1)
    return b"".join(encode_message(message) + body for message, body in changed)


def _other_message(message: Message, body: bytes, rng: random.Random) -> tuple[Message, bytes]:
    if rng.random() < 0.15:
        return _other_header(message, rng), body
    if rng.random() < 0.2:
        end = max(0, len(body) - 200)  # of an array: its flatbuffer
        body = body[:end] + changed_bytes(body[end:], rng)
    elif message.kind is MessageKind.DTYPE:
        body = encode_dtype(_other_type(decode_dtype(body), rng))
    elif message.kind is MessageKind.ARRAY:
        parsed = read_body(message, wrap(body), DEFAULT_LIMITS)
        piece = _other_piece(_piece(parsed, body, parsed.root), rng)
        data = b"".join(map(bytes, array_message(piece, message.row_count)))
        [(message, buffer)] = iter(MessageReader(data).read, None)
        body = bytes(buffer.to_host())
    return message._replace(body_size=len(body)), body


def _other_header(message: Message, rng: random.Random) -> Message:
    match rng.randrange(4):
        case 0:
            return message._replace(kind=rng.choice(list(MessageKind)))
        case 1:
            return message._replace(body_size=other_number(rng, message.body_size, signed=False))
        case 2:
            names = rearranged(message.encodings, lambda _: rng.choice(_ENCODINGS), rng)
            return message._replace(encodings=tuple(names))
        case _:
            return message._replace(row_count=other_number(rng, message.row_count, 32, signed=False))


def _piece(body: Body, data: bytes, node: ArrayNode) -> Piece:
    """Return the tree under a node, with its buffers."""
    own = [body.stored[index] for index in node.buffers]
    buffers = tuple((data[each.offset : each.offset + each.nbytes], 8) for each in own)
    return Piece(
        node.encoding, node.metadata, buffers, tuple(_piece(body, data, each) for each in node.children)
    )


def _other_piece(piece: Piece, rng: random.Random) -> Piece:
    """Return a tree with another node, at any depth."""
    which = rng.random()
    if piece.children and which < 0.6:
        children = rearranged(piece.children, lambda each: _other_piece(each, rng), rng, 0.1)
        return piece._replace(children=tuple(children))
    if which < 0.7:
        return piece._replace(encoding=rng.choice(_ENCODINGS))
    if piece.metadata and which < 0.85:
        return piece._replace(metadata=changed_fields(piece.metadata, rng))
    if piece.buffers:
        buffers = rearranged(piece.buffers, lambda each: (changed_bytes(each[0], rng), each[1]), rng, 0.2)
        return piece._replace(buffers=tuple(buffers))
    if piece.children and rng.random() < 0.5:
        return piece.children[0]
    return Piece(rng.choice(_ENCODINGS), piece.metadata, piece.buffers, (piece,))


def _other_type(dtype: DType, rng: random.Random) -> DType:
    """Return another type: nullable or not, of other numbers, names or children, at any depth."""
    if dtype.children and rng.random() < 0.6:
        children = tuple(rearranged(dtype.children, lambda each: _other_type(each, rng), rng, 0.2))
        return dataclasses.replace(dtype, children=children)
    match rng.randrange(5):
        case 0:
            return dataclasses.replace(dtype, nullable=not dtype.nullable)
        case 1:
            return rng.choice(TYPES)
        case 2:
            precision, scale = (other_number(rng, each, 8) for each in (dtype.precision, dtype.scale))
            return dataclasses.replace(dtype, precision=precision & 0xFF, scale=scale)
        case 3:
            size = other_number(rng, dtype.size, 32, signed=False)
            return dataclasses.replace(dtype, size=size, metadata=changed_bytes(dtype.metadata, rng))
        case _:
            return dataclasses.replace(dtype, ptype=rng.randrange(len(PTYPES)))


def vortex_seeds() -> Iterator[tuple[str, bytes]]:
    """Yield random trees of encodings, and what Bowstring writes."""
    for number in range(_TREES):
        rng = np.random.default_rng(number)
        dtype = TYPES[number % len(TYPES)].as_nullable(number % 2 == 0)
        rows = (3, 70, 1100)[number % 3]
        yield f"tree {number}", stream_of(dtype, (Trees(rng).array(dtype, rows, 3), rows))
    table = pa.table(
        {"n": np.arange(2000) // 9, "s": ["a word", None, "", "another word"] * 500, "f": np.arange(2000) / 4}
    )
    for compress in (False, True):
        sink = io.BytesIO()
        with bow.vortex.new_stream(sink, table.schema, compress=compress) as writer:
            for batch in table.to_batches(max_chunksize=1500):
                writer.write_batch(batch)
        yield f"compress={compress}", sink.getvalue()
