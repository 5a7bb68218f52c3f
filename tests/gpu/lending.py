"""The two processes of a loan: one that publishes memory of another library, one that reads it there."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import numpy as np

import bowstring as bow
import bowstring.testing
from bowstring.errors import BowstringError
from bowstring.memory import mappings
from bowstring.memory.device import device_by_name

__all__ = ["Borrower", "Lender"]

_QUICK = bow.Limits(connect_timeout=10.0, reply_timeout=10.0, heartbeat=0.2, release_timeout=10.0)


class _Role:
    def __init__(self, device: str) -> None:
        self.device: Any = device_by_name(device)

    def fail_next(self, call: str) -> None:
        """Let the next call of a fake driver's method fail."""
        self.device.driver.fail_next(call)

    def never_mind(self, call: str) -> bool:
        """Take that back; return whether the call was never made."""
        return self.device.driver._failures.pop(call, None) is not None

    def disappear(self) -> None:
        """Let the fake device be gone."""
        self.device.driver.disappear()

    def come_back(self) -> None:
        """Let it be there again."""
        self.device.driver.come_back()

    def calls(self) -> dict[str, int]:
        """Return how often each method of the fake driver was called since the last time."""
        found = dict(self.device.driver.calls)
        self.device.driver.calls.clear()
        return found

    def held(self) -> list[int]:
        """Return what the fake driver still holds for us, when our streams are done."""
        gc.collect()
        end = time.monotonic() + 10.0
        while any(each.name.startswith("bowstring-client") for each in threading.enumerate()):
            assert time.monotonic() < end, "a stream does not end"
            time.sleep(0.005)
        mappings().clear()
        self.device.sweep()
        return list(self.device.driver.held)


class Lender(_Role):
    """Has arrays of another library, and lends them."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self._pool = bow.Pool(self.device, budget=64 << 20)
        self._server = bow.Server(pool=self._pool, limits=_QUICK)
        self._arrays: list[Any] = []
        self._count = 0

    def allocate(self, value: int, rows: int = 1000, arrays: int = 1, kind: str = "malloc") -> int:
        """Make one allocation of so many arrays, all of one value; return its address."""
        nbytes = 8 * rows * arrays
        fake = hasattr(self.device, "allocate")
        whole = self.device.allocate(nbytes, kind) if fake else self.device.xp.empty(nbytes, np.uint8)
        whole[:] = self.device.from_host(np.full(rows * arrays, value, np.int64).view(np.uint8))
        numbers = whole.view(np.int64)
        self._arrays += [numbers[rows * each : rows * (each + 1)] for each in range(arrays)]
        return int(whole.data.ptr)

    def publish(self, readers: int = 1, share: Any = "in_place", batches: int = 1) -> str:
        """Publish all arrays as columns, in one or several batches; return the URI."""
        self._count += 1
        columns = {f"c{number}": array for number, array in enumerate(self._arrays)}
        rows = len(self._arrays[0]) // batches
        parts = [
            {name: array[rows * part : rows * (part + 1)] for name, array in columns.items()}
            for part in range(batches)
        ]
        data = [bow.Batch.from_arrow(part) for part in parts]
        return str(self._server.publish(f"t{self._count}", data, readers=readers, share=share))

    def try_publish(self, share: Any = "in_place") -> str:
        """Publish for two readers; return the URI, or the name of the error of ours."""
        try:
            return self.publish(share=share, readers=2)
        except BowstringError as error:
            return type(error).__name__

    def drop(self) -> None:
        """Let our own names of the arrays go."""
        self._arrays = []
        gc.collect()

    def alive(self) -> int:
        """Return how many allocations are alive, of a GPU whether any is."""
        gc.collect()
        if hasattr(self.device, "allocate"):
            return int(self.device.driver.allocated)
        return int(self.device.xp.get_default_memory_pool().used_bytes() > 0)

    def wait_dead(self, seconds: float = 10.0) -> int:
        """Wait until none is alive; return how many are still."""
        end = time.monotonic() + seconds
        while self.alive() and time.monotonic() < end:
            time.sleep(0.01)
        return self.alive()

    def wait_released(self) -> None:
        """Wait until all readers are done."""
        self._server.wait_released()

    def withdraw(self) -> None:
        """Offer nothing any more."""
        for name in self._server.endpoints:
            self._server.withdraw(name)

    def trim(self) -> None:
        """Give idle memory back."""
        self._pool.trim()

    def statistics(self) -> dict[str, int]:
        """Return what the server and its pool count."""
        found = self._server.statistics
        return {"lent": found.bytes_lent, "kept": found.kept, "made": found.pool.made, "lost": found.lost}

    def close(self) -> None:
        """End the server."""
        self._server.close()


class Borrower(_Role):
    """Reads what is lent."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self._held: list[Any] = []
        self._stream: Any = None

    def take(self, uri: str, mode: Any = "map") -> dict[str, Any]:
        """Read a data set; return the values that its columns have, where they lie, and how they came."""
        with bow.connect(uri, limits=_QUICK, mode=mode) as stream:
            batches = list(stream)
            found = {
                "values": sorted({value for batch in batches for value in self._values(batch)}),
                "devices": sorted({batch.device.name for batch in batches}),
                "path": stream.stats.path,
                "why": stream.stats.why,
                "regions": stream.stats.regions,
                "rows": stream.stats.rows,
            }
            del batches
        return found

    def _values(self, batch: bow.Batch) -> set[int]:
        columns = [batch[name].values for name in batch.schema.names]
        return {int(value) for each in columns for value in set(batch.device.to_host(each).tolist())}

    def try_take(self, uri: str) -> Any:
        """Read a data set; return its values, or the name of the error of ours."""
        try:
            return self.take(uri)["values"]
        except BowstringError as error:
            return type(error).__name__

    def hold(self, uri: str) -> None:
        """Read a data set, and keep it."""
        with bow.connect(uri, limits=_QUICK, mode="map") as stream:
            self._held += list(stream)

    def begin(self, uri: str) -> list[int]:
        """Read the first batch of a data set, and keep it and the stream."""
        self._stream = bow.connect(uri, limits=_QUICK, mode="map")
        self._held.append(next(iter(self._stream)))
        return self.values()

    def go_on(self) -> str:
        """Read the next batches; return the name of the error that ends it."""
        try:
            for batch in self._stream:
                self._held.append(batch)
        except BowstringError as error:
            return type(error).__name__
        return "the end"

    def values(self) -> list[int]:
        """Return the values of what is kept."""
        return sorted({value for batch in self._held for value in self._values(batch)})

    def drop(self) -> None:
        """Let everything go."""
        self._held = []
        gc.collect()

    def opened(self) -> int:
        """Return how many allocations of others are open, without closing any."""
        if hasattr(self.device, "allocate"):
            return sum(count for _, _, count in self.device.driver._opened.values())
        return len(self.device.openings)

    def close_slowly(self, seconds: float) -> None:
        """Let the fake driver take its time when memory of others is closed."""
        driver = self.device.driver
        close = driver.close_ipc_handle

        def slow(ordinal: int, address: int) -> None:
            time.sleep(seconds)
            close(ordinal, address)

        driver.close_ipc_handle = slow
