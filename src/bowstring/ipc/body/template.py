"""Decoding many messages that look alike: the record batches of one stream.

Their flatbuffers differ in a few numbers and in two tables of them; all else, the tables and the offsets between
them, is the same bytes each time. What was decoded once need only be compared then.
"""

from __future__ import annotations

import itertools
import struct
from typing import Final, NamedTuple

import numpy as np

from bowstring.errors import BowstringError
from bowstring.ipc.flatbuf.message import (
    Message,
    MessageKind,
    MetadataVersion,
    RecordBatchHeader,
    decode_message,
    decode_record_batch,
)
from bowstring.ipc.flatbuf.reader import follow, slots_of
from bowstring.limits import DEFAULT_LIMITS, Limits

__all__ = ["Likeness", "MessageDecoder"]

_INT64: Final = struct.Struct("<q")
_LITTLE_INT64: Final = np.dtype("<i8")
_ANY_BODY: Final = Limits(message_bytes=1 << 63, metadata_bytes=1 << 32)
_FLIPPED: Final = 0x55
_MESSAGE_BODY_LENGTH: Final = 3
_RECORD_BATCH_LENGTH: Final = 0


class Likeness(NamedTuple):
    """A message that others may look like: where its numbers are, and all the bytes that are none."""

    size: int
    same: tuple[tuple[slice, bytes], ...]
    version: MetadataVersion
    header: int
    body_length: int
    length: int
    nodes: tuple[int, tuple[int, int]]
    buffers: tuple[int, tuple[int, int]]
    variadic_counts: tuple[int, ...]
    compression: str | None


class MessageDecoder:
    """Decodes the messages of one stream, as :func:`bowstring.ipc.flatbuf.message.decode_message` does, but faster.

    Parameters
    ----------
    limits
        ``metadata_bytes`` and ``message_bytes`` apply.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bowstring.ipc.flatbuf.message import decode_record_batch
    >>> decoder = MessageDecoder()
    >>> for values in ([1, 2], [3, 4, 5]):
    ...     message = pa.ipc.read_message(pa.record_batch({"a": values}).serialize())
    ...     decode_record_batch(decoder.decode(message.metadata.to_pybytes())).length
    2
    3
    """

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._like: Likeness | None = None
        self._size = 0

    @property
    def like(self) -> Likeness | None:
        """What the last messages looked like; nothing while that is not known."""
        return self._like

    def decode(self, data: bytes | memoryview) -> Message:
        """Decode one message: what it returns and raises is that of ``decode_message``."""
        like = self._like
        if like is not None and len(data) == like.size:
            # A copy, so that nobody can change it any more.
            data = bytes(data)
            for where, expected in like.same:
                if data[where] != expected:
                    break
            else:
                (body_length,) = _INT64.unpack_from(data, like.body_length)
                if 0 <= body_length <= self._limits.message_bytes:
                    return _alike(like, data, body_length)
        message = decode_message(data, self._limits)
        if message.kind is MessageKind.RECORD_BATCH and message.custom_metadata is None:
            # Not the first time: most streams of one batch would pay for nothing.
            if len(message.data) == self._size:
                self._like = _likeness_of(message)
            self._size = len(message.data)
        return message


def _alike(like: Likeness, data: bytes, body_length: int) -> Message:
    header = RecordBatchHeader(
        _INT64.unpack_from(data, like.length)[0],
        np.ndarray(like.nodes[1], _LITTLE_INT64, data, like.nodes[0]),
        np.ndarray(like.buffers[1], _LITTLE_INT64, data, like.buffers[0]),
        like.variadic_counts,
        like.compression,
    )
    return Message(MessageKind.RECORD_BATCH, like.version, body_length, None, data, like.header, header)


def _likeness_of(message: Message) -> Likeness | None:
    """Return what others may be compared with; nothing where a number is left out, or lies in something else."""
    data, size = message.data, len(message.data)
    try:
        header = decode_record_batch(message)
    except BowstringError:  # for whoever decodes it to say
        return None
    envelope = follow(data, size, 0, "Message")
    body_slot = slots_of(data, size, envelope, "Message")[_MESSAGE_BODY_LENGTH]
    length_slot = slots_of(data, size, message.header, "RecordBatch")[_RECORD_BATCH_LENGTH]
    if not (body_slot and length_slot and len(header.nodes) and len(header.buffers)):
        return None
    body_length, length = envelope + body_slot, message.header + length_slot
    nodes, buffers = _start(header.nodes, data), _start(header.buffers, data)
    numbers = sorted(
        [
            (body_length, body_length + _INT64.size),
            (length, length + _INT64.size),
            (nodes, nodes + header.nodes.nbytes),
            (buffers, buffers + header.buffers.nbytes),
        ]
    )
    if any(end > begin for (_, end), (begin, _) in itertools.pairwise(numbers)):
        return None
    edges = [0, *itertools.chain.from_iterable(numbers), size]
    same = [slice(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=True)]
    like = Likeness(
        size,
        tuple((where, data[where]) for where in same if where.stop > where.start),
        message.version,
        message.header,
        body_length,
        length,
        (nodes, header.nodes.shape),
        (buffers, header.buffers.shape),
        header.variadic_counts,
        header.compression,
    )
    return like if _holds(like, data, numbers) else None


def _start(table: np.ndarray[tuple[int, ...], np.dtype[np.int64]], data: bytes) -> int:
    """Return where in `data` a view of it begins."""
    first: int = np.frombuffer(data, np.uint8).ctypes.data
    return table.ctypes.data - first


def _holds(like: Likeness, data: bytes, numbers: list[tuple[int, int]]) -> bool:
    """Whether a message is read in the same places whatever its numbers are: with all their bits another way."""
    other = np.frombuffer(bytearray(data), np.uint8)
    for begin, end in numbers:
        other[begin:end] ^= _FLIPPED
    flipped = other.tobytes()
    if any(flipped[where] != expected for where, expected in like.same):
        return False
    try:
        message = decode_message(flipped, _ANY_BODY)
        found = decode_record_batch(message)
    except BowstringError:
        return False
    expected = _alike(like, flipped, _INT64.unpack_from(flipped, like.body_length)[0])
    assert expected.record_batch is not None
    return message == expected._replace(record_batch=None) and _same(found, expected.record_batch, flipped)


def _same(found: RecordBatchHeader, expected: RecordBatchHeader, data: bytes) -> bool:
    return (
        found.length == expected.length
        and found.variadic_counts == expected.variadic_counts
        and found.compression == expected.compression
        and _place(found.nodes, data) == _place(expected.nodes, data)
        and _place(found.buffers, data) == _place(expected.buffers, data)
    )


def _place(table: np.ndarray[tuple[int, ...], np.dtype[np.int64]], data: bytes) -> tuple[int, ...]:
    return _start(table, data), *table.shape
