"""Many readers of one table at once, as threads of four processes: until the last one has read every byte."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Role, Scale, Skipped, Target, Way
from bowstring.benchmarks.data.payload import payload, read_every_byte
from bowstring.benchmarks.data.tables import size_name
from bowstring.benchmarks.environment import lacks_memory
from bowstring.benchmarks.peers.flight_server import fetch
from bowstring.benchmarks.processes.child import Child
from bowstring.benchmarks.processes.producer import Producer

_FULL: Final = (1, 4, 16, 64, 250, 500)
_QUICK: Final = (1, 4, 16)
_SIZES: Final = (1 << 20,)
_PROCESSES: Final = 4
_SEED: Final = 9
_SECONDS: Final = 120.0


class Readers:
    """A role for a started process: some threads, each of which gets a table and reads every byte of it."""

    def read(self, how: str, where: str, threads: int, at: float) -> dict[str, Any]:
        """Start at a time of the clock that all processes share; return when this process began and ended."""
        work: Callable[[str], str] = getattr(self, f"_{how}")
        found: list[str] = []
        failed: list[BaseException] = []

        def one() -> None:
            try:
                found.append(work(where))
            except BaseException as error:  # noqa: BLE001  raised below, in the thread that is asked
                failed.append(error)

        started = [threading.Thread(target=one) for _ in range(threads)]
        time.sleep(max(0.0, at - time.monotonic()))
        begin = time.monotonic()
        for each in started:
            each.start()
        for each in started:
            each.join(_SECONDS)
        end = time.monotonic()
        if failed:
            raise failed[0]
        return {"begin": begin, "end": end, "found": sorted(set(found)), "count": len(found)}

    def _bowstring(self, where: str) -> str:
        with bow.connect(where) as stream:
            return _read(stream.read_all())

    def _flight(self, where: str) -> str:
        return _read(fetch(where))

    def _file(self, where: str) -> str:
        with pa.memory_map(where) as mapped:
            return _read(pa.ipc.open_file(mapped).read_all())


def _read(data: pa.Table) -> str:
    """Read every byte; what that adds up to is compared, since a fingerprint would take longer than the reading."""
    return str(read_every_byte(payload(data.to_batches())))


def _once(readers: list[Child], method: str, where: str, count: int, total: str) -> Measured:
    shares = [count // len(readers) + (index < count % len(readers)) for index in range(len(readers))]
    at = time.monotonic() + 0.02
    for reader, threads in zip(readers, shares, strict=True):
        reader.begin("read", how=method, where=where, threads=threads, at=at)
    results = [reader.finish() for reader in readers]
    seconds = max(each["end"] for each in results) - min(each["begin"] for each in results)
    found = {each for result in results for each in result["found"]}
    done = sum(result["count"] for result in results)
    return Measured(seconds, f"{count} readers, {{{total!r}}}", f"{done} readers, {found}")


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    for size in scale.sizes(_SIZES, _SIZES):
        for count in _QUICK if scale.quick else _FULL:
            name = f"{count} readers of {size_name(size)}"
            # What Flight brings to each.
            if skipped := lacks_memory(name, size * (count + 8)):
                yield skipped
                continue
            yield from _of(scale, size, count, name)


def _of(scale: Scale, size: int, count: int, name: str) -> Iterator[LineUp]:
    with Child(Producer) as producer:
        readers = [Child(Readers) for _ in range(_PROCESSES)]
        try:
            offer = producer.call("offer", kind="floats", size=size, seed=_SEED, file=True, flight=True)

            def way(title: str, role: Role, method: str, where: str) -> Way:
                once = functools.partial(_once, readers, method, where, count, offer["sum"])
                beside = None if role == "baseline" else "Arrow Flight"
                return Way(title, role, once, count * offer["nbytes"], beside)

            ways = (
                way("bowstring", "subject", "bowstring", offer["endpoint"]),
                way("Arrow Flight", "baseline", "flight", offer["flight"]),
                way("Arrow file in shared memory", "beside", "file", offer["path"]),
            )
            targets = (Target("bowstring", "at least", 1, "Arrow Flight"),)
            yield LineUp(
                name, ways, scale.rounds(9, 3), targets, panel=size_name(size), at={"readers": count}
            )
        finally:
            for each in readers:
                each.close()


CASE: Final = Case(
    "many_clients",
    "1 to 500 readers of one table at once, in four processes",
    _line_ups,
    Explanation(
        measured=(
            "From the moment at which all threads of four processes begin to connect until the last of them "
            "has read every byte of the table once. The rate is that of all readers together."
        ),
        baseline=(
            "Arrow Flight on localhost, one client for each thread. Beside it: an Arrow file in shared "
            "memory that each thread maps, which has no server at all."
        ),
        floor="",
        reading=(
            "All readers and the server share the cores of this machine: past as many readers as cores, the "
            "time grows with their number, and the rate says what a connection costs. Flight brings a copy "
            "to each reader."
        ),
    ),
    sized=True,
)
