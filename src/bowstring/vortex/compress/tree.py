"""Columns as the writer has them, in canonical encodings, are encoded anew: a walk over their nodes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bowstring.vortex.compress.choice import constant_piece, encoded, integers, plan
from bowstring.vortex.compress.numbers import NODE, Numbers, flags_of
from bowstring.vortex.compress.text import array_of, compressed_text
from bowstring.vortex.dtype import PTYPES, DType, is_timestamp, units_per_second
from bowstring.vortex.message import Piece
from bowstring.vortex.protobuf import VARINT, Message, encode

_DAY: Final = 86_400
_WORD: Final = 8


def compressed(piece: Piece, dtype: DType, rows: int) -> Piece:
    """Return an array in the encodings that take the fewest bytes: itself where none takes fewer."""
    encoded = _encoded_anew(piece, dtype, rows)
    return encoded if encoded.nbytes < piece.nbytes else piece


def _encoded_anew(piece: Piece, dtype: DType, rows: int) -> Piece:
    children, inside = piece.children, dtype.children
    match piece.encoding:
        case "vortex.bool":
            return _flags(piece, dtype, rows)
        case "vortex.primitive":
            return encoded(_numbers(piece, rows))
        case "vortex.decimal":
            return _decimals(piece, rows)
        case "vortex.varbin" | "vortex.varbinview":
            return compressed_text(array_of(piece, rows), dtype)
        case "vortex.ext":
            if is_timestamp(dtype) and children[0].encoding == "vortex.primitive":
                return _times(_numbers(children[0], rows), dtype)
            return piece._replace(children=(compressed(children[0], inside[0], rows),))
        case "vortex.struct":
            first = len(children) - len(inside)
            fields = [
                compressed(child, each, rows) for child, each in zip(children[first:], inside, strict=True)
            ]
            return piece._replace(children=(*children[:first], *fields))
        case "vortex.fixed_size_list":
            elements = compressed(children[0], inside[0], rows * dtype.size)
            return piece._replace(children=(elements, *children[1:]))
        case "vortex.list" | "vortex.listview":
            count = 2 if piece.encoding == "vortex.list" else 3
            elements = compressed(children[0], inside[0], Message(piece.metadata, piece.encoding).uint(1))
            offsets = [integers(each.buffers[0][0]) for each in children[1:count]]
            return piece._replace(children=(elements, *offsets, *children[count:]))
        case "vortex.dict":
            values = compressed(children[1], dtype, Message(piece.metadata, piece.encoding).uint(1))
            return piece._replace(children=(encoded(_numbers(children[0], rows)), values))
        case "vortex.runend":
            values = compressed(children[1], dtype, Message(piece.metadata, piece.encoding).uint(2))
            return piece._replace(children=(integers(children[0].buffers[0][0]), values))
    return piece  # of nulls


def _numbers(piece: Piece, rows: int) -> Numbers:
    values: Any = np.ascontiguousarray(piece.buffers[0][0])
    return Numbers(values, flags_of(piece.children, rows))


def _flags(piece: Piece, dtype: DType, rows: int) -> Piece:
    valid = flags_of(piece.children, rows)
    if rows and valid is not None and not valid.any():
        return constant_piece(None, dtype)
    bits = flags_of((piece,), rows)
    if rows and valid is None and (bits is None or not bits.any()):
        return constant_piece(bits is None, dtype)
    return piece if valid is not None else piece._replace(children=())


def _decimals(piece: Piece, rows: int) -> Piece:
    """Return decimals as integers of at most 64 bits, where their values fit in those."""
    data, width = piece.buffers[0]
    data, valid = np.ascontiguousarray(data), flags_of(piece.children, rows)
    if width <= _WORD:
        values = data.view(f"<i{width}")
    else:
        words = data.view("<i8").reshape(-1, width // _WORD)
        fits = (words[:, 1:] == (words[:, :1] >> np.int64(63))).all(axis=1)
        if valid is not None:
            fits |= ~valid
        if not fits.all():
            return piece
        values = np.ascontiguousarray(words[:, 0])
    numbers = Numbers(values, valid)
    low, high = numbers.bounds if numbers.count else (0, 0)
    bits = max((each if each >= 0 else ~each).bit_length() for each in (low, high))
    narrow = numbers.with_values(values.astype(f"<i{next(size for size in (1, 2, 4, 8) if bits < 8 * size)}"))
    metadata = encode([(1, VARINT, PTYPES.index(narrow.values.dtype))])
    return Piece("vortex.decimal_byte_parts", metadata, (), (encoded(narrow),))


def _times(numbers: Numbers, dtype: DType) -> Piece:
    """Return timestamps as days, seconds and the rest, or as they are stored, whichever takes fewer bytes."""
    whole = plan(numbers)
    if not numbers.count:
        return Piece("vortex.ext", children=(whole.build(),))
    unit = units_per_second(dtype)
    days, rest = np.divmod(numbers.filled, np.int64(_DAY * unit))
    seconds, rest = np.divmod(rest, np.int64(unit))
    parts = (
        Numbers(days.astype("<i4") if int(np.abs(days).max()) < 1 << 31 else days, numbers.valid),
        Numbers(seconds.astype("<u4")),
        Numbers(rest.astype("<u4")),
    )
    plans = [plan(each) for each in parts]
    if sum(each.nbytes for each in plans) + NODE >= whole.nbytes:
        return Piece("vortex.ext", children=(whole.build(),))
    kinds = [PTYPES.index(each.values.dtype) for each in parts]
    metadata = encode([(1 + at, VARINT, kind) for at, kind in enumerate(kinds)])
    return Piece("vortex.datetimeparts", metadata, (), tuple(each.build() for each in plans))
