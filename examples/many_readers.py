"""One table in shared memory, read by eight processes at once: python examples/many_readers.py.

Each process reads the whole table, and then a shard of it. The table is in memory once, whatever the number of
readers.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

import bowstring as bow

READERS = 8
ROWS = 4_000_000


def total(uri: str) -> float:
    """Return the sum of all fares; no fare is copied."""
    with bow.connect(uri, columns=["fare"]) as stream:
        return sum(float(batch["fare"].to_numpy().sum()) for batch in stream)


def part(uri: str, number: int) -> tuple[int, float]:
    """Return how many rows the shard of a reader has, and the sum of its fares."""
    with bow.connect(uri, shard=(number, READERS)) as stream:
        batches = list(stream)
    return sum(map(len, batches)), sum(float(batch["fare"].to_numpy().sum()) for batch in batches)


def main() -> None:
    """Publish a table, and let eight processes read it."""
    table = {"trip": np.arange(ROWS), "fare": np.arange(ROWS) % 100 / 2}
    with (
        bow.Server() as server,
        ProcessPoolExecutor(READERS, mp_context=get_context("spawn")) as readers,
    ):
        uri = str(server.publish("trips", table))
        totals = set(readers.map(total, [uri] * READERS))
        parts = list(readers.map(part, [uri] * READERS, range(READERS)))
        used = server.pool.stats.in_use
    expected = float(table["fare"].sum())
    assert totals == {expected}
    assert sum(total for _, total in parts) == expected
    print(
        f"{READERS} readers of {ROWS:,} rows, then {READERS} shards of {parts[0][0]:,} rows; total {expected:,.1f}"
    )
    print(f"the table has {16 * ROWS:,} bytes, and all of them together used {used:,} bytes of shared memory")


if __name__ == "__main__":
    main()
