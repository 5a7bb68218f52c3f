"""The first value that a new process gets out of a Variant, from its start on, with what was compiled before."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from bowstring import variant
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.peers.engines import missing

_GET: Final = """
import sys, time
import pyarrow as pa
from bowstring import variant
with pa.ipc.open_stream(bytes.fromhex({rows!r})) as rows:
    column = rows.read_next_batch().column(0)
print(variant.get(column, "$.a", pa.int64(), plain=True).values.tolist())
print(time.monotonic())
"""
_OTHERS: Final = {
    "import pyarrow, numba": "import time, pyarrow, numba\nprint([42])\nprint(time.monotonic())",
    "import pyarrow": "import time, pyarrow\nprint([42])\nprint(time.monotonic())",
}
_DUCKDB: Final = """
import time, duckdb
found = duckdb.sql("SELECT CAST(variant_extract(CAST({'a': 42} AS VARIANT), 'a') AS BIGINT)").fetchall()
print(list(found[0]))
print(time.monotonic())
"""
_SECONDS: Final = 120.0
# Times of the baseline.
_BOUND: Final = 3


def _once(program: str, cache: str | None = None) -> Measured:
    environment = {**os.environ, **({"BOWSTRING_CACHE_DIR": cache} if cache else {})}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is not compiled each time
    begin = time.monotonic()  # one clock for all processes
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=True,
        env=environment,
    )
    found, end = done.stdout.splitlines()
    return Measured(float(end) - begin, "[42]", found)


def _program() -> str:
    """Return a program that takes a Variant from a stream: ``pa.array`` of Python objects would import pandas."""
    row = {"metadata": b"\x01\x01\x00\x01a", "value": bytes([2, 1, 0, 0, 2, 12, 42])}  # {"a": 42}
    batch = pa.record_batch({"v": pa.array([row], variant.type().storage_type)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return _GET.format(rows=sink.getvalue().to_pybytes().hex())


def _compiled_anew(program: str) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        return _once(program, str(Path(folder) / "cache"))


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    subject, baseline, floor = "bowstring", *_OTHERS
    program = _program()
    with tempfile.TemporaryDirectory() as folder:
        cache = str(Path(folder) / "cache")
        ways = [
            Way(subject, "subject", lambda: _once(program, cache), None, baseline, floor),
            Way(baseline, "baseline", lambda: _once(_OTHERS[baseline])),
            Way(floor, "floor", lambda: _once(_OTHERS[floor])),
        ]
        if why := missing("DuckDB"):
            yield Skipped("beside DuckDB", why)
        else:
            ways.append(Way("DuckDB", "beside", lambda: _once(_DUCKDB)))
        if not scale.quick:
            ways.append(Way("bowstring, compiled anew", "beside", lambda: _compiled_anew(program)))
        targets = (Target(subject, "at most", _BOUND, floor),)
        title = "from the start of a process to its first value"
        yield LineUp(title, tuple(ways), scale.rounds(11, 3), targets, warm_ups=1)


CASE: Final = Case(
    "variant_first_get",
    "the first get of a new process",
    _line_ups,
    Explanation(
        measured="From the start of a process, its imports included, to the first value out of a Variant.",
        baseline="A process that imports pyarrow and numba. Beside it: DuckDB, where it is installed.",
        floor="A process that imports pyarrow.",
        reading=(
            "What a short script waits for. Where no kernels were compiled by the build, they are compiled "
            'once and kept: compare the row "compiled anew".'
        ),
    ),
)
