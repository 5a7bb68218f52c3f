"""A streaming query appends each micro-batch to a data set; a reader follows it.

python examples/structured_streaming.py
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

import bowstring as bow

ROWS = 200
PATIENCE_SECONDS = 90


def main() -> None:
    """Write a stream under a name, and follow it until enough rows have come."""
    spark = bow.spark.session("structured_streaming", config={"spark.ui.enabled": "false"})
    ticks = spark.readStream.format("rate").option("rowsPerSecond", 100).load()

    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            ticks.selectExpr("timestamp", "value", "value % 10 AS sensor")
            .writeStream.format("bowstring")
            .option("name", "ticks")
            .option("lease_seconds", "5")  # how long the data stay when this program has ended
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="1 second")
            .start()
        )
        try:
            follow("ticks", ROWS, query)
        finally:
            query.stop()
            spark.stop()


def follow(name: str, rows: int, query: Any) -> None:
    """Read what is new under a name again and again. But for the query, this could be any process of the host."""
    known = came = total = 0
    end = time.monotonic() + PATIENCE_SECONDS
    while came < rows and query.isActive and time.monotonic() < end:
        try:
            growing = bow.spark.dataset(name)
        except (bow.UnknownTicket, bow.BrokenError):
            growing = None  # nothing has been written yet
        # Each micro-batch adds endpoints at the end; those that we know do not change.
        for endpoint in growing.endpoints[known:] if growing else ():
            with bow.connect(endpoint) as stream:
                for batch in stream:
                    came += batch.num_rows
                    total += int(batch["value"].to_numpy().sum())
            known += 1
            print(f"{came:5,} rows so far, values add up to {total:,}")
        time.sleep(0.2)
    if came < rows:
        raise SystemExit(
            f"only {came} of {rows} rows came; the query says {query.exception() or query.status}"
        )


if __name__ == "__main__":
    main()
