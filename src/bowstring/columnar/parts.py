"""What a batch is made of, for the modules that make batches and look into them: its parts and its dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TypeVar

import pyarrow as pa

from bowstring.columnar.spans import Spans, Table, joint_lease
from bowstring.errors import ClosedError, InvalidBody, NotPicklable
from bowstring.memory import Buffer, Device, Lease, Region

if TYPE_CHECKING:
    from bowstring.columnar.layout import Layout

Validated = Literal["structure", "full"]
AnyBatch = TypeVar("AnyBatch", bound="BatchData")


class Parts(NamedTuple):
    """What a batch is made of, beside its rows."""

    layout: Layout
    nodes: Table  # shape (nodes, 2), pre-order: length and null count, -1 where that is unknown
    spans: Spans
    variadic_counts: tuple[int, ...]  # of variadic buffers, for each view node


class BatchData:
    """The data of a :class:`bowstring.Batch`, without what users call: what all modules below it work on."""

    __slots__ = (
        "__weakref__",
        "_later",
        "_nodes",
        "_parts",
        "_row",
        "custom_metadata",
        "device",
        "dictionaries",
        "layout",
        "lease",
        "num_rows",
        "validated",
    )

    layout: Layout
    num_rows: int
    dictionaries: dict[int, Dictionary]
    lease: Lease
    custom_metadata: dict[bytes, bytes] | None
    device: Device
    validated: Validated
    _parts: Parts | None  # of a batch that was read, made by `_later` for its `_row` when they are asked for
    _later: Callable[[int], Parts] | None
    _row: int
    _nodes: Table  # of a batch that was released

    @property
    def schema(self) -> pa.Schema:
        """The ``pyarrow.Schema``; extension names are in the metadata of its fields."""
        return self.layout.schema

    @property
    def buffers(self) -> Sequence[Buffer | None]:
        """The buffers in the order of ``RecordBatch.buffers``, ``None`` for empty ones, made when asked for."""
        return batch_parts(self).spans

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers, without dictionaries."""
        return batch_parts(self).spans.nbytes


class Dictionary:
    """The values of a dictionary-encoded field, with a lease of their own.

    Two batches that hold the same object share the dictionary; it is sent once.
    """

    __slots__ = ("__weakref__", "_compact", "_is_compact", "id", "lease", "values")

    def __init__(self, id: int, values: BatchData, lease: Lease | None = None) -> None:  # noqa: A002  the format's word
        self.id = id
        self.values: Any = values  # of the class of the batch that uses them
        self.lease = values.lease if lease is None else lease
        self._compact: Dictionary | None = None
        self._is_compact = False

    def __len__(self) -> int:
        return int(self.values.num_rows)

    def __reduce__(self) -> NoReturn:
        raise NotPicklable("a Dictionary belongs to its process", hint="Publish the table that uses it.")

    def __repr__(self) -> str:
        return f"<Dictionary {self.id}: {len(self)} values of {self.values.schema.field(0).type}>"


class Dictionaries(dict[int, Dictionary]):
    """The dictionaries of a batch by id; asking for one that is missing raises InvalidBody."""

    __slots__ = ()

    def __missing__(self, id_: int) -> NoReturn:
        raise InvalidBody("a dictionary is missing", expected=f"id {id_}", found=f"ids {sorted(self)}")


class ReleasedDictionaries(dict[int, Dictionary]):
    """Those of a batch that was released, in another thread, too: asking for one raises ClosedError."""

    __slots__ = ()

    def __missing__(self, _: int) -> NoReturn:
        raise ClosedError("the batch was released", hint="Copy what you need before release().")


def batch_parts(batch: BatchData) -> Parts:
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


def nodes_of(batch: BatchData) -> Table:
    """Return the nodes of a batch, of one that was released, too."""
    try:
        return batch_parts(batch).nodes
    except ClosedError:
        return batch._nodes


def is_released(batch: BatchData) -> bool:
    """Whether a batch was released."""
    return batch._parts is None and batch._later is None


def make_batch(
    cls: type[AnyBatch],
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
) -> AnyBatch:
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
    cls: type[AnyBatch],
    layout: Layout,
    num_rows: int,
    dictionaries: Dictionaries,
    lease: Lease,
    device: Device,
    later: Callable[[int], Parts] | None = None,
    row: int = 0,
) -> AnyBatch:
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
    batch: AnyBatch,
    parts: Parts,
    num_rows: int,
    dictionaries: Mapping[int, Dictionary] | None = None,
    lease: Lease | None = None,
    device: Device | None = None,
) -> AnyBatch:
    """Return a batch over the same memory, or with a lease over other memory, on another device.

    With the same lease, `batch` cannot be released while that one lives.
    """
    if dictionaries is None:
        dictionaries = {id_: batch.dictionaries[id_] for id_ in parts.layout.dictionary_ids}
    view = make_batch(
        type(batch),
        parts.layout,
        num_rows,
        parts.nodes,
        variadic_counts=parts.variadic_counts,
        dictionaries=dictionaries,
        lease=Lease([batch.lease.export()]) if lease is None else lease,  # which counts as a view of `batch`
        custom_metadata=batch.custom_metadata,
        spans=parts.spans.table,
        regions=parts.spans.regions,
        device=device or batch.device,
    )
    view.validated = batch.validated
    return view


def owner_of(batch: BatchData) -> object:
    """Return what a view of the batch must keep alive."""
    return batch.lease.export(), batch_parts(batch).spans.regions


class OffsetBounds(NamedTuple):
    """The first and the last offset of a node, or its first and last run end."""

    node: int
    first: int
    last: int
    # What the last should not pass: bytes, slots of the child, or for run ends the length of the node.
    bound: int
    is_runs: bool


def offset_bounds(batch: BatchData) -> list[OffsetBounds]:
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


def dictionaries_of(batch: BatchData) -> Iterator[tuple[str, Dictionary]]:
    """Yield the dictionaries that a batch reaches, outer ones first, each with the path of a field that uses it.

    Dictionaries inside the values of another are those of its values. One that is missing is left out.
    """
    seen: set[int] = set()
    waiting: list[tuple[BatchData, tuple[str, ...]]] = [(batch, ())]
    for reached, before in waiting:
        for node in reached.layout.nodes:
            dictionary = None if node.dictionary_id is None else reached.dictionaries.get(node.dictionary_id)
            if dictionary is not None and id(dictionary) not in seen:
                seen.add(id(dictionary))
                # The one column of a dictionary's values has a name of no meaning.
                inside = (*before, *node.path[bool(before) :], "dictionary")
                waiting.append((dictionary.values, inside))
                yield ".".join(inside), dictionary
