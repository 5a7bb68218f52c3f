"""Columns as Variant values: sizes from the leaves up, then bytes from the roots down, a column at a time."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bowstring.columnar.slots import Slots, slots_of
from bowstring.kernels.launch import launch, launch_shared
from bowstring.kernels.variant.shredded import (
    copy_values,
    measure_arrays,
    measure_values,
    place_groups,
    write_arrays,
)
from bowstring.kernels.variant.shredded_names import count_names, find_fields, rank_names
from bowstring.kernels.variant.shredded_objects import (
    count_fields,
    measure_maps,
    measure_objects,
    write_maps,
    write_objects,
)
from bowstring.variant.shredded.layout import Elements, Fields, Group, Leaf, flags_of, list_bounds
from bowstring.variant.shredded.leaves import leaf_of

if TYPE_CHECKING:
    from bowstring.memory import Device
    from bowstring.variant.metadata_dictionary import MetadataDictionary


class Bytes(Protocol):
    """A column that becomes Variant values."""

    # From the metadata index of each slot to sizes, 0 for what is missing.
    def measure(self, groups: Any) -> Any: ...

    # To places in an output of zeros, -1 for what is not wanted.
    def write(self, places: Any, out: Any) -> None: ...


class Names:
    """The names of distinct metadata: their ids in order, and the rank of each."""

    def __init__(self, device: Device, dictionary: MetadataDictionary) -> None:
        self._device = device
        self.dictionary = dictionary

    @functools.cached_property
    def bases(self) -> Any:
        """Where the names of each metadata begin among all, and the last end."""
        xp, found = self._device.xp, self.dictionary
        counts = xp.empty(len(found.marks), np.int64)
        launch(count_names, len(counts), found.starts, found.stops, found.data, found.marks, counts)
        return xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(counts, dtype=np.int64)])

    @functools.cached_property
    def _ordered(self) -> tuple[Any, Any]:
        xp, found = self._device.xp, self.dictionary
        total = int(self._device.to_host(self.bases[-1:])[0])
        order, ranks = xp.zeros(total, np.int32), xp.zeros(total, np.int32)
        slots = found.starts, found.stops, found.data, found.marks
        launch(rank_names, len(found.marks), *slots, self.bases, order, ranks)
        return order, ranks

    @property
    def ranks(self) -> Any:
        """The rank of each id in the order of the names of its metadata."""
        return self._ordered[1]

    def ids(self, names: Sequence[str]) -> Any:
        """Return the ids of some names in each metadata, -1 where it has none."""
        xp, found = self._device.xp, self.dictionary
        encoded = [name.encode() for name in names]
        ends = xp.asarray(np.cumsum([0, *map(len, encoded)], dtype=np.int64))
        texts = xp.asarray(np.frombuffer(b"".join(encoded), np.uint8))
        ids = xp.empty(len(names) * len(found.marks), np.int32)
        slots = found.starts, found.stops, found.data, self.bases, self._ordered[0]
        launch(find_fields, len(ids), *slots, texts, ends, ids)
        return ids


@dataclasses.dataclass(slots=True)
class ArrayBytes:
    """Lists as Variant arrays."""

    device: Device
    rows: int
    flags: Any
    starts: Any
    stops: Any
    item: Bytes
    item_rows: int
    children: Any = None

    def measure(self, groups: Any) -> Any:
        """Return the size of each slot."""
        xp = self.device.xp
        inside = xp.full(self.item_rows, -1, np.int32)
        launch(place_groups, self.rows, self.starts, self.stops, groups, inside)
        self.children = self.item.measure(inside)
        sizes = xp.zeros(self.rows, np.int64)
        bounds = self.starts, self.stops, self.flags.view(np.uint8)
        launch(measure_arrays, self.rows, *bounds, self.children, sizes)
        return sizes

    def write(self, places: Any, out: Any) -> None:
        """Write the values to their places."""
        inside = self.device.xp.full(self.item_rows, -1, np.int64)
        bounds = self.starts, self.stops, self.flags.view(np.uint8)
        launch(write_arrays, self.rows, *bounds, self.children, places, inside, out)
        self.item.write(inside, out)


@dataclasses.dataclass(slots=True)
class MapBytes:
    """Maps as Variant objects: `ids` are those of the keys of all entries, in the order of their names."""

    device: Device
    rows: int
    flags: Any
    starts: Any
    stops: Any
    ids: Any
    item: Bytes
    _made: tuple[Any, ...] = ()

    def measure(self, _groups: Any) -> Any:
        """Return the size of each slot."""
        xp, entries = self.device.xp, len(self.ids)
        children = self.item.measure(xp.zeros(entries, np.int32))
        words, sizes = xp.empty(entries, np.uint64), xp.zeros(self.rows, np.int64)
        lists = self.starts, self.stops, self.flags.view(np.uint8)
        launch(measure_maps, self.rows, *lists, self.ids, children, words, sizes)
        self._made = children, words
        return sizes

    def write(self, places: Any, out: Any) -> None:
        """Write the values to their places."""
        inside = self.device.xp.full(len(self.ids), -1, np.int64)
        lists = self.starts, self.stops, self.flags.view(np.uint8)
        made, self._made = self._made, ()
        launch(write_maps, self.rows, *lists, *made, places, inside, out)
        self.item.write(inside, out)


@dataclasses.dataclass(slots=True)
class UnionBytes:
    """Unions as Variant values: of each child the rows that have it, its slots, and how many slots it has."""

    device: Device
    rows: int
    children: Sequence[tuple[Bytes, Any, Any, int]]

    def measure(self, groups: Any) -> Any:
        """Return the size of each slot."""
        xp = self.device.xp
        sizes = xp.zeros(self.rows, np.int64)
        for child, chosen, slots, count in self.children:
            inside = xp.full(count, -1, np.int32)
            inside[slots] = groups[chosen]
            sizes[chosen] = child.measure(inside)[slots]
        return sizes

    def write(self, places: Any, out: Any) -> None:
        """Write the values to their places."""
        for child, chosen, slots, count in self.children:
            inside = self.device.xp.full(count, -1, np.int64)
            inside[slots] = places[chosen]
            child.write(inside, out)


@dataclasses.dataclass(slots=True)
class ObjectBytes:
    """Structs as Variant objects, with the fields of residual values where there are some.

    `names` are in the order of their UTF-8; `value` are the residual values, of the slots that `residual` names.
    """

    device: Device
    rows: int
    flags: Any
    names: Sequence[str]
    fields: Sequence[Bytes]
    known: Names
    value: Slots | None = None
    residual: Any = None
    _made: tuple[Any, ...] = ()

    def measure(self, groups: Any) -> Any:
        """Return the size of each slot."""
        xp, rows, count = self.device.xp, self.rows, len(self.fields)
        children = xp.empty(count * rows, np.int64)
        for k, field in enumerate(self.fields):
            children[k * rows : (k + 1) * rows] = field.measure(groups)
        starts, stops, data, flags = self._residual()
        ids = self.known.ids(self.names)
        ranks = self.known.ranks if len(flags) else xp.empty(0, np.int32)
        typed = self.flags.view(np.uint8)
        counts = xp.empty(rows, np.int64)
        launch(count_fields, rows, starts, stops, data, typed, flags, count, counts)
        firsts = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(counts, dtype=np.int64)])
        words = xp.empty(int(self.device.to_host(firsts[-1:])[0]), np.uint64)
        shapes, sizes = xp.zeros(rows, np.uint64), xp.zeros(rows, np.int64)
        launch(
            measure_objects,
            rows,
            *(starts, stops, data, typed, flags, count, rows, groups, children),
            *(self.known.bases, ranks, ids, firsts, words, shapes, sizes),
        )
        self._made = groups, children, ids, firsts, words, shapes
        return sizes

    def write(self, places: Any, out: Any) -> None:
        """Write the values to their places."""
        rows, count = self.rows, len(self.fields)
        starts, stops, data, _ = self._residual()
        groups, children, ids, firsts, words, shapes = self._made
        self._made = ()
        inside = self.device.xp.full(count * rows, -1, np.int64)
        typed = self.flags.view(np.uint8)
        launch(
            write_objects,
            rows,
            *(starts, stops, data, typed, count, rows, groups, children, ids),
            *(firsts, words, shapes, places, inside, out),
        )
        for k, field in enumerate(self.fields):
            field.write(inside[k * rows : (k + 1) * rows], out)

    def _residual(self) -> tuple[Any, Any, Any, Any]:
        xp = self.device.xp
        if self.value is None:
            nothing, empty = xp.zeros(0, np.int64), xp.zeros(0, np.uint8)
            return nothing, nothing, empty, empty
        starts, stops = self.value.starts.astype(np.int64), self.value.stops.astype(np.int64)
        return starts, stops, self.value.data, self.residual.view(np.uint8)


@dataclasses.dataclass(slots=True)
class GroupBytes:
    """A typed column, and values beside it, as Variant values."""

    device: Device
    rows: int
    typed: Bytes | None
    value: Slots | None
    alone: Any  # flags of the slots whose value is not beside an object
    required: bool  # what is missing is a Variant null
    sizes: Any = None

    def measure(self, groups: Any) -> Any:
        """Return the size of each slot."""
        xp = self.device.xp
        sizes = xp.zeros(self.rows, np.int64) if self.typed is None else self.typed.measure(groups)
        if self.value is not None:
            slots = self.value.starts, self.value.stops, self.value.data, self.alone.view(np.uint8)
            sizes = sizes.copy()
            launch(measure_values, self.rows, *slots, sizes)
        if self.required:
            sizes = xp.where(sizes == np.int64(0), np.int64(1), sizes)
        self.sizes = sizes
        return sizes

    def write(self, places: Any, out: Any) -> None:
        """Write the values to their places."""
        if self.typed is not None:
            self.typed.write(places, out)
        if self.value is not None:
            slots = self.value.starts, self.value.stops, self.value.data, self.alone.view(np.uint8)
            launch_shared(copy_values, self.rows, *slots, self.sizes, places, out)


def bytes_of(group: Group, known: Names) -> GroupBytes:
    """Return what makes Variant values of a shredded group."""
    device, rows = group.column.device, group.rows
    present = flags_of(device, rows, group.column)
    value, held = None, None
    if group.value is not None and group.value.null_count < len(group.value):
        value, held = slots_of(group.value).first(rows), present & flags_of(device, rows, group.value)
    if group.typed is None:
        return GroupBytes(device, rows, None, value, held, group.required)
    column = group.typed.column
    typed = present & flags_of(device, rows, column)
    made: Bytes
    alone = held
    if isinstance(group.typed, Leaf):
        made = leaf_of(column, typed)
    elif isinstance(group.typed, Elements):
        starts, stops = list_bounds(column)
        item = group.typed.item
        made = ArrayBytes(device, rows, typed, starts[:rows], stops[:rows], bytes_of(item, known), item.rows)
    else:
        made = _object(group.typed, rows, typed, known, value, held)
        alone = None if held is None else held & ~typed
    return GroupBytes(device, rows, made, value, alone, group.required)


def _object(
    typed: Fields, rows: int, flags: Any, known: Names, value: Slots | None, held: Any
) -> ObjectBytes:
    fields = [bytes_of(group, known) for group in typed.groups]
    residual = None if held is None else held & flags
    return ObjectBytes(typed.column.device, rows, flags, typed.names, fields, known, value, residual)
