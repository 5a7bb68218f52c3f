"""Encapsulated messages: metadata and bodies one after the other in a stream of bytes.

A message is ``0xFFFFFFFF``, the length of its metadata as int32, the metadata padded, and the body. Before
Arrow 0.15 the first word was missing. A length of 0 ends the stream.
"""

from __future__ import annotations

import struct
from typing import Any

from bowstring.errors import InvalidMetadata, Truncated
from bowstring.ipc.flatbuf.message import bound_metadata
from bowstring.ipc.source import Source, cut_off
from bowstring.limits import Limits

# Bodies, and the buffers in them, begin at multiples of this, counted from the start of the stream.
ALIGNMENT = 64

_CONTINUATION = 0xFFFFFFFF
_WORD = struct.Struct("<I")
_INT32 = struct.Struct("<i")
_PREFIX = struct.Struct("<II")
_FILE_MAGIC = _WORD.unpack(b"ARRO")[0]


def frame(
    metadata: bytes, position: int = 0, alignment: int = ALIGNMENT, *, is_legacy: bool = False
) -> bytes:
    """Return metadata with their prefix, padded so that the body behind them is aligned."""
    prefix = _WORD.size if is_legacy else _PREFIX.size
    padding = -(position + prefix + len(metadata)) % alignment
    length = len(metadata) + padding
    head = _WORD.pack(length) if is_legacy else _PREFIX.pack(_CONTINUATION, length)
    return head + metadata + bytes(padding)


def end_of_stream(*, is_legacy: bool = False) -> bytes:
    """Return the marker behind the last message."""
    return _WORD.pack(0) if is_legacy else _PREFIX.pack(_CONTINUATION, 0)


def write_all(sink: Any, *pieces: Any) -> int:
    """Write contiguous pieces of memory to a file; return their size in bytes."""
    total = 0
    for piece in pieces:
        left = memoryview(piece)
        if not left.nbytes:
            continue
        left = left.cast("B")
        total += left.nbytes
        # Unbuffered files may take a part only; other sinks return nothing, or take it all.
        while isinstance(count := sink.write(left), int) and count < left.nbytes:
            left = left[count:]
    return total


def read_metadata(source: Source, limits: Limits) -> bytes | None:
    """Read the next message up to its body; None at the end of the stream.

    A stream ends with its marker, or where the source ends between two messages.
    """
    start = source.position
    word = source.read(_WORD.size)
    if not word:
        return None
    if len(word) == _WORD.size and _WORD.unpack(word)[0] == _CONTINUATION:
        word = source.read(_WORD.size)
    if len(word) < _WORD.size:
        raise Truncated("the stream ends within a message's prefix", where=f"byte {source.position}")
    length = _INT32.unpack(word)[0]
    if length == 0:
        return None
    where = f"byte {start}"
    if length == _FILE_MAGIC and start == 0:
        raise InvalidMetadata("this is an Arrow file, not a stream", where=where, hint="Open it as a file.")
    if length < 0:
        raise InvalidMetadata("the length of a message is negative", found=length, where=where)
    bound_metadata(length, limits, where)
    metadata = source.read(length)
    if len(metadata) < length:
        raise cut_off("metadata", length, len(metadata), where)
    return metadata
