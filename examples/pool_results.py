"""Workers of a pool that hand back tables instead of pickling them: python examples/pool_results.py.

Each worker puts its table into shared memory and returns the endpoint, a line of text. The parent maps the tables;
they stay until the worker releases them or ends, and what was read stays longer.
"""

from __future__ import annotations

from multiprocessing import get_context

import numpy as np
import pyarrow as pa

import bowstring as bow

ROWS = 1_000_000


def simulate(seed: int) -> bow.Endpoint:
    """Make a large table, and return what stands for it."""
    walk = np.random.default_rng(seed).normal(size=ROWS).cumsum()
    return bow.put({"step": np.arange(ROWS), "value": walk, "seed": np.full(ROWS, seed)}, readers=1)


def main() -> None:
    """Have four workers make tables, and put the tables together without a copy."""
    with get_context("spawn").Pool(4) as pool:
        tables = [bow.get(endpoint) for endpoint in pool.map(simulate, range(8))]
    table = pa.concat_tables(tables)  # the workers are gone, the tables are not
    seeds = sorted(set(table["seed"].to_pylist()[::ROWS]))
    print(f"{table.num_rows:,} rows, {table.nbytes:,} bytes; seeds {seeds}")


if __name__ == "__main__":
    main()
