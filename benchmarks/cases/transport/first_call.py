"""The first table that a new process gets, on a machine where nothing was compiled or cached, and after that."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Target, Way
from bowstring.benchmarks.processes.child import Child
from bowstring.benchmarks.processes.producer import Producer

_SIZE: Final = 1 << 20
_SECONDS: Final = 300.0
_READ: Final = """
import sys, time
import pyarrow.compute as pc
import bowstring as bow
with bow.connect(sys.argv[1]) as stream:
    table = stream.read_all()
print(table.num_rows, pc.sum(table.column(0)).as_py())
print(time.monotonic())
"""
_VALIDATE: Final = """
import sys, time
import pyarrow.compute as pc
import bowstring as bow
with bow.connect(sys.argv[1]) as stream:
    batches = list(stream)
for batch in batches:
    batch.validate(full=True)
print(sum(batch.num_rows for batch in batches), pc.sum(batches[0][0].to_arrow()).as_py())
print(time.monotonic())
"""
_FLIGHT: Final = """
import sys, time
import pyarrow.compute as pc
from pyarrow import flight
table = flight.connect(sys.argv[1]).do_get(flight.Ticket(b"")).read_all()
print(table.num_rows, pc.sum(table.column(0)).as_py())
print(time.monotonic())
"""
_FILE: Final = """
import sys, time
import pyarrow as pa
import pyarrow.compute as pc
table = pa.ipc.open_file(pa.memory_map(sys.argv[1])).read_all()
print(table.num_rows, pc.sum(table.column(0)).as_py())
print(time.monotonic())
"""


def _once(program: str, where: str, expected: str, caches: str | None) -> Measured:
    """Run a program; without `caches`, Python and Bowstring find nothing that they compiled before."""
    with tempfile.TemporaryDirectory(prefix="bowstring-benchmark-") as empty:
        folder = Path(caches or empty)
        environment = {
            **os.environ,
            "PYTHONPYCACHEPREFIX": str(folder / "modules"),
            "BOWSTRING_CACHE_DIR": str(folder / "kernels"),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        begin = time.monotonic()  # one clock for all processes
        done = subprocess.run(
            [sys.executable, "-c", program, where],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
            env=environment,
        )
    found, end = done.stdout.splitlines()
    return Measured(float(end) - begin, expected, found)


def _line_ups(scale: Scale) -> Iterator[LineUp]:
    with Child(Producer) as producer, tempfile.TemporaryDirectory(prefix="bowstring-benchmark-") as caches:
        offer = producer.call("offer", kind="floats", size=_SIZE, file=True, flight=True)
        endpoint = offer["endpoint"]
        expected = f"{offer['rows']} {offer['first_sum']}"
        programs = {
            "bowstring": (_READ, endpoint, "Arrow Flight"),
            "bowstring, validated": (_VALIDATE, endpoint, None),
            "Arrow Flight": (_FLIGHT, offer["flight"], None),
            "Arrow file": (_FILE, offer["path"], None),
        }
        for name, kept in (
            ("a new machine: nothing compiled, empty caches", None),
            ("caches of a run before", caches),
        ):
            ways = tuple(
                Way(
                    title,
                    {"bowstring": "subject", "Arrow Flight": "baseline", "Arrow file": "floor"}.get(
                        title, "beside"
                    ),  # type: ignore[arg-type]
                    functools.partial(_once, program, where, expected, kept),
                    None,
                    baseline,
                    "Arrow file" if baseline else None,
                )
                for title, (program, where, baseline) in programs.items()
            )
            target = Target("bowstring", "at most", 1.5, "Arrow Flight")
            yield LineUp(name, ways, scale.rounds(11, 3), (target,), warm_ups=1)


CASE: Final = Case(
    "first_call",
    "the first table that a new process gets, also on a new machine",
    _line_ups,
    Explanation(
        measured=(
            "From the start of a process, its imports included, to the sum of one column of a table of 1 MiB"
            " that another process has published. Once as on a new machine: no module was compiled by "
            "Python, and the cache of kernels is empty; then with both."
        ),
        baseline="The same program with pyarrow's Flight client.",
        floor="A program that maps an Arrow file: Python, pyarrow and nothing else.",
        reading=(
            "What the first line of a notebook waits for. Files of the installation are in the system's page"
            " cache; a machine that was just started reads them from disk, too. Where the build compiled no "
            "kernels, validating compiles them once."
        ),
    ),
)
