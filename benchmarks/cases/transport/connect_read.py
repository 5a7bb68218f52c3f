"""From ``connect`` to every byte read once, beside Arrow Flight and beside reading private memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.data.payload import fingerprint, payload, read_every_byte
from bowstring.benchmarks.data.tables import KINDS, size_name, table
from bowstring.benchmarks.environment import lacks_memory
from bowstring.benchmarks.peers.flight_server import fetch
from bowstring.benchmarks.processes.child import Child
from bowstring.benchmarks.processes.mappings import forget_mappings
from bowstring.benchmarks.processes.producer import Producer

# Bytes, and batches: whole, as a table of arrays comes, and in the pieces that files and queries come in.
_FULL: Final = ((64 << 20, 1), (1 << 30, 1), (1 << 30, 64))
_QUICK: Final = ((64 << 20, 1),)
_SEED: Final = 7
# Below, the fixed cost of a connection is a good part of the time.
_TARGETS_FROM: Final = 1 << 30


class Reader:
    """A role for a started process: gets a table, reads every byte of it, and says how long it took."""

    def __init__(self, kind: str, size: int, batches: int) -> None:
        self._private = table(kind, size, _SEED, batches)
        self._sum = read_every_byte(payload(self._private.to_batches()))

    def bowstring(self, endpoint: str, *, cached: bool) -> dict[str, Any]:
        """Read views of the producer's memory; a region that this process has mapped already is `cached`."""
        if not cached:
            forget_mappings()
        begin = time.perf_counter()
        with bow.connect(endpoint) as stream:
            data = stream.read_all()
            views = payload(data.to_batches())
            total = read_every_byte(views)
            seconds = time.perf_counter() - begin
            if (stream.stats.cached_regions > 0) != cached:
                raise RuntimeError(f"mapped before: {stream.stats.cached_regions} regions")
        return self._result(seconds, total, views)

    def flight(self, location: str) -> dict[str, Any]:
        """Read what Arrow Flight brings."""
        begin = time.perf_counter()
        views = payload(fetch(location).to_batches())
        total = read_every_byte(views)
        seconds = time.perf_counter() - begin
        return self._result(seconds, total, views)

    def private(self) -> dict[str, Any]:
        """Read memory of this process."""
        begin = time.perf_counter()
        views = payload(self._private.to_batches())
        total = read_every_byte(views)
        seconds = time.perf_counter() - begin
        return self._result(seconds, total, views)

    def _result(self, seconds: float, total: int, views: list[Any]) -> dict[str, Any]:
        if total != self._sum:
            raise RuntimeError(f"the bytes add up to {total}, not to {self._sum}")
        return {"seconds": seconds, "arrived": fingerprint(views)}


def _ways(reader: Child, offer: dict[str, Any]) -> Iterator[Way]:
    def way(name: str, role: Any, references: tuple[str | None, str | None], **call: Any) -> Way:
        def once() -> Measured:
            return Measured(sent=offer["fingerprint"], **reader.call(**call))

        return Way(name, role, once, offer["nbytes"], *references)

    references = "flight", "private memory"
    endpoint = offer["endpoint"]
    yield way("bowstring", "subject", references, method="bowstring", endpoint=endpoint, cached=False)
    yield way(
        "bowstring, mapped before", "subject", references, method="bowstring", endpoint=endpoint, cached=True
    )
    yield way("flight", "baseline", (None, "private memory"), method="flight", location=offer["flight"])
    yield way("private memory", "floor", (None, None), method="private")


_ASKED: Final = (
    Target("bowstring", "at least", 3, "flight"),
    Target("bowstring, mapped before", "at most", 1.1, "private memory"),
)


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    for kind, (title, _, _) in KINDS.items():
        for size, batches in _shapes(scale):
            pieces = f" in {batches} batches" if batches > 1 else ""
            name = f"{title}, {size_name(size)}{pieces}"
            # The table and the region there, the table and what Flight brings here; half as much to make them.
            if skipped := lacks_memory(name, 6 * size):
                yield skipped
                continue
            with Child(Producer) as producer, Child(Reader, kind=kind, size=size, batches=batches) as reader:
                offer = producer.call("offer", kind=kind, size=size, batches=batches, seed=_SEED, flight=True)
                yield LineUp(
                    name,
                    tuple(_ways(reader, offer)),
                    scale.rounds(15, 3),
                    _ASKED if size >= _TARGETS_FROM else (),
                    panel=title + (", many batches" if batches > 1 else ""),
                    at={"bytes": size},
                )


def _shapes(scale: Scale) -> Sequence[tuple[int, int]]:
    if scale.asked:
        return [(size, 1) for size in scale.asked]
    return _QUICK if scale.quick else _FULL


CASE: Final = Case(
    "connect_read",
    "from connect to every byte of a published table read once",
    _line_ups,
    Explanation(
        measured=(
            "From connect() in one process to every byte of a table of another process read once, by one sum"
            " over 64-bit words, the same code for all. Once with regions that the reader maps for the first"
            " time, once with those mapped before."
        ),
        baseline="Arrow Flight on localhost: DoGet of the same table by pyarrow's client.",
        floor="Reading private memory of the same size.",
        reading=(
            "Near 100 % of the floor, taking a table from another process costs no more than having it. The "
            "first mapping pays for page tables: a fault for each 4 KiB, or 2 MiB where the system uses huge"
            " pages for shared memory."
        ),
    ),
    judged_from={"bytes": 16 << 20},
    sized=True,
)
