"""The second part of the demo: Spark reads and joins, process B takes over, Spark reads B's columns back."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import bowstring as bow
from bowstring.benchmarks.processes.child import Child, ChildFailed
from bowstring.cli.terminal import duration
from bowstring.demo import spark as engine
from bowstring.errors import BowstringError, BrokenError, MissingDependency

_LEASE_SECONDS: Final = 30.0
_DEPOT: Final = "BOWSTRING_DEPOT"

Step = Callable[[str], contextlib.AbstractContextManager[Any]]


def pipeline(rounds: int, *, device: str | None = None, quiet: bool = False) -> dict[str, Any]:
    """Run all of it, and clean up; return facts and seconds.

    The hand-over is measured in `rounds`, after a first one that is cold.
    """
    if absent := engine.missing():
        raise MissingDependency(
            f"the pipeline through Spark needs {', '.join(absent)}", hint="pip install 'bowstring[demo]'"
        )
    step: Step = contextlib.nullcontext if quiet or not sys.stderr.isatty() else _line
    try:
        with (
            tempfile.TemporaryDirectory(prefix="bowstring-demo-") as folder,
            Child("bowstring.demo.places:Consumer", device=device) as process_b,
        ):
            process_b.begin("warm")  # while Spark starts
            found: dict[str, Any] = {}
            began = time.perf_counter()
            with step("Starting Spark"), contextlib.ExitStack() as ends:
                options = ends.enter_context(_depot())
                spark = ends.enter_context(engine.started(folder))
                stay = ends.pop_all()
            with stay:
                cores = spark.sparkContext.defaultParallelism
                found["spark"] = {"version": spark.version, "cores": cores}
                found["spark"]["seconds_to_start"] = time.perf_counter() - began
                process_b.finish()
                _run(spark, process_b, folder, rounds, options, step, found)
    except ChildFailed as error:
        raise BrokenError("process B failed", found=str(error).partition("\n")[0]) from error
    return {"verified": is_verified(found["checksums"]), **found}


def is_verified(checksums: dict[str, Any]) -> bool:
    """Whether Spark read back what it computes itself."""
    return bool(checksums) and checksums["spark"] == checksums["read_back"]


def _run(
    spark: Any,
    process_b: Child,
    folder: str,
    rounds: int,
    options: dict[str, Any],
    step: Step,
    found: dict[str, Any],
) -> None:
    began = time.perf_counter()
    with step("Spark: parsing places to VARIANT, joining them with flights"):
        frame = engine.places_near_airports(spark, folder).persist()
        frame.count()
    found["spark"]["seconds_to_load"] = time.perf_counter() - began
    with step("Spark → depot → process B, and toArrow(), in turn"):
        _hand_over(frame, process_b, rounds, options, found)
    with step("Process B: typed columns out of the Variants, by path"):
        found["extracted"] = process_b.call("take")
        found["countries"] = process_b.call("report")
    uri = process_b.call("offer")
    with step("Spark: reading process B's columns, and comparing them with its own"):
        began = time.perf_counter()
        back = engine.checksum(spark.read.format("bowstring").load(uri))
        found["read_back"] = time.perf_counter() - began
        found["checksums"] = {"spark": engine.checksum(engine.typed(frame)), "read_back": back}


def _hand_over(
    frame: Any, process_b: Child, rounds: int, options: dict[str, Any], found: dict[str, Any]
) -> None:
    """Take the data frame by ``toArrow()`` and publish it to process B, in turn; B keeps the last one."""
    series = ("to_arrow", "published", "connected", "handed_over")
    found.update({name: [] for name in series})
    for _ in range(rounds + 1):
        began = time.perf_counter()
        table = frame.toArrow()
        found["to_arrow"].append(time.perf_counter() - began)
        found["to_arrow_bytes"] = table.nbytes
        del table
        began = time.perf_counter()
        dataset = bow.spark.publish(frame, "places", **options)
        found["published"].append(time.perf_counter() - began)
        found["read"] = process_b.call("open", dataset=dataset.to_json())
        found["handed_over"].append(time.perf_counter() - began)
        found["connected"].append(found["read"]["seconds"])
        # Process B keeps what it has mapped.
        dataset.release()
    found.update(rows=int(dataset.num_rows or 0), nbytes=int(dataset.nbytes or 0), partitions=len(dataset))


@contextlib.contextmanager
def _depot() -> Iterator[dict[str, Any]]:
    """Let the first task start a depot of the demo's own, and stop it in the end; yield options of publish."""
    before = os.environ.get(_DEPOT)
    # Sockets need short paths, which the folder for temporary files may not have.
    with tempfile.TemporaryDirectory(prefix="demo-", dir=os.environ.get("XDG_RUNTIME_DIR")) as folder:
        os.environ[_DEPOT] = folder  # Spark's workers inherit it
        try:
            # If the demo is killed, this depot ends by itself.
            options = bow.depot.Options(lease_seconds=_LEASE_SECONDS, idle_seconds=_LEASE_SECONDS)
            yield {"depot_options": options, "lease_seconds": _LEASE_SECONDS}
        finally:
            # It may not have been started.
            with contextlib.suppress(BowstringError, OSError):
                bow.depot.connect(start=False).stop()
            del os.environ[_DEPOT]
            if before is not None:
                os.environ[_DEPOT] = before


@contextlib.contextmanager
def _line(what: str) -> Iterator[None]:
    """Show a step on stderr, and how long it took."""
    began = time.perf_counter()
    print(f"{what} … ", end="", file=sys.stderr, flush=True)
    yield
    print(duration(time.perf_counter() - began), file=sys.stderr, flush=True)
