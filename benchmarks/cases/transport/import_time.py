"""What ``import bowstring`` adds to ``import pyarrow``, in a fresh interpreter each time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Target, Way

_PROGRAM: Final = """
import sys, time, pyarrow
begin = time.perf_counter()
{statement}
seconds = time.perf_counter() - begin
print(seconds, {module!r} in sys.modules)
"""
_SECONDS: Final = 60.0


def _once(statement: str, module: str) -> Measured:
    program = _PROGRAM.format(statement=statement, module=module)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=_SECONDS, check=True
    )
    seconds, loaded = done.stdout.split()
    return Measured(float(seconds), "True", loaded)


def _line_ups(scale: Scale) -> Iterator[LineUp]:
    subject, baseline, floor = "bowstring", "pyarrow.flight", "one small module"
    ways = (
        Way(subject, "subject", lambda: _once("import bowstring", "bowstring"), None, baseline, floor),
        Way(
            "bowstring, with Server and connect",
            "beside",
            lambda: _once("from bowstring import Server, connect", "bowstring.client"),
            None,
            baseline,
            floor,
        ),
        Way(baseline, "baseline", lambda: _once("import pyarrow.flight", "pyarrow.flight")),
        # Of the standard library; all that it imports is there already.
        Way(floor, "floor", lambda: _once("import sched", "sched")),
    )
    yield LineUp(
        "beyond import pyarrow, fresh interpreters",
        ways,
        scale.rounds(31, 5),
        (Target(subject, "at most", 1.5, baseline),),
        warm_ups=1,
    )


CASE: Final = Case(
    "import",
    "import bowstring beyond import pyarrow",
    _line_ups,
    Explanation(
        measured=(
            "import bowstring in a new interpreter that has imported pyarrow; beside it also what a program "
            "that publishes and connects needs."
        ),
        baseline="import pyarrow.flight.",
        floor="One small module of the standard library.",
        reading="Added to the start of each process, by those alone who start many.",
    ),
)
