"""A data set of thousands of small partitions in a depot: written by its client, and read whole as one stream."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Role, Scale, Target, Way
from bowstring.benchmarks.processes.child import Child

_FULL: Final = (100, 1000, 3000)
_QUICK: Final = (100, 300)
_ROWS: Final = 1000
_APPLICATION: Final = "benchmark"
_SECONDS: Final = 600.0


def _partition(number: int, seed: int) -> pa.RecordBatch:
    """A partition of some rows: numbers that nobody else has, text, a dictionary."""
    ids = np.arange(number * _ROWS, (number + 1) * _ROWS, dtype=np.int64) * (seed + 1)
    words = pa.array(["red", "green", "blue"])
    colour = pa.DictionaryArray.from_arrays(pa.array((ids % 3).astype(np.int8)), words)
    return pa.record_batch({"id": ids, "text": pa.array([f"row {each}" for each in ids]), "colour": colour})


def _expected(partitions: int, seed: int) -> str:
    rows = partitions * _ROWS
    return f"{rows} rows, ids {(seed + 1) * rows * (rows - 1) // 2}"


def _seen(batches: list[Any]) -> str:
    ids = [np.asarray(pa.record_batch(each).column(0)) for each in batches]
    return f"{sum(map(len, ids))} rows, ids {sum(int(each.sum()) for each in ids)}"


class DepotWriter:
    """A role for a started process: writes data sets into a depot of its own."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._folder = tempfile.TemporaryDirectory(prefix="bow-")
        self._depot = bow.depot.connect(folder=self._folder.name)
        self._depot.hold(_APPLICATION)
        self._batches = [[_partition(number, seed) for number in range(partitions)] for seed in (0, 1)]
        self._numbers = itertools.count()
        self._last: str | None = None

    def write(self) -> dict[str, Any]:
        """Write the next data set, partition by partition, and free the one before; return it and the seconds."""
        number = next(self._numbers)
        if self._last is not None:
            self._depot.release(self._last)
        self._last = f"data set {number}"
        begin = time.perf_counter()
        endpoints = [self._write_one(index, batch) for index, batch in enumerate(self._batches[number % 2])]
        seconds = time.perf_counter() - begin
        schema = self._batches[0][0].schema
        dataset = bow.Dataset(tuple(endpoints), schema, self._partitions * _ROWS)
        return {
            "seconds": seconds,
            "sent": _expected(self._partitions, number % 2),
            "where": dataset.to_json(),
        }

    def _write_one(self, index: int, batch: pa.RecordBatch) -> Any:
        assert self._last is not None
        attempt = self._depot.begin(application=_APPLICATION, dataset=self._last, partition=index)
        attempt.write(batch)
        return attempt.commit().endpoint

    def close(self) -> None:
        """Stop the depot."""
        self._depot.stop()
        self._depot.close()
        self._folder.cleanup()


class FileWriter:
    """A role for a started process: writes an Arrow file in shared memory for each partition."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._batches = [[_partition(number, seed) for number in range(partitions)] for seed in (0, 1)]
        fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._root = tempfile.TemporaryDirectory(prefix="bowstring-benchmark-", dir=fast)
        self._numbers = itertools.count()

    def write(self) -> dict[str, Any]:
        """Write the next data set into a folder of its own."""
        number = next(self._numbers)
        folder = os.path.join(self._root.name, f"{number}")
        begin = time.perf_counter()
        os.mkdir(folder)
        for index, batch in enumerate(self._batches[number % 2]):
            path = os.path.join(folder, f"{index:05}.arrow")
            with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
                writer.write_batch(batch)
        seconds = time.perf_counter() - begin
        return {"seconds": seconds, "sent": _expected(self._partitions, number % 2), "where": folder}

    def close(self) -> None:
        """Remove the files."""
        self._root.cleanup()


class Reader:
    """A role for a started process: reads a data set whole, and keeps all of its batches."""

    def stream(self, where: str) -> dict[str, Any]:
        """Connect to the data set."""
        begin = time.perf_counter()
        with bow.connect(bow.Dataset.from_json(where)) as stream:
            batches = list(stream)
        seconds = time.perf_counter() - begin
        return {"seconds": seconds, "arrived": _seen(batches)}

    def files(self, where: str) -> dict[str, Any]:
        """Read the files as a data set of pyarrow's."""
        begin = time.perf_counter()
        table = ds.dataset(where, format="arrow").to_table()
        seconds = time.perf_counter() - begin
        return {"seconds": seconds, "arrived": _seen(table.to_batches())}


class _Pair:
    """A writer and the reader, as the ways use them: what is read was written just before, untimed."""

    def __init__(self, writer: Child, reader: Child, method: str) -> None:
        self._writer, self._reader, self._method = writer, reader, method
        self._written: dict[str, Any] = {}

    def write(self) -> Measured:
        self._written = self._writer.call("write", deadline=_SECONDS)
        return Measured(self._written["seconds"], "written", "written")

    def read(self) -> Measured:
        written = self._written or self._writer.call("write", deadline=_SECONDS)
        found = self._reader.call(self._method, where=written["where"], deadline=_SECONDS)
        return Measured(sent=written["sent"], **found)


def _line_ups(scale: Scale) -> Iterator[LineUp]:
    for partitions in _QUICK if scale.quick else _FULL:
        with contextlib.ExitStack() as stack:
            reader = stack.enter_context(Child(Reader))
            depot = _Pair(stack.enter_context(Child(DepotWriter, partitions=partitions)), reader, "stream")
            files = _Pair(stack.enter_context(Child(FileWriter, partitions=partitions)), reader, "files")

            def way(name: str, role: Role, once: Any, beside: str | None = None) -> Way:
                return Way(name, role, once, None, beside)

            ways = (
                way("write into a depot", "subject", depot.write, "write Arrow files"),
                way("read as one stream", "subject", depot.read, "read the files by pyarrow.dataset"),
                way("write Arrow files", "baseline", files.write),
                way("read the files by pyarrow.dataset", "baseline", files.read),
            )
            targets = (Target("read as one stream", "at most", 3, "read the files by pyarrow.dataset"),)
            name = f"{partitions:,} partitions of {_ROWS:,} rows"
            yield LineUp(
                name, ways, scale.rounds(5, 3), targets, warm_ups=1, panel="", at={"batches": partitions}
            )


CASE: Final = Case(
    "partitions",
    "a data set of thousands of partitions, written to a depot and read whole",
    _line_ups,
    Explanation(
        measured=(
            "Writing partitions of 1,000 rows into a depot, one after the other by one process: each begins,"
            " is written and committed, as a task of Spark does it. Then, in another process, from connect()"
            " to the data set to its last batch, with all batches kept."
        ),
        baseline="An Arrow file in shared memory for each partition, and pyarrow.dataset over the folder.",
        floor="",
        reading=(
            "Files have no owner: nobody frees them when the application dies, and nobody knows whether all "
            "are there. That is what a commit costs. The axis counts partitions."
        ),
    ),
    judged_from={"batches": 100},
)
