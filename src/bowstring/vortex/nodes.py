"""Encoded arrays: the tree of nodes in the body of a message, and the buffers before it.

A body is the buffers first, each behind as many bytes of padding as it declares, then the flatbuffer ``Array``, and
its length in the last four bytes. (The published page of the Vortex IPC format has the order reversed.) Nodes carry
neither types nor lengths: those follow from the rule of the node above.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from bowstring.errors import InvalidBody, InvalidMetadata, LimitExceeded, Truncated, Unsupported
from bowstring.ipc.flatbuf.builder import Builder, Reference, Scalar
from bowstring.ipc.flatbuf.reader import Tables, follow
from bowstring.limits import most_decompressed
from bowstring.vortex.message import ALIGNMENT, Message, MessageKind, alignment_of, encode_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.limits import Limits
    from bowstring.memory import Buffer

_SUFFIX: Final = struct.Struct("<I")
_NONE, _LZ4 = 0, 1
_BUFFER: Final = struct.Struct("<HBBI")
_EXACT: Final = 1
_UNKNOWN: Final = "unknown encoding"


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
    found: dict[str, bytes | bool] = {}
    for name, slot, precision in (("min", least, least_is), ("max", most, most_is), ("sum", total, -1)):
        is_exact = precision < 0 or tables.scalar(node.stats, precision, "B", 0, where) == _EXACT
        if slot and is_exact:
            start, size = tables.vector(node.stats, slot, 1, where)
            found[name] = tables.data[start : start + size]
    for name, slot in zip(("is_sorted", "is_strict_sorted", "is_constant"), flags, strict=True):
        if slot:
            found[name] = bool(tables.scalar(node.stats, slot, "B", 0, where))
    return found


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
    root = follow(data, len(data), 0, "Array")
    nodes, buffers, *_ = tables.slots(root, "Array")
    top = tables.reference(root, nodes, "Array.root")
    if top < 0:
        raise InvalidMetadata("an array has no root")
    stored = _stored(tables, root, buffers, end - size)
    return Body(body, _Nodes(tables, message.encodings, limits).read(top, 1), stored, data)


def _stored(tables: Tables, root: int, slot: int, end: int) -> tuple[StoredBuffer, ...]:
    # Structs of 8 bytes that are aligned to 4: two elements of 4 bytes each.
    start, count = tables.vector(root, slot, 4, "Array.buffers")
    if start + count * _BUFFER.size > tables.size:
        raise InvalidMetadata("the table of buffers is cut off", found=f"{count} buffers")
    found, at = [], 0
    for index in range(count):
        padding, exponent, compression, nbytes = _BUFFER.unpack_from(
            tables.data, start + index * _BUFFER.size
        )
        alignment_of(exponent)
        at += padding
        found.append(StoredBuffer(at, nbytes, compression))
        at += nbytes
        if at > end:
            raise Truncated(
                "a buffer lies behind the buffers of its body",
                expected=f"{end} bytes",
                found=at,
                where=f"{index}",
            )
    return tuple(found)


class _Nodes:
    """Reads the nodes of one array."""

    def __init__(self, tables: Tables, encodings: Sequence[str], limits: Limits) -> None:
        self._tables = tables
        self._encodings = encodings
        self._limits = limits
        self._count = 0

    def read(self, table: int, depth: int) -> ArrayNode:
        self._count += 1
        if self._count > self._limits.columns or depth > self._limits.depth:
            raise LimitExceeded(
                "an array has too many nodes, or they nest too deeply",
                expected=f"at most {self._limits.columns} nodes and {self._limits.depth} levels",
            )
        tables = self._tables
        encoding, metadata, children, buffers, stats, *_ = tables.slots(table, "ArrayNode")
        number = tables.scalar(table, encoding, "H", 0, "ArrayNode.encoding") if encoding else 0
        name = self._encodings[number] if number < len(self._encodings) else f"{_UNKNOWN} number {number}"
        data, hints = b"", -1
        own: tuple[int, ...] = ()
        below: tuple[ArrayNode, ...] = ()
        if metadata:
            start, size = tables.vector(table, metadata, 1, "ArrayNode.metadata")
            data = tables.data[start : start + size]
        if buffers:
            start, count = tables.vector(table, buffers, 2, "ArrayNode.buffers")
            own = struct.unpack_from(f"<{count}H", tables.data, start)
        if children:
            found = tables.tables(table, children, "ArrayNode.children")
            below = tuple([self.read(child, depth + 1) for child in found])
        if stats:
            hints = tables.reference(table, stats, "ArrayNode.stats")
        return ArrayNode(name, data, own, below, hints)


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


def array_message(root: Piece, rows: int) -> list[Any]:
    """Return an array message as pieces to be written one behind the other.

    Every buffer begins at a multiple of 64 bytes of the message.
    """
    layout = _Written()
    builder = Builder()
    position = layout.node(builder, root)
    buffers = builder.structs("HBBI", layout.rows, 4)
    data = builder.finish(builder.table([Reference(position), Reference(buffers)]))
    gap = bytes(-layout.end % 8)
    size = layout.end + len(gap) + len(data) + _SUFFIX.size
    header = encode_message(Message(MessageKind.ARRAY, size, rows, tuple(layout.encodings)))
    return [header, *layout.parts, gap, data, _SUFFIX.pack(len(data))]


class _Written:
    """Numbers the buffers and encodings of a tree, and places the buffers."""

    def __init__(self) -> None:
        self.encodings: dict[str, int] = {}
        self.rows: list[tuple[int, int, int, int]] = []
        self.parts: list[Any] = []
        self.end = 0

    def node(self, builder: Builder, piece: Piece) -> int:
        number = self.encodings.setdefault(piece.encoding, len(self.encodings))
        first = len(self.rows)
        for buffer, alignment in piece.buffers:
            self._place(buffer, alignment)
        buffers = list(range(first, len(self.rows)))
        children = [self.node(builder, child) for child in piece.children]
        fields = [
            Scalar("H", number),
            Reference(builder.elements(piece.metadata, 1, 1)) if piece.metadata else None,
            Reference(builder.references(children)) if children else None,
            Reference(builder.vector("H", buffers)) if buffers else None,
        ]
        return builder.table(fields)

    def _place(self, buffer: Any, alignment: int) -> None:
        view = memoryview(buffer)
        if len(self.rows) > 0xFFFF or view.nbytes > 0xFFFFFFFF:
            raise LimitExceeded(
                "an array message of Vortex",
                expected="at most 65,536 buffers of less than 4 GiB",
                found=f"buffer {len(self.rows)} of {view.nbytes} bytes",
                hint="Write smaller batches.",
            )
        padding = -self.end % ALIGNMENT
        self.rows.append((padding, alignment.bit_length() - 1, _NONE, view.nbytes))
        self.parts += [bytes(padding), view.cast("B") if view.nbytes else b""]
        self.end += padding + view.nbytes
