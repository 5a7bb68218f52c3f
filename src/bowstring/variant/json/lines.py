"""JSON Lines: the lines of a file as texts, and how far they have been read."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.errors import MissingFile, UsageError
from bowstring.kernels.json.format import READ, TOO_LONG
from bowstring.limits import Limits
from bowstring.memory import device_by_name
from bowstring.variant.json.source import Texts

_LARGEST: Final = (1 << 31) - 1
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
