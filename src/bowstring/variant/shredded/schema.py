"""Shredding schemas: the Arrow type of the values, as the type of a shredded column and back, and what two of them
have in common.

A schema is the type of the values: ``struct<a: int64, tags: list<string>>``. Where it says
:func:`bowstring.variant.type`, values have no typed column.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from bowstring.columnar.layout import Layout
from bowstring.columnar.marks import marked_field
from bowstring.columnar.nodes import storage_type
from bowstring.errors import Unsupported, UsageError
from bowstring.variant.column import VariantType
from bowstring.variant.shredded.layout import is_leaf

_LISTS: Final = (pa.lib.Type_LIST, pa.lib.Type_LARGE_LIST)
_EXACT: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
WIDENED: Final = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
_DIGITS: Final = (3, 5, 10, 19)
_MOST_DIGITS: Final = 38


def is_untyped(schema: pa.DataType) -> bool:
    """Return whether values of a schema have no typed column."""
    return isinstance(schema, VariantType)


def checked_schema(schema: Any, where: str) -> pa.DataType:
    """Return a schema with the storage types that this module uses; reject what the specification has no typed
    column for.
    """
    if not isinstance(schema, pa.DataType):
        raise UsageError(
            "no schema to shred by", expected='a pyarrow.DataType or "infer"', found=repr(schema)
        )
    checked = _checked(schema, where)
    Layout.of(pa.schema([pa.field("v", _group(checked))]))
    return checked


def _checked(schema: pa.DataType, where: str) -> pa.DataType:
    if isinstance(schema, VariantType):
        return schema
    if schema.id == pa.lib.Type_STRUCT:
        names = [each.name for each in schema]
        if not names or len(set(names)) < len(names):
            raise UsageError(
                "a struct to shred by needs fields, each name once", found=str(schema), where=where
            )
        return pa.struct(
            [pa.field(each.name, _checked(each.type, f"{where}.{each.name}")) for each in schema]
        )
    if schema.id in _LISTS:
        item = _checked(schema.value_type, f"{where}[*]")
        return pa.large_list(item) if schema.id == pa.lib.Type_LARGE_LIST else pa.list_(item)
    if schema.id == pa.lib.Type_FIXED_SIZE_BINARY and schema.byte_width == 16:
        return pa.uuid()
    if schema.id == pa.lib.Type_NA or not is_leaf(schema):
        raise Unsupported(
            "a Variant is not shredded as this type",
            expected="bool, int8 to int64, float, double, a decimal of at most 38 digits, date32, time64[us], "
            "timestamps in us or ns, string, binary, uuid, variant.type(), or lists and structs of these",
            found=str(schema),
            where=where,
        )
    return schema


def typed_type(schema: pa.DataType) -> pa.DataType:
    """Return the type of the ``typed_value`` of a schema."""
    if schema.id == pa.lib.Type_STRUCT:
        return pa.struct([pa.field(each.name, _group(each.type), nullable=False) for each in schema])
    if schema.id in _LISTS:
        element = pa.field("element", _group(schema.value_type), nullable=False)
        return pa.large_list(element) if schema.id == pa.lib.Type_LARGE_LIST else pa.list_(element)
    return schema


def _group(schema: pa.DataType) -> pa.DataType:
    value = pa.field("value", pa.binary())
    if is_untyped(schema):
        return pa.struct([value])
    return pa.struct([value, pa.field("typed_value", typed_type(schema))])


def shredded_field(field: pa.Field, schema: pa.DataType) -> pa.Field:
    """Return the field of a Variant column when it is shredded as a schema, its metadata as they are."""
    metadata = storage_type(field.type).field("metadata")
    children = [metadata, *_group(schema)]
    return marked_field(field.with_type(pa.struct(children)))


def schema_of_storage(storage: pa.DataType) -> pa.DataType:
    """Return the schema by which the struct of a Variant column is shredded."""
    position = storage.get_field_index("typed_value")
    if position < 0:
        return VariantType()
    typed = storage.field(position).type
    if typed.id == pa.lib.Type_STRUCT:
        return pa.struct([pa.field(each.name, schema_of_storage(each.type)) for each in typed])
    if typed.id in _LISTS:
        item = schema_of_storage(typed.value_type)
        return pa.large_list(item) if typed.id == pa.lib.Type_LARGE_LIST else pa.list_(item)
    if typed.id == pa.lib.Type_FIXED_SIZE_BINARY and typed.byte_width == 16:
        return pa.uuid()
    return WIDENED.get(typed, typed)


def union(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return a schema whose typed columns hold what those of two schemas do, or None. Structs have the fields
    of both; whole numbers and decimals the wider type; timestamps nanoseconds.
    """
    if one.equals(other) or is_untyped(other):
        return one
    if is_untyped(one):
        return other
    if one.id == other.id == pa.lib.Type_STRUCT:
        return _union_of_structs(one, other)
    if one.id in _LISTS and other.id in _LISTS:
        item = union(one.value_type, other.value_type)
        large = pa.lib.Type_LARGE_LIST in (one.id, other.id)
        return None if item is None else pa.large_list(item) if large else pa.list_(item)
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other) and (one.tz is None) == (other.tz is None):
        return pa.timestamp("ns" if "ns" in (one.unit, other.unit) else "us", one.tz)
    return _union_of_numbers(one, other)


def _union_of_structs(one: pa.StructType, other: pa.StructType) -> pa.DataType | None:
    fields: dict[str, pa.DataType] = {each.name: each.type for each in one}
    for each in other:
        found = union(fields[each.name], each.type) if each.name in fields else each.type
        if found is None:
            return None
        fields[each.name] = found
    return pa.struct(list(fields.items()))


def _union_of_numbers(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if one in _EXACT and other in _EXACT:
        return max(one, other, key=_EXACT.index)
    sizes = [_digits(type_) for type_ in (one, other)]
    if None in sizes:
        return None
    whole, scale = (max(each) for each in zip(*sizes, strict=True))
    return pa.decimal128(whole + scale, scale) if whole + scale <= _MOST_DIGITS else None


def _digits(type_: pa.DataType) -> tuple[int, int] | None:
    """Return the digits before and behind the point of an exact number."""
    if type_ in _EXACT:
        return _DIGITS[_EXACT.index(type_)], 0
    return (type_.precision - type_.scale, type_.scale) if pa.types.is_decimal(type_) else None
