"""The two processes of a hand-over: one that has a table on a device, one that takes it there."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring as bow
import bowstring.testing
from bowstring.memory import device_by_name, mappings
from bowstring.variant import from_json, get

__all__ = ["TABLES", "Consumer", "Producer", "table"]

_ROWS = 10_000
_MIB = 1 << 20


def _strings(rows: int) -> pa.Array:
    return pa.array([None if number % 7 == 3 else "é" * (number % 5) + str(number) for number in range(rows)])


def _nested(rows: int) -> dict[str, pa.Array]:
    lists = pa.array([None if n % 5 == 4 else list(range(n % 4)) for n in range(rows)], pa.list_(pa.int16()))
    structs = pa.StructArray.from_arrays([_strings(rows), lists], ["s", "l"])
    return {"l": lists, "st": structs}


TABLES: dict[str, Any] = {
    "one byte": lambda: {"a": pa.array([1], pa.int8())},
    "nothing": lambda: {"a": pa.array([], pa.int64()), "s": pa.array([], pa.string())},
    "numbers": lambda: {"n": np.arange(_ROWS), "f": np.linspace(0, 1, _ROWS), "b": np.arange(_ROWS) % 3 == 0},
    "strings": lambda: {"s": _strings(_ROWS), "n": pa.array([None, 1] * (_ROWS // 2))},
    "nested": lambda: _nested(_ROWS),
    "dictionaries": lambda: {"d": _strings(_ROWS).dictionary_encode()},
    "64 MiB": lambda: {"f": np.random.default_rng(1).random(8 * _MIB)},
}


def table(name: str) -> pa.Table:
    """Return one of the tables; the same in every process."""
    return pa.table(TABLES[name]())


class Producer:
    """Has tables on a device, and publishes them from there."""

    def __init__(self, device: str, address: str = "unix:", budget: int = 1 << 30) -> None:
        self._device = device_by_name(device)
        self._pool = bow.Pool(self._device, budget=budget)
        self._server = bow.Server(address, pool=self._pool)
        self._count = 0

    def publish(self, name: str) -> str:
        """Put a table on the device, publish it from there, and return its URI."""
        batch = bow.Batch.from_arrow(table(name).combine_chunks()).to_device(self._device, self._pool)
        self._count += 1
        return str(self._server.publish(f"t{self._count}", batch, readers=1))

    def publish_documents(self, rows: int) -> str:
        """Publish a Variant column on the device."""
        column = from_json([f'{{"a": {{"b": {number}}}, "s": "row {number}"}}' for number in range(rows)])
        batch = column.as_batch().to_device(self._device, self._pool)
        self._count += 1
        return str(self._server.publish(f"t{self._count}", batch, readers=1))

    def withdraw(self) -> None:
        """Offer the last table no longer, whether or not its reader could still say that it has read it."""
        with contextlib.suppress(bow.UnknownTicket):
            self._server.withdraw(f"t{self._count}")

    def in_use(self) -> int:
        """Return the bytes that somebody uses."""
        gc.collect()
        return self._pool.stats.in_use

    def wait_until_free(self, seconds: float) -> int:
        """Wait until nobody uses anything; return what is used still."""
        end = time.monotonic() + seconds
        while self.in_use() and time.monotonic() < end:
            time.sleep(0.01)
        return self.in_use()

    def made(self) -> int:
        """Return how many regions were ever made."""
        return self._pool.stats.made

    def close(self) -> None:
        """End the server."""
        self._server.close()


class Consumer:
    """Takes tables, and looks at them."""

    def __init__(self, device: str) -> None:
        self._device = device_by_name(device)
        self._held: list[Any] = []
        self._stop = threading.Event()
        self._seen: list[bool] = []
        self._reader: threading.Thread | None = None

    def take(self, endpoint: str, name: str, mode: Any = "map", device: str | None = None) -> dict[str, Any]:
        """Take a table; return where it came, by which path, and whether it is what it should be."""
        with bow.connect(endpoint, mode=mode, device=device) as stream:
            batches = list(stream)
            found = pa.Table.from_batches([batch.to_arrow() for batch in batches], schema=stream.schema)
            path = stream.stats.path
        return {
            "equal": found.equals(table(name)),
            "devices": sorted({batch.device.name for batch in batches}),
            "path": path,
        }

    def hold(self, endpoint: str) -> None:
        """Take a table, and keep it."""
        with bow.connect(endpoint, mode="map") as stream:
            self._held = list(stream)

    def begin_reading(self, name: str) -> None:
        """Compare what is held with what it should be, over and over, in a thread."""
        expected = table(name)

        def read() -> None:
            while not self._stop.is_set():
                found = pa.Table.from_batches([batch.to_arrow() for batch in self._held])
                self._seen.append(found.equals(expected))

        self._reader = threading.Thread(target=read)
        self._reader.start()

    def end_reading(self) -> list[bool]:
        """Return what the comparisons found since this was called: none, where the reading thread died."""
        assert self._reader is not None
        count = len(self._seen)
        while len(self._seen) < count + 2 and self._reader.is_alive():
            time.sleep(0.01)
        self._stop.set()
        self._reader.join(30.0)
        return self._seen[count:]

    def drop(self) -> None:
        """Let everything go."""
        self._held = []
        gc.collect()

    def numbers(self, endpoint: str, path: str) -> list[int]:
        """Get integers out of a Variant column where it lies; return sum, count, and whether they lie there."""
        with bow.connect(endpoint, mode="map") as stream:
            [batch] = stream
        values = get(batch[0], path, pa.int64())
        on_host = values.device.to_host(values.raw_values)
        return [int(on_host.sum()), len(on_host), int(values.device is self._device)]

    def mapped(self) -> list[int]:
        """Return how many regions are mapped now: in use, and idle."""
        gc.collect()
        mappings().trim()
        statistics = mappings().stats
        return [statistics.in_use, statistics.idle]
