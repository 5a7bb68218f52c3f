"""Encoding the metadata of record batches and dictionaries.

The result is byte for byte what Arrow C++ writes, except that zeros are written, too, and custom metadata stand
at the end: so what changes between the batches of a schema has the same place in each.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from bowstring.errors import UsageError
from bowstring.ipc.flatbuf.builder import Builder, Reference, Scalar
from bowstring.ipc.flatbuf.message import CODECS, MessageKind, MetadataVersion, bitmaps_of_4

if TYPE_CHECKING:
    from bowstring.columnar.layout import Layout

    Pairs = Mapping[bytes | str, bytes | str] | Mapping[bytes, bytes] | Mapping[str, str]

_INT64: Final = struct.Struct("<q")
_PAIR_BYTES: Final = 16
_CODEC_NUMBERS: Final = {name: number for number, name in CODECS.items()}
_MARKS: Final = tuple(range(0x5A5A5A5A5A5A5A5A, 0x5A5A5A5A5A5A5A5E))  # found nowhere else in a message
_NO_DEFAULT: Final = 1 << 64


class Template:
    """The metadata of all batches of one layout: of record batches, or of a dictionary's values."""

    def __init__(self, layout: Layout, version: MetadataVersion = MetadataVersion.V5) -> None:
        self.layout = layout
        self._version = version
        self._num_buffers = layout.num_buffers
        if version is MetadataVersion.V4:
            self._num_buffers += len(bitmaps_of_4(layout))
        self._num_views = len(layout.variadic_nodes)

    def form(self, compression: str | None = None) -> tuple[bytes, list[int]]:
        """Return the metadata of a batch, and where body length, rows, buffers and nodes stand; there are nodes."""
        body, rows, *tables = _MARKS
        buffers, nodes = (
            np.full((count, 2), mark)
            for count, mark in zip((self._num_buffers, self.layout.num_nodes), tables, strict=True)
        )
        data = self.encode_batch(rows, nodes, buffers, body, compression=compression)
        return data, [data.find(_INT64.pack(mark)) for mark in _MARKS]

    def encode_batch(
        self,
        length: int,
        nodes: npt.NDArray[np.int64],  # shape (nodes, 2): length and null count
        buffers: npt.NDArray[np.int64],  # shape (buffers, 2): offset in the body and length; all buffers
        body_length: int,  # with padding
        variadic_counts: Sequence[int] = (),
        custom_metadata: Pairs | None = None,
        compression: str | None = None,  # "lz4" or "zstd"
        dictionary: tuple[int, bool] | None = None,  # id, and whether these are new values only
    ) -> bytes:
        """Encode a record batch message, or that of a dictionary of these values, without length prefix."""
        for what, expected, found in (
            ("nodes", self.layout.num_nodes, nodes.nbytes / _PAIR_BYTES),
            ("variadic counts", self._num_views, len(variadic_counts)),
            ("buffers", self._num_buffers + sum(variadic_counts), buffers.nbytes / _PAIR_BYTES),
        ):
            if expected != found:
                raise UsageError(f"wrong number of {what} for this layout", expected=expected, found=found)
        pairs = b""
        if custom_metadata:
            behind = Builder()
            behind.key_values(custom_metadata)  # a vector that begins with the first byte
            pairs = behind.data()
            pairs += bytes(-len(pairs) % 8)
        builder = Builder(pairs)
        of_nodes, of_buffers = (
            Reference(builder.elements(each.tobytes(), _PAIR_BYTES)) for each in (nodes, buffers)
        )
        codec = counts = None
        if compression:
            codec = Reference(builder.table([Scalar("b", _CODEC_NUMBERS[compression])]))
        if variadic_counts:
            counts = Reference(builder.vector("q", variadic_counts))
        kind, rows = MessageKind.RECORD_BATCH, Scalar("q", length, _NO_DEFAULT)
        header = builder.table([rows, of_nodes, of_buffers, codec, counts])
        if dictionary is not None:
            id_, is_delta = dictionary
            kind, number = MessageKind.DICTIONARY_BATCH, Scalar("q", id_, _NO_DEFAULT)
            header = builder.table([number, Reference(header), Scalar("B", is_delta)])
        message = (
            *(Scalar("h", self._version), Scalar("B", kind), Reference(header)),
            *(Scalar("q", body_length, _NO_DEFAULT), Reference(len(pairs)) if pairs else None),
        )
        return builder.finish(builder.table(message))
