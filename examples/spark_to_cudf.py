"""From Spark to cuDF: batches go to a GPU once, and become cuDF data frames over the same memory.

python examples/spark_to_cudf.py
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

import bowstring as bow


def gpu() -> bow.Device | None:
    """Return the first GPU, None with a sentence where there is none that could be used."""
    if find_spec("cudf") is None:
        print("cuDF is not installed (pip install cudf-cu13): nothing to show here.")
        return None
    try:
        return bow.memory.device_by_name("cuda")
    except bow.BowstringError as error:
        print(f"No GPU here: {error}")
        return None


def main() -> int:
    """Publish from Spark, and aggregate on the GPU."""
    device = gpu()
    if device is None:
        return 0
    import cudf

    spark = bow.spark.session("spark_to_cudf", config={"spark.ui.enabled": "false"})
    trips = spark.range(1_000_000).selectExpr("id % 7 AS weekday", "rand(42) * 30 AS distance")
    published = bow.spark.publish(trips, "trips")

    # In any process: each batch is copied to the GPU when it comes, by one gathering copy.
    with bow.connect(published, device=device) as stream:
        frames = [batch.to_cudf() for batch in stream]
        print(f"{stream.stats.rows:,} rows on {stream.stats.device}; path {stream.stats.path}")
    print(cudf.concat(frames).groupby("weekday").distance.mean().sort_index())

    published.release()
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
