"""Which columns are Variant columns, their buffers as kernels take them, and columns from encoded rows.

Bowstring never registers ``arrow.parquet.variant`` with pyarrow: writing such a column to Parquet crashes pyarrow
24 to 26. The name travels in the metadata of the field; arrays of pyarrow's, which have no field, are marked as
:mod:`bowstring.columnar.marks` says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch, Column
from bowstring.columnar.layout import Layout
from bowstring.columnar.marks import NAME_KEY, VARIANT_NAMES, is_variant, marked_field
from bowstring.columnar.nodes import Kind, storage_type
from bowstring.columnar.parts import Dictionary, batch_parts, make_batch
from bowstring.columnar.slots import (
    MOST_READ,
    Slots,
    are_bounded,
    bitmap_of,
    check_order,
    distinct_slots,
    slots_of,
)
from bowstring.columnar.spans import buffer_or_none
from bowstring.errors import InvalidBody, LimitExceeded, UsageError
from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch
from bowstring.kernels.variant.metadata import inspect_metadata, mark_changes
from bowstring.memory import Buffer, Device
from bowstring.variant.codec.primitives import metadata_bytes

EXTENSION_NAME: Final = VARIANT_NAMES[0]
_BINARY: Final = (pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY)
_MOST_ROWS: Final = (1 << 31) - 1


class VariantType(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """The type of a Variant, where a type is asked for; never registered."""

    def __init__(self) -> None:
        storage = pa.struct(
            [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary())]
        )
        super().__init__(storage, EXTENSION_NAME)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _serialized: bytes) -> VariantType:
        return cls()


def type() -> VariantType:  # noqa: A001  bowstring.variant.type() is its name
    """Return the type of a Variant, for :func:`~bowstring.variant.get` and wherever else a type is asked for.

    Examples
    --------
    >>> type().extension_name, type().storage_type.names
    ('arrow.parquet.variant', ['metadata', 'value'])
    """
    return VariantType()


@dataclasses.dataclass(frozen=True, slots=True)
class VariantColumn:
    """A Variant column as kernels take it.

    Attributes
    ----------
    column
        The struct.
    rows
        How many it has.
    validity : array of uint8
        Its bitmap, empty where nothing is null.
    value
        The values, one for each row.
    metadata
        The distinct metadata; or one for each row, where `indices` is None.
    indices : array of int32, shape (rows,), or None
        Which of the metadata is that of each row; -1 for none.
    """

    column: Column
    rows: int
    validity: Any
    value: Slots
    metadata: Slots
    indices: Any | None


def opened_of(column: Column) -> VariantColumn:
    """Return the struct of a Variant, which is not shredded, as kernels take it."""
    rows = len(column)
    names = storage_type(column.type).names
    if sorted(names) != ["metadata", "value"]:
        raise UsageError(
            "no Variant has these children", expected="metadata, value", found=names, where=column.name
        )
    first, second = column.children
    metadata, value = (first, second) if names[0] == "metadata" else (second, first)
    _refuse_other(value, "value")
    blobs, indices = metadata_of(column, metadata)
    if len(value) < rows:
        raise InvalidBody("a child of a Variant column is too short", expected=rows, where=column.name)
    return VariantColumn(column, rows, bitmap_of(column), slots_of(value), blobs, indices)


def is_shredded(column: Column) -> bool:
    """Return whether a struct has a child ``typed_value``."""
    storage = storage_type(column.type)
    return bool(storage.id == pa.lib.Type_STRUCT and storage.get_field_index("typed_value") >= 0)


def metadata_of(column: Column, metadata: Column) -> tuple[Slots, Any | None]:
    """Return the distinct metadata of a Variant column, and for each row an index into them; None for the
    indices if each row has its own metadata.
    """
    rows = len(column)
    if rows > _MOST_ROWS:
        raise LimitExceeded("too many rows", expected=f"at most {_MOST_ROWS}", found=rows, where=column.name)
    if metadata.dictionary is not None:
        blobs = metadata.dictionary
        _refuse_other(blobs, "metadata")
        indices = _masked(metadata, metadata.raw_values, rows)
    elif metadata.type.id == pa.lib.Type_RUN_END_ENCODED:
        ends, blobs = metadata.children
        _refuse_other(blobs, "metadata")
        xp = column.device.xp
        positions = xp.arange(rows, dtype=ends.raw_values.dtype)
        indices = xp.searchsorted(ends.raw_values, positions, side="right").astype(np.int32)
    else:
        blobs, indices = metadata, None
        _refuse_other(blobs, "metadata")
        if len(blobs) < rows:
            raise InvalidBody("a child of a Variant column is too short", expected=rows, where=column.name)
    return slots_of(blobs), indices


def check_mark(column: Column, *, plain: bool) -> None:
    """Check that a column is a struct marked as a Variant, or any struct with `plain`."""
    name = (column.field.metadata or {}).get(NAME_KEY)
    is_struct = storage_type(column.type).id == pa.lib.Type_STRUCT
    if not is_struct or not (is_variant(column.field) or plain):
        raise UsageError(
            "the column is no Variant",
            expected=f"a struct marked {EXTENSION_NAME}",
            found=f"{column.type}, marked {name.decode(errors='replace') if name else 'nothing'}",
            where=column.name,
            hint="Give plain=True for a struct that is not marked." if is_struct else "",
        )


def _refuse_other(column: Column, name: str) -> None:
    storage = storage_type(column.type)
    if column.dictionary is not None or (storage.id not in _BINARY and storage.id != pa.lib.Type_BINARY_VIEW):
        raise UsageError(
            f"the {name} of a Variant is of another type",
            expected="binary, large_binary or binary_view"
            + (", also dictionary- or run-end encoded" if name == "metadata" else ""),
            found=str(column.type),
            where=column.name,
        )


def _masked(indexed: Column, indices: Any, rows: int) -> Any:
    """Return indices as int32, -1 where one is null or out of its range."""
    xp = indexed.device.xp
    narrow = indices[:rows]
    if narrow.dtype.itemsize > 4 or narrow.dtype == np.uint32:
        least, most = narrow.dtype.type(0), narrow.dtype.type(_MOST_ROWS)
        narrow = xp.where((narrow >= least) & (narrow < most), narrow, most)
    buffer = indexed._buffer(Kind.DATA)
    if narrow.dtype != np.int32 or (buffer is not None and buffer.address % narrow.dtype.itemsize):
        narrow = narrow.astype(np.int32)
    if indexed.validity is None:
        return narrow
    valid = bitmap.expanded(indexed.validity, 0, rows)
    return xp.where(valid, narrow, np.int32(-1)).astype(np.int32)


@dataclasses.dataclass(frozen=True, slots=True)
class MetadataDictionary:
    """The distinct metadata of a column."""

    indices: Any  # int32 for each row; a row with an index out of range is malformed
    starts: Any  # int64
    stops: Any
    data: Any
    marks: Any  # uint8 for each metadata, as inspect_metadata writes them


def dictionary_of(opened: VariantColumn, *, full: bool = False) -> MetadataDictionary:
    """Return the distinct metadata of a column, inspected; with `full`, their text too. If each row has its own
    metadata, runs of equal ones become one.
    """
    metadata, xp = opened.metadata, opened.column.device.xp
    with opened.column.device.use():
        check_order(metadata, opened.column.device, opened.column.name)
        if opened.indices is None:
            indices, starts, stops = _distinct(opened)
        else:
            indices = opened.indices
            starts, stops = metadata.starts.astype(np.int64), metadata.stops.astype(np.int64)
            if metadata.shared and not are_bounded(opened.column.device, starts, stops, len(metadata.data)):
                numbers, starts, stops = _distinct_views(opened, starts, stops)
                known = (indices >= np.int32(0)) & (indices < np.int32(len(numbers)))
                indices = xp.where(known, numbers[xp.where(known, indices, np.int32(0))], np.int32(-1))
        marks = xp.empty(len(starts), np.uint8)
        launch(inspect_metadata, len(marks), starts, stops, metadata.data, int(full), marks)
        return MetadataDictionary(indices, starts, stops, metadata.data, marks)


def _distinct(opened: VariantColumn) -> tuple[Any, Any, Any]:
    """Return which metadata is that of each row, and where the distinct ones begin and end."""
    metadata, xp, rows = opened.metadata, opened.column.device.xp, opened.rows
    starts, stops = metadata.starts[:rows], metadata.stops[:rows]
    is_bounded = True
    if metadata.shared:
        # Those that are as that of the row before are read once.
        differ = (starts[1:] != starts[:-1]) | (stops[1:] != stops[:-1])
        heads = xp.concatenate([xp.ones(min(rows, 1), np.bool_), differ])
        is_bounded = are_bounded(opened.column.device, starts[heads], stops[heads], len(metadata.data))
    if not is_bounded:
        indices, starts, stops = _distinct_views(opened, starts, stops)
    else:
        changed = xp.empty(rows, np.uint8)
        launch(mark_changes, rows, starts, stops, metadata.data, changed)
        indices = xp.cumsum(changed, dtype=np.int32) - np.int32(1)
        heads = xp.flatnonzero(changed)
        starts, stops = starts[heads].astype(np.int64), stops[heads].astype(np.int64)
    if len(metadata.validity):
        valid = bitmap.expanded(metadata.validity, 0, rows)
        indices = xp.where(valid, indices, np.int32(-1)).astype(np.int32)
    return indices, starts, stops


def _distinct_views(opened: VariantColumn, starts: Any, stops: Any) -> tuple[Any, Any, Any]:
    """Return which of the distinct slots each is, and where these begin and end. Too much overlap is an error:
    the work on them would have no bound.
    """
    distinct = distinct_slots(opened.column.device, starts, stops, len(opened.metadata.data))
    if distinct is None:
        raise InvalidBody(
            "the metadata of a Variant column overlap",
            expected=f"views of at most {MOST_READ} times the bytes that there are",
            where=opened.column.name,
        )
    return distinct


BLOCK_ROWS: Final = 65_536
"""Rows that share one dictionary of names, counted from the first row: the same in every writer."""

_MOST_METADATA: Final = (1 << 31) - 1

# One type, whatever the number of blocks, so that the columns of a stream have one schema.
_STORAGE: Final = (
    pa.field("metadata", pa.dictionary(pa.int32(), pa.binary()), nullable=False),
    pa.field("value", pa.binary(), nullable=False),
)


def variant_field(name: str) -> pa.Field:
    """Return the field of the Variant columns that Bowstring writes."""
    return marked_field(pa.field(name, pa.struct(_STORAGE)))


def metadata_values(metadata: Collection[bytes], rows: int, device: Device) -> Batch:
    """Return distinct metadata as the values of a dictionary: one at least, for rows that are all null."""
    blobs = list(metadata) if metadata or not rows else [metadata_bytes(())]
    ends = np.cumsum([0, *map(len, blobs)])
    if ends[-1] > _MOST_METADATA:
        hint = "Make several columns of fewer rows."
        nbytes = int(ends[-1])
        raise LimitExceeded("the keys of a Variant column", expected="at most 2 GiB", found=nbytes, hint=hint)
    data: Any = np.frombuffer(b"".join(blobs), np.uint8)
    offsets = device.from_host(ends.astype(np.int32))
    return values_batch(pa.binary(), offsets, device.from_host(data), device)


def values_batch(type_: pa.DataType, offsets: Any, data: Any, device: Device) -> Batch:
    """Return slots of text or binary as the values of a dictionary."""
    rows, layout = len(offsets) - 1, Layout.of(pa.schema([pa.field("values", type_)]))
    buffers = [None, *(buffer_or_none(each, device) for each in (offsets, data))]
    return make_batch(Batch, layout, rows, np.array([(rows, 0)], np.int64), buffers, device=device)


def variant_of(
    name: str, validity: Any, indices: Any, metadata: Batch, offsets: Any, data: Any, *, nulls: int = -1
) -> Column:
    """Return values as a Variant column: `indices` say which of the metadata each row has."""
    rows = len(indices)
    nodes = [(rows, 0 if validity is None else nulls), (rows, 0), (rows, 0)]
    arrays = [validity, None, indices, None, offsets.astype(np.int32), data]
    gathered = Gathered(variant_field(name), nodes, arrays, dictionaries=(metadata,))
    return batch_of([gathered], metadata[0], rows)[0]


@dataclasses.dataclass(frozen=True, slots=True)
class Gathered:
    """One column, in the parts that a batch is put together from; arrays become buffers then.

    `dictionaries` has, in pre-order, the id of one of the source's, or the values of a new one.
    """

    field: pa.Field
    nodes: list[tuple[int, int]]
    arrays: list[Any]
    variadic_counts: tuple[int, ...] = ()
    dictionaries: tuple[int | Batch, ...] = ()


def holding(
    field: pa.Field, node: tuple[int, int], arrays: Sequence[Any], children: Sequence[Gathered]
) -> Gathered:
    """Return a column that holds others, in pre-order."""
    nodes, inside = [node], [*arrays]
    counts: list[int] = []
    dictionaries: list[int | Batch] = []
    for child in children:
        nodes += child.nodes
        inside += child.arrays
        counts += child.variadic_counts
        dictionaries += child.dictionaries
    return Gathered(field, nodes, inside, tuple(counts), tuple(dictionaries))


def part_of(column: Column) -> Gathered:
    """Return a column, or a child of one, in its parts as they are; its dictionaries are those of its batch."""
    first, end = column._index, column._node.end
    layout, nodes, buffers, counts = batch_parts(column.batch)
    bounds = layout.first_buffers(counts)
    counted = zip(layout.variadic_nodes, counts, strict=True)
    return Gathered(
        column.field,
        list(map(tuple, nodes[first:end].tolist())),
        list(buffers[int(bounds[first]) : int(bounds[end])]),
        tuple(count for node, count in counted if first <= node < end),
        layout.alone(first, column.field).dictionary_ids,
    )


def binary_values(offsets: Any, data: Any, *, large: bool) -> Gathered:
    """Return bytes as the child ``value`` of a Variant column."""
    field = pa.field("value", pa.large_binary() if large else pa.binary())
    ends = offsets if large else offsets.astype(np.int32)
    return Gathered(field, [(len(offsets) - 1, 0)], [None, ends, data])


def with_metadata(
    column: Column, field: pa.Field, node: tuple[int, int], validity: Any, parts: Sequence[Gathered]
) -> Gathered:
    """Return a Variant column of the metadata of another, and of children beside them."""
    children = [part_of(column.child("metadata")), *parts]
    field = marked_field(field.with_type(pa.struct([each.field for each in children])))
    return holding(field, node, [validity], children)


def batch_of(columns: Sequence[Gathered], beside: Column, rows: int | None = None) -> Batch:
    """Put columns together, beside the column that they were gathered from."""
    whole = holding(pa.field("", pa.null()), (0, 0), (), columns)
    source, device = beside.batch.dictionaries, beside.device
    known: dict[int, Dictionary] = {}
    new: dict[int, Dictionary] = {}
    ids: list[int] = []
    for each in whole.dictionaries:
        if isinstance(each, int):
            dictionary = source[each]
        else:
            number = max(source, default=-1) + 1 + len(new)
            dictionary = new.setdefault(id(each), Dictionary(number, each))
        ids.append(each if isinstance(each, int) else dictionary.id)
        known[ids[-1]] = dictionary
    buffers: list[Buffer | None] = []
    for array in whole.arrays:
        ready = array is None or isinstance(array, Buffer)
        buffers.append(array if ready else buffer_or_none(array, device))
    layout = Layout.of(pa.schema(list(map(attrgetter("field"), columns))), ids)
    rows = len(beside) if rows is None else rows
    nodes = np.array(whole.nodes[1:], np.int64).reshape(-1, 2)
    return make_batch(Batch, layout, rows, nodes, buffers, whole.variadic_counts, known, device=device)


def column_of(beside: Column, field: pa.Field, *arrays: Any) -> Column:
    """Return arrays as a column of a type that holds no others, beside another column."""
    return batch_of([Gathered(field, [(len(beside), -1)], list(arrays))], beside)[0]
