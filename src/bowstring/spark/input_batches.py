"""Batches that Spark hands over, as they are published: joined, Variants by name, nulls only where they may be.

Towards Spark, :class:`bowstring.spark.types.Normaliser` does the reverse.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bowstring.errors import UsageError
from bowstring.spark import conversions
from bowstring.spark.type_mapping import Convert, Form, is_marked
from bowstring.spark.zones import arrow_zone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["FromSpark", "from_spark", "incoming", "joined", "shared"]

_BATCH_BYTES: Final = 2 << 20


def incoming(
    batches: Iterable[pa.RecordBatch], names: Sequence[str] | None = None
) -> tuple[pa.Schema | None, Iterator[pa.RecordBatch]]:
    """Return the schema and the batches that a task publishes of its partition; no schema where it has no rows.

    Columns are renamed to `names`, where some are given.

    Examples
    --------
    >>> schema, present = incoming([pa.record_batch({"a": [1]}), pa.record_batch({"a": [2, 3]})])
    >>> schema.names, [batch["a"].to_pylist() for batch in present]
    (['a'], [[1, 2, 3]])
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


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some batches in batches of about 2 MiB, or of what they were where that is more.

    Where rows are few bytes, what a reader pays for each batch is more than what this copy costs. What is large
    enough is not copied, so nothing that is joined becomes too large for 32-bit offsets.
    """
    waiting: list[pa.RecordBatch] = []
    nbytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        size = batch.nbytes
        if waiting and size >= _BATCH_BYTES:
            yield _one(waiting)
            waiting, nbytes = [], 0
        waiting.append(batch)
        nbytes += size
        if nbytes >= _BATCH_BYTES:
            yield _one(waiting)
            waiting, nbytes = [], 0
    if waiting:
        yield _one(waiting)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


_SAMPLE: Final = 512
_METADATA: Final = b"SPARK::metadata::json"


class FromSpark:
    """Makes batches that Spark hands over (``mapInArrow``, ``toArrow``) proper Arrow.

    Spark's ``struct<value, metadata{variant}>`` becomes ``arrow.parquet.variant``, at any depth, without a copy of
    the values; its metadata, which Spark repeats in every row, is dictionary-encoded.

    All fields may be null, as in the files that Spark writes: which ones may not is known when Spark has optimised
    a query, and not before. The schema made depends on nothing else of Spark's but names and types. Children that
    may not be null (those of Variants and geometries), and are null where their parent is, count as values.

    Parameters
    ----------
    schema
        The schema of Spark's batches.
    dictionary
        Whether metadata is dictionary-encoded.

    Attributes
    ----------
    schema
        The schema of the batches made.

    Examples
    --------
    >>> from bowstring.spark.type_mapping import marked
    >>> rows = pa.array([{"value": bytes([12, 42]), "metadata": bytes([1, 0, 0])}] * 3, marked(b"variant"))
    >>> batch = from_spark(pa.record_batch({"v": rows}))
    >>> (
    ...     batch.schema.field("v").metadata[b"ARROW:extension:name"],
    ...     batch.column("v").field("metadata").indices.to_pylist(),
    ... )
    (b'arrow.parquet.variant', [0, 0, 0])
    """

    schema: pa.Schema

    def __init__(self, schema: pa.Schema, *, dictionary: bool = True) -> None:
        self._source = schema
        self._dictionary = dictionary
        self._forms = [self._form(field, field.name) for field in schema]
        made = pa.schema([form.field for form in self._forms], metadata=schema.metadata)
        self.schema = schema if made.equals(schema, check_metadata=True) else made

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of the same rows.

        Raises
        ------
        UsageError
            The batch has another schema.
        InvalidData
            A null where the schema allows none, and nothing hides it.
        """
        if batch.schema is not self._source and not batch.schema.equals(self._source):
            raise UsageError("a batch has another schema", expected=self._source, found=batch.schema)
        if self.schema is self._source:
            return batch
        columns = [
            column if form.convert is None else form.convert(column)
            for form, column in zip(self._forms, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _form(self, field: pa.Field, path: str) -> Form:
        type_ = field.type
        # Spark's own notes about a field, such as the precision of times, come and go with its versions.
        kept = (field.metadata or {}).get(_METADATA)
        field = field.with_metadata(None if kept is None else {_METADATA: kept})
        if is_marked(type_, b"variant"):
            return self._variant(field, path)
        convert: Convert | None = None
        target = type_
        if pa.types.is_map(type_):
            keys = self._form(type_.key_field, f"{path}.key")
            items = self._form(type_.item_field, f"{path}.value")
            target = pa.map_(keys.field.with_nullable(False), items.field, keys_sorted=type_.keys_sorted)
            convert = partial(_map, target, keys.convert, items.convert, path)
            same = keys.convert is None and items.convert is None
        elif pa.types.is_list(type_):
            inner = self._form(type_.value_field, f"{path}.element")
            target, same = pa.list_(inner.field), inner.convert is None
            convert = partial(_list, target, inner.convert, path)
        elif pa.types.is_struct(type_):
            shape = is_marked(type_, b"geometry") or is_marked(type_, b"geography")
            parts = [self._form(child, f"{path}.{child.name}") for child in type_]
            fields = [part.field for part in parts]
            if shape:  # the mark is on a child
                fields = [
                    each.with_nullable(False).with_metadata(child.metadata)
                    for each, child in zip(fields, type_, strict=True)
                ]
            target = pa.struct(fields)
            same = not shape and all(part.convert is None for part in parts)
            convert = partial(_struct, target, [part.convert for part in parts], path)
        elif pa.types.is_timestamp(type_) and type_.tz is not None:
            # Of the session, as Java writes it: the same instants in the same zone.
            target = pa.timestamp(type_.unit, arrow_zone(type_.tz))
            convert, same = partial(_viewed, target), True
        else:
            same = True
        same = same and target.equals(type_, check_metadata=True)
        return Form(field.with_type(target).with_nullable(True), None if same else convert)

    def _variant(self, field: pa.Field, path: str) -> Form:
        # Loaded on first use: most data frames have no Variant, and each worker would wait for it.
        from bowstring.columnar.marks import marked_field

        types = {child.name: child.type for child in field.type}
        metadata = types["metadata"]
        convert: Convert | None = None
        if self._dictionary:
            metadata, convert = pa.dictionary(pa.int32(), metadata), _Sharing()
        target = pa.struct(
            [
                pa.field("metadata", metadata, nullable=False),
                pa.field("value", types["value"], nullable=False),
            ]
        )
        order = [field.type.get_field_index(name) for name in ("metadata", "value")]
        return Form(
            marked_field(field.with_type(target).with_nullable(True)),
            lambda array: conversions.to_struct(array, target, [convert, None], path, order),
        )


def from_spark(batch: pa.RecordBatch, *, dictionary: bool = True) -> pa.RecordBatch:
    """Return one batch as :class:`FromSpark` makes it.

    Examples
    --------
    >>> from_spark(pa.record_batch({"a": [1]})).num_rows
    1
    """
    return FromSpark(batch.schema, dictionary=dictionary)(batch)


def _viewed(target: pa.DataType, array: Any) -> Any:
    return array.view(target)


def _map(target: pa.DataType, keys: Convert | None, items: Convert | None, path: str, array: Any) -> Any:
    return conversions.to_map(array, target, keys, items, path)


def _list(target: pa.DataType, items: Convert | None, path: str, array: Any) -> Any:
    return conversions.to_list(array, target, None, items, path)


def _struct(target: pa.DataType, converts: list[Convert | None], path: str, array: Any) -> Any:
    return conversions.to_struct(array, target, converts, path)


class _Sharing:
    """Encodes the metadata of a column, batch after batch: a dictionary that stays the same is the same object."""

    def __init__(self) -> None:
        self._last: Any = None

    def __call__(self, array: Any) -> Any:
        made = shared(array)
        if self._last is not None and made.dictionary.equals(self._last):
            made = pa.DictionaryArray.from_arrays(made.indices, self._last, safe=False)
        self._last = made.dictionary
        return made


def shared(array: Any) -> Any:
    """Return bytes dictionary-encoded, if that pays; else each row has its own entry, and nothing is copied.

    Rows that are null have some index: what lies above them is null, too.

    Examples
    --------
    >>> shared(pa.array([b"a", b"a", None])).dictionary.to_pylist()
    [b'a']
    """
    rows = len(array)
    if not rows:
        return pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), array)
    if _is_one(array):
        first = pc.index(pc.is_valid(array), pa.scalar(value=True)).as_py() if array.null_count else 0
        return pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(rows, np.int32)), pa.array([array[first].as_py()], array.type), safe=False
        )
    if not _repeats(array):
        entries = conversions.without_nulls(array) if array.null_count else array
        return pa.DictionaryArray.from_arrays(pa.array(np.arange(rows, dtype=np.int32)), entries, safe=False)
    made = array.dictionary_encode()
    if not made.null_count:
        return made
    if not len(made.dictionary):
        return pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(rows, np.int32)), pa.array([b""], array.type), safe=False
        )
    return pa.DictionaryArray.from_arrays(made.indices.fill_null(0), made.dictionary)


def _is_one(array: Any) -> bool:
    """Whether all rows that are not null hold the same bytes; looks at memory at the speed of memory."""
    wide = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    raw = array.buffers()
    offsets = np.frombuffer(raw[1], wide)[array.offset : array.offset + len(array) + 1]
    lengths = np.diff(offsets)
    valid = len(array) - array.null_count
    total = int(offsets[-1]) - int(offsets[0])
    if not valid or not total or raw[2] is None:
        return False
    length, rest = divmod(total, valid)
    # With nulls: a length for each row that is not null, and none for the others.
    if rest or np.count_nonzero(lengths == length) != valid or np.count_nonzero(lengths) != valid:
        return False
    data = raw[2].slice(int(offsets[0]), total)
    return bool(data.slice(0, total - length).equals(data.slice(length)))


def _repeats(array: Any) -> bool:
    """Whether rows repeat, by a look at some that lie apart and at some that lie together."""
    rows = len(array)
    if rows < _SAMPLE:
        return True
    apart = np.linspace(0, rows - 1, _SAMPLE, dtype=np.int64)
    sample = array.take(pa.array(apart))
    return bool(2 * pc.count_distinct(sample).as_py() <= _SAMPLE)
