"""From ``connect`` to views of a whole table: one round trip, whatever the size."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

import bowstring as bow
from bowstring.benchmarks.case import (
    Case,
    Explanation,
    LineUp,
    Measured,
    Role,
    Scale,
    Skipped,
    Target,
    Way,
)
from bowstring.benchmarks.data.payload import fingerprint, payload
from bowstring.benchmarks.data.tables import KINDS, size_name
from bowstring.benchmarks.environment import lacks_memory
from bowstring.benchmarks.peers.descriptor_server import ask
from bowstring.benchmarks.processes.child import Child
from bowstring.benchmarks.processes.mappings import forget_mappings
from bowstring.benchmarks.processes.producer import Producer

_FULL: Final = (10 << 20, 1 << 30, 4 << 30)
_QUICK: Final = (1 << 20, 32 << 20)
_PIECES: Final = 64


class Viewer:
    """A role for a started process: gets views, and says how long it took and what they show."""

    def bowstring(self, endpoint: str, *, cached: bool) -> dict[str, Any]:
        """Connect; a region that this process has mapped already is `cached`."""
        if not cached:
            forget_mappings()
        begin = time.perf_counter()
        with bow.connect(endpoint) as stream:
            batches = list(stream)
            views = [buffer.array() for batch in batches for buffer in batch.buffers if buffer is not None]
            seconds = time.perf_counter() - begin
            stats = stream.stats
        if (stats.cached_regions > 0) != cached:
            raise RuntimeError(f"of {stats.regions} regions {stats.cached_regions} were mapped before")
        del views
        return _result(seconds, payload([batch.to_arrow() for batch in batches]))

    def file(self, path: str) -> dict[str, Any]:
        """Map an Arrow file in shared memory."""
        begin = time.perf_counter()
        table = pa.ipc.open_file(pa.memory_map(path)).read_all()
        views = payload(table.to_batches())
        seconds = time.perf_counter() - begin
        return _result(seconds, views)

    def socket(self, name: str) -> dict[str, Any]:
        """Ask a plain socket for a descriptor, and map it."""
        begin = time.perf_counter()
        views = [np.frombuffer(ask(name), np.uint8)]
        seconds = time.perf_counter() - begin
        return _result(seconds, views)


def _result(seconds: float, views: list[Any]) -> dict[str, Any]:
    return {"seconds": seconds, "arrived": fingerprint(views)}


def _way(
    viewer: Child,
    name: str,
    role: Role,
    sent: str,
    call: dict[str, Any],
    references: tuple[str | None, str | None] = (None, None),
    size: int | None = None,
) -> Way:
    def once() -> Measured:
        return Measured(sent=sent, **viewer.call(**call))

    if size is None:
        return Way(name, role, once, None, *references)
    series = name.replace(f", {size_name(size)}", "")
    return Way(name, role, once, None, *references, series=series, at={"bytes": size})


def _ways(viewer: Child, offer: dict[str, Any], nbytes: int) -> Iterator[Way]:
    size = size_name(nbytes)
    sent, raw = offer["fingerprint"], offer["raw_fingerprint"]
    references = f"mapped file, {size}", f"plain socket, {size}"
    call: dict[str, Any] = {"method": "bowstring", "endpoint": offer["endpoint"]}
    yield _way(viewer, f"bowstring, {size}", "subject", sent, {**call, "cached": False}, references, nbytes)
    yield _way(
        viewer,
        f"bowstring, {size}, mapped before",
        "beside",
        sent,
        {**call, "cached": True},
        references,
        nbytes,
    )
    yield _way(
        viewer, references[0], "baseline", sent, {"method": "file", "path": offer["path"]}, size=nbytes
    )
    yield _way(
        viewer, references[1], "floor", raw, {"method": "socket", "name": offer["socket"]}, size=nbytes
    )


def _targets(sizes: list[str]) -> Iterator[Target]:
    for size in sizes:
        yield Target(f"bowstring, {size}", "at most", 3, f"plain socket, {size}")
    if len(sizes) > 1:
        yield Target(f"bowstring, {sizes[-1]}", "at most", 2, f"bowstring, {sizes[0]}")


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    wanted = scale.sizes(_FULL, _QUICK)
    for kind, (title, _, _) in KINDS.items():
        lacking = {size: lacks_memory(f"{title}, {size_name(size)}", _needed(size)) for size in wanted}
        yield from filter(None, lacking.values())
        sizes = [size for size, skipped in lacking.items() if skipped is None]
        with Child(Producer) as producer, Child(Viewer) as viewer:
            offers = {size: producer.call("offer", kind=kind, size=size, file=True) for size in sizes}
            ways = [way for size, offer in offers.items() for way in _ways(viewer, offer, size)]
            middle = sizes[len(sizes) // 2]
            pieces = producer.call("offer", kind=kind, size=middle, batches=_PIECES)
            call = {"method": "bowstring", "endpoint": pieces["endpoint"], "cached": False}
            name = f"bowstring, {size_name(middle)}, {_PIECES} batches"
            ways.append(_way(viewer, name, "beside", pieces["fingerprint"], call))
            rounds = scale.rounds(11, 3)
            yield LineUp(
                f"{title}, idle producer",
                tuple(ways),
                rounds,
                tuple(_targets([size_name(each) for each in sizes])),
                panel=title,
            )
            producer.call("busy", on=True)
            yield LineUp(f"{title}, producer busy in Python", tuple(ways), rounds, panel=f"{title}, busy")


def _needed(size: int) -> int:
    """Bytes that the largest size takes: the region, the file, the sizes below, and what is there anyway."""
    return 2 * size + size // 2 + (1 << 29)


CASE: Final = Case(
    "connect_views",
    "from connect to views of every buffer of a published table",
    _line_ups,
    Explanation(
        measured=(
            "From the call of connect() in one process to a NumPy view of every buffer of a table that "
            "another process has published. No byte of the table is read. Once with regions that the reader "
            "has to map, once with those that it mapped before; the producer sleeps, or runs Python all the "
            "time."
        ),
        baseline=(
            "An Arrow file in shared memory, mapped by pyarrow: no server, no token, nobody who frees it."
        ),
        floor="A plain Unix socket that hands over one descriptor, which is mapped.",
        reading=(
            "A time that does not grow with the size is the point. What is left is a connection and a "
            "handshake: a few round trips between two processes, which grow when the producer's Python is "
            "busy."
        ),
    ),
    sized=True,
)
