"""From a table in one process to every byte of it read in another, by what a user would otherwise write."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.data.payload import fingerprint, nbytes, payload, read_every_byte, valid_values
from bowstring.benchmarks.data.tables import KINDS, size_name, table
from bowstring.benchmarks.environment import lacks_memory
from bowstring.benchmarks.peers import ray_store
from bowstring.benchmarks.peers.handing import WAYS, Givers, taken
from bowstring.benchmarks.processes.child import Child
from bowstring.benchmarks.processes.clock import starting_time, wait_until
from bowstring.benchmarks.processes.mappings import forget_mappings

_FULL: Final = (1 << 20, 16 << 20, 64 << 20, 256 << 20)
_QUICK: Final = (1 << 20, 16 << 20)
_SEEDS: Final = (11, 12)
SUBJECT: Final = "bowstring"
BASELINE: Final = "Arrow Flight"
# It writes no bytes of slots that are null.
_PARQUET: Final = WAYS["Parquet file in shared memory"]
RAY: Final = "Ray's object store"


class Sender:
    """A role for a started process: hands over two tables in turn, so that old bytes never pass for new ones."""

    def __init__(self, kind: str, size: int) -> None:
        self._tables = [table(kind, size, seed) for seed in _SEEDS]
        views = [payload(each.to_batches()) for each in self._tables]
        self._sent = [fingerprint(each) for each in views]
        self._values = [valid_values(each) for each in self._tables]
        self._nbytes = nbytes(views[0])
        self._turn = 0
        self._server = bow.Server(pool=bow.Pool(budget=4 * size + (1 << 28)))
        self._others = Givers(self._tables)

    def nbytes(self) -> int:
        """Return the bytes of the payload of a table."""
        return self._nbytes

    def give(self, how: str) -> dict[str, Any]:
        """Prepare the next hand-over: return where, the seconds that it took, and the table's fingerprint."""
        self._turn ^= 1
        if how == SUBJECT and "table" in self._server.endpoints:
            self._server.withdraw("table")
        begin = time.perf_counter()
        if how == SUBJECT:
            where = str(self._server.publish("table", self._tables[self._turn]))
        else:
            where = self._others.give(how, self._turn)
        seconds = time.perf_counter() - begin
        sent = self._values if how == _PARQUET else self._sent
        return {"seconds": seconds, "where": where, "sent": sent[self._turn]}

    def close(self) -> None:
        """End the servers."""
        self._server.close()
        self._others.close()


class Receiver:
    """A role for a started process: gets a table and reads every byte of it."""

    def take(self, how: str, where: str, at: float = 0.0) -> dict[str, Any]:
        """Read what was handed over, beginning at `at`; the memory of the server is mapped anew each time."""
        if how == SUBJECT:
            forget_mappings()
        wait_until(at)
        if how == SUBJECT:
            begin = time.perf_counter()
            with bow.connect(where) as stream:
                return _read(stream.read_all(), begin)
        begin = time.perf_counter()
        with taken(how, where) as data:
            result = _read(data, begin)
            if how == _PARQUET:
                result["arrived"] = valid_values(data)
            del data
        return result


def _read(data: Any, begin: float) -> dict[str, Any]:
    """Read every byte, which ends the timed region, and return the time with the fingerprint."""
    # Chunk by chunk: Parquet cuts each column in places of its own.
    chunks = (chunk for column in data.columns for chunk in column.chunks)
    views = payload(pa.record_batch([chunk], ["column"]) for chunk in chunks)
    read_every_byte(views)
    end = time.perf_counter()
    return {"begin": begin, "end": end, "arrived": fingerprint(views)}


def hand_over(sender: Child, receivers: list[Child], method: str) -> Measured:
    """Hand a table over, to all receivers at once: until the last of them has read it."""
    prepared = sender.call("give", how=method)
    at = starting_time(len(receivers))
    for receiver in receivers:
        receiver.begin("take", how=method, where=prepared["where"], at=at)
    taken = [receiver.finish() for receiver in receivers]
    seconds = max(each["end"] for each in taken) - min(each["begin"] for each in taken)
    arrived = " ".join(each["arrived"] for each in taken)
    return Measured(prepared["seconds"] + seconds, " ".join([prepared["sent"]] * len(taken)), arrived)


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    if why := ray_store.missing():
        yield Skipped(RAY, why)
    for kind, (title, _, _) in KINDS.items():
        for size in scale.sizes(_FULL, _QUICK):
            name = f"{title}, {size_name(size)}"
            # Two tables, the region and the file there; what arrives here, and a pickle of it on both sides.
            if skipped := lacks_memory(name, 8 * size):
                yield skipped
                continue
            yield from _of_size(scale, kind, size, name)


def _of_size(scale: Scale, kind: str, size: int, name: str) -> Iterator[LineUp]:
    with (
        Child(Sender, kind=kind, size=size) as sender,
        Child(Receiver) as receiver,
        ray_store.started(kind, size) as ray,
    ):
        nbytes = sender.call("nbytes")

        def way(title: str, method: str) -> Way:
            role = {SUBJECT: "subject", BASELINE: "baseline"}.get(title, "beside")
            once = functools.partial(hand_over, sender, [receiver], method)
            beside = None if title == BASELINE else BASELINE
            return Way(title, role, once, nbytes, beside)  # type: ignore[arg-type]  # one of the roles

        ways = [way(title, method) for title, method in {SUBJECT: SUBJECT, **WAYS}.items()]
        if ray is not None:
            ways.append(Way(RAY, "beside", lambda: Measured(**ray.call("once")), nbytes, BASELINE))
        panel = KINDS[kind][0]
        yield LineUp(name, tuple(ways), scale.rounds(11, 3), _TARGETS, panel=panel, at={"bytes": size})


_TARGETS: Final = (
    Target(SUBJECT, "at least", 3, BASELINE),
    Target(SUBJECT, "at least", 1, "Arrow file in shared memory"),
)

CASE: Final = Case(
    "hand_over",
    "from a table in one process to every byte read in another",
    _line_ups,
    Explanation(
        measured=(
            "Publishing a table (one copy into shared memory that the server used before), and from "
            "connect() in another process to every byte of it read once. The time of the preparation in the "
            "one process and of the reading in the other are added up."
        ),
        baseline=(
            "Arrow Flight on localhost. Beside it: an Arrow file and a Parquet file in shared memory, "
            "written and mapped or read; an IPC stream in multiprocessing.shared_memory, and over a Unix "
            "socket; a pickle as multiprocessing sends it; Ray's object store, where Ray is installed."
        ),
        floor="",
        reading=(
            "How many times as fast a job becomes that passes tables between its processes, reading "
            "included. With small tables the fixed cost of a connection decides."
        ),
    ),
    judged_from={"bytes": 1 << 20},
    sized=True,
)
