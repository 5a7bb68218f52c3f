"""Publishing what lies on a GPU: one copy on the device, beside a plain one of as many bytes."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any, Final

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.data.tables import size_name
from bowstring.benchmarks.gpu.device import (
    COPY,
    Clock,
    columns,
    copied,
    free_bytes,
    line_up,
    made_ready,
    sizes,
    sums,
    why_not,
)
from bowstring.benchmarks.processes.child import Child

_FULL: Final = (256 << 20, 1 << 30)
_QUICK: Final = (256 << 20,)
_TRIED: Final = (1 << 20,)
_KINDS: Final = {"8 wide columns": 8, "200 small columns": 200}
_SECONDS: Final = 10.0
_BOUND: Final = 0.9


class Publisher:
    """A role for a started process: publishes one of two tables of a device in turn."""

    def __init__(self, device: str, size: int, count: int) -> None:
        self._device = made_ready(device)
        self._tables = [columns(self._device, size, count, seed) for seed in (1, 2)]
        self._sent = [sums(self._device, list(table.values())) for table in self._tables]
        self._pool = bow.Pool(self._device, budget=free_bytes(self._device))
        self._server = bow.Server(pool=self._pool)
        self._clock = Clock(self._device)
        self._copy = copied(self._device, size)
        self._turn = 0

    def publish(self) -> dict[str, Any]:
        """Publish into memory that was used before."""
        self._turn ^= 1
        table = self._tables[self._turn]
        if not self._pool.stats.idle:
            self._published(table)
        made = self._pool.stats.made
        result = self._published(table)
        if self._pool.stats.made != made:
            raise RuntimeError("the memory was not warm")
        return {**result, "sent": self._sent[self._turn]}

    def _published(self, table: dict[str, Any]) -> dict[str, Any]:
        taken, endpoint = self._clock.time(lambda: self._server.publish("table", table))
        with bow.connect(endpoint, mode="map") as stream:
            batches = list(stream)
            arrays = [each.array() for batch in batches for each in batch.buffers if each is not None]
            arrived = sums(self._device, arrays)
        del arrays, batches, stream
        self._server.withdraw("table")
        end = time.monotonic() + _SECONDS
        while self._pool.stats.in_use:
            if time.monotonic() > end:
                raise TimeoutError(f"regions do not come home: {self._pool.stats}")
            gc.collect()
            time.sleep(0.001)
        return {**taken, "arrived": arrived}

    def copy(self) -> dict[str, Any]:
        """Copy as many bytes on the device."""
        return self._copy()._asdict()

    def close(self) -> None:
        """End the server."""
        self._server.close()


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    why = why_not(scale)
    if why is not None:
        yield Skipped("publishing from a GPU", why)
        return
    for kind, count in _KINDS.items():
        for size in sizes(scale, _FULL, _QUICK, _TRIED):
            name = f"{kind}, {size_name(size)}"
            needed, free = 10 * size, free_bytes(made_ready(scale.device))
            if needed > free:
                yield Skipped(name, f"needs {needed / 1e9:.1f} GB of the device, {free / 1e9:.1f} are free")
                continue
            with Child(Publisher, device=scale.device, size=size, count=count) as publisher:
                ways = (
                    Way("publish", "subject", _of(publisher, "publish"), size, floor=COPY),
                    Way(COPY, "floor", _of(publisher, "copy"), size),
                )
                yield line_up(scale, name, ways, (Target("publish", "at least", _BOUND, COPY),), (21, 5))


def _of(publisher: Child, method: str) -> Any:
    return lambda: Measured(**publisher.call(method))


CASE: Final = Case(
    "gpu_publish",
    "publish a table that lies on a GPU, beside a copy on it",
    _line_ups,
    Explanation(
        measured=(
            "Server.publish() of a table on the GPU, 8 wide columns or 200 small ones, into memory that was "
            "used before."
        ),
        baseline="",
        floor="A plain copy of as many bytes on the device.",
        reading="Near 100 % of the floor, publishing costs one copy at the speed of the device's memory.",
    ),
)
