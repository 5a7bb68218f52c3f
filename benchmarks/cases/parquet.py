"""Parquet files: reading plain columns as a stream of batches, and opening files."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import bowstring as bow
from bowstring.benchmarks.case import Case, LineUp, Measured, Scale, Target, Way

__all__ = ["CASE"]

_ROWS: Final = 4_000_000
_QUICK_ROWS: Final = 200_000
_GROUP_ROWS: Final = 500_000
_SEED: Final = 5
_OPENED_AT_ONCE: Final = 20
_COLUMNS: Final = (
    ("all columns", None),
    ("one column of numbers", ["number"]),
    ("one column of text", ["text"]),
)
_WIDE: Final = (10, 500)


def _table(rows: int) -> pa.Table:
    """Numbers, floats, text that repeats, and integers with nulls."""
    rng = np.random.default_rng(_SEED)
    words = np.array([f"text {number}" for number in range(5000)])
    return pa.table(
        {
            "number": rng.integers(0, 1 << 40, rows),
            "float": rng.random(rows),
            "text": words[rng.integers(0, len(words), rows)],
            "few": pa.array(rng.integers(0, 100, rows), mask=rng.random(rows) < 1 / 8),
        }
    )


class _File:
    """A file, and what is in it."""

    def __init__(self, folder: str, rows: int) -> None:
        self._table = _table(rows)
        self.path = os.path.join(folder, "table.parquet")
        pq.write_table(self._table, self.path, row_group_size=_GROUP_ROWS)

    def read(self, columns: list[str] | None, function: Any) -> Measured:
        """Read it, and compare every value."""
        begin = time.perf_counter()
        found = function(self.path, columns)
        seconds = time.perf_counter() - begin
        expected = self._table if columns is None else self._table.select(columns)
        return Measured(seconds, "equal: True", f"equal: {found.equals(expected)}")

    def nbytes(self, columns: list[str] | None) -> int:
        """Return the bytes of some columns in memory."""
        return int((self._table if columns is None else self._table.select(columns)).nbytes)


def _ours(path: str, columns: list[str] | None) -> pa.Table:
    with bow.parquet.read(path, columns=columns) as stream:
        return stream.read_all()


def _theirs(path: str, columns: list[str] | None) -> pa.Table:
    return pq.read_table(path, columns=columns)


def _reading(file: _File, name: str, columns: list[str] | None, scale: Scale) -> LineUp:
    ours, theirs = f"bowstring, {name}", f"pyarrow, {name}"
    nbytes = file.nbytes(columns)
    ways = (
        Way(ours, "subject", lambda: file.read(columns, _ours), nbytes, theirs),
        Way(theirs, "baseline", lambda: file.read(columns, _theirs), nbytes),
    )
    return LineUp(f"read {name}", ways, scale.rounds(15, 3), (Target(ours, "at most", 1.05, theirs),))


def _third(kind: str) -> Any:
    if kind == "Variants":
        return bow.variant.from_json(['{"x": 1}'])
    return pa.array([{"x": 1, "y": "z"}] if kind == "structs" else [3])


def _written(folder: str, columns: int, kind: str) -> tuple[str, list[str]]:
    """Write a file, a third of whose columns are of a kind; return where it is, and the names of its columns."""
    values = [pa.array([1.0]), pa.array(["a"]), _third(kind)]
    table = {f"c{index}": values[index % 3] for index in range(columns)}
    path = os.path.join(folder, f"{columns} {kind}.parquet")
    bow.parquet.write(table, path)
    return path, list(table)


def _opening(folder: str, columns: int, kind: str, scale: Scale) -> LineUp:
    path, names = _written(folder, columns, kind)

    def opened(function: Any) -> Measured:
        begin = time.perf_counter()
        found = [function(path) for _ in range(_OPENED_AT_ONCE)]
        seconds = (time.perf_counter() - begin) / _OPENED_AT_ONCE
        right = all((getattr(each, "schema_arrow", None) or each.schema).names == names for each in found)
        for each in found:
            each.close()
        return Measured(seconds, "True", str(right))

    name = f"{columns} columns{f', a third of them {kind}' if kind else ''}"
    ours, theirs = f"bowstring, {name}", f"pyarrow, {name}"
    ways = (
        Way(ours, "subject", lambda: opened(bow.parquet.read), None, theirs),
        Way(theirs, "baseline", lambda: opened(pq.ParquetFile)),
    )
    target = Target(ours, "at most", 1.5, theirs)
    return LineUp(f"open a file of {name}", ways, scale.rounds(15, 3), (target,))


def _line_ups(scale: Scale) -> Iterator[LineUp]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bowstring-benchmark-"))
        file = _File(folder, _QUICK_ROWS if scale.quick else _ROWS)
        for name, columns in _COLUMNS:
            yield _reading(file, name, columns, scale)
        for count in _WIDE:
            for kind in ("", "structs", "Variants"):
                yield _opening(folder, count, kind, scale)


CASE: Final = Case("parquet", "Parquet files: plain columns read, and files opened", _line_ups)
