"""A hundred readers in one event loop: python examples/asyncio_readers.py.

None of them has a thread of its own, and none holds up the others: a table that is still being made is waited for
by those that read it alone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import numpy as np

import bowstring as bow

others_are_done = threading.Event()


def slow() -> Iterator[dict[str, np.ndarray]]:
    """Make a table whose last batch is late."""
    yield {"value": np.full(10, 1)}
    others_are_done.wait(60)
    yield {"value": np.full(10, 2)}


async def total(endpoint: bow.Endpoint) -> int:
    """Add up a data set."""
    async with await bow.connect_async(endpoint) as stream:
        return sum([int(batch["value"].to_numpy().sum()) async for batch in stream])


async def main() -> None:
    """Read many data sets at once, one of them slow."""
    with bow.Server() as server:
        quick = [server.publish(f"table {n}", {"value": np.full(1000, n)}) for n in range(100)]
        late = asyncio.create_task(total(server.publish("slow", slow)))
        totals = await asyncio.gather(*map(total, quick))
        print(f"{len(totals)} tables, {sum(totals):,} in all; the slow one has come: {late.done()}")
        others_are_done.set()
        print(f"the slow one: {await late}")


if __name__ == "__main__":
    asyncio.run(main())
