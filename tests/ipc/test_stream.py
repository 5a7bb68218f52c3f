"""Streams against pyarrow, in both directions."""

from __future__ import annotations

import contextlib
import io
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from bowstring import ipc
from bowstring.columnar.batch import Batch
from bowstring.errors import (
    ClosedError,
    EndOfStream,
    InvalidMetadata,
    Truncated,
    UsageError,
)
from bowstring.ipc.body.check import check_offsets
from bowstring.ipc.dictionary.reader import GrowingValues
from bowstring.testing import fake_device
from tests import strategies


def written_by_pyarrow(table: pa.Table, **options: Any) -> bytes:
    """Return a table as a stream of pyarrow's."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def written_by_bowstring(table: pa.Table) -> bytes:
    """Return a table as a stream of ours."""
    sink = io.BytesIO()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return sink.getvalue()


@given(batches=strategies.tables())
def test_pyarrow_streams_read_equal(batches: list[pa.RecordBatch]) -> None:
    """What pyarrow writes, of any type, is read as the same values, and valid in full."""
    table = pa.Table.from_batches(batches)
    stream = written_by_pyarrow(table)
    found = ipc.open_stream(stream).read_all()
    assert found.equals(pa.ipc.open_stream(stream).read_all(), check_metadata=True)
    found.validate(full=True)


@given(batches=strategies.tables())
def test_bowstring_streams_read_equal(batches: list[pa.RecordBatch]) -> None:
    """What we write, of any type and from sliced chunks, is read by pyarrow as the same values."""
    table = pa.Table.from_batches(batches)
    stream = written_by_bowstring(table)
    found = pa.ipc.open_stream(stream).read_all()
    assert found.equals(table, check_metadata=True)
    found.validate(full=True)
    assert ipc.open_stream(stream).read_all().equals(table, check_metadata=True)


@given(batches=strategies.tables())
def test_buffers_are_placed_at_64_bytes(batches: list[pa.RecordBatch]) -> None:
    """Every body we write, and every buffer in it, begins at a multiple of 64 bytes of the stream."""
    stream = pa.py_buffer(written_by_bowstring(pa.Table.from_batches(batches)))
    for batch in ipc.open_stream(stream):
        for buffer in batch.buffers:
            assert buffer is None or (buffer.address - stream.address) % 64 == 0


SAMPLE = pa.table(
    {
        "number": pa.array([1, None, 3], pa.int64()),
        "text": ["x", None, "yz"],
        "tags": [["a"], None, ["b", "c"]],
        "word": pa.array(["p", "q", "p"]).dictionary_encode(),
    }
)


def _sources(folder: Path, stream: bytes) -> dict[str, Any]:
    path = folder / "stream.arrows"
    path.write_bytes(stream)
    odd = np.frombuffer(b"!" + stream, np.uint8)[1:]
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return {
        "bytes": stream,
        "bytearray": bytearray(stream),
        "odd address": odd,
        "pyarrow buffer": pa.py_buffer(stream),
        "mmap": mapped,
        "path": path,
        "string": str(path),
        "BytesIO": io.BytesIO(stream),
        "file": path.open("rb"),
        "unbuffered": path.open("rb", buffering=0),
        "BufferReader": pa.BufferReader(stream),
        "OSFile": pa.OSFile(str(path)),
        "memory_map": pa.memory_map(str(path)),
        "one byte at a time": _Slow(stream),
    }


class _Slow:
    """A source that gives one byte a call, as a socket may."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self, nbytes: int) -> bytes:
        return self._file.read(min(nbytes, 1))


def test_every_kind_of_source_reads_the_same(tmp_path: Path) -> None:
    """Paths, buffers, maps and files of all kinds give the same table, also after the reader is closed."""
    for stream in (written_by_pyarrow(SAMPLE), written_by_bowstring(SAMPLE)):
        for name, source in _sources(tmp_path, stream).items():
            with ipc.open_stream(source) as reader:
                batches = list(reader)
            table = pa.Table.from_batches([batch.to_arrow() for batch in batches])
            assert table.equals(SAMPLE), name
            if hasattr(source, "close") and not isinstance(source, mmap.mmap):
                source.close()


def test_buffers_of_memory_are_not_copied() -> None:
    """A batch read from a buffer is a slice of it."""
    stream = pa.py_buffer(written_by_bowstring(SAMPLE))
    batch = ipc.open_stream(stream).read_next_batch()
    for buffer in batch.buffers:
        assert buffer is None or stream.address <= buffer.address < stream.address + stream.size


def test_bodies_are_handed_to_the_sink_without_a_copy() -> None:
    """What the sink is given for a large buffer is the table's own memory."""
    table = pa.table({"a": np.arange(100_000)})
    pieces = []

    class Sink:
        def write(self, piece: Any) -> None:
            pieces.append(np.frombuffer(piece, np.uint8))

    with ipc.new_stream(Sink(), table.schema) as writer:
        writer.write_table(table)
    addresses = {piece.ctypes.data for piece in pieces}
    assert table.column(0).chunk(0).buffers()[1].address in addresses


def test_sinks_that_take_a_part_get_the_rest(tmp_path: Path) -> None:
    """Short writes are continued, and paths and pyarrow files are sinks too."""

    class Short:
        def __init__(self) -> None:
            self.data = b""

        def write(self, piece: memoryview) -> int:
            self.data += bytes(piece[:7])
            return min(len(piece), 7)

    expected = written_by_bowstring(SAMPLE)
    short = Short()
    with ipc.new_stream(short, SAMPLE.schema) as writer:
        writer.write(SAMPLE)
    assert short.data == expected
    with ipc.new_stream(tmp_path / "a", SAMPLE.schema) as writer:
        writer.write(SAMPLE)
    assert (tmp_path / "a").read_bytes() == expected
    native = pa.BufferOutputStream()
    with ipc.new_stream(native, SAMPLE.schema) as writer:
        writer.write(Batch.from_arrow(SAMPLE.to_batches()[0]))
    assert native.getvalue().to_pybytes() == expected


def test_a_stream_cut_anywhere_is_truncated_or_ends_between_messages() -> None:
    """Cut at every length, a stream gives some of its first batches and then ends or says that it is cut."""
    table = pa.concat_tables([SAMPLE, SAMPLE.slice(1)])
    stream = written_by_bowstring(table)
    batches = table.to_batches()
    clean = 0
    for length in range(len(stream)):
        found: list[pa.RecordBatch] = []
        try:
            found.extend(batch.to_arrow() for batch in ipc.open_stream(stream[:length]))
            clean += 1
        except Truncated:
            pass
        assert found == batches[: len(found)]
    # Behind the schema, the dictionary, the first and the second batch.
    assert clean == 4


def test_dictionaries_are_sent_once_and_again_when_they_change() -> None:
    """Equal dictionaries in other memory are not sent again; different ones replace those before."""
    first, same, other = (
        pa.array(words).dictionary_encode() for words in (["a", "b"], ["a", "b"], ["c", "a"])
    )
    table = pa.table({"d": pa.chunked_array([first, same, other])})
    stream = written_by_bowstring(table)
    kinds = [message.type for message in pa.ipc.MessageReader.open_stream(stream) if message]
    assert kinds == ["schema", "dictionary", "record batch", "record batch", "dictionary", "record batch"]
    assert pa.ipc.open_stream(stream).read_all().equals(table)
    assert ipc.open_stream(stream).read_all().equals(table)


def test_delta_dictionaries_are_joined() -> None:
    """Deltas of pyarrow's are appended for the batches behind them, and not for those before."""
    words = [["a", "b"], ["a", "b", "c"], ["a", "b", "c", "d"]]
    table = pa.table({"d": pa.chunked_array([pa.array(each).dictionary_encode() for each in words])})
    stream = written_by_pyarrow(table, emit_dictionary_deltas=True)
    batches = list(ipc.open_stream(stream))
    assert [batch["d"].to_arrow().dictionary.to_pylist() for batch in batches] == words
    assert ipc.open_stream(stream).read_all().equals(table)


def _messages(table: pa.Table) -> list[bytes]:
    """Return the messages of a stream of pyarrow's, each with its framing and body."""
    reader = pa.ipc.MessageReader.open_stream(written_by_pyarrow(table))
    found = []
    with contextlib.suppress(StopIteration):
        while True:
            found.append(reader.read_next_message().serialize().to_pybytes())
    return found


def test_a_dictionary_that_never_came_is_missed_only_where_it_is_used() -> None:
    """Columns that are all null may get their dictionary late; others are refused without it."""
    used = pa.array(["a", "b", None]).dictionary_encode()
    unused = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), pa.array(["a", "b"]))
    table = pa.table({"d": pa.chunked_array([unused, used])})
    schema, dictionary, first, second = _messages(table)
    late = ipc.open_stream(schema + first + dictionary + second).read_all()
    assert late["d"].to_pylist() == table["d"].to_pylist()
    with pytest.raises(InvalidMetadata, match="not been sent"):
        ipc.open_stream(schema + second).read_all()
    with pytest.raises(InvalidMetadata, match="no field"):
        ipc.open_stream(pa.schema({"a": pa.int8()}).serialize().to_pybytes() + dictionary).read_all()


def test_deltas_that_cannot_be_joined_are_refused() -> None:
    """A delta without a dictionary before it is refused, and so is one that pyarrow cannot join, by name."""
    words = [["a", "b"], ["a", "b", "c"]]
    table = pa.table({"d": pa.chunked_array([pa.array(each).dictionary_encode() for each in words])})
    stream = pa.ipc.MessageReader.open_stream(written_by_pyarrow(table, emit_dictionary_deltas=True))
    messages = [stream.read_next_message().serialize().to_pybytes() for _ in range(5)]
    with pytest.raises(InvalidMetadata, match="delta"):
        ipc.open_stream(messages[0] + messages[3]).read_all()
    views = Batch.from_arrow(pa.record_batch({"values": pa.array([[1]], pa.list_view(pa.int8()))}))
    values = GrowingValues(views)
    values.append(views)
    assert values.batch().num_rows == 2


def test_batches_on_a_device_are_written_through_the_host() -> None:
    """A batch on the fake device is checked and written as on the host."""
    batch = Batch.from_arrow(SAMPLE.to_batches()[0]).to_device(fake_device(0))
    check_offsets(batch)
    sink = io.BytesIO()
    with ipc.new_stream(sink, batch.schema) as writer:
        writer.write(batch)
    assert sink.getvalue() == written_by_bowstring(SAMPLE)


def test_a_batch_keeps_the_dictionary_it_came_with() -> None:
    """Replacing a dictionary does not change batches that were read before."""
    chunks = [pa.array(words).dictionary_encode() for words in (["a", "b"], ["c", "d", "e"])]
    reader = ipc.open_stream(written_by_pyarrow(pa.table({"d": pa.chunked_array(chunks)})))
    first = reader.read_next_batch()
    reader.read_next_batch()
    assert first.to_arrow().column(0).to_pylist() == ["a", "b"]


def test_nested_dictionaries_in_batches_with_other_ids() -> None:
    """A batch that was read with ids of its own can be written again, its inner dictionaries too."""
    inner = pa.array(["x", "y", "x"]).dictionary_encode()
    outer = pa.DictionaryArray.from_arrays(
        pa.array([0, 2, None]), pa.StructArray.from_arrays([inner], names=["i"])
    )
    table = pa.table({"plain": inner, "o": outer})
    batch = ipc.open_stream(written_by_pyarrow(table)).read_next_batch().select(["o"])
    sink = io.BytesIO()
    with ipc.new_stream(sink, batch.schema) as writer:
        writer.write(batch)
    assert pa.ipc.open_stream(sink.getvalue()).read_all().equals(table.select(["o"]))


def test_custom_metadata_of_messages_survive() -> None:
    """Key-value pairs of a batch's message are read, and written, as bytes."""
    batch = SAMPLE.to_batches()[0]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch, custom_metadata={"k": "v", "": "w"})
    found = ipc.open_stream(sink.getvalue()).read_next_batch()
    assert found.custom_metadata == {b"k": b"v", b"": b"w"}
    again = io.BytesIO()
    with ipc.new_stream(again, batch.schema) as writer:
        writer.write(found)
        writer.write_batch(batch, custom_metadata={b"other": b"\xff"})
    reader = pa.ipc.open_stream(again.getvalue())
    assert reader.read_next_batch_with_custom_metadata().custom_metadata == {"k": "v", "": "w"}
    assert reader.read_next_batch_with_custom_metadata().custom_metadata[b"other"] == b"\xff"


def test_streams_of_old_are_read() -> None:
    """Metadata of version 4, with the framing from before Arrow 0.15 and with today's, are read."""
    table = SAMPLE.append_column(
        "u", pa.UnionArray.from_sparse(pa.array([0, 0, 0], pa.int8()), [SAMPLE["number"].chunk(0)])
    )
    for legacy in (False, True):
        stream = written_by_pyarrow(
            table, metadata_version=pa.ipc.MetadataVersion.V4, use_legacy_format=legacy
        )
        assert ipc.open_stream(stream).read_all().equals(table)


def test_streams_without_batches_and_without_columns() -> None:
    """Empty streams have a schema; batches without columns have rows."""
    assert ipc.open_stream(written_by_bowstring(SAMPLE.slice(0, 0))).read_all().equals(SAMPLE.slice(0, 0))
    nothing = pa.schema([])
    sink = io.BytesIO()
    with ipc.new_stream(sink, nothing) as writer:
        writer.write(pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([]))))
    assert ipc.open_stream(sink.getvalue()).read_next_batch().num_rows == 2
    assert pa.ipc.open_stream(sink.getvalue()).read_next_batch().num_rows == 2


def test_the_end_is_not_a_failure_and_closing_is_not_the_end() -> None:
    """Behind the last batch comes EndOfStream, again and again; a closed reader or writer says ClosedError."""
    reader = ipc.open_stream(written_by_bowstring(SAMPLE) + b"what follows is not read")
    reader.read_next_batch()
    for _ in range(2):
        with pytest.raises(EndOfStream):
            reader.read_next_batch()
    assert list(reader) == []
    reader.close()
    reader.close()
    with pytest.raises(ClosedError):
        reader.read_next_batch()
    writer = ipc.new_stream(io.BytesIO(), SAMPLE.schema)
    writer.close()
    writer.close()
    with pytest.raises(ClosedError):
        writer.write(SAMPLE)


def test_what_is_not_a_stream_is_refused() -> None:
    """Nothing, an Arrow file, a stream of other messages, and objects that cannot be read are told apart."""
    with pytest.raises(Truncated, match="schema"):
        ipc.open_stream(b"")
    file = pa.BufferOutputStream()
    with pa.ipc.new_file(file, SAMPLE.schema):
        pass
    with pytest.raises(InvalidMetadata, match="Arrow file"):
        ipc.open_stream(file.getvalue())
    with pytest.raises(InvalidMetadata, match="SCHEMA"):
        ipc.open_stream(SAMPLE.to_batches()[0].select(["number"]).serialize())
    with pytest.raises(UsageError):
        ipc.open_stream(42)
    with pytest.raises(InvalidMetadata, match="record batches"):
        list(ipc.open_stream(2 * SAMPLE.schema.serialize().to_pybytes()))


@pytest.mark.parametrize("mode", ["sparse", "dense"])
def test_a_union_without_children_has_no_rows(mode: str) -> None:
    """No type id of it names a value, so that rows are refused; without rows it comes as it is, nested too."""
    type_ = pa.union([], mode=mode)
    ids, offsets = pa.py_buffer(bytes(3)), pa.py_buffer(bytes(12))
    rows = pa.Array.from_buffers(type_, 3, [None, ids, offsets][: 2 + (mode == "dense")])
    none = rows.slice(0, 0)
    lists = pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), none)
    for column, is_right in ((rows, False), (none, True), (lists, True)):
        batch = pa.record_batch({"u": column})
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        for source in (sink.getvalue(), io.BytesIO(sink.getvalue())):
            if is_right:
                assert ipc.open_stream(source).read_next_batch().to_arrow().equals(batch)
            else:
                with pytest.raises(InvalidMetadata, match="without children"):
                    ipc.open_stream(source).read_next_batch()


def test_batches_of_another_schema_are_not_written() -> None:
    """A writer takes batches of its own schema only."""
    with ipc.new_stream(io.BytesIO(), SAMPLE.schema) as writer, pytest.raises(UsageError, match="schema"):
        writer.write(pa.record_batch({"a": [1]}))


def test_a_reader_is_an_arrow_stream() -> None:
    """Anything that takes the Arrow stream interface takes a reader."""
    stream = written_by_pyarrow(pa.concat_tables([SAMPLE, SAMPLE]))
    assert pa.table(ipc.open_stream(stream)).equals(pa.concat_tables([SAMPLE, SAMPLE]))
    assert ipc.open_stream(stream).read_pandas().shape == (6, 4)
