"""Columns as Variant values: sizes from the leaves up, then bytes from the roots down, a column at a time."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.nodes import storage_type
from bowstring.columnar.slots import Slots, slots_of
from bowstring.errors import Unsupported
from bowstring.kernels.launch import launch, launch_shared
from bowstring.kernels.variant import metadata, shredded_objects
from bowstring.kernels.variant import shredded as kernels
from bowstring.variant.shredded.layout import Group, flags_of, is_binary, is_text, list_bounds

if TYPE_CHECKING:
    from bowstring.columnar.batch import Column
    from bowstring.memory import Device
    from bowstring.variant.column import MetadataDictionary


_TRUE, _FALSE = 1 << 2, 2 << 2
_INT8, _INT16, _INT32, _INT64, _DOUBLE = 3, 4, 5, 6, 7
_DATE, _FLOAT, _TIME, _UUID = 11, 14, 17, 20
_DECIMAL: Final = {4: 8, 8: 9, 16: 10}
_TIMESTAMPS: Final = {("us", True): 12, ("us", False): 13, ("ns", True): 18, ("ns", False): 19}
_FACTORS: Final = {"s": 1_000_000, "ms": 1_000}
_DAY_MICROS: Final = 86_400_000_000
_DAY_MILLIS: Final = 86_400_000
_MOST_64: Final = (1 << 63) - 1
# What integers and floats become, and as what they are stored then.
_NUMBERS: Final = {
    pa.lib.Type_INT8: (_INT8, np.int8),
    pa.lib.Type_INT16: (_INT16, np.int16),
    pa.lib.Type_INT32: (_INT32, np.int32),
    pa.lib.Type_INT64: (_INT64, np.int64),
    pa.lib.Type_UINT8: (_INT16, np.int16),
    pa.lib.Type_UINT16: (_INT32, np.int32),
    pa.lib.Type_UINT32: (_INT64, np.int64),
    pa.lib.Type_HALF_FLOAT: (_FLOAT, np.float32),
    pa.lib.Type_FLOAT: (_FLOAT, np.float32),
    pa.lib.Type_DOUBLE: (_DOUBLE, np.float64),
    pa.lib.Type_DATE32: (_DATE, np.int32),
}
_HINTS: Final = {
    pa.lib.Type_DURATION: "Cast it to pa.int64(), the number of its units, first.",
    pa.lib.Type_INTERVAL_MONTH_DAY_NANO: "Give its months, days and nanoseconds as a struct of integers.",
}
_DECIMALS: Final = {pa.lib.Type_DECIMAL32: 4, pa.lib.Type_DECIMAL64: 8, pa.lib.Type_DECIMAL128: 16}


@dataclasses.dataclass(frozen=True, slots=True)
class _Fixed:
    """Values of a fixed width: the first `width` of every `stride` bytes, behind a header and a scale.

    A header or scale of -1 is not written. With `digits`, decimals must not have more.
    """

    data: Any
    stride: int
    width: int
    header: int
    scale: int = -1
    digits: int = 0
    wrong: Any | None = None


@dataclasses.dataclass(slots=True)
class LeafBytes:
    """A typed column as Variant values; `flags` say which slots have one."""

    device: Device
    rows: int
    flags: Any
    form: _Fixed | Slots | None
    text: int = 0
    sizes: Any = None

    def measure(self, _groups: Any) -> Any:
        xp, form, flags = self.device.xp, self.form, self.flags.view(np.uint8)
        self.sizes = xp.zeros(self.rows, np.int64)
        if isinstance(form, Slots):
            launch(
                kernels.measure_texts,
                self.rows,
                form.starts,
                form.stops,
                form.data,
                flags,
                self.text,
                self.sizes,
            )
        elif form is not None and form.digits:
            most = 10**form.digits - 1
            bound = xp.asarray(np.array([most & (1 << 64) - 1, most >> 64], np.uint64))
            launch(
                kernels.measure_decimals,
                self.rows,
                form.data,
                form.stride,
                form.width,
                bound,
                flags,
                self.sizes,
            )
        elif form is not None:
            size = np.int64(form.width + (form.header >= 0) + (form.scale >= 0))
            self.sizes = xp.where(self.flags, size, np.int64(0))
            if form.wrong is not None:
                self.sizes = xp.where(self.flags & form.wrong, kernels.OUT_OF_RANGE, self.sizes)
        return self.sizes

    def write(self, places: Any, out: Any) -> None:
        form = self.form
        if isinstance(form, Slots):
            slots = form.starts, form.stops, form.data
            launch_shared(kernels.write_texts, self.rows, *slots, self.text, self.sizes, places, out)
        elif form is not None:
            parts = form.data, form.stride, form.width, form.header, form.scale
            launch(kernels.write_fixed, self.rows, *parts, self.sizes, places, out)


def leaf_of(column: Column, flags: Any) -> LeafBytes:
    """Return a typed column as Variant values, of the slots that `flags` name."""
    rows, device = len(flags), column.device
    type_ = column.type
    if is_text(type_) or is_binary(type_):
        return LeafBytes(device, rows, flags, slots_of(column).first(rows), int(is_text(type_)))
    if type_.id == pa.lib.Type_NA:
        return LeafBytes(device, rows, device.xp.zeros(rows, np.bool_), None)
    with device.use():
        return LeafBytes(device, rows, flags, _fixed(column, rows, type_))


def _bytes(array: Any) -> Any:
    return array.reshape(-1).view(np.uint8)


def _fixed(column: Column, rows: int, type_: pa.DataType) -> _Fixed:
    xp, storage = column.device.xp, storage_type(type_)
    if type_.id in _DECIMALS and 0 <= type_.scale <= type_.precision:
        stride = _DECIMALS[type_.id]
        width = 4 if type_.precision <= 9 else 8 if type_.precision <= 18 else 16
        header = _DECIMAL[width] << 2
        return _Fixed(_bytes(column.raw_values[:rows]), stride, width, header, type_.scale, type_.precision)
    if type_ == pa.uuid() or (storage.id == pa.lib.Type_FIXED_SIZE_BINARY and storage.byte_width == 16):
        return _Fixed(_bytes(column.raw_values[:rows]), 16, 16, _UUID << 2)
    wrong: Any = None
    if type_.id in _NUMBERS:
        kind, dtype = _NUMBERS[type_.id]
        numbers = column.raw_values[:rows]
        numbers = numbers if numbers.dtype == dtype else numbers.astype(dtype)
    elif type_.id == pa.lib.Type_BOOL:
        headers = xp.where(column.raw_values[:rows], np.uint8(_TRUE), np.uint8(_FALSE)).astype(np.uint8)
        return _Fixed(headers, 1, 1, -1)
    elif type_.id == pa.lib.Type_UINT64:
        # As int64 where all of them fit, else as decimals without a fraction.
        kind, numbers = _INT64, column.raw_values[:rows]
        if rows and int(column.device.to_host(numbers.max(keepdims=True))[0]) > _MOST_64:
            wide = xp.zeros(2 * rows, np.uint64)
            wide[::2] = numbers
            return _Fixed(wide.view(np.uint8), 16, 16, _DECIMAL[16] << 2, 0, 38)
    elif type_.id == pa.lib.Type_TIMESTAMP:
        numbers, factor = column.raw_values[:rows], np.int64(_FACTORS.get(type_.unit, 1))
        kind = _TIMESTAMPS["ns" if type_.unit == "ns" else "us", bool(type_.tz)]
        if factor > 1:
            most = np.int64(_MOST_64) // factor
            numbers, wrong = numbers * factor, (numbers > most) | (numbers < -most)
    elif type_.id in (pa.lib.Type_TIME32, pa.lib.Type_TIME64):
        kind, numbers = _TIME, column.raw_values[:rows].astype(np.int64)
        if type_.unit == "ns":
            numbers, wrong = numbers // np.int64(1000), numbers % np.int64(1000) != np.int64(0)
        else:
            numbers = numbers * np.int64(_FACTORS.get(type_.unit, 1))
        outside = (numbers < np.int64(0)) | (numbers >= np.int64(_DAY_MICROS))
        wrong = outside if wrong is None else outside | wrong
    elif type_.id == pa.lib.Type_DATE64:
        millis = column.raw_values[:rows]
        days = millis // np.int64(_DAY_MILLIS)
        kind, numbers = _DATE, days.astype(np.int32)
        wrong = (days * np.int64(_DAY_MILLIS) != millis) | (numbers.astype(np.int64) != days)
    else:
        hint = _HINTS.get(type_.id)
        raise Unsupported(
            "Variant has no values of this type", found=str(type_), where=column.name, hint=hint
        )
    width = numbers.dtype.itemsize
    return _Fixed(_bytes(numbers), width, width, kind << 2, wrong=wrong)


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
        launch(metadata.count_names, len(counts), found.starts, found.stops, found.data, found.marks, counts)
        return xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(counts, dtype=np.int64)])

    @functools.cached_property
    def _ordered(self) -> tuple[Any, Any]:
        xp, found = self._device.xp, self.dictionary
        total = int(self._device.to_host(self.bases[-1:])[0])
        order, ranks = xp.zeros(total, np.int32), xp.zeros(total, np.int32)
        slots = found.starts, found.stops, found.data, found.marks
        launch(metadata.rank_names, len(found.marks), *slots, self.bases, order, ranks)
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
        launch(metadata.find_fields, len(ids), *slots, texts, ends, ids)
        return ids


@dataclasses.dataclass(slots=True)
class ArrayBytes:
    """Lists as Variant arrays."""

    device: Device
    rows: int
    flags: Any
    starts: Any
    stops: Any
    item: GroupBytes
    children: Any = None

    def measure(self, groups: Any) -> Any:
        xp = self.device.xp
        inside = xp.full(self.item.rows, -1, np.int32)
        launch(kernels.place_groups, self.rows, self.starts, self.stops, groups, inside)
        self.children = self.item.measure(inside)
        sizes = xp.zeros(self.rows, np.int64)
        bounds = self.starts, self.stops, self.flags.view(np.uint8)
        launch(kernels.measure_arrays, self.rows, *bounds, self.children, sizes)
        return sizes

    def write(self, places: Any, out: Any) -> None:
        inside = self.device.xp.full(self.item.rows, -1, np.int64)
        bounds = self.starts, self.stops, self.flags.view(np.uint8)
        launch(kernels.write_arrays, self.rows, *bounds, self.children, places, inside, out)
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
    item: GroupBytes
    _made: tuple[Any, ...] = ()

    def measure(self, _groups: Any) -> Any:
        xp, entries = self.device.xp, len(self.ids)
        children = self.item.measure(xp.zeros(entries, np.int32))
        words, sizes = xp.empty(entries, np.uint64), xp.zeros(self.rows, np.int64)
        lists = self.starts, self.stops, self.flags.view(np.uint8)
        launch(shredded_objects.measure_maps, self.rows, *lists, self.ids, children, words, sizes)
        self._made = children, words
        return sizes

    def write(self, places: Any, out: Any) -> None:
        inside = self.device.xp.full(len(self.ids), -1, np.int64)
        lists = self.starts, self.stops, self.flags.view(np.uint8)
        made, self._made = self._made, ()
        launch(shredded_objects.write_maps, self.rows, *lists, *made, places, inside, out)
        self.item.write(inside, out)


@dataclasses.dataclass(slots=True)
class UnionBytes:
    """Unions as Variant values: of each child the rows that have it, and its slots."""

    device: Device
    rows: int
    children: Sequence[tuple[GroupBytes, Any, Any]]

    def measure(self, groups: Any) -> Any:
        xp = self.device.xp
        sizes = xp.zeros(self.rows, np.int64)
        for child, chosen, slots in self.children:
            inside = xp.full(child.rows, -1, np.int32)
            inside[slots] = groups[chosen]
            sizes[chosen] = child.measure(inside)[slots]
        return sizes

    def write(self, places: Any, out: Any) -> None:
        for child, chosen, slots in self.children:
            inside = self.device.xp.full(child.rows, -1, np.int64)
            inside[slots] = places[chosen]
            child.write(inside, out)


@dataclasses.dataclass(slots=True)
class ObjectBytes:
    """Structs as Variant objects, with the fields of residual values where there are some.

    `value` are the residual values, of the slots that `residual` names.
    """

    device: Device
    rows: int
    flags: Any
    fields: dict[str, GroupBytes]  # in the order of the UTF-8 of their names
    known: Names
    value: Slots | None = None
    residual: Any = None
    _made: tuple[Any, ...] = ()

    def measure(self, groups: Any) -> Any:
        xp, rows, count = self.device.xp, self.rows, len(self.fields)
        children = xp.empty(count * rows, np.int64)
        for k, field in enumerate(self.fields.values()):
            children[k * rows : (k + 1) * rows] = field.measure(groups)
        starts, stops, data, flags = self._residual()
        ids = self.known.ids(list(self.fields))
        ranks = self.known.ranks if len(flags) else xp.empty(0, np.int32)
        typed = self.flags.view(np.uint8)
        counts = xp.empty(rows, np.int64)
        launch(shredded_objects.count_fields, rows, starts, stops, data, typed, flags, count, counts)
        firsts = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(counts, dtype=np.int64)])
        words = xp.empty(int(self.device.to_host(firsts[-1:])[0]), np.uint64)
        shapes, sizes = xp.zeros(rows, np.uint64), xp.zeros(rows, np.int64)
        launch(
            shredded_objects.measure_objects,
            rows,
            *(starts, stops, data, typed, flags, count, rows, groups, children),
            *(self.known.bases, ranks, ids, firsts, words, shapes, sizes),
        )
        self._made = groups, children, ids, firsts, words, shapes
        return sizes

    def write(self, places: Any, out: Any) -> None:
        rows, count = self.rows, len(self.fields)
        starts, stops, data, _ = self._residual()
        groups, children, ids, firsts, words, shapes = self._made
        self._made = ()
        inside = self.device.xp.full(count * rows, -1, np.int64)
        typed = self.flags.view(np.uint8)
        launch(
            shredded_objects.write_objects,
            rows,
            *(starts, stops, data, typed, count, rows, groups, children, ids),
            *(firsts, words, shapes, places, inside, out),
        )
        for k, field in enumerate(self.fields.values()):
            field.write(inside[k * rows : (k + 1) * rows], out)

    def _residual(self) -> tuple[Any, Any, Any, Any]:
        xp = self.device.xp
        if self.value is None:
            nothing, empty = xp.zeros(0, np.int64), xp.zeros(0, np.uint8)
            return nothing, nothing, empty, empty
        starts, stops = self.value.starts.astype(np.int64), self.value.stops.astype(np.int64)
        return starts, stops, self.value.data, self.residual.view(np.uint8)


AnyBytes = LeafBytes | ArrayBytes | MapBytes | UnionBytes | ObjectBytes
"""What becomes Variant values: `measure` returns sizes, 0 for what is missing, by the metadata index of each slot;
`write` writes to places in an output of zeros, -1 for what is not wanted.
"""


@dataclasses.dataclass(slots=True)
class GroupBytes:
    """A typed column, and values beside it, as Variant values."""

    device: Device
    rows: int
    typed: AnyBytes | None
    value: Slots | None
    alone: Any  # flags of the slots whose value is not beside an object
    required: bool  # what is missing is a Variant null
    sizes: Any = None

    def measure(self, groups: Any) -> Any:
        xp = self.device.xp
        sizes = xp.zeros(self.rows, np.int64) if self.typed is None else self.typed.measure(groups)
        if self.value is not None:
            slots = self.value.starts, self.value.stops, self.value.data, self.alone.view(np.uint8)
            sizes = sizes.copy()
            launch(kernels.measure_values, self.rows, *slots, sizes)
        if self.required:
            sizes = xp.where(sizes == np.int64(0), np.int64(1), sizes)
        self.sizes = sizes
        return sizes

    def write(self, places: Any, out: Any) -> None:
        if self.typed is not None:
            self.typed.write(places, out)
        if self.value is not None:
            slots = self.value.starts, self.value.stops, self.value.data, self.alone.view(np.uint8)
            launch_shared(kernels.copy_values, self.rows, *slots, self.sizes, places, out)


def bytes_of(group: Group, known: Names) -> GroupBytes:
    """Return what makes Variant values of a shredded group."""
    device, rows, column = group.column.device, group.rows, group.typed
    present = flags_of(device, rows, group.column)
    value, alone = None, None
    if group.value is not None and group.value.null_count < len(group.value):
        value, alone = slots_of(group.value).first(rows), present & flags_of(device, rows, group.value)
    typed: AnyBytes | None = None
    if column is not None:
        flags = present & flags_of(device, rows, column)
        if group.item is not None:
            starts, stops = (each[:rows] for each in list_bounds(column))
            typed = ArrayBytes(device, rows, flags, starts, stops, bytes_of(group.item, known))
        elif group.fields is not None:
            fields = {name: bytes_of(each, known) for name, each in group.fields.items()}
            residual = None if alone is None else alone & flags
            typed = ObjectBytes(device, rows, flags, fields, known, value, residual)
            alone = None if alone is None else alone & ~flags
        else:
            typed = leaf_of(column, flags)
    return GroupBytes(device, rows, typed, value, alone, group.required)
