"""What `get` must give, worked out in plain Python from decoded values."""

from __future__ import annotations

import decimal
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bowstring.columnar.column import Column
from bowstring.variant import Status
from bowstring.variant.decode import Value

Found = tuple[Status, Any]
UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
INTEGERS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
EXACT = ("int8", "int16", "int32", "int64", "decimal4", "decimal8", "decimal16")
TYPES: list[pa.DataType] = [
    pa.bool_(),
    *INTEGERS,
    pa.float32(),
    pa.float64(),
    *(pa.decimal32(9, scale) for scale in (0, 3)),
    *(pa.decimal64(18, scale) for scale in (0, 9)),
    *(pa.decimal128(digits, scale) for digits, scale in ((38, 0), (38, 38), (20, 2), (5, 1))),
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    *(pa.timestamp(unit, zone) for unit in UNITS for zone in (None, "UTC")),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.binary(2),
    pa.uuid(),
]
"""Every type but the Variant."""


def walked(value: Value | None, path: Sequence[str | int]) -> Value | Status:
    """Return the value at a path, or why there is none."""
    if value is None:
        return Status.SQL_NULL
    for step in path:
        holder = "object" if isinstance(step, str) else "array"
        inside = value.value if value.type == holder else {}
        if step not in (inside if isinstance(step, str) else range(len(inside))):
            return Status.MISSING
        value = inside[step]
    return Status.VARIANT_NULL if value.type == "null" else value


def expected(value: Value | None, path: Sequence[str | int], type_: pa.DataType) -> Found:
    """Return the status, and what the row holds: a number as it is stored, a Decimal, bytes or text."""
    found = walked(value, path)
    return (found, None) if isinstance(found, Status) else cast(found, type_)


def cast(value: Value, type_: pa.DataType) -> Found:
    kind, held = value.type, value.value
    if type_ in INTEGERS and kind in EXACT:
        return whole(decimal.Decimal(held), INTEGERS[type_])
    if pa.types.is_decimal(type_) and kind in EXACT:
        return rescaled(decimal.Decimal(held), type_)
    if type_ == pa.bool_() and kind == "boolean":
        return Status.OK, held
    if (type_, kind) in ((pa.float32(), "float"), (pa.float64(), "double")):
        return Status.OK, struct.pack("<d", held)
    if type_ == pa.date32() and kind == "date":
        return Status.OK, held
    if type_ == pa.date64() and kind == "date":
        return Status.OK, held * 86_400_000
    if pa.types.is_time(type_) and kind == "time":
        return in_unit(held, 1_000_000, UNITS[type_.unit])
    if (
        pa.types.is_timestamp(type_)
        and kind.startswith("timestamp")
        and ("ntz" in kind) == (type_.tz is None)
    ):
        return in_unit(held, 1_000_000_000 if kind.endswith("_ns") else 1_000_000, UNITS[type_.unit])
    if type_ in (pa.string(), pa.large_string()) and kind == "string":
        return Status.OK, held
    if type_ in (pa.binary(), pa.large_binary()) and kind == "binary":
        return Status.OK, held
    if type_ == pa.uuid() and kind == "uuid":
        return Status.OK, held.bytes
    if type_ == pa.binary(2) and kind == "binary":
        return (Status.OK, held) if len(held) == 2 else (Status.OVERFLOW, None)
    return Status.TYPE_MISMATCH, None


def whole(number: decimal.Decimal, bits: int) -> Found:
    numerator, denominator = number.as_integer_ratio()
    if denominator != 1 or not -(1 << bits - 1) <= numerator < 1 << bits - 1:
        return Status.OVERFLOW, None
    return Status.OK, numerator


def rescaled(number: decimal.Decimal, type_: pa.DataType) -> Found:
    numerator, denominator = number.as_integer_ratio()
    unscaled, rest = divmod(numerator * 10**type_.scale, denominator)
    if rest or abs(unscaled) >= 10**type_.precision:
        return Status.OVERFLOW, None
    return Status.OK, unscaled


def in_unit(number: int, source: int, target: int) -> Found:
    found, rest = divmod(number * target, source)
    return (Status.OVERFLOW, None) if rest or not -(2**63) <= found < 2**63 else (Status.OK, found)


def held(column: Column, type_: pa.DataType) -> list[Any]:
    """Return what a column holds, as `expected` spells it."""
    array = column.to_arrow()
    if pa.types.is_decimal(type_):
        return [
            None if each is None else int(each.scaleb(type_.scale, decimal.Context(prec=80)))
            for each in array.to_pylist()
        ]
    if pa.types.is_floating(type_):
        return [None if each is None else struct.pack("<d", each) for each in array.to_pylist()]
    if pa.types.is_temporal(type_):
        width = pa.int32() if type_.bit_width == 32 else pa.int64()
        return array.view(width).to_pylist()
    return array.to_pylist()
