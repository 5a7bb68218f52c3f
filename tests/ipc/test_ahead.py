"""Many batches read at a time out of memory, as if each were read by itself, and in plain integers."""

from __future__ import annotations

import io
import random
import struct
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring import Batch
from bowstring.columnar.parts import batch_parts
from bowstring.errors import BowstringError, ClosedError, InvalidBody, LimitExceeded, ViewsAlive
from bowstring.ipc import (
    IpcWriteOptions,
    RecordBatchFileReader,
    RecordBatchStreamReader,
    new_stream,
    open_file,
    open_stream,
)
from bowstring.ipc.body.decode import BatchDecoder
from bowstring.ipc.compression import body as compressed_body
from bowstring.ipc.compression.codec import DecompressOptions, decompressed
from bowstring.limits import Limits
from tests.faults.interrupting import interrupted
from tests.ipc.forms import needs_library, without_library
from tests.strategies import record_batches, schemas

SCHEMA = pa.schema(
    [
        ("number", pa.int32()),
        ("text", pa.string()),
        ("list", pa.list_(pa.int16())),
        ("view", pa.string_view()),
        ("fixed", pa.list_(pa.int8(), 2)),
    ]
)
# Below what a file would have to find memory for.
LIMITS = Limits(message_bytes=1 << 20)
LONG = "a text that does not fit into its view"


def batch_of(rows: int) -> pa.RecordBatch:
    columns = {
        "number": [None if row % 3 == 2 else row for row in range(rows)],
        "text": ["x" * (row % 5) for row in range(rows)],
        "list": [list(range(row % 4)) for row in range(rows)],
        "view": [LONG if row % 2 else "short" for row in range(rows)],
        "fixed": [[row, None] for row in range(rows)],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def stream_of(batches: list[pa.RecordBatch], codec: str | None = None) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


BATCHES = [batch_of(20 + number % 2) for number in range(24)]
STREAMS = {codec: stream_of(BATCHES, codec) for codec in (None, "lz4", "zstd")}
STREAM = STREAMS[None]
EACH_CODEC = pytest.mark.parametrize("codec", STREAMS)


def outcome(source: Any) -> tuple[list[Any], str]:
    """What comes before the end or the error, byte by byte, since nobody has looked at all of it; and which."""
    found: list[Any] = []
    try:
        with open_stream(source, limits=LIMITS) as reader:
            found.extend(_bytes_of(batch) for batch in reader)
    except BowstringError as error:
        # Only memory knows where a body that is cut off begins.
        return found, f"{type(error).__name__}: {error}".partition("; at byte")[0]
    return found, "the end"


def _bytes_of(batch: Batch) -> Any:
    buffers = [b"" if buffer is None else buffer.to_host().tobytes() for buffer in batch.buffers]
    inner = [_bytes_of(dictionary.values) for dictionary in batch.dictionaries.values()]
    return (
        batch.num_rows,
        batch_parts(batch).nodes.tolist(),
        batch_parts(batch).variadic_counts,
        buffers,
        inner,
    )


def assert_same(data: bytes) -> None:
    """Memory, which is read ahead, a file, which is not, and plain integers bring the same."""
    found = outcome(data)
    assert found == outcome(io.BytesIO(data)) == outcome(io.BufferedReader(io.BytesIO(data)))
    with without_library():
        assert found == outcome(data)


@given(data=st.data(), schema=schemas(), codec=st.sampled_from((None, "lz4", "zstd")))
def test_any_stream_comes_as_it_is(data: st.DataObject, schema: pa.Schema, codec: str | None) -> None:
    """Batches of all types, of one shape and of several, are the same read ahead and read one by one."""
    drawn = data.draw(st.lists(record_batches(schema, max_rows=12), min_size=1, max_size=3))
    order = data.draw(st.lists(st.sampled_from(drawn), min_size=1, max_size=12))
    sink = io.BytesIO()
    with new_stream(sink, schema, options=IpcWriteOptions(compression=codec)) as writer:
        for batch in order:
            writer.write_batch(batch)
    assert_same(sink.getvalue())


@needs_library
@EACH_CODEC
def test_batches_are_read_ahead(monkeypatch: pytest.MonkeyPatch, codec: str | None) -> None:
    """A long stream in memory is taken in few calls; its batches and its counts are those of any other."""
    calls = []
    read = BatchDecoder.stream

    def counted(self: BatchDecoder, *arguments: Any) -> Any:
        found = read(self, *arguments)
        calls.append(0 if found is None else len(found.heads))
        return found

    monkeypatch.setattr(BatchDecoder, "stream", counted)
    batches = [batch_of(9) for _ in range(300)]
    with open_stream(stream_of(batches, codec)) as reader:
        found = [reader.read_next_batch() for _ in range(5)]
        assert (reader.stats.num_record_batches, reader.stats.num_messages) == (5, 6)
        found += list(reader)
        assert reader.stats.num_record_batches == 300
    assert max(calls) >= 64
    assert len(calls) < 20
    assert all(each.to_arrow().equals(batch) for each, batch in zip(found, batches, strict=True))


@EACH_CODEC
@pytest.mark.parametrize("seed", range(100))
def test_flipped_bytes_are_found_at_their_batch(seed: int, codec: str | None) -> None:
    """Whatever is damaged, the batches before it come first, then the same error as without reading ahead."""
    rng = random.Random(seed)
    changed = bytearray(STREAMS[codec])
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(400, len(changed))] ^= 1 << rng.randrange(8)
    assert_same(bytes(changed))


@EACH_CODEC
@pytest.mark.parametrize("missing", [1, 8, 16, 32, 40, 600, 3000, 9001])
def test_a_cut_stream_ends_where_it_was_cut(missing: int, codec: str | None) -> None:
    """A stream that ends within a batch gives all batches before that, then says so."""
    assert_same(STREAMS[codec][:-missing])


@given(shift=st.integers(1, 63), codec=st.sampled_from((None, "lz4", "zstd")))
def test_memory_at_any_address(shift: int, codec: str | None) -> None:
    """A stream at an odd address is read right."""
    shifted = memoryview(bytes(shift) + STREAMS[codec])[shift:]
    assert outcome(shifted) == outcome(io.BytesIO(STREAMS[codec]))


def test_dictionaries_change_in_between() -> None:
    """Each batch keeps the dictionary that it was written with."""
    words = [[f"word {number}-{index}" for index in range(3)] for number in range(6)]
    batches = [
        pa.record_batch(
            {"a": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), pa.array(values))}
        )
        for values in words
        for _ in range(7)
    ]
    data = stream_of(batches)
    found = [batch.to_arrow().column(0).to_pylist() for batch in open_stream(data)]
    assert found == [batch.column(0).to_pylist() for batch in batches]
    assert_same(data)


@needs_library
def test_memory_for_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed batches that are too much together are read one by one."""
    asked: list[int] = []
    all_of, most = decompressed, 16 * BATCHES[0].num_columns * 4

    def short(body: pa.Buffer, places: Any, codec: str, decompression: DecompressOptions) -> list[pa.Buffer]:
        asked.append(len(places))
        if len(places) > most:
            raise LimitExceeded("there is no memory for a decompressed body")
        return all_of(body, places, codec, decompression)

    monkeypatch.setattr(compressed_body, "decompressed", short)
    assert outcome(STREAMS["lz4"]) == outcome(STREAM)
    assert max(asked) > most


@pytest.mark.parametrize("damaged", range(32, 36))
def test_a_false_length_does_not_lift_the_bound_on_memory(damaged: int) -> None:
    """At most 64 MiB are decompressed ahead, whatever the lengths of later messages claim."""
    size, bound = 8 << 20, 64 << 20
    batch = pa.record_batch({"n": np.zeros(size // 8, np.int64)})
    data = bytearray(stream_of([batch] * 72, "lz4"))
    place = -1
    for _ in range(damaged + 1):
        place = data.index(struct.pack("<q", size) + b"\x04\x22\x4d\x18", place + 1)
    struct.pack_into("<q", data, place, -(1 << 62))
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    with open_stream(data, memory_pool=pool) as reader:
        for _ in range(damaged):
            reader.read_next_batch()
        with pytest.raises(InvalidBody):
            reader.read_next_batch()
    assert size < pool.max_memory() <= bound + 2 * size


def test_a_closed_reader_gives_nothing_more() -> None:
    """What was read ahead is not given out after the reader is closed, and what was given out lives on."""
    reader = open_stream(STREAM)
    first = [reader.read_next_batch() for _ in range(4)]
    reader.close()
    with pytest.raises(ClosedError):
        reader.read_next_batch()
    assert first[3].to_arrow().equals(batch_of(21))


NUMBERED: Final = 90
_OURS: Final = str(Path(bow.__file__).parent)


def numbered(codec: str | None, new: Callable[..., Any]) -> bytes:
    """Return a stream or a file of batches that say which they are."""
    sink = io.BytesIO()
    schema = pa.schema([("n", pa.int64())])
    with new(sink, schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        for number in range(NUMBERED):
            writer.write_batch(pa.record_batch([pa.array([number] * 20)], schema=schema))
    return sink.getvalue()


def number_of(batch: Batch) -> int:
    return int(batch.to_arrow().column(0)[0].as_py())


def some_lines(call: Callable[[], Batch]) -> list[int]:
    """Return some lines of a call: all, if they are few, and the last ones."""
    batch, count = interrupted(call, sys.maxsize)
    assert batch is not None
    return [*range(0, count, max(1, count // 60)), *range(max(0, count - 20), count)]


@needs_library
@pytest.mark.parametrize("codec", [None, "lz4"])
@pytest.mark.parametrize("reads", [1, 9, 73])
@pytest.mark.parametrize("kind", [bytes, io.BytesIO])
def test_an_interrupted_stream_goes_on_where_it_was(
    kind: Callable[[bytes], Any], codec: str | None, reads: int
) -> None:
    """Interrupted before any line of a read, a stream gives all other batches, once and in order."""
    data = numbered(codec, pa.ipc.new_stream)

    def opened() -> tuple[RecordBatchStreamReader, list[int]]:
        reader = open_stream(kind(data))
        return reader, [number_of(reader.read_next_batch()) for _ in range(reads)]

    for line in some_lines(opened()[0].read_next_batch):
        reader, found = opened()
        batch, _ = interrupted(reader.read_next_batch, line)
        found += [] if batch is None else [number_of(batch)]
        found += map(number_of, reader)
        # The one that was about to be returned is lost with the call.
        assert found in (list(range(NUMBERED)), [n for n in range(NUMBERED) if n != reads]), line


@needs_library
@pytest.mark.parametrize("codec", [None, "lz4"])
@pytest.mark.parametrize("reads", [1, 9, 73])
def test_an_interrupted_file_gives_the_batch_that_is_asked_for(codec: str | None, reads: int) -> None:
    """Interrupted before any line of a read, a file gives the batch of each index ever after."""
    data = numbered(codec, pa.ipc.new_file)

    def opened() -> tuple[RecordBatchFileReader, Callable[[], Batch]]:
        reader = open_file(data)
        for index in range(reads):
            reader.get_batch(index)
        return reader, lambda: reader.get_batch(reads)

    for line in some_lines(opened()[1]):
        reader, read = opened()
        batch, _ = interrupted(read, line)
        assert batch is None or number_of(batch) == reads
        for index in (*range(reads, NUMBERED), *range(NUMBERED - 1, reads, -7), reads, reads):
            assert number_of(reader.get_batch(index)) == index, line


def _mapped(folder: Path, data: bytes) -> pa.NativeFile:
    (folder / "mapped").write_bytes(data)
    return pa.memory_map(str(folder / "mapped"))


FILES: Final[dict[str, Callable[[Path, bytes], Any]]] = {
    "BytesIO": lambda _, data: io.BytesIO(data),
    "BufferReader": lambda _, data: pa.BufferReader(data),
    "memory map": _mapped,
    "file": lambda _, data: io.BufferedReader(io.BytesIO(data)),
}


@EACH_CODEC
@pytest.mark.parametrize("kind", FILES)
def test_a_file_stays_behind_what_was_read(kind: str, codec: str | None, tmp_path: Path) -> None:
    """After each batch, and at the end, a file is where the next reader of it begins."""
    data = numbered(codec, pa.ipc.new_stream)
    file = FILES[kind](tmp_path, b"before." + b"\0" + data + data + b"behind")
    file.seek(8)
    for end in (8 + len(data), 8 + 2 * len(data)):
        reader = open_stream(file)
        places = [file.tell()]
        for number in range(NUMBERED):
            assert number_of(reader.read_next_batch()) == number
            places.append(file.tell())
        assert list(reader) == []
        assert (places == sorted(set(places)), file.tell()) == (True, end)
    assert file.read() == b"behind"
    file.close()
    assert list(reader) == []


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("reads", [1, 3, 20])
def test_a_file_that_is_moved_is_read_from_there(kind: str, reads: int, tmp_path: Path) -> None:
    """Whoever moves the file between two batches chooses the next one."""
    data = numbered(None, pa.ipc.new_stream)
    file = FILES[kind](tmp_path, data)
    reader, places = open_stream(file), []
    for _ in range(reads):
        places.append(file.tell())
        reader.read_next_batch()
    file.seek(places[reads // 2])
    assert list(map(number_of, reader)) == list(range(reads // 2, NUMBERED))


@pytest.mark.parametrize("reads", [1, 3, 20])
def test_what_is_written_meanwhile(reads: int) -> None:
    """Batches stay as they were, and later ones come as they are written, also while the file is viewed."""
    first, second = numbered(None, pa.ipc.new_stream), stream_of([batch_of(3)])
    data = bytearray(first)
    place = data.rindex(struct.pack("<q", NUMBERED - 1) * 20)
    file = io.BytesIO(first)
    reader = open_stream(file)
    found = [reader.read_next_batch() for _ in range(reads)]
    at = file.tell()
    file.seek(place)
    file.write(struct.pack("<q", 1000))
    file.seek(at)
    view = file.getbuffer()
    found += reader
    assert [*map(number_of, found)] == [*range(NUMBERED - 1), 1000]
    view.release()
    file.seek(0)
    file.truncate()
    file.write(second)
    assert [*map(number_of, found)] == [*range(NUMBERED - 1), 1000]


@EACH_CODEC
def test_threads_that_share_a_stream(codec: str | None) -> None:
    """Several threads that read one stream get each batch once, and no error but its end."""
    reader = open_stream(numbered(codec, pa.ipc.new_stream))
    found: list[int] = []
    errors: list[Exception] = []

    def read() -> None:
        try:
            found.extend(map(number_of, iter(reader.read_next_batch, None)))
        except Exception as error:  # noqa: BLE001  asserted below
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(found) == list(range(NUMBERED))
    assert not errors


def in_many_buffers(count: int) -> pa.RecordBatch:
    """Return a batch of views with so many variadic buffers."""
    views = pa.concat_arrays([pa.array([LONG], pa.string_view()) for _ in range(count)])
    return pa.record_batch({"v": views})


def test_a_kept_batch_keeps_a_table_of_its_own_size() -> None:
    """Batches of few buffers keep no room for many, if one of many came before or comes in between."""
    many, few = in_many_buffers(2000), in_many_buffers(1)
    data = stream_of([batch for _ in range(40) for batch in (many, *[few] * 6)])
    tracemalloc.start()
    try:
        kept = [batch for batch in open_stream(data) if batch.num_rows == 1]
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == 240
    assert size < 240 * 4096


def test_memory_that_asks_for_more_each_time() -> None:
    """A batch whose count of buffers changes whenever it is looked at is read, or an error, after a few looks."""
    data = bytearray(stream_of([in_many_buffers(2000).slice(0, 1999)]))
    assert (data.count(struct.pack("<q", 2000)), data.count(struct.pack("<I", 2002))) == (1, 1)
    listed = data.index(struct.pack("<I", 2002))
    counted = data.index(struct.pack("<q", 2000))
    looks = 0

    def change(frame: FrameType, event: str, _: Any) -> None:
        nonlocal looks
        if event == "call" and frame.f_code.co_filename.startswith(_OURS):
            looks += 1
            struct.pack_into("<q", data, counted, 10 + looks)
            struct.pack_into("<I", data, listed, 12 + looks)

    reader = open_stream(data)
    before = sys.getprofile()
    sys.setprofile(change)
    try:
        batch = reader.read_next_batch()
    except BowstringError:
        batch = None
    finally:
        sys.setprofile(before)
    assert batch is None or batch.num_rows == 1999
    assert looks < 200


@pytest.mark.parametrize("looks", [False, True])
def test_batches_are_released_one_by_one(looks: bool) -> None:
    """A batch out of many can be released before anything of it was looked at; it still tells its lengths."""
    taken = list(open_stream(STREAM))[:5]
    lengths = [len(batch[0]) if looks else batch.num_rows for batch in taken]
    others = [batch.to_arrow() for batch in taken[1:]]
    column = taken[0][0]
    taken[0].release()
    for look in (lambda: taken[0].nbytes, taken[0].to_arrow, lambda: column.raw_values):
        with pytest.raises(ClosedError):
            look()
    assert "released" in repr(taken[0])
    assert len(column) == lengths[0]
    assert [batch.num_rows for batch in others] == lengths[1:]
    with pytest.raises(ViewsAlive):
        taken[1].release()
