"""JSON texts as kernels take them: of a column, an iterable, or the lines of a file; and the rules of JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch, Column
from bowstring.columnar.nodes import storage_type
from bowstring.columnar.one_column import one_column
from bowstring.columnar.slots import slots_of
from bowstring.errors import LimitExceeded, MissingFile, UsageError
from bowstring.kernels import bitmap
from bowstring.kernels.json.tree import NOTHING, OUTSIDE, READ, TOO_LONG
from bowstring.limits import Limits
from bowstring.memory import Device, device_by_name

Rules: TypeAlias = Literal["plain", "spark"]

_TEXT: Final = (
    *(pa.lib.Type_STRING, pa.lib.Type_LARGE_STRING, pa.lib.Type_STRING_VIEW),
    *(pa.lib.Type_BINARY, pa.lib.Type_LARGE_BINARY, pa.lib.Type_BINARY_VIEW),
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
    if type_.id not in _TEXT:
        raise UsageError("not a column of JSON texts", expected="text or binary", found=str(column.type))
    texts = slots_of(column)
    starts, stops = (device.to_host(each).astype(np.int64) for each in (texts.starts, texts.stops))
    return _Slots(starts, stops, valid, texts.data)


def _column_of(source: Any) -> Column:
    if isinstance(source, str | bytes):
        raise UsageError("one text is not a column of them", hint="Put it into a list.")
    if isinstance(source, _HOLDERS) or any(hasattr(source, each) for each in _EXPORTS):
        return one_column(source, "text")
    if isinstance(source, Iterable):
        texts = list(source)
        for kind in set(map(type, texts)) - {type(None)}:
            if not issubclass(kind, str | bytes):
                raise UsageError("not a JSON text", expected="str or bytes", found=kind.__name__)
        try:
            array = pa.array(texts, pa.large_binary())
        except UnicodeEncodeError:
            # Half a surrogate pair, which becomes bytes that are refused where its row is read.
            bytes_ = [
                each.encode(errors="surrogatepass") if isinstance(each, str) else each for each in texts
            ]
            array = pa.array(bytes_, pa.large_binary())
        return one_column(array, "text")
    raise UsageError("not a column of JSON texts", found=type(source).__name__)


_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_BLANKS: Final = b" \t\r"
_IS_BLANK: Final = np.isin(np.arange(256), list(_BLANKS))
_QUIET_SECONDS: Final = 1.0
"""What is faster than this shows no progress."""


def lines_of(path: str | os.PathLike[str], limits: Limits) -> Texts:
    """Return the lines of a file, which is mapped; lines of spaces, tabs and carriage returns only are not
    rows.
    """
    try:
        data: Any = np.empty(0, np.uint8)
        if os.path.getsize(path):
            data = np.frombuffer(pa.memory_map(os.fspath(path)).read_buffer(), np.uint8)
    except FileNotFoundError as error:
        raise MissingFile("there is no such file", found=str(path)) from error
    except OSError as error:
        raise UsageError("a file of JSON Lines cannot be read", found=str(error), where=str(path)) from error
    first = len(_BYTE_ORDER_MARK) if data[:3].tobytes() == _BYTE_ORDER_MARK else 0
    ends = np.flatnonzero(data == ord("\n"))
    starts = np.append(np.int64(first), ends + 1)
    stops = np.append(ends, len(data))
    sizes = stops - starts
    kept = sizes > 0
    # Rows begin with a bracket or a value in nearly every file, so few lines are looked at as a whole.
    ends_blank = kept.copy()
    ends_blank[kept] = _IS_BLANK[data[starts[kept]]] & _IS_BLANK[data[stops[kept] - 1]]
    looked_at = np.flatnonzero(ends_blank)
    spans = zip(starts[looked_at].tolist(), stops[looked_at].tolist(), strict=True)
    kept[looked_at] = [bool(data[start:stop].tobytes().strip(_BLANKS)) for start, stop in spans]
    starts, stops = starts[kept], stops[kept]
    statuses = np.full(len(starts), READ)
    too_long = stops - starts > min(limits.json_bytes, _LARGEST)
    statuses[too_long] = TOO_LONG
    stops[too_long] = starts[too_long]
    return Texts(device_by_name("cpu"), data, starts, stops, statuses, of_file=True)


@contextlib.contextmanager
def progress(what: str, rows: int) -> Iterator[Callable[[int], None]]:
    """Yield what takes how many rows are done, and shows it on a terminal where it takes longer than a second."""
    begin, shown = time.monotonic(), False

    def show(done: int) -> None:
        nonlocal shown
        if sys.stderr.isatty() and time.monotonic() - begin > _QUIET_SECONDS:
            shown = True
            filled = done * 30 // max(rows, 1)
            bar = "#" * filled + "." * (30 - filled)
            sys.stderr.write(f"\r{what} [{bar}] {done:,} of {rows:,} rows\x1b[K")
            sys.stderr.flush()

    try:
        yield show
    finally:
        if shown:
            sys.stderr.write("\n")
