"""Which columns are Variant columns, their buffers as kernels take them, and columns from encoded rows.

Bowstring never registers ``arrow.parquet.variant`` with pyarrow: writing such a column to Parquet crashes pyarrow
24 to 26. The name travels in the metadata of the field; arrays of pyarrow's, which have no field, are marked as
:mod:`bowstring.columnar.marks` says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch, Column
from bowstring.columnar.layout import Layout
from bowstring.columnar.marks import NAME_KEY, VARIANT_NAMES, is_variant, marked_field
from bowstring.columnar.nodes import Kind, storage_type
from bowstring.columnar.parts import Dictionary, make_batch
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
from bowstring.memory import Device
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
            if metadata.shared and not _is_bounded(opened, starts, stops):
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
    if not _is_bounded(opened, starts, stops, following=True):
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


def check_overlap(opened: VariantColumn) -> None:
    """Check that the work on all distinct metadata is bounded by their bytes, for those that read them one by
    one.
    """
    metadata, following = opened.metadata, opened.indices is None
    check_order(metadata, opened.column.device, opened.column.name)
    count = opened.rows if following else len(metadata.starts)
    starts, stops = metadata.starts[:count], metadata.stops[:count]
    if not _is_bounded(opened, starts, stops, following=following):
        _distinct_views(opened, starts.astype(np.int64), stops.astype(np.int64))


def _is_bounded(opened: VariantColumn, starts: Any, stops: Any, *, following: bool = False) -> bool:
    """Return whether slots have few bytes; where they follow rows, those that differ from the row before."""
    if not opened.metadata.shared:
        return True
    if following:
        changed = (starts[1:] != starts[:-1]) | (stops[1:] != stops[:-1])
        heads = opened.column.device.xp.concatenate([opened.column.device.xp.ones(1, np.bool_), changed])
        starts, stops = starts[heads[: len(starts)]], stops[heads[: len(stops)]]
    return are_bounded(opened.column.device, starts, stops, len(opened.metadata.data))


def _distinct_views(opened: VariantColumn, starts: Any, stops: Any) -> tuple[Any, Any, Any]:
    """Return which of the distinct slots each is, and where these begin and end. Too much overlap is an error:
    the work on them would have no bound.
    """
    found = distinct_slots(opened.column.device, starts, stops, len(opened.metadata.data))
    if found is None:
        raise InvalidBody(
            "the metadata of a Variant column overlap",
            expected=f"views of at most {MOST_READ} times the bytes that there are",
            where=opened.column.name,
        )
    return found


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
        found = int(ends[-1])
        raise LimitExceeded("the keys of a Variant column", expected="at most 2 GiB", found=found, hint=hint)
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
    device, rows = metadata.device, len(indices)
    arrays = validity, None, indices, None, offsets.astype(np.int32), data
    return make_batch(
        Batch,
        Layout.of(pa.schema([variant_field(name)])),
        rows,
        np.array([(rows, 0 if validity is None else nulls), (rows, 0), (rows, 0)], np.int64),
        [None if each is None else buffer_or_none(each, device) for each in arrays],
        dictionaries={0: Dictionary(0, metadata)},
        device=device,
    )[0]
