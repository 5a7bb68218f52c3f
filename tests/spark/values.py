"""What values mean to Spark, from arrays of any type: what its conversions are held against."""

from __future__ import annotations

import bisect
import datetime as dt
import decimal
import itertools
from typing import Any

import pyarrow as pa

from bowstring.spark.batches import Normaliser

__all__ = ["normalise", "plain"]

_UNITS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_FIXED = pa.lib.Type_FIXED_SIZE_LIST
_VIEWS = (pa.lib.Type_LIST_VIEW, pa.lib.Type_LARGE_LIST_VIEW)


def plain(array: Any) -> list[Any]:
    """Return values as Python has them, but for times: microseconds, cut downwards, with "UTC" or not.

    Maps are lists of pairs, structs lists of pairs of names and values; what is encoded is decoded. Scalars of
    pyarrow are left alone: those of encoded, nested values end the process.
    """
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return plain(array.storage)
    if pa.types.is_dictionary(type_):
        values = plain(array.dictionary)
        return [None if index is None else values[index] for index in array.indices.to_pylist()]
    if pa.types.is_run_end_encoded(type_):
        ends, values = array.run_ends.to_pylist(), plain(array.values)
        return [values[bisect.bisect_right(ends, array.offset + row)] for row in range(len(array))]
    found = _nested(array) if pa.types.is_nested(type_) else _leaves(array)
    return [
        value if valid else None for value, valid in zip(found, array.is_valid().to_pylist(), strict=True)
    ]


def _nested(array: Any) -> list[Any]:
    type_ = array.type
    if pa.types.is_struct(type_):
        names = [field.name for field in type_]
        columns = [plain(array.field(position)) for position in range(type_.num_fields)]
        return [
            [(name, column[row]) for name, column in zip(names, columns, strict=True)]
            for row in range(len(array))
        ]
    if pa.types.is_map(type_):
        values: list[Any] = list(zip(plain(array.keys), plain(array.items), strict=True))
    else:
        values = plain(array.values)
    if type_.id == _FIXED:
        size = type_.list_size
        starts = [(array.offset + row) * size for row in range(len(array))]
        return [values[start : start + size] for start in starts]
    if type_.id in _VIEWS:
        spans = zip(array.offsets.to_pylist(), array.sizes.to_pylist(), strict=True)
        return [values[start : start + size] for start, size in spans]
    return [values[begin:end] for begin, end in itertools.pairwise(array.offsets.to_pylist())]


def _leaves(array: Any) -> list[Any]:
    type_ = array.type
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_):
        zone = "UTC" if pa.types.is_timestamp(type_) and type_.tz else None
        return [(_micros(value, type_.unit), zone) for value in array.cast(pa.int64()).to_pylist()]
    if pa.types.is_time(type_):
        width = pa.int32() if pa.types.is_time32(type_) else pa.int64()
        return [_micros(value, type_.unit) for value in array.cast(width).to_pylist()]
    return [_leaf(value) for value in array.to_pylist()]


def _micros(value: int | None, unit: str) -> int | None:
    return None if value is None else value * _UNITS[unit] // 1000


def _leaf(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return decimal.Decimal(value)
    return value.date() if isinstance(value, dt.datetime) else value


def normalise(batch: Any, *, truncate: bool = False) -> pa.RecordBatch:
    """Return a batch in the types that Spark takes."""
    source = batch if isinstance(batch, pa.RecordBatch) else batch.to_arrow()
    return Normaliser(source.schema, truncate=truncate)(source)
