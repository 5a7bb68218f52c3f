"""What `get` must give, worked out in plain Python from decoded values."""

from __future__ import annotations

import decimal
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.errors import BowstringError
from bowstring.variant import Status, Value
from tests.variant.decoding import decode, decode_all
from tests.variant.number_oracle import FLOATS
from tests.variant.number_oracle import expected as number_of

Found = tuple[Status, Any]
UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
INTEGERS = {
    type_: range(np.iinfo(type_.to_pandas_dtype()).min, int(np.iinfo(type_.to_pandas_dtype()).max) + 1)
    for type_ in (
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.uint8(),
        pa.uint16(),
        pa.uint32(),
        pa.uint64(),
    )
}
TYPES: list[pa.DataType] = [
    pa.bool_(),
    *INTEGERS,
    pa.float16(),
    pa.float32(),
    pa.float64(),
    *(pa.decimal32(9, scale) for scale in (0, 3)),
    *(pa.decimal64(18, scale) for scale in (0, 9)),
    *(pa.decimal128(digits, scale) for digits, scale in ((38, 0), (38, 38), (20, 2), (5, 1))),
    *(pa.decimal256(digits, scale) for digits, scale in ((76, 0), (76, 38), (76, 76), (39, 2), (5, 1))),
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
    pa.string_view(),
    pa.binary_view(),
    pa.binary(2),
    pa.uuid(),
]
"""Every type but the Variant and those that hold others."""
LISTS = (
    pa.lib.Type_LIST,
    pa.lib.Type_LARGE_LIST,
    pa.lib.Type_FIXED_SIZE_LIST,
    pa.lib.Type_LIST_VIEW,
    pa.lib.Type_LARGE_LIST_VIEW,
)


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
    if type_ in INTEGERS or type_ in FLOATS or pa.types.is_decimal(type_):
        return as_stored(number_of(value, type_), type_)
    if type_ == pa.bool_() and kind == "boolean":
        return Status.OK, held
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
    if type_ in (pa.string(), pa.large_string(), pa.string_view()) and kind == "string":
        return Status.OK, held
    if type_ in (pa.binary(), pa.large_binary(), pa.binary_view()) and kind == "binary":
        return Status.OK, held
    if type_ == pa.uuid() and kind == "uuid":
        return Status.OK, held.bytes
    if type_ == pa.binary(2) and kind == "binary":
        return (Status.OK, held) if len(held) == 2 else (Status.OVERFLOW, None)
    if type_.id in LISTS and kind == "array":
        if type_.id == pa.lib.Type_FIXED_SIZE_LIST and len(held) != type_.list_size:
            return Status.OVERFLOW, None
        items = [inner(each, type_.value_type) for each in held]
        return worst(items), [each for _, each in items]
    if pa.types.is_struct(type_) and kind == "object":
        fields = [type_.field(index) for index in range(type_.num_fields)]
        found = {
            each.name: inner(held[each.name], each.type) if each.name in held else (Status.MISSING, None)
            for each in fields
        }
        return worst(found.values()), {name: each for name, (_, each) in found.items()}
    if pa.types.is_map(type_) and kind == "object":
        found = {name: inner(held[name], type_.item_type) for name in sorted(held, key=str.encode)}
        return worst(found.values()), [(name, each) for name, (_, each) in found.items()]
    return Status.TYPE_MISMATCH, None


def inner(value: Value, type_: pa.DataType) -> Found:
    """Return what a value inside another becomes: a Variant null is one as a Variant alone."""
    if isinstance(type_, variant.VariantType):
        return Status.OK, value
    return (Status.VARIANT_NULL, None) if value.type == "null" else cast(value, type_)


def worst(found: Iterable[Found]) -> Status:
    """Return the status of what holds others."""
    return max((status for status, _ in found if status.is_error), default=Status.OK)


def as_stored(found: Found, type_: pa.DataType) -> Found:
    status, number = found
    if number is None:
        return found
    if type_ in FLOATS:
        return status, struct.pack("<d", number)
    if pa.types.is_decimal(type_):
        return status, int(number.scaleb(type_.scale, decimal.Context(prec=100)))
    return found


def in_unit(number: int, source: int, target: int) -> Found:
    found, rest = divmod(number * target, source)
    return (Status.OVERFLOW, None) if rest or not -(2**63) <= found < 2**63 else (Status.OK, found)


def held(column: Column, type_: pa.DataType) -> list[Any]:
    """Return what a column holds, as `expected` spells it."""
    return plain(column.to_arrow(), type_)


def decoded(metadata: bytes, value: bytes) -> Value | str:
    """Return a value, or what is wrong with it."""
    try:
        return decode(metadata, value)
    except BowstringError as error:
        return str(error)


def plain(array: pa.Array, type_: pa.DataType) -> list[Any]:
    if isinstance(type_, variant.VariantType):
        pairs = [None if each is None else (each["metadata"], each["value"]) for each in array.to_pylist()]
        try:
            return decode_all(pairs)
        except BowstringError:
            return [None if pair is None else decoded(*pair) for pair in pairs]
    if type_.id in LISTS:
        return [None if not each.is_valid else plain(each.values, type_.value_type) for each in array]
    if pa.types.is_struct(type_):
        columns = [plain(array.field(index), type_.field(index).type) for index in range(type_.num_fields)]
        names = [type_.field(index).name for index in range(type_.num_fields)]
        rows = list(zip(*columns, strict=True)) or [()] * len(array)
        valid = array.is_valid().to_pylist()
        return [
            dict(zip(names, row, strict=True)) if ok else None for row, ok in zip(rows, valid, strict=True)
        ]
    if pa.types.is_map(type_):
        items = plain(array.items, type_.item_type)
        keys, ends = array.keys.to_pylist(), array.offsets.to_pylist()
        bounds = zip(array.is_valid().to_pylist(), ends[:-1], ends[1:], strict=True)
        return [list(zip(keys[a:b], items[a:b], strict=True)) if ok else None for ok, a, b in bounds]
    if pa.types.is_decimal(type_):
        return [
            None if each is None else int(each.scaleb(type_.scale, decimal.Context(prec=100)))
            for each in array.to_pylist()
        ]
    if pa.types.is_floating(type_):
        return [None if each is None else struct.pack("<d", each) for each in array.to_pylist()]
    if pa.types.is_temporal(type_):
        width = pa.int32() if type_.bit_width == 32 else pa.int64()
        return array.view(width).to_pylist()
    return array.to_pylist()
