"""Batches from Spark as they are published, and batches as Spark takes them: by one table, at any depth."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from bowstring.columnar.marks import marked_field
from bowstring.columnar.nodes import storage_type
from bowstring.errors import InvalidData, Unsupported, UsageError
from bowstring.spark import conversions, types
from bowstring.spark.conversions import TooLong

Convert = Callable[[Any], Any]
_MOST_DIGITS: Final = 38
_DEEPEST: Final = 64
_UNION: Final = "Choose other columns, or give each member of the union a column of its own."
_HINTS: Final[dict[int, str]] = {
    pa.lib.Type_SPARSE_UNION: _UNION,
    pa.lib.Type_DENSE_UNION: _UNION,
    pa.lib.Type_INTERVAL_MONTH_DAY_NANO: "Spark's calendar intervals do not travel as Arrow.",
    21: "Spark's year-month intervals do not travel to Spark as Arrow: send int32 months.",
    22: "Send a duration.",
}


class Form(NamedTuple):
    """What a field becomes, and what makes its arrays that; None where they are that already."""

    field: pa.Field
    convert: Convert | None


class _Forms:
    """Says what fields become; both ways alike where a type holds others."""

    # Whether arrays are Spark's: what may be null there is known when a query is optimised, so all may be, and keys
    # of maps are what Spark let them be.
    _of_spark = False

    def form(self, field: pa.Field, name: str, path: str, depth: int = 0) -> Form:
        """Return what a field becomes under another name, at a place of the schema."""
        # Spark's own notes about a field, such as the precision of times, come and go with its versions.
        notes = (field.metadata or {}).get(types.NOTES)
        type_, convert = self._type(field, path, depth)
        nullable = field.nullable or self._of_spark
        return Form(pa.field(name, type_, nullable, None if notes is None else {types.NOTES: notes}), convert)

    def _type(self, field: pa.Field, path: str, depth: int) -> tuple[pa.DataType, Convert | None]:
        raise NotImplementedError

    def _nested(self, type_: pa.DataType, path: str, depth: int) -> tuple[pa.DataType, Convert | None] | None:
        """Return what a type that holds others becomes; None for one that holds none."""
        if types.is_marked(type_, b"geometry", b"geography"):
            # The mark is on a child, so children keep their metadata.
            parts = [self.form(type_.field(name), name, path, depth) for name in ("srid", "wkb")]
            fields = [
                part.field.with_nullable(False).with_metadata(type_.field(part.field.name).metadata)
                for part in parts
            ]
            order = [type_.get_field_index(field.name) for field in fields]
            return _struct(pa.struct(fields), [part.convert for part in parts], path, order)
        if pa.types.is_struct(type_):
            parts = [self.form(each, each.name, f"{path}.{each.name}", depth + 1) for each in type_]
            target, convert = _struct(
                pa.struct([part.field for part in parts]), [part.convert for part in parts], path
            )
            same = all(part.convert is None and part.field.nullable for part in parts)
        elif pa.types.is_map(type_):
            keys = self.form(type_.key_field, "key", f"{path}.key", depth + 1)
            items = self.form(type_.item_field, "value", f"{path}.value", depth + 1)
            if not self._of_spark and (
                _holds_map(keys.field.type) or types.is_marked(keys.field.type, b"variant")
            ):
                where = f"{path}.key"
                raise Unsupported("Spark has no such keys of maps", found=str(type_.key_type), where=where)
            target = pa.map_(keys.field.with_nullable(False), items.field)
            convert = partial(
                conversions.to_map, target=target, keys=keys.convert, items=items.convert, path=path
            )
            same = self._of_spark and keys.convert is None and items.convert is None
        elif type_.id in types.LISTS:
            inner = self.form(type_.value_field, "element", f"{path}.element", depth + 1)
            target = pa.list_(inner.field)
            convert = partial(conversions.to_list, target=target, convert=inner.convert, path=path)
            same = inner.convert is None and inner.field.nullable
        else:
            return None
        return target, None if same and target.equals(type_, check_metadata=True) else convert


def _struct(
    target: pa.DataType, converts: list[Convert | None], path: str, order: list[int] | None = None
) -> tuple[pa.DataType, Convert | None]:
    return target, partial(conversions.to_struct, target=target, converts=converts, path=path, order=order)


def _holds_map(type_: pa.DataType) -> bool:
    inner = [type_.field(index).type for index in range(type_.num_fields)]
    return pa.types.is_map(type_) or any(map(_holds_map, inner))


class _ToSpark(_Forms):
    def __init__(self, *, truncate: bool) -> None:
        self._truncate = truncate

    def _type(self, field: pa.Field, path: str, depth: int) -> tuple[pa.DataType, Convert | None]:
        if depth > _DEEPEST:
            raise Unsupported("a type is nested too deep", expected=f"at most {_DEEPEST} levels", where=path)
        storage = storage_type(field.type)
        if types.is_variant(field):
            return self._variant(storage, path, depth)
        target, convert = self._nested(storage, path, depth) or self._leaf(storage, path, depth)
        if storage == pa.int8() and types.extension_name(field) == "arrow.bool8":
            target, convert = pa.bool_(), conversions.cast_to(pa.bool_(), path)
        if isinstance(field.type, pa.BaseExtensionType):
            inner = convert
            return target, lambda array: array.storage if inner is None else inner(array.storage)
        return target, convert

    def _leaf(self, type_: pa.DataType, path: str, depth: int) -> tuple[pa.DataType, Convert | None]:
        if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
            values = self.form(pa.field("values", type_.value_type), "values", path, depth)
            return values.field.type, partial(conversions.decode, convert=values.convert)
        if pa.types.is_decimal(type_):
            target = _decimal(type_, path)
        elif pa.types.is_timestamp(type_):
            target = pa.timestamp("us", None if type_.tz is None else "UTC")
        elif type_.id in types.TAKEN_AS:
            target = types.TAKEN_AS[type_.id]
        else:
            hint = _HINTS.get(type_.id)
            raise Unsupported("Spark has no such type", found=str(type_), where=path, hint=hint)
        if pa.types.is_time(type_):  # all of them: a time may be not of one day
            return target, conversions.to_time(path, truncate=self._truncate)
        if target == type_:
            return target, None
        return target, conversions.cast_to(target, path, truncate=self._truncate)

    def _variant(self, type_: pa.DataType, path: str, depth: int) -> tuple[pa.DataType, Convert | None]:
        names = [field.name for field in type_]
        if sorted(names) != ["metadata", "value"]:
            raise Unsupported(
                "only Variants of metadata and value go to Spark", found=", ".join(names), where=path
            )
        value, metadata = (self.form(type_.field(name), name, path, depth) for name in ("value", "metadata"))
        if not value.field.type.equals(pa.binary()) or not metadata.field.type.equals(pa.binary()):
            raise Unsupported("a Variant's children are binary", found=str(type_), where=path)
        target = types.variant_type(pa.binary())
        given = {"value": value.convert, "metadata": metadata.convert}
        return target, partial(conversions.to_variant, target=target, path=path, **given)


def _decimal(type_: pa.DataType, path: str) -> pa.DataType:
    digits, scale = type_.precision, type_.scale
    if scale < 0:
        digits, scale = digits - scale, 0
    digits = max(digits, scale)
    if scale > _MOST_DIGITS or (digits > _MOST_DIGITS and type_.scale < 0):
        raise Unsupported(
            "Spark's decimals are smaller", expected="at most 38 digits", found=str(type_), where=path
        )
    return pa.decimal128(min(digits, _MOST_DIGITS), scale)


class _FromSpark(_Forms):
    """Names and types are Spark's."""

    _of_spark = True

    def form(self, field: pa.Field, name: str, path: str, depth: int = 0) -> Form:
        form = super().form(field, name, path, depth)
        if not types.is_marked(field.type, b"variant"):
            return form
        return Form(marked_field(form.field), form.convert)

    def _type(self, field: pa.Field, path: str, depth: int) -> tuple[pa.DataType, Convert | None]:
        type_ = field.type
        if types.is_marked(type_, b"variant"):
            metadata, value = (type_.field(name).remove_metadata() for name in ("metadata", "value"))
            order = [type_.get_field_index(each.name) for each in (metadata, value)]
            metadata = metadata.with_type(pa.dictionary(pa.int32(), metadata.type))
            target = pa.struct([each.with_nullable(False) for each in (metadata, value)])
            return _struct(target, [conversions.SharedMetadata(), None], path, order)
        if pa.types.is_timestamp(type_) and type_.tz is not None:
            # Of the session, as Java writes it: the same instants in the same zone.
            target = pa.timestamp(type_.unit, types.arrow_zone(type_.tz))
            return target, None if target == type_ else lambda array: array.view(target)
        return self._nested(type_, path, depth) or (type_, None)


def column_form(field: pa.Field) -> Form:
    """Return what a column becomes in Spark."""
    return _ToSpark(truncate=False).form(field, field.name, field.name)


class _Converter:
    """Makes batches of one schema those of another, `schema`, of the same rows."""

    def __init__(self, source: pa.Schema, forms: _Forms, metadata: Any = None) -> None:
        self._source = source
        self._forms = [forms.form(field, field.name, field.name) for field in source]
        schema = pa.schema([form.field for form in self._forms], metadata=metadata)
        self._same = schema.equals(source, check_metadata=True) and all(
            form.convert is None and form.field.nullable for form in self._forms
        )
        self.schema: pa.Schema = source if self._same else schema

    def __call__(self, batch: Any) -> pa.RecordBatch:
        """Return a batch of the same rows; raises `TooLong` where Spark's 32-bit offsets do not reach."""
        batch = batch if isinstance(batch, pa.RecordBatch) else batch.to_arrow()
        if batch.schema is not self._source and not batch.schema.equals(self._source):
            raise UsageError("a batch has another schema", expected=self._source, found=batch.schema)
        if self._same:
            return batch
        columns = []
        for form, column in zip(self._forms, batch.columns, strict=True):
            columns.append(column if form.convert is None else form.convert(column))
            if not form.field.nullable and columns[-1].null_count:
                raise InvalidData("a null where the schema allows none", where=form.field.name)
        if not columns:  # pyarrow counts rows by columns
            return batch.replace_schema_metadata(None)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def batches(self, batch: Any) -> Iterator[pa.RecordBatch]:
        """Return the rows of a batch in as many batches as Spark's 32-bit offsets need, mostly one."""
        batch = batch if isinstance(batch, pa.RecordBatch) else batch.to_arrow()
        try:
            converted = self(batch)
        except TooLong:
            half = batch.num_rows // 2
            if not half:
                raise
            yield from self.batches(batch.slice(0, half))
            yield from self.batches(batch.slice(half))
        else:
            yield converted


class Normaliser(_Converter):
    """Makes batches of one schema as Spark takes them.

    With `truncate` nanoseconds are cut, downwards, to the microseconds that Spark has; else they are an error.
    """

    def __init__(self, schema: pa.Schema, *, truncate: bool = False) -> None:
        super().__init__(schema, _ToSpark(truncate=truncate))


class FromSpark(_Converter):
    """Makes batches that Spark hands over (``mapInArrow``, ``toArrow``) proper Arrow.

    Spark's ``struct<value, metadata{variant}>`` becomes ``arrow.parquet.variant``, at any depth, without a copy of
    the values; its metadata, which Spark repeats in every row, is dictionary-encoded.
    """

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema, _FromSpark(), schema.metadata)


def published_schema(source: Any) -> pa.Schema:
    """Return the schema of what is published of a data frame, or of a ``StructType``, before any task runs."""
    types.check_columns(source)
    return FromSpark(types.task_schema(source)).schema


def to_spark_schema(schema: pa.Schema) -> Any:
    """Return the ``StructType`` that Spark gives to batches of a schema."""
    from bowstring.spark.sessions import pyspark_sql

    return types.struct_of((column_form(field).field for field in schema), pyspark_sql().types)


_BATCH_BYTES: Final = 2 << 20


def incoming(
    batches: Iterable[pa.RecordBatch], names: Sequence[str] | None = None
) -> tuple[pa.Schema | None, Iterator[pa.RecordBatch]]:
    """Return the schema and the batches that a task publishes of its partition; no schema where it has no rows.

    Columns are renamed to `names`, where some are given.
    """
    present = joined(batches)
    first = next(present, None)
    if first is None:
        return None, present
    every: Iterator[pa.RecordBatch] = itertools.chain((first,), present)
    if names is not None:
        first = first.rename_columns(list(names))
        every = (batch.rename_columns(list(names)) for batch in every)
    convert = FromSpark(first.schema)
    return convert.schema, map(convert, every)


def joined(batches: Iterable[pa.RecordBatch], least: int = _BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some batches in batches of about `least` bytes, or of what they were where that is more."""
    # Where rows are few bytes, what a reader pays for each batch is more than what this copy costs. What is large
    # enough is not copied, so nothing that is joined becomes too large for 32-bit offsets.
    waiting: list[pa.RecordBatch] = []
    nbytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        size = batch.nbytes
        if waiting and size >= least:
            yield _one(waiting)
            waiting, nbytes = [], 0
        waiting.append(batch)
        nbytes += size
        if nbytes >= least:
            yield _one(waiting)
            waiting, nbytes = [], 0
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
