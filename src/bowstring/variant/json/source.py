"""JSON texts as kernels take them, from any column or iterable of text; and the rules of JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.column import Column
from bowstring.columnar.nodes import storage_type
from bowstring.columnar.one_column import one_column
from bowstring.columnar.slots import binary_view_slots, slots_of
from bowstring.errors import LimitExceeded, UsageError
from bowstring.kernels import bitmap
from bowstring.kernels.json.format import NOTHING, OUTSIDE, READ, TOO_LONG
from bowstring.limits import Limits
from bowstring.memory import Device

Rules: TypeAlias = Literal["plain", "spark"]

_VIEWS: Final = (pa.lib.Type_STRING_VIEW, pa.lib.Type_BINARY_VIEW)
_TEXT: Final = (
    pa.lib.Type_STRING,
    pa.lib.Type_LARGE_STRING,
    pa.lib.Type_BINARY,
    pa.lib.Type_LARGE_BINARY,
)
_WITHOUT_VALIDITY: Final = (pa.lib.Type_NA, pa.lib.Type_RUN_END_ENCODED)
_LARGEST: Final = (1 << 31) - 1
_HOLDERS: Final = (Column, Batch, Mapping)
_EXPORTS: Final = ("__arrow_c_array__", "__arrow_c_stream__", "__arrow_c_device_array__")


def check_rules(rules: str) -> None:
    """Refuse a set of rules that is not there."""
    if rules not in ("plain", "spark"):
        raise UsageError("rules of JSON", expected="'plain' or 'spark'", found=repr(rules))


@dataclasses.dataclass(frozen=True, slots=True)
class Texts:
    """One JSON text for each row: row ``k`` is ``data[starts[k]:stops[k]]``."""

    device: Device
    data: Any  # array of uint8, on the device
    # Of each row, on the host: bounds within the data, and READ, NOTHING (a null), TOO_LONG or OUTSIDE.
    starts: np.ndarray[Any, np.dtype[np.int64]]
    stops: np.ndarray[Any, np.dtype[np.int64]]
    statuses: np.ndarray[Any, np.dtype[np.uint8]]
    of_file: bool = False  # the rows are the lines of a file

    def place(self, row: int) -> str:
        """Return how errors name a row: if the texts are the lines of a file, by its line too."""
        if not self.of_file:
            return f"row {row}"
        line = 1 + np.count_nonzero(self.data[: self.starts[row]] == ord("\n"))
        return f"line {line} (row {row})"


def texts_of(source: Any, limits: Limits) -> Texts:
    """Return the texts of a column, an Arrow array, or an iterable of str, bytes and None. Views, dictionaries
    and runs are not copied, so rows may share text: the work is bounded by the limits.
    """
    column = _column_of(source)
    with column.device.use():
        slots = _slots(column, limits)
        nbytes = len(slots.data)
        sizes = slots.stops - slots.starts
        statuses = np.full(len(sizes), READ)
        statuses[sizes > min(limits.json_bytes, _LARGEST)] = TOO_LONG
        statuses[(slots.starts < 0) | (sizes < 0) | (slots.stops > nbytes)] = OUTSIDE
        statuses[np.logical_not(slots.valid)] = NOTHING
        nowhere = statuses != READ
        total = int(sizes[~nowhere].sum())
        if total > max(limits.decompression_floor, limits.decompression_ratio * nbytes):
            raise LimitExceeded(
                "rows that share their text",
                expected=f"at most {limits.decompression_ratio:g} times its bytes",
                found=f"{total} bytes of {nbytes}",
                where=column.name,
                hint="Raise Limits.decompression_ratio.",
            )
        starts, stops = np.where(nowhere, 0, slots.starts), np.where(nowhere, 0, slots.stops)
        return Texts(column.device, slots.data, starts, stops, statuses)


@dataclasses.dataclass(frozen=True, slots=True)
class _Slots:
    """Where each row is, unchecked: on the host but for the data."""

    starts: np.ndarray[Any, np.dtype[np.int64]]
    stops: np.ndarray[Any, np.dtype[np.int64]]
    valid: np.ndarray[Any, np.dtype[np.bool_]]
    data: Any

    def taken(self, positions: np.ndarray[Any, Any], valid: np.ndarray[Any, np.dtype[np.bool_]]) -> _Slots:
        """Return the rows at some positions; nowhere, where there is none."""
        wide = positions.astype(np.int64)
        wide[(wide < 0) | (wide >= len(self.starts))] = len(self.starts)
        starts, stops = np.append(self.starts, -1)[wide], np.append(self.stops, -1)[wide]
        return _Slots(starts, stops, valid & np.append(self.valid, True)[wide], self.data)


def _slots(column: Column, limits: Limits) -> _Slots:
    device, rows = column.device, len(column)
    type_ = storage_type(column.type)
    if type_.id in _WITHOUT_VALIDITY and rows > limits.decompression_floor:
        raise LimitExceeded(
            "rows that have no bytes of their own",
            expected=f"at most {limits.decompression_floor}",
            found=rows,
            where=column.name,
            hint="Raise Limits.decompression_floor.",
        )
    valid = np.ones(rows, np.bool_)
    if type_.id not in _WITHOUT_VALIDITY and column.validity is not None:
        valid = device.to_host(bitmap.expanded(column.validity, 0, rows)).astype(np.bool_)
    if column.dictionary is not None:
        return _slots(column.dictionary, limits).taken(device.to_host(column.raw_values)[:rows], valid)
    if type_.id == pa.lib.Type_RUN_END_ENCODED:
        ends, values = column.children
        positions = np.searchsorted(device.to_host(ends.raw_values), np.arange(rows), side="right")
        return _slots(values, limits).taken(positions, valid)
    if type_.id == pa.lib.Type_NA:
        nowhere = np.zeros(rows, np.int64)
        return _Slots(nowhere, nowhere, ~valid, device.xp.zeros(0, np.uint8))
    if type_.id in _VIEWS:
        first, last, data = binary_view_slots(column)
    elif type_.id in _TEXT:
        found = slots_of(column)
        first, last, data = found.starts, found.stops, found.data
    else:
        raise UsageError("not a column of JSON texts", expected="text or binary", found=str(column.type))
    starts, stops = (device.to_host(each).astype(np.int64) for each in (first, last))
    return _Slots(starts, stops, valid, data)


def _column_of(source: Any) -> Column:
    if isinstance(source, str | bytes):
        raise UsageError("one text is not a column of them", hint="Put it into a list.")
    if isinstance(source, _HOLDERS) or any(hasattr(source, each) for each in _EXPORTS):
        return one_column(source, "text")
    if isinstance(source, Iterable):
        return one_column(_array_of_objects(list(source)), "text")
    raise UsageError("not a column of JSON texts", found=type(source).__name__)


def _array_of_objects(texts: list[Any]) -> pa.Array:
    for kind in set(map(type, texts)) - {type(None)}:
        if not issubclass(kind, str | bytes):
            raise UsageError("not a JSON text", expected="str or bytes", found=kind.__name__)
    try:
        return pa.array(texts, pa.large_binary())
    except UnicodeEncodeError:
        # Half a surrogate pair, which becomes bytes that are refused where its row is read.
        encoded = [each.encode(errors="surrogatepass") if isinstance(each, str) else each for each in texts]
        return pa.array(encoded, pa.large_binary())
