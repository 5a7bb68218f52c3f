"""Messages are read by one call of a kernel as they are in plain integers, which name what is wrong."""

from __future__ import annotations

import ctypes
import io
import random
import sys
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import batch_parts
from bowstring.ipc.body.decode import BatchDecoder, Decoded
from bowstring.kernels.ipc import read
from bowstring.memory import wrap
from tests.ipc.forms import needs_library, without_library

ROWS = 7
LONG = "a text that does not fit into its view"
COLUMNS: dict[str, pa.Array] = {
    "numbers": pa.array([1, None, 3, 4, 5, None, 7]),
    "text": pa.array(["x", "yy", None, "zzz", "", "a", "b"]),
    "large": pa.array(["a", "b", None, "d", "e", "f", "g"], pa.large_string()),
    "flags": pa.array([True, None, False, True, None, False, True]),
    "lists": pa.array([[1], [], None, [2, 3], [4], [], [5]]),
    "structs": pa.array([{"u": 1, "v": "q"}, None] * 3 + [{"u": 2, "v": None}]),
    "nothing": pa.nulls(ROWS),
    "fixed": pa.array([b"ab"] * ROWS, pa.binary(2)),
    "views": pa.array([LONG if row % 2 else "s" for row in range(ROWS)], pa.string_view()),
    "more views": pa.array([LONG.encode() if row % 2 else None for row in range(ROWS)], pa.binary_view()),
    "list views": pa.array([[1], [2, 3], [], None, [4], [5], [6]], pa.list_view(pa.int16())),
    "short runs": pa.RunEndEncodedArray.from_arrays(pa.array([3, 7], pa.int16()), pa.array(["a", None])),
    "long runs": pa.RunEndEncodedArray.from_arrays(pa.array([3, 7], pa.int64()), pa.array([1, None])),
    "lists of runs": pa.ListArray.from_arrays(
        pa.array(range(ROWS + 1), pa.int32()),
        pa.RunEndEncodedArray.from_arrays(pa.array([3, 7], pa.int32()), pa.array([1.5, None])),
    ),
    "either": pa.UnionArray.from_sparse(
        pa.array([0, 1, 0, 1, 0, 1, 0], pa.int8()), [pa.array(range(ROWS)), pa.array(list("abcdefg"))]
    ),
    "dense": pa.UnionArray.from_dense(
        pa.array([0, 1, 0, 1, 0, 1, 0], pa.int8()),
        pa.array([0, 0, 1, 1, 2, 2, 3], pa.int32()),
        [pa.array(range(4)), pa.array(list("abc"))],
    ),
    "maps": pa.array(
        [[("k", 1)], [], None, [("l", 2), ("o", 3)], [], [], []], pa.map_(pa.string(), pa.int8())
    ),
    "pairs": pa.array([[1, 2], None, [3, 4], [5, 6], [7, 8], [9, None], [1, 1]], pa.list_(pa.int8(), 2)),
    "none of a pair": pa.array([[]] * ROWS, pa.list_(pa.int8(), 0)),
    "large lists": pa.array(
        [[[1, 2]], [], None, [[3, 4], [5, 6]], [], [], []], pa.large_list(pa.list_(pa.int8(), 2))
    ),
    "empty structs": pa.array([{"x": None}] * ROWS, pa.struct({"x": pa.null()})),
}
TABLE = pa.table(COLUMNS)
LIMITS = bow.Limits(
    message_bytes=1 << 20, decompression_floor=1 << 12, decompression_ratio=3.0, decompressed_bytes=1 << 16
)
EDGES = (0, 1, 3, 4, 7, 8, 16, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)


class Stream:
    """A stream of some batches of columns that were drawn.

    Attributes
    ----------
    data
        All of it.
    start
        Where the first batch begins.
    metadata
        Where the metadata of each batch are, prefix included.
    """

    def __init__(self, rng: random.Random) -> None:
        names = rng.sample(sorted(COLUMNS), rng.choice((1, 1, 2, 3, 8)))
        codec = rng.choice((None, None, None, "lz4", "zstd"))
        (whole,) = TABLE.select(names).combine_chunks().to_batches()
        self.schema, sink = whole.schema, pa.BufferOutputStream()
        self.metadata: list[tuple[int, int]] = []
        options = pa.ipc.IpcWriteOptions(compression=codec)
        with pa.ipc.new_stream(sink, whole.schema, options=options) as writer:
            self.start = sink.tell()
            for _ in range(rng.choice((1, 1, 2, 4))):
                at = sink.tell()
                writer.write_batch(whole.slice(rng.choice((0, 0, 2)), rng.choice((7, 7, 3, 0))))
                self.metadata.append((at, sink.tell()))
        self.data = np.frombuffer(sink.getvalue(), np.uint8)
        lengths = [int(self.data[at + 4 : at + 8].view("<u4")[0]) for at, _ in self.metadata]
        ends = [at + 8 + length for (at, _), length in zip(self.metadata, lengths, strict=True)]
        self.metadata = [(at, end) for (at, _), end in zip(self.metadata, ends, strict=True)]

    def changed(self, rng: random.Random) -> bytes:
        """Return it with other bytes or numbers in some places, mostly of metadata."""
        data = self.data.copy()
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
            first, end = rng.choice(self.metadata) if rng.random() < 0.8 else (self.start, len(data) - 8)
            at = rng.randrange(first, end)
            if rng.random() < 0.5:
                data[at] = rng.randrange(256)
            else:
                number, width = rng.choice((*EDGES, rng.randrange(1 << 63))), rng.choice((4, 8))
                piece = data[at & ~3 :][:width]
                piece[:] = np.frombuffer(number.to_bytes(8, "little"), np.uint8)[: len(piece)]
        return data.tobytes()


class Watched(BatchDecoder):
    """A decoder that keeps the status of the message that ended a call."""

    def watch(self) -> None:
        call = self._call

        def watched(*words: Any) -> None:
            call(*words)
            self.status = ctypes.c_int64.from_address(words[-2] + 8).value

        self._call = watched


def rest_of(stream: Stream, data: bytes) -> tuple[list[bow.Batch], Exception]:
    """Return the batches of a stream, and what ends it."""
    schema = bytes(stream.data[: stream.start])
    found: list[bow.Batch] = []
    try:
        with bow.ipc.open_stream(schema + data[stream.start :], limits=LIMITS) as reader:
            found.extend(reader)
    except bow.BowstringError as error:
        return found, error
    return found, StopIteration()


def assert_both_forms_agree(seed: int, streams: int, changes: int) -> None:
    """Read streams in both forms: the kernel takes what plain integers take, with the same nodes and spans."""
    rng = random.Random(seed)
    for _ in range(streams):
        stream = Stream(rng)
        decoder = Watched.of(Layout.of(stream.schema), LIMITS)
        assert isinstance(decoder, Watched)
        decoder.watch()
        changed = [stream.changed(rng) for _ in range(changes)]
        outcomes = []
        for data in changed:
            memory = wrap(data)
            found = decoder.stream(memory, memory.offset + stream.start, rng.choice((1, 2, 8)))
            outcomes.append((found, decoder.status))
        with without_library():
            expected = [rest_of(stream, data) for data in changed]
        for (found, status), (batches, error) in zip(outcomes, expected, strict=True):
            assert_agrees(found, status, batches, error)


def assert_agrees(found: Decoded | None, status: int, expected: list[bow.Batch], error: Exception) -> None:
    heads = [] if found is None else found.heads
    if found is not None and found.codec is not None and len(expected) < len(heads):
        # Claims are right, and what a frame holds is seen when it is decompressed.
        assert isinstance(error, bow.InvalidBody), error
        heads = heads[: len(expected)]
    assert len(heads) <= len(expected), error
    assert status != read.WRONG or len(expected) == len(heads)
    for index, (rows, first, count, *_) in enumerate(heads):
        assert found is not None
        batch = expected[index]
        assert (rows, found.nodes[index].tolist()) == (batch.num_rows, batch_parts(batch).nodes.tolist())
        assert found.counts[index] == batch_parts(batch).variadic_counts
        if found.codec is None:
            table = batch_parts(batch).spans.table
            spans = found.spans[first : first + count]
            assert spans[:, 2].tolist() == table[:, 2].tolist()
            present = table[:, 2] != 0
            assert spans[present, 1].tolist() == table[present, 1].tolist()


@needs_library
@pytest.mark.parametrize("seed", range(4))
def test_both_forms_agree(seed: int) -> None:
    """Of streams of all types, sound and changed, the kernel takes just what plain integers take."""
    assert_both_forms_agree(seed, 25, 20)


@needs_library
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_both_forms_agree_on_many(seed: int) -> None:
    """The same of a million streams."""
    assert_both_forms_agree(seed, 500, 100)


@pytest.mark.parametrize("name", ["either", "dense", "short runs", "long runs"])
@pytest.mark.parametrize("count", [-1, 0, 2, ROWS])
def test_nodes_without_bitmaps_have_no_nulls(name: str, count: int) -> None:
    """Whatever a writer counts as nulls of a union or of runs, both forms read 0."""
    sink = io.BytesIO()
    schema = pa.schema([(name, COLUMNS[name].type)])
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch([COLUMNS[name]], schema=schema))
    node = np.array((ROWS, 0), np.int64).tobytes()
    assert node in sink.getvalue()
    data = sink.getvalue().replace(node, np.array((ROWS, count), np.int64).tobytes(), 1)
    found = [bow.ipc.open_stream(source).read_next_batch() for source in (data, io.BytesIO(data))]
    with without_library():
        found.append(bow.ipc.open_stream(data).read_next_batch())
    assert [batch_parts(batch).nodes[0].tolist() for batch in found] == [[ROWS, 0]] * 3


@needs_library
def test_a_batch_is_read_by_few_functions() -> None:
    """The next batch of a stream in memory is a matter of at most 10 functions of the package (warm)."""
    batch = pa.record_batch({f"c{at}": ["x"] * 9 for at in range(8)})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        for _ in range(300):
            writer.write_batch(batch)
    entered: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith("bowstring."):
            entered.append(frame.f_code.co_name)

    with bow.ipc.open_stream(sink.getvalue()) as reader:
        for _ in range(30):
            reader.read_next_batch()
        sys.setprofile(note)
        try:
            reader.read_next_batch()
        finally:
            sys.setprofile(None)
    assert len(entered) <= 10, entered
