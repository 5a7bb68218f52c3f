"""Which values are plain numbers to a type: the walk along a path reads them, where a header says all."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

import numpy as np

from bowstring.kernels.variant import numbers
from bowstring.kernels.variant.walk_fast import LATER, WHOLE
from bowstring.variant.cast import Numbers
from bowstring.variant.status import Status
from bowstring.variant.tree import Number, lengths

if TYPE_CHECKING:
    from bowstring.variant.cast import Target

__all__ = ["plain_number"]

_INT8, _DOUBLE, _DECIMAL4, _DATE, _FLOAT = 3, 7, 8, 11, 14
_MICROS: Final = {int(numbers.TIMESTAMP): 12, int(numbers.TIMESTAMP_NTZ): 13}
_NANOS: Final = {int(numbers.TIMESTAMP): 18, int(numbers.TIMESTAMP_NTZ): 19}
_WIDE, _HALF = 0, 32  # values of eight and of four bytes
_NUMBER_1: Final = 32
_KERNELS: Final = (
    numbers.cast_numbers_8,
    numbers.cast_numbers_16,
    numbers.cast_numbers_32,
    numbers.cast_numbers_64,
)


def plain_number(target: Target, cast: str = "exact") -> Number | None:
    """Return what the headers of values mean to a type, ``None`` where none is a plain number to it.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from bowstring.variant.cast import target_of
    >>> plain_number(target_of(pa.int32())).width, plain_number(target_of(pa.string()))
    (4, None)
    """
    if cast != "exact" or not isinstance(target, Numbers) or target.kernel not in _KERNELS:
        return None
    family, low, high, unit = (each for each in target.arguments if isinstance(each, int))
    limits = np.iinfo(target.dtype)
    if (low, high) != (limits.min, limits.max):
        return None
    return _number(family, unit, limits.bits // 8)


@functools.cache
def _number(family: int, unit: int, width: int) -> Number | None:
    read, later = _types_of(family, unit)
    if not read:
        return None
    spans = lengths().copy()
    readings = np.full(256, int(WHOLE) + Status.TYPE_MISMATCH, np.uint16)
    readings[0] = int(WHOLE) + Status.VARIANT_NULL
    for kind, reading in read.items():
        readings[kind << 2] = reading
        if reading < int(WHOLE) and 8 - reading // 8 > width:
            spans[kind << 2] = 0  # it may not fit, and must be looked at
    for kind in later:
        readings[kind << 2] = LATER
        spans[kind << 2] = 0
    return Number(width, (spans << 8 | readings).tobytes())


def _types_of(family: int, unit: int) -> tuple[dict[int, int], list[int]]:
    """Return the types that are read and how, and those that need a cast."""
    if family == numbers.INTEGER:
        shifts = {_INT8 + k: 64 - (8 << k) for k in range(4)}
        return shifts, [_DECIMAL4, _DECIMAL4 + 1, _DECIMAL4 + 2]
    if family == numbers.BOOLEAN:
        return {1: int(WHOLE) + _NUMBER_1, 2: int(WHOLE)}, []
    if family == numbers.FLOAT:
        return {_FLOAT: _HALF}, []
    if family == numbers.DOUBLE:
        return {_DOUBLE: _WIDE}, []
    if family == numbers.DATE:
        return ({_DATE: _HALF}, []) if unit == 1 else ({}, [])
    if family in _MICROS and unit in (1_000_000, 1_000_000_000):
        same, other = _MICROS[family], _NANOS[family]
        if unit != 1_000_000:
            same, other = other, same
        return {same: _WIDE}, [other]
    return {}, []
