"""Encoding the metadata of record batches and dictionaries from a template.

All that changes between the batches of a schema is a few numbers and two tables, so the flatbuffer around them
is laid out once. The result is byte for byte what Arrow C++ writes, but for zeros, which it leaves out, for
custom metadata and for dictionaries.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from bowstring.errors import UsageError
from bowstring.ipc.flatbuf.message import MessageKind, MetadataVersion
from bowstring.ipc.flatbuf.metadata_v4 import bitmaps_of_4
from bowstring.ipc.flatbuf.reader import KeyValueMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from bowstring.columnar.layout import Layout

    Pairs = Mapping[bytes | str, bytes | str] | Mapping[bytes, bytes] | Mapping[str, str]

__all__ = ["Template", "encode_key_values"]

# Each of these is a vtable and the table behind it. The message: root offset, then version, kind, header and
# bodyLength, and with pairs also custom_metadata.
_MESSAGE = struct.Struct("<I4x6HixBhIq")
_MESSAGE_WITH_PAIRS = struct.Struct("<I2x7HixBhIqI4x")
_DICTIONARY = struct.Struct("<2x5HiIB3xq")
_BATCH = struct.Struct("<2x5HiIIq")
_VIEW_BATCH = struct.Struct("<2x7HiIIIq")
# With the table BodyCompression behind it.
_COMPRESSED_BATCH = struct.Struct("<2x7HiIIII4xq2x3HiB3x")
_COUNT = struct.Struct("<4xI")
_INT64 = struct.Struct("<q")
_PAIR_BYTES = 16
_CODECS = {"lz4": 0, "zstd": 1}


class Template:
    """The metadata of all batches of one layout.

    Parameters
    ----------
    layout
        Of the batches, or of a dictionary's values.
    version
        Of the metadata: in V4, unions and runs have one buffer more.

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> from bowstring.columnar.layout import Layout
    >>> from bowstring.ipc.flatbuf.message import decode_message, decode_record_batch
    >>> template = Template(Layout.of(pa.schema({"a": pa.int64()})))
    >>> data = template.encode_batch(3, np.array([[3, 0]]), np.array([[0, 0], [0, 24]]), 24)
    >>> header = decode_record_batch(decode_message(data))
    >>> header.length, header.buffers.tolist()
    (3, [[0, 0], [0, 24]])
    """

    def __init__(self, layout: Layout, version: MetadataVersion = MetadataVersion.V5) -> None:
        self.layout = layout
        self._version = version
        self._num_buffers = layout.num_buffers
        if version is MetadataVersion.V4:
            self._num_buffers += len(bitmaps_of_4(layout))
        plain = _head(_Shape(layout.num_nodes, self._num_buffers, version=version), 0, 0)
        self._parts = plain[:32], plain[40:64], plain[72:]
        self._nbytes = _PAIR_BYTES * layout.num_nodes, _PAIR_BYTES * self._num_buffers
        self._separator = _COUNT.pack(layout.num_nodes)

    def encode_batch(
        self,
        length: int,
        nodes: npt.NDArray[np.int64],
        buffers: npt.NDArray[np.int64],
        body_length: int,
        variadic_counts: Sequence[int] = (),
        custom_metadata: Pairs | None = None,
        compression: str | None = None,
    ) -> bytes:
        """Encode a record batch message, without length prefix.

        Parameters
        ----------
        length
            Rows.
        nodes : ndarray of int64, shape (nodes, 2)
            Length and null count of each node.
        buffers : ndarray of int64, shape (buffers, 2)
            Offset in the body and length of each buffer, variadic ones included.
        body_length
            Bytes of the body, padding included.
        variadic_counts
            Number of variadic buffers of each view node.
        custom_metadata
            Key-value pairs for the message.
        compression
            ``"lz4"`` or ``"zstd"``, where the buffers of the body are compressed.

        Raises
        ------
        UsageError
            The tables do not have the shape that the layout asks for.
        """
        if variadic_counts or custom_metadata or compression or self.layout.variadic_nodes:
            shape = self._shape(nodes, buffers, variadic_counts, custom_metadata, compression)
            return _whole(shape, body_length, length, nodes, buffers, custom_metadata)
        if buffers.nbytes != self._nbytes[1] or nodes.nbytes != self._nbytes[0]:
            self._shape(nodes, buffers, variadic_counts)
        before, between, after = self._parts
        return b"".join(
            (
                before,
                _INT64.pack(body_length),
                between,
                _INT64.pack(length),
                after,
                buffers.tobytes(),
                self._separator,
                nodes.tobytes(),
            )
        )

    def encode_dictionary(
        self,
        id_: int,
        is_delta: bool,
        length: int,
        nodes: npt.NDArray[np.int64],
        buffers: npt.NDArray[np.int64],
        body_length: int,
        variadic_counts: Sequence[int] = (),
        custom_metadata: Pairs | None = None,
        compression: str | None = None,
    ) -> bytes:
        """Encode a dictionary message, without length prefix; the layout is that of the values.

        Parameters
        ----------
        id_
            The dictionary's id in the schema.
        is_delta
            Whether the values are appended to those sent before.
        length, nodes, buffers, body_length, variadic_counts, custom_metadata, compression
            As for :meth:`encode_batch`.

        Raises
        ------
        UsageError
            The tables do not have the shape that the layout asks for.
        """
        dictionary = id_, is_delta
        shape = self._shape(nodes, buffers, variadic_counts, custom_metadata, compression, dictionary)
        return _whole(shape, body_length, length, nodes, buffers, custom_metadata)

    def _shape(
        self,
        nodes: npt.NDArray[np.int64],
        buffers: npt.NDArray[np.int64],
        variadic_counts: Sequence[int],
        custom_metadata: Pairs | None = None,
        compression: str | None = None,
        dictionary: tuple[int, bool] | None = None,
    ) -> _Shape:
        layout = self.layout
        for what, expected, found in (
            ("nodes", layout.num_nodes, nodes.nbytes / _PAIR_BYTES),
            ("variadic counts", len(layout.variadic_nodes), len(variadic_counts)),
            ("buffers", self._num_buffers + sum(variadic_counts), buffers.nbytes / _PAIR_BYTES),
        ):
            if expected != found:
                raise UsageError(f"wrong number of {what} for this layout", expected=expected, found=found)
        pairs = bool(custom_metadata)
        return _Shape(
            len(nodes), len(buffers), tuple(variadic_counts), pairs, dictionary, compression, self._version
        )


class _Shape(NamedTuple):
    """All that decides where things are in a message."""

    nodes: int
    buffers: int
    variadic: tuple[int, ...] = ()
    has_pairs: bool = False
    dictionary: tuple[int, bool] | None = None
    compression: str | None = None
    version: MetadataVersion = MetadataVersion.V5


def _whole(
    shape: _Shape,
    body_length: int,
    length: int,
    nodes: npt.NDArray[np.int64],
    buffers: npt.NDArray[np.int64],
    pairs: Pairs | None,
) -> bytes:
    parts = [_head(shape, body_length, length), buffers.tobytes(), _COUNT.pack(shape.nodes), nodes.tobytes()]
    if pairs:
        parts.append(encode_key_values(pairs))
    return b"".join(parts)


def _head(shape: _Shape, body_length: int, length: int) -> bytes:
    """Everything before the first entry of the buffers vector."""
    base = _MESSAGE_WITH_PAIRS.size if shape.has_pairs else _MESSAGE.size
    batch_at = base + _DICTIONARY.size if shape.dictionary else base
    batch_table = batch_at + (16 if shape.variadic or shape.compression else 12)
    buffers_at = batch_at + _batch_bytes(shape)
    nodes_at = buffers_at + _PAIR_BYTES * shape.buffers + _COUNT.size
    end = nodes_at + _PAIR_BYTES * shape.nodes
    kind = MessageKind.DICTIONARY_BATCH if shape.dictionary else MessageKind.RECORD_BATCH
    header = (base + 12 if shape.dictionary else batch_table) - 28
    if shape.has_pairs:
        vtable: tuple[int, ...] = (14, 24, 6, 5, 8, 12, 20)
        head = _MESSAGE_WITH_PAIRS.pack(20, *vtable, 14, kind, shape.version, header, body_length, end - 40)
    else:
        head = _MESSAGE.pack(20, 12, 22, 6, 5, 8, 12, 12, kind, shape.version, header, body_length)
    if shape.dictionary:
        id_, is_delta = shape.dictionary
        head += _DICTIONARY.pack(10, 20, 12, 4, 8, 10, batch_table - (base + 16), is_delta, id_)
    # From the fields that say so: the second and the third of the table.
    to_nodes, to_buffers = nodes_at - 4 - (batch_table + 4), buffers_at - 4 - (batch_table + 8)
    return head + _batch(shape, to_nodes, to_buffers, length) + _COUNT.pack(shape.buffers)


def _batch_bytes(shape: _Shape) -> int:
    """Bytes of :func:`_batch` and of the count of buffers."""
    counts = _COUNT.size + 8 * len(shape.variadic) if shape.variadic else 0
    if shape.compression:
        return _COMPRESSED_BATCH.size + counts + _COUNT.size
    return (_VIEW_BATCH.size if shape.variadic else _BATCH.size) + counts + _COUNT.size


def _batch(shape: _Shape, to_nodes: int, to_buffers: int, length: int) -> bytes:
    """The table RecordBatch, and what it points to before its buffers."""
    count = len(shape.variadic)
    counts = _COUNT.pack(count) + struct.pack(f"<{count}q", *shape.variadic) if count else b""
    if shape.compression:
        variadic_at, to_variadic = (16, 36) if count else (0, 0)
        vtable = 14, 32, 24, 4, 8, 12, variadic_at
        codec = 6, 8, 4, 6, _CODECS[shape.compression]
        return (
            _COMPRESSED_BATCH.pack(*vtable, 14, to_nodes, to_buffers, 28, to_variadic, length, *codec)
            + counts
        )
    if count:
        return _VIEW_BATCH.pack(14, 28, 16, 4, 8, 0, 12, 14, to_nodes, to_buffers, 16, length) + counts
    return _BATCH.pack(10, 24, 12, 4, 8, 10, to_nodes, to_buffers, length)


def encode_key_values(pairs: Pairs) -> bytes:
    """Encode a vector of KeyValue tables, their common vtable and their strings, padded to 8 bytes in all."""
    items = pairs.pairs if isinstance(pairs, KeyValueMetadata) else tuple(pairs.items())
    strings: list[bytes] = []
    vtable_at = 4 + 4 * len(items)
    tables_at = vtable_at + 8
    strings_at = tables_at + 12 * len(items)
    vector = [struct.pack("<I", len(items))]
    tables = [struct.pack("<4H", 8, 12, 4, 8)]
    for index, pair in enumerate(items):
        table_at = tables_at + 12 * index
        vector.append(struct.pack("<I", table_at - (4 + 4 * index)))
        references = []
        for slot, text in zip((4, 8), pair, strict=True):
            references.append(strings_at - (table_at + slot))
            strings.append(_string(text))
            strings_at += len(strings[-1])
        tables.append(struct.pack("<iII", table_at - vtable_at, *references))
    whole = b"".join((*vector, *tables, *strings))
    return whole + bytes(-len(whole) % 8)


def _string(text: bytes | str) -> bytes:
    raw = text.encode() if isinstance(text, str) else bytes(text)
    raw = struct.pack("<I", len(raw)) + raw + b"\0"
    return raw + bytes(-len(raw) % 4)
