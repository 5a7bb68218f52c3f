"""What publishing costs: one copy into warm shared memory, and nothing where the data lie there already."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Role, Scale, Skipped, Target, Way
from bowstring.benchmarks.data.payload import fingerprint, payload
from bowstring.benchmarks.data.payload import nbytes as payload_bytes
from bowstring.benchmarks.data.tables import KINDS, size_name, table
from bowstring.benchmarks.environment import lacks_memory
from bowstring.benchmarks.processes.child import Child
from bowstring.benchmarks.processes.mappings import forget_mappings
from bowstring.columnar.materialize import placed

_FULL: Final = (64 << 20, 1 << 30)
_QUICK: Final = (64 << 20,)
_SECONDS: Final = 10.0
_LINE: Final = 64
_RAGGED: Final = 1 << 20


class Publisher:
    """A role for a started process: publishes one of two tables in turn, so that old bytes are never taken for new.

    What was published is read back over a connection of its own, outside the timed region.
    """

    def __init__(self, kind: str, size: int) -> None:
        self._tables = [table(kind, size, seed) for seed in (1, 2)]
        self._views = [payload(each.to_batches()) for each in self._tables]
        self._sent = [fingerprint(views) for views in self._views]
        self._pool = bow.Pool(budget=4 * size + (1 << 28))
        self._server = bow.Server(pool=self._pool)
        self._private = np.zeros(max(payload_bytes(views) for views in self._views) + _RAGGED, np.uint8)
        self._turn = 0

    @property
    def _next(self) -> int:
        self._turn ^= 1
        return self._turn

    def nbytes(self) -> int:
        """Return the bytes of the payload of a table."""
        return payload_bytes(self._views[0])

    def warm(self) -> dict[str, Any]:
        """Publish into regions that were used before."""
        if not self._pool.stats.idle:
            self.cold()
        before = self._pool.stats
        result = self._published(self._next)
        after = self._pool.stats
        if after.reused <= before.reused or after.made != before.made:
            raise RuntimeError(f"the regions were not warm: {before}, {after}")
        return result

    def cold(self) -> dict[str, Any]:
        """Publish into regions that the system has yet to find pages for."""
        forget_mappings()  # what was read back here before, or its pages would not be free
        self._pool.trim()
        return self._published(self._next)

    def in_place(self) -> dict[str, Any]:
        """Publish a batch that lies in a region already."""
        turn = self._next
        batch = bow.Batch.from_arrow(self._tables[turn])
        batch = placed(batch, self._pool.allocator(self._tables[turn].nbytes))
        used = self._pool.stats.in_use
        result = self._published(turn, batch)
        del batch
        self._settle()
        if result.pop("in_use") != used:
            raise RuntimeError("publishing took memory, though the data lay in a region")
        return result

    def _published(self, turn: int, batch: Any = None) -> dict[str, Any]:
        data = self._tables[turn] if batch is None else batch
        begin = time.perf_counter()
        endpoint = self._server.publish("table", data)
        seconds = time.perf_counter() - begin
        in_use = {} if batch is None else {"in_use": self._pool.stats.in_use}
        with bow.connect(endpoint) as stream:
            arrived = fingerprint(payload([each.to_arrow() for each in stream]))
        self._server.withdraw("table")
        del data
        if batch is None:
            self._settle()
        return {"seconds": seconds, "sent": self._sent[turn], "arrived": arrived, **in_use}

    def _settle(self) -> None:
        """Wait until all regions are home."""
        end = time.monotonic() + _SECONDS
        while self._pool.stats.in_use:
            if time.monotonic() > end:
                raise TimeoutError(f"regions do not come home: {self._pool.stats}")
            gc.collect()
            time.sleep(0.001)

    def copy(self) -> dict[str, Any]:
        """Copy the same bytes into warm private memory."""
        turn = self._next
        views = self._views[turn]
        copies = []
        start = 0
        for view in views:
            copies.append(self._private[start : start + view.nbytes])
            start += -(-view.nbytes // _LINE) * _LINE
        begin = time.perf_counter()
        for target, view in zip(copies, views, strict=True):
            np.copyto(target, view)
        seconds = time.perf_counter() - begin
        return {"seconds": seconds, "sent": self._sent[turn], "arrived": fingerprint(copies)}

    def file(self) -> dict[str, Any]:
        """Write an Arrow file into shared memory."""
        turn = self._next
        data = self._tables[turn]
        fd = os.memfd_create("bowstring-benchmark", os.MFD_CLOEXEC)
        try:
            path = f"/proc/self/fd/{fd}"
            begin = time.perf_counter()
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, data.schema) as writer:
                writer.write_table(data)
            seconds = time.perf_counter() - begin
            with pa.memory_map(path) as mapped:
                arrived = fingerprint(payload(pa.ipc.open_file(mapped).read_all().to_batches()))
        finally:
            os.close(fd)
        return {"seconds": seconds, "sent": self._sent[turn], "arrived": arrived}

    def close(self) -> None:
        """End the server."""
        self._server.close()


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    for kind, (title, _, _) in KINDS.items():
        for size in scale.sizes(_FULL, _QUICK):
            name = f"{title}, {size_name(size)}"
            if skipped := lacks_memory(name, 6 * size):
                yield skipped
                continue
            with Child(Publisher, kind=kind, size=size) as publisher:
                yield LineUp(
                    name,
                    tuple(_ways(publisher)),
                    scale.rounds(15, 3),
                    _TARGETS,
                    panel=title,
                    at={"bytes": size},
                )


def _ways(publisher: Child) -> Iterator[Way]:
    size: int = publisher.call("nbytes")

    def way(name: str, role: Role, method: str, *references: str | None, nbytes: int | None = size) -> Way:
        def once() -> Measured:
            return Measured(**publisher.call(method))

        return Way(name, role, once, nbytes, *references)

    file, copy = "Arrow file in shared memory", "memcpy, warm"
    yield way("bowstring, warm region", "subject", "warm", file, copy)
    yield way("bowstring, cold region", "beside", "cold", file, copy)
    yield way("bowstring, in a region already", "subject", "in_place", nbytes=None)
    yield way(file, "baseline", "file", None, copy)
    yield way(copy, "floor", "copy")


_TARGETS: Final = (
    Target("bowstring, warm region", "at least", 0.8, "memcpy, warm"),
    Target("bowstring, in a region already", "at most", 0.25, "memcpy, warm"),
)

CASE: Final = Case(
    "publish",
    "publish a table, beside copying its bytes",
    _line_ups,
    Explanation(
        measured=(
            "Server.publish() of a table: into regions that were used before, into regions that the system "
            "has yet to find pages for, and of a batch that lies in a region already. What was published is "
            "read back over a connection, outside the timed region."
        ),
        baseline="Writing the table as an Arrow file into shared memory by pyarrow.",
        floor="numpy.copyto of the same bytes into warm private memory.",
        reading=(
            "Publishing copies once: near 100 % of the floor it costs one memcpy. A server that runs for "
            "long finds its regions warm; the first table of each size pays for the pages."
        ),
    ),
    judged_from={"bytes": 64 << 20},
    sized=True,
)
