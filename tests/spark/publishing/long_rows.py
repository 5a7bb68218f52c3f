"""Scenarios of long rows: gigabytes of them are published with the memory that Java has by default."""

from __future__ import annotations

from typing import Any

import bowstring as bow
from tests.spark.publishing.local import held, wait_for

LONG = {
    "images": (8_000, "id", "cast(repeat('x', 100000) as binary) image"),
    "texts": (200_000, "id", "repeat('x', 5000) text"),
    "embeddings": (150_000, "id", "transform(sequence(1, 1536), i -> cast(i as float)) embedding"),
}
"""65,536 of them in a batch, or all of a partition, are more than Java has."""


def start() -> Any:
    """Return a session as a user makes one, with the heap that Spark gives it."""
    return bow.spark.session(master="local[2]", config={"spark.ui.enabled": "false"})


def long_rows(session: Any) -> None:
    """Partitions of several hundred megabytes of rows of kilobytes are published, every row of them."""
    for name, (rows, *columns) in LONG.items():
        with bow.spark.publish(session.range(0, rows, 1, 2).selectExpr(*columns), name) as published:
            assert (len(published), published.num_rows) == (2, rows), name
            assert (published.nbytes or 0) > 700e6
        wait_for(lambda: held().memory_in_use + held().disk_in_use == 0)


def long_rows_in_small_executors(session: Any) -> None:
    """So they are in executors of a gibibyte, without a task that fails."""
    session.stop()
    config = {"spark.ui.enabled": "false", "spark.task.maxFailures": "1"}
    session = bow.spark.session(master="local-cluster[2,1,1024]", config=config)
    session.sparkContext.setLogLevel("OFF")
    try:
        long_rows(session)
    finally:
        session.stop()


SCENARIOS = [long_rows, long_rows_in_small_executors]
