"""The one Arrow type that holds what is in a Variant column."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import pyarrow as pa

from bowstring.errors import LimitExceeded
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.variant import column as variant_column
from bowstring.variant.codec.decode import Value
from bowstring.variant.codec.primitives import unscaled
from bowstring.variant.codec.rows import in_row, open_on_host, values

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
_ITEM: Final = "item"
# pyarrow recurses over types: these levels take up to 4 MiB of a thread's stack; 10,000 end the process.
_MOST_LEVELS: Final = 2_000


def schema_of(column: Any, *, plain: bool = False, limits: Limits = DEFAULT_LIMITS) -> pa.DataType:
    """Return the narrowest Arrow type that holds every value of a Variant column.

    Parameters
    ----------
    column
        A Variant column on the host, or its Arrow array.
    plain
        Take a struct that is not marked as a Variant.
    limits
        ``depth`` bounds the nesting. A type has at most 2,000 levels whatever it is: pyarrow does not bear many
        more. Batches, and so :func:`~bowstring.variant.get`, take types of at most 64.

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
    >>> from bowstring.variant.python_objects import from_python
    >>> schema_of(from_python([{"a": 1, "b": [1]}, {"a": 1000, "b": [2.5]}, None]))
    StructType(struct<a: int16, b: list<item: double>>)
    """
    root = _Array({_ITEM: pa.null()})
    for number, row in enumerate(values(open_on_host(column, "schema_of", plain=plain), limits=limits)):
        if row is not None:
            try:
                _merge(root, row)
            except LimitExceeded as error:
                raise in_row(error, number) from error
    return _arrow(root)


class _Object(dict[str, "_Shape"]):
    """The type of each field of objects."""


class _Array(dict[str, "_Shape"]):
    """The type of the elements of arrays."""


class _Mixed:
    """Values of different kinds."""


_Shape: TypeAlias = pa.DataType | _Object | _Array | _Mixed


def _merge(root: _Array, value: Value) -> None:
    """Widen what is in `root` until it holds a value; work is a list, because documents may be deep."""
    work: list[tuple[_Object | _Array, str, Value, int]] = [(root, _ITEM, value, 0)]
    while work:
        holder, key, value, depth = work.pop()
        shape = holder.get(key, pa.null())
        if value.type in ("object", "array"):
            if depth >= _MOST_LEVELS:
                raise LimitExceeded(
                    "a Variant is nested too deeply for an Arrow type",
                    expected=f"at most {_MOST_LEVELS} levels",
                    hint="Take such a part as bowstring.variant.type().",
                )
            kind = _Object if value.type == "object" else _Array
            if isinstance(shape, pa.DataType) and shape == pa.null():
                shape = kind() if kind is _Object else kind({_ITEM: pa.null()})
            if isinstance(shape, _Object) and kind is _Object:
                work.extend((shape, name, child, depth + 1) for name, child in value.value.items())
            elif isinstance(shape, _Array) and kind is _Array:
                work.extend((shape, _ITEM, child, depth + 1) for child in value.value)
            else:
                shape = _Mixed()
        elif value.type != "null":
            shape = _with_leaf(shape, _leaf(value))
        holder[key] = shape


def _with_leaf(shape: _Shape, found: pa.DataType) -> _Shape:
    if not isinstance(shape, pa.DataType):
        return _Mixed()
    return found if found == shape or shape == pa.null() else _common(shape, found)


def _leaf(value: Value) -> pa.DataType:
    if not value.type.startswith("decimal"):
        return _TYPES[value.type]
    number, scale = unscaled(value.value)
    digits = len(str(abs(number)))
    return pa.decimal128(max(digits, scale, 1), scale)


def _common(one: pa.DataType, other: pa.DataType) -> _Shape:
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other) and one.tz == other.tz:
        return pa.timestamp("ns", one.tz)
    exact = [_digits(type_) for type_ in (one, other)]
    if any(digits is None and type_ not in _REALS for digits, type_ in zip(exact, (one, other), strict=True)):
        return _Mixed()
    if one in _INTS and other in _INTS:
        return max(one, other, key=_INTS.index)
    if None in exact:
        return pa.float64()
    whole, scale = (max(each) for each in zip(*exact, strict=True))
    return pa.decimal128(whole + scale, scale) if whole + scale <= _MOST_DIGITS else pa.float64()


def _digits(type_: pa.DataType) -> tuple[int, int] | None:
    """Return the digits before and behind the point of an exact number."""
    if type_ in _INTS:
        return _INT_DIGITS[_INTS.index(type_)], 0
    if pa.types.is_decimal(type_):
        return type_.precision - type_.scale, type_.scale
    return None


def _arrow(root: _Array) -> pa.DataType:
    """Return what is in `root` as an Arrow type: from the leaves up, each shape is replaced by its type."""
    found: list[tuple[_Object | _Array, str]] = [(root, _ITEM)]
    for holder, key in found:
        inside = holder[key]
        if isinstance(inside, _Object | _Array):
            found.extend((inside, each) for each in inside)
    for holder, key in reversed(found):
        inside = holder[key]
        if isinstance(inside, _Object):
            holder[key] = pa.struct([pa.field(each, inside[each]) for each in sorted(inside)])
        elif isinstance(inside, _Array):
            holder[key] = pa.list_(inside[_ITEM])
        elif isinstance(inside, _Mixed):
            holder[key] = variant_column.type()
    return root[_ITEM]
