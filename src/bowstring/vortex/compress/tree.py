"""Columns as the writer has them, in canonical encodings, are encoded anew: a walk over their nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.vortex.compress.choice import encoded, integers
from bowstring.vortex.compress.numbers import Numbers, flags_of
from bowstring.vortex.compress.parts import compressed_decimals, compressed_times
from bowstring.vortex.compress.repeats import constant_piece
from bowstring.vortex.compress.text import array_of, compressed_text
from bowstring.vortex.dtype import DType, is_timestamp
from bowstring.vortex.nodes import Piece
from bowstring.vortex.protobuf import Message

if TYPE_CHECKING:
    from collections.abc import Callable


def compressed(piece: Piece, dtype: DType, rows: int) -> Piece:
    """Return an array in the encodings that take the fewest bytes: itself where none takes fewer."""
    found = _RULES[piece.encoding](piece, dtype, rows)
    return found if found.nbytes < piece.nbytes else piece


def _extension(piece: Piece, dtype: DType, rows: int) -> Piece:
    inner = piece.children[0]
    if is_timestamp(dtype) and inner.encoding == "vortex.primitive":
        return compressed_times(_numbers(inner, rows), dtype)
    return piece._replace(children=(compressed(inner, dtype.children[0], rows),))


def _primitive(piece: Piece, _dtype: DType, rows: int) -> Piece:
    return encoded(_numbers(piece, rows))


def _bool(piece: Piece, dtype: DType, rows: int) -> Piece:
    valid = flags_of(piece.children, rows)
    if rows and valid is not None and not valid.any():
        return constant_piece(None, dtype)
    bits = flags_of((piece,), rows)
    if rows and valid is None and (bits is None or not bits.any()):
        return constant_piece(bits is None, dtype)
    return piece if valid is not None else piece._replace(children=())


def _decimal(piece: Piece, _dtype: DType, rows: int) -> Piece:
    return compressed_decimals(piece, rows)


def _text(piece: Piece, dtype: DType, rows: int) -> Piece:
    return compressed_text(array_of(piece, rows), dtype)


def _struct(piece: Piece, dtype: DType, rows: int) -> Piece:
    first = len(piece.children) - len(dtype.children)
    fields = zip(piece.children[first:], dtype.children, strict=True)
    inner = (compressed(child, each, rows) for child, each in fields)
    return piece._replace(children=(*piece.children[:first], *inner))


def _list(piece: Piece, dtype: DType, _rows: int) -> Piece:
    held = Message(piece.metadata, piece.encoding).uint(1)
    count = 2 if piece.encoding == "vortex.list" else 3
    elements, *offsets = piece.children[:count]
    return piece._replace(
        children=(
            compressed(elements, dtype.children[0], held),
            *(integers(each.buffers[0][0]) for each in offsets),
            *piece.children[count:],
        )
    )


def _fixed_size_list(piece: Piece, dtype: DType, rows: int) -> Piece:
    elements, *tail = piece.children
    return piece._replace(children=(compressed(elements, dtype.children[0], rows * dtype.size), *tail))


def _dictionary(piece: Piece, dtype: DType, rows: int) -> Piece:
    codes, values = piece.children
    held = Message(piece.metadata, piece.encoding).uint(1)
    return piece._replace(children=(encoded(_numbers(codes, rows)), compressed(values, dtype, held)))


def _runs(piece: Piece, dtype: DType, _rows: int) -> Piece:
    ends, values = piece.children
    held = Message(piece.metadata, piece.encoding).uint(2)
    return piece._replace(children=(integers(ends.buffers[0][0]), compressed(values, dtype, held)))


def _null(piece: Piece, _dtype: DType, _rows: int) -> Piece:
    return piece


def _numbers(piece: Piece, rows: int) -> Numbers:
    values: Any = np.ascontiguousarray(piece.buffers[0][0])
    return Numbers(values, flags_of(piece.children, rows))


_RULES: dict[str, Callable[[Piece, DType, int], Piece]] = {
    "vortex.null": _null,
    "vortex.bool": _bool,
    "vortex.primitive": _primitive,
    "vortex.decimal": _decimal,
    "vortex.varbin": _text,
    "vortex.varbinview": _text,
    "vortex.ext": _extension,
    "vortex.struct": _struct,
    "vortex.list": _list,
    "vortex.listview": _list,
    "vortex.fixed_size_list": _fixed_size_list,
    "vortex.dict": _dictionary,
    "vortex.runend": _runs,
}
