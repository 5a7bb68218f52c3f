"""A lazy frame of polars over a table of another process: python examples/lazy_polars.py.

The query takes the columns and rows that it needs; a column that no query names is never mapped.
"""

from __future__ import annotations

from multiprocessing import get_context

import numpy as np
import polars as pl

import bowstring as bow


def ask(address: str) -> None:
    """Ask two questions of the table, as of a Parquet file."""
    trips = bow.scan_polars(address, "trips")
    print(trips.collect_schema().names())
    long = trips.filter(pl.col("miles") > 90).select("fare")
    print(long.select(pl.len(), pl.col("fare").mean().round(1)).collect().row(0))
    print(trips.select("trip").head(3).collect()["trip"].to_list())


def main() -> None:
    """Publish a table, and let another process ask."""
    count = 1_000_000
    miles = np.arange(count) % 100
    trips = {"trip": np.arange(count), "miles": miles, "fare": 2.5 + 1.5 * miles, "notes": np.zeros(count)}
    with bow.Server() as server:
        server.publish("trips", trips)
        reader = get_context("spawn").Process(target=ask, args=(server.address,))
        reader.start()
        reader.join()


if __name__ == "__main__":
    main()
