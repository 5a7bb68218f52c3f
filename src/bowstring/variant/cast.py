"""What Variant values become: for each Arrow type the kernel that casts to it, and what that must know.

By the rule ``exact``, a value becomes what is in its own class of equivalence (whole numbers and decimals are one),
where nothing is lost. By the rule ``number``, all numbers are one class, and a float takes the nearest one.
``TYPE_MISMATCH`` is another class, ``OVERFLOW`` a loss. Arrays become lists, objects structs and maps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.errors import Unsupported, UsageError
from bowstring.kernels.variant import decimals, numbers, slots
from bowstring.kernels.variant.spark.decimals import spark_decimals
from bowstring.kernels.variant.spark.numbers import spark_numbers
from bowstring.variant.column import VariantType
from bowstring.variant.path import Path

_UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_OF_MS: Final = 86_400_000


@dataclasses.dataclass(frozen=True, slots=True)
class Numbers:
    """A type of a fixed width: one launch writes `repeat` numbers of `dtype` for each row. Among the arguments,
    a tuple stands for an array of uint64.
    """

    kernel: Callable[..., None]
    arguments: tuple[int | tuple[int, ...], ...]
    dtype: Any
    repeat: int = 1
    bits: bool = False  # packed after the launch
    blocks: bool = False  # a work item is a block of rows
    kept: Any = None  # the dtype in which the first of the numbers of each row is kept


@dataclasses.dataclass(frozen=True, slots=True)
class Bytes:
    """Text or binary of any length, or of one `width`; `views` of it, if so."""

    family: int
    large: bool = False
    views: bool = False
    width: int = -1


SPARK_TEXT: Final = -1
"""In the place of a family: text, which everything becomes in Spark."""


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """The Variant below the path, as it is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Nulls:
    """Nothing but nulls, which a Variant null is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Elements:
    """The elements of an array, or what is at a `path` in each: `size` of them, where it is given."""

    item: Target
    large: bool = False
    size: int | None = None
    views: bool = False
    path: Path = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Fields:
    """The fields of an object that have these names."""

    names: tuple[str, ...]
    targets: tuple[Target, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Entries:
    """All fields of an object, by name."""

    key: Bytes
    item: Target


Target = Numbers | Bytes | Value | Nulls | Elements | Fields | Entries


def target_of(type_: Any, cast: str) -> Target:
    """Return how values become an Arrow type, by the rule ``"number"``, ``"exact"`` or ``"spark"``."""
    if isinstance(type_, VariantType):
        return Value()
    if not isinstance(type_, pa.DataType):
        raise UsageError("no type to cast to", expected="a pyarrow.DataType", found=repr(type_))
    if cast == "spark":
        found = _SPARK.get(type_.id)
        if type_.id in _DECIMALS and type_.scale >= 0:
            found = Numbers(spark_decimals, _decimal_rule(type_), np.uint64, 2, kept=_DECIMALS[type_.id])
        elif type_.id == pa.lib.Type_TIMESTAMP and type_.unit == "us" and type_.tz in (None, "UTC"):
            family = numbers.TIMESTAMP_NTZ if type_.tz is None else numbers.TIMESTAMP
            found = _spark_number(family, np.int64)
    elif type_ == pa.uuid():
        found = Bytes(int(slots.UUID), width=16)
    else:
        found = _NUMBERS.get(type_.id) if cast == "number" else None
        found = found or _FIXED.get(type_.id) or _others(type_, floats=int(cast == "number"))
    found = found or _nested(type_, cast)
    if found is None and cast == "spark":
        raise Unsupported(
            f"Spark has no type {type_}",
            expected="null, bool, int8 to int64, float32, float64, a decimal of at most 38 digits, date32, "
            "timestamps in microseconds with the time zone UTC or without one, string, binary, variant.type(), or "
            "lists, structs and maps of these",
        )
    if found is None:
        raise Unsupported(
            f"no Variant value becomes {type_}",
            expected="null, bool, an integer, a float, a decimal, a date, a time, a timestamp, string, binary, "
            "uuid, variant.type(), or lists, structs and maps of these",
        )
    return found


def _nested(type_: pa.DataType, cast: str) -> Elements | Fields | Entries | None:
    """Return how arrays and objects become a type that holds others; None for any other type."""
    if type_.id in _LISTS:
        large, views = _LISTS[type_.id]
        return Elements(_inside(type_.value_field, cast), large, views=views)
    if type_.id == pa.lib.Type_FIXED_SIZE_LIST:
        return Elements(_inside(type_.value_field, cast), size=type_.list_size)
    if type_.id == pa.lib.Type_STRUCT:
        fields = [type_.field(index) for index in range(type_.num_fields)]
        return Fields(tuple(each.name for each in fields), tuple(_inside(each, cast) for each in fields))
    if type_.id == pa.lib.Type_MAP:
        key = _FIXED.get(type_.key_type.id)
        if not isinstance(key, Bytes) or key.family != slots.TEXT or key.views or type_.keys_sorted:
            raise Unsupported(
                "fields of an object become no such map",
                expected="keys of string or large_string that need no order",
                found=str(type_),
            )
        return Entries(key, _inside(type_.item_field, cast))
    return None


def _inside(field: pa.Field, cast: str) -> Target:
    if not field.nullable:
        raise Unsupported(
            "what is in a Variant may be missing or null",
            expected="a field that may be null",
            found=f"{field.name}: {field.type} not null",
        )
    return target_of(field.type, cast)


def _number(family: Any, dtype: Any, unit: int = 1, *, signed: bool = True) -> Numbers:
    """Return how values become integers of a width; those without a sign are stored as if they had one."""
    limits = np.iinfo(dtype)
    low, high = (int(limits.min), int(limits.max)) if signed else (0, 2 * int(limits.max) + 1)
    what = int(family), low, high, unit, 64 - limits.bits
    return Numbers(numbers.cast_numbers, what, dtype, blocks=True)


_SIGNED: Final[dict[int, Any]] = {
    pa.lib.Type_INT8: np.int8,
    pa.lib.Type_INT16: np.int16,
    pa.lib.Type_INT32: np.int32,
    pa.lib.Type_INT64: np.int64,
}
_UNSIGNED: Final[dict[int, Any]] = {
    pa.lib.Type_UINT8: np.int8,
    pa.lib.Type_UINT16: np.int16,
    pa.lib.Type_UINT32: np.int32,
}
# Whether offsets are large, and whether there are views.
_STRINGS: Final = {
    pa.lib.Type_STRING: (False, False),
    pa.lib.Type_LARGE_STRING: (True, False),
    pa.lib.Type_STRING_VIEW: (False, True),
}
_BINARIES: Final = {
    pa.lib.Type_BINARY: (False, False),
    pa.lib.Type_LARGE_BINARY: (True, False),
    pa.lib.Type_BINARY_VIEW: (False, True),
}
_FIXED: Final[dict[int, Target]] = {
    pa.lib.Type_NA: Nulls(),
    pa.lib.Type_BOOL: dataclasses.replace(_number(numbers.BOOLEAN, np.int8), bits=True),
    **{each: _number(numbers.INTEGER, dtype) for each, dtype in _SIGNED.items()},
    **{each: _number(numbers.INTEGER, dtype, signed=False) for each, dtype in _UNSIGNED.items()},
    pa.lib.Type_UINT64: _number(numbers.UNSIGNED, np.int64),
    pa.lib.Type_HALF_FLOAT: _number(numbers.HALF, np.int16),
    pa.lib.Type_FLOAT: _number(numbers.FLOAT, np.int32),
    pa.lib.Type_DOUBLE: _number(numbers.DOUBLE, np.int64),
    pa.lib.Type_DATE32: _number(numbers.DATE, np.int32),
    pa.lib.Type_DATE64: _number(numbers.DATE, np.int64, _DAY_OF_MS),
    **{each: Bytes(int(slots.TEXT), *form) for each, form in _STRINGS.items()},
    **{each: Bytes(int(slots.BINARY), *form) for each, form in _BINARIES.items()},
}


_NUMBERS: Final[dict[int, Target]] = {
    **{each: _number(numbers.ANY_INTEGER, dtype) for each, dtype in _SIGNED.items()},
    **{each: _number(numbers.ANY_INTEGER, dtype, signed=False) for each, dtype in _UNSIGNED.items()},
    pa.lib.Type_UINT64: _number(numbers.ANY_UNSIGNED, np.int64),
    pa.lib.Type_HALF_FLOAT: _number(numbers.ANY_HALF, np.int16),
    pa.lib.Type_FLOAT: _number(numbers.ANY_FLOAT, np.int32),
    pa.lib.Type_DOUBLE: _number(numbers.ANY_DOUBLE, np.int64),
}
"""What the rule ``number`` has another cast for."""
_LISTS: Final = {
    pa.lib.Type_LIST: (False, False),
    pa.lib.Type_LARGE_LIST: (True, False),
    pa.lib.Type_LIST_VIEW: (False, True),
    pa.lib.Type_LARGE_LIST_VIEW: (True, True),
}
_DECIMALS: Final = {
    pa.lib.Type_DECIMAL32: np.uint32,
    pa.lib.Type_DECIMAL64: np.uint64,
    pa.lib.Type_DECIMAL128: None,
}


def _others(type_: pa.DataType, *, floats: int) -> Target | None:
    """Return how values become a type with parameters; floats become decimals where `floats` is not 0."""
    if type_.id in _DECIMALS and type_.scale >= 0:
        what = *_decimal_rule(type_), floats
        return Numbers(decimals.cast_decimals, what, np.uint64, 2, kept=_DECIMALS[type_.id])
    if type_.id == pa.lib.Type_DECIMAL256 and type_.scale >= 0:
        words = tuple(10**type_.precision >> 64 * k & (2**64 - 1) for k in range(4))
        return Numbers(decimals.cast_decimals_256, (type_.scale, floats, words), np.uint64, 4)
    if type_.id == pa.lib.Type_TIMESTAMP:
        family = numbers.TIMESTAMP_NTZ if type_.tz is None else numbers.TIMESTAMP
        return _number(family, np.int64, _UNITS[type_.unit])
    if type_.id == pa.lib.Type_TIME64:
        return _number(numbers.TIME, np.int64, _UNITS[type_.unit])
    if type_.id == pa.lib.Type_TIME32:
        return _number(numbers.TIME, np.int32, _UNITS[type_.unit])
    if type_.id == pa.lib.Type_FIXED_SIZE_BINARY:
        return Bytes(int(slots.BINARY), width=type_.byte_width)
    return None


def _decimal_rule(type_: pa.DataType) -> tuple[int, int, int]:
    """Return the scale of a decimal, and in two words what its digits are less than."""
    bound = 10**type_.precision
    return type_.scale, bound >> 64, bound & (2**64 - 1)


def _spark_number(family: Any, dtype: Any, *, bits: bool = False) -> Numbers:
    limits = np.iinfo(dtype)
    what = int(family), int(limits.min), int(limits.max)
    return Numbers(spark_numbers, what, np.int64, bits=bits, kept=None if bits else dtype)


_SPARK: Final[dict[int, Target]] = {
    pa.lib.Type_NA: Nulls(),
    pa.lib.Type_BOOL: _spark_number(numbers.BOOLEAN, np.int8, bits=True),
    **{each: _spark_number(numbers.INTEGER, dtype) for each, dtype in _SIGNED.items()},
    pa.lib.Type_FLOAT: _spark_number(numbers.FLOAT, np.int32),
    pa.lib.Type_DOUBLE: _spark_number(numbers.DOUBLE, np.int64),
    pa.lib.Type_DATE32: _spark_number(numbers.DATE, np.int32),
    **{each: Bytes(SPARK_TEXT, *form) for each, form in _STRINGS.items()},
    **{each: Bytes(int(slots.EITHER), *form) for each, form in _BINARIES.items()},
}
