"""A job from end to end: Spark reads TPC-H, makes features, and a process without Spark trains a model on them."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Role, Scale, Skipped, Target, Way
from bowstring.benchmarks.data import tpch
from bowstring.benchmarks.peers.engines import missing
from bowstring.benchmarks.processes.child import Child
from bowstring.benchmarks.processes.spark_producer import SparkProducer

_FULL: Final = 1.0
_QUICK: Final = 0.05
_FEATURES: Final = (
    "CAST(l_quantity AS DOUBLE) AS quantity",
    "CAST(l_discount AS DOUBLE) AS discount",
    "CAST(l_tax AS DOUBLE) AS tax",
    "CAST(datediff(l_receiptdate, l_shipdate) AS DOUBLE) AS days",
    "CAST(l_linenumber AS DOUBLE) AS line",
    "CAST(l_extendedprice AS DOUBLE) AS price",
)
_ROW_BYTES: Final = 8 * len(_FEATURES)
_SECONDS: Final = 600.0
_PUBLISH: Final = "publish, train elsewhere"
_PANDAS: Final = "toPandas(), train in the driver"
_PARQUET: Final = "Parquet in shared memory, train elsewhere"


class Model:
    """Least squares over batches: what the last column is, from the others and a constant."""

    def __init__(self) -> None:
        self._rows = 0
        self._left: Any = 0.0
        self._right: Any = 0.0

    def learn(self, *columns: Any) -> None:
        """Take a batch."""
        *features, target = columns
        design = np.column_stack([np.ones(len(target)), *features])
        self._left = self._left + design.T @ design
        self._right = self._right + design.T @ target
        self._rows += len(target)

    def solved(self) -> str:
        """Return the rows and the coefficients, to the digits that any order of adding up agrees on."""
        found = np.linalg.solve(self._left, self._right)
        return f"{self._rows} rows: {', '.join(f'{value:.5g}' for value in found)}"


def _trained(batches: Iterable[Any]) -> str:
    model = Model()
    for batch in batches:
        model.learn(*(np.asarray(column) for column in batch))
    return model.solved()


class Job(SparkProducer):
    """A role for a started process: Spark with `lineitem` in a Parquet file, and features that it computes."""

    def __init__(self, file: str) -> None:
        super().__init__(rows=1)
        self._frame = self._spark.read.parquet(file).selectExpr(*_FEATURES)

    def train_here(self) -> dict[str, Any]:
        """Take all rows into the driver as pandas, and train."""
        begin = time.perf_counter()
        frame = self._frame.toPandas()
        found = _trained([[frame[name].to_numpy() for name in frame.columns]])
        return {"seconds": time.perf_counter() - begin, "arrived": found}

    def write(self, folder: str) -> None:
        """Write the features as Parquet files."""
        self._frame.write.mode("overwrite").parquet(folder)


class _Trainer:
    """The process without Spark: this one."""

    def __init__(self, job: Child, expected: str, folder: str) -> None:
        self._job = job
        self._expected = expected
        self._folder = folder

    def publish(self) -> Measured:
        self._job.call("rest")
        begin = time.perf_counter()
        published = self._job.call("publish", deadline=_SECONDS)
        try:
            with bow.connect(bow.Dataset.from_json(published["dataset"])) as stream:
                found = _trained(
                    [column.to_numpy() for column in batch.to_arrow().columns] for batch in stream
                )
            return Measured(time.perf_counter() - begin, self._expected, found)
        finally:
            self._job.call("release")

    def parquet(self) -> Measured:
        self._job.call("rest")
        folder = os.path.join(self._folder, "features")
        begin = time.perf_counter()
        self._job.call("write", folder=folder, deadline=_SECONDS)
        table = pq.read_table(folder)
        found = _trained([column.to_numpy() for column in batch.columns] for batch in table.to_batches())
        seconds = time.perf_counter() - begin
        shutil.rmtree(folder)
        return Measured(seconds, self._expected, found)

    def pandas(self) -> Measured:
        self._job.call("rest")
        return Measured(sent=self._expected, **self._job.call("train_here", deadline=_SECONDS))


def _expected_of(file: str) -> str:
    """Return what the model is, by NumPy alone."""
    table = pq.read_table(file)
    days = (
        table["l_receiptdate"].cast(pa.int32()).to_numpy() - table["l_shipdate"].cast(pa.int32()).to_numpy()
    ).astype(float)
    plain = {
        name: table[f"l_{name}"].cast(pa.float64()).to_numpy()
        for name in ("quantity", "discount", "tax", "linenumber", "extendedprice")
    }
    return _trained(
        [
            [
                plain["quantity"],
                plain["discount"],
                plain["tax"],
                days,
                plain["linenumber"],
                plain["extendedprice"],
            ]
        ]
    )


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    factor = _QUICK if scale.quick else _FULL
    title = f"lineitem of TPC-H, scale factor {factor:g}"
    if why := missing("Spark") or tpch.missing():
        yield Skipped(title, why)
        return
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="bowstring-benchmark-") as folder,
        tempfile.TemporaryDirectory(prefix="bowstring-benchmark-", dir=fast) as memory,
    ):
        file = tpch.written(folder, "lineitem", factor)
        rows = pq.ParquetFile(file).metadata.num_rows
        with Child(Job, file=file) as job:
            trainer = _Trainer(job, _expected_of(file), memory)

            def way(name: str, role: Role, once: Callable[[], Measured], beside: str | None = None) -> Way:
                return Way(name, role, once, rows * _ROW_BYTES, beside)

            ways = (
                way(_PUBLISH, "subject", trainer.publish, _PANDAS),
                way(_PANDAS, "baseline", trainer.pandas),
                way(_PARQUET, "beside", trainer.parquet, _PANDAS),
            )
            targets = (Target(_PUBLISH, "at least", 1, _PANDAS), Target(_PUBLISH, "at least", 1, _PARQUET))
            warm_ups = 1 if scale.quick else 5
            yield LineUp(title, ways, scale.rounds(9, 3), targets, warm_ups, at={"rows": rows})


CASE: Final = Case(
    "spark_job",
    "TPC-H from Spark to a model that another process trains",
    _line_ups,
    Explanation(
        measured=(
            "From the start of a job in Spark that reads lineitem of TPC-H from Parquet and computes six "
            "features, to a model of least squares that is trained on them: published by bow.spark.publish "
            "and read by a process without Spark."
        ),
        baseline=(
            "toPandas() and training in the driver, with Arrow and the same settings. Beside it: Spark "
            "writes Parquet files into shared memory, which the other process reads by pyarrow."
        ),
        floor="",
        reading=(
            "Reading Parquet and computing features by Spark are the same in all, and most of the time: the "
            "difference is what handing over costs in a real job."
        ),
    ),
    judged_from={"rows": 1_000_000},
)
