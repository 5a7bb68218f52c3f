"""A table on a GPU, published by one process: what it takes another to have it there, whatever its size."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any, Final

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Role, Scale, Skipped, Target, Way
from bowstring.benchmarks.data.tables import size_name
from bowstring.benchmarks.gpu.device import (
    COPY,
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
from bowstring.benchmarks.processes.mappings import forget_mappings

_FULL: Final = (1 << 20, 64 << 20, 1 << 30, 8 << 30)
_QUICK: Final = (1 << 20, 64 << 20)
_TRIED: Final = (1 << 16, 1 << 20)
_TABLES: Final = 2
_COLUMNS: Final = 8


class Producer:
    """A role for a started process: tables on a device, published from there."""

    def __init__(self, device: str) -> None:
        self._device = made_ready(device)
        self._pool = bow.Pool(self._device, budget=free_bytes(self._device))
        self._server = bow.Server(pool=self._pool)
        self._count = 0

    def offer(self, size: int) -> list[dict[str, Any]]:
        """Publish several tables of a size; return where they are, and what is in them."""
        offers = []
        for _ in range(_TABLES):
            self._count += 1
            table = columns(self._device, size, _COLUMNS, self._count)
            endpoint = str(self._server.publish(f"t{self._count}", table))
            offers.append({"endpoint": endpoint, "sums": sums(self._device, list(table.values()))})
        return offers

    def close(self) -> None:
        """End the server."""
        self._server.close()


class Consumer:
    """A role for a started process: takes tables, and says how long it took and what they hold."""

    def __init__(self, device: str) -> None:
        self._device = made_ready(device)
        self._copies: dict[int, Any] = {}

    def take(self, endpoint: str, *, cached: bool) -> dict[str, Any]:
        """Connect, to arrays over every buffer; a region that is mapped already is `cached`."""
        # Held meanwhile: 8 GiB are more than stays mapped when nobody uses it.
        held = list(bow.connect(endpoint, mode="map")) if cached else []
        if not cached:
            forget_mappings()
        begin = time.perf_counter()
        with bow.connect(endpoint, mode="map") as stream:
            batches = list(stream)
            arrays = [buffer.array() for batch in batches for buffer in batch.buffers if buffer is not None]
            seconds = time.perf_counter() - begin
            stats = stream.stats
        del held
        if (stats.cached_regions > 0) != cached:
            raise RuntimeError(f"of {stats.regions} regions {stats.cached_regions} were mapped before")
        if {batch.device for batch in batches} != {self._device}:
            raise RuntimeError(f"not on {self._device.name}: {stats.path}, {stats.why}")
        return {"seconds": seconds, "arrived": sums(self._device, arrays)}

    def copy(self, size: int) -> dict[str, Any]:
        """Copy as many bytes on the device."""
        if size not in self._copies:
            self._copies = {size: copied(self._device, size)}
        measured: Measured = self._copies[size]()
        return measured._asdict()


def _ways(consumer: Child, offers: list[dict[str, Any]], size: int) -> Iterator[Way]:
    def way(name: str, role: Role, *, cached: bool) -> Way:
        turns = itertools.cycle(offers)

        def once() -> Measured:
            offer = next(turns)
            found = consumer.call("take", endpoint=offer["endpoint"], cached=cached)
            return Measured(sent=offer["sums"], **found)

        return Way(name, role, once)

    yield way("first time", "subject", cached=False)
    yield way("mapped before", "subject", cached=True)
    yield Way(COPY, "beside", lambda: Measured(**consumer.call("copy", size=size)), size)


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    why = why_not(scale)
    if why is not None:
        yield Skipped("hand-over of a table on a GPU", why)
        return
    targets = (Target("mapped before", "at most", 1, COPY),)
    for size in sizes(scale, _FULL, _QUICK, _TRIED):
        name = f"{_COLUMNS} columns, {size_name(size)}"
        device = made_ready(scale.device)
        # The tables and what they are made of, in the producer, and two pairs of buffers in the consumer.
        needed, free = (_TABLES + 6) * size, free_bytes(device)
        if needed > free:
            yield Skipped(name, f"needs {needed / 1e9:.1f} GB of the device, {free / 1e9:.1f} are free")
            continue
        with (
            Child(Producer, device=scale.device) as producer,
            Child(Consumer, device=scale.device) as consumer,
        ):
            offers = producer.call("offer", size=size)
            yield line_up(scale, name, tuple(_ways(consumer, offers, size)), targets, (21, 5))


CASE: Final = Case(
    "gpu_handover",
    "from connect to arrays over a table of another process, on a GPU",
    _line_ups,
    Explanation(
        measured=(
            "Wall clock from connect() to arrays over every buffer of a table that another process has on "
            "the GPU: mapped for the first time, and again."
        ),
        baseline="",
        floor="",
        reading=(
            "A hand-over is latency: it copies nothing. A copy of as many bytes on the device stands beside,"
            " as a measure of what is saved."
        ),
    ),
)
