"""Batches of many messages, checked and made at once.

Most of what a small batch costs is the price of a call, not of its bytes. Only batches that are valid beyond doubt
are made here; any other one, and whatever is wrong with it, is left to
:mod:`bowstring.client.connection.assembler`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

from bowstring.columnar.batch import Batch
from bowstring.columnar.dictionary import Dictionaries
from bowstring.dissociated.tags import POINTERS, is_pointers
from bowstring.dissociated.wire import PREFIX_BYTES
from bowstring.errors import ProtocolError
from bowstring.ipc.body.check_bulk import (
    Flags,
    MessageTable,
    Table,
    leading,
    leave_out_unused_bitmaps,
    minimum_sizes,
    nodes_are_right,
    offsets_are_right,
    sizes_are_right,
)
from bowstring.ipc.body.readahead import plain_ahead
from bowstring.memory.arrays import distinct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from bowstring.client.connection.runs import Run
    from bowstring.columnar.dictionary import Dictionary
    from bowstring.columnar.layout import Layout
    from bowstring.dissociated.addresses import AnnouncedRegions
    from bowstring.dissociated.reader import ReaderProtocol
    from bowstring.ipc.body.template import MessageTemplate
    from bowstring.ipc.dictionary.reader import DictionaryMemo
    from bowstring.limits import Limits
    from bowstring.memory import Region

__all__ = ["Found", "PointedRun", "Together", "pointed_ahead"]

# Up to here, one by one costs less than arrays of all.
_FEW: Final = 2
_WORD: Final = 8
_ADDRESS, _LENGTH = range(2)
_REGION, _OFFSET, _NBYTES = range(3)
_NOWHERE: Final = -1


class PointedRun(NamedTuple):
    """Pairs of an untagged message and a body of pointers, in the order in which they came.

    Attributes
    ----------
    messages : ndarray of uint8, shape (pairs, bytes)
    tags : ndarray of uint64, shape (pairs,)
    bodies : ndarray of uint64, shape (pairs, 1 + buffers, 2)
        Total and count, then address and length of each buffer.
    """

    messages: npt.NDArray[np.uint8]
    tags: npt.NDArray[np.uint64]
    bodies: npt.NDArray[np.uint64]

    def in_order(self, protocol: ReaderProtocol) -> bool:
        """Whether these are surely the next parts of a stream, all of them."""
        return protocol.foreseen(self.messages, self.tags, POINTERS)

    @classmethod
    def of(cls, received: Sequence[tuple[int | None, Any, Any]], start: int) -> Self | None:
        """Return the pairs at `start` that are equally long; ``None`` where they are too few to be worth it."""
        if len(received) - start <= 2 * _FEW:
            return None
        messages: list[Any] = []
        tags: list[int] = []
        bodies: list[Any] = []
        for (none, message, _), (tag, body, _) in zip(
            received[start::2], received[start + 1 :: 2], strict=False
        ):
            if none is not None or tag is None or not is_pointers(tag):
                break
            if messages and (len(message) != len(messages[0]) or len(body) != len(bodies[0])):
                break
            messages.append(message)
            tags.append(tag)
            bodies.append(body)
        count = len(tags)
        if count <= _FEW or len(bodies[0]) % 16 or not len(bodies[0]):
            return None
        return cls(
            np.frombuffer(b"".join(messages), np.uint8).reshape(count, -1),
            np.array(tags, np.uint64),
            np.frombuffer(b"".join(bodies), "<u8").reshape(count, -1, 2),
        )


class Found(NamedTuple):
    """A batch's rows, its nodes, where its buffers lie, and what it borrows: addresses and bytes."""

    num_rows: int
    nodes: Table
    spans: Table
    regions: tuple[Region, ...]
    addresses: npt.NDArray[np.uint64]
    nbytes: int


def pointed_ahead(
    run: PointedRun, template: MessageTemplate, layout: Layout, announced: AnnouncedRegions, limits: Limits
) -> list[Found]:
    """Return what the batches of a run in front are, as far as they are surely right.

    Parameters
    ----------
    run
        What came.
    template
        What the metadata of the last batches looked like.
    layout
        Of the stream's schema.
    announced
        What the bodies may point into.
    limits
        ``message_bytes`` applies.
    """
    count = len(run.tags)
    if (
        template.compression is not None
        or template.size != run.messages.shape[1] - PREFIX_BYTES
        or not template.fits(layout)
        or template.buffers[1][0] != run.bodies.shape[1] - 1
    ):
        return []
    found = template.table(run.messages[:, PREFIX_BYTES:].tobytes(), [0] * count)
    right = _pairs_are_right(found, run.bodies[: len(found.lengths)], limits)
    found = found.first(leading(right & nodes_are_right(found, layout)))
    fixed = layout.fixed_buffers(template.variadic_counts)
    sizes = found.buffers[:, fixed, 1]
    count = leading(sizes_are_right(found, layout, sizes, minimum_sizes(found, layout)))
    pairs = run.bodies[:count, 1:]
    if not (count and announced.regions):
        return []
    try:
        spans = announced.resolve(pairs.reshape(-1, 2)).reshape(count, -1, 3)
    except ProtocolError:  # for whoever looks at each of them to say of which
        return []
    which, right = _regions_of(spans)
    regions = announced.regions
    for index in distinct(which):
        mine = which == index
        lengths, counts = found.nodes[:count][mine, :, 0], template.variadic_counts
        right[mine] &= offsets_are_right(lengths, spans[mine], layout, counts, regions[index])
    count = leading(right)
    made = _found(found, count, pairs, spans, [(regions[index],) for index in which.tolist()])
    # Their bytes are lent, and counted, all the same.
    leave_out_unused_bitmaps(spans[:count], found.nodes[:count], layout, template.variadic_counts)
    return made


def _pairs_are_right(found: MessageTable, bodies: npt.NDArray[np.uint64], limits: Limits) -> Flags:
    """Whether a body says of its buffers what its metadata says of them."""
    heads, lengths = bodies[:, 0], bodies[:, 1:, _LENGTH]
    said = found.buffers[:, :, 1]
    fine: Flags = ((lengths == said.view(np.uint64)) & (said >= 0)).all(axis=1)
    # The sum may wrap where lengths are larger than any region, and then they are not right either.
    fine &= (heads[:, 0] == lengths.sum(axis=1)) & (heads[:, 1] == lengths.shape[1])
    fine &= (found.bodies >= 0) & (found.bodies <= limits.message_bytes)
    return fine


def _regions_of(spans: Table) -> tuple[Table, Flags]:
    """Return which region each batch lies in, and whether it is only one, with buffers where words may lie.

    From then on the rows are numbered so: each batch has a region of its own.
    """
    present = spans[:, :, _NBYTES] != 0
    numbers = np.where(present, spans[:, :, _REGION], _NOWHERE)
    which = numbers.max(axis=1)
    alone: Flags = (((numbers == which[:, None]) | ~present) & (spans[:, :, _OFFSET] % _WORD == 0)).all(
        axis=1
    )
    spans[:, :, _REGION] = 0
    return np.maximum(which, 0), alone


def _found(
    found: MessageTable,
    count: int,
    pairs: npt.NDArray[np.uint64],
    spans: Table,
    regions: list[tuple[Region, ...]],
) -> list[Found]:
    # What has an address is lent, and must be freed, though it may be empty.
    lent = pairs[:count, :, _ADDRESS] != 0
    addresses = pairs[:count, :, _ADDRESS][lent]
    ends = np.cumsum(lent.sum(axis=1)).tolist()
    return [
        Found(num_rows, nodes, table, where, addresses[start:end], nbytes)
        for num_rows, nodes, table, where, start, end, nbytes in zip(
            found.lengths[:count].tolist(),
            found.nodes[:count],
            spans[:count],
            regions[:count],
            [0, *ends][:count],
            ends,
            spans[:count, :, _NBYTES].sum(axis=1).tolist(),
            strict=True,
        )
    ]


class _Known(NamedTuple):
    """The metadata of a batch that was right, and what it says; spans are those of a body at 0."""

    metadata: bytes
    body: int
    num_rows: int
    nodes: npt.NDArray[np.int64]
    spans: npt.NDArray[np.int64]
    variadic_counts: tuple[int, ...]
    nbytes: int


class Together:
    """Makes the batches of one stream, run by run.

    Parameters
    ----------
    layout, memo
        Of the stream.
    """

    def __init__(self, layout: Layout, memo: DictionaryMemo) -> None:
        self._layout = layout
        self._memo = memo
        self._known: _Known | None = None

    def batches(self, run: Run, template: MessageTemplate) -> tuple[list[Batch], list[int]]:
        """Return the first batches of a run, as far as they are surely right, and the bytes of each.

        Parameters
        ----------
        run
            What came, in order.
        template
            What the metadata of the last batches looked like.
        """
        if template.compression is not None or template.size != run.messages.shape[1] - PREFIX_BYTES:
            return [], []
        dictionaries = self._memo.all(self._layout) if template.fits(self._layout) else None
        if dictionaries is None:
            return [], []
        count = len(run.tags)
        known = self._known if self._known is not None and self._known.body == run.body else None
        if known is not None and run.metadata is not None and run.metadata == known.metadata:
            return self._same(run, known, dictionaries), [known.nbytes] * count
        metadata = run.messages[:, PREFIX_BYTES:].tobytes()
        if known is not None and metadata == known.metadata * count:
            return self._same(run, known, dictionaries), [known.nbytes] * count
        if count <= _FEW:
            return [], []
        found = template.table(metadata, list(range(0, count * run.body, run.body)))
        found = found.first(leading(found.bodies == run.body))
        batches = plain_ahead(found, template, self._layout, run.bodies, dictionaries)
        sizes: list[int] = found.buffers[: len(batches), :, 1].sum(axis=1).tolist()
        if batches and not self._layout.offset_groups:
            self._known = self._noted(run, metadata[: template.size], batches[0], sizes[0])
        return batches, sizes

    @staticmethod
    def _noted(run: Run, metadata: bytes, batch: Batch, nbytes: int) -> _Known:
        spans = batch.spans.table.copy()
        spans[:, 1] -= run.bodies.offset
        return _Known(metadata, run.body, batch.num_rows, batch.nodes, spans, batch.variadic_counts, nbytes)

    def _same(self, run: Run, known: _Known, dictionaries: Mapping[int, Dictionary]) -> list[Batch]:
        """Return batches whose metadata is that of one before, byte for byte, and so as right as that was.

        Not where there are offsets: they are in the body.
        """
        start = run.bodies.offset
        places = np.arange(start, start + len(run.tags) * run.body, run.body)
        spans = np.empty((len(places), *known.spans.shape), np.int64)
        spans[:] = known.spans
        spans[:, :, 1] += places[:, None]
        held = Dictionaries(dictionaries)
        regions = (run.bodies.region,)
        return [
            Batch.from_parts(
                self._layout,
                known.num_rows,
                known.nodes,
                variadic_counts=known.variadic_counts,
                dictionaries=held,
                spans=table,
                regions=regions,
            )
            for table in spans
        ]
