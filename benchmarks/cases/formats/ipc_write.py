"""Writing Arrow IPC streams: into memory that was there before, and to a file in shared memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Target, Way
from bowstring.benchmarks.data.payload import fingerprint, payload
from bowstring.benchmarks.data.payload import nbytes as payload_bytes
from bowstring.benchmarks.data.tables import KINDS, size_name, table

_SIZES: Final = (64 << 20,)
_QUICK: Final = (16 << 20,)
_BATCHES: Final = (1, 64, 1024)
_SEED: Final = 15
_BOUND: Final = 0.9
_ROOM: Final = 1 << 22


class _Writing:
    """A table in some batches, and memory that it is written to over and over."""

    def __init__(self, kind: str, size: int, batches: int) -> None:
        self._table = table(kind, size, _SEED, batches)
        views = payload(self._table.to_batches())
        self._sent = fingerprint(views)
        self.nbytes = payload_bytes(views)
        self._memory = np.ones(self.nbytes + self.nbytes // 4 + _ROOM, np.uint8)
        self._views = views

    def to_memory(self, new_stream: Callable[..., Any]) -> Measured:
        """Write into the memory."""
        sink = pa.FixedSizeBufferWriter(pa.py_buffer(self._memory))
        begin = time.perf_counter()
        with new_stream(sink, self._table.schema) as writer:
            writer.write_table(self._table)
        seconds = time.perf_counter() - begin
        return Measured(seconds, self._sent, self._found(pa.py_buffer(self._memory)))

    def to_file(self, new_stream: Callable[..., Any]) -> Measured:
        """Write a file in shared memory, whose pages the system has yet to find."""
        fd = os.memfd_create("bowstring-benchmark", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{fd}"
        try:
            begin = time.perf_counter()
            with pa.OSFile(path, "wb") as sink, new_stream(sink, self._table.schema) as writer:
                writer.write_table(self._table)
            seconds = time.perf_counter() - begin
            with pa.memory_map(path) as mapped:
                return Measured(seconds, self._sent, self._found(mapped))
        finally:
            os.close(fd)

    def _found(self, source: Any) -> str:
        return fingerprint(payload(list(pa.ipc.open_stream(source))))

    def copy(self) -> Measured:
        """Copy the buffers one after the other."""
        at, copies = 0, []
        begin = time.perf_counter()
        for view in self._views:
            copies.append(self._memory[at : at + view.nbytes])
            np.copyto(copies[-1], view)
            at += view.nbytes
        seconds = time.perf_counter() - begin
        return Measured(seconds, self._sent, fingerprint(copies))


def _ways(writing: _Writing) -> Iterator[Way]:
    size, floor = writing.nbytes, "memcpy, warm"
    for where, write in (("memory", writing.to_memory), ("a file", writing.to_file)):
        ours, theirs = f"bowstring, to {where}", f"pyarrow, to {where}"

        def way(name: str, library: Any, *beside: str, write: Any = write) -> Way:
            role: Any = "subject" if beside else "baseline"
            return Way(name, role, lambda: write(library.new_stream), size, *beside)

        yield way(ours, bow.ipc, theirs, floor)
        yield way(theirs, pa.ipc)
    yield Way(floor, "floor", writing.copy, size)


def _line_ups(scale: Scale) -> Iterator[LineUp]:
    for kind, (title, _, _) in KINDS.items():
        for size in scale.sizes(_SIZES, _QUICK):
            for batches in _BATCHES:
                writing = _Writing(kind, size, batches)
                name = f"{title}, {size_name(size)} in {batches:,} batches"
                targets = tuple(
                    Target(f"bowstring, to {where}", "at least", _BOUND, f"pyarrow, to {where}")
                    for where in ("memory", "a file")
                )
                at: Any = {"batches": batches, "bytes": size}
                yield LineUp(name, tuple(_ways(writing)), scale.rounds(21, 5), targets, panel=title, at=at)


CASE: Final = Case(
    "ipc_write",
    "Arrow IPC streams written, by size of their batches",
    _line_ups,
    Explanation(
        measured=(
            "From opening a writer of an IPC stream to its end: into memory that was written before, and to "
            "a file in shared memory, whose pages are new each time."
        ),
        baseline="pyarrow.ipc.new_stream on the same sinks. Compressed streams: see ipc_compressed.",
        floor="numpy.copyto of the same buffers, one after the other, into the same memory.",
        reading=(
            "With large batches both copy; with 1,024 batches what a batch costs decides. Text and "
            "dictionaries have more buffers for each batch."
        ),
    ),
    judged_from={"bytes": 1 << 20},
    sized=True,
)
