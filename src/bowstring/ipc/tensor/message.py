"""Messages that stand alone, as tensors do: read from wherever a source is, written wherever a sink is."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, TypeVar

from bowstring.errors import EndOfStream
from bowstring.ipc.arguments import check_file, file_path
from bowstring.ipc.flatbuf.message import Message, decode_message
from bowstring.ipc.framing import frame, read_metadata
from bowstring.ipc.source import open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bowstring.limits import Limits
    from bowstring.memory import Buffer

__all__ = ["read_message", "write_message"]


Header = TypeVar("Header")


def read_message(source: Any, limits: Limits, decode: Callable[[Message], Header]) -> tuple[Header, Buffer]:
    """Read one message: its header by `decode`, and its body without a copy where that can be.

    A file is read up to the end of the message and not further; memory is read from its start.

    Raises
    ------
    EndOfStream
        The source has no more messages.
    InvalidData
        The bytes are not such a message, or end before it does (`Truncated`).

    Examples
    --------
    >>> import io, pyarrow as pa
    >>> from bowstring.limits import DEFAULT_LIMITS
    >>> batch = pa.record_batch({"a": [1]})
    >>> kind, body = read_message(batch.serialize(), DEFAULT_LIMITS, lambda message: message.kind.name)
    >>> kind, body.nbytes
    ('RECORD_BATCH', 8)
    """
    with contextlib.closing(open_source(source)) as opened:
        metadata = read_metadata(opened, limits)
        if metadata is None:
            raise EndOfStream("the source has no more messages")
        message = decode_message(metadata, limits)
        header = decode(message)
        return header, opened.body(message.body_length)


def write_message(dest: Any, metadata: bytes, pieces: Iterable[Any]) -> int:
    """Write a message whose body begins at a multiple of 64 bytes of the sink; return how many bytes it took.

    Parameters
    ----------
    dest
        A path, a binary file opened for writing, or a ``pyarrow.NativeFile``. A sink that cannot tell where it
        is counts from here.
    metadata
        The flatbuffer.
    pieces
        The body, anything with the buffer protocol.

    Examples
    --------
    >>> import io
    >>> write_message(io.BytesIO(), bytes(16), [b"the body"])
    72
    """
    if isinstance(dest, str | os.PathLike):
        with open(file_path(dest), "wb") as file:
            return write_message(file, metadata, pieces)
    check_file(dest, "writable")
    first = frame(metadata, _position(dest))
    return sum(_put(dest, piece) for piece in (first, *pieces))


def _position(dest: Any) -> int:
    try:
        return int(dest.tell())
    except (AttributeError, OSError):
        return 0


def _put(dest: Any, piece: Any) -> int:
    whole = memoryview(piece)
    left = whole.cast("B") if whole.nbytes else whole
    while left.nbytes:
        count = dest.write(left)
        # Unbuffered files may take a part only; others say nothing, or that they took it all.
        if not isinstance(count, int) or count >= left.nbytes:
            break
        left = left[count:]
    return whole.nbytes
