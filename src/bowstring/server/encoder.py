"""Encoding: the batches of a data set become the items of a stream."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from bowstring.columnar.batch import Batch
from bowstring.columnar.copy_pieces import Pieces, fill_on_host
from bowstring.columnar.layout import Layout
from bowstring.columnar.lookup import column_positions
from bowstring.columnar.parts import batch_parts, make_batch
from bowstring.columnar.slice import compacted
from bowstring.dissociated.items import IpcMessage
from bowstring.ipc.body.encode import BatchEncoder
from bowstring.ipc.body.pack import laid_out, pack, pack_on_device
from bowstring.ipc.dictionary.writer import has_grown, same_values
from bowstring.ipc.flatbuf.schema import encode_schema
from bowstring.ipc.flatbuf.template import Template
from bowstring.memory import owned_regions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from bowstring.columnar.materialize import Lending
    from bowstring.columnar.parts import Dictionary
    from bowstring.memory import Device, Pending, Pool, Region


# Waits until there may be room for so many bytes; false when there will not be.
MakeRoom = Callable[[int], bool]


class Produced:
    """What is known of a source before its messages are made."""

    charged = True
    begins = 0
    num_rows: int | None = None
    num_batches: int | None = None
    nbytes: int | None = None
    lending: Lending | None = None
    pending: Pending | None = None
    devices: tuple[Device, ...] = ()

    def regions(self, columns: tuple[str, ...] | None, first: int | None = None) -> list[Region]:  # noqa: ARG002
        """Return what is announced ahead: nothing."""
        return []


class _Known:
    """What the streams of one layout have in common, made when it is first asked for."""

    def __init__(self, layout: Layout) -> None:
        ids = layout.dictionary_ids
        # Mostly they are those that the schema gets anyway.
        given = None if ids == tuple(range(len(ids))) else ids
        self.schema = IpcMessage(encode_schema(layout.schema, given))
        self._layout = weakref.ref(layout)

    @functools.cached_property
    def encoder(self) -> BatchEncoder | None:
        layout = self._layout()
        return None if layout is None or layout.dictionaries else BatchEncoder.of(Template(layout))


# Tables of one schema are published one after the other; layouts are kept as long as few others follow.
_known: weakref.WeakKeyDictionary[Layout, _Known] = weakref.WeakKeyDictionary()


def known_of(layout: Layout) -> _Known:
    """Return what the streams of a layout have in common."""
    known = _known.get(layout)
    if known is None:
        known = _known[layout] = _Known(layout)
    return known


def place_and_encode(
    schema: pa.Schema, batches: Sequence[Batch], pool: Pool
) -> tuple[list[Batch], list[IpcMessage]] | None:
    """Copy batches of one schema, compacted, into one region of a pool of the host; return them and their items.

    ``None`` where no kernel can encode them, some lie in regions already, they have other metadata than the schema
    that is sent, or there are none.
    """
    if not batches or not pool.device.is_host:
        return None
    layout = batches[0].layout
    if not layout.schema.equals(schema, check_metadata=True):
        return None
    known = known_of(layout)
    encoder = known.encoder
    laid, addresses_of, sizes_of = [], [], []
    for batch in batches:
        ordinary = encoder is not None and batch.layout is layout and not batch.custom_metadata
        plan = encoder.lay_out(batch) if ordinary and encoder is not None else None
        if plan is None:
            return None
        laid.append(plan)
        addresses_of.append(plan.addresses)
        sizes_of.append(plan.sizes)
    addresses, sizes = np.concatenate(addresses_of), np.concatenate(sizes_of)
    present = sizes > 0
    if owned_regions(addresses[present], sizes[present])[0]:
        return None
    alignment = pool.device.alignment
    padded = -(-sizes // alignment) * alignment
    ends = np.cumsum(padded)
    starts = ends - padded
    regions = []
    if present.any():
        regions = [pool.region(int(ends[-1]))]
        pieces = Pieces(addresses[present], sizes[present], starts[present], ends[present])
        fill_on_host(regions[0].address, pieces)
    spans = np.stack((np.zeros_like(sizes), starts * present, sizes), axis=1)
    placed, items, at = [], [known.schema], 0
    for batch, each in zip(batches, laid, strict=True):
        own = spans[at : at + len(each.sizes)]
        at += len(own)
        copied = make_batch(
            Batch, layout, batch.num_rows, each.nodes, spans=own, regions=regions, device=pool.device
        )
        copied.validated = batch.validated
        placed.append(copied)
        items.append(IpcMessage(each.metadata, own, regions, nbytes=int(each.sizes.sum())))
    return placed, items


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
        # By pointers: the dictionaries as they were sent last, in order.
        self.present: dict[int, IpcMessage] = {}

    def schema(self) -> IpcMessage:
        return known_of(self._layout).schema

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
            # By pointers the whole dictionary costs no more than its end; and a device is not read to compare.
            compares = not self._pointers and dictionary.values.device.is_host
            if known is dictionary or (
                known is not None and compares and same_values(known.values, dictionary.values)
            ):
                continue
            inner = layout.dictionaries[number]
            yield from self._dictionaries(dictionary.values, inner)
            self._sent[number] = dictionary
            if known is not None and compares and has_grown(known.values, dictionary.values):
                new = compacted(dictionary.values.slice(len(known)))
                yield self._item(new, inner, dictionary=number, is_delta=True)
            else:
                item = self._item(dictionary.values, inner, dictionary=number)
                if self._pointers:
                    self.present.pop(number, None)
                    self.present[number] = item
                yield item

    def _item(
        self, batch: Batch, layout: Layout, dictionary: int | None = None, *, is_delta: bool = False
    ) -> IpcMessage:
        template = self._templates.get(id(layout))
        if template is None:
            template = self._templates[id(layout)] = Template(layout)
        lay_out = laid_out if self._pointers else pack if batch.device.is_host else pack_on_device
        packed = lay_out(batch)
        _, _, spans, counts = batch_parts(batch)
        metadata = template.encode_batch(
            batch.num_rows,
            packed.nodes,
            packed.buffers,
            packed.body_length,
            counts,
            batch.custom_metadata if dictionary is None else None,
            dictionary=None if dictionary is None else (dictionary, is_delta),
        )
        charged = self._charged and dictionary is None
        return IpcMessage(metadata, spans.table, spans.regions, packed.pieces, batch.nbytes, charged)
