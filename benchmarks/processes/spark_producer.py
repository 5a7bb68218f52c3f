"""Spark in a process of its own: it counts rows, publishes them, or takes them into its driver."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bowstring.transport.socket_file import runtime_folder

COLUMNS: Final = (
    "id AS a",
    "id * 3 AS b",
    "id % 1000 AS c",
    "id * 0.5D AS d",
    "id * 0.25D AS e",
    "CAST(id % 100000 AS INT) AS f",
    "timestamp_micros(id * 1000) AS g",
    "lpad(CAST(id AS STRING), 19, '0') AS h",
)
"""Three int64, two doubles, an int32, a timestamp, and text of 19 characters: 76 bytes for each row."""
_NUMBERS: Final = ("a", "b", "c", "d", "e", "f", "g")
_SHORT_ROWS: Final = {"spark.sql.execution.arrow.maxBytesPerBatch": "2147483647"}
"""What a user sets whose text is short: with any other bound Spark measures its batch for every row."""
_DEPOT: Final = "BOWSTRING_DEPOT"
_PARTITIONS: Final = 4
_REST_SECONDS: Final = 0.3
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "4g",
    "spark.driver.maxResultSize": "4g",
    "spark.log.level": "ERROR",
}


def expected(rows: int) -> str:
    """Return what :func:`sums` returns for all rows."""
    ids = np.arange(rows, dtype=np.int64)
    total = int(ids.sum())
    numbers = (total, 3 * total, int((ids % 1000).sum()), total * 0.5, total * 0.25)
    return _said(rows, (*numbers, int((ids % 100_000).sum()), 1000 * total, total))


def sums(table: pa.Table) -> str:
    """Return the number of rows, and the sum of each column: of text, the sum of the numbers that it spells."""
    found = []
    for name in _NUMBERS:
        column = table[name]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        found.append(pc.sum(column, min_count=0).as_py())
    found.append(pc.sum(table["h"].cast(pa.int64()), min_count=0).as_py())
    return _said(table.num_rows, found)


def _said(rows: int, found: Iterable[float]) -> str:
    return f"{rows} rows, sums {', '.join(map(str, found))}"


def count_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do what any consumer in a task must, and no more: it runs in Spark's workers."""
    yield pa.RecordBatch.from_pydict(
        {"rows": pa.array([sum(batch.num_rows for batch in batches)], pa.int64())}
    )


class SparkProducer:
    """A session with rows that Spark makes itself, and with the same in Parquet files.

    Run it in a :class:`~bowstring.benchmarks.processes.child.Child`, which is stopped with its depot when it ends.
    """

    def __init__(self, rows: int, *, parquet: bool = False, defaults: bool = False) -> None:
        from bowstring.spark import session

        self._folder = tempfile.mkdtemp(prefix="bowstring-bench-")
        # A depot of this run's own, wherever the workers are.
        self._place = tempfile.mkdtemp(prefix="bench-", dir=runtime_folder())
        os.environ[_DEPOT] = self._place
        cores = len(os.sched_getaffinity(0))
        settings = {
            **_SETTINGS,
            **({} if defaults else _SHORT_ROWS),
            "spark.local.dir": self._folder,
            "spark.sql.warehouse.dir": os.path.join(self._folder, "warehouse"),
        }
        self._spark = session("bowstring bench", f"local[{cores}]", settings)
        self._frame = self._spark.range(0, rows, 1, max(_PARTITIONS, cores)).selectExpr(*COLUMNS)
        if parquet:
            files = os.path.join(self._folder, "rows.parquet")
            self._frame.write.parquet(files)
            self._frame = self._spark.read.parquet(files)
        self._published: list[Any] = []

    def rest(self) -> None:
        """Let Spark tidy up after its last job, or the next one would share the processor with that."""
        time.sleep(_REST_SECONDS)

    def count(self) -> dict[str, Any]:
        """Count the rows in a ``mapInArrow``."""
        begin = time.perf_counter()
        parts = self._frame.mapInArrow(count_batches, "rows long").collect()
        return {"seconds": time.perf_counter() - begin, "rows": sum(part.rows for part in parts)}

    def publish(self, *, scan: str = "spark") -> dict[str, Any]:
        """Publish the rows; say when that began, how long it took, and where they are."""
        from bowstring.spark import publish

        began, begin = time.time(), time.perf_counter()
        published = publish(self._frame, "rows", scan=scan)  # type: ignore[arg-type]  # comes as JSON
        seconds = time.perf_counter() - begin
        self._published.append(published)
        return {"began": began, "seconds": seconds, "dataset": published.to_json()}

    def release(self) -> None:
        """Free what was published, so that the next one finds warm memory."""
        for published in self._published:
            published.release()
        self._published.clear()

    def to_arrow(self) -> dict[str, Any]:
        """Take all rows into this process."""
        begin = time.perf_counter()
        table = self._frame.toArrow()
        seconds = time.perf_counter() - begin
        return {"seconds": seconds, "sums": sums(table)}

    def last_end(self) -> float:
        """Return when the last job ended, with its last task, in seconds since 1970: a question for each job."""
        jobs = self._spark.sparkContext._jsc.sc().statusStore().jobsList(None)
        ends = [jobs.apply(number).completionTime() for number in range(jobs.size())]
        return float(max(end.get().getTime() for end in ends if end.isDefined())) / 1e3

    def close(self) -> None:
        """Stop Spark and the depot, and leave no file."""
        from bowstring import depot
        from bowstring.errors import BowstringError

        self._spark.stop()
        with contextlib.suppress(BowstringError):  # it may never have been started
            depot.connect(start=False).stop()
        for folder in (self._folder, self._place):
            shutil.rmtree(folder, ignore_errors=True)
