"""From Spark to pandas and pyarrow in another process, and back into Spark.

python examples/spark_to_pandas.py
"""

from __future__ import annotations

import subprocess
import sys

import bowstring as bow
from bowstring.dissociated.uri import Dataset


def produce() -> None:
    """Publish a data frame; nothing but the names of its parts comes to this process."""
    spark = bow.spark.session("spark_to_pandas", config={"spark.ui.enabled": "false"})
    trips = spark.range(1_000_000).selectExpr(
        "id", "id % 7 AS weekday", "rand(42) * 30 AS distance", "concat('taxi ', id % 500) AS taxi"
    )

    # Spark's tasks write their rows into shared memory, which the depot of this host keeps for readers.
    published = bow.spark.publish(trips, "trips")
    print(f"published {published.num_rows:,} rows in {len(published)} partitions, {published.nbytes:,} bytes")

    # Any process of this host can read it, or of another one where the depot listens on TCP. This one has no Spark.
    consumer = [sys.executable, __file__, "consume", published.to_json()]
    subprocess.run(consumer, check=True, timeout=120)  # noqa: S603  this very file

    # And Spark itself can read what any process publishes.
    back = spark.read.format("bowstring").option("dataset", published.to_json()).load()
    print("Spark read back", f"{back.count():,}", "rows")

    published.release()
    spark.stop()


def consume(dataset: str) -> None:
    """Read the data set batch by batch without a copy, then as one table."""
    source = Dataset.from_json(dataset)
    with bow.connect(source, columns=["distance"]) as stream:
        # to_numpy() is a view of the memory that Spark's tasks wrote.
        total = sum(float(batch["distance"].to_numpy().sum()) for batch in stream)
        print(f"{stream.stats.rows:,} trips of {total:,.0f} km; path {stream.stats.path}")

    with bow.connect(source) as stream:
        table = stream.read_all()  # a pyarrow.Table over the same memory
    print(table.group_by("weekday").aggregate([("distance", "mean")]).sort_by("weekday").to_pandas())


if __name__ == "__main__":
    if sys.argv[1:2] == ["consume"]:
        consume(sys.argv[2])
    else:
        produce()
