"""Decoding many messages that look alike: the record batches of one stream.

Their flatbuffers differ in a few numbers and in two tables of them; all else, the tables and the offsets between
them, is the same bytes each time. What was decoded once need only be compared then.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from bowstring.errors import BowstringError
from bowstring.ipc.body.check_bulk import MessageTable, Table, leading
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

if TYPE_CHECKING:
    from bowstring.columnar.layout import Layout

__all__ = ["MessageDecoder", "MessageTemplate"]

_INT64: Final = struct.Struct("<q")
_LITTLE_INT64: Final = np.dtype("<i8")
_ANY_BODY: Final = Limits(message_bytes=1 << 63, metadata_bytes=1 << 32)
_FLIPPED: Final = 0x55
_MESSAGE_BODY_LENGTH: Final = 3
_RECORD_BATCH_LENGTH: Final = 0


class MessageTemplate(NamedTuple):
    """The metadata of a record batch that others may look like: where its numbers are, and all other bytes."""

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

    def fits(self, layout: Layout) -> bool:
        """Whether batches of a layout can be made of messages that look so, many at a time."""
        return (
            self.version is MetadataVersion.V5
            and not layout.run_ends
            and self.nodes[1] == (layout.num_nodes, 2)
            and self.size % _LITTLE_INT64.itemsize == 0
            and len(self.variadic_counts) == len(layout.variadic_nodes)
            and self.buffers[1] == (layout.num_buffers + sum(self.variadic_counts), 2)
        )

    def table(self, metadata: bytes, places: list[int]) -> MessageTable:
        """Return the numbers of messages, of those in front that look alike.

        Parameters
        ----------
        metadata
            Of all messages, one behind the other, each of ``size`` bytes.
        places
            Where their bodies are.
        """
        width, count = _LITTLE_INT64.itemsize, len(places)
        rows = np.frombuffer(metadata, np.uint8).reshape(count, self.size)
        alike = np.ones(count, np.bool_)
        for where, expected in self.same:
            alike &= (rows[:, where] == np.frombuffer(expected, np.uint8)).all(axis=1)
        count = leading(alike)
        words = np.frombuffer(metadata, _LITTLE_INT64).reshape(len(places), self.size // width)[:count]

        def numbers(place: int, shape: tuple[int, ...]) -> Table:
            first = place // width
            found: Table = words[:, first : first + shape[0] * shape[1]].reshape(count, *shape)
            return found

        return MessageTable(
            words[:, self.length // width],
            numbers(*self.nodes),
            numbers(*self.buffers),
            words[:, self.body_length // width],
            np.array(places[:count], np.int64),
        )


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
        self._template: MessageTemplate | None = None
        self._size = 0

    @property
    def template(self) -> MessageTemplate | None:
        """What the last messages looked like; nothing while that is not known."""
        return self._template

    def decode(self, data: bytes | memoryview) -> Message:
        """Decode one message: what it returns and raises is that of ``decode_message``."""
        template = self._template
        if template is not None and len(data) == template.size:
            # A copy, so that nobody can change it any more.
            data = bytes(data)
            for where, expected in template.same:
                if data[where] != expected:
                    break
            else:
                (body_length,) = _INT64.unpack_from(data, template.body_length)
                if 0 <= body_length <= self._limits.message_bytes:
                    return _alike(template, data, body_length)
        message = decode_message(data, self._limits)
        if message.kind is MessageKind.RECORD_BATCH and message.custom_metadata is None:
            # Not the first time: most streams of one batch would pay for nothing.
            if len(message.data) == self._size:
                self._template = _template_of(message)
            self._size = len(message.data)
        return message


def _alike(template: MessageTemplate, data: bytes, body_length: int) -> Message:
    header = RecordBatchHeader(
        _INT64.unpack_from(data, template.length)[0],
        np.ndarray(template.nodes[1], _LITTLE_INT64, data, template.nodes[0]),
        np.ndarray(template.buffers[1], _LITTLE_INT64, data, template.buffers[0]),
        template.variadic_counts,
        template.compression,
    )
    return Message(
        MessageKind.RECORD_BATCH, template.version, body_length, None, data, template.header, header
    )


def _template_of(message: Message) -> MessageTemplate | None:
    """Return what others may be compared with; nothing where a number is left out, or lies in something else."""
    data, size = message.data, len(message.data)
    try:
        header = decode_record_batch(message)
    except BowstringError:  # the decoder raises it again
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
    template = MessageTemplate(
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
    return template if _holds(template, data, numbers) else None


def _start(table: np.ndarray[tuple[int, ...], np.dtype[np.int64]], data: bytes) -> int:
    """Return where in `data` a view of it begins."""
    first: int = np.frombuffer(data, np.uint8).ctypes.data
    return table.ctypes.data - first


def _holds(template: MessageTemplate, data: bytes, numbers: list[tuple[int, int]]) -> bool:
    """Whether a message is read in the same places whatever its numbers are: with all their bits another way."""
    other = np.frombuffer(bytearray(data), np.uint8)
    for begin, end in numbers:
        other[begin:end] ^= _FLIPPED
    flipped = other.tobytes()
    if any(flipped[where] != expected for where, expected in template.same):
        return False
    try:
        message = decode_message(flipped, _ANY_BODY)
        found = decode_record_batch(message)
    except BowstringError:
        return False
    expected = _alike(template, flipped, _INT64.unpack_from(flipped, template.body_length)[0])
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
