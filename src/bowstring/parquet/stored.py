"""What pyarrow is given to write: Variants as groups of ``metadata`` and ``value``, INTERVAL as bytes."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from bowstring.columnar.batch import Batch
from bowstring.columnar.marks import (
    VariantStorage,
    is_variant,
    marked_field,
)
from bowstring.errors import Unsupported
from bowstring.geo.column import marked
from bowstring.parquet.annotations import annotation
from bowstring.parquet.columns import children_of, holds_variant, storage_of, with_child_arrays, with_inner
from bowstring.parquet.physical import stored_values
from bowstring.variant.shredded.layout import open_shredded
from bowstring.variant.shredded.schema import WIDENED

_EMPTY_METADATA: Final = b"\x01\x00\x00"
_NULL: Final = b"\x00"
_ORDER: Final = ("metadata", "value")


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema that is written for a schema."""
    return pa.schema([_stored_field(field) for field in schema], metadata=schema.metadata)


def stored_array(array: Any, field: pa.Field) -> Any:
    """Return an array as it is written."""
    array = storage_of(array)
    if array.type.equals(field.type) and not holds_variant(field):
        return array
    if is_variant(field):
        return _stored_variant(array, field)
    if isinstance(array.type, pa.BaseExtensionType) and not isinstance(field.type, pa.BaseExtensionType):
        array = array.storage
    if not len(array):
        return pa.nulls(0, field.type)
    if children_of(field.type) and array.type.id == field.type.id:
        return with_child_arrays(array, field.type, lambda inner, child, _: stored_array(inner, child))
    return stored_values(array, field.type)


def _stored_field(field: pa.Field) -> pa.Field:
    _check_width(field)
    if isinstance(field.type, VariantStorage):
        field = marked_field(field.with_type(field.type.storage_type))
    children = children_of(field.type)
    if is_variant(field) and pa.types.is_struct(field.type):
        by_name = {child.name: child for child in children}
        if "typed_value" in by_name:
            metadata = by_name["metadata"].with_type(_plain(by_name["metadata"].type)).with_nullable(False)
            value = pa.field("value", _plain(by_name["value"].type) if "value" in by_name else pa.binary())
            _check_shredded(field)
            return field.with_type(pa.struct([metadata, value, _widened(by_name["typed_value"])]))
        binary = [
            pa.field(name, _plain(by_name[name].type), nullable=False, metadata=by_name[name].metadata)
            for name in _ORDER
            if name in by_name
        ]
        return field.with_type(pa.struct(binary))
    if not children:
        return _stored_leaf(field)
    return with_inner(field, map(_stored_field, children))


def _check_shredded(field: pa.Field) -> None:
    """Raise an error for a shredded column that no reader takes from a file."""
    none = pa.RecordBatch.from_arrays([pa.nulls(0, field.type)], schema=pa.schema([field]))
    try:
        open_shredded(Batch.from_arrow(none)[0])
    except Unsupported as error:
        error.where = f"column {field.name}, {error.where}" if error.where else f"column {field.name}"
        raise


def _widened(field: pa.Field) -> pa.Field:
    """Return a typed column with the signed integers that files have in the place of unsigned ones."""
    if field.type in WIDENED:
        return field.with_type(WIDENED[field.type])
    return with_inner(field, map(_widened, children_of(field.type)))


def _check_width(field: pa.Field) -> None:
    """Raise an error for a type that pyarrow ends the process for, or has no words of its own for."""
    type_ = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    if (pa.types.is_fixed_size_list(type_) and not type_.list_size) or (
        pa.types.is_fixed_size_binary(type_) and not type_.byte_width
    ):
        raise Unsupported(
            "types of no width cannot be written as Parquet", found=str(type_), where=f"column {field.name}"
        )


def _stored_leaf(field: pa.Field) -> pa.Field:
    found = annotation(field)
    if found is None or found.stored.equals(field.type):
        return field
    if found.wkb is not None:  # an extension type, which pyarrow would annotate in its own way
        field = marked(field, found.wkb)
    return field.with_type(found.stored)


def _plain(type_: pa.DataType) -> pa.DataType:
    """Return a type of bytes that pyarrow can write; dictionaries of it are written as dictionaries."""
    if pa.types.is_run_end_encoded(type_):
        return _plain(type_.value_type)
    if pa.types.is_dictionary(type_):
        return pa.dictionary(pa.int32(), _plain(type_.value_type))
    return pa.large_binary() if pa.types.is_large_binary(type_) else pa.binary()


def _stored_variant(array: Any, field: pa.Field) -> Any:
    mask = array.is_null() if array.null_count else None
    inner = []
    for child in field.type:
        if array.type.get_field_index(child.name) < 0:  # a value that is null in every row
            inner.append(pa.nulls(len(array), child.type))
            continue
        found = array.field(child.name)
        if child.name == "metadata":
            found = _filled(_bytes(found, child.type), _EMPTY_METADATA)
        elif child.name == "value" and not child.nullable:
            # A value that is null is a Variant null.
            found = _filled(_bytes(found, child.type), _NULL)
        elif child.name == "value":
            found = _bytes(found, child.type)
        else:
            found = _signed(found, child.type)
        inner.append(found)
    return pa.StructArray.from_arrays(inner, fields=list(field.type), mask=mask)


def _bytes(array: Any, type_: pa.DataType) -> Any:
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    return array if array.type.equals(type_) else array.cast(type_)


def _signed(array: Any, type_: pa.DataType) -> Any:
    if array.type.equals(type_):
        return array
    if children_of(type_):
        return with_child_arrays(array, type_, lambda inner, child, _: _signed(inner, child.type))
    return array.cast(type_)


def _filled(array: Any, missing: bytes) -> Any:
    if not array.null_count:
        return array
    if not pa.types.is_dictionary(array.type):
        return pc.fill_null(array, missing)
    values = pa.concat_arrays([array.dictionary, pa.array([missing], array.type.value_type)])
    indices = pc.fill_null(array.indices, len(array.dictionary))
    return pa.DictionaryArray.from_arrays(indices, values)
