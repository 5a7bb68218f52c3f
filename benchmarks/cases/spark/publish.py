"""From Spark's tasks into the depot, and on to a consumer, beside counting the same rows and ``toArrow()``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from bowstring.benchmarks.case import Axis, Case, Explanation, LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.peers.engines import missing
from bowstring.benchmarks.processes.child import Child
from bowstring.benchmarks.processes.spark_producer import SparkProducer, expected, sums
from bowstring.client import connect
from bowstring.dissociated.endpoint import Dataset

_ROWS: Final = 5_000_000
_QUICK_ROWS: Final = 500_000
_ROW_BYTES: Final = 76
# A JVM compiles Spark's code for some ten seconds: counting takes 2.2 s at first, 1.2 s the sixth time, then 0.9.
_WARM_UPS: Final = 8
_PUBLISH: Final = "publish"
_COUNT: Final = "count, same settings"
_DEFAULTS: Final = "count, Spark's defaults"
_ALL_BATCHES: Final = "publish, connect, all batches"
_AFTER: Final = "of which after the last task"
_TO_ARROW: Final = "toArrow() in the driver"
_TASKS: Final = "publish, tasks read"
_SPARK: Final = "publish, Spark reads"


class _Consumer:
    """Calls the process that publishes, and consumes in this one."""

    def __init__(self, spark: Child, rows: int) -> None:
        self._spark = spark
        self._rows = rows
        self._expected = expected(rows)

    def count(self) -> Measured:
        found = self._rested("count")
        return Measured(found["seconds"], f"{self._rows} rows", f"{found['rows']} rows")

    def publish(self, scan: str = "spark") -> Measured:
        """Measure the producer's time, to the data set; read it outside of the timed region."""
        found = self._rested("publish", scan=scan)
        try:
            return Measured(found["seconds"], self._expected, self._read(found)[1])
        finally:
            self._spark.call("release")

    def hand_over(self, *, after_last_task: bool) -> Measured:
        """Measure to all batches in this process: from the call, or from the end of the last task."""
        found = self._rested("publish")
        try:
            ready, arrived = self._read(found)
        finally:
            self._spark.call("release")
        if after_last_task:
            # The end of a job is known in whole milliseconds.
            return Measured(ready - self._spark.call("last_end"), self._expected, arrived)
        return Measured(ready - found["began"], self._expected, arrived)

    def to_arrow(self) -> Measured:
        found = self._rested("to_arrow")
        return Measured(found["seconds"], self._expected, found["sums"])

    def _rested(self, work: str, **said: Any) -> Any:
        self._spark.call("rest")
        return self._spark.call(work, **said)

    def _read(self, found: dict[str, Any]) -> tuple[float, str]:
        """Return when all batches were here, and what they hold."""
        with connect(Dataset.from_json(found["dataset"])) as stream:
            batches = list(stream)
            ready = time.time()
            return ready, sums(_table(batches))


def _table(batches: list[Any]) -> Any:
    import pyarrow as pa

    return pa.Table.from_batches([batch.to_arrow() for batch in batches])


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    rows = _QUICK_ROWS if scale.quick else _ROWS
    title = f"{rows:,} rows of 8 columns"
    if why := missing("Spark"):
        yield Skipped(title, why)
        return
    rounds, size = scale.rounds(7, 3), rows * _ROW_BYTES
    warm_ups = 1 if scale.quick else _WARM_UPS
    at: dict[Axis, float] = {"rows": rows}
    with Child(SparkProducer, rows=rows) as spark:
        consumer = _Consumer(spark, rows)
        publish = partial(Way, _PUBLISH, "subject", consumer.publish, size)
        # Counting has two line-ups: what runs after another JVM finds the processor's caches full of its data.
        count = Way(_COUNT, "baseline", consumer.count, size)
        most = Target(_PUBLISH, "at most", 1.15, _COUNT)
        yield LineUp(
            f"into the depot, {title}",
            (publish(_COUNT), count),
            scale.rounds(15, 3),
            (most,),
            warm_ups,
            at=at,
        )
        with Child(SparkProducer, rows=rows, defaults=True) as plain:
            defaults = Way(_DEFAULTS, "baseline", _Consumer(plain, rows).count, size)
            least = Target(_PUBLISH, "at least", 1.8, _DEFAULTS)
            name = f"into the depot, beside Spark's defaults, {title}"
            yield LineUp(name, (publish(_DEFAULTS), defaults), rounds, (least,), warm_ups, at=at)
        ways: tuple[Way, ...] = (
            Way(_ALL_BATCHES, "subject", lambda: consumer.hand_over(after_last_task=False), size, _TO_ARROW),
            Way(_AFTER, "subject", lambda: consumer.hand_over(after_last_task=True)),
            Way(_TO_ARROW, "baseline", consumer.to_arrow, size),
        )
        targets = (
            Target(_ALL_BATCHES, "at least", 1.3, _TO_ARROW),
            Target(_AFTER, "at most", 0.05, _TO_ARROW),
        )
        yield LineUp(f"to a consumer, {title}", ways, rounds, targets, warm_ups, at=at)
    with Child(SparkProducer, rows=rows, parquet=True) as spark:
        consumer = _Consumer(spark, rows)
        ways = (
            Way(_TASKS, "subject", lambda: consumer.publish("tasks"), size, _SPARK),
            Way(_SPARK, "baseline", consumer.publish, size),
        )
        yield LineUp(
            f"of Parquet, {title}", ways, rounds, (Target(_TASKS, "at least", 2, _SPARK),), warm_ups, at=at
        )


CASE: Final[Any] = Case(
    "spark_publish",
    "from Spark's tasks to a consumer, through the depot",
    _line_ups,
    Explanation(
        measured=(
            "bow.spark.publish() of a DataFrame to the data set, and on to all batches in another process; "
            "from the end of the last task to there; of Parquet files that tasks read themselves."
        ),
        baseline=(
            "A mapInArrow that counts the same rows, with the same settings and with Spark's defaults; "
            "toArrow() in the driver; publishing what Spark reads."
        ),
        floor="",
        reading=(
            "JVMs are warmed up for eight rounds. Ways of different JVMs are compared two at a time: what "
            "follows another JVM finds its caches cold."
        ),
    ),
    judged_from={"rows": 1_000_000},
)
