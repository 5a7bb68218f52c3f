"""The pipeline of ``bowstring demo``: Spark reads and joins, another process takes over, Spark reads back."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.cli.pipeline.inputs import find_inputs, missing
from bowstring.cli.pipeline.outcome import Outcome
from bowstring.cli.pipeline.steps import Steps, steps
from bowstring.errors import BowstringError, BrokenError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bowstring.benchmarks.processes import Child
    from bowstring.cli.pipeline.inputs import Inputs

__all__ = ["Outcome", "missing", "pipeline"]

_LEASE_SECONDS: Final = 30.0
_PLACE: Final = "BOWSTRING_DEPOT"


def pipeline(*, rounds: int, device: str | None = None, quiet: bool = False) -> Outcome:
    """Run all of it, and leave nothing behind.

    Parameters
    ----------
    rounds
        How often the hand-over is measured, after a first time that is cold.
    device
        Where process B takes the data; where they are by default.
    quiet
        Show no progress.

    Raises
    ------
    MissingDependency
        Something is not installed.
    BrokenError
        Spark or process B failed.
    """
    inputs = find_inputs()
    from bowstring.benchmarks.processes import Child, ChildFailed

    outcome = Outcome()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="bowstring-demo-") as folder,
            steps(quiet=quiet) as shown,
            Child("bowstring.cli.pipeline.consumer:Consumer", device=device) as process_b,
        ):
            process_b.begin("warm")  # while Spark starts
            with _depot() as options, _spark(folder, shown, outcome) as spark:
                process_b.finish()
                frame = _load(spark, inputs, folder, shown, outcome)
                _hand_over(frame, process_b, rounds, options, shown, outcome)
                _extract(process_b, shown, outcome)
                _read_back(spark, frame, process_b, shown, outcome)
    except ChildFailed as error:
        raise BrokenError("process B failed", found=str(error).partition("\n")[0]) from error
    return outcome


@contextlib.contextmanager
def _spark(folder: str, shown: Steps, outcome: Outcome) -> Iterator[Any]:
    from bowstring.cli.pipeline.session import started

    with contextlib.ExitStack() as ends:
        began = time.perf_counter()
        with shown.step("Starting Spark"):
            spark = ends.enter_context(started(folder))
        outcome.spark = {
            "version": spark.version,
            "cores": spark.sparkContext.defaultParallelism,
            "seconds_to_start": time.perf_counter() - began,
        }
        yield spark


@contextlib.contextmanager
def _depot() -> Iterator[dict[str, Any]]:
    """Have a depot of the demo's own, which the first task starts, and stop it in the end."""
    from bowstring import depot
    from bowstring.transport.socket_file import runtime_folder

    before = os.environ.get(_PLACE)
    # Sockets need short paths, which the folder for temporary files may not have.
    with tempfile.TemporaryDirectory(prefix="demo-", dir=runtime_folder()) as folder:
        os.environ[_PLACE] = folder  # Spark's workers inherit it
        try:
            # With the demo killed, this depot ends by itself.
            options = depot.Options(lease_seconds=_LEASE_SECONDS, idle_seconds=_LEASE_SECONDS)
            yield {"depot_options": options, "lease_seconds": _LEASE_SECONDS}
        finally:
            # It may not have been started.
            with contextlib.suppress(BowstringError, OSError):
                depot.connect(start=False).stop()
            del os.environ[_PLACE]
            if before is not None:
                os.environ[_PLACE] = before


def _load(spark: Any, inputs: Inputs, folder: str, shown: Steps, outcome: Outcome) -> Any:
    """Return the data frame, computed and kept in Spark's memory."""
    from bowstring.cli.pipeline.queries import places_near_airports

    began = time.perf_counter()
    with shown.jobs("Spark: parsing places to VARIANT, joining them with flights", spark):
        frame = places_near_airports(spark, inputs, folder).persist()
        frame.count()
    outcome.spark["seconds_to_load"] = time.perf_counter() - began
    return frame


def _hand_over(
    frame: Any, process_b: Child, rounds: int, options: dict[str, Any], shown: Steps, outcome: Outcome
) -> None:
    """Publish the data frame to process B and take it by toArrow() into this one, in turn; B keeps the last one."""
    from bowstring.spark import publish

    with shown.step("Spark → depot → process B, and toArrow(), in turn") as advance:
        for turn in range(rounds + 1):
            advance(turn, rounds + 1)
            began = time.perf_counter()
            table = frame.toArrow()
            outcome.to_arrow.append(time.perf_counter() - began)
            outcome.to_arrow_bytes = table.nbytes
            del table
            began = time.perf_counter()
            dataset = publish(frame, "places", **options)
            outcome.published.append(time.perf_counter() - began)
            outcome.read = process_b.call("open", dataset=dataset.to_json())
            outcome.handed_over.append(time.perf_counter() - began)
            outcome.connected.append(outcome.read["seconds"])
            # Process B keeps what it has mapped.
            dataset.release()
    outcome.rows, outcome.nbytes = int(dataset.num_rows or 0), int(dataset.nbytes or 0)
    outcome.partitions = len(dataset)


def _extract(process_b: Child, shown: Steps, outcome: Outcome) -> None:
    with shown.step("Process B: typed columns out of the Variants, by path") as advance:
        batches = int(outcome.read["batches"])
        for number in range(batches):
            advance(number, batches)
            outcome.extracted += process_b.call("take", number=number)["seconds"]
        outcome.countries = process_b.call("report")


def _read_back(spark: Any, frame: Any, process_b: Child, shown: Steps, outcome: Outcome) -> None:
    from bowstring.cli.pipeline.queries import checksum, typed

    uri = process_b.call("offer")
    with shown.jobs("Spark: reading process B's columns, and comparing them with its own", spark):
        began = time.perf_counter()
        back = checksum(spark.read.format("bowstring").load(uri))
        outcome.read_back = time.perf_counter() - began
        outcome.checksums = {"spark": checksum(typed(frame)), "read_back": back}
