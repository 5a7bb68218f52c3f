"""Garbage collection and finalizers at the worst moments, one way for each name; prints ``ok``.

With ``locks`` every lock of the process is one of ours, which drops a victim (a batch, a view, a stream, a server …
in a cycle, or at the end of its last reference) while it is held.
"""

from __future__ import annotations

import faulthandler
import gc
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

case, address = sys.argv[1:]
faulthandler.dump_traceback_later(55.0, exit=True)

victims: list[Any] = []
armed = threading.local()
dropped = 0
busy = False


def drop_one() -> None:
    """Let go of a victim, inside whatever lock is held now."""
    global dropped, busy  # noqa: PLW0603  a program
    if not victims or busy:
        return
    busy = True
    try:
        try:
            victim = victims.pop()
        except IndexError:
            return
        dropped += 1
        del victim
        if dropped % 20 == 0:
            gc.collect()
    finally:
        busy = False


def watched(make: Callable[[], Any]) -> Callable[[], Any]:
    """Return a maker of locks that let go of victims as soon as they are held."""

    class Lock:
        def __init__(self) -> None:
            self._lock = make()

        def acquire(self, *arguments: Any, **options: Any) -> bool:
            got = bool(self._lock.acquire(*arguments, **options))
            if got:
                drop_one()
            return got

        __enter__ = acquire

        def __exit__(self, *_: object) -> None:
            self._lock.release()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._lock, name)

    return Lock


if case == "locks":
    threading.Lock = watched(threading.Lock)  # type: ignore[assignment]
    threading.RLock = watched(threading.RLock)  # type: ignore[assignment]

import numpy as np  # noqa: E402  after the locks were replaced
import pyarrow as pa  # noqa: E402

import bowstring as bow  # noqa: E402
from bowstring.memory import Pool, default_pool, mappings  # noqa: E402

ROWS = 2000
SCHEMA = pa.schema([("n", pa.int64()), ("d", pa.dictionary(pa.int32(), pa.string()))])
LIMITS = bow.Limits(heartbeat=0.05, window_bytes=200_000, reply_timeout=15.0, close_timeout=0.5)


def batch_of(number: int) -> pa.RecordBatch:
    words = pa.array([f"{number}"] * ROWS).dictionary_encode()
    return pa.record_batch([np.full(ROWS, number), words], schema=SCHEMA)


def cyclic(*things: object) -> object:
    """Return things in a cycle, which only the collector frees."""
    cycle: list[object] = [*things]
    cycle.append(cycle)
    return cycle


def victims_of(server: bow.Server, endpoint: Any) -> list[Any]:
    """Return things whose end sends messages, frees memory, closes descriptors."""
    stream = bow.connect(endpoint, limits=LIMITS)
    batches = [stream.read_next_batch() for _ in range(4)]
    found: list[Any] = [
        batches[0],
        batches[1]["n"].values,
        cyclic(batches[2].to_arrow()),
        cyclic(batches[3], batches[3]["d"].to_arrow()),
        cyclic(stream),
        bow.connect(endpoint, limits=LIMITS),
        server.pool.allocate(100),
        cyclic(Pool(budget=4 << 20).allocate(100)),
        cyclic(bow.connect(endpoint, limits=LIMITS, mode="copy").read_next_batch()),
    ]
    return found


def wait_released(server: bow.Server) -> None:
    """Wait for what the collector frees; a collection that another thread is at makes ours do nothing."""
    end = time.monotonic() + 15.0
    while True:
        gc.collect()
        try:
            return server.wait_released(timeout=0.5)
        except bow.errors.DeadlineExceeded:
            if time.monotonic() > end:
                raise


def main() -> None:
    server = bow.Server(address, limits=LIMITS, pool=Pool(budget=128 << 20))
    resident = server.publish("r", pa.Table.from_batches([batch_of(n) for n in range(8)]))
    lazy = server.publish("l", lambda: (batch_of(n) for n in range(8)), schema=SCHEMA)
    rounds = 6 if case == "locks" else 3
    if case != "locks":
        gc.set_threshold(1, 1, 1)
    for number in range(rounds):
        for endpoint in (resident, lazy):
            victims.extend(victims_of(server, endpoint))
            if case == "servers":
                other = bow.Server("unix:", limits=LIMITS, pool=Pool(budget=4 << 20))
                other.publish("o", {"n": [1]})
                cyclic(other)
                other.close()
                del other
            with bow.connect(endpoint, limits=LIMITS) as stream:
                seen = []
                for batch in stream:
                    seen.append(int(batch["n"].values[0]))
                    cyclic(batch, batch["n"].values)
                    if case != "locks" and victims:
                        victims.pop()
                    del batch
            assert seen == list(range(8)), seen
            server.publish(f"again{number}", {"n": np.arange(100)})
            server.withdraw(f"again{number}")
            _ = (server.stats, mappings().stats, default_pool().stats)
    victims.clear()
    gc.set_threshold(700, 10, 10)
    assert case != "locks" or dropped > 50, dropped
    server.withdraw("r")
    server.withdraw("l")
    wait_released(server)
    server.close()
    print("ok", flush=True)


main()
