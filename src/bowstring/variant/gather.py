"""Gathering: the values that paths lead to, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.marks import marked_field
from bowstring.columnar.nodes import storage_type
from bowstring.columnar.spans import buffer_or_none
from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch, launch_shared
from bowstring.kernels.variant.slots import NOTHING, VALUE, copy_bytes, copy_fixed, measure_bytes, write_views
from bowstring.variant.cast import (
    Bytes,
    Elements,
    Entries,
    Fields,
    FixedBytes,
    Nulls,
    Numbers,
    SparkDecimals,
    SparkNumbers,
    SparkText,
    Target,
    Value,
)
from bowstring.variant.nested import Source, below, check_size, copied, elements, ends_of, fields, keys, merge
from bowstring.variant.spark_casts import spark_decimals_at, spark_numbers_at, spark_strings_at
from bowstring.variant.status import Gathered, Status, holding, part_of, validity_of
from bowstring.variant.walk import ROWS_PER_CALL, Read

if TYPE_CHECKING:
    from bowstring.memory import Device
    from bowstring.variant.walk import Located

_ANY_WIDTH: Final = -1


def gather(source: Source, located: Located | Read, type_: pa.DataType, target: Target) -> Gathered:
    """Cast the located values; their statuses are updated in place."""
    if isinstance(located, Read) or isinstance(target, Value):
        source.parts.values.append(located.statuses)
    if isinstance(located, Read):  # numbers that are there already
        numbers, device = located.numbers, source.opened.column.device
        if pa.types.is_boolean(type_):
            numbers = bitmap.packed(numbers != np.int8(0))
        validity = None if located.complete else validity_of(located.statuses, device)
        node = (len(located.statuses), 0 if located.complete else -1)
        return Gathered(pa.field(source.name, type_), [node], [validity, buffer_or_none(numbers, device)])
    if isinstance(target, Value):
        return _values(source, located)
    metadata_ids = source.device.xp.empty(0, np.int32)
    if _needs_metadata(target):
        metadata_ids = source.dictionary.indices
    return gather_at(source, located, metadata_ids, pa.field(source.name, type_), target)


def _needs_metadata(target: Target) -> bool:
    """Return whether values inside others need their metadata; what is alone asks for them itself."""
    if isinstance(target, Elements):
        return bool(target.path) or isinstance(target.item, SparkText) or _needs_metadata(target.item)
    return isinstance(target, Value | Fields | Entries)


def gather_at(
    source: Source, located: Located, metadata_ids: Any, field: pa.Field, target: Target
) -> Gathered:
    """Return the values at some located, whose metadata `metadata_ids` name where they matter."""
    if isinstance(target, Elements):
        return _list(source, located, metadata_ids, field, target)
    if isinstance(target, Fields):
        return _struct(source, located, metadata_ids, field, target)
    if isinstance(target, Entries):
        return _map(source, located, metadata_ids, field, target)
    source.parts.values.append(located.statuses)
    if isinstance(target, Value):
        return _inner_values(source, located, metadata_ids, field)
    if isinstance(target, Nulls):
        # Nulls have no buffers: any other value is a mismatch.
        rows = len(located.statuses)
        slots, unused = (source.data, located.positions), source.device.xp.empty(rows, np.int64)
        launch(measure_bytes, rows, *slots, NOTHING, _ANY_WIDTH, located.statuses, unused)
        return Gathered(field, [(rows, rows)], [])
    device = source.device
    views = isinstance(target, Bytes | SparkText) and target.views
    if isinstance(target, SparkNumbers):
        arrays = [spark_numbers_at(source, located, target)]
    elif isinstance(target, SparkText):
        arrays = spark_strings_at(source, located, metadata_ids, target)
    elif isinstance(target, SparkDecimals):
        arrays = [spark_decimals_at(source, located, target)]
    elif isinstance(target, Numbers):
        arrays = [_numbers(source.data, located, target, device)]
    elif isinstance(target, FixedBytes):
        rows, width = len(located.statuses), target.width
        check_size(rows * width, source.limits, source.name)
        sizes, out = device.xp.empty(rows, np.int64), device.xp.zeros(rows * width, np.uint8)
        slots = source.data, located.positions
        launch(measure_bytes, rows, *slots, target.family, width, located.statuses, sizes)
        launch_shared(copy_fixed, rows, *slots, width, located.statuses, out)
        arrays = [out]
    else:
        arrays = _bytes(source, located, target.family, large=target.large)
    if views:
        arrays = _views(source, *arrays)
    buffers = [validity_of(located.statuses, device), *(buffer_or_none(each, device) for each in arrays)]
    return Gathered(field, [(len(located.statuses), -1)], buffers, (1,) if views else ())


def _numbers(data: Any, located: Located, target: Numbers, device: Device) -> Any:
    rows = len(located.statuses)
    out = device.xp.empty(rows * target.repeat, target.dtype)
    if target.blocks:
        block = ROWS_PER_CALL if device.is_host else 1
        what = *target.arguments, block, located.statuses, out
        launch(target.kernel, -(-rows // block), data, located.positions, *what)
    else:
        given = (
            device.xp.asarray(np.array(each, np.uint64)) if isinstance(each, tuple) else each
            for each in target.arguments
        )
        launch(target.kernel, rows, data, located.positions, *given, located.statuses, out)
    if target.first is not None:
        out = out[:: target.repeat].astype(target.first)
    return bitmap.packed(out != np.int8(0)) if target.bits else out


def _bytes(source: Source, located: Located, family: int, *, large: bool) -> list[Any]:
    """Return offsets and bytes: sizes, their sums, and a copy."""
    rows, xp = len(located.statuses), source.device.xp
    sizes = xp.empty(rows, np.int64)
    launch(measure_bytes, rows, source.data, located.positions, family, _ANY_WIDTH, located.statuses, sizes)
    offsets, total = ends_of(source, sizes, large=large)
    out = xp.empty(total, np.uint8)
    launch_shared(copy_bytes, rows, source.data, located.positions, family, located.statuses, offsets, out)
    return [offsets if large else offsets.astype(np.int32), out]


def _views(source: Source, offsets: Any, data: Any) -> list[Any]:
    """Return views of slots of bytes, and these."""
    rows = len(offsets) - 1
    views = source.device.xp.empty(4 * rows, np.uint32)
    launch(write_views, rows, offsets.astype(np.int64), data, views)
    return [views, data]


def _values(source: Source, located: Located) -> Gathered:
    """Return sub-values as a Variant column: their bytes are copied, the metadata are those of the source."""
    column, device = source.opened.column, source.device
    large = storage_type(column.child("value").type) == pa.large_binary()
    arrays = _bytes(source, located, int(VALUE), large=large)
    null = np.uint8(Status.VARIANT_NULL)  # a value here, of the one byte that was written for it
    located.statuses[located.statuses == null] = np.uint8(Status.OK)
    metadata = part_of(column.child("metadata"))
    value = Gathered(
        pa.field("value", pa.large_binary() if large else pa.binary()),
        [(len(column), 0)],
        [None, *(buffer_or_none(each, device) for each in arrays)],
    )
    field = marked_field(pa.field(source.name, pa.struct([metadata.field, value.field])))
    return holding(field, (len(column), -1), [validity_of(located.statuses, device)], [metadata, value])


def _inner_values(source: Source, located: Located, metadata_ids: Any, field: pa.Field) -> Gathered:
    """Return values inside others as Variants, whose metadata are a dictionary: they are in no order of rows."""
    device, xp = source.device, source.device.xp
    rows = len(located.statuses)
    arrays = _bytes(source, located, int(VALUE), large=True)
    null = np.uint8(Status.VARIANT_NULL)  # a value here, of the one byte that was written for it
    located.statuses[located.statuses == null] = np.uint8(Status.OK)
    distinct = source.metadata
    valid = located.statuses == np.uint8(Status.OK)
    indices = xp.where(valid, metadata_ids, np.int32(distinct.num_rows - 1)).astype(np.int32)
    type_ = pa.dictionary(pa.int32(), distinct.schema.field(0).type)
    storage = pa.struct([pa.field("metadata", type_, nullable=False), pa.field("value", pa.large_binary())])
    ids, *text = (buffer_or_none(each, device) for each in (indices, *arrays))
    buffers = [validity_of(located.statuses, device), None, ids, None, *text]
    nodes = [(rows, -1), (rows, 0), (rows, 0)]
    return Gathered(marked_field(field.with_type(storage)), nodes, buffers, dictionaries=(distinct,))


def _list(source: Source, located: Located, metadata_ids: Any, field: pa.Field, target: Elements) -> Gathered:
    device = source.device
    large = target.large or target.size is not None
    offsets, inside, groups = elements(source, located, metadata_ids, size=target.size, large=large)
    validity = validity_of(located.statuses, device)
    source.parts.holders.append(located.statuses.copy())
    if target.path:
        merge(located, offsets, inside)
        source.parts.holders.append(inside.statuses)
        inside = below(source, inside, groups, target.path)
    item = gather_at(source, inside, groups, field.type.value_field, target.item)
    merge(located, offsets, inside)
    stored = offsets if large else offsets.astype(np.int32)
    arrays = [] if target.size is not None else [stored]
    if target.views:
        arrays = [stored[:-1], stored[1:] - stored[:-1]]
    return holding(
        field.with_type(_list_type(field.type, item.field)),
        (len(located.statuses), -1),
        [validity, *(buffer_or_none(each, device) for each in arrays)],
        [item],
    )


def _list_type(type_: pa.DataType, item: pa.Field) -> pa.DataType:
    """Return a list of another item, which is as that of the type but where it has Variants."""
    if type_.id == pa.lib.Type_FIXED_SIZE_LIST:
        return pa.list_(item, type_.list_size)
    made = {
        pa.lib.Type_LIST: pa.list_,
        pa.lib.Type_LARGE_LIST: pa.large_list,
        pa.lib.Type_LIST_VIEW: pa.list_view,
        pa.lib.Type_LARGE_LIST_VIEW: pa.large_list_view,
    }
    return made[type_.id](item)


def _struct(source: Source, located: Located, metadata_ids: Any, field: pa.Field, target: Fields) -> Gathered:
    found = fields(source, located, metadata_ids, target.names)
    xp, validity = source.device.xp, validity_of(located.statuses, source.device)
    source.parts.holders.append(located.statuses.copy())
    children = []
    worst = xp.zeros(len(located.statuses), np.uint8)
    for index, (inside, inner) in enumerate(zip(found, target.targets, strict=True)):
        children.append(gather_at(source, inside, metadata_ids, field.type.field(index), inner))
        bad = xp.where(inside.statuses > np.uint8(Status.VARIANT_NULL), inside.statuses, np.uint8(Status.OK))
        worst = xp.maximum(worst, bad)
    located.statuses[...] = xp.where(located.statuses == np.uint8(Status.OK), worst, located.statuses)
    type_ = pa.struct([each.field for each in children])
    return holding(field.with_type(type_), (len(located.statuses), -1), [validity], children)


def _map(source: Source, located: Located, metadata_ids: Any, field: pa.Field, target: Entries) -> Gathered:
    device = source.device
    offsets, starts, stops, inside, groups = keys(source, located, metadata_ids)
    validity = validity_of(located.statuses, device)
    source.parts.holders.append(located.statuses.copy())
    large = target.key.large
    ends, names = copied(source, starts, stops, source.dictionary.data, large=large)
    item = gather_at(source, inside, groups, field.type.item_field, target.item)
    merge(located, offsets, inside)
    count = len(starts)
    stored = [ends if large else ends.astype(np.int32), names]
    key = Gathered(
        field.type.key_field, [(count, 0)], [None, *(buffer_or_none(each, device) for each in stored)]
    )
    entries = holding(
        pa.field("entries", pa.struct([key.field, item.field])), (count, 0), [None], [key, item]
    )
    return holding(
        field.with_type(pa.map_(key.field, item.field)),
        (len(located.statuses), -1),
        [validity, buffer_or_none(offsets.astype(np.int32), device)],
        [entries],
    )
