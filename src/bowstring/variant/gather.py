"""Gathering: the values that paths lead to, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.marks import marked_field
from bowstring.columnar.nodes import storage_type
from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch, launch_shared
from bowstring.kernels.variant.slots import NOTHING, VALUE, copy_fixed, write_views
from bowstring.kernels.variant.spark.decimals import spark_decimals
from bowstring.kernels.variant.spark.numbers import spark_numbers
from bowstring.variant import nested
from bowstring.variant.cast import SPARK_TEXT, Bytes, Elements, Entries, Fields, Nulls, Numbers, Target, Value
from bowstring.variant.column import Gathered, binary_values, holding, with_metadata
from bowstring.variant.nested import Source
from bowstring.variant.spark_casts import read_texts, spark_strings_at
from bowstring.variant.status import Status, validity_of
from bowstring.variant.walk import ROWS_PER_CALL, Read

if TYPE_CHECKING:
    from bowstring.variant.walk import Located

_LISTS: Final = {
    pa.lib.Type_LIST: pa.list_,
    pa.lib.Type_LARGE_LIST: pa.large_list,
    pa.lib.Type_LIST_VIEW: pa.list_view,
    pa.lib.Type_LARGE_LIST_VIEW: pa.large_list_view,
}


def gather(source: Source, located: Located | Read, type_: pa.DataType, target: Target) -> Gathered:
    """Cast the located values; their statuses are updated in place."""
    if isinstance(located, Read) or isinstance(target, Value):
        source.parts.values.append(located.statuses)
    if isinstance(located, Read):  # numbers that are there already
        numbers = located.numbers
        if pa.types.is_boolean(type_):
            numbers = bitmap.packed(numbers != np.int8(0))
        validity = None if located.complete else validity_of(located.statuses)
        node = (len(located.statuses), 0 if located.complete else -1)
        return Gathered(pa.field(source.name, type_), [node], [validity, numbers])
    if isinstance(target, Value):
        return _values(source, located)
    metadata_ids = source.device.xp.empty(0, np.int32)
    if _needs_metadata(target):
        metadata_ids = source.dictionary.indices
    return gather_at(source, located, metadata_ids, pa.field(source.name, type_), target)


def _needs_metadata(target: Target) -> bool:
    """Return whether values inside others need their metadata; what is alone asks for them itself."""
    if isinstance(target, Elements):
        is_text = isinstance(target.item, Bytes) and target.item.family == SPARK_TEXT
        return bool(target.path) or is_text or _needs_metadata(target.item)
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
        rows = len(nested.sizes_at(source, located, int(NOTHING)))
        return Gathered(field, [(rows, rows)], [])
    rows = len(located.statuses)
    views = isinstance(target, Bytes) and target.views
    if isinstance(target, Numbers):
        arrays = [_numbers(source, located, target)]
    elif target.family == SPARK_TEXT:
        arrays = spark_strings_at(source, located, metadata_ids, large=target.large)
    elif target.width >= 0:
        nested.check_size(rows * target.width, source.limits, source.name)
        nested.sizes_at(source, located, target.family, target.width)
        arrays = [source.device.xp.zeros(rows * target.width, np.uint8)]
        slots = source.data, located.positions, target.width, located.statuses
        launch_shared(copy_fixed, rows, *slots, arrays[0])
    else:
        sizes = nested.sizes_at(source, located, target.family)
        offsets, data = nested.bytes_at(source, located, sizes, target.family, large=target.large)
        arrays = [offsets if target.large else offsets.astype(np.int32), data]
    if views:
        offsets, data = arrays
        arrays = [source.device.xp.empty(4 * rows, np.uint32), data]
        launch(write_views, rows, offsets.astype(np.int64), data, arrays[0])
    return Gathered(field, [(rows, -1)], [validity_of(located.statuses), *arrays], (1,) if views else ())


def _numbers(source: Source, located: Located, target: Numbers) -> Any:
    device, rows = source.device, len(located.statuses)
    out = device.xp.empty(rows * target.repeat, target.dtype)
    given = [
        device.xp.asarray(np.array(each, np.uint64)) if isinstance(each, tuple) else each
        for each in target.arguments
    ]
    items = rows
    if target.blocks:
        block = ROWS_PER_CALL if device.is_host else 1
        items, given = -(-rows // block), [*given, block]
    launch(target.kernel, items, source.data, located.positions, *given, located.statuses, out)
    if target.kernel in (spark_numbers, spark_decimals):
        read_texts(source, located, target, out)
    if target.kept is not None:
        out = out[:: target.repeat].astype(target.kept)
    return bitmap.packed(out != out.dtype.type(0)) if target.bits else out


def _variants(source: Source, located: Located, *, large: bool) -> tuple[Any, Any]:
    """Return offsets and bytes of values as they are: a Variant null is one, of one byte."""
    offsets, data = nested.bytes_at(
        source, located, nested.sizes_at(source, located), int(VALUE), large=large
    )
    located.statuses[located.statuses == np.uint8(Status.VARIANT_NULL)] = np.uint8(Status.OK)
    return offsets, data


def _values(source: Source, located: Located) -> Gathered:
    """Return sub-values as a Variant column: their bytes are copied, the metadata are those of the source."""
    column = source.opened.column
    large = storage_type(column.child("value").type) == pa.large_binary()
    values = binary_values(*_variants(source, located, large=large), large=large)
    field = pa.field(source.name, pa.null())
    return with_metadata(column, field, (len(column), -1), validity_of(located.statuses), [values])


def _inner_values(source: Source, located: Located, metadata_ids: Any, field: pa.Field) -> Gathered:
    """Return values inside others as Variants, whose metadata are a dictionary: they are in no order of rows."""
    rows, distinct = len(located.statuses), source.metadata
    arrays = _variants(source, located, large=True)
    valid = located.statuses == np.uint8(Status.OK)
    none = np.int32(distinct.num_rows - 1)
    indices = source.device.xp.where(valid, metadata_ids, none).astype(np.int32)
    type_ = pa.dictionary(pa.int32(), distinct.schema.field(0).type)
    storage = pa.struct([pa.field("metadata", type_, nullable=False), pa.field("value", pa.large_binary())])
    return Gathered(
        marked_field(field.with_type(storage)),
        [(rows, -1), (rows, 0), (rows, 0)],
        [validity_of(located.statuses), None, indices, None, *arrays],
        dictionaries=(distinct,),
    )


def _list(source: Source, located: Located, metadata_ids: Any, field: pa.Field, target: Elements) -> Gathered:
    large = target.large or target.size is not None
    offsets, inside, groups = nested.elements(source, located, metadata_ids, size=target.size, large=large)
    validity = validity_of(located.statuses)
    source.parts.holders.append(located.statuses.copy())
    if target.path:
        nested.merge(located, offsets, inside)
        source.parts.holders.append(inside.statuses)
        [inside] = nested.below(source, inside, groups, [target.path])
    item = gather_at(source, inside, groups, field.type.value_field, target.item)
    nested.merge(located, offsets, inside)
    stored = offsets if large else offsets.astype(np.int32)
    arrays = [] if target.size is not None else [stored]
    if target.views:
        arrays = [stored[:-1], stored[1:] - stored[:-1]]
    # The item is as that of the type but where it has Variants.
    fixed = target.size is not None
    type_ = pa.list_(item.field, target.size) if fixed else _LISTS[field.type.id](item.field)
    return holding(field.with_type(type_), (len(located.statuses), -1), [validity, *arrays], [item])


def _struct(source: Source, located: Located, metadata_ids: Any, field: pa.Field, target: Fields) -> Gathered:
    inner = nested.fields(source, located, metadata_ids, target.names)
    xp, validity = source.device.xp, validity_of(located.statuses)
    source.parts.holders.append(located.statuses.copy())
    children = []
    worst = xp.zeros(len(located.statuses), np.uint8)
    for index, (inside, below_it) in enumerate(zip(inner, target.targets, strict=True)):
        children.append(gather_at(source, inside, metadata_ids, field.type.field(index), below_it))
        bad = xp.where(inside.statuses > np.uint8(Status.VARIANT_NULL), inside.statuses, np.uint8(Status.OK))
        worst = xp.maximum(worst, bad)
    located.statuses[...] = xp.where(located.statuses == np.uint8(Status.OK), worst, located.statuses)
    type_ = pa.struct([each.field for each in children])
    return holding(field.with_type(type_), (len(located.statuses), -1), [validity], children)


def _map(source: Source, located: Located, metadata_ids: Any, field: pa.Field, target: Entries) -> Gathered:
    offsets, starts, stops, inside, groups = nested.keys(source, located, metadata_ids)
    validity = validity_of(located.statuses)
    source.parts.holders.append(located.statuses.copy())
    large, count = target.key.large, len(starts)
    ends, names = nested.copied(source, starts, stops, source.dictionary.data, large=large)
    item = gather_at(source, inside, groups, field.type.item_field, target.item)
    nested.merge(located, offsets, inside)
    ends = ends if large else ends.astype(np.int32)
    key = Gathered(field.type.key_field, [(count, 0)], [None, ends, names])
    entries = pa.field("entries", pa.struct([key.field, item.field]))
    return holding(
        field.with_type(pa.map_(key.field, item.field)),
        (len(located.statuses), -1),
        [validity, offsets.astype(np.int32)],
        [holding(entries, (count, 0), [None], [key, item])],
    )
