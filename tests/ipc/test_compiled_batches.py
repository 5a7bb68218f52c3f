"""Batches are written and taken over by one call of a kernel as they are without a library of kernels."""

from __future__ import annotations

import io
import random
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeVar

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.kernels.host import bound
from bowstring.kernels.ipc import batch as kernel

ROWS = 400
T = TypeVar("T")
KERNELS = kernel.write_batch, kernel.import_batch

pytestmark = pytest.mark.skipif(
    bound(kernel.write_batch) is None, reason="no library of kernels was built here"
)


def column(values: Iterator[object], type_: pa.DataType | None = None, *, nulls: float = 0.2) -> pa.Array:
    rng = random.Random(f"{type_}")
    return pa.array([None if rng.random() < nulls else value for value in values], type_)


NUMBERS = range(ROWS)
COLUMNS = {
    "numbers": column(iter(NUMBERS)),
    "without nulls": column(iter(NUMBERS), pa.float32(), nulls=0),
    "all null": column(iter(NUMBERS), pa.int16(), nulls=1.1),
    "flags": column(row % 3 == 0 for row in NUMBERS),
    "text": column("é" * (row % 5) for row in NUMBERS),
    "large binary": column((b"x" * (row % 7) for row in NUMBERS), pa.large_binary()),
    "fixed": column((b"abc" for _ in NUMBERS), pa.binary(3)),
    "nothing": pa.nulls(ROWS),
    "decimals": column(iter(NUMBERS), pa.decimal256(50)),
    "lists": column(([row, None][: row % 3] for row in NUMBERS), pa.list_(pa.int32())),
    "large lists": column(
        (["a" * each for each in range(row % 4)] for row in NUMBERS), pa.large_list(pa.string())
    ),
    "pairs": column(([row % 2 == 0, None] for row in NUMBERS), pa.list_(pa.bool_(), 2)),
    "none of a pair": column(([] for _ in NUMBERS), pa.list_(pa.int8(), 0)),
    "maps": column(([("k", row)] for row in NUMBERS), pa.map_(pa.string(), pa.int64())),
    "structs": column(
        ({"u": row if row % 2 else None, "v": str(row), "w": [True, row % 2 == 0]} for row in NUMBERS),
        pa.struct({"u": pa.int16(), "v": pa.string(), "w": pa.list_(pa.bool_(), 2)}),
    ),
    "words": column(f"d{row % 9}" for row in NUMBERS).dictionary_encode(),
    "views": column((f"{row} is no short text" for row in NUMBERS), pa.string_view()),
    "runs": pa.RunEndEncodedArray.from_arrays([ROWS // 2, ROWS], ["a", None]),
    "either": pa.UnionArray.from_sparse(
        pa.array([row % 2 for row in NUMBERS], pa.int8()), [pa.array(NUMBERS), pa.array(map(str, NUMBERS))]
    ),
}
TABLE = pa.table(COLUMNS)


@st.composite
def slices(draw: st.DrawFn) -> pa.RecordBatch:
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=5, unique=True))
    start = draw(st.integers(0, ROWS))
    length = draw(st.integers(0, 30) | st.just(ROWS))
    (whole,) = TABLE.select(names).combine_chunks().to_batches()
    return whole.slice(start, length)


def stream_of(batches: list[object], schema: pa.Schema, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    options = bow.ipc.IpcWriteOptions(compression=compression)
    with bow.ipc.new_stream(sink, schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def in_python(function: Callable[[], T]) -> T:
    """Return what a function returns without kernels."""
    with pytest.MonkeyPatch.context() as context:
        context.setenv("BOWSTRING_KERNELS", "interpret")
        bound.cache_clear()
        assert [bound(each) for each in KERNELS] == [None, None]
        try:
            return function()
        finally:
            bound.cache_clear()


def in_both_ways(
    batches: list[object], schema: pa.Schema, compression: str | None = None
) -> tuple[bytes, bytes]:
    """Return a stream that was written by kernels, and in Python."""
    compiled = stream_of(batches, schema, compression)
    return compiled, in_python(lambda: stream_of(batches, schema, compression))


@settings(max_examples=150)
@given(slices(), st.integers(0, 20), st.sampled_from([None, "lz4", "zstd"]))
def test_both_write_the_same_bytes(batch: pa.RecordBatch, start: int, compression: str | None) -> None:
    """Slices of pyarrow's, Batches of them and slices of these are written byte for byte alike, and read back."""
    ours = bow.Batch.from_arrow(batch)
    written = [batch, ours, ours.slice(min(start, len(ours)))]
    compiled, plain = in_both_ways(written, batch.schema, compression)
    assert compiled == plain
    with pa.ipc.open_stream(compiled) as reader:
        for expected, found in zip(written, reader, strict=True):
            found.validate(full=True)
            assert found.equals(expected if isinstance(expected, pa.RecordBatch) else expected.to_arrow())


@settings(max_examples=150)
@given(slices())
def test_what_is_taken_over_is_what_was_given(batch: pa.RecordBatch) -> None:
    """A Batch of any slice holds its rows, in the memory where they were but for bits that begin within a byte."""
    taken = bow.Batch.from_arrow(batch)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_floating(column.type) and len(batch):
            assert taken[name].values.ctypes.data == column.buffers()[1].address + 4 * column.offset
    taken.validate(full=True)
    assert taken.to_arrow().equals(batch)
    assert taken.num_rows == len(batch)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("rows", [1, 8_191, 8_192, 100_000])
def test_bodies_of_all_sizes_are_alike(rows: int, compression: str | None) -> None:
    """A body is written the same whether it is joined with its metadata or goes from where it lies."""
    values = pa.array(range(rows + 3))
    table = pa.table(
        {
            "a": values,
            "s": pa.array(map(str, values.to_pylist())),
            "t": pa.array([None, "x"]).take(pa.array([row % 2 for row in range(rows + 3)])),
        }
    )
    (batch,) = table.combine_chunks().slice(3).to_batches()
    compiled, plain = in_both_ways([batch, batch.slice(1)], batch.schema, compression)
    assert compiled == plain


class Keeping:
    """A sink that keeps the pieces it is given."""

    def __init__(self) -> None:
        self.kept: list[memoryview] = []

    def write(self, piece: memoryview) -> int:
        self.kept.append(piece)
        return piece.nbytes

    def flush(self) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_what_a_sink_keeps_stays_what_it_was(compression: str | None) -> None:
    """A sink that keeps its pieces has the stream at the end, whatever became of room and data."""

    def batches() -> Iterator[pa.RecordBatch]:
        rng = random.Random(1)
        for size in (3, 7_000, 8_100, 1, 50_000, 2, 50_000):
            flags = pa.array([None if rng.random() < 0.2 else rng.random() < 0.5 for _ in range(size + 1)])
            text = pa.array([rng.randbytes(rng.randrange(9)) for _ in range(size + 1)])
            numbers = pa.array([rng.getrandbits(63) for _ in range(size + 1)])
            yield pa.record_batch({"a": numbers, "b": flags, "c": text}).slice(1)

    sink = Keeping()
    schema = pa.schema({"a": pa.int64(), "b": pa.bool_(), "c": pa.binary()})
    options = bow.ipc.IpcWriteOptions(compression=compression)
    with bow.ipc.new_stream(sink, schema, options=options) as writer:
        for batch in batches():
            writer.write_batch(batch)
    del batch
    written = pa.ipc.open_stream(b"".join(sink.kept)).read_all()
    assert written.equals(pa.Table.from_batches(batches()))


@pytest.mark.parametrize("take", [bow.Batch.from_arrow, lambda batch: batch], ids=["ours", "pyarrow"])
def test_a_batch_is_written_by_few_functions(take: Callable[[pa.RecordBatch], object]) -> None:
    """Writing one batch of eight columns enters at most 15 functions of the package (warm), whoever made it."""
    (batch,) = TABLE.select([*COLUMNS][:8]).slice(0, 100).combine_chunks().to_batches()
    given = take(batch)
    entered: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith("bowstring."):
            entered.append(frame.f_code.co_name)

    with bow.ipc.new_stream(io.BytesIO(), batch.schema) as writer:
        writer.write_batch(given)
        sys.setprofile(note)
        try:
            writer.write_batch(given)
        finally:
            sys.setprofile(None)
    assert len(entered) <= 15, entered


def test_threads_may_share_a_writer() -> None:
    """What two threads write by one writer may come in any order, but each message is whole."""
    kept: list[bytes] = []

    class Keeping:
        def write(self, piece: memoryview) -> int:
            kept.append(bytes(piece))
            return piece.nbytes

        def flush(self) -> None: ...

        def close(self) -> None: ...

    def table(text: str) -> pa.RecordBatch:
        return pa.record_batch({f"c{at}": [text] for at in range(100)})

    batches = [bow.Batch.from_arrow(table("x" * size)) for size in (1, 400)]
    with bow.ipc.new_stream(Keeping(), batches[0].schema) as writer:

        def write(batch: bow.Batch) -> None:
            for _ in range(20):
                writer.write_batch(batch)

        for _ in range(20):
            threads = [threading.Thread(target=write, args=(each,)) for each in batches]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    found = [batch.column(0)[0].as_py() for batch in pa.ipc.open_stream(b"".join(kept))]
    assert sorted(map(len, found)) == [1] * 400 + [400] * 400


@pytest.mark.parametrize("far", [1 << 60, (1 << 61) - 32, (1 << 61) - (1 << 40), (1 << 61) + 4, 1 << 62])
def test_offsets_that_lead_far_away_are_refused(far: int) -> None:
    """A slice between wrong 64-bit offsets, which opening a stream does not look at, is an error when written."""
    offsets = pa.py_buffer(b"".join(each.to_bytes(8, "little") for each in (0, far, far + 8, 10)))
    text = pa.LargeStringArray.from_buffers(3, offsets, pa.py_buffer(bytes(16)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema({"s": text.type})) as writer:
        writer.write_batch(pa.record_batch({"s": text}))
    batch = bow.ipc.open_stream(sink.getvalue()).read_next_batch().slice(1, 1)
    with bow.ipc.new_stream(io.BytesIO(), batch.schema) as writer, pytest.raises(bow.InvalidData):
        writer.write_batch(batch)


@given(
    st.lists(st.integers(-3, 14) | st.sampled_from([-(1 << 31), (1 << 31) - 1]), min_size=2, max_size=2),
    st.integers(0, 3),
    st.integers(0, 2),
    st.integers(-1, 3),
)
def test_wrong_batches_of_pyarrow_are_judged_alike(
    between: list[int], start: int, length: int, nulls: int
) -> None:
    """Text with wrong offsets or null counts, which pyarrow lets pass, is refused or written as it is in Python."""
    numbers = [0, *between, 12]
    first, last = numbers[min(start, 3)], numbers[min(start + length, 3)]
    # The C data interface has no sizes of buffers: where offsets are in order, text is where they say.
    assume(not 0 <= first <= last or last - first <= 14)
    ends = pa.py_buffer(b"".join(each.to_bytes(4, "little", signed=True) for each in numbers))
    text = pa.StringArray.from_buffers(3, ends, pa.py_buffer(b"abcdefghijkl"), pa.py_buffer(b"\5"), nulls)
    batch = pa.record_batch({"s": text}).slice(start, length)

    def outcome() -> bytes | type[Exception]:
        try:
            return stream_of([batch], batch.schema)
        except bow.BowstringError as error:
            return type(error)

    assert outcome() == in_python(outcome)
