"""Parts: what a batch is made of, for the modules that make batches and look into them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from bowstring.columnar.dictionary import Dictionaries
from bowstring.columnar.spans import Spans, Table, joint_lease
from bowstring.errors import ClosedError
from bowstring.memory import Lease

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bowstring.columnar.batch import Batch
    from bowstring.columnar.dictionary import Dictionary
    from bowstring.columnar.layout import Layout
    from bowstring.memory import Buffer, Device, Region

_Batch = TypeVar("_Batch", bound="Batch")


class Parts(NamedTuple):
    """What a batch is made of, beside its rows."""

    layout: Layout
    nodes: Table  # shape (nodes, 2), pre-order: length and null count, -1 where that is unknown
    spans: Spans
    variadic_counts: tuple[int, ...]  # of variadic buffers, for each view node


def batch_parts(batch: Batch) -> Parts:
    """Return the parts of a batch; raise `ClosedError` if it was released."""
    parts = batch._parts
    if parts is None:
        later = batch._later
        if later is None:
            raise ClosedError("the batch was released", hint="Copy what you need before release().")
        parts = later(batch._row)
        parts.spans.lease = batch.lease
        batch._parts = parts
        if batch._later is None:  # another thread has released it meanwhile
            batch._parts = None
    return parts


def nodes_of(batch: Batch) -> Table:
    """Return the nodes of a batch, of one that was released, too."""
    try:
        return batch_parts(batch).nodes
    except ClosedError:
        return batch._nodes


def is_released(batch: Batch) -> bool:
    """Whether a batch was released."""
    return batch._parts is None and batch._later is None


def make_batch(
    cls: type[_Batch],
    layout: Layout,
    num_rows: int,
    nodes: Table,
    buffers: Sequence[Buffer | None] | None = None,
    variadic_counts: Sequence[int] = (),
    dictionaries: Mapping[int, Dictionary] | None = None,
    lease: Lease | None = None,
    custom_metadata: dict[bytes, bytes] | None = None,
    *,
    spans: Table | None = None,
    regions: Sequence[Region] = (),
    device: Device | None = None,
) -> _Batch:
    """Put a batch together of parts that are taken as they are, unchecked (see :meth:`Batch.validate`).

    `buffers` are in the order of ``RecordBatch.buffers``, ``None`` for empty ones. Without them `spans`, of shape
    (buffers, 3), has index into `regions`, offset and length of each in bytes; Buffers are made when asked for.
    """
    if spans is None:
        table = Spans.of(buffers or ())
        lease = joint_lease(buffers or ()) if lease is None else lease
    else:
        table = Spans(spans, regions)
    table.lease = lease = Lease(table.regions) if lease is None else lease
    if not isinstance(dictionaries, Dictionaries):
        dictionaries = Dictionaries(dictionaries or {})
    batch = unread_batch(cls, layout, num_rows, dictionaries, lease, device or table.device)
    batch.custom_metadata = custom_metadata
    if not nodes.flags.writeable:  # they lie in a message, and nulls are counted later
        nodes = nodes.copy()
    batch._parts = Parts(layout, nodes, table, tuple(variadic_counts))
    return batch


def unread_batch(
    cls: type[_Batch],
    layout: Layout,
    num_rows: int,
    dictionaries: Dictionaries,
    lease: Lease,
    device: Device,
    later: Callable[[int], Parts] | None = None,
    row: int = 0,
) -> _Batch:
    """Return a batch whose parts are made when they are first asked for, by ``later(row)``."""
    batch = cls.__new__(cls)
    batch.layout = layout
    batch.num_rows = num_rows
    batch.dictionaries = dictionaries
    batch.lease = lease
    batch.custom_metadata = None
    batch.device = device
    batch.validated = "structure"
    batch._parts = None
    batch._later = later
    batch._row = row
    return batch


def derived(
    batch: _Batch, parts: Parts, num_rows: int, dictionaries: Mapping[int, Dictionary] | None = None
) -> _Batch:
    """Return a batch over the same memory; `batch` cannot be released while that one lives."""
    if dictionaries is None:
        dictionaries = {id_: batch.dictionaries[id_] for id_ in parts.layout.dictionary_ids}
    view = make_batch(
        type(batch),
        parts.layout,
        num_rows,
        parts.nodes,
        variadic_counts=parts.variadic_counts,
        dictionaries=dictionaries,
        lease=Lease([batch.lease.export()]),  # which counts as a view of `batch`
        custom_metadata=batch.custom_metadata,
        spans=parts.spans.table,
        regions=parts.spans.regions,
        device=batch.device,
    )
    view.validated = batch.validated
    return view


def owner_of(batch: Batch) -> object:
    """Return what a view of the batch must keep alive."""
    return batch.lease.export(), batch_parts(batch).spans.regions


class OffsetBounds(NamedTuple):
    """The first and the last offset of a node, or its first and last run end."""

    node: int
    first: int
    last: int
    bound: int
    """What the last should not pass: bytes, slots of the child, or for run ends the length of the node."""
    is_runs: bool


def offset_bounds(batch: Batch) -> list[OffsetBounds]:
    """Return the ends of every node that has slots and offsets or run ends, with one read by the host."""
    layout, nodes, spans, counts = batch_parts(batch)
    if not layout.offsets and not layout.run_ends:
        return []
    rows: list[int] = []
    at: list[int] = []
    widths: list[int] = []
    bounded: list[tuple[int, int, bool]] = []
    fixed = layout.fixed_buffers(counts).tolist()
    lengths = nodes[:, 0].tolist()
    sizes = spans.table[:, 2].tolist()
    for node, position, width, child in layout.offsets:
        if lengths[node]:
            rows += [fixed[position]] * 2
            at += [0, lengths[node] * width]
            widths += [width] * 2
            bounded.append((node, lengths[child] if child >= 0 else sizes[fixed[position + 1]], False))
    for node in layout.run_ends:
        ends = layout.nodes[node].children[0]
        if lengths[node] and lengths[ends]:
            width = layout.nodes[ends].width
            rows += [fixed[layout.nodes[ends].first_buffer + 1]] * 2
            at += [0, (lengths[ends] - 1) * width]
            widths += [width] * 2
            bounded.append((node, lengths[node], True))
    values = spans.fetch(batch.device, rows, at, widths)
    return [
        OffsetBounds(node, first, last, bound, is_runs)
        for (node, bound, is_runs), first, last in zip(bounded, values[::2], values[1::2], strict=True)
    ]
