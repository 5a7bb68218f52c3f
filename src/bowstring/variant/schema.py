"""The one Arrow type that holds what is in a Variant column."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import pyarrow as pa

from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.variant import column as variant_column
from bowstring.variant.decode import Value
from bowstring.variant.encode_primitives import unscaled
from bowstring.variant.python_rows import open_on_host, values

__all__ = ["schema_of"]

_TYPES: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp_ns": pa.timestamp("ns", "UTC"),
    "timestamp_ntz_ns": pa.timestamp("ns"),
    "binary": pa.binary(),
    "string": pa.string(),
    "uuid": pa.uuid(),
}
_INTS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_INT_DIGITS: Final = (3, 5, 10, 19)
_REALS: Final = (pa.float32(), pa.float64())
_MOST_DIGITS: Final = 38


def schema_of(column: Any, *, plain: bool = False, limits: Limits = DEFAULT_LIMITS) -> pa.DataType:
    """Return the narrowest Arrow type that holds every value of a Variant column.

    Parameters
    ----------
    column
        A Variant column on the host, or its Arrow array.
    plain
        Take a struct that is not marked as a Variant.
    limits
        ``depth`` bounds the nesting.

    Returns
    -------
    pyarrow.DataType
        Objects become structs of all their keys, in the order of their UTF-8; arrays lists; nulls fit anything.
        Integers widen, integers and decimals meet in a decimal128 of all their digits (beyond 38: in a double),
        numbers and doubles in a double, timestamps in nanoseconds where some are. Values of different kinds have
        :func:`bowstring.variant.type` in common. ``null`` where there is nothing but nulls.

    Raises
    ------
    InvalidBody, Truncated, Unsupported, LimitExceeded
        A value is not what the specification says, or too deep; the error says its row.
    NotOnDevice
        The column is not on the host.

    Examples
    --------
    >>> from bowstring.variant.python import from_python
    >>> schema_of(from_python([{"a": 1, "b": [1]}, {"a": 1000, "b": [2.5]}, None]))
    StructType(struct<a: int16, b: list<item: double>>)
    """
    merged: _Shape = pa.null()
    for row in values(open_on_host(column, "schema_of", plain=plain), limits=limits):
        if row is not None:
            merged = _merged(merged, row)
    return _arrow(merged)


class _Object(dict[str, "_Shape"]):
    """What has been found under each key of objects."""


class _Array(list["_Shape"]):
    """The one thing that has been found in arrays."""


class _Mixed:
    """Things of different kinds."""


_Shape: TypeAlias = pa.DataType | _Object | _Array | _Mixed


def _merged(shape: _Shape, value: Value) -> _Shape:
    """Return what holds both; the shape is changed in place where it is a container."""
    if isinstance(shape, _Mixed):
        return shape
    is_null = isinstance(shape, pa.DataType) and shape == pa.null()
    if value.type == "object":
        if is_null:
            shape = _Object()
        if not isinstance(shape, _Object):
            return _Mixed()
        for key, child in value.value.items():
            shape[key] = _merged(shape.get(key, pa.null()), child)
        return shape
    if value.type == "array":
        if is_null:
            shape = _Array([pa.null()])
        if not isinstance(shape, _Array):
            return _Mixed()
        for child in value.value:
            shape[0] = _merged(shape[0], child)
        return shape
    if value.type == "null":
        return shape
    if not isinstance(shape, pa.DataType):
        return _Mixed()
    found = _leaf(value)
    return found if is_null or found == shape else _common(shape, found)


def _leaf(value: Value) -> pa.DataType:
    if not value.type.startswith("decimal"):
        return _TYPES[value.type]
    number, scale = unscaled(value.value)
    digits = len(str(abs(number)))
    return pa.decimal128(max(digits, scale, 1), scale)


def _common(one: pa.DataType, other: pa.DataType) -> _Shape:
    for rule in (_of_timestamps, _of_numbers):
        found = rule(one, other)
        if found is not None:
            return found
    return _Mixed()


def _of_timestamps(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_timestamp(one) and pa.types.is_timestamp(other)) or one.tz != other.tz:
        return None
    return pa.timestamp("ns", one.tz)


def _of_numbers(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    exact = [_digits(type_) for type_ in (one, other)]
    if any(digits is None and type_ not in _REALS for digits, type_ in zip(exact, (one, other), strict=True)):
        return None
    if one in _INTS and other in _INTS:
        return _INTS[max(_INTS.index(one), _INTS.index(other))]
    whole_and_scale = [digits for digits in exact if digits is not None]
    if len(whole_and_scale) < len(exact):
        return pa.float64()
    whole = max(digits for digits, _ in whole_and_scale)
    scale = max(scale for _, scale in whole_and_scale)
    if whole + scale > _MOST_DIGITS:
        return pa.float64()
    return pa.decimal128(whole + scale, scale)


def _digits(type_: pa.DataType) -> tuple[int, int] | None:
    """Return the digits before and behind the point of an exact number."""
    if type_ in _INTS:
        return _INT_DIGITS[_INTS.index(type_)], 0
    if pa.types.is_decimal(type_):
        return type_.precision - type_.scale, type_.scale
    return None


def _arrow(shape: _Shape) -> pa.DataType:
    if isinstance(shape, _Object):
        return pa.struct([pa.field(key, _arrow(shape[key])) for key in sorted(shape)])
    if isinstance(shape, _Array):
        return pa.list_(_arrow(shape[0]))
    if isinstance(shape, _Mixed):
        return variant_column.type()
    return shape
