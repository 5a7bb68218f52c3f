"""One column out of whatever holds one: a Column, a batch, an array, a table, a stream."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from bowstring.columnar.batch import Batch, Column
from bowstring.columnar.marks import NAME_KEY
from bowstring.errors import ClosedError, UsageError

_TABULAR: Final = pa.RecordBatch | pa.Table | pa.RecordBatchReader


def one_column(source: Any, name: str) -> Column:
    """Return a column, or the only column of a batch; an array alone gets the name."""
    if isinstance(source, Column):
        return source
    alone = _alone(source, name)
    if alone is not None:
        batch = Batch.from_arrow(alone)
    else:
        try:
            batch = Batch.from_arrow(source)
        except UsageError:
            # Streams say only when they are opened whether they are of columns or of one array.
            if isinstance(source, _TABULAR | Batch) or not hasattr(source, "__arrow_c_stream__"):
                raise
            with _not_a_column(source):
                chunks = pa.chunked_array(source)
            batch = Batch.from_arrow(pa.table({name: _widened(chunks)}))
    if batch.num_columns != 1:
        raise UsageError("one column is needed", expected="one column", found=batch.schema.names)
    return batch[0]


def _alone(source: Any, name: str) -> pa.Table | None:
    """Return an array as a table of it, ``None`` where it is none, or holds the columns of a batch."""
    if isinstance(source, pa.Array | pa.ChunkedArray):
        with _not_a_column(source):
            return pa.table({name: _widened(source) if isinstance(source, pa.ChunkedArray) else source})
    if isinstance(source, Batch | Mapping | _TABULAR) or not hasattr(source, "__arrow_c_array__"):
        return None
    with _not_a_column(source):
        # The field has the metadata that mark an extension type.
        field = None
        if hasattr(source, "__arrow_c_schema__"):
            field = pa.Field._import_from_c_capsule(source.__arrow_c_schema__())
        array = pa.Array._import_from_c_capsule(*source.__arrow_c_array__())
    metadata = (field.metadata or {}) if field is not None else {}
    if array.type.id == pa.lib.Type_STRUCT and NAME_KEY not in metadata:
        return None
    return pa.table([array], schema=pa.schema([pa.field(name, array.type, metadata=metadata)]))


@contextlib.contextmanager
def _not_a_column(source: Any) -> Iterator[None]:
    try:
        yield
    except ClosedError:
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError("not a column", found=f"{source.__class__.__name__}: {error}") from error


def _widened(chunks: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return chunks that can be concatenated: the offsets of all texts together may not fit 32 bits."""
    wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(chunks.type)
    return chunks.cast(wide) if wide is not None and chunks.num_chunks > 1 else chunks
