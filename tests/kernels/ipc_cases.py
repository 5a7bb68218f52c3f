"""Example arguments of the kernels of record batches: batches in an arena, as spans and as structs.

All addresses count from the beginning of the arena, whose first bytes are nobody's: a pointer of 0 leads nowhere.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import batch_parts
from bowstring.ipc.flatbuf.template import Template
from bowstring.ipc.framing import frame
from bowstring.kernels.host import interpret
from bowstring.kernels.ipc import batch as kernel
from bowstring.kernels.ipc import read
from bowstring.kernels.signature import Kernel, signatures_of
from bowstring.memory.dlpack import address_in

Case = tuple[int, tuple[Any, ...]]

ROWS = 67
RELEASE = 1  # any callback: nothing here calls one
TABLE = pa.table(
    {
        "a": pa.array([None if row % 5 == 0 else row for row in range(ROWS)]),
        "b": pa.array([row % 3 == 0 for row in range(ROWS)]),
        "s": pa.array([None if row % 7 == 0 else "x" * (row % 4) for row in range(ROWS)]),
        "l": pa.array([[row, None][: row % 3] for row in range(ROWS)], pa.large_list(pa.int16())),
        "f": pa.array([[row, row + 1] for row in range(ROWS)], pa.list_(pa.int8(), 2)),
        "t": pa.array([{"u": row, "v": None if row % 2 else str(row)} for row in range(ROWS)]),
        "n": pa.nulls(ROWS),
    }
)


class Arena:
    """Memory that structs and buffers are laid into."""

    def __init__(self) -> None:
        self.data = bytearray(64)

    def put(self, piece: bytes) -> int:
        """Return where a copy of some bytes is, at a multiple of 8."""
        self.data += bytes(-len(self.data) % 8)
        self.data += piece
        return len(self.data) - len(piece)

    def words(self, *words: int) -> int:
        return self.put(np.array(words, np.int64).tobytes())

    def batch(self, batch: pa.RecordBatch, offset: int = 0) -> int:
        """Return where the struct ArrowArray of a batch is, without the first `offset` of its rows."""
        capsule = batch.__arrow_c_array__()[1]
        buffers = iter([None, *(each for column in batch.columns for each in column.buffers())])
        address = self._struct(address_in(capsule, b"arrow_array"), buffers)
        self.data[address : address + 24] = np.array([len(batch) - offset, 0, offset], np.int64).tobytes()
        return address

    def _struct(self, address: int, buffers: Iterator[pa.Buffer | None]) -> int:
        """Return where a copy of a struct is, and of all that hangs on it."""
        length, nulls, offset, num_buffers, num_children, _, children, *_ = words_at(address, 10)
        pieces = [next(buffers) for _ in range(num_buffers)]
        pointers = [0 if piece is None else self.put(piece.to_pybytes() or b"\0") for piece in pieces]
        below = [self._struct(each, buffers) for each in words_at(children, num_children)]
        numbers = length, nulls, offset, num_buffers, num_children
        return self.words(*numbers, self.words(*pointers), self.words(*below), 0, RELEASE, 0)

    def array(self) -> Any:
        return np.frombuffer(bytes(self.data), np.uint8)


def words_at(address: int, count: int) -> list[int]:
    return list((ctypes.c_int64 * count).from_address(address)) if count else []


def tables(layout: Layout) -> tuple[Any, Any, Any]:
    """Return room, nodes and spans for the import of a batch."""
    return (
        np.zeros(int(kernel.ROOM) * layout.num_nodes, np.int64),
        np.zeros(2 * layout.num_nodes, np.int64),
        np.zeros(int(kernel.SPAN) * layout.num_buffers, np.int64),
    )


def to_import(batch: pa.RecordBatch, offset: int = 0, room: int = 256) -> tuple[Any, ...]:
    """Return the arguments that import a batch, `room` bytes for its bitmaps."""
    arena, layout = Arena(), Layout.of(batch.schema)
    address = arena.batch(batch, offset)
    out, state = np.zeros(room, np.uint8), np.zeros(int(kernel.STATE), np.int64)
    rows = batch.num_rows - offset
    return arena.array(), address, layout.plan, rows, *tables(layout), out, state


def to_write(
    batch: pa.RecordBatch, most: int = 1 << 16, room: int = 8192, offset: int | None = None
) -> tuple[Any, ...]:
    """Return the arguments that write a batch, of a body that is joined up to `most` bytes.

    With an offset, they write the struct of the batch without so many of its first rows.
    """
    arena, layout = Arena(), Layout.of(batch.schema)
    struct = 0 if offset is None else arena.batch(batch, offset)
    _, nodes, spans = tables(layout)
    regions = [0, len(arena.data)]
    if offset is None:
        ours = Batch.from_arrow(batch)
        nodes, spans, regions = (
            batch_parts(ours).nodes.reshape(-1).copy(),
            batch_parts(ours).spans.table.reshape(-1).copy(),
            [],
        )
        for region in batch_parts(ours).spans.regions:
            regions += [arena.put(region.array(0, region.nbytes).tobytes()), region.nbytes]
    metadata, places = Template(layout).form()
    return (
        arena.array(),
        struct,
        layout.plan,
        np.array(regions, np.int64),
        batch.num_rows - (offset or 0),
        nodes,
        spans,
        np.frombuffer(frame(metadata), np.uint8),
        np.array(places, np.int64) + 8,
        most,
        np.zeros(int(kernel.ROOM) * layout.num_nodes, np.int64),
        np.zeros(room, np.uint8),
        np.zeros_like(spans),
        np.zeros(int(kernel.STATE), np.int64),
    )


def batches() -> Iterator[pa.RecordBatch]:
    (whole,) = TABLE.combine_chunks().to_batches()
    yield whole
    yield whole.slice(3, 40)
    yield whole.slice(64)
    yield whole.slice(5, 0)
    yield whole.select(["s"]).slice(1)


MIXED = pa.record_batch(
    {
        "v": pa.array([f"{row} is no short text" if row % 3 else None for row in range(9)], pa.string_view()),
        "r": pa.RunEndEncodedArray.from_arrays(pa.array([4, 9], pa.int16()), pa.array(["a", None])),
        "m": pa.array([[("k", row)] for row in range(9)], pa.map_(pa.string(), pa.int8())),
        "u": pa.UnionArray.from_sparse(
            pa.array([row % 2 for row in range(9)], pa.int8()), [pa.array(range(9)), pa.array(["x"] * 9)]
        ),
        "w": pa.array([[row] for row in range(9)], pa.list_view(pa.int32())),
    }
)


def read_results(layout: Layout, messages: int, spans: int) -> tuple[Any, Any]:
    """Return spans and room of messages that are read."""
    numbers = int(read.HEADS) + 2 * layout.num_nodes + len(layout.variadic_nodes)
    return np.zeros(messages * 3 * spans, np.int64), np.zeros(
        int(read.READ_STATE) + messages * numbers, np.int64
    )


def to_read(batches: list[pa.RecordBatch], codec: str | None = None, most: int = 4) -> tuple[Any, ...]:
    """Return the arguments that read some batches of a schema as a stream."""
    layout, sink = Layout.of(batches[0].schema), pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression=codec)
    ) as writer:
        start = sink.tell()
        for batch in batches:
            writer.write_batch(batch)
    arena = Arena()
    data = sink.getvalue().to_pybytes()
    regions = np.array([arena.put(data), len(data)], np.int64)
    limits = np.array([1 << 20, 1 << 20, 1 << 20, 1 << 12, 1 << 20], np.int64)
    places = np.zeros(int(read.PLACE), np.int64)
    first = arena.array(), layout.reading_plan, limits, 8.0, regions, places
    spans = layout.num_buffers + 2 * len(layout.variadic_nodes)
    return *first, int(read.STREAM), start, most, *read_results(layout, most, spans)


def placed(arguments: tuple[Any, ...], how: Any) -> tuple[Any, ...]:
    """Return the arguments that read the first message of a stream given its place, or each as a file lists it."""
    memory, plan, limits, ratio, regions, _, _, start, most, *results = arguments
    spans, room = (each.copy() for each in results)
    interpret(signatures_of(read.read_batches)[0], 1, (*arguments[:9], spans, room))
    heads = room[read.READ_STATE :].tolist()
    if how == read.LISTED:
        places = []
        for message in range(int(room[0])):
            *_, body, end, _ = heads[read.HEADS * message :][: read.HEADS]
            places += [start, body - start, end - body]
            start = end
        return memory, plan, limits, ratio, regions, np.array(places, np.int64), int(how), 0, most, *results
    at = int(regions[0]) + start
    size = int(memory[at + 4 : at + 8].view("<u4")[0])
    body = start + 8 + size
    places = [at + 8, size, 0, body, int(regions[1]) - body]
    if how == read.POINTED:
        results[0][:] = spans
        places[-1] = heads[2]
    return memory, plan, limits, ratio, regions, np.array(places, np.int64), int(how), 0, 1, *results


def read_ahead(rng: np.random.Generator) -> Iterator[Case]:
    whole, cut, behind, none, _ = batches()
    for codec in (None, "lz4"):
        for each in ([whole, cut, none], [MIXED, MIXED.slice(2)], [behind]):
            arguments = to_read(each, codec)
            yield 1, arguments
            yield 1, placed(arguments, read.PACKED)
            yield 1, placed(arguments, read.LISTED)
            if codec is None:
                yield 1, placed(arguments, read.POINTED)
            for _ in range(4):
                memory = arguments[0].copy()
                memory[rng.integers(64, len(memory), 3)] = rng.integers(0, 256, 3)
                yield 1, (memory, *to_read(each, codec)[1:])


def checked(_: np.random.Generator) -> Iterator[Case]:
    whole, cut, *_rest = batches()
    for group in (*([each] for each in (*batches(), MIXED)), [whole, cut, whole], [MIXED, MIXED.slice(2)]):
        for drops in (0, 1):
            arena, regions, firsts, spans = Arena(), list[int](), list[int](), list[Any]()
            parts = [batch_parts(Batch.from_arrow(batch)) for batch in group]
            for each in parts:
                firsts.append(sum(map(len, spans)))
                spans.append(np.add(each.spans.table, (len(regions) // 2, 0, 0)))
                for region in each.spans.regions:
                    regions += [arena.put(region.array(0, region.nbytes).tobytes()), region.nbytes]
            yield (
                len(group),
                (
                    arena.array(),
                    parts[0].layout.reading_plan,
                    np.array(regions, np.int64),
                    drops,
                    np.concatenate([each.nodes.reshape(-1) for each in parts]),
                    np.array([each.variadic_counts for each in parts], np.int64).reshape(-1),
                    np.array(firsts, np.int64),
                    np.concatenate(spans).reshape(-1),
                    np.full(len(group), -1),
                ),
            )


def imported(_: np.random.Generator) -> Iterator[Case]:
    for batch in batches():
        yield 1, to_import(batch)
        yield 1, to_import(batch, min(2, len(batch)))
        yield 1, to_import(batch, room=9)


def written(rng: np.random.Generator) -> Iterator[Case]:
    for batch in batches():
        for most, room in ((1 << 16, 8192), (0, 8192), (1 << 16, 3000), (1 << 16, 100)):
            yield 1, to_write(batch, most, room)
            yield 1, to_write(batch, most, room, min(2, len(batch)))
    for _ in range(10):
        arguments = to_write(next(batches()))
        for table in arguments[5:7]:
            table[rng.integers(len(table))] = rng.integers(-3, 300)
        yield 1, arguments


CASES: dict[Kernel, Callable[[np.random.Generator], Iterator[Case]]] = {
    kernel.import_batch: imported,
    kernel.write_batch: written,
    read.read_batches: read_ahead,
    read.check_batches: checked,
}
