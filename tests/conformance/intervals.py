"""Intervals of months and of days: pyarrow carries them, but its Python side has no classes for them.

A *twin* is a type, or a batch, in which they are the integers of the same width that they are stored as.
"""

from __future__ import annotations

from typing import Any, Final

import nanoarrow
import pyarrow as pa

__all__ = ["DAY_TIME", "MONTHS", "retagged"]


def _taken(schema: Any) -> pa.DataType:
    return pa.DataType._import_from_c_capsule(schema.__arrow_c_schema__())


MONTHS: Final = _taken(nanoarrow.interval_months())
"""``Interval(YEAR_MONTH)``: an int32 of months."""
DAY_TIME: Final = _taken(nanoarrow.interval_day_time())
"""``Interval(DAY_TIME)``: two int32, days and milliseconds."""


class _Retagged:
    """The arrays of one batch under the schema of another, for the C data interface."""

    def __init__(self, twin: pa.RecordBatch, schema: pa.Schema) -> None:
        self._twin = twin
        self._schema = schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        return self._schema.__arrow_c_schema__(), self._twin.__arrow_c_array__()[1]


def retagged(twin: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch over the same memory whose schema says interval where the twin's says integer."""
    return (
        twin if twin.schema.equals(schema, check_metadata=True) else pa.record_batch(_Retagged(twin, schema))
    )
