"""One whole number, or ten, out of objects of 10 and of 100 fields, beside DuckDB and Spark on one core."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring import variant
from bowstring.benchmarks import cores
from bowstring.benchmarks.case import Case, LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.engines import DuckDB, Spark, missing, sparks_variants
from bowstring.benchmarks.payload import Bytes, read_every_byte
from bowstring.benchmarks.processes import Child
from bowstring.benchmarks.variant_rows import Objects, objects
from bowstring.columnar.column import Column

__all__ = ["CASE"]

_ROWS: Final = {10: 2_000_000, 100: 400_000}
_QUICK_ROWS: Final = {10: 200_000, 100: 40_000}
# Nanoseconds for a row, at most.
_ONE_METADATA: Final = {10: 10e-9, 100: 18e-9}
_PLAIN: Final = 30e-9
_SUBJECT: Final = "bowstring, one core"
_TIMES: Final = {"DuckDB": 12, "Spark": 30}
_PATHS: Final = 10
# The objects that the targets were found with: 37 bytes of 10 fields, 307 of 100.
_FLAGS: Final = "1, and the one of 32"


def _get(column: Column, name: str, total: int, threads: int | None) -> Measured:
    with cores.threads(threads):
        begin = time.perf_counter()
        got = variant.get(column, f"$.{name}", pa.int32())
        seconds = time.perf_counter() - begin
    return Measured(seconds, str(total), str(int(got.values.sum(dtype=np.int64))))


def _get_many(column: Column, totals: dict[str, int], threads: int | None) -> Measured:
    wanted = {name: (f"$.{name}", pa.int32()) for name in totals}
    with cores.threads(threads):
        begin = time.perf_counter()
        got = variant.get_many(column, wanted)
        seconds = time.perf_counter() - begin
    return Measured(
        seconds, str(totals), str({name: int(got[name].values.sum(dtype=np.int64)) for name in totals})
    )


def _values_of(column: Column) -> Bytes:
    return np.frombuffer(column.to_arrow().field("value").buffers()[2], np.uint8)


def _floor(column: Column) -> Callable[[], Measured]:
    """Read every byte of the values, and write a number for each row."""
    values, rows = _values_of(column), len(column)

    def once() -> Measured:
        begin = time.perf_counter()
        read_every_byte([values])
        np.zeros(rows, np.int32)
        return Measured(time.perf_counter() - begin, "", "")

    return once


def _totals(rows: Objects) -> dict[str, int]:
    return {name: int(values.sum()) for name, values in rows.values.items()}


def _ours(column: Column, name: str, total: int) -> Iterator[Way]:
    size = _values_of(column).nbytes
    floor = "every byte read"
    yield Way(_SUBJECT, "subject", lambda: _get(column, name, total, 1), size, floor=floor)
    yield Way("bowstring, all cores", "beside", lambda: _get(column, name, total, None), size)
    yield Way(floor, "floor", _floor(column), size)


def _duckdb(rows: Objects, name: str, total: int, stack: contextlib.ExitStack) -> Way:
    engine = stack.enter_context(contextlib.closing(DuckDB(rows.table)))
    query = f"SELECT sum(CAST(variant_extract(v, '{name}') AS INTEGER)) FROM rows"

    def once() -> Measured:
        seconds, answer = engine.timed(query)
        return Measured(seconds, str(total), str(int(answer)))

    return Way("DuckDB", "baseline", once, _values_of(rows.plain).nbytes)


def _spark(rows: Objects, name: str, total: int, stack: contextlib.ExitStack) -> Way:
    file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "rows.arrow"
    table = pa.table({"v": sparks_variants(rows.table["v"].combine_chunks())})
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    engine = stack.enter_context(Child(Spark, file=str(file)))
    query = f"SELECT variant_get(v, '$.{name}', 'int') x FROM rows"
    answer = str(engine.call("answer", query=f"SELECT sum(x) FROM ({query})"))

    def once() -> Measured:
        return Measured(engine.call("timed", query=query), str(total), answer)

    return Way("Spark", "baseline", once, _values_of(rows.plain).nbytes)


_ENGINES: Final[dict[str, Callable[..., Way]]] = {"DuckDB": _duckdb, "Spark": _spark}


def _one(scale: Scale, fields: int, rows: Objects, count: int, bits: str) -> Iterator[LineUp | Skipped]:
    """One field, with one metadata: beside the engines that are here."""
    size = round(_values_of(rows.shared).nbytes / count)
    title = f"1 field of {fields} of {bits} bits, one metadata, {count:,} rows of {size} bytes"
    name = f"field_{fields // 2}"
    total = _totals(rows)[name]
    targets = [Target(_SUBJECT, "at most", count * _ONE_METADATA[fields])]
    with contextlib.ExitStack() as stack:
        ways = list(_ours(rows.shared, name, total))
        for engine, make in _ENGINES.items():
            if why := missing(engine):
                yield Skipped(f"{title}, beside {engine}", why)
                continue
            ways.append(make(rows, name, total, stack))
            targets.append(Target(_SUBJECT, "at least", _TIMES[engine], engine))
        yield LineUp(title, tuple(ways), scale.rounds(11, 3), tuple(targets))


def _many(scale: Scale, rows: Objects, count: int) -> LineUp:
    totals = dict(list(_totals(rows).items())[:_PATHS])
    column, size = rows.shared, _values_of(rows.shared).nbytes
    name, total = next(iter(totals.items()))
    ways = (
        Way("ten paths at once", "subject", lambda: _get_many(column, totals, 1), size, "one path"),
        Way("one path", "baseline", lambda: _get(column, name, total, 1), size),
        Way("ten paths, all cores", "beside", lambda: _get_many(column, totals, None), size),
    )
    return LineUp(
        f"10 fields of 10, one metadata, {count:,} rows",
        ways,
        scale.rounds(11, 3),
        (Target("ten paths at once", "at most", 4, "one path"),),
    )


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    for fields, count in (_QUICK_ROWS if scale.quick else _ROWS).items():
        rows = objects(count, fields)
        yield from _one(scale, fields, rows, count, "8 to 32")
        if fields == _PATHS:
            yield _many(scale, rows, count)
            ways = tuple(_ours(rows.plain, "field_5", _totals(rows)["field_5"]))
            target = Target(_SUBJECT, "at most", count * _PLAIN)
            title = f"1 field of {fields}, metadata in every row, {count:,} rows"
            yield LineUp(title, ways, scale.rounds(11, 3), (target,))
        else:
            yield from _one(scale, fields, objects(count, fields, (8,)), count, "8")
            yield from _one(scale, fields, objects(count, fields, (32,), among_flags=True), count, _FLAGS)


CASE: Final[Any] = Case("variant_get", "whole numbers out of Variants, by path", _line_ups)
