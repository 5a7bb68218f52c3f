"""Streams that tests make by hand, and what they compare."""

from __future__ import annotations

from typing import Any

import numpy as np

from bowstring.vortex.dtype import DType, encode_dtype
from bowstring.vortex.message import Message, MessageKind, Piece, array_message, encode_message

__all__ = ["decoded", "dtype_message", "messages_of", "numbers", "stream_of"]


def dtype_message(dtype: DType) -> bytes:
    """Return the first message of a stream."""
    data = encode_dtype(dtype)
    return encode_message(Message(MessageKind.DTYPE, len(data))) + data


def stream_of(dtype: DType, *arrays: tuple[Piece, int]) -> bytes:
    """Return a stream of encoded arrays and their lengths."""
    messages = [b"".join(bytes(part) for part in array_message(piece, rows)) for piece, rows in arrays]
    return dtype_message(dtype) + b"".join(messages)


def messages_of(data: bytes) -> list[bytes]:
    """Return the messages of a stream, each whole."""
    from bowstring.vortex.message import decode_message

    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        end = at + 4 + size + decode_message(data[at + 4 : at + 4 + size]).body_size
        found.append(data[at:end])
        at = end
    return found


def decoded(dtype: DType, piece: Piece, rows: int) -> list[Any]:
    """Return the values of one encoded array, checked in full."""
    import bowstring as bow

    table = bow.vortex.open_stream(stream_of(dtype, (piece, rows))).read_all()
    table.validate(full=True)
    values: list[Any] = table.column(0).to_pylist()
    return values


def numbers(values: Any, dtype: Any) -> Piece:
    """Return numbers as they are."""
    array = np.array(values, dtype)
    return Piece("vortex.primitive", buffers=((array, array.itemsize),))
