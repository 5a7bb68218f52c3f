"""Encoding the metadata of record batches and dictionaries from a template.

All that changes between the batches of a schema is a few numbers and two tables. So the flatbuffer around them
is built once, with a sentinel in the place of each, and cut there; a batch is encoded by joining the pieces. The
result is byte for byte what Arrow C++ writes, except that zeros are written, too, and that custom metadata stand
at the end.
"""

from __future__ import annotations

import functools
import itertools
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bowstring.errors import UsageError
from bowstring.ipc.flatbuf.builder import Builder, Reference, Scalar
from bowstring.ipc.flatbuf.message import CODECS, MessageKind, MetadataVersion, bitmaps_of_4

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from bowstring.columnar.layout import Layout

    Pairs = Mapping[bytes | str, bytes | str] | Mapping[bytes, bytes] | Mapping[str, str]

_INT64: Final = struct.Struct("<q")
_PAIR_BYTES: Final = 16
_CODEC_NUMBERS: Final = {name: number for number, name in CODECS.items()}
_SENTINEL: Final = b"\x5a" * _INT64.size
_SENTINEL_VALUE: Final[int] = _INT64.unpack(_SENTINEL)[0]
_MOST_SHAPES: Final = 256


class _Shape(NamedTuple):
    """All that decides where things are in a message; `is_delta` is None for a record batch."""

    nodes: int
    buffers: int
    views: int
    version: MetadataVersion
    has_pairs: bool = False
    is_delta: bool | None = None
    compression: str | None = None


class Template:
    """The metadata of all batches of one layout: of record batches, or of a dictionary's values."""

    def __init__(self, layout: Layout, version: MetadataVersion = MetadataVersion.V5) -> None:
        self.layout = layout
        self._version = version
        self._num_buffers = layout.num_buffers
        if version is MetadataVersion.V4:
            self._num_buffers += len(bitmaps_of_4(layout))
        self._nodes_nbytes = _PAIR_BYTES * layout.num_nodes
        self._buffers_nbytes = _PAIR_BYTES * self._num_buffers
        self._num_views = len(layout.variadic_nodes)

    def form(self, compression: str | None = None) -> tuple[bytes, list[int]]:
        """Return the metadata of a batch, and where body length, rows, buffers and nodes stand; there are nodes."""
        before, between, _, to_buffers, to_nodes, _, after = self._pieces(
            self._num_buffers, False, None, compression
        )
        pieces = before, between, to_buffers, to_nodes + after
        sizes = _INT64.size, _INT64.size, self._buffers_nbytes
        places = [len(pieces[0])]
        for size, piece in zip(sizes, pieces[1:], strict=True):
            places.append(places[-1] + size + len(piece))
        values = (*map(bytes, sizes), bytes(self._nodes_nbytes))
        return b"".join(itertools.chain.from_iterable(zip(pieces, values, strict=True))), places

    def encode_batch(
        self,
        length: int,
        nodes: npt.NDArray[np.int64],  # shape (nodes, 2): length and null count
        buffers: npt.NDArray[np.int64],  # shape (buffers, 2): offset in the body and length; all buffers
        body_length: int,  # with padding
        variadic_counts: Sequence[int] = (),
        custom_metadata: Pairs | None = None,
        compression: str | None = None,  # "lz4" or "zstd"
    ) -> bytes:
        """Encode a record batch message, without length prefix."""
        numbers = body_length, length
        return self._encode(numbers, nodes, buffers, variadic_counts, custom_metadata, compression)

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
        """Encode a dictionary message, without length prefix; the layout is that of the values."""
        numbers = body_length, id_, length
        return self._encode(numbers, nodes, buffers, variadic_counts, custom_metadata, compression, is_delta)

    def _encode(
        self,
        numbers: Sequence[int],
        nodes: npt.NDArray[np.int64],
        buffers: npt.NDArray[np.int64],
        variadic_counts: Sequence[int],
        custom_metadata: Pairs | None,
        compression: str | None,
        is_delta: bool | None = None,
    ) -> bytes:
        for what, expected, found in (
            ("nodes", self.layout.num_nodes, nodes.nbytes / _PAIR_BYTES),
            ("variadic counts", self._num_views, len(variadic_counts)),
            ("buffers", self._num_buffers + sum(variadic_counts), buffers.nbytes / _PAIR_BYTES),
        ):
            if expected != found:
                raise UsageError(f"wrong number of {what} for this layout", expected=expected, found=found)
        num_buffers = buffers.nbytes // _PAIR_BYTES
        pieces = self._pieces(num_buffers, bool(custom_metadata), is_delta, compression)
        values = (
            *map(_INT64.pack, numbers),
            struct.pack(f"<{len(variadic_counts)}q", *variadic_counts),
            buffers.tobytes(),
            nodes.tobytes(),
            _key_values(custom_metadata) if custom_metadata else b"",
        )
        *before, last = pieces
        return b"".join((*itertools.chain.from_iterable(zip(before, values, strict=True)), last))

    def _pieces(self, num_buffers: int, *rest: Any) -> list[bytes]:
        return _pieces_of(_Shape(self.layout.num_nodes, num_buffers, self._num_views, self._version, *rest))


@functools.lru_cache(_MOST_SHAPES)
def _pieces_of(shape: _Shape) -> list[bytes]:
    """Return what stands before each value that :class:`Template` puts into a message, and behind the last."""
    of_counts = _SENTINEL * shape.views
    of_buffers, of_nodes = (_SENTINEL * 2 * count for count in (shape.buffers, shape.nodes))
    # Pairs take a multiple of 8 bytes, whatever they are, so all else lies where it does before these 8.
    of_pairs = _SENTINEL if shape.has_pairs else b""
    builder = Builder(of_pairs)
    nodes = Reference(builder.elements(of_nodes, _PAIR_BYTES))
    buffers = Reference(builder.elements(of_buffers, _PAIR_BYTES))
    compression = counts = None
    if shape.compression:
        compression = Reference(builder.table([Scalar("b", _CODEC_NUMBERS[shape.compression])]))
    if of_counts:
        counts = Reference(builder.elements(of_counts, _INT64.size))
    number = Scalar("q", _SENTINEL_VALUE)
    numbers = [_SENTINEL, _SENTINEL]  # the length of the body, and that of the batch
    header, kind = builder.table([number, nodes, buffers, compression, counts]), MessageKind.RECORD_BATCH
    if shape.is_delta is not None:
        numbers.append(_SENTINEL)
        header = builder.table([number, Reference(header), Scalar("B", shape.is_delta)])
        kind = MessageKind.DICTIONARY_BATCH
    pairs = Reference(len(of_pairs)) if of_pairs else None
    message = [Scalar("h", shape.version), Scalar("B", kind), Reference(header), number, pairs]
    data = builder.finish(builder.table(message))
    pieces, at = [], 0
    for sentinel in (*numbers, of_counts, of_buffers, of_nodes, of_pairs):
        end = data.index(sentinel[: len(_SENTINEL)], at)
        pieces.append(data[at:end])
        at = end + len(sentinel)
    return [*pieces, data[at:]]


def _key_values(pairs: Pairs) -> bytes:
    """Encode a vector of KeyValue tables that begins with the first byte, padded to 8 bytes behind the last."""
    builder = Builder()
    builder.key_values(pairs)
    data = builder.data()
    return data + bytes(-len(data) % 8)
