"""What Variant values become: for each Arrow type the kernel that casts to it, and what that must know.

The casts are exact: a value becomes what is in its own class of equivalence (whole numbers and decimals are one),
where nothing is lost. ``TYPE_MISMATCH`` is another class, ``OVERFLOW`` a loss.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.errors import Unsupported, UsageError
from bowstring.kernels import variant_bytes as of_bytes
from bowstring.kernels import variant_decimals as decimals
from bowstring.kernels import variant_numbers as numbers
from bowstring.variant.column import VariantType

__all__ = ["Bytes", "FixedBytes", "Numbers", "Target", "Value", "target_of"]

_UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_OF_MS: Final = 86_400_000


@dataclasses.dataclass(frozen=True, slots=True)
class Numbers:
    """A type of a fixed width: one launch writes `dtype`, `repeat` of them for each row.

    `bits` are packed after that; with `blocks`, a work item is a block of rows.
    """

    kernel: Callable[..., None]
    arguments: tuple[int, ...]
    dtype: Any
    repeat: int = 1
    bits: bool = False
    blocks: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Bytes:
    """Text or binary of any length."""

    family: int
    large: bool


@dataclasses.dataclass(frozen=True, slots=True)
class FixedBytes:
    """Bytes of one length."""

    family: int
    width: int


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """The Variant below the path, as it is."""


Target = Numbers | Bytes | FixedBytes | Value


def target_of(type_: Any) -> Target:
    """Return how values become an Arrow type.

    Raises
    ------
    UsageError
        It is no type.
    Unsupported
        No Variant value becomes it.

    Examples
    --------
    >>> target_of(pa.string()).large
    False
    """
    if isinstance(type_, VariantType):
        return Value()
    if not isinstance(type_, pa.DataType):
        raise UsageError("no type to cast to", expected="a pyarrow.DataType", found=repr(type_))
    if type_ == pa.uuid():
        return FixedBytes(int(of_bytes.UUID), 16)
    found = _FIXED.get(type_.id) or _others(type_)
    if found is None:
        raise Unsupported(
            f"no Variant value becomes {type_}",
            expected="bool, a signed integer, a float, a decimal of at most 38 digits, a date, a time, "
            "a timestamp, string, binary, uuid, or variant.type()",
        )
    return found


def _number(kernel: Callable[..., None], family: Any, dtype: Any, unit: int = 1) -> Numbers:
    limits = np.iinfo(dtype)
    return Numbers(kernel, (int(family), int(limits.min), int(limits.max), unit), dtype, blocks=True)


_FIXED: Final[dict[int, Target]] = {
    pa.lib.Type_BOOL: dataclasses.replace(
        _number(numbers.cast_numbers_8, numbers.BOOLEAN, np.int8), bits=True
    ),
    pa.lib.Type_INT8: _number(numbers.cast_numbers_8, numbers.INTEGER, np.int8),
    pa.lib.Type_INT16: _number(numbers.cast_numbers_16, numbers.INTEGER, np.int16),
    pa.lib.Type_INT32: _number(numbers.cast_numbers_32, numbers.INTEGER, np.int32),
    pa.lib.Type_INT64: _number(numbers.cast_numbers_64, numbers.INTEGER, np.int64),
    pa.lib.Type_FLOAT: _number(numbers.cast_numbers_32, numbers.FLOAT, np.int32),
    pa.lib.Type_DOUBLE: _number(numbers.cast_numbers_64, numbers.DOUBLE, np.int64),
    pa.lib.Type_DATE32: _number(numbers.cast_numbers_32, numbers.DATE, np.int32),
    pa.lib.Type_DATE64: _number(numbers.cast_numbers_64, numbers.DATE, np.int64, _DAY_OF_MS),
    pa.lib.Type_STRING: Bytes(int(of_bytes.TEXT), large=False),
    pa.lib.Type_LARGE_STRING: Bytes(int(of_bytes.TEXT), large=True),
    pa.lib.Type_BINARY: Bytes(int(of_bytes.BINARY), large=False),
    pa.lib.Type_LARGE_BINARY: Bytes(int(of_bytes.BINARY), large=True),
}
_DECIMALS: Final = {
    pa.lib.Type_DECIMAL32: (decimals.cast_decimals_32, np.uint32, 1),
    pa.lib.Type_DECIMAL64: (decimals.cast_decimals_64, np.uint64, 1),
    pa.lib.Type_DECIMAL128: (decimals.cast_decimals, np.uint64, 2),
}


def _others(type_: pa.DataType) -> Target | None:
    """Return how values become a type with parameters."""
    if type_.id in _DECIMALS and type_.scale >= 0:
        kernel, dtype, repeat = _DECIMALS[type_.id]
        bound = 10**type_.precision
        return Numbers(kernel, (type_.scale, bound >> 64, bound & (2**64 - 1)), dtype, repeat)
    if type_.id == pa.lib.Type_TIMESTAMP:
        family = numbers.TIMESTAMP_NTZ if type_.tz is None else numbers.TIMESTAMP
        return _number(numbers.cast_numbers_64, family, np.int64, _UNITS[type_.unit])
    if type_.id == pa.lib.Type_TIME64:
        return _number(numbers.cast_numbers_64, numbers.TIME, np.int64, _UNITS[type_.unit])
    if type_.id == pa.lib.Type_TIME32:
        return _number(numbers.cast_numbers_32, numbers.TIME, np.int32, _UNITS[type_.unit])
    if type_.id == pa.lib.Type_FIXED_SIZE_BINARY:
        return FixedBytes(int(of_bytes.BINARY), type_.byte_width)
    return None
