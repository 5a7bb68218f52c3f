"""One column out of whatever holds one: a Column, a batch, an array, a table, a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from bowstring.columnar.batch import Batch, Column
from bowstring.columnar.lookup import column_errors
from bowstring.columnar.marks import NAME_KEY
from bowstring.errors import UsageError

_TABULAR: Final = Batch | Mapping | pa.RecordBatch | pa.Table | pa.RecordBatchReader


def one_column(source: Any, name: str) -> Column:
    """Return a column, or the only column of a batch; an array alone gets the name."""
    if isinstance(source, Column):
        return source
    if isinstance(source, _TABULAR):
        batch = Batch.from_arrow(source)
    elif _is_array(source, name):
        batch = Batch.from_arrow({name: source})
    else:
        try:
            batch = Batch.from_arrow(source)
        except UsageError:
            # Streams say only when they are opened whether they are of columns or of one array.
            if not hasattr(source, "__arrow_c_stream__"):
                raise
            batch = Batch.from_arrow({name: source})
    if batch.num_columns != 1:
        raise UsageError("one column is needed", expected="one column", found=batch.schema.names)
    return batch[0]


def _is_array(source: Any, name: str) -> bool:
    """Whether this is an array, and not the columns of a batch: a struct that no extension type marks."""
    if isinstance(source, pa.Array | pa.ChunkedArray):
        return True
    if not hasattr(source, "__arrow_c_array__"):
        return False
    with column_errors(name):
        has_schema = hasattr(source, "__arrow_c_schema__")
        schema = source.__arrow_c_schema__() if has_schema else source.__arrow_c_array__()[0]
        field = pa.Field._import_from_c_capsule(schema)
    return field.type.id != pa.lib.Type_STRUCT or NAME_KEY in (field.metadata or {})
