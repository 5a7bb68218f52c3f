"""A table that is replaced while another process reads it: python examples/live_table.py.

The producer publishes a new version every tenth of a second, under the same name. The reader connects again and
again, and gets the newest version. Each version is whole, and a version that was read stays as it was.
"""

from __future__ import annotations

import time
from multiprocessing import get_context

import numpy as np

import bowstring as bow

VERSIONS = 20


def version(number: int) -> dict[str, np.ndarray]:
    """Return a table in which every row says which version it is of."""
    return {"version": np.full(100_000, number), "value": np.random.default_rng(number).random(100_000)}


def follow(uri: str) -> None:
    """Read the newest version until the last one is there; print how many were seen."""
    first = None
    seen: list[int] = []
    while not seen or seen[-1] < VERSIONS:
        with bow.connect(uri) as stream:
            batch = next(stream)
        numbers = batch["version"].to_numpy()
        assert (numbers == numbers[0]).all()  # a version is never mixed with another one
        first = numbers if first is None else first
        if not seen or seen[-1] != numbers[0]:
            seen.append(int(numbers[0]))
        time.sleep(0.02)
    print(f"versions came in order: {seen == sorted(seen)}; the first one is kept: {first[0] == seen[0]}")
    print(f"the last version is {seen[-1]}")


def main() -> None:
    """Publish version after version, and let another process follow."""
    with bow.Server() as server:
        uri = str(server.publish("live", version(1)))
        reader = get_context("spawn").Process(target=follow, args=(uri,))
        reader.start()
        for number in range(2, VERSIONS + 1):
            time.sleep(0.1)
            server.publish("live", version(number), replace=True)
        reader.join()


if __name__ == "__main__":
    main()
