"""Arrow IPC files against pyarrow, in both directions."""

from __future__ import annotations

import concurrent.futures
import io
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import ipc
from bowstring.columnar.batch import Batch
from bowstring.errors import ClosedError, UsageError
from bowstring.testing import fake_device
from tests import strategies
from tests.ipc.files import SAMPLE, by_bowstring, by_pyarrow

WRITING = st.fixed_dictionaries(
    {
        "metadata_version": st.sampled_from((ipc.MetadataVersion.V4, ipc.MetadataVersion.V5)),
        "use_legacy_format": st.booleans(),
    }
)
WITH_DELTAS = st.builds(
    lambda options, deltas: {**options, "emit_dictionary_deltas": deltas}, WRITING, st.booleans()
)


def _file_or_none(write: Any, batches: list[pa.RecordBatch], options: dict[str, Any]) -> bytes | None:
    """Return the file, or nothing where a dictionary would have to be replaced."""
    try:
        return write(batches, **options)
    except (pa.ArrowInvalid, UsageError) as error:
        if "replace" not in str(error):
            raise
        return None


@given(batches=strategies.tables(), options=WITH_DELTAS)
def test_pyarrow_files_read_equal(batches: list[pa.RecordBatch], options: dict[str, Any]) -> None:
    """What pyarrow writes, of any type and with any options, is read as pyarrow reads it."""
    file = _file_or_none(by_pyarrow, batches, options) or by_pyarrow(batches[:1], **options)
    with ipc.open_file(file) as reader:
        found = reader.read_all()
    assert found.equals(pa.ipc.open_file(file).read_all(), check_metadata=True)
    found.validate(full=True)


@given(batches=strategies.tables(), options=WRITING)
def test_bowstring_files_read_equal(batches: list[pa.RecordBatch], options: dict[str, Any]) -> None:
    """What we write, with any options, is read by pyarrow and by us as the same values."""
    file = _file_or_none(by_bowstring, batches, options)
    if file is None:
        batches = batches[:1]
        file = by_bowstring(batches, **options)
    table = pa.Table.from_batches(batches)
    for module in (pa.ipc, ipc):
        found = module.open_file(file).read_all()
        assert found.equals(table, check_metadata=True)
        found.validate(full=True)


@given(batches=strategies.tables(), options=WITH_DELTAS)
def test_both_refuse_the_same_files(batches: list[pa.RecordBatch], options: dict[str, Any]) -> None:
    """A file that would have to replace a dictionary is refused by both or by none."""
    ours, theirs = (_file_or_none(write, batches, options) for write in (by_bowstring, by_pyarrow))
    assert (ours is None) == (theirs is None)


@given(batches=strategies.tables())
def test_blocks_and_buffers_are_placed_at_64_bytes(batches: list[pa.RecordBatch]) -> None:
    """Every body in a file, and every buffer in it, begins at a multiple of 64 bytes, as the footer says."""
    file = pa.py_buffer(by_bowstring(batches[:1]))
    (batch,) = ipc.open_file(file)
    for buffer in batch.buffers:
        assert buffer is None or (buffer.address - file.address) % 64 == 0
    assert file.to_pybytes()[:8] == b"ARROW1\0\0"
    assert file.to_pybytes()[-6:] == b"ARROW1"


def test_a_file_holds_a_stream() -> None:
    """What stands between the magic and the footer is a stream of the same batches, read by both."""
    spellings: list[dict[str, Any]] = [
        {},
        {"use_legacy_format": True, "metadata_version": ipc.MetadataVersion.V4},
    ]
    for options in spellings:
        stream = by_bowstring(SAMPLE, **options)[8:]
        for module in (pa.ipc, ipc):
            assert module.open_stream(stream).read_all().equals(SAMPLE)


TWICE = pa.concat_tables([SAMPLE, SAMPLE.slice(1)])


def _sources(folder: Path, file: bytes) -> dict[str, Any]:
    path = folder / "batches.arrow"
    path.write_bytes(file)
    with path.open("rb") as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    return {
        "bytes": file,
        "bytearray": bytearray(file),
        "odd address": np.frombuffer(b"!" + file, np.uint8)[1:],
        "pyarrow buffer": pa.py_buffer(file),
        "mmap": mapped,
        "path": path,
        "string": str(path),
        "BytesIO": io.BytesIO(file),
        "file": path.open("rb"),
        "unbuffered": path.open("rb", buffering=0),
        "BufferReader": pa.BufferReader(file),
        "OSFile": pa.OSFile(str(path)),
        "memory_map": pa.memory_map(str(path)),
    }


def test_every_kind_of_source_reads_the_same(tmp_path: Path) -> None:
    """Paths, buffers, maps and files of all kinds give the same batches, also after the reader is closed."""
    for file in (by_pyarrow(TWICE), by_bowstring(TWICE)):
        for name, source in _sources(tmp_path, file).items():
            with ipc.open_file(source) as reader:
                batches = [reader.get_batch(index) for index in (1, 0)]
            del reader
            table = pa.Table.from_batches([batch.to_arrow() for batch in reversed(batches)])
            assert table.equals(TWICE), name
            table.validate(full=True)
            if hasattr(source, "close") and not isinstance(source, mmap.mmap):
                source.close()


def test_buffers_of_memory_and_maps_are_not_copied(tmp_path: Path) -> None:
    """Batches of buffers, and of pyarrow's memory maps, are slices of them."""
    file = pa.py_buffer(by_bowstring(TWICE))
    path = tmp_path / "batches.arrow"
    path.write_bytes(file)
    mapped = pa.memory_map(str(path))
    whole = mapped.read_buffer()
    for source, memory in ((file, file), (mapped, whole)):
        for batch in ipc.open_file(source):
            for buffer in batch.buffers:
                assert buffer is None or memory.address <= buffer.address < memory.address + memory.size


def test_sources_that_cannot_seek_are_refused() -> None:
    """A file is read from its end: what can only be read front to back is refused by name."""

    class Pipe:
        def read(self, nbytes: int) -> bytes:
            return b"\0" * nbytes

    for source in (Pipe(), pa.CompressedInputStream(pa.BufferReader(b""), "gzip")):
        with pytest.raises(UsageError, match="seek"):
            ipc.open_file(source)


def test_random_access_and_counts() -> None:
    """Batches come by number, as often as one likes; numbers that are none are refused."""
    reader = ipc.open_file(by_pyarrow([*TWICE.to_batches()[:1]] * 5))
    assert reader.num_record_batches == 5
    assert reader.count_rows() == 15
    for index in (4, 0, 2, 2):
        assert reader.get_record_batch(index).to_arrow().equals(SAMPLE.to_batches()[0])
    for index in (-1, 5):
        with pytest.raises(UsageError, match="no such batch"):
            reader.get_batch(index)
    assert len(list(reader)) == len(list(reader)) == 5
    numbers = ipc.open_file(by_pyarrow(TWICE.select(["number"])))
    assert numbers.read_pandas().shape == (5, 1)
    assert pa.table(reader).num_rows == 15


def test_counts_are_those_of_pyarrow() -> None:
    """What a reader and a writer say that they read and wrote is what pyarrow's say."""
    file = by_pyarrow(TWICE)
    ours, theirs = ipc.open_file(file), pa.ipc.open_file(file)
    assert ours.stats == theirs.stats
    for index in (0, 1, 1):
        ours.get_batch(index)
        theirs.get_batch(index)
        assert ours.stats == theirs.stats
    writers = [new(io.BytesIO(), TWICE.schema) for new in (ipc.new_file, pa.ipc.new_file)]
    for writer in writers:
        writer.write_table(TWICE)
    assert writers[0].stats == writers[1].stats
    for writer in writers:
        writer.close()


def test_metadata_of_file_and_messages_survive() -> None:
    """Key-value pairs of the footer, of the schema and of messages are read and written by both alike."""
    batch = SAMPLE.to_batches()[0].replace_schema_metadata({"schema": "pair", "": ""})
    pairs = {"k": "v", "": "w", "long": "x" * 1000}
    for new in (ipc.new_file, pa.ipc.new_file):
        sink = io.BytesIO()
        with new(sink, batch.schema, metadata=pairs) as writer:
            writer.write_batch(batch, custom_metadata={"a": "b"})
            writer.write_batch(batch)
        for module in (ipc, pa.ipc):
            reader = module.open_file(sink.getvalue())
            assert reader.metadata == {key.encode(): value.encode() for key, value in pairs.items()}
            assert reader.schema.metadata == {b"schema": b"pair", b"": b""}
            first = reader.get_batch_with_custom_metadata(0).custom_metadata
            assert first[b"a"] == b"b"
            assert reader.get_batch_with_custom_metadata(1).custom_metadata is None
    assert ipc.open_file(by_pyarrow(SAMPLE)).metadata is None


def test_duplicate_keys_are_written_all_and_read_as_pyarrow_reads_them() -> None:
    """Of pairs with the same key all are written, and the first is read."""
    pairs = pa.KeyValueMetadata([("k", "1"), ("k", "2"), ("l", "3")])
    file = by_bowstring(SAMPLE, metadata=pairs)
    assert file.count(b"\1\0\0\0k\0") == 2
    assert ipc.open_file(file).metadata == {b"k": b"1", b"l": b"3"}


def test_files_inside_of_something_larger() -> None:
    """What follows a file is stepped over by ``footer_offset``; what precedes it, by a slice."""
    file = by_bowstring(SAMPLE)
    for module in (ipc, pa.ipc):
        assert module.open_file(file + b"trailing", len(file)).read_all().equals(SAMPLE)
    sink = io.BytesIO()
    sink.write(b"in front")
    with ipc.new_file(sink, SAMPLE.schema) as writer:
        writer.write(SAMPLE)
    for module in (ipc, pa.ipc):
        assert module.open_file(sink.getvalue()[8:]).read_all().equals(SAMPLE)
    with pytest.raises(UsageError, match="footer_offset"):
        ipc.open_file(file, footer_offset=len(file) + 1)


def test_empty_files() -> None:
    """Files without batches have a schema; batches without columns have rows."""
    nothing = ipc.open_file(by_bowstring(SAMPLE.slice(0, 0).to_batches() or [SAMPLE.slice(0, 0)]))
    assert nothing.read_all().equals(SAMPLE.slice(0, 0))
    assert list(nothing) == []
    rows = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    for module in (ipc, pa.ipc):
        assert module.open_file(by_bowstring([rows])).get_batch(0).num_rows == 2


def test_readers_and_writers_that_are_closed_say_so() -> None:
    """Closing twice does nothing; what comes after it is refused; batches that were read live on."""
    reader = ipc.open_file(by_bowstring(SAMPLE))
    batch = reader.get_batch(0)
    reader.close()
    reader.close()
    with pytest.raises(ClosedError):
        reader.get_batch(0)
    assert batch.to_arrow().equals(SAMPLE.to_batches()[0])
    sink = io.BytesIO()
    writer = ipc.new_file(sink, SAMPLE.schema)
    writer.close()
    size = len(sink.getvalue())
    writer.close()
    assert len(sink.getvalue()) == size
    with pytest.raises(ClosedError):
        writer.write(SAMPLE)


def test_paths_and_pyarrow_sinks(tmp_path: Path) -> None:
    """Paths and pyarrow's files are sinks, and get the same bytes as Python's."""
    expected = by_bowstring(SAMPLE)
    native = pa.BufferOutputStream()
    for sink in (tmp_path / "a", str(tmp_path / "b"), native):
        with ipc.new_file(sink, SAMPLE.schema) as writer:
            writer.write(SAMPLE)
    found = [(tmp_path / "a").read_bytes(), (tmp_path / "b").read_bytes(), native.getvalue().to_pybytes()]
    assert found == [expected] * 3


def test_batches_on_a_device_are_written_as_from_the_host() -> None:
    """A batch on the fake device makes a file of the same values as the one on the host."""
    batch = Batch.from_arrow(SAMPLE.to_batches()[0]).to_device(fake_device(0))
    assert pa.ipc.open_file(by_bowstring([batch, batch.slice(1)])).read_all().equals(TWICE)


def test_threads_share_a_reader(tmp_path: Path) -> None:
    """Batches read by several threads at once, from a file with one position, are all right."""
    tables = [pa.table({"a": np.full(1000, index)}) for index in range(40)]
    path = tmp_path / "batches.arrow"
    path.write_bytes(by_bowstring(pa.concat_tables(tables)))
    with path.open("rb") as file, concurrent.futures.ThreadPoolExecutor(4) as pool:
        reader = ipc.open_file(file)
        batches = pool.map(reader.get_batch, range(40), timeout=60)
        for index, batch in enumerate(batches):
            assert (batch["a"].values == index).all()


@pytest.mark.parametrize("kind", [int, *(np.dtype(code).type for code in "bBhHiIlL")])
def test_any_whole_number_is_an_index(kind: type) -> None:
    """Numbers of NumPy are those of Python, up to their last, in any order."""
    batches = [pa.record_batch({"n": [number]}) for number in range(300)]
    last = min(299, 299 if kind is int else int(np.iinfo(kind).max))
    file = by_pyarrow(batches)
    for order in (range(last + 1), (last, 0, last), (last - 1, last, 0), range(last, -1, -9)):
        with ipc.open_file(file) as reader:
            for index in order:
                assert reader.get_batch(kind(index)).to_arrow().column(0)[0].as_py() == index


def test_what_is_no_index() -> None:
    """Numbers outside, and what is no whole number, are refused; True is 1, as for a list."""
    batches = [pa.record_batch({"n": [number]}) for number in range(3)]
    with ipc.open_file(by_pyarrow(batches)) as reader:
        assert reader.get_batch(True).to_arrow().equals(batches[1])
        wrong: list[Any] = [-1, 3, 1 << 64, 1.0, None, "1", np.float64(1), np.int8(-1), np.array([1, 2])]
        for index in wrong:
            with pytest.raises(UsageError, match="no such batch"):
                reader.get_batch(index)
