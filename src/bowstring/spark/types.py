"""Batches in the types that Spark takes (``docs/spark/types.md`` has the table), and an endpoint read as those."""

from __future__ import annotations

import importlib
import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from bowstring.client import connect
from bowstring.columnar.validation import Validated
from bowstring.dissociated.endpoint import Endpoint
from bowstring.errors import InvalidData, UsageError
from bowstring.spark.conversions import TooLong
from bowstring.spark.type_mapping import column_form, is_marked

__all__ = ["Normaliser", "distinct_names", "read_endpoint", "to_spark_schema"]


class Normaliser:
    """Makes batches of one schema as Spark takes them.

    Parameters
    ----------
    schema
        The schema of the batches.
    truncate
        Whether nanoseconds may be cut, downwards, to the microseconds that Spark has. Otherwise a value with
        nanoseconds is an error.

    Attributes
    ----------
    schema
        What Spark checks against: names, types and nullability.

    Raises
    ------
    Unsupported
        Spark has nothing for a type.

    Examples
    --------
    >>> normaliser = Normaliser(pa.schema([("a", pa.uint8())]))
    >>> normaliser(pa.record_batch({"a": pa.array([1, None], pa.uint8())})).column("a")
    <pyarrow.lib.Int16Array object at ...>
    [
      1,
      null
    ]
    """

    schema: pa.Schema

    def __init__(self, schema: pa.Schema, *, truncate: bool = False) -> None:
        self._source = schema
        self._forms = [column_form(field, truncate=truncate) for field in schema]
        self.schema = pa.schema([form.field for form in self._forms])

    def __call__(self, batch: Any) -> pa.RecordBatch:
        """Return a batch of the same rows.

        Raises
        ------
        UsageError
            The batch has another schema.
        Unsupported
            A value does not fit into Spark's type, or has nanoseconds.
        InvalidData
            A null where the schema allows none.
        LimitExceeded
            The rows do not fit into one batch with Spark's 32-bit offsets: :meth:`batches` makes several.
        """
        source = batch if isinstance(batch, pa.RecordBatch) else batch.to_arrow()
        if not source.schema.equals(self._source):
            raise UsageError("a batch has another schema", expected=self._source, found=source.schema)
        columns = []
        for form, column in zip(self._forms, source.columns, strict=True):
            made = column if form.convert is None else form.convert(column)
            if not form.field.nullable and made.null_count:
                raise InvalidData("a null where the schema allows none", where=form.field.name)
            columns.append(made)
        if not columns:
            return _without_columns(source.num_rows)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def batches(self, batch: Any) -> Iterator[pa.RecordBatch]:
        """Return the rows of a batch in as many batches as Spark's 32-bit offsets need, mostly one."""
        source = batch if isinstance(batch, pa.RecordBatch) else batch.to_arrow()
        try:
            made = self(source)
        except TooLong:
            half = source.num_rows // 2
            if not half:
                raise
            yield from self.batches(source.slice(0, half))
            yield from self.batches(source.slice(half))
        else:
            yield made


def to_spark_schema(schema: pa.Schema) -> Any:
    """Return the ``StructType`` that Spark gives to batches of a schema.

    Raises
    ------
    Unsupported
        Spark has nothing for a type; the message names it, and the place.
    MissingDependency
        The extra ``[spark]`` is not installed.
    """
    from bowstring.spark.sessions import pyspark_sql

    pyspark_sql()
    made = _Made(importlib.import_module("pyspark.sql.types"))
    return made.struct([column_form(field).field for field in schema])


def _without_columns(rows: int) -> pa.RecordBatch:
    empty = pa.StructArray.from_buffers(pa.struct([]), rows, [None], children=[])
    return pa.RecordBatch.from_struct_array(empty)


class _Made:
    """Spark's types for those that `column_form` gives."""

    def __init__(self, types: Any) -> None:
        self._types = types

    def struct(self, fields: Iterable[pa.Field]) -> Any:
        made = [
            self._types.StructField(field.name, self._type(field.type), field.nullable, _metadata(field))
            for field in fields
        ]
        return self._types.StructType(made)

    def _type(self, type_: pa.DataType) -> Any:
        types = self._types
        if pa.types.is_struct(type_):
            return self._marked(type_) or self.struct(type_)
        if pa.types.is_list(type_):
            items = type_.value_field
            return types.ArrayType(self._type(items.type), items.nullable)
        if pa.types.is_map(type_):
            items = type_.item_field
            return types.MapType(self._type(type_.key_type), self._type(items.type), items.nullable)
        if pa.types.is_decimal(type_):
            return types.DecimalType(type_.precision, type_.scale)
        if pa.types.is_timestamp(type_):
            return types.TimestampType() if type_.tz else types.TimestampNTZType()
        return getattr(types, _NAMES[type_.id])()

    def _marked(self, type_: pa.DataType) -> Any:
        if is_marked(type_, b"variant"):
            return self._types.VariantType()
        for mark, name in ((b"geometry", "GeometryType"), (b"geography", "GeographyType")):
            if is_marked(type_, mark):
                srid = int(type_.field("wkb").metadata.get(b"srid", b"-1"))
                return getattr(self._types, name)("ANY" if srid == -1 else srid)
        return None


def _metadata(field: pa.Field) -> Any:
    kept = (field.metadata or {}).get(b"SPARK::metadata::json")
    try:
        found = json.loads(kept) if kept else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


_NAMES: Final = {
    pa.lib.Type_NA: "NullType",
    pa.lib.Type_BOOL: "BooleanType",
    pa.lib.Type_INT8: "ByteType",
    pa.lib.Type_INT16: "ShortType",
    pa.lib.Type_INT32: "IntegerType",
    pa.lib.Type_INT64: "LongType",
    pa.lib.Type_FLOAT: "FloatType",
    pa.lib.Type_DOUBLE: "DoubleType",
    pa.lib.Type_STRING: "StringType",
    pa.lib.Type_BINARY: "BinaryType",
    pa.lib.Type_DATE32: "DateType",
    pa.lib.Type_TIME64: "TimeType",
    pa.lib.Type_DURATION: "DayTimeIntervalType",
}


_OTHER: Final = "Read the data set anew: its schema is not the one that the data frame was made with."


def read_endpoint(
    endpoint: Endpoint,
    target: pa.Schema,
    *,
    columns: Sequence[str] | None = None,
    truncate: bool = False,
    validate: Validated = "structure",
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches of an endpoint as Spark takes them; a batch without rows is left out.

    Parameters
    ----------
    endpoint
        What is read, once, from its beginning to its end.
    target
        The schema that Spark expects: some of the columns, by their names in any case, in its own order.
    columns, truncate, validate
        As the options.

    Raises
    ------
    UsageError
        The endpoint has another schema.
    BrokenError, DeadlineExceeded, RefusedError
        Its producer is gone, does not answer, or says no.

    Examples
    --------
    >>> import bowstring as bow
    >>> with bow.Server() as server:
    ...     endpoint = server.publish("t", pa.table({"a": pa.array([1, 2], pa.uint8())}))
    ...     [batch] = read_endpoint(endpoint, pa.schema([("a", pa.int16())]))
    >>> batch.column("a").to_pylist()
    [1, 2]
    """
    with connect(endpoint, columns=columns, validate=validate) as stream:
        # Not by a second connection: it would count as another reader, and what is made as it is read is read once.
        yield from _batches(stream, _pruned(stream.schema.names, target.names), target, truncate)


def _pruned(there: list[str], wanted: list[str]) -> list[str] | None:
    """Return what columns are called that Spark wants; None where they are all, in order, or one is not there."""
    if there == wanted or not wanted or len(set(there)) < len(there):
        return None
    by_case: dict[str, list[str]] = {}
    for name in there:
        by_case.setdefault(name.lower(), []).append(name)
    columns = []
    for name in wanted:
        candidates = [name] if name in there else by_case.get(name.lower(), [])
        if len(candidates) != 1:
            return None
        columns += candidates
    return columns if len(set(columns)) == len(columns) else None


def _batches(
    stream: Any, pruned: list[str] | None, target: pa.Schema, truncate: bool
) -> Iterator[pa.RecordBatch]:
    schema = stream.schema if pruned is None else pa.schema([stream.schema.field(name) for name in pruned])
    normaliser = Normaliser(schema, truncate=truncate)
    _check(distinct_names(normaliser.schema), target)
    for batch in stream:
        for part in normaliser.batches(batch if pruned is None else batch.select(pruned)):
            if part.num_rows:
                yield _labelled(part, target)


def distinct_names(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose repeated names have their position behind them: Spark reads no names twice.

    Examples
    --------
    >>> distinct_names(pa.schema([("x", pa.int8()), ("y", pa.int8()), ("x", pa.int8())])).names
    ['x', 'y', 'x_2']
    """
    taken, fields = set(schema.names), []
    seen: set[str] = set()
    for index, field in enumerate(schema):
        name = field.name
        if name in seen:
            name = f"{name}_{index}"
            while name in taken:
                name += "_"
            taken.add(name)
        seen.add(name)
        fields.append(field.with_name(name))
    return pa.schema(fields, metadata=schema.metadata)


def _labelled(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the schema that Spark compares: columns may be nullable there that have no nulls."""
    if not batch.num_columns or batch.schema.equals(target):
        return batch
    return pa.RecordBatch.from_arrays(batch.columns, schema=target)


def _check(found: pa.Schema, target: pa.Schema) -> None:
    same = len(found) == len(target) and all(
        ours.name.lower() == theirs.name.lower()
        and ours.type == theirs.type
        and (theirs.nullable or not ours.nullable)
        for ours, theirs in zip(found, target, strict=True)
    )
    if not same:
        raise UsageError("the data set has another schema", expected=target, found=found, hint=_OTHER)
