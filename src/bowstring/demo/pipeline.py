"""The second part of the demo: Spark reads and joins, process B takes over, Spark reads B's columns back."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, Final

import bowstring as bow
from bowstring.benchmarks.processes.child import Child, ChildFailed
from bowstring.demo import spark as engine
from bowstring.errors import BowstringError, BrokenError, MissingDependency

_LEASE_SECONDS: Final = 30.0
_END_SECONDS: Final = 20.0
_TICK: Final = 0.02
_SHOWN: Final = 300


def pipeline(rounds: int, *, device: str | None = None, quiet: bool = False) -> dict[str, Any]:
    """Run all of it, and clean up; return facts and seconds.

    The hand-over is measured in `rounds`, after a first one that is cold.
    """
    if absent := engine.missing():
        raise MissingDependency(
            f"the pipeline through Spark needs {', '.join(absent)}", hint="pip install 'bowstring[demo]'"
        )

    def step(what: str) -> None:
        if not quiet and sys.stderr.isatty():
            print(f"{what} …", file=sys.stderr, flush=True)

    try:
        with (
            _depot(),
            tempfile.TemporaryDirectory(prefix="bowstring-demo-") as folder,
            contextlib.ExitStack() as ends,
            Child("bowstring.demo.places:Consumer", device=device) as process_b,
            Child("bowstring.demo.spark:Engine", folder=folder) as spark,
        ):
            ends.callback(_end_group, spark.pid)
            process_b.begin("warm")  # while Spark starts
            began = time.perf_counter()
            step("Starting Spark")
            facts = spark.call("start")
            facts["seconds_to_start"] = time.perf_counter() - began
            process_b.finish()
            step("Spark: parsing places to VARIANT, joining them with countries")
            facts["seconds_to_load"] = spark.call("load")
            step("Spark → depot → process B, and toArrow(), in turn")
            results = {"spark": facts, **_hand_over(spark, process_b, rounds)}
            step("Process B: typed columns out of the Variants, by path")
            results["extracted"] = process_b.call("take")
            results["countries"] = process_b.call("report")
            uri = process_b.call("offer")
            step("Spark: reading process B's columns, and comparing them with its own")
            compared = spark.call("compare", uri=uri)
            results |= {"read_back": compared["seconds"], "checksums": compared["checksums"]}
    except ChildFailed as error:
        raise BrokenError("a process of the demo failed", found=reason(str(error))) from error
    return {"verified": is_verified(results["checksums"]), **results}


def is_verified(checksums: dict[str, Any]) -> bool:
    """Whether Spark read back what it computes itself."""
    return bool(checksums) and checksums["spark"] == checksums["read_back"]


def reason(text: str) -> str:
    """Return Bowstring's own error in a message of Spark with a traceback, else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    own = [line for line in lines if line.startswith("bowstring.errors.")]
    return (own[-1] if own else lines[0])[:_SHOWN]


def _hand_over(spark: Child, process_b: Child, rounds: int) -> dict[str, Any]:
    """Take the data frame by ``toArrow()`` and publish it to process B, in turn; B keeps the last one."""
    series: dict[str, list[float]] = {"to_arrow": [], "published": [], "connected": [], "handed_over": []}
    for _ in range(rounds + 1):
        seconds, to_arrow_bytes = spark.call("to_arrow")
        series["to_arrow"].append(seconds)
        began = time.perf_counter()
        published = spark.call("publish", lease_seconds=_LEASE_SECONDS)
        read = process_b.call("open", dataset=published["dataset"])
        series["handed_over"].append(time.perf_counter() - began)
        series["published"].append(published["seconds"])
        series["connected"].append(read["seconds"])
        spark.call("release")
    sizes = {name: published[name] for name in ("rows", "nbytes", "partitions")}
    return {**series, **sizes, "to_arrow_bytes": to_arrow_bytes, "read": read}


@contextlib.contextmanager
def _depot() -> Iterator[None]:
    """Let the first task start a depot of the demo's own, and stop it in the end."""
    # Sockets need short paths, which the folder for temporary files may not have.
    with tempfile.TemporaryDirectory(prefix="demo-", dir=os.environ.get("XDG_RUNTIME_DIR")) as folder:
        os.environ["BOWSTRING_DEPOT"] = folder  # processes that are started inherit it
        try:
            yield
        finally:
            # It may not have been started.
            with contextlib.suppress(BowstringError, OSError):
                bow.depot.connect(start=False).stop()
            del os.environ["BOWSTRING_DEPOT"]


def _end_group(group: int) -> None:
    """Kill what the process with Spark left, and wait until all of it is gone."""
    end = time.monotonic() + _END_SECONDS
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < end:
            os.killpg(group, signal.SIGKILL)
            time.sleep(_TICK)
