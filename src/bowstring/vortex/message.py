"""Messages: how a stream is framed, what stands in the header of each, and the encoded array in a body.

A stream is messages one behind the other: the length of a flatbuffer as an unsigned 32-bit integer, the flatbuffer
``Message``, and a body of as many bytes as that says. Nothing is aligned unless a writer pads, and nothing
marks the end (*Message structure* and *Streaming semantics* of the Vortex IPC format).

The body of an array is its buffers first, each behind as many bytes of padding as it declares, then the flatbuffer
``Array``, and its length in the last four bytes. (The published page of the format has the order reversed.) Nodes
carry neither types nor lengths: those follow from the rule of the node above.
"""

from __future__ import annotations

import enum
import itertools
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from bowstring.errors import InvalidBody, InvalidMetadata, LimitExceeded, Truncated, Unsupported, UsageError
from bowstring.ipc.flatbuf.builder import Builder, Reference, Scalar
from bowstring.ipc.flatbuf.reader import Tables
from bowstring.ipc.source import BufferSource, Source, cut_off, open_source
from bowstring.limits import DEFAULT_LIMITS, Limits, most_decompressed
from bowstring.memory import Buffer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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
    root = tables.follow(0, "Message")
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
        on_device = isinstance(source, Buffer) and not source.device.is_host
        self.source: Source = _DeviceSource(source) if on_device else open_source(source)
        self._limits = limits
        self._sentinel = sentinel

    def read(self) -> tuple[Message, Buffer] | None:
        """Return the header and the body of the next message, or ``None`` at the end."""
        source = self.source
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


_SUFFIX: Final = struct.Struct("<I")
_NONE, _LZ4 = 0, 1
_BUFFER: Final = struct.Struct("<HBBI")
_EXACT: Final = 1


class ArrayNode(NamedTuple):
    """A node of an encoded array."""

    encoding: str
    metadata: bytes = b""  # what the encoding needs to know; most often a message of protocol buffers
    buffers: tuple[int, ...] = ()  # which buffers of the body are the node's own
    children: tuple[ArrayNode, ...] = ()
    stats: int = -1  # where the flatbuffer has its statistics, or -1 where it has none; see `exact_stats`


def exact_stats(tables: Tables, node: ArrayNode) -> dict[str, bytes | bool]:
    """Return the statistics that the writer declares as exact about a node.
    They are hints (``min`` and ``max`` as encoded scalars, ``is_sorted`` …): no value depends on them.
    """
    if node.stats < 0:
        return {}
    where = "ArrayStats"
    least, least_is, most, most_is, total, *flags = tables.slots(node.stats, where)[:8]
    stats: dict[str, bytes | bool] = {}
    for name, slot, precision in (("min", least, least_is), ("max", most, most_is), ("sum", total, -1)):
        is_exact = precision < 0 or tables.scalar(node.stats, precision, "B", 0, where) == _EXACT
        if slot and is_exact:
            start, size = tables.vector(node.stats, slot, 1, where)
            stats[name] = tables.data[start : start + size]
    for name, slot in zip(("is_sorted", "is_strict_sorted", "is_constant"), flags, strict=True):
        if slot:
            stats[name] = bool(tables.scalar(node.stats, slot, "B", 0, where))
    return stats


class StoredBuffer(NamedTuple):
    """Where a buffer lies in the body, and how."""

    offset: int
    nbytes: int
    compression: int


class Body(NamedTuple):
    """The body of an array message, taken apart, and the flatbuffer at its end; buffers are where they were."""

    buffer: Buffer
    root: ArrayNode
    stored: tuple[StoredBuffer, ...]
    flatbuffer: bytes

    def array(self, index: int, whole: Any, limits: Limits, nbytes: int | None, most: int) -> Any:
        """Return the bytes of a buffer as an array of uint8 of the body's device, decompressed if needed."""
        # whole: all bytes of the body; nbytes: the exact size if the encoding's rule says it; most: else a bound
        if index >= len(self.stored):
            raise InvalidBody("a node names a buffer that is not there", found=index)
        stored = self.stored[index]
        if stored.compression == _NONE:
            if nbytes is not None and stored.nbytes < nbytes:
                raise InvalidBody("a buffer is too short", expected=f"{nbytes} bytes", found=stored.nbytes)
            return whole[stored.offset : stored.offset + (stored.nbytes if nbytes is None else nbytes)]
        if stored.compression != _LZ4:
            raise Unsupported(
                "a compression of buffers that is not known here",
                expected="none, or LZ4",
                found=f"number {stored.compression}",
            )
        return self._decompressed(stored, limits, nbytes, most)

    def _decompressed(self, stored: StoredBuffer, limits: Limits, nbytes: int | None, most: int) -> Any:
        bound = min(most if nbytes is None else nbytes, most_decompressed(stored.nbytes, limits))
        if nbytes is not None and nbytes > bound:
            raise LimitExceeded(
                "a compressed buffer is too large", expected=f"at most {bound} bytes by Limits", found=nbytes
            )
        frames = pa.py_buffer(self.buffer.slice(stored.offset, stored.nbytes).to_host())
        try:
            with pa.CompressedInputStream(pa.BufferReader(frames), "lz4") as stream:
                data = stream.read_buffer(bound + 1)
        except (OSError, pa.ArrowException) as error:
            raise InvalidBody(f"a buffer is no LZ4 frame: {error}") from error
        if data.size > bound or (nbytes is not None and data.size != nbytes):
            raise InvalidBody(
                "a compressed buffer does not hold what its encoding says",
                expected=f"{nbytes if nbytes is not None else f'at most {bound}'} bytes",
                found=f"{'more' if data.size > bound else data.size}",
            )
        return self.buffer.device.from_host(np.frombuffer(data, np.uint8))


def read_body(message: Message, body: Buffer, limits: Limits) -> Body:
    """Take the body of an array message apart. Only its end is copied to the host."""
    if body.nbytes < _SUFFIX.size:
        raise Truncated("the body of an array is too short", expected="4 bytes", found=body.nbytes)
    (size,) = _SUFFIX.unpack(bytes(body.slice(body.nbytes - _SUFFIX.size, _SUFFIX.size).to_host()))
    end = body.nbytes - _SUFFIX.size
    if size > min(end, limits.metadata_bytes):
        raise InvalidMetadata(
            "the array at the end of a body does not lie in it",
            expected=f"at most {min(end, limits.metadata_bytes)} bytes",
            found=size,
        )
    data = bytes(body.slice(end - size, size).to_host())
    tables = Tables(data)
    root = tables.follow(0, "Array")
    nodes, buffers, *_ = tables.slots(root, "Array")
    top = tables.reference(root, nodes, "Array.root")
    if top < 0:
        raise InvalidMetadata("an array has no root")
    # Structs of 8 bytes that are aligned to 4: two elements of 4 bytes each.
    start, count = tables.vector(root, buffers, 4, "Array.buffers")
    if start + count * _BUFFER.size > tables.size:
        raise InvalidMetadata("the table of buffers is cut off", found=f"{count} buffers")
    stored, at = [], 0
    for index, row in enumerate(_BUFFER.iter_unpack(data[start : start + count * _BUFFER.size])):
        padding, exponent, compression, nbytes = row
        alignment_of(exponent)
        stored.append(StoredBuffer(at + padding, nbytes, compression))
        at += padding + nbytes
        if at > end - size:
            raise Truncated(
                "a buffer lies behind the buffers of its body",
                expected=f"{end - size} bytes",
                found=at,
                where=f"{index}",
            )
    node = _read_node(tables, message.encodings, limits, top, 1, itertools.count(1))
    return Body(body, node, tuple(stored), data)


def _read_node(
    tables: Tables, encodings: Sequence[str], limits: Limits, table: int, depth: int, numbers: Iterator[int]
) -> ArrayNode:
    """Read a node and those in it, of which each takes the next of the `numbers`."""
    if next(numbers) > limits.columns or depth > limits.depth:
        raise LimitExceeded(
            "an array has too many nodes, or they nest too deeply",
            expected=f"at most {limits.columns} nodes and {limits.depth} levels",
        )
    encoding, metadata, children, buffers, stats, *_ = tables.slots(table, "ArrayNode")
    number = tables.scalar(table, encoding, "H", 0, "ArrayNode.encoding")
    start, size = tables.vector(table, metadata, 1, "ArrayNode.metadata")
    first, own = tables.vector(table, buffers, 2, "ArrayNode.buffers")
    inside = tables.tables(table, children, "ArrayNode.children")
    return ArrayNode(
        encodings[number] if number < len(encodings) else f"unknown encoding number {number}",
        tables.data[start : start + size],
        struct.unpack_from(f"<{own}H", tables.data, first),
        tuple([_read_node(tables, encodings, limits, child, depth + 1, numbers) for child in inside]),
        tables.reference(table, stats, "ArrayNode.stats"),
    )


class Piece(NamedTuple):
    """An encoded array that is to be written: a node with its own buffers."""

    encoding: str
    metadata: bytes = b""
    # Anything with the buffer protocol, and the alignment in bytes that readers give it.
    buffers: tuple[tuple[Any, int], ...] = ()
    children: tuple[Piece, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, and of the metadata."""
        own = sum(memoryview(buffer).nbytes for buffer, _ in self.buffers)
        return len(self.metadata) + own + sum(child.nbytes for child in self.children)


def number_piece(numbers: Any, tail: tuple[Piece, ...] = ()) -> Piece:
    """Return numbers as they are; `tail` is their validity, or nothing."""
    return Piece("vortex.primitive", buffers=((numbers, numbers.dtype.itemsize),), children=tail)


def array_message(root: Piece, rows: int) -> list[Any]:
    """Return an array message as pieces to be written one behind the other.

    Every buffer begins at a multiple of 64 bytes of the message.
    """
    builder = Builder()
    encodings: dict[str, int] = {}
    placed: list[tuple[int, int, int, int]] = []
    parts: list[Any] = []
    position = _write_node(builder, root, encodings, placed, parts)
    table = builder.structs("HBBI", placed, 4)
    data = builder.finish(builder.table([Reference(position), Reference(table)]))
    end = sum(padding + nbytes for padding, _, _, nbytes in placed)
    gap = bytes(-end % 8)
    size = end + len(gap) + len(data) + _SUFFIX.size
    header = encode_message(Message(MessageKind.ARRAY, size, rows, tuple(encodings)))
    return [header, *parts, gap, data, _SUFFIX.pack(len(data))]


def _write_node(
    builder: Builder,
    piece: Piece,
    encodings: dict[str, int],
    placed: list[tuple[int, int, int, int]],
    parts: list[Any],
) -> int:
    number = encodings.setdefault(piece.encoding, len(encodings))
    first = len(placed)
    for buffer, alignment in piece.buffers:
        view = memoryview(buffer)
        if len(placed) > 0xFFFF or view.nbytes > 0xFFFFFFFF:
            raise LimitExceeded(
                "an array message of Vortex",
                expected="at most 65,536 buffers of less than 4 GiB",
                found=f"buffer {len(placed)} of {view.nbytes} bytes",
                hint="Write smaller batches.",
            )
        padding = -placed[-1][-1] % ALIGNMENT if placed else 0  # after the bytes of the one before
        placed.append((padding, alignment.bit_length() - 1, _NONE, view.nbytes))
        parts += [bytes(padding), view.cast("B") if view.nbytes else b""]
    buffers = list(range(first, len(placed)))
    children = [_write_node(builder, child, encodings, placed, parts) for child in piece.children]
    fields = [
        Scalar("H", number),
        Reference(builder.elements(piece.metadata, 1, 1)) if piece.metadata else None,
        Reference(builder.references(children)) if children else None,
        Reference(builder.vector("H", buffers)) if buffers else None,
    ]
    return builder.table(fields)
