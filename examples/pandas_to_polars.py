"""A pandas data frame of one process as a polars data frame of another: python examples/pandas_to_polars.py.

pandas converts to Arrow once, when the frame is published. polars reads the shared memory; only text is copied.
"""

from __future__ import annotations

from multiprocessing import get_context

import numpy as np
import pandas as pd
import polars as pl

import bowstring as bow


def average(uri: str) -> None:
    """Read the frame in this process, and print the average fare of each city."""
    with bow.connect(uri) as stream:
        frame = stream.to_polars()
    print(frame.group_by("city").agg(pl.col("fare").mean()).sort("city").rows())


def main() -> None:
    """Publish a frame, and let another process read it."""
    count = 1_000_000
    frame = pd.DataFrame(
        {
            "city": pd.Categorical.from_codes(np.arange(count) % 3, ["Bern", "Lima", "Oslo"]),
            "fare": np.arange(count) % 3 + 10.0,
        }
    )
    with bow.Server() as server:
        uri = str(server.publish("trips", frame))
        reader = get_context("spawn").Process(target=average, args=(uri,))
        reader.start()
        reader.join()


if __name__ == "__main__":
    main()
