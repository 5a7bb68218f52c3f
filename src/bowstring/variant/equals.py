"""Whether Variants mean the same."""

from __future__ import annotations

import math
from typing import Any, Final

import pyarrow as pa

from bowstring.columnar.column import Column
from bowstring.errors import UsageError
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.variant.build import column_of
from bowstring.variant.decode import Value
from bowstring.variant.python_rows import open_on_host, values

__all__ = ["equals", "same"]

_EXACT_NUMERIC: Final = frozenset(("int8", "int16", "int32", "int64", "decimal4", "decimal8", "decimal16"))
_NANOSECONDS: Final = {"timestamp": 1000, "timestamp_ns": 1, "timestamp_ntz": 1000, "timestamp_ntz_ns": 1}


def equals(left: Any, right: Any, *, plain: bool = False, limits: Limits = DEFAULT_LIMITS) -> Column:
    """Return whether the Variants in each row of two columns mean the same.

    Bytes do not count, meaning does, by the equivalence classes of the specification: 1, 1.00 and any width of
    them are one number; a float and a double are not; timestamps are one instant in micro- or nanoseconds, with
    or without a zone are two things; the order of an object's fields and of its dictionary is nothing. A NaN
    equals a NaN, and 0.0 equals -0.0.

    Parameters
    ----------
    left, right
        Variant columns on the host of one length, or their Arrow arrays.
    plain
        Take structs that are not marked as Variants.
    limits
        ``depth`` bounds the nesting.

    Returns
    -------
    Column
        ``bool``; null where either row is an SQL NULL. A Variant null equals a Variant null.

    Raises
    ------
    UsageError
        The columns are not of one length.
    InvalidBody, Truncated, Unsupported, LimitExceeded
        A value is not what the specification says, or too deep; the error says its row.
    NotOnDevice
        A column is not on the host.

    Examples
    --------
    >>> from bowstring.variant.json_text import from_json
    >>> left, right = from_json(["1", '{"a": 1}', "1"]), from_json(["1.00", '{"a": 2}', None])
    >>> equals(left, right).to_arrow().to_pylist()
    [True, False, None]
    """
    sides = [open_on_host(side, "equals", plain=plain) for side in (left, right)]
    if sides[0].rows != sides[1].rows:
        raise UsageError("columns of different lengths", expected=sides[0].rows, found=sides[1].rows)
    pairs = zip(*(values(side, limits=limits) for side in sides), strict=True)
    found = [None if one is None or other is None else same(one, other) for one, other in pairs]
    return column_of(pa.array(found, pa.bool_()), pa.field(sides[0].column.name, pa.bool_()))


def same(left: Value, right: Value) -> bool:
    """Return whether two trees mean the same.

    Examples
    --------
    >>> same(Value("int8", 1), Value("int64", 1))
    True
    """
    work = [(left, right)]
    while work:
        left, right = work.pop()
        if _class(left.type) != _class(right.type):
            return False
        if left.type == "object":
            if left.value.keys() != right.value.keys():
                return False
            work.extend((child, right.value[key]) for key, child in left.value.items())
        elif left.type == "array":
            if len(left.value) != len(right.value):
                return False
            work.extend(zip(left.value, right.value, strict=True))
        elif not _same_leaf(left, right):
            return False
    return True


def _class(type_: str) -> str:
    """Return the equivalence class of a type."""
    if type_ in _EXACT_NUMERIC:
        return "exact numeric"
    return type_.removesuffix("_ns")


def _same_leaf(left: Value, right: Value) -> bool:
    if left.type in _NANOSECONDS:
        return bool(left.value * _NANOSECONDS[left.type] == right.value * _NANOSECONDS[right.type])
    if left.type in ("double", "float") and math.isnan(left.value):
        return math.isnan(right.value)
    return bool(left.value == right.value)
