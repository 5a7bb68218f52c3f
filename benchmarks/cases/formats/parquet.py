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
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Target, Way

_ROWS: Final = 4_000_000
_QUICK_ROWS: Final = 200_000
_GROUP_ROWS: Final = 500_000
_ALL: Final = 400_000
_QUICK_ALL: Final = 20_000
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


def _all_types(rows: int) -> pa.Table:
    """A column of each logical type, with nulls."""
    rng = np.random.default_rng(_SEED)
    number = pa.array(rng.integers(0, 1 << 31, rows), mask=rng.random(rows) < 1 / 8)
    small = number.cast(pa.int32())
    words = pa.array([f"text {each}" for each in range(1000)])
    text = words.take(pa.array(rng.integers(0, len(words), rows)))
    uuids = pa.Array.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(rng.bytes(16 * rows))])
    parts = np.zeros(rows, [("months", "<i4"), ("days", "<i4"), ("nanos", "<i8")])
    parts["months"], parts["nanos"] = rng.integers(0, 99, rows), rng.integers(0, 1 << 31, rows) * 1_000_000
    points = np.zeros(rows, [("order", "u1"), ("code", "<u4"), ("place", "<f8", 2)])
    points["order"], points["code"], points["place"] = 1, 1, rng.uniform(-90, 90, (rows, 2))
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(points.dtype.itemsize)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(points.tobytes())]
    every = [
        *(
            (type_, small.cast(pa.uint16(), safe=False).cast(type_))
            for type_ in (pa.uint16(), pa.int32(), pa.uint32())
        ),
        *((type_, number.cast(type_)) for type_ in (pa.int64(), pa.uint64(), pa.float64())),
        (pa.decimal128(19, 2), number.cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2))),
        (pa.date32(), small.cast(pa.date32())),
        (pa.time64("us"), number.cast(pa.time64("us"))),
        (pa.timestamp("ms", "UTC"), number.cast(pa.timestamp("ms", "UTC"))),
        (pa.string(), text),
        (pa.json_(), pa.ExtensionArray.from_storage(pa.json_(), text)),
        (pa.uuid(), pa.ExtensionArray.from_storage(pa.uuid(), uuids)),
    ]
    fields = [pa.field(f"{number} {type_}", array.type) for number, (type_, array) in enumerate(every)]
    columns = [array for _, array in every]
    fields += [
        pa.field("enum", pa.string(), metadata={"PARQUET:logical_type": "ENUM"}),
        pa.field("interval", pa.month_day_nano_interval()),
        bow.geo.field("geometry"),
        pa.field("list", pa.list_(pa.field("element", pa.int32()))),
    ]
    interval = pa.Array.from_buffers(pa.month_day_nano_interval(), rows, [None, pa.py_buffer(parts)])
    ends = pa.array(np.arange(0, 2 * rows + 1, 2, dtype=np.int32))
    lists = pa.ListArray.from_arrays(ends, pa.concat_arrays([small, small]), type=fields[-1].type)
    columns += [text, interval, pa.Array.from_buffers(pa.binary(), rows, buffers), lists]
    return pa.table(columns, schema=pa.schema(fields))


def _of_all_types(folder: str, scale: Scale) -> LineUp:
    """Read what pyarrow reads, too: as bytes where it does not know the type."""
    table = _all_types(_QUICK_ALL if scale.quick else _ALL)
    path = os.path.join(folder, "all types.parquet")
    bow.parquet.write(table, path, row_group_size=len(table) // 4)
    alike = [each.name for each in table.schema if each.name not in ("enum", "interval")]

    def read(function: Any, names: list[str]) -> Measured:
        begin = time.perf_counter()
        found = function(path, None)
        seconds = time.perf_counter() - begin
        return Measured(seconds, "equal: True", f"equal: {found.select(names).equals(table.select(names))}")

    ours, theirs = "bowstring, all types", "pyarrow, all types"
    ways = (
        Way(ours, "subject", lambda: read(_ours, table.schema.names), table.nbytes, theirs),
        Way(theirs, "baseline", lambda: read(_theirs, alike), table.nbytes),
    )
    return LineUp("read all types", ways, scale.rounds(15, 3), (Target(ours, "at most", 1.1, theirs),))


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
        Way(ours, "subject", lambda: opened(bow.parquet.read), None, theirs, series="bowstring"),
        Way(theirs, "baseline", lambda: opened(pq.ParquetFile), series="pyarrow"),
    )
    target = Target(ours, "at most", 1.5, theirs)
    return LineUp(
        f"open a file of {name}",
        ways,
        scale.rounds(15, 3),
        (target,),
        panel=f"open, {kind or 'plain'}",
        at={"columns": columns},
    )


def _line_ups(scale: Scale) -> Iterator[LineUp]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bowstring-benchmark-"))
        file = _File(folder, _QUICK_ROWS if scale.quick else _ROWS)
        for name, columns in _COLUMNS:
            yield _reading(file, name, columns, scale)
        yield _of_all_types(folder, scale)
        for count in _WIDE:
            for kind in ("", "structs", "Variants"):
                yield _opening(folder, count, kind, scale)


CASE: Final = Case(
    "parquet",
    "Parquet files: plain columns read, and files opened",
    _line_ups,
    Explanation(
        measured=(
            "parquet.read() of all columns or one to a table, of columns of every logical type, and from a "
            "path to an open file whose schema is known."
        ),
        baseline=(
            "pyarrow.parquet.read_table and pyarrow.parquet.ParquetFile. pyarrow does not know all types: it"
            " brings bytes for some."
        ),
        floor="",
        reading=(
            "pyarrow decodes the pages in both: a ratio near 1 says that types and Variants cost nothing "
            "where there are none. Opening reads the footer a second time."
        ),
    ),
)
