"""Shredding of batches: on the way into a file, by given or inferred schemas; and out of files that are shredded in
different ways, by one schema.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bowstring import variant
from bowstring.columnar.marks import is_variant
from bowstring.columnar.nodes import storage_type
from bowstring.errors import UnknownColumn, UsageError
from bowstring.parquet.columns import children_of, holds_variant, storage_of, with_child_arrays, with_inner
from bowstring.variant.column import VariantType
from bowstring.variant.shredded.schema import (
    MOST_COLUMNS,
    checked_schema,
    is_untyped,
    schema_of_storage,
    shredded_field,
    union,
)
from bowstring.variant.shredded.shred import inferred_schema

if TYPE_CHECKING:
    from bowstring.columnar.batch import Batch

# A schema is inferred from the batches that come first, as many as have these.
_FIRST_ROWS: Final = 65_536
_FIRST_BYTES: Final = 64 << 20


def shredded_batches(
    schema: pa.Schema, batches: Iterator[Batch], shred: Any
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of shredded batches, and these one by one."""
    wanted = _wanted(schema, shred)
    is_inferred = any(isinstance(each, int) for each in wanted.values())
    first: list[Batch] = []
    for batch in batches if is_inferred else ():
        first.append(batch)
        rows, size = sum(each.num_rows for each in first), sum(each.nbytes for each in first)
        if rows >= _FIRST_ROWS or size >= _FIRST_BYTES:
            break
    types = {
        position: _inferred(first, position, each) if isinstance(each, int) else each
        for position, each in wanted.items()
    }
    types = {position: type_ for position, type_ in types.items() if not is_untyped(type_)}
    fields = [
        shredded_field(field, types[position]) if position in types else field
        for position, field in enumerate(schema)
    ]
    schema = pa.schema(fields, metadata=schema.metadata)
    return schema, (_shredded(batch, schema, types) for batch in itertools.chain(first, batches))


def is_shredded_field(field: pa.Field) -> bool:
    """Return whether a field is a shredded Variant."""
    storage = storage_type(field.type)
    return bool(
        is_variant(field) and pa.types.is_struct(storage) and storage.get_field_index("typed_value") >= 0
    )


def _wanted(schema: pa.Schema, shred: Any) -> dict[int, Any]:
    variants = [position for position, field in enumerate(schema) if is_variant(field)]
    if not isinstance(shred, Mapping):
        return dict.fromkeys(variants, _form(shred, "shred"))
    wanted: dict[int, Any] = {}
    for name, each in shred.items():
        places = [position for position in variants if schema.field(position).name == name]
        if len(places) != 1:
            names = [schema.field(position).name for position in variants]
            raise UnknownColumn("no such Variant column", found=repr(name), expected=f"one of {names}"[:200])
        wanted[places[0]] = _form(each, f"shred[{name!r}]")
    return wanted


def _form(each: Any, where: str) -> Any:
    """Return the schema of a column, or how many columns are inferred."""
    if each == "infer":
        return MOST_COLUMNS
    if isinstance(each, int) and not isinstance(each, bool) and each > 0:
        return each
    if not isinstance(each, pa.DataType):
        raise UsageError(
            "no way to shred a column",
            expected='a pyarrow.DataType, "infer", or the most columns that are inferred',
            found=repr(each)[:200],
            where=where,
        )
    return checked_schema(each, where)


def _inferred(first: list[Batch], position: int, most: int) -> pa.DataType:
    columns = [variant.unshred(batch[position], plain=True) for batch in first if batch.num_rows]
    if not columns:
        return variant.type()
    arrays = [storage_of(column.to_arrow()) for column in columns]
    return inferred_schema(pa.concat_arrays(arrays) if len(arrays) > 1 else columns[0], most)


def _shredded(batch: Batch, schema: pa.Schema, types: Mapping[int, pa.DataType]) -> pa.RecordBatch:
    arrow = batch.to_arrow()
    arrays = [storage_of(array) for array in arrow.columns]
    for position, type_ in types.items():
        arrays[position] = storage_of(variant.shred(batch[position], type_, plain=True).to_arrow())
    return pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else arrow


def alike(one: pa.Schema, other: pa.Schema) -> bool:
    """Return whether schemas are the same, but for how Variant columns are shredded."""
    bare = [pa.schema([_bare(field) for field in schema]) for schema in (one, other)]
    return bool(bare[0].equals(bare[1]))


def _bare(field: pa.Field) -> pa.Field:
    if is_variant(field):
        return pa.field(field.name, VariantType())
    bare = field.remove_metadata()
    return with_inner(bare, map(_bare, children_of(field.type))) if holds_variant(field) else bare


def union_schema(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return a schema for batches of files that are alike.

    A Variant column has the shredded columns of all files, and is not shredded where these do not fit each other.
    """
    fields = [_united([schema.field(position) for schema in schemas]) for position in range(len(schemas[0]))]
    return pa.schema(fields, metadata=schemas[0].metadata)


def _united(fields: Sequence[pa.Field]) -> pa.Field:
    field = fields[0]
    if all(each.type.equals(field.type) for each in fields[1:]):
        return field
    if not is_variant(field):
        inside = zip(*(children_of(each.type) for each in fields), strict=True)
        return with_inner(field, map(_united, inside))
    whole: pa.DataType | None = schema_of_storage(field.type)
    for each in fields[1:]:
        whole = None if whole is None else union(whole, schema_of_storage(each.type))
    return shredded_field(field, variant.type() if whole is None else whole)


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch whose Variants are shredded as a schema says that it is alike to."""
    arrays = [
        _conformed(array, given, field)
        for array, given, field in zip(batch.columns, batch.schema, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _conformed(array: Any, given: pa.Field, field: pa.Field) -> Any:
    if array.type.equals(field.type):
        return array
    if is_variant(field):
        column = pa.RecordBatch.from_arrays([array], schema=pa.schema([given]))
        wanted = schema_of_storage(field.type)
        shredded = variant.unshred(column) if is_untyped(wanted) else variant.shred(column, wanted)
        storage = storage_of(shredded.to_arrow())
        children = [storage.field(each.name).cast(each.type) for each in field.type]
        mask = storage.is_null() if storage.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(field.type), mask=mask)
    before = children_of(given.type)
    return with_child_arrays(
        array, field.type, lambda inner, child, position: _conformed(inner, before[position], child)
    )
