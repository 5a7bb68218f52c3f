"""Typed leaves as Variant values: for each Arrow type its header, and which bytes follow it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.nodes import storage_type
from bowstring.columnar.slots import Slots, slots_of
from bowstring.errors import Unsupported
from bowstring.kernels.launch import launch, launch_shared
from bowstring.kernels.variant.shredded import (
    OUT_OF_RANGE,
    measure_decimals,
    measure_texts,
    write_fixed,
    write_texts,
)
from bowstring.variant.shredded.layout import is_binary, is_text

if TYPE_CHECKING:
    from bowstring.columnar.column import Column
    from bowstring.memory import Device

_TRUE, _FALSE = 1 << 2, 2 << 2
_INT8, _INT16, _INT32, _INT64, _DOUBLE = 3, 4, 5, 6, 7
_DATE, _FLOAT, _TIME, _UUID = 11, 14, 17, 20
_DECIMAL: Final = {4: 8, 8: 9, 16: 10}
_TIMESTAMPS: Final = {("us", True): 12, ("us", False): 13, ("ns", True): 18, ("ns", False): 19}
_SECONDS: Final = {"s": 1_000_000, "ms": 1_000}
_DAY_MICROS: Final = 86_400_000_000
_DAY_MILLIS: Final = 86_400_000
_MOST_64: Final = (1 << 63) - 1
_SIGNED: Final = {
    pa.lib.Type_INT8: (_INT8, 1),
    pa.lib.Type_INT16: (_INT16, 2),
    pa.lib.Type_INT32: (_INT32, 4),
    pa.lib.Type_INT64: (_INT64, 8),
    pa.lib.Type_FLOAT: (_FLOAT, 4),
    pa.lib.Type_DOUBLE: (_DOUBLE, 8),
    pa.lib.Type_DATE32: (_DATE, 4),
}
_WIDENED: Final = {
    pa.lib.Type_UINT8: (_INT16, np.int16),
    pa.lib.Type_UINT16: (_INT32, np.int32),
    pa.lib.Type_UINT32: (_INT64, np.int64),
    pa.lib.Type_HALF_FLOAT: (_FLOAT, np.float32),
}
_HINTS: Final = {
    pa.lib.Type_DURATION: "Cast it to pa.int64(), the number of its units, first.",
    pa.lib.Type_INTERVAL_MONTH_DAY_NANO: "Give its months, days and nanoseconds as a struct of integers.",
}
_DECIMALS: Final = {pa.lib.Type_DECIMAL32: 4, pa.lib.Type_DECIMAL64: 8, pa.lib.Type_DECIMAL128: 16}


@dataclasses.dataclass(frozen=True, slots=True)
class _Fixed:
    """Values of a fixed width: the first `width` of every `stride` bytes, behind a header and a scale.

    A header or scale of -1 is not written. With `digits`, decimals must not have more.
    """

    data: Any
    stride: int
    width: int
    header: int
    scale: int = -1
    digits: int = 0
    wrong: Any | None = None


@dataclasses.dataclass(slots=True)
class LeafBytes:
    """A typed column as Variant values; `flags` say which slots have one."""

    device: Device
    rows: int
    flags: Any
    form: _Fixed | Slots | None
    text: int = 0
    sizes: Any = None

    def measure(self, _groups: Any) -> Any:
        """Return the size of each slot."""
        xp, form, flags = self.device.xp, self.form, self.flags.view(np.uint8)
        self.sizes = xp.zeros(self.rows, np.int64)
        if isinstance(form, Slots):
            launch(measure_texts, self.rows, form.starts, form.stops, form.data, flags, self.text, self.sizes)
        elif form is not None and form.digits:
            most = 10**form.digits - 1
            bound = xp.asarray(np.array([most & (1 << 64) - 1, most >> 64], np.uint64))
            launch(measure_decimals, self.rows, form.data, form.stride, form.width, bound, flags, self.sizes)
        elif form is not None:
            size = np.int64(form.width + (form.header >= 0) + (form.scale >= 0))
            self.sizes = xp.where(self.flags, size, np.int64(0))
            if form.wrong is not None:
                self.sizes = xp.where(self.flags & form.wrong, OUT_OF_RANGE, self.sizes)
        return self.sizes

    def write(self, places: Any, out: Any) -> None:
        """Write the values to their places."""
        form = self.form
        if isinstance(form, Slots):
            slots = form.starts, form.stops, form.data
            launch_shared(write_texts, self.rows, *slots, self.text, self.sizes, places, out)
        elif form is not None:
            parts = form.data, form.stride, form.width, form.header, form.scale
            launch(write_fixed, self.rows, *parts, self.sizes, places, out)


def leaf_of(column: Column, flags: Any) -> LeafBytes:
    """Return a typed column as Variant values, of the slots that `flags` name."""
    rows, device = len(flags), column.device
    type_ = column.type
    if is_text(type_) or is_binary(type_):
        return LeafBytes(device, rows, flags, slots_of(column).first(rows), int(is_text(type_)))
    if type_.id == pa.lib.Type_NA:
        return LeafBytes(device, rows, device.xp.zeros(rows, np.bool_), None)
    with device.use():
        return LeafBytes(device, rows, flags, _fixed(column, rows, type_))


def _bytes(array: Any) -> Any:
    return array.reshape(-1).view(np.uint8)


def _fixed(column: Column, rows: int, type_: pa.DataType) -> _Fixed:
    storage = storage_type(type_)
    if type_ == pa.uuid() or (storage.id == pa.lib.Type_FIXED_SIZE_BINARY and storage.byte_width == 16):
        return _Fixed(_bytes(column.raw_values[:rows]), 16, 16, _UUID << 2)
    if type_.id == pa.lib.Type_BOOL:
        xp = column.device.xp
        headers = xp.where(column.raw_values[:rows], np.uint8(_TRUE), np.uint8(_FALSE)).astype(np.uint8)
        return _Fixed(headers, 1, 1, -1)
    if type_.id in _SIGNED:
        kind, width = _SIGNED[type_.id]
        return _Fixed(_bytes(column.raw_values[:rows]), width, width, kind << 2)
    if type_.id in _WIDENED:
        kind, dtype = _WIDENED[type_.id]
        return _of_numbers(column.raw_values[:rows].astype(dtype), kind)
    if type_.id in _DECIMALS and 0 <= type_.scale <= type_.precision:
        stride = _DECIMALS[type_.id]
        width = 4 if type_.precision <= 9 else 8 if type_.precision <= 18 else 16
        header = _DECIMAL[width] << 2
        return _Fixed(_bytes(column.raw_values[:rows]), stride, width, header, type_.scale, type_.precision)
    return _temporal(column, rows, type_)


def _of_numbers(numbers: Any, kind: int, wrong: Any | None = None) -> _Fixed:
    width = numbers.dtype.itemsize
    return _Fixed(numbers.view(np.uint8), width, width, kind << 2, wrong=wrong)


def _temporal(column: Column, rows: int, type_: pa.DataType) -> _Fixed:
    if type_.id == pa.lib.Type_UINT64:
        return _unsigned(column, rows)
    if type_.id == pa.lib.Type_TIMESTAMP:
        numbers = column.raw_values[:rows]
        if type_.unit in _SECONDS:
            return _of_numbers(*_scaled(numbers, _SECONDS[type_.unit], _TIMESTAMPS["us", bool(type_.tz)]))
        return _of_numbers(numbers, _TIMESTAMPS[type_.unit, bool(type_.tz)])
    if type_.id in (pa.lib.Type_TIME32, pa.lib.Type_TIME64):
        numbers, wrong = column.raw_values[:rows].astype(np.int64), None
        if type_.unit == "ns":
            numbers, wrong = numbers // np.int64(1000), numbers % np.int64(1000) != np.int64(0)
        elif type_.unit in _SECONDS:
            numbers = numbers * np.int64(_SECONDS[type_.unit])
        outside = (numbers < np.int64(0)) | (numbers >= np.int64(_DAY_MICROS))
        return _of_numbers(numbers, _TIME, outside if wrong is None else outside | wrong)
    if type_.id == pa.lib.Type_DATE64:
        millis = column.raw_values[:rows]
        days = millis // np.int64(_DAY_MILLIS)
        narrow = days.astype(np.int32)
        wrong = (days * np.int64(_DAY_MILLIS) != millis) | (narrow.astype(np.int64) != days)
        return _of_numbers(narrow, _DATE, wrong)
    raise Unsupported(
        "Variant has no values of this type", found=str(type_), where=column.name, hint=_HINTS.get(type_.id)
    )


def _scaled(numbers: Any, factor: int, kind: int) -> tuple[Any, int, Any]:
    most = np.int64(_MOST_64 // factor)
    return numbers * np.int64(factor), kind, (numbers > most) | (numbers < -most)


def _unsigned(column: Column, rows: int) -> _Fixed:
    """Return unsigned 64-bit integers: as int64 where all of them fit, else as decimals without a fraction."""
    xp, numbers = column.device.xp, column.raw_values[:rows]
    if not rows or int(column.device.to_host(numbers.max(keepdims=True))[0]) <= _MOST_64:
        return _of_numbers(numbers.view(np.int64), _INT64)
    wide = xp.zeros(2 * rows, np.uint64)
    wide[::2] = numbers
    return _Fixed(wide.view(np.uint8), 16, 16, _DECIMAL[16] << 2, 0, 38)
