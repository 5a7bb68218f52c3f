"""A data set that grows while other processes follow it: python examples/growing.py.

The producer appends measurements, and keeps the last fifty batches. One reader follows from the beginning. Another
one stops in the middle, keeps its position as a line of text, and goes on from there in a new process.
"""

from __future__ import annotations

from multiprocessing import get_context

import numpy as np

import bowstring as bow

BATCHES = 40
ROWS = 1000


def measured(number: int) -> dict[str, np.ndarray]:
    """Return one batch of measurements."""
    return {"batch": np.full(ROWS, number), "value": np.random.default_rng(number).random(ROWS)}


def follow(address: str, since: str | None, most: int, results: object) -> None:
    """Read batches as they come, at most so many; report their numbers, and the position behind them."""
    found = []
    with bow.connect(address, "measurements", follow=True, since=since) as stream:
        while len(found) < most:
            batch = next(stream, None)  # which waits for the next one, and is None after finish()
            if batch is None:
                break
            found.append(int(batch["batch"].to_numpy()[0]))
        results.put((found, str(stream.position)))


def main() -> None:
    """Append to a data set that two chains of processes follow."""
    context = get_context("spawn")
    whole, parts = context.Queue(), context.Queue()
    with bow.Server() as server:
        server.append("measurements", measured(0), retain={"batches": 50})
        everything = context.Process(target=follow, args=(server.address, None, BATCHES + 1, whole))
        first = context.Process(target=follow, args=(server.address, None, 10, parts))
        everything.start()
        first.start()
        for number in range(1, BATCHES):
            server.append("measurements", measured(number))
        beginning, position = parts.get()
        first.join()
        rest = context.Process(target=follow, args=(server.address, position, BATCHES, parts))
        rest.start()
        server.finish("measurements")
        print(f"followed from the beginning: {whole.get()[0] == list(range(BATCHES))}")
        end, _ = parts.get()
        print(f"read in two parts: {len(beginning)} batches, then {len(end)}")
        print(f"nothing is missing or doubled: {beginning + end == list(range(BATCHES))}")
        everything.join()
        rest.join()


if __name__ == "__main__":
    main()
