"""Filters that Spark pushes down, answered on Arrow batches exactly as Spark answers them.

Spark's three values (true, false, null) are Arrow's; its order is not everywhere: NaN equals NaN and is larger than
anything else. What is not surely the same is left to Spark.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Predicate", "keep", "kept", "predicate"]

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "EqualTo": pc.equal,
    "EqualNullSafe": pc.equal,
    "GreaterThan": pc.greater,
    "GreaterThanOrEqual": pc.greater_equal,
    "LessThan": pc.less,
    "LessThanOrEqual": pc.less_equal,
}
_TEXTS: Final = {
    "StringStartsWith": pc.starts_with,
    "StringEndsWith": pc.ends_with,
    "StringContains": pc.match_substring,
}


@dataclasses.dataclass(frozen=True)
class Predicate:
    """One condition on one column.

    Attributes
    ----------
    path
        The positions of the column and of the children inside of it.
    name
        The name of PySpark's class: ``EqualTo``, ``In``, ``IsNull``, …
    value : pyarrow Scalar or Array, str or None
        What is compared with.
    negated
        Whether it is the opposite that is asked for; of null, that is null.
    """

    path: tuple[int, ...]
    name: str
    value: Any = None
    negated: bool = False

    def mask(self, batch: pa.RecordBatch) -> Any:
        """Return for each row whether the condition holds; null where Spark says null."""
        column = batch.column(self.path[0])
        for position in self.path[1:]:
            column = pc.struct_field(column, position)
        found = self._mask(column)
        return pc.invert(found) if self.negated else found

    def _mask(self, column: Any) -> Any:
        name, value = self.name, self.value
        if name == "IsNull":
            return column.is_null()
        if name == "IsNotNull":
            return column.is_valid()
        if name == "In":
            found = pc.is_in(column, value_set=value)
            return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.bool_()))
        if name in _TEXTS:
            return _TEXTS[name](column, pattern=value)
        found = _COMPARISONS[name](column, value)
        if pa.types.is_floating(column.type) and name.startswith("GreaterThan"):
            found = pc.or_(found, pc.is_nan(column))
        return pc.fill_null(found, fill_value=False) if name == "EqualNullSafe" else found


def keep(batch: pa.RecordBatch, filters: Iterable[Any]) -> tuple[pa.RecordBatch, list[Any]]:
    """Return the rows for which PySpark's filters hold, and the filters that were not taken.

    Examples
    --------
    >>> keep(pa.record_batch({"a": [1, 2, None]}), [])[0].num_rows
    3
    """
    predicates: list[Predicate] = []
    rest: list[Any] = []
    for each in filters:
        found = predicate(each, batch.schema)
        if found is None:
            rest.append(each)
        else:
            predicates.append(found)
    return kept(batch, predicates), rest


def kept(batch: pa.RecordBatch, predicates: Sequence[Predicate]) -> pa.RecordBatch:
    """Return the rows for which all predicates hold."""
    if not predicates or not batch.num_rows:
        return batch
    whole = predicates[0].mask(batch)
    for each in predicates[1:]:
        whole = pc.and_kleene(whole, each.mask(batch))
    if whole.null_count == 0 and pc.all(whole, min_count=0).as_py():
        return batch
    return batch.filter(whole)


def predicate(asked: Any, schema: pa.Schema) -> Predicate | None:
    """Return what one of PySpark's filters asks of batches, or None where Spark has to answer it.

    Parameters
    ----------
    asked
        An ``EqualTo``, ``In``, ``Not`` … of ``pyspark.sql.datasource``.
    schema
        The schema of the batches, in Spark's types (:class:`bowstring.spark.types.Normaliser`).
    """
    name = type(asked).__name__
    if name == "Not":
        inner = predicate(asked.child, schema)
        return None if inner is None or inner.negated else dataclasses.replace(inner, negated=True)
    found = _find(tuple(getattr(asked, "attribute", ())), schema)
    if found is None:
        return None
    path, type_ = found
    if name in ("IsNull", "IsNotNull"):
        return Predicate(path, name)
    if name == "In":
        return _membership(path, type_, asked.value)
    if name in _TEXTS:
        fits = pa.types.is_string(type_) and isinstance(asked.value, str)
        return Predicate(path, name, asked.value) if fits else None
    if name == "EqualNullSafe" and asked.value is None:
        return Predicate(path, "IsNull")
    if name not in _COMPARISONS or (pa.types.is_boolean(type_) and not name.startswith("Equal")):
        return None
    scalar = _scalar(asked.value, type_)
    return None if scalar is None else Predicate(path, name, scalar)


def _membership(path: tuple[int, ...], type_: pa.DataType, values: Any) -> Predicate | None:
    scalars = [_scalar(value, type_) for value in values]
    # Spark tells -0.0 and 0.0 apart in long lists only, and a null in the list makes a null of every miss.
    if any(scalar is None for scalar in scalars) or pa.types.is_floating(type_):
        return None
    return Predicate(path, "In", pa.array(scalars, type_))


def _find(attribute: tuple[str, ...], schema: pa.Schema) -> tuple[tuple[int, ...], pa.DataType] | None:
    """Return the positions and the type of a column, or of a child of structs, by exact and only name."""
    fields: Any = list(schema)
    path: list[int] = []
    type_: Any = None
    for name in attribute:
        found = [position for position, field in enumerate(fields) if field.name == name]
        if len(found) != 1:
            return None
        path += found
        type_ = fields[found[0]].type
        fields = list(type_) if pa.types.is_struct(type_) else []
    return (tuple(path), type_) if path else None


def _scalar(value: Any, type_: pa.DataType) -> Any:
    """Return a literal in a column's type, or None where it is not surely the same there."""
    made = _literal(value, type_)
    if made is None:
        return None
    try:
        return pa.scalar(made, type_)
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        return None


def _literal(value: Any, type_: pa.DataType) -> Any:
    if pa.types.is_boolean(type_):
        return value if isinstance(value, bool) else None
    if pa.types.is_integer(type_):
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if pa.types.is_floating(type_):
        # NaN is left to Spark; a literal that is no float32 is compared as a double there.
        if not isinstance(value, float) or math.isnan(value):
            return None
        with np.errstate(over="ignore"):
            fits = type_ == pa.float64() or float(np.float32(value)) == value
        return value if fits else None
    if pa.types.is_decimal(type_):
        return value if isinstance(value, decimal.Decimal) and value.is_finite() else None
    if pa.types.is_string(type_):
        return value if isinstance(value, str) else None
    if pa.types.is_binary(type_):
        return bytes(value) if isinstance(value, (bytes, bytearray)) else None
    if pa.types.is_date(type_):
        return value if isinstance(value, dt.date) and not isinstance(value, dt.datetime) else None
    if pa.types.is_timestamp(type_) and isinstance(value, dt.datetime):
        if (value.tzinfo is None) != (type_.tz is None):
            return None
        epoch = _EPOCH if value.tzinfo else _EPOCH.replace(tzinfo=None)
        return (value - epoch) // dt.timedelta(microseconds=1)
    return None
