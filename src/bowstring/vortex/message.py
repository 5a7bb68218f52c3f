"""Messages: how a stream is framed, and what stands in the header of each.

A stream is messages one behind the other: the length of a flatbuffer as an unsigned 32-bit integer, the flatbuffer
``Message``, and a body of as many bytes as that says. Nothing is aligned unless a writer pads, and nothing
marks the end (*Message structure* and *Streaming semantics* of the Vortex IPC format).
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bowstring.errors import InvalidMetadata, LimitExceeded, Unsupported, UsageError
from bowstring.ipc.flatbuf.builder import Builder, Reference, Scalar
from bowstring.ipc.flatbuf.reader import Tables, follow
from bowstring.ipc.source import BufferSource, Source, cut_off, open_source
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.memory import Buffer

if TYPE_CHECKING:
    from collections.abc import Sequence

ALIGNMENT: Final = 64
"""Bodies and buffers that Bowstring writes begin at multiples of this many bytes of the message."""

_VERSION: Final = 0
_PREFIX: Final = struct.Struct("<I")
_LARGEST_EXPONENT: Final = 16


class MessageKind(enum.IntEnum):
    """Kinds of messages, as the union in the flatbuffer numbers them."""

    ARRAY = 1
    BUFFER = 2
    DTYPE = 3


class Message(NamedTuple):
    """The header of a message."""

    kind: MessageKind
    body_size: int  # bytes of the body, which follows
    row_count: int = 0
    # The encodings that an array uses; its nodes name them by their position here.
    encodings: tuple[str, ...] = ()
    alignment: int = 1  # bytes at a multiple of which the body of a buffer message has to lie


def decode_message(data: bytes) -> Message:
    """Return the header that a flatbuffer ``Message`` holds."""
    tables = Tables(data)
    root = follow(data, len(data), 0, "Message")
    version, kind, header, size, *_ = tables.slots(root, "Message")
    number = tables.scalar(root, version, "B", 0, "Message.version")
    if number != _VERSION:
        raise Unsupported("messages of Vortex of a later version", expected="V0", found=f"V{number}")
    tag = tables.scalar(root, kind, "B", 0, "Message.header_type")
    if not 0 < tag <= len(MessageKind):
        raise Unsupported(
            "a message of Vortex of an unknown kind", expected="Array, Buffer or DType", found=f"number {tag}"
        )
    body_size = tables.scalar(root, size, "Q", 0, "Message.body_size")
    message = Message(MessageKind(tag), body_size)
    inner = tables.reference(root, header, "Message.header")
    if inner < 0:
        raise InvalidMetadata("a message has no header", found=message.kind.name)
    first, second, *_ = tables.slots(inner, message.kind.name)
    if message.kind is MessageKind.ARRAY:
        rows = tables.scalar(inner, first, "I", 0, "ArrayMessage.row_count")
        names = tables.strings(inner, second, "ArrayMessage.encodings")
        # A name that is not UTF-8 is unknown like any other, and must not make the message unreadable.
        return message._replace(
            row_count=rows, encodings=tuple(each.decode(errors="replace") for each in names)
        )
    if message.kind is MessageKind.BUFFER:
        exponent = tables.scalar(inner, first, "B", 0, "BufferMessage.alignment_exponent")
        return message._replace(alignment=alignment_of(exponent))
    return message


def alignment_of(exponent: int) -> int:
    """Return the bytes of an alignment, of which the exponent is given."""
    if exponent > _LARGEST_EXPONENT:
        raise InvalidMetadata(
            "an alignment is too large", expected=f"2^{_LARGEST_EXPONENT} at most", found=f"2^{exponent}"
        )
    return 1 << exponent


def encode_message(message: Message) -> bytes:
    """Return the length and the flatbuffer of a message, padded so that its body begins at a multiple of 64 bytes.

    The padding counts as part of the flatbuffer: other readers take it for the end of one.
    """
    builder = Builder()
    fields: Sequence[Any] = ()
    if message.kind is MessageKind.ARRAY:
        names = builder.references([builder.string(name) for name in message.encodings])
        fields = (Scalar("I", message.row_count), Reference(names))
    elif message.kind is MessageKind.BUFFER:
        fields = (Scalar("B", message.alignment.bit_length() - 1),)
    header = builder.table(fields)
    root = builder.table(
        [
            Scalar("B", _VERSION),
            Scalar("B", message.kind),
            Reference(header),
            Scalar("Q", message.body_size),
        ]
    )
    data = builder.finish(root)
    data += bytes(-(len(data) + _PREFIX.size) % ALIGNMENT)
    return _PREFIX.pack(len(data)) + data


class MessageReader:
    """Reads the messages of a source one after the other, whatever they are."""

    def __init__(
        self, source: Any, *, limits: Limits = DEFAULT_LIMITS, sentinel: bytes | None = None
    ) -> None:
        if sentinel is not None and len(sentinel) != _PREFIX.size:
            raise UsageError("a sentinel stands in the place of a length", expected="4 bytes", found=sentinel)
        self._source: Source = _source_of(source)
        self._limits = limits
        self._sentinel = sentinel

    def read(self) -> tuple[Message, Buffer] | None:
        """Return the header and the body of the next message, or ``None`` at the end."""
        source = self._source
        position = source.position
        prefix = source.read(_PREFIX.size)
        if not prefix or prefix == self._sentinel:
            return None
        if len(prefix) < _PREFIX.size:
            raise cut_off("length", _PREFIX.size, len(prefix), f"byte {position}")
        (size,) = _PREFIX.unpack(prefix)
        if size > self._limits.metadata_bytes:
            raise LimitExceeded(
                "the header of a message is too large",
                expected=f"at most Limits.metadata_bytes = {self._limits.metadata_bytes}",
                found=size,
                where=f"byte {position}",
                hint="Is this a stream of Vortex? One begins with a DType message.",
            )
        data = source.read(size)
        if len(data) < size:
            raise cut_off("header", size, len(data), f"byte {position}")
        message = decode_message(data)
        if message.body_size > self._limits.message_bytes:
            raise LimitExceeded(
                "the body of a message is too large",
                expected=f"at most Limits.message_bytes = {self._limits.message_bytes}",
                found=message.body_size,
                where=f"byte {position}",
            )
        return message, source.body(message.body_size)

    @property
    def position(self) -> int:
        """Where the next message begins."""
        return self._source.position

    def give_up(self, start: int) -> None:
        """Read the message that begins at ``start`` again, or nothing: an interrupt has left it half read."""
        self._source.give_up(start)

    def close(self) -> None:
        """Let go of the source; bodies that were read live on."""
        self._source.close()


def _source_of(source: Any) -> Source:
    if isinstance(source, Buffer) and not source.device.is_host:
        return _DeviceSource(source)
    return open_source(source)


class _DeviceSource(BufferSource):
    """Memory of a device, of which only headers are copied to the host."""

    def __init__(self, buffer: Buffer) -> None:
        # Not as for memory on the host, all of which would be copied there.
        self._buffer = buffer
        self._bytes = memoryview(b"")

    def read(self, nbytes: int) -> bytes:
        nbytes = min(nbytes, self._buffer.nbytes - self.position)
        data = bytes(self._buffer.slice(self.position, nbytes).to_host())
        self.position += nbytes
        return data
