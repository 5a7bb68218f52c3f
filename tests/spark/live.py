"""A live Spark for tests, and the batches that its tasks see."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow

__all__ = ["MARKS", "batches_of", "live_session", "patient"]

MARKS = [
    pytest.mark.slow,
    pytest.mark.peers,
    # PySpark 4.1 leaves the sockets by which it collects rows, Unix ones or of loopback, to the collector.
    pytest.mark.filterwarnings(r"ignore:unclosed .*raddr=.*/\.[0-9a-f-]{36}\.sock>:ResourceWarning"),
    pytest.mark.filterwarnings(r"ignore:unclosed .*raddr=\('127.0.0.1', [0-9]+\)>:ResourceWarning"),
]
"""Of each module whose tests use a live session in this process."""


def patient(seconds: float) -> float:
    """Return a deadline in seconds for a machine as busy as this one is now; `seconds` is that of an idle one."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@functools.cache
def live_session() -> Any:
    """Return the session of this process: two cores, UTC, quiet, and strict about what comes back from Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of PySpark
        session = bow.spark.session(
            master="local[2]",
            config={
                "spark.ui.enabled": "false",
                "spark.sql.session.timeZone": "America/New_York",
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
                "spark.sql.timeType.enabled": "true",
                "spark.sql.geospatial.enabled": "true",
            },
        )
        session.sparkContext.setLogLevel("OFF")
    return session


def batches_of(frame: Any) -> list[pa.RecordBatch]:
    """Return the batches that tasks get of a data frame, exactly."""

    def written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.record_batch({"bytes": pa.array([sink.getvalue().to_pybytes()], pa.binary())})

    rows = frame.mapInArrow(written, "bytes binary").collect()
    return [batch for row in rows for batch in pa.ipc.open_stream(bytes(row["bytes"]))]
