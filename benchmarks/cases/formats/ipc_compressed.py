"""Reading and writing compressed Arrow IPC streams, beside pyarrow on the same cores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Target, Way
from bowstring.benchmarks.data.payload import fingerprint, payload
from bowstring.benchmarks.data.payload import nbytes as payload_bytes
from bowstring.benchmarks.data.tables import size_name, table

_CODECS: Final = ("lz4", "zstd")
# Bytes of the table, and batches.
_SHAPES: Final = ((64 << 20, 1), (64 << 20, 64))
_QUICK_SHAPES: Final = ((16 << 20, 4),)
_SEED: Final = 5
_ROW: Final = 4 * 8 + 4 + 10
_WORDS: Final = 2000
_BOUND: Final = 0.9
# The median of few samples was 0.84 of pyarrow's speed in one run, 1.01 in another: LZ4 of random floats.
_ROUNDS: Final = 25
# What is looked at between two samples empties the caches of all code. To fetch it again takes a tenth of the time
# of one batch of such floats, and is not throughput: a stream is read several times, and once beside.
_TIMES: Final = 4


def _trips(size: int, batches: int) -> pa.Table:
    """Return a table that is worth compressing: times that grow, prices in cents, a few distances and names."""
    rng = np.random.default_rng(_SEED)
    rows = max(64, size // batches // _ROW)
    words = pa.array([f"street {number}" for number in rng.integers(0, 10**6, _WORDS)])

    def batch(number: int) -> pa.RecordBatch:
        begin = number * rows
        return pa.record_batch(
            {
                "id": np.arange(begin, begin + rows),
                "begin": pa.array(10**15 + 10**6 * np.arange(begin, begin + rows), pa.timestamp("us")),
                "fare": np.round(rng.gamma(3, 5, rows), 2),
                "miles": rng.integers(0, 300, rows) / 10,
                "street": words.take(pa.array(rng.integers(0, _WORDS, rows))),
            }
        )

    return pa.Table.from_batches([batch(number) for number in range(batches)])


_TABLES: Final[dict[str, Callable[[int, int], pa.Table]]] = {
    "trips": _trips,
    "random floats, which do not shrink": lambda size, batches: table("floats", size, _SEED, batches),
}


class _Stream:
    """A table, and the same as a compressed stream in memory."""

    def __init__(self, whole: pa.Table, codec: str) -> None:
        self._table = whole
        views = payload(self._table.to_batches())
        self._sent = fingerprint(views)
        self.nbytes = payload_bytes(views)
        self._codec = codec
        self._stream = self._written(pa.ipc.new_stream, pa.ipc.IpcWriteOptions)

    def _written(self, new_stream: Callable[..., Any], options: Callable[..., Any]) -> pa.Buffer:
        sink = pa.BufferOutputStream()
        with new_stream(sink, self._table.schema, options=options(compression=self._codec)) as writer:
            writer.write_table(self._table)
        return sink.getvalue()

    def read(self, open_stream: Callable[[Any], Any], times: int = _TIMES) -> Measured:
        """Read all batches, over and over; the seconds are those of one time."""
        batches: list[Any] = []
        begin = time.perf_counter()
        for _ in range(times):
            batches.clear()
            batches = list(open_stream(self._stream))
        seconds = (time.perf_counter() - begin) / times
        return Measured(
            seconds, self._sent, fingerprint(payload([pa.record_batch(each) for each in batches]))
        )

    def write(self, new_stream: Callable[..., Any], options: Callable[..., Any]) -> Measured:
        """Write the table."""
        begin = time.perf_counter()
        written = self._written(new_stream, options)
        seconds = time.perf_counter() - begin
        arrived = fingerprint(payload(list(pa.ipc.open_stream(written))))
        return Measured(seconds, self._sent, arrived)


def _ways(stream: _Stream) -> Iterator[Way]:
    def way(name: str, once: Callable[[], Measured], *references: str) -> Way:
        return Way(name, "subject" if references else "baseline", once, stream.nbytes, *references)

    yield way("bowstring reads", lambda: stream.read(bow.ipc.open_stream), "pyarrow reads")
    yield way("pyarrow reads", lambda: stream.read(pa.ipc.open_stream))
    yield way("bowstring reads once", lambda: stream.read(bow.ipc.open_stream, 1), "pyarrow reads once")
    yield way("pyarrow reads once", lambda: stream.read(pa.ipc.open_stream, 1))
    ours = bow.ipc.new_stream, bow.ipc.IpcWriteOptions
    yield way("bowstring writes", lambda: stream.write(*ours), "pyarrow writes")
    theirs = pa.ipc.new_stream, pa.ipc.IpcWriteOptions
    yield way("pyarrow writes", lambda: stream.write(*theirs))


def _line_ups(scale: Scale) -> Iterator[LineUp]:
    for title, made in _TABLES.items():
        for codec in _CODECS:
            for size, batches in _QUICK_SHAPES if scale.quick else _SHAPES:
                stream = _Stream(made(size, batches), codec)
                name = f"{title}, {size_name(size)} in {batches} batches, {codec}"
                target = Target("bowstring reads", "at least", _BOUND, "pyarrow reads")
                yield LineUp(
                    name,
                    tuple(_ways(stream)),
                    scale.rounds(_ROUNDS, 3),
                    (target,),
                    panel=f"{title}, {codec}",
                    at={"batches": batches},
                )


CASE: Final = Case(
    "ipc_compressed",
    "compressed streams, read and written",
    _line_ups,
    Explanation(
        measured=(
            "Reading all batches of a compressed IPC stream in memory, several times over and once; and "
            "writing one. On all cores."
        ),
        baseline="pyarrow.ipc with the same codec on the same cores.",
        floor="",
        reading=(
            "Most of the time is in the libraries of LZ4 and ZSTD, which are the same ones: ratios near 1 "
            "are all that can be had. Read once, a stream also pays for fresh pages."
        ),
    ),
    judged_from={"bytes": 16 << 20},
)
