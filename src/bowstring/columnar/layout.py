"""The physical layout of a schema: its nodes and buffers in the order in which Arrow IPC lists them.

Derived once per schema: columns and children in pre-order, as in Message.fbs, and NumPy tables by which a few
array operations check a whole batch. Extension types are laid out as their storage, dictionary-encoded fields as
their indices; the values of a dictionary have a layout of their own.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bowstring.columnar.nodes import BITS, END_BITS, Kind, Node, Offsets, Walk
from bowstring.columnar.plan import is_written, plan_of
from bowstring.errors import InvalidMetadata, UsageError
from bowstring.limits import DEFAULT_LIMITS, Limits

_DATA, _VALIDITY = Kind.DATA, Kind.VALIDITY
_OVERFLOW: Final = (1 << 63) - 128
_UNBOUNDED: Final = DEFAULT_LIMITS.replace(depth=1 << 62, columns=1 << 62)

Indices = npt.NDArray[np.int64]
_T = TypeVar("_T")


class Layout:
    """The nodes and buffers of every batch of one schema. Make it with :meth:`of`."""

    nodes: tuple[Node, ...]  # pre-order
    columns: tuple[int, ...]  # node index of each column; `column_nodes` likewise
    num_nodes: int
    # levels, as `Limits.depth` counts: 1 without columns, 2 if flat, 3 for dictionaries of flat values
    depth: int
    is_flat: bool  # no column has children
    run_ends: tuple[int, ...]  # nodes that are run-end encoded
    variadic_nodes: tuple[int, ...]  # nodes with variadic buffers
    column_nodes: Indices
    num_buffers: int  # without variadic buffers
    longest: int  # node lengths up to this do not overflow as bytes
    buffer_kinds: npt.NDArray[np.uint8]  # `Kind`; this and the next three have shape (num_buffers,)
    buffer_nodes: Indices
    buffer_bits: Indices  # per slot
    buffer_end_bits: Indices  # beyond the last slot
    validity_buffers: Indices
    validity_nodes: Indices  # of the validity buffers
    offsets: tuple[Offsets, ...]  # buffers whose last offset must lie within what they point into
    bitmapless: Indices  # unions and run-end encoded nodes
    null_nodes: Indices  # of type null
    never_null: Indices  # `bitmapless`, and entries and keys of maps
    bounded_children: Indices  # these need `factor` slots for each slot of their parent
    bounding_parents: Indices
    bounding_factors: Indices
    _column_ids: tuple[tuple[int, ...], ...]
    _first_buffers: Indices
    _positions: Indices
    _widest: int

    def __init__(
        self, schema: pa.Schema, walk: Walk | None = None, made: dict[Walk, Layout] | None = None
    ) -> None:
        self.schema = schema
        self._alone: dict[int, Layout] = {}
        # by variadic counts, for :mod:`bowstring.columnar.interchange.export`
        self.exporting: dict[tuple[int, ...], Any] = {}
        # pyarrow takes schemas of other types for equal
        self.has_vague_types = walk is not None and walk.has_vague_types
        # pre-order, those inside a dictionary's values after it
        self.dictionary_ids = () if walk is None else tuple(walk.dictionary_ids)
        # layouts of the values (one column `values`) by id, inner ones first
        self.dictionaries = {} if walk is None else _of_dictionaries(walk, {} if made is None else made)
        if walk is not None:
            self._tabulate_nodes(walk)

    if not TYPE_CHECKING:  # mypy knows the attributes above, and would take any other for one

        def __getattr__(self, name: str) -> Any:
            """Make tables up to the one that is asked for: most readers need few."""
            for last, make in _TABLES if name in Layout.__annotations__ else ():
                if last not in self.__dict__:
                    make(self)
                if name in self.__dict__:
                    return self.__dict__[name]
            raise AttributeError(f"a layout has no {name}")

    @classmethod
    def of(
        cls,
        schema: pa.Schema,
        dictionary_ids: Sequence[int] | None = None,
        *,
        limits: Limits = DEFAULT_LIMITS,
        weight: int | None = None,
        is_plain: bool = False,
    ) -> Layout:
        """Return the layout of a schema.

        `dictionary_ids`: one per dictionary-encoded field, pre-order; by default they count up from 0, as in Arrow
        C++. `weight`: fields times their levels, if known; heavy layouts are neither compared nor cached. Nodes of
        `is_plain`, known types without dictionaries and extension types, are derived when they are first asked for.
        """
        ids = None if dictionary_ids is None else tuple(dictionary_ids)
        if weight is not None and weight > _MOST_WEIGHT:
            return cls(schema) if is_plain else cls._derive(schema, ids, limits)
        # What tells most schemas apart in a microsecond, where hash() takes 0.3 for each field.
        count = len(schema)
        key = count, schema.field(count - 1).name if count else ""
        for known, layout, _ in _recent.kept:
            if known == key and layout.schema.equals(schema, check_metadata=True):
                known_ids = layout.dictionary_ids
                if known_ids != (tuple(range(len(known_ids))) if ids is None else ids) or (
                    layout.has_vague_types and not layout.schema.serialize().equals(schema.serialize())
                ):
                    continue
                if not is_plain and (layout.depth > limits.depth or layout.num_nodes > limits.columns):
                    return cls._derive(schema, ids, limits)
                return layout
        layout = cls(schema) if is_plain else cls._derive(schema, ids, limits)
        if weight is None:
            num_nodes = layout.num_nodes + sum([each.num_nodes for each in layout.dictionaries.values()])
            weight = num_nodes * max(layout.depth - 1, 1)
        _recent.keep(key, layout, weight)
        return layout

    @classmethod
    def _derive(cls, schema: pa.Schema, ids: tuple[int, ...] | None, limits: Limits) -> Layout:
        source: Iterator[int] = iter(range(1 << 62)) if ids is None else iter(ids)
        layout = cls(schema, Walk(schema, source, limits, 1))
        if ids is not None and len(ids) != len(layout.dictionary_ids):
            raise InvalidMetadata(
                "wrong number of dictionary ids", expected=len(layout.dictionary_ids), found=len(ids)
            )
        return layout

    @functools.cached_property
    def reading_plan(self) -> Indices | None:
        """The :mod:`bowstring.columnar.plan` by which batches are read; None where a type has none."""
        return plan_of(self.nodes, self.longest, self.buffer_bits, self.buffer_end_bits)

    @functools.cached_property
    def plan(self) -> Indices | None:
        """The same plan, if batches are written and taken over by it, too."""
        return self.reading_plan if is_written(self.nodes) else None

    def first_buffers(self, variadic_counts: Sequence[int] = ()) -> Indices:
        """Return int64, shape (num_nodes + 1,): node ``i`` has the buffers ``[first[i], first[i + 1])``."""
        if len(variadic_counts) != len(self.variadic_nodes):
            raise UsageError(
                "one variadic count per view node",
                expected=len(self.variadic_nodes),
                found=len(variadic_counts),
            )
        if not self.variadic_nodes:
            return self._first_buffers
        first = self._first_buffers.copy()
        for node, count in zip(self.variadic_nodes, variadic_counts, strict=True):
            first[node + 1 :] += count
        return first

    def fixed_buffers(self, variadic_counts: Sequence[int] = ()) -> Indices:
        """Return where the layout's own buffers stand in a batch with these variadic counts; read-only."""
        first = self.first_buffers(variadic_counts)
        if first is self._first_buffers:
            return self._positions
        return self._positions + (first - self._first_buffers)[self.buffer_nodes]

    def minimum_lengths(self, lengths: Indices) -> Indices:
        """Bytes that each fixed buffer needs, if it is there, for nodes of these lengths.

        Shape (…, num_nodes) to (…, num_buffers): int64, each at most :attr:`longest`, or Python's integers of any
        size.
        """
        slots = lengths[..., self.buffer_nodes]
        assert slots.dtype.hasobject or int(slots.max(initial=0)) * self._widest < _OVERFLOW
        return (slots * self.buffer_bits + (slots > 0) * self.buffer_end_bits + 7) >> 3

    def select(
        self, columns: Sequence[int], variadic_counts: Sequence[int] = ()
    ) -> tuple[Layout, Indices, Indices]:
        """The layout of `columns` in this order, with the same dictionary ids.

        Also returns which nodes and buffers to take of a batch with these variadic counts.
        """
        for column in columns:
            if not 0 <= column < len(self.columns):
                raise UsageError("no such column", expected=f"0 to {len(self.columns) - 1}", found=column)
        schema = pa.schema([self.schema.field(column) for column in columns], metadata=self.schema.metadata)
        ids = [id_ for column in columns for id_ in self._column_ids[column]]
        first = self.first_buffers(variadic_counts)
        spans = [(self.columns[column], self.nodes[self.columns[column]].end) for column in columns]
        nodes = _ranges(spans)
        buffers = _ranges([(int(first[start]), int(first[end])) for start, end in spans])
        return Layout.of(schema, ids), nodes, buffers

    def alone(self, index: int, field: pa.Field) -> Layout:
        """Return the layout of a node of this field, and of those below it, as the only column; made once."""
        layout = self._alone.get(index)
        if layout is None:
            ids: list[int] = []
            for node in self.nodes[index : self.nodes[index].end]:
                if node.dictionary_id is not None:
                    ids += node.dictionary_id, *self.dictionaries[node.dictionary_id].dictionary_ids
            # It is no deeper and no wider than this one, whatever limits that was let in by.
            width = max([self.num_nodes, *(each.num_nodes for each in self.dictionaries.values())])
            limits = DEFAULT_LIMITS.replace(depth=self.depth, columns=width)
            layout = self._alone[index] = self._derive(pa.schema([field]), tuple(ids), limits)
        return layout

    def name_of(self, node: int) -> str:
        return ".".join(self.nodes[node].path)

    def is_like(self, other: Layout) -> bool:
        tables = ("columns", "buffer_nodes", "buffer_kinds", "buffer_bits", "bounding_factors")
        return self is other or (
            len(self.dictionary_ids) == len(other.dictionary_ids)
            and all(np.array_equal(getattr(self, table), getattr(other, table)) for table in tables)
        )

    def __repr__(self) -> str:
        return f"<Layout of {len(self.columns)} columns, {self.num_nodes} nodes, {self.num_buffers} buffers>"

    def _tabulate_nodes(self, walk: Walk | None = None) -> None:
        if walk is None:
            walk = Walk(self.schema, iter(()), _UNBOUNDED, 1)  # it was let in by other limits
        self.nodes = tuple(walk.nodes)
        self.columns = tuple(walk.columns)
        self.num_nodes = len(self.nodes)
        self.depth = walk.depth
        self._column_ids = tuple(walk.column_ids)
        self.is_flat = self.num_nodes == len(self.columns)
        self.run_ends = tuple(walk.run_ends)
        self.variadic_nodes = tuple(walk.variadic_nodes)
        self.column_nodes = _frozen(walk.columns)

    def _tabulate_buffers(self) -> None:
        firsts = [node.first_buffer for node in self.nodes]
        kinds = bytes(itertools.chain.from_iterable([node.buffer_kinds for node in self.nodes]))
        self.num_buffers = len(kinds)
        self.buffer_kinds = np.frombuffer(kinds, np.uint8)
        self._first_buffers = _frozen([*firsts, len(kinds)])
        counts = self._first_buffers[1:] - self._first_buffers[:-1]
        self.buffer_nodes = np.arange(self.num_nodes).repeat(counts)
        widths = _frozen([node.bits for node in self.nodes])[self.buffer_nodes]
        self.buffer_bits: Indices = np.where(self.buffer_kinds == _DATA, widths, BITS[self.buffer_kinds])
        self.buffer_end_bits: Indices = END_BITS[self.buffer_kinds]
        self._positions = np.arange(self.num_buffers)
        for table in (self.buffer_nodes, self.buffer_bits, self.buffer_end_bits, self._positions):
            table.flags.writeable = False
        self._widest = int(self.buffer_bits.max(initial=0))
        self.longest = (1 << 62) // (self._widest + 1)

        self.validity_buffers = (self.buffer_kinds == _VALIDITY).nonzero()[0]
        self.validity_nodes = self.buffer_nodes[self.validity_buffers]
        buffers = self.buffer_end_bits.nonzero()[0]
        nodes = self.buffer_nodes[buffers].tolist()
        widths = (self.buffer_end_bits[buffers] >> 3).tolist()
        children = [self.nodes[node].children[0] if self.nodes[node].children else -1 for node in nodes]
        self.offsets = tuple(map(Offsets, nodes, buffers.tolist(), widths, children))

    def _tabulate_children(self) -> None:
        bounds: list[tuple[int, int, int]] = []
        never_null, bitmapless = list[int](), list[int]()
        for index, node in enumerate(self.nodes):
            type_id = node.type.id
            if type_id in (pa.lib.Type_STRUCT, pa.lib.Type_SPARSE_UNION):
                bounds.extend((child, index, 1) for child in node.children)
            elif type_id == pa.lib.Type_FIXED_SIZE_LIST:
                bounds.append((node.children[0], index, node.type.list_size))
            elif type_id == pa.lib.Type_MAP:
                entries = node.children[0]
                never_null += (entries, self.nodes[entries].children[0])
            # Of unions and runs.
            if _VALIDITY not in node.buffer_kinds and not pa.types.is_null(node.type):
                bitmapless.append(index)
        empty = [at for at, node in enumerate(self.nodes) if not node.buffer_kinds]
        self.bitmapless = _frozen(bitmapless)
        self.null_nodes = _frozen([at for at in empty if pa.types.is_null(self.nodes[at].type)])
        self.never_null = _frozen(never_null + bitmapless)
        self.bounded_children = _frozen([bound[0] for bound in bounds])
        self.bounding_parents = _frozen([bound[1] for bound in bounds])
        self.bounding_factors = _frozen([bound[2] for bound in bounds])


def _of_dictionaries(walk: Walk, made: dict[Walk, Layout]) -> dict[int, Layout]:
    """Return the layouts of dictionaries, each made once however many others it lies in."""
    for inner in walk.dictionaries.values():  # inner ones first
        if inner not in made:
            made[inner] = Layout(inner.schema, inner, made)
    return {id_: made[inner] for id_, inner in walk.dictionaries.items()}


def _frozen(values: Sequence[Any]) -> Indices:
    table = np.array(values, dtype=np.int64)
    table.flags.writeable = False
    return table


def _ranges(spans: Sequence[tuple[int, int]]) -> Indices:
    if not spans:
        return np.empty(0, dtype=np.int64)
    return np.concatenate([np.arange(start, end, dtype=np.int64) for start, end in spans])


# What makes attributes of a layout, each by the attribute that it sets last: another thread may do it, too.
_TABLES: Final = (
    ("column_nodes", Layout._tabulate_nodes),
    ("offsets", Layout._tabulate_buffers),
    ("bounding_factors", Layout._tabulate_children),
)


class Recent(Generic[_T]):
    """Values that were made last, under keys: few, and of little weight in all. Any thread may use it."""

    def __init__(self, most: int, most_weight: int) -> None:
        self._most = most
        self._most_weight = most_weight
        self.kept: list[tuple[Any, _T, int]] = []  # keys, values and weights, the last one first

    def of(self, key: Any) -> list[_T]:
        values: list[_T] = []
        for known, value, _ in self.kept:
            if known == key:
                values.append(value)
        return values

    def keep(self, key: Any, value: _T, weight: int) -> None:
        """Keep a value, unless it weighs more than all may, and drop the oldest that are too many with it."""
        if weight > self._most_weight:
            return
        kept = [(key, value, weight), *self.kept[: self._most - 1]]
        total = sum([each[2] for each in kept])
        while total > self._most_weight:
            total -= kept.pop()[2]
        self.kept = kept


TOO_HEAVY: Final = 1 << 62  # the weight of what is never kept
_MOST_WEIGHT: Final = 1 << 16
# Streams of one schema follow each other. Few of wide schemas are kept.
_recent: Final[Recent[Layout]] = Recent(32, _MOST_WEIGHT)
