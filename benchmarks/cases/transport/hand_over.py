"""From a table in one process to every byte of it read in another, by what a user would otherwise write."""

from __future__ import annotations

import functools
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Client, Listener
from typing import Any, Final

import pyarrow as pa

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Role, Scale, Skipped, Target, Way
from bowstring.benchmarks.data.payload import fingerprint, nbytes, payload, read_every_byte
from bowstring.benchmarks.data.tables import KINDS, size_name, table
from bowstring.benchmarks.environment import available_bytes
from bowstring.benchmarks.peers.flight_server import fetch, serve
from bowstring.benchmarks.processes.child import Child
from bowstring.benchmarks.processes.mappings import forget_mappings

__all__ = ["CASE", "Receiver", "Sender"]

_FULL: Final = (64 << 20, 256 << 20)
_QUICK: Final = (16 << 20,)
_SEEDS: Final = (11, 12)
_WAYS: Final[tuple[tuple[str, str, Role], ...]] = (
    ("bowstring", "bowstring", "subject"),
    ("flight", "flight", "baseline"),
    ("Arrow file in shared memory", "file", "beside"),
    ("pickle over a pipe", "pickled", "beside"),
)


class Sender:
    """A role for a started process: hands over two tables in turn, so that old bytes never pass for new ones.

    Each method prepares one hand-over. It returns what the receiver needs, the seconds that the preparation
    took, and the fingerprint of the table.
    """

    def __init__(self, kind: str, size: int) -> None:
        self._tables = [table(kind, size, seed) for seed in _SEEDS]
        views = [payload(each.to_batches()) for each in self._tables]
        self._sent = [fingerprint(each) for each in views]
        self._nbytes = nbytes(views[0])
        self._turn = 0
        self._server = bow.Server(pool=bow.Pool(budget=4 * size + (1 << 28)))
        self._flights = [serve(each) for each in self._tables]
        self._file: int | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="bowstring-benchmark-")
        self._listener = Listener(os.path.join(self._folder.name, "pickles"), "AF_UNIX")
        threading.Thread(target=self._send_pickles, daemon=True).start()

    def nbytes(self) -> int:
        """Return the bytes of the payload of a table."""
        return self._nbytes

    def _prepared(self, seconds: float, where: Any) -> dict[str, Any]:
        return {"seconds": seconds, "where": where, "sent": self._sent[self._turn]}

    def bowstring(self) -> dict[str, Any]:
        """Publish the next table: one copy into shared memory."""
        self._turn ^= 1
        if "table" in self._server.endpoints:
            self._server.withdraw("table")
        begin = time.perf_counter()
        endpoint = self._server.publish("table", self._tables[self._turn])
        return self._prepared(time.perf_counter() - begin, str(endpoint))

    def flight(self) -> dict[str, Any]:
        """Say where Arrow Flight serves the next table."""
        self._turn ^= 1
        return self._prepared(0.0, f"grpc://127.0.0.1:{self._flights[self._turn].port}")

    def file(self) -> dict[str, Any]:
        """Write the next table as an Arrow file into shared memory."""
        self._turn ^= 1
        data = self._tables[self._turn]
        if self._file is not None:
            os.close(self._file)
        self._file = os.memfd_create("bowstring-benchmark", os.MFD_CLOEXEC)
        path = f"/proc/{os.getpid()}/fd/{self._file}"
        begin = time.perf_counter()
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, data.schema) as writer:
            writer.write_table(data)
        return self._prepared(time.perf_counter() - begin, path)

    def pickled(self) -> dict[str, Any]:
        """Say where the next table is sent from, pickled, as `multiprocessing` does it."""
        self._turn ^= 1
        return self._prepared(0.0, self._listener.address)

    def _send_pickles(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                return  # closed
            with connection:
                connection.send(self._tables[self._turn])

    def close(self) -> None:
        """End the servers."""
        self._server.close()
        for each in self._flights:
            each.shutdown()
        self._listener.close()
        self._folder.cleanup()
        if self._file is not None:
            os.close(self._file)


class Receiver:
    """A role for a started process: gets a table and reads every byte of it."""

    def bowstring(self, where: str) -> dict[str, Any]:
        """Read views of the sender's memory, which this process maps anew each time."""
        forget_mappings()
        begin = time.perf_counter()
        with bow.connect(where) as stream:
            return _read(stream.read_all(), begin)

    def flight(self, where: str) -> dict[str, Any]:
        """Read what Arrow Flight brings."""
        begin = time.perf_counter()
        return _read(fetch(where), begin)

    def file(self, where: str) -> dict[str, Any]:
        """Map an Arrow file."""
        begin = time.perf_counter()
        with pa.memory_map(where) as mapped:
            return _read(pa.ipc.open_file(mapped).read_all(), begin)

    def pickled(self, where: str) -> dict[str, Any]:
        """Receive a pickle over a Unix socket."""
        begin = time.perf_counter()
        with Client(where, "AF_UNIX") as connection:
            return _read(connection.recv(), begin)


def _read(data: pa.Table, begin: float) -> dict[str, Any]:
    """Read every byte, which ends the timed region, and return the time with the fingerprint."""
    views = payload(data.to_batches())
    read_every_byte(views)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "arrived": fingerprint(views)}


def _once(sender: Child, receiver: Child, method: str) -> Measured:
    prepared = sender.call(method)
    received = receiver.call(method, where=prepared["where"])
    return Measured(prepared["seconds"] + received["seconds"], prepared["sent"], received["arrived"])


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    for kind, (title, _, _) in KINDS.items():
        for size in scale.sizes(_FULL, _QUICK):
            name = f"{title}, {size_name(size)}"
            # Two tables, the region and the file there; what arrives here, and a pickle of it on both sides.
            needed = 8 * size
            if available_bytes() < needed:
                yield Skipped(
                    name,
                    f"needs {needed / 1e9:.1f} GB of memory, {available_bytes() / 1e9:.1f} are available",
                )
                continue
            with Child(Sender, kind=kind, size=size) as sender, Child(Receiver) as receiver:
                nbytes = sender.call("nbytes")
                ways = [
                    Way(
                        way,
                        role,
                        functools.partial(_once, sender, receiver, method),
                        nbytes,
                        "flight" if role != "baseline" else None,
                    )
                    for way, method, role in _WAYS
                ]
                yield LineUp(
                    name, tuple(ways), scale.rounds(11, 3), _TARGETS, panel=title, at={"bytes": size}
                )


_TARGETS: Final = (Target("bowstring", "at least", 3, "flight"),)

CASE: Final = Case(
    "hand_over",
    "from a table in one process to every byte read in another",
    _line_ups,
    Explanation(
        measured=(
            "Publishing a table (one copy into shared memory that the server used before), and from connect()"
            " in another process to every byte of it read once. The time of the preparation in the one "
            "process and of the reading in the other are added up."
        ),
        baseline=(
            "Arrow Flight on localhost. Beside it: an Arrow file in shared memory, written and mapped, and a "
            "pickle as multiprocessing sends it."
        ),
        floor="",
        reading=(
            "How many times as fast a job becomes that passes tables between its processes, reading included."
            " With small tables the fixed cost of a connection decides."
        ),
    ),
    judged_from={"bytes": 1 << 20},
    sized=True,
)
