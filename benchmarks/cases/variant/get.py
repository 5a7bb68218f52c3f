"""One whole number, or ten, out of objects of 10 and of 100 fields, beside DuckDB and Spark on one core."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from bowstring import variant
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.data.payload import Bytes, read_every_byte
from bowstring.benchmarks.data.variant_rows import Objects, objects
from bowstring.benchmarks.peers.engines import DuckDB, Spark, missing, sparks_variants
from bowstring.benchmarks.processes import cores
from bowstring.benchmarks.processes.child import Child
from bowstring.columnar.batch import Column

_ROWS: Final = {10: 2_000_000, 100: 400_000}
_QUICK_ROWS: Final = {10: 200_000, 100: 40_000}
# Times of reading every byte, at most: with one metadata for all rows, and with one in each row.
_ONE_METADATA: Final = {10: 5, 100: 2}
_PLAIN: Final = 15
_SUBJECT: Final = "bowstring, one core"
_FLOOR: Final = "every byte read"
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


def _ours(column: Column, name: str, total: int, baseline: str | None = None) -> Iterator[Way]:
    size = _values_of(column).nbytes
    yield Way(_SUBJECT, "subject", lambda: _get(column, name, total, 1), size, baseline, _FLOOR)
    yield Way("bowstring, all cores", "beside", lambda: _get(column, name, total, None), size)
    yield Way(_FLOOR, "floor", _floor(column), size)


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
    targets = [Target(_SUBJECT, "at most", _ONE_METADATA[fields], _FLOOR)]
    with contextlib.ExitStack() as stack:
        first = next((engine for engine in _ENGINES if not missing(engine)), None)
        ways = list(_ours(rows.shared, name, total, first))
        for engine, make in _ENGINES.items():
            if why := missing(engine):
                yield Skipped(f"{title}, beside {engine}", why)
                continue
            ways.append(make(rows, name, total, stack))
            targets.append(Target(_SUBJECT, "at least", _TIMES[engine], engine))
        yield LineUp(
            title,
            tuple(ways),
            scale.rounds(11, 3),
            tuple(targets),
            panel=f"{fields} fields",
            at={"rows": count},
        )


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
        at={"rows": count},
    )


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    for fields, count in (_QUICK_ROWS if scale.quick else _ROWS).items():
        rows = objects(count, fields)
        yield from _one(scale, fields, rows, count, "8 to 32")
        if fields == _PATHS:
            yield _many(scale, rows, count)
            ways = tuple(_ours(rows.plain, "field_5", _totals(rows)["field_5"]))
            target = Target(_SUBJECT, "at most", _PLAIN, _FLOOR)
            title = f"1 field of {fields}, metadata in every row, {count:,} rows"
            yield LineUp(title, ways, scale.rounds(11, 3), (target,), at={"rows": count})
        else:
            yield from _one(scale, fields, objects(count, fields, (8,)), count, "8")
            yield from _one(scale, fields, objects(count, fields, (32,), among_flags=True), count, _FLAGS)


CASE: Final = Case(
    "variant_get",
    "whole numbers out of Variants, by path",
    _line_ups,
    Explanation(
        measured=(
            "variant.get() of one integer and get_many() of ten out of a column of objects of 10 and of 100 "
            "fields, threads bounded to one core or not."
        ),
        baseline=(
            "DuckDB's variant_extract and Spark's variant_get on the same rows and one core, where they are "
            "installed. Neither pays for a result that it must hand over: DuckDB sums up, Spark's rows go "
            "nowhere."
        ),
        floor="Every byte of the values read, and a number written for each row.",
        reading=(
            "Above 100 % of the floor is possible here: a path is found without looking at all bytes of wide"
            " objects."
        ),
    ),
    judged_from={"rows": 400_000},
)
