"""Rebuilding: what an attempt says it wrote becomes batches over the slabs that were lent to it.

The writer is trusted for the contents, as every producer of the same user is, and for nothing else: whatever it
says is checked as what a reader receives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.errors import InvalidBody, LimitExceeded, ProtocolError, Unsupported
from bowstring.ipc.body.check_scalar import check_offsets, check_pairs
from bowstring.ipc.dictionary.reader import DictionaryMemo
from bowstring.ipc.flatbuf.message import (
    MessageKind,
    MetadataVersion,
    decode_dictionary,
    decode_message,
    decode_record_batch,
)
from bowstring.ipc.flatbuf.schema import decode_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from bowstring.depot.parts import Told
    from bowstring.ipc.flatbuf.message import Message, RecordBatchHeader
    from bowstring.limits import Limits
    from bowstring.memory import Region

__all__ = ["Rebuilder"]

_ALIGNMENT: Final = 8
_MOST_METADATA: Final = 1 << 30


class Rebuilder:
    """Turns the parts of one attempt into batches.

    Parameters
    ----------
    limits
        Bounds for metadata.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._memo = DictionaryMemo()
        self._layout: Layout | None = None
        self._metadata_bytes = 0
        self.schema: pa.Schema | None = None
        self.batches: list[Batch] = []

    def take(self, part: Told, regions: Sequence[Region]) -> None:
        """Take the next part, whose buffers lie in `regions`.

        Raises
        ------
        InvalidData, ProtocolError, Unsupported, LimitExceeded
            It is not what the format or a bound allows, or lies outside of what was lent.
        """
        self._metadata_bytes += len(part.metadata)
        if self._metadata_bytes > _MOST_METADATA:
            raise LimitExceeded(
                "the metadata of one attempt are too large", expected=f"at most {_MOST_METADATA} bytes"
            )
        message = decode_message(part.metadata, self._limits)
        if message.kind is MessageKind.SCHEMA:
            self._take_schema(message)
            return
        if self._layout is None:
            raise ProtocolError("an attempt says its schema first", found=message.kind.name)
        if message.kind is MessageKind.DICTIONARY_BATCH:
            dictionary = decode_dictionary(message)
            if dictionary.is_delta:
                raise Unsupported("deltas of dictionaries in an attempt")
            layout = self._memo.layout_of(dictionary.id)
            values = self._batch(message, dictionary.batch, layout, part.table, regions, inner=True)
            self._memo.take(dictionary.id, values, is_delta=False)
            return
        header = decode_record_batch(message)
        self.batches.append(self._batch(message, header, self._layout, part.table, regions))

    def _take_schema(self, message: Message) -> None:
        if self.schema is not None:
            raise ProtocolError("an attempt has one schema", found="a second one")
        decoded = decode_schema(message, self._limits)
        if decoded.endianness != "little":
            raise Unsupported("big-endian bodies")
        self._layout = Layout.of(decoded.schema, decoded.dictionary_ids, limits=self._limits)
        self._memo.expect(self._layout)
        self.schema = decoded.schema

    def _batch(
        self,
        message: Message,
        header: RecordBatchHeader,
        layout: Layout,
        table: npt.NDArray[np.int64],
        regions: Sequence[Region],
        *,
        inner: bool = False,
    ) -> Batch:
        if header.compression is not None or message.version is not MetadataVersion.V5:
            raise Unsupported("what lies in a slab must be plain and of metadata version V5")
        check_pairs(header, layout, table[:, 2])
        spans, used = _within(table, regions)
        # Dictionaries inside a dictionary are looked for when a batch uses it.
        dictionaries = {} if inner else self._memo.complete(layout, header.nodes)
        batch = Batch.from_parts(
            layout,
            header.length,
            header.nodes,
            spans=spans,
            regions=used,
            variadic_counts=header.variadic_counts,
            dictionaries=dictionaries,
            custom_metadata=message.custom_metadata,
        )
        check_offsets(batch)
        return batch


def _within(
    table: npt.NDArray[np.int64], regions: Sequence[Region]
) -> tuple[npt.NDArray[np.int64], tuple[Region, ...]]:
    """Return the rows of a batch, and the regions that they index: only those that it uses."""
    spans = table * (table[:, 2:] != 0)
    rows = spans[spans[:, 2] != 0]
    if not len(rows):
        return spans, ()
    sizes = np.array([region.nbytes for region in regions] or [0], np.int64)
    slabs, offsets, lengths = rows.T
    known = (slabs >= 0) & (slabs < len(regions))
    room = sizes[np.where(known, slabs, 0)]
    fits = known & (offsets >= 0) & (lengths > 0) & (lengths <= room) & (offsets <= room - lengths)
    if not fits.all() or (offsets % _ALIGNMENT).any():
        raise InvalidBody(
            "a buffer does not lie in what was lent",
            expected=f"8-byte aligned, in one of {len(regions)} slabs",
            found=rows[~fits][:4].tolist() or rows[:4].tolist(),
        )
    used, numbers = np.unique(slabs, return_inverse=True)
    spans[spans[:, 2] != 0, 0] = numbers.reshape(-1)
    return spans, tuple(regions[index] for index in used.tolist())
