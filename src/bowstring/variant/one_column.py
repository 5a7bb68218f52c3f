"""One column out of whatever holds one: a Column, a batch of one column, an array, or what exports them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.column import Column
from bowstring.errors import ClosedError, UsageError

__all__ = ["one_column"]

_NAME: Final = b"ARROW:extension:name"
_TABULAR: Final = pa.RecordBatch | pa.Table | pa.RecordBatchReader


def one_column(source: Any, name: str) -> Column:
    """Return the column that is given, or the only one of what is given; an array alone gets a name.

    Raises
    ------
    UsageError
        It is not Arrow data, or has another number of columns.

    Examples
    --------
    >>> one_column(pa.array([1, 2]), "a").name, one_column({"b": [1, 2]}, "a").name
    ('a', 'b')
    """
    if isinstance(source, Column):
        return source
    alone = _alone(source, name)
    if alone is None:
        try:
            batch = Batch.from_arrow(source)
        except UsageError:
            # Streams say only when they are opened whether they are of columns or of one array.
            if isinstance(source, _TABULAR | Batch) or not hasattr(source, "__arrow_c_stream__"):
                raise
            batch = Batch.from_arrow(pa.table({name: _chunks(source)}))
    else:
        batch = Batch.from_arrow(alone)
    if batch.num_columns != 1:
        raise UsageError("one column is needed", expected="one column", found=batch.schema.names)
    return batch[0]


def _alone(source: Any, name: str) -> pa.Table | None:
    """Return an array as a table of it, ``None`` where it is none, or holds the columns of a batch."""
    if isinstance(source, pa.Array):
        return pa.table({name: source})
    if isinstance(source, pa.ChunkedArray):
        return pa.table({name: _without_cut(source)})
    if isinstance(source, Batch | Mapping | _TABULAR) or not hasattr(source, "__arrow_c_array__"):
        return None
    try:
        field = _field(source)
        found = pa.Array._import_from_c_capsule(*source.__arrow_c_array__())
    except ClosedError:
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError("not a column", found=f"{type(source).__name__}: {error}") from error
    marked = field is not None and _NAME in (field.metadata or {})
    if found.type.id == pa.lib.Type_STRUCT and not marked:
        return None
    metadata = field.metadata if field is not None else None
    return pa.table([found], schema=pa.schema([pa.field(name, found.type, metadata=metadata)]))


def _field(source: Any) -> pa.Field | None:
    """Return an array's type with its metadata, which say of what extension it is."""
    if not hasattr(source, "__arrow_c_schema__"):
        return None
    return pa.Field._import_from_c_capsule(source.__arrow_c_schema__())


def _chunks(source: Any) -> pa.ChunkedArray:
    try:
        return _without_cut(pa.chunked_array(source))
    except ClosedError:
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UsageError("not a column", found=f"{type(source).__name__}: {error}") from error


def _without_cut(chunks: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return chunks that can become one: the offsets of all texts together may not fit 32 bits."""
    wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(chunks.type)
    return chunks.cast(wide) if wide is not None and chunks.num_chunks > 1 else chunks
