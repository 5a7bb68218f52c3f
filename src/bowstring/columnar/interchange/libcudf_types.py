"""Batches of a device in the types that libcudf imports: the rest is decoded there, or refused by column.

The table is that of ``from_arrow_device`` of libcudf 26.10. Dictionaries are decoded too: cuDF has no dtype for
those of libcudf, which drops the nulls among their values.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from bowstring.columnar.column import ColumnData
from bowstring.columnar.layout import Layout
from bowstring.columnar.nodes import Kind, storage_type
from bowstring.columnar.parts import AnyBatch, batch_parts, make_batch
from bowstring.columnar.spans import buffer_or_none
from bowstring.errors import Unsupported
from bowstring.kernels import bitmap
from bowstring.memory import Buffer
from bowstring.memory.arrays import last_of

_MOST: Final = (1 << 31) - 2  # a cudf::size_type counts rows, and offsets are one more
_INLINE: Final = 12  # bytes that a view holds itself
_VIEW: Final = 16
_DECIMAL128: Final = 16
_KEPT: Final = frozenset(
    getattr(pa.lib, f"Type_{name}")
    for name in (
        *("NA", "BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
        *("FLOAT", "DOUBLE", "DATE32", "TIMESTAMP", "DURATION", "DECIMAL32", "DECIMAL64", "DECIMAL128"),
        *("STRING", "LARGE_STRING", "STRING_VIEW", "LIST", "STRUCT"),
    )
)
_TEXT: Final = frozenset((pa.lib.Type_STRING, pa.lib.Type_LARGE_STRING))


class _Decoded(NamedTuple):
    """A column as libcudf takes it: its type, and nodes, buffers and variadic counts as a batch has them."""

    type: pa.DataType
    nodes: list[tuple[int, int]]
    buffers: list[Buffer | None]
    counts: list[int]


def in_types_of_libcudf(batch: AnyBatch) -> AnyBatch:
    """Return a batch of a device in types that libcudf imports; the batch itself where it has no others."""
    own = [ColumnData(batch, at) for at in range(len(batch.schema))]
    for column in own:
        _check(column, column.name)
    nodes = batch.layout.nodes
    if all(storage_type(node.type).id in _KEPT and node.dictionary_id is None for node in nodes):
        return batch
    with batch.device.use():
        columns = [_decoded(column, column.name) for column in own]
    fields = [field.with_type(each.type) for field, each in zip(batch.schema, columns, strict=True)]
    result = make_batch(
        type(batch),
        Layout.of(pa.schema(fields)),
        batch.num_rows,
        np.array([node for each in columns for node in each.nodes], np.int64).reshape(-1, 2),
        [buffer for each in columns for buffer in each.buffers],
        [count for each in columns for count in each.counts],
        device=batch.device,
    )
    for at, name in enumerate(result.schema.names):
        _check(ColumnData(result, at), name)
    return result


def _check(column: ColumnData[Any], where: str) -> None:
    """Refuse what libcudf would count wrongly, and count nulls that are not counted yet, as it takes no -1."""
    if len(column) > _MOST:
        raise Unsupported(
            "libcudf cannot hold so many rows in a column",
            expected=f"at most {_MOST}",
            found=len(column),
            where=f"column {where!r}",
            hint="slice() the batch.",
        )
    if not pa.types.is_null(column.type):
        _ = column.null_count
    for child in column.children:
        _check(child, where)


def _decoded(column: ColumnData[Any], where: str) -> _Decoded:
    type_, device = storage_type(column.type), column.device
    types, id_, rows = pa.types, type_.id, len(column)
    if column.dictionary is not None:
        return _taken(column.dictionary, column.raw_values.astype(np.int64), _flags(column), where)
    if types.is_run_end_encoded(type_):
        ends, values = column.children
        codes = device.xp.searchsorted(ends.raw_values.astype(np.int64), device.xp.arange(rows), side="right")
        return _taken(values, codes, None, where)
    own = _own_buffers(column)
    node = rows, rows if types.is_null(type_) else column.null_count
    if types.is_float16(type_) or types.is_date64(type_):
        type_, values = _plain(column)
        return _Decoded(type_, [node], [own[0], buffer_or_none(values, device)], [])
    if types.is_map(type_) or types.is_list(type_):
        offsets = column.offsets
    elif types.is_large_list(type_) or types.is_fixed_size_list(type_):
        if types.is_large_list(type_):
            offsets = column.offsets
            last = last_of(offsets) if len(offsets) else 0
        else:
            last = rows * type_.list_size
            offsets = device.xp.arange(rows + 1) * type_.list_size
        if last > _MOST:
            _refuse(column, where, found=f"{type_} of {last} elements")
        offsets = offsets.astype(np.int32)
    elif id_ not in _KEPT:
        _refuse(column, where)
    children = [_decoded(child, where) for child in column.children]
    if types.is_struct(type_):
        fields = [field.with_type(each.type) for field, each in zip(type_, children, strict=True)]
        type_ = pa.struct(fields)
    elif children:
        type_ = pa.list_(type_.field(0).with_type(children[0].type))
        own = [own[0], buffer_or_none(offsets, device)]
    parent = _Decoded(type_, [node], own, [len(own) - 2] if types.is_string_view(type_) else [])
    for child in children:
        parent.nodes.extend(child.nodes)
        parent.buffers.extend(child.buffers)
        parent.counts.extend(child.counts)
    return parent


def _refuse(column: ColumnData[Any], where: str, found: str | None = None) -> NoReturn:
    raise Unsupported(
        "libcudf has no type for a column",
        found=found or str(column.type),
        where=f"column {where!r}",
        hint="select() leaves columns out.",
    )


def _own_buffers(column: ColumnData[Any]) -> list[Buffer | None]:
    batch, index = column.batch, column._index
    first = batch.layout.first_buffers(batch_parts(batch).variadic_counts)
    return batch_parts(batch).spans[int(first[index]) : int(first[index + 1])]


def _plain(column: ColumnData[Any]) -> tuple[pa.DataType, Any]:
    """Return the type that libcudf has for numbers and times, and the values as that."""
    type_ = storage_type(column.type)
    if pa.types.is_float16(type_):
        return pa.float32(), column.raw_values.astype(np.float32)
    return pa.timestamp("ms") if pa.types.is_date64(type_) else type_, column.raw_values


def _flags(column: ColumnData[Any]) -> Any | None:
    """Return which rows are valid, as an array of bool; ``None`` where all are."""
    return None if column.validity is None else bitmap.expanded(column.validity, 0, len(column))


def _taken(values: ColumnData[Any], codes: Any, flags: Any | None, where: str) -> _Decoded:
    """Return the values that codes stand for. Codes of nulls may be any; no code leads outside."""
    device, xp, rows = values.device, values.device.xp, len(codes)
    if flags is not None:
        codes = xp.where(flags, codes, 0)
    codes = xp.maximum(xp.minimum(codes, max(len(values) - 1, 0)), 0)
    if not len(values):
        flags = xp.zeros(rows, np.bool_)
    else:
        own = _flags(values)
        own = None if own is None else own[codes]
        flags = own if flags is None else flags if own is None else flags & own
    type_ = storage_type(values.type)
    if values.dictionary is not None:
        inner = _picked(values.raw_values.astype(np.int64), codes, xp)
        return _taken(values.dictionary, inner, flags, where)
    if pa.types.is_run_end_encoded(type_):
        ends, inside = values.children
        return _taken(
            inside, xp.searchsorted(ends.raw_values.astype(np.int64), codes, side="right"), flags, where
        )
    nulls = 0
    validity = None
    if flags is not None:
        nulls = rows - last_of(flags.sum(dtype=np.int64).reshape(1))
        validity = buffer_or_none(bitmap.packed(flags), device)
    node = (rows, nulls)
    if type_.id in _TEXT or pa.types.is_string_view(type_):
        views, rest = _views(values, where)
        taken = _picked(views, codes, xp)
        buffers = [validity, buffer_or_none(taken, device), *rest]
        return _Decoded(pa.string_view(), [node], buffers, [len(rest)])
    is_plain = type_.id in _KEPT and not (type_.num_fields or pa.types.is_null(type_))
    if not (is_plain or pa.types.is_float16(type_) or pa.types.is_date64(type_)):
        _refuse(values, where, found=f"a dictionary, or runs, of {type_}")
    type_, array = _plain(values)
    taken = _picked(array, codes, xp)
    if pa.types.is_boolean(type_):
        taken = bitmap.packed(taken)
    return _Decoded(type_, [node], [validity, buffer_or_none(taken, device)], [])


def _picked(array: Any, codes: Any, xp: Any) -> Any:
    """Return rows of an array by number; zeros where it has none."""
    if not len(array):
        return xp.zeros((len(codes), *array.shape[1:]), array.dtype)
    return array[codes]


def _views(values: ColumnData[Any], where: str) -> tuple[Any, list[Buffer | None]]:
    """Return the views of text, shape (rows, 16), and the buffers that they point into: no text is copied."""
    xp, rows = values.device.xp, len(values)
    if pa.types.is_string_view(storage_type(values.type)):
        views, *rest = _own_buffers(values)[1:]
        raw = xp.zeros(0, np.uint8) if views is None else views.array()[: rows * _VIEW]
        return raw.reshape(rows, _VIEW), rest
    if not rows:
        return xp.zeros((0, _VIEW), np.uint8), []
    offsets, data = values.offsets.astype(np.int64), values.raw_values
    if last_of(offsets) > _MOST:
        _refuse(values, where, found=f"a dictionary of {values.type} of more than {_MOST} bytes")
    starts, sizes = offsets[:-1], offsets[1:] - offsets[:-1]
    flags = _flags(values)
    if flags is not None:
        sizes = xp.where(flags, sizes, 0)
    column = xp.arange(_INLINE)
    at = xp.minimum(starts.reshape(-1, 1) + column, max(len(data) - 1, 0))
    head = data[at] if len(data) else xp.zeros((rows, _INLINE), np.uint8)
    head = xp.where(column < sizes.reshape(-1, 1), head, 0).astype(np.uint8)
    long = sizes.reshape(-1, 1) > _INLINE
    place = xp.stack([xp.zeros(rows, np.int32), starts.astype(np.int32)], axis=1).view(np.uint8)
    tail = xp.where(long, place, head[:, 4:])
    prefix = sizes.astype(np.int32).reshape(-1, 1).view(np.uint8)
    buffers = [values._buffer(Kind.BYTES)] if len(data) else []
    return xp.ascontiguousarray(xp.concatenate([prefix, head[:, :4], tail], axis=1)), list(buffers)
