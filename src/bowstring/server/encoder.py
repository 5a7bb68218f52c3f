"""Encoding: the batches of a data set become the items of a stream."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from bowstring.columnar.compact import compacted
from bowstring.columnar.layout import Layout
from bowstring.columnar.lookup import column_positions
from bowstring.dissociated.items import IpcMessage
from bowstring.ipc.body.pack import laid_out, pack
from bowstring.ipc.dictionary.writer import has_grown, same_values
from bowstring.ipc.flatbuf.schema import encode_schema
from bowstring.ipc.flatbuf.template import Template

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from bowstring.columnar.batch import Batch
    from bowstring.columnar.dictionary import Dictionary

# Tables of one schema are published one after the other; layouts are kept as long as few others follow.
_encoded: weakref.WeakKeyDictionary[Layout, bytes] = weakref.WeakKeyDictionary()


class Encoder:
    """Turns batches of one selection of columns into items, with each dictionary in front of its first use."""

    def __init__(
        self, schema: pa.Schema, columns: tuple[str, ...] | None, *, pointers: bool, charged: bool
    ) -> None:
        whole = Layout.of(schema)
        self._columns = None if columns is None else column_positions(schema, columns)
        self._layout = (
            whole
            if self._columns is None
            else whole.select(self._columns, [0] * len(whole.variadic_nodes))[0]
        )
        self._templates: dict[int, Template] = {}
        self._pointers = pointers
        self._charged = charged
        self._sent: dict[int, Dictionary] = {}

    def schema(self) -> IpcMessage:
        """Return the first item of the stream."""
        known = _encoded.get(self._layout)
        if known is None:
            ids = self._layout.dictionary_ids
            # Mostly they are those that the schema gets anyway.
            given = None if ids == tuple(range(len(ids))) else ids
            known = _encoded[self._layout] = encode_schema(self._layout.schema, given)
        return IpcMessage(known)

    def encode(self, batch: Batch) -> Iterator[IpcMessage]:
        """Return the items of one batch: dictionaries that changed, inner ones first, and the batch."""
        chosen = batch if self._columns is None else batch.select(self._columns)
        if self._layout.dictionaries:
            yield from self._dictionaries(chosen, self._layout)
        yield self._item(chosen, self._layout)

    def _dictionaries(self, batch: Batch, layout: Layout) -> Iterator[IpcMessage]:
        # The same dictionaries may have other numbers in the batch than in this stream, or one for several fields.
        own = dict(zip(layout.dictionary_ids, batch.layout.dictionary_ids, strict=True))
        for number in layout.dictionaries:
            dictionary = batch.dictionaries[own[number]]
            known = self._sent.get(number)
            if known is dictionary or (known is not None and self._has_sent(known, dictionary)):
                continue
            inner = layout.dictionaries[number]
            yield from self._dictionaries(dictionary.values, inner)
            self._sent[number] = dictionary
            if (
                known is not None
                and self._compares(dictionary)
                and has_grown(known.values, dictionary.values)
            ):
                new = compacted(dictionary.values.slice(len(known)))
                yield self._item(new, inner, dictionary=number, is_delta=True)
            else:
                yield self._item(dictionary.values, inner, dictionary=number)

    def _has_sent(self, known: Dictionary, dictionary: Dictionary) -> bool:
        return self._compares(dictionary) and same_values(known.values, dictionary.values)

    def _compares(self, dictionary: Dictionary) -> bool:
        # By pointers the whole dictionary costs no more than its end; and a device is not read to compare.
        return not self._pointers and dictionary.values.device.is_host

    def _item(
        self, batch: Batch, layout: Layout, dictionary: int | None = None, *, is_delta: bool = False
    ) -> IpcMessage:
        template = self._templates.get(id(layout))
        if template is None:
            template = self._templates[id(layout)] = Template(layout)
        packed = laid_out(batch) if self._pointers else pack(batch)
        parts = (batch.num_rows, packed.nodes, packed.buffers, packed.body_length, batch.variadic_counts)
        if dictionary is None:
            metadata = template.encode_batch(*parts, batch.custom_metadata)
        else:
            metadata = template.encode_dictionary(dictionary, is_delta, *parts)
        return IpcMessage(
            metadata,
            batch.spans.table,
            batch.spans.regions,
            packed.pieces,
            batch.nbytes,
            self._charged and dictionary is None,
        )
