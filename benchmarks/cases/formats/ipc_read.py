"""Reading Arrow IPC streams from a memory map, batch by batch, and opening streams of schemas never seen before."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Role, Scale, Target, Way

# Columns, and rows of each batch.
_SHAPES: Final = ((8, 64), (1000, 8))
_BATCHES: Final = 1000
_QUICK_BATCHES: Final = 200
_CHECKED: Final = 20
_SEED: Final = 3
_OPENED_AT_ONCE: Final = 20
# Opening builds the layout of a schema, once; the times of pyarrow's that it may take.
_OPENING: Final = {8: 25, 1000: 50}


def _batch(columns: int, rows: int, rng: np.random.Generator) -> pa.RecordBatch:
    """A third of the columns are floats, a third text, a third integers with nulls."""

    def column(index: int) -> pa.Array:
        if index % 3 == 0:
            return pa.array(rng.random(rows))
        if index % 3 == 1:
            return pa.array([f"text {number}" for number in rng.integers(0, 1 << 20, rows)])
        return pa.array(rng.integers(0, 1 << 40, rows), mask=rng.random(rows) < 1 / 8)

    return pa.record_batch({f"c{index}": column(index) for index in range(columns)})


class _Stream:
    """A stream in shared memory, and what is in it."""

    def __init__(self, columns: int, rows: int, batches: int) -> None:
        rng = np.random.default_rng(_SEED)
        # Enough different ones for nothing to be the same as the batch before.
        self._made = [_batch(columns, rows, rng) for _ in range(_CHECKED)]
        self._batches = batches
        self._fd = os.memfd_create("bowstring-benchmark", os.MFD_CLOEXEC)
        self.path = f"/proc/self/fd/{self._fd}"
        with pa.OSFile(self.path, "wb") as sink, pa.ipc.new_stream(sink, self._made[0].schema) as writer:
            for batch in itertools.islice(itertools.cycle(self._made), batches):
                writer.write_batch(batch)
        self._checked = 0

    def close(self) -> None:
        os.close(self._fd)

    def verdict(self, batches: list[Any]) -> tuple[str, str]:
        """What should have come, and what has: the count, and a tenth of the batches, others each time."""
        self._checked = (self._checked + 1) % _CHECKED
        chosen = range(self._checked, len(batches), _CHECKED)
        whole = [pa.record_batch(batches[index]) for index in chosen]
        right = all(batch.equals(self._made[self._checked]) for batch in whole)
        return f"{self._batches} batches, equal: True", f"{len(batches)} batches, equal: {right}"

    def bowstring(self) -> Measured:
        """Read it with Bowstring."""
        with bow.ipc.open_stream(self.path) as reader:
            begin = time.perf_counter()
            batches = list(reader)
            seconds = time.perf_counter() - begin
        return Measured(seconds, *self.verdict(batches))

    def pyarrow(self) -> Measured:
        """Read it with pyarrow."""
        with pa.ipc.open_stream(pa.memory_map(self.path)) as reader:
            begin = time.perf_counter()
            batches = list(reader)
            seconds = time.perf_counter() - begin
        return Measured(seconds, *self.verdict(batches))

    def messages(self) -> Measured:
        """Find the messages with pyarrow, and look at none of them."""
        reader = pa.ipc.MessageReader.open_stream(pa.memory_map(self.path))
        begin = time.perf_counter()
        count = sum(1 for _ in reader)
        seconds = time.perf_counter() - begin
        return Measured(seconds, f"{self._batches + 1} messages", f"{count} messages")


class _Schemas:
    """Streams of schemas that differ in their names, so that none was seen before."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._number = 0

    def _next(self) -> list[tuple[pa.Schema, pa.Buffer]]:
        made = []
        for _ in range(_OPENED_AT_ONCE):
            self._number += 1
            kinds = (pa.float64(), pa.string(), pa.int64())
            fields = [(f"n{self._number}c{index}", kinds[index % 3]) for index in range(self._columns)]
            schema = pa.schema(fields)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, schema):
                pass
            made.append((schema, sink.getvalue()))
        return made

    def open(self, open_stream: Any) -> Measured:
        """Open some, one after the other; the seconds are those of one."""
        made = self._next()
        begin = time.perf_counter()
        readers = [open_stream(stream) for _, stream in made]
        seconds = (time.perf_counter() - begin) / len(made)
        right = all(reader.schema.equals(schema) for reader, (schema, _) in zip(readers, made, strict=True))
        return Measured(seconds, "True", str(right))


def _read_ways(stream: _Stream, name: str) -> Iterator[Way]:
    baseline, floor = f"pyarrow, {name}", f"pyarrow's messages alone, {name}"

    def way(title: str, role: Role, once: Any, *references: str) -> Way:
        return Way(title, role, once, None, *references, series=title.partition(",")[0])

    yield way(f"bowstring, {name}", "subject", stream.bowstring, baseline, floor)
    yield way(baseline, "baseline", stream.pyarrow)
    yield way(floor, "floor", stream.messages)


def _line_ups(scale: Scale) -> Iterator[LineUp]:
    batches = _QUICK_BATCHES if scale.quick else _BATCHES
    for columns, rows in _SHAPES:
        name = f"{columns} columns"
        with contextlib.closing(_Stream(columns, rows, batches)) as stream:
            target = Target(f"bowstring, {name}", "at most", 2, f"pyarrow, {name}")
            yield LineUp(
                f"{batches} batches of {name}",
                tuple(_read_ways(stream, name)),
                scale.rounds(21, 3),
                (target,),
                panel="batches",
                at={"columns": columns},
            )
    for columns, _ in _SHAPES:
        yield _opening(_Schemas(columns), columns, scale)


def _opening(schemas: _Schemas, columns: int, scale: Scale) -> LineUp:
    ours, theirs = f"bowstring, {columns} columns", f"pyarrow, {columns} columns"
    ways = (
        Way(ours, "subject", lambda: schemas.open(bow.ipc.open_stream), None, theirs),
        Way(theirs, "baseline", lambda: schemas.open(pa.ipc.open_stream)),
    )
    target = Target(ours, "at most", _OPENING[columns], theirs)
    return LineUp(
        f"open a stream of a new schema, {columns} columns",
        ways,
        scale.rounds(21, 3),
        (target,),
        panel="opening",
        at={"columns": columns},
    )


CASE: Final = Case(
    "ipc_read",
    "streams from a memory map, batch by batch, and new schemas",
    _line_ups,
    Explanation(
        measured=(
            "Reading all batches of an Arrow IPC stream in shared memory, from the first to the last; and "
            "opening streams of schemas that this process never saw."
        ),
        baseline="pyarrow.ipc.open_stream on the same memory map.",
        floor="Finding the messages by pyarrow, and looking at none of them.",
        reading=(
            "The batches are small, so this is the cost of a batch, not of its bytes, which nobody reads. A "
            "new schema is dear once: what is derived from it is kept."
        ),
    ),
)
