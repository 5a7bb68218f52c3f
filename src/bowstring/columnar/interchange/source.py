"""Where batches come from: one schema and an iterator of batches, of anything that is Arrow data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from bowstring.columnar.chunked import combine_chunks, combine_column, unify_dictionaries
from bowstring.columnar.column import ColumnData
from bowstring.columnar.interchange.cudf import arrow_of_cudf, with_categories
from bowstring.columnar.interchange.foreign import Importer, device_stream
from bowstring.columnar.layout import Layout
from bowstring.columnar.lookup import check_equal_lengths, checked_name, column_errors
from bowstring.columnar.marks import field_of, without_mark
from bowstring.columnar.parts import AnyBatch, Dictionary, make_batch
from bowstring.columnar.spans import buffer_or_none
from bowstring.errors import BowstringError, InvalidBody, Unsupported, UsageError
from bowstring.kernels import bitmap
from bowstring.memory import Buffer
from bowstring.memory.arrays import device_array

_HINT = "Give a pyarrow Table, a DataFrame, a dict of arrays, or anything with __arrow_c_stream__."


def open_batches(
    source: Any, schema: pa.Schema | None, importer: Importer[AnyBatch]
) -> tuple[pa.Schema, Iterator[AnyBatch]]:
    """Return a schema and batches: see :func:`bowstring.columnar.batch.batches`."""
    opened = _open(source, importer)
    if opened is not None:
        own_schema, taken = opened
        if schema is not None and not own_schema.equals(schema):
            raise UsageError(
                "the data have another schema", expected=schema.to_string(), found=own_schema.to_string()
            )
        return own_schema, taken
    if not isinstance(source, Iterable) or isinstance(source, str | bytes):
        raise UsageError("not Arrow data", found=type(source).__name__, hint=_HINT)
    items = iter(source)
    if schema is not None:
        return schema, _same_schema(_flat(items, importer), schema)
    taken = _flat(items, importer)
    first = next(taken, None)
    if first is None:
        raise UsageError(
            "nothing to take a schema from", hint="Give schema= beside an iterable that may be empty."
        )
    return first.schema, _same_schema(_after(first, taken), first.schema)


def gives_batches(source: Any) -> bool:
    """Whether something gives batches of ours by itself, so that nothing of them needs to go through pyarrow."""
    # What others call a schema may have to be computed, or fail: only where the layout is ours it is asked for.
    return isinstance(getattr(source, "layout", None), Layout) and hasattr(source, "read_all")


def one_batch(source: Any, importer: Importer[AnyBatch]) -> AnyBatch:
    """Return Arrow data as one batch: see :meth:`bowstring.columnar.batch.Batch.from_arrow`."""
    if isinstance(source, importer.batch_type):
        return source
    if isinstance(source, ColumnData):
        return one_batch(source.as_batch(), importer)
    batch = _on_its_device(source, importer)
    if batch is not None:
        return batch
    if hasattr(source, "__arrow_c_device_stream__") and not hasattr(source, "__arrow_c_device_array__"):
        return _only(*device_stream(source.__arrow_c_device_stream__(), importer), importer.batch_type)
    whole = _whole(source)
    if isinstance(whole, pa.RecordBatch):
        return importer.batch(whole)
    if whole is None:
        raise UsageError("not Arrow data", found=type(source).__name__, hint=_HINT)
    table = whole.read_all() if isinstance(whole, pa.RecordBatchReader) else whole
    chunks = table.to_batches()
    if len(chunks) > 1:
        try:
            chunks = combine_chunks(table).to_batches()
        except pa.ArrowException as error:
            raise UsageError(
                "the chunks of the data cannot be joined",
                found=str(error),
                where=_column_that_fails(
                    zip(table.column_names, table.columns, strict=True), pa.ChunkedArray.combine_chunks
                ),
                hint="Take them batch by batch.",
            ) from error
    if not chunks:
        return without_rows(Layout.of(table.schema), importer.batch_type)
    if len(chunks) > 1:
        raise UsageError(
            "the data do not fit one batch",
            expected="at most 2 GiB of text in a column with 32-bit offsets",
            hint="Take them batch by batch.",
        )
    return importer.batch(chunks[0])


def _only(schema: pa.Schema, taken: Iterator[AnyBatch], batch_type: type[AnyBatch]) -> AnyBatch:
    first, second = next(taken, None), next(taken, None)
    if second is not None:
        raise UsageError(
            "the stream of a device has several batches, which are not joined there",
            hint="Take them batch by batch; publish() does.",
        )
    return without_rows(Layout.of(schema), batch_type) if first is None else first


def _column_that_fails(columns: Iterable[tuple[Any, Any]], take: Callable[[Any], object]) -> str | None:
    """Return the name of a column that pyarrow does not take."""
    for name, column in columns:
        try:
            take(column)
        except (pa.ArrowException, TypeError, ValueError):
            return f"column {name!r}"
    return None


def without_rows(
    layout: Layout, batch_type: type[AnyBatch], known: dict[int, Dictionary] | None = None
) -> AnyBatch:
    """Return a batch without rows: pyarrow cannot make an empty array of every type."""
    dictionaries = dict[int, Dictionary]() if known is None else known
    for id_, values in layout.dictionaries.items():  # inner ones first
        if id_ not in dictionaries:
            dictionaries[id_] = Dictionary(id_, without_rows(values, batch_type, dictionaries))
    return make_batch(
        batch_type,
        layout,
        0,
        np.zeros((layout.num_nodes, 2), np.int64),
        variadic_counts=(0,) * len(layout.variadic_nodes),
        dictionaries={id_: dictionaries[id_] for id_ in layout.dictionaries},
        spans=np.zeros((layout.num_buffers, 3), np.int64),
    )


def _open(source: Any, importer: Importer[AnyBatch]) -> tuple[pa.Schema, Iterator[AnyBatch]] | None:
    """Return schema and batches of one thing; ``None`` where it is no Arrow data itself."""
    if isinstance(source, ColumnData):
        source = source.as_batch()
    if isinstance(source, importer.batch_type):
        return source.schema, iter((source,))
    if isinstance(source, pa.Table):
        return source.schema, map(importer.batch, _unified(source).to_batches())
    if gives_batches(source):
        return source.schema, iter(source)
    if hasattr(source, "__arrow_c_device_stream__"):
        return device_stream(source.__arrow_c_device_stream__(), importer)
    batch = _on_its_device(source, importer)
    if batch is not None:
        return batch.schema, iter((batch,))
    whole = _whole(source)
    if whole is None:
        return None
    if isinstance(whole, pa.Table):
        return whole.schema, map(importer.batch, _unified(whole).to_batches())
    return whole.schema, map(importer.batch, (whole,) if isinstance(whole, pa.RecordBatch) else whole)


def _on_its_device(source: Any, importer: Importer[AnyBatch]) -> AnyBatch | None:
    """Return what lies on a device as a batch there; ``None`` for everything that the host can read."""
    if isinstance(source, Mapping):
        return _batch_of_device_arrays(source, importer.batch_type)
    if isinstance(source, pa.RecordBatch | pa.Table):
        return None
    table, dtypes = arrow_of_cudf(source) or (source, None)
    if not hasattr(table, "__arrow_c_device_array__"):
        return None
    schema, array = table.__arrow_c_device_array__()
    batch = importer.device_batch(schema, array, dtypes)
    if batch is None or dtypes is None:
        return batch
    return with_categories(batch, table, dtypes, importer.device_batch)


def _batch_of_device_arrays(source: Mapping[str, Any], batch_type: type[AnyBatch]) -> AnyBatch | None:
    """Return arrays of one device as a batch there; ``None`` where all are the host's. Only Booleans are copied.

    The arrays have one dimension and one length.
    """
    arrays = {}
    for name, values in source.items():
        with column_errors(name):
            if isinstance(values, ColumnData) and not values.device.is_host:
                hint = "Batch.select() chooses columns of a batch."
                raise UsageError("a column of a batch is no array", hint=hint)
            arrays[name] = device_array(values)
    present = [each for each in arrays.values() if each is not None]
    if not present:
        return None
    places = {each[0].name for each in present} | {"cpu" for each in arrays.values() if each is None}
    if len(places) > 1:
        raise UsageError(
            "the columns are in several places", expected="all on one device", found=", ".join(sorted(places))
        )
    device = present[0][0]
    fields = []
    for name, (_, array) in zip(arrays, present, strict=True):
        with column_errors(checked_name(name)):
            if array.ndim != 1:
                raise UsageError("a column has one dimension", expected="shape (rows,)", found=array.shape)
            try:
                fields.append(pa.field(name, pa.from_numpy_dtype(np.dtype(array.dtype))))
            except pa.ArrowException as error:
                raise Unsupported("Arrow has no such type", found=str(array.dtype)) from error
    check_equal_lengths({name: len(array) for name, (_, array) in zip(arrays, present, strict=True)})
    rows = len(present[0][1])
    with device.use():
        buffers: list[Buffer | None] = []
        for _, array in present:
            values = device.xp.ascontiguousarray(array) if array.size else array
            packed = bitmap.packed(values) if array.size and array.dtype == np.bool_ else values
            buffers += [None, buffer_or_none(packed, device)]
        layout = Layout.of(pa.schema(fields))
        nodes = np.array([(rows, 0)] * len(fields), np.int64)
        return make_batch(batch_type, layout, rows, nodes, buffers, device=device)


def _unified(table: pa.Table) -> pa.Table:
    """Return a table whose chunks share their dictionaries, where pyarrow can unify them, and may look at them."""
    try:
        return unify_dictionaries(table)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, InvalidBody):
        return table


def _whole(source: Any) -> pa.RecordBatch | pa.Table | pa.RecordBatchReader | None:
    """Return a thing as pyarrow's; ``None`` where it is no Arrow data."""
    if isinstance(source, pa.RecordBatch | pa.Table | pa.RecordBatchReader):
        return source
    try:
        if isinstance(source, pa.Array | pa.ChunkedArray):
            source.validate()  # while the sizes of its buffers are known: see decision 101
        if hasattr(source, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(source)
        if hasattr(source, "__arrow_c_array__") or hasattr(source, "__arrow_c_device_array__"):
            return pa.record_batch(source)
        if isinstance(source, Mapping):
            return _record_batch(source)
    except BowstringError:
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        # Columns of a data frame, of which one may have a type that pyarrow lacks, such as an Int128 of polars'.
        names = [name for name in getattr(source, "columns", ()) if isinstance(name, str)]
        named = [(name, source[name]) for name in names if hasattr(source[name], "__arrow_c_stream__")]
        raise UsageError(
            "the data cannot be taken as a record batch",
            found=f"{type(source).__name__}: {error}",
            where=_column_that_fails(named, lambda column: pa.chunked_array(column[:0])),
            hint="A column alone is taken as {name: column}.",
        ) from error
    return None


def _record_batch(source: Mapping[str, Any]) -> pa.RecordBatch:
    arrays, fields = [], []
    for name, values in source.items():
        with column_errors(checked_name(name)):
            array = _array(values, name)
            array, field = without_mark(array, field_of(values, array, name))
            arrays.append(array)
            fields.append(field)
    check_equal_lengths({field.name: len(array) for array, field in zip(arrays, fields, strict=True)})
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _array(values: Any, name: str) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, np.ma.MaskedArray):
        return pa.array(values.data, mask=np.ma.getmaskarray(values))
    if isinstance(values, pa.ChunkedArray):
        return combine_column(values, name)
    if hasattr(values, "__arrow_c_stream__") and not hasattr(values, "__arrow_c_array__"):
        return combine_column(pa.chunked_array(values), name)
    return pa.array(values)


def _flat(items: Iterator[Any], importer: Importer[AnyBatch]) -> Iterator[AnyBatch]:
    for item in items:
        opened = _open(item, importer)
        if opened is None:
            raise UsageError("an item is not Arrow data", found=type(item).__name__, hint=_HINT)
        yield from opened[1]


def _after(first: AnyBatch, others: Iterator[AnyBatch]) -> Iterator[AnyBatch]:
    yield first
    del first
    yield from others


def _same_schema(taken: Iterator[AnyBatch], schema: pa.Schema) -> Iterator[AnyBatch]:
    for batch in taken:
        if not batch.schema.equals(schema):
            raise UsageError(
                "a batch has another schema than the ones before",
                expected=schema.to_string(),
                found=batch.schema.to_string(),
            )
        yield batch
        del batch
