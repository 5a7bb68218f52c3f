"""Encoding the metadata of record batches and dictionaries from a template.

All that changes between the batches of a schema is a few numbers and two tables, so the flatbuffer around them
is laid out once. The result is byte for byte what Arrow C++ writes, but for zeros, which it leaves out, for
custom metadata and for dictionaries.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from bowstring.errors import UsageError
from bowstring.ipc.metadata import MessageKind, MetadataVersion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from bowstring.columnar.layout import Layout

    Pairs = Mapping[bytes | str, bytes | str] | Mapping[bytes, bytes] | Mapping[str, str]

__all__ = ["Template"]

# Each of these is a vtable and the table behind it. The message: root offset, then version, kind, header and
# bodyLength, and with pairs also custom_metadata.
_MESSAGE = struct.Struct("<I4x6HixBhIq")
_MESSAGE_WITH_PAIRS = struct.Struct("<I2x7HixBhIqI4x")
_DICTIONARY = struct.Struct("<2x5HiIB3xq")
_BATCH = struct.Struct("<2x5HiIIq")
_VIEW_BATCH = struct.Struct("<2x7HiIIIq")
_COUNT = struct.Struct("<4xI")
_INT64 = struct.Struct("<q")
_PAIR_BYTES = 16


class Template:
    """The metadata of all batches of one layout.

    Parameters
    ----------
    layout
        Of the batches, or of a dictionary's values.

    Examples
    --------
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> from bowstring.columnar.layout import Layout
    >>> from bowstring.ipc.metadata import decode_message, decode_record_batch
    >>> template = Template(Layout.of(pa.schema({"a": pa.int64()})))
    >>> data = template.encode_batch(3, np.array([[3, 0]]), np.array([[0, 0], [0, 24]]), 24)
    >>> header = decode_record_batch(decode_message(data))
    >>> header.length, header.buffers.tolist()
    (3, [[0, 0], [0, 24]])
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        plain = _head(_Shape(layout.num_nodes, layout.num_buffers), 0, 0)
        self._parts = plain[:32], plain[40:64], plain[72:]
        self._nbytes = _PAIR_BYTES * layout.num_nodes, _PAIR_BYTES * layout.num_buffers
        self._separator = _COUNT.pack(layout.num_nodes)

    def encode_batch(
        self,
        length: int,
        nodes: npt.NDArray[np.int64],
        buffers: npt.NDArray[np.int64],
        body_length: int,
        variadic_counts: Sequence[int] = (),
        custom_metadata: Pairs | None = None,
    ) -> bytes:
        """Encode a record batch message (V5), without length prefix.

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

        Raises
        ------
        UsageError
            The tables do not have the shape that the layout asks for.
        """
        if variadic_counts or custom_metadata or self.layout.variadic_nodes:
            shape = self._shape(nodes, buffers, variadic_counts, custom_metadata)
            return _whole(shape, body_length, length, nodes, buffers, custom_metadata)
        if buffers.nbytes != self._nbytes[1] or nodes.nbytes != self._nbytes[0]:
            self._shape(nodes, buffers, variadic_counts, custom_metadata)
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
    ) -> bytes:
        """Encode a dictionary message (V5), without length prefix; the layout is that of the values.

        Parameters
        ----------
        id_
            The dictionary's id in the schema.
        is_delta
            Whether the values are appended to those sent before.
        length, nodes, buffers, body_length, variadic_counts, custom_metadata
            As for :meth:`encode_batch`.

        Raises
        ------
        UsageError
            The tables do not have the shape that the layout asks for.
        """
        shape = self._shape(nodes, buffers, variadic_counts, custom_metadata, (id_, is_delta))
        return _whole(shape, body_length, length, nodes, buffers, custom_metadata)

    def _shape(
        self,
        nodes: npt.NDArray[np.int64],
        buffers: npt.NDArray[np.int64],
        variadic_counts: Sequence[int],
        custom_metadata: Pairs | None,
        dictionary: tuple[int, bool] | None = None,
    ) -> _Shape:
        layout = self.layout
        for what, expected, found in (
            ("nodes", layout.num_nodes, nodes.nbytes / _PAIR_BYTES),
            ("variadic counts", len(layout.variadic_nodes), len(variadic_counts)),
            ("buffers", layout.num_buffers + sum(variadic_counts), buffers.nbytes / _PAIR_BYTES),
        ):
            if expected != found:
                raise UsageError(f"wrong number of {what} for this layout", expected=expected, found=found)
        return _Shape(len(nodes), len(buffers), tuple(variadic_counts), bool(custom_metadata), dictionary)


class _Shape(NamedTuple):
    """All that decides where things are in a message."""

    nodes: int
    buffers: int
    variadic: tuple[int, ...] = ()
    has_pairs: bool = False
    dictionary: tuple[int, bool] | None = None


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
        parts.append(_key_values(pairs))
    return b"".join(parts)


def _head(shape: _Shape, body_length: int, length: int) -> bytes:
    """Everything before the first entry of the buffers vector."""
    base = _MESSAGE_WITH_PAIRS.size if shape.has_pairs else _MESSAGE.size
    batch_at = base + _DICTIONARY.size if shape.dictionary else base
    batch_table = batch_at + (16 if shape.variadic else 12)
    buffers_at = batch_at + (56 + 8 * len(shape.variadic) if shape.variadic else 40)
    nodes_at = buffers_at + _PAIR_BYTES * shape.buffers + _COUNT.size
    end = nodes_at + _PAIR_BYTES * shape.nodes
    kind = MessageKind.DICTIONARY_BATCH if shape.dictionary else MessageKind.RECORD_BATCH
    header = (base + 12 if shape.dictionary else batch_table) - 28
    if shape.has_pairs:
        vtable: tuple[int, ...] = (14, 24, 6, 5, 8, 12, 20)
        head = _MESSAGE_WITH_PAIRS.pack(
            20, *vtable, 14, kind, MetadataVersion.V5, header, body_length, end - 40
        )
    else:
        head = _MESSAGE.pack(20, 12, 22, 6, 5, 8, 12, 12, kind, MetadataVersion.V5, header, body_length)
    if shape.dictionary:
        id_, is_delta = shape.dictionary
        head += _DICTIONARY.pack(10, 20, 12, 4, 8, 10, batch_table - (base + 16), is_delta, id_)
    if shape.variadic:
        nodes_to, buffers_to = nodes_at - 4 - (batch_at + 20), buffers_at - 4 - (batch_at + 24)
        head += _VIEW_BATCH.pack(14, 28, 16, 4, 8, 0, 12, 14, nodes_to, buffers_to, 16, length)
        head += _COUNT.pack(len(shape.variadic)) + struct.pack(f"<{len(shape.variadic)}q", *shape.variadic)
    else:
        nodes_to, buffers_to = nodes_at - 4 - (batch_at + 16), buffers_at - 4 - (batch_at + 20)
        head += _BATCH.pack(10, 24, 12, 4, 8, 10, nodes_to, buffers_to, length)
    return head + _COUNT.pack(shape.buffers)


def _key_values(pairs: Pairs) -> bytes:
    """A vector of KeyValue tables, their common vtable and their strings."""
    strings: list[bytes] = []
    vtable_at = 4 + 4 * len(pairs)
    tables_at = vtable_at + 8
    strings_at = tables_at + 12 * len(pairs)
    vector = [struct.pack("<I", len(pairs))]
    tables = [struct.pack("<4H", 8, 12, 4, 8)]
    for index, pair in enumerate(pairs.items()):
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
