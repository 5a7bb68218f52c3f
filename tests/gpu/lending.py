"""The two processes of a loan: one that publishes memory of another library, one that reads it there."""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
import time
import types
from typing import Any

import numpy as np
import pyarrow as pa

import bowstring as bow
import bowstring.testing
from bowstring.columnar import Dictionary
from bowstring.columnar.parts import batch_parts, make_batch
from bowstring.errors import BowstringError
from bowstring.memory import device_by_name, foreign_region, mappings

__all__ = ["Borrower", "Lender", "PoolLender", "moved"]

_AT_WORK = 0.6  # seconds
_QUICK = bow.Limits(connect_timeout=10.0, reply_timeout=10.0, heartbeat=0.2, release_timeout=10.0)


def moved(device: bowstring.testing.FakeDevice, batch: bow.Batch) -> bow.Batch:
    """Return a batch of the host whose buffers lie in one allocation of another library."""
    table = batch_parts(batch).spans.table.copy()
    ends = np.cumsum(-(-table[:, 2] // 64) * 64)
    memory = device.allocate(max(1, int(ends[-1])))
    for row, end in enumerate(ends.tolist()):
        _, _, nbytes = table[row].tolist()
        start = end - (-(-nbytes // 64) * 64)
        if nbytes:
            memory[start : start + nbytes] = device.from_host(batch_parts(batch).spans.array(row))
        table[row] = 0, start * bool(nbytes), nbytes
    region = foreign_region(memory.data.ptr, len(memory), memory, device)
    dictionaries = {
        id_: Dictionary(id_, moved(device, each.values)) for id_, each in batch.dictionaries.items()
    }
    return make_batch(
        bow.Batch,
        batch.layout,
        batch.num_rows,
        batch_parts(batch).nodes,
        variadic_counts=batch_parts(batch).variadic_counts,
        dictionaries=dictionaries,
        spans=table,
        regions=[region],
        device=device,
    )


def _named(address: int | None) -> Any:
    """Return a stream of that address, as a user names it; nothing for none."""
    return None if address is None else types.SimpleNamespace(ptr=address)


class _Role:
    def __init__(self, device: str) -> None:
        self.device: Any = device_by_name(device)

    @property
    def _keeps(self) -> bool:
        """Whether it has batches or a stream of others."""
        return False

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

    def events(self) -> int:
        """Return how many events the fake driver holds for us, when it was swept."""
        gc.collect()
        self.device.sweep()
        return len(self.device.driver.held_events)

    def held(self) -> list[int]:
        """Return what the fake driver still holds for us, when our streams are done."""
        gc.collect()
        end = time.monotonic() + 10.0
        # The loop ends streams, too, and then lets go of what they had mapped.
        while any(each.name.startswith("bowstring-client") for each in threading.enumerate()) or (
            mappings().stats.in_use and not self._keeps
        ):
            assert time.monotonic() < end, "a stream does not end"
            time.sleep(0.005)
            gc.collect()
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

    def allocate_small(self, value: list[int]) -> None:
        """Make a small block of its own for each value, of which a driver puts several into one granule."""
        if hasattr(self.device, "allocate"):
            places = self.device.driver.allocate_together(self.device.ordinal, [800] * len(value))
            blocks = [self.device.array(each, 800, None, writable=True).view(np.int64) for each in places]
        else:
            cuda = self.device.xp.cuda
            memory = [
                cuda.MemoryPointer(cuda.Memory(800), 0) for _ in value
            ]  # cudaMalloc, without CuPy's pool
            blocks = [self.device.xp.ndarray((100,), np.int64, each) for each in memory]
        for block, each in zip(blocks, value, strict=True):
            block[:] = self.device.from_host(np.full(100, each))
        self._arrays += blocks

    def begin_work(self) -> None:
        """Let the fake device have work that is not done before `end_work`."""
        self.device.driver.begin_work()

    def end_work(self) -> None:
        """Let that work be done."""
        self.device.driver.end_work()

    def publish_at_work(self, value: int) -> str:
        """Queue work that takes a while and ends by writing a value to all arrays; publish it, return the URI."""
        if hasattr(self.device.driver, "begin_work"):
            self.begin_work()
            self._write(value)
        else:
            large = self.device.xp.zeros(1 << 28, np.float32)
            self._write(value - 1)  # compiling takes longer than the work
            large += 1
            begin = time.perf_counter()
            self._keep_busy(large, 20)
            self.device.synchronize()
            # More launches would block: a driver queues about a thousand.
            self._keep_busy(large, min(900, int(20 * _AT_WORK / (time.perf_counter() - begin))))
            self._write(value)
        return self.publish(events=True)

    def _keep_busy(self, large: Any, times: int) -> None:
        for _ in range(times):
            large += 1

    def _write(self, value: int) -> None:
        for array in self._arrays:
            array[:] = value

    def wait_waited_for(self) -> None:
        """Wait until another process has an event of ours open."""
        end = time.monotonic() + 30.0
        while not any(each.openers for each in list(self.device.driver._events.values())):
            assert time.monotonic() < end, "nobody opens an event"
            time.sleep(0.005)

    def misused(self) -> list[str]:
        """Return what was done with events that a driver leaves undefined."""
        return list(self.device.driver.misused)

    def publish(
        self,
        readers: int = 1,
        share: Any = "in_place",
        batches: int = 1,
        *,
        events: bool = False,
        text: Any = None,
        encoded: bool = False,
    ) -> str:
        """Publish all arrays as columns, or some text instead, in one or several batches; return the URI."""
        self._count += 1
        columns = {f"c{number}": array for number, array in enumerate(self._arrays)}
        rows = len(self._arrays[0]) // batches
        parts = [
            {name: array[rows * part : rows * (part + 1)] for name, array in columns.items()}
            for part in range(batches)
        ]
        data = [bow.Batch.from_arrow(part) for part in parts]
        if text is not None:
            arrays = [pa.array(each).dictionary_encode() if encoded else pa.array(each) for each in text]
            data = [moved(self.device, bow.Batch.from_arrow({"c0": each})) for each in arrays]
        name = f"t{self._count}"
        cuda = getattr(self.device.xp, "cuda", None)
        current = 0 if cuda is None else cuda.get_current_stream()
        working = current if events else None
        return str(self._server.publish(name, data, readers=readers, share=share, cuda_stream=working))

    def try_publish(self, share: Any = "in_place", *, events: bool = False) -> str:
        """Publish for two readers; return the URI, or the name of the error of ours."""
        try:
            return self.publish(share=share, readers=2, events=events)
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
        found = self._server.stats
        return {
            "lent": found.bytes_lent,
            "kept": found.kept,
            "made": found.pool.made,
            "lost": found.lost,
            "stopped": found.stopped,
            "connections": found.connections,
        }

    def close(self) -> None:
        """End the server."""
        self._server.close()


class PoolLender(Lender):
    """Has arrays that a library allocated from the server's pool, and lends them."""

    def allocate(self, value: int, rows: int = 1_000_000, arrays: int = 1, kind: str = "cupy") -> int:
        """Make so many arrays of int64, all of one value; return the address of the last."""
        for _ in range(arrays):
            if kind == "rmm":
                memory = _RmmMemory(self._rmm, self.device, 8 * rows)
                array = self.device.array(memory.address, 8 * rows, memory, writable=True).view(np.int64)
                array[:] = value
            else:
                with self._pool.cupy():
                    array = self.device.xp.full(rows, value, np.int64)
            self._arrays.append(array)
        return int(array.data.ptr)

    @functools.cached_property
    def _rmm(self) -> Any:
        return self._pool.rmm()

    def write(self, value: int) -> None:
        """Write a value to all arrays."""
        self._write(value)
        self.device.synchronize()

    def pool_bytes(self) -> dict[str, int]:
        """Return what the pool counts, when what is garbage was collected."""
        gc.collect()
        found = self._pool.stats
        return {"allocated": found.allocated, "in_use": found.in_use}

    def wait_in_use(self, nbytes: int) -> int:
        """Wait until so much is in use, for a limited time; return how much is."""
        end = time.monotonic() + 10.0
        while self.pool_bytes()["in_use"] != nbytes and time.monotonic() < end:
            time.sleep(0.01)
        return self.pool_bytes()["in_use"]


class _RmmMemory:
    """Memory of a resource, freed with the last reference, as a buffer of RMM is."""

    def __init__(self, resource: Any, device: Any, nbytes: int) -> None:
        self._resource, self._nbytes = resource, nbytes
        self.address = resource.allocate(nbytes)

    def __del__(self) -> None:
        self._resource.deallocate(self.address, self._nbytes)


class Borrower(_Role):
    """Reads what is lent."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self._held: list[Any] = []
        self._stream: Any = None

    @property
    def _keeps(self) -> bool:
        return bool(self._held) or self._stream is not None

    def take(self, uri: str, mode: Any = "map", named: int | None = None) -> dict[str, Any]:
        """Read a data set; return the values that its columns have, where they lie, and how they came."""
        with bow.connect(uri, limits=_QUICK, mode=mode, cuda_stream=_named(named)) as stream:
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
        columns = [batch[name].raw_values for name in batch.schema.names]
        return {int(value) for each in columns for value in set(batch.device.to_host(each).tolist())}

    def warm(self) -> None:
        """Have what a first use of the device loads and compiles, so that what is timed does not wait for it."""
        self.device.to_host(self.device.xp.zeros(1, np.int64))

    def take_in_order(self, uri: str) -> dict[str, Any]:
        """Read a data set on a stream of our own that waits for the producer's work; return values and why."""
        cuda = getattr(self.device.xp, "cuda", None)
        stream = _named(77) if cuda is None else cuda.Stream(non_blocking=True)
        current = contextlib.nullcontext() if cuda is None else stream
        with current, bow.connect(uri, limits=_QUICK, cuda_stream=stream) as batches:
            found = {value for batch in batches for value in self._values(batch)}
            return {"values": sorted(found), "why": batches.stats.why}

    def try_take(self, uri: str, named: int | None = None) -> Any:
        """Read a data set; return its values, or the name of the error of ours."""
        try:
            return self.take(uri, named=named)["values"]
        except BowstringError as error:
            return type(error).__name__

    def hold(self, uri: str, named: int | None = None) -> None:
        """Read a data set, and keep it; on a stream of that address, if it is named."""
        with bow.connect(uri, limits=_QUICK, mode="map", cuda_stream=_named(named)) as stream:
            self._held += list(stream)

    def begin(self, uri: str, named: int | None = None) -> list[int]:
        """Read the first batch of a data set, as `hold` does, and keep it and the stream."""
        self._stream = bow.connect(uri, limits=_QUICK, mode="map", cuda_stream=_named(named))
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
