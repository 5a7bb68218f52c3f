"""Options of readers and writers: ours and pyarrow's, each against what pyarrow does with it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import ipc
from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import make_batch
from bowstring.errors import InvalidMetadata, Unsupported, UsageError
from tests import strategies
from tests.ipc.files import SAMPLE, by_bowstring, by_pyarrow, messages
from tests.ipc.flatbuffers import record_batch_of

KINDS = ("file", "stream")


def opened(data: Any, kind: str, module: Any = ipc, **options: Any) -> Any:
    """Return a reader of a file or of a stream."""
    open_ = module.open_file if kind == "file" else module.open_stream
    return open_(data, options=module.IpcReadOptions(**options))


@given(batches=strategies.tables(min_columns=1), data=st.data(), is_v4=st.booleans())
def test_included_fields_are_those_of_pyarrow(
    batches: list[pa.RecordBatch], data: st.DataObject, is_v4: bool
) -> None:
    """Any choice of columns, in any order and twice, gives these columns of what pyarrow reads, in its order.

    (Columns that pyarrow itself chooses from a file of version 4 with unions are wrong: it reads other bytes.)
    """
    width = batches[0].num_columns
    fields = data.draw(st.lists(st.integers(0, width - 1), max_size=5))
    version = ipc.MetadataVersion.V4 if is_v4 else ipc.MetadataVersion.V5
    for kind in KINDS:
        written = by_pyarrow(
            batches if kind == "stream" else batches[:1], kind=kind, metadata_version=version
        )
        ours, theirs = (opened(written, kind, module, included_fields=fields) for module in (ipc, pa.ipc))
        assert ours.schema.equals(theirs.schema, check_metadata=True)
        expected = opened(written, kind, pa.ipc).read_all()
        expected = expected.select(sorted(set(fields))) if fields else expected
        assert ours.read_all().equals(expected, check_metadata=True)


def test_columns_that_are_not_there_are_refused() -> None:
    """A position beyond the columns is refused when the reader is made, one that is none by the options."""
    for kind in KINDS:
        with pytest.raises(UsageError, match="not there"):
            opened(by_pyarrow(SAMPLE, kind=kind), kind, included_fields=[7])
    wrong: list[Any] = [[-1], ["text"], [True]]
    for fields in wrong:
        with pytest.raises(UsageError, match="included_fields"):
            ipc.IpcReadOptions(included_fields=fields)


class _Counting(io.BytesIO):
    """A file that says how much was read of it."""

    taken = 0

    def readinto(self, into: Any) -> int:
        count = super().readinto(into)
        self.taken += count
        return count


def test_other_columns_are_not_read() -> None:
    """Of a file, or a stream that can seek, the bodies of columns that were not chosen stay unread."""
    schema = pa.schema(
        {"small": pa.int64(), "large": pa.int64(), "word": pa.dictionary(pa.int8(), pa.string())}
    )
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int8()), ["x" * 100_000])
    batch = pa.record_batch([np.arange(10_000), np.arange(10_000), words], schema=schema)
    for kind in KINDS:
        source = _Counting(by_pyarrow([batch], kind=kind))
        reader = opened(source, kind, included_fields=[0])
        assert reader.read_all()["small"].to_pylist() == list(range(10_000))
        assert source.taken <= 80_000 + (100_100 if kind == "stream" else 0)


def test_columns_of_a_stream_in_the_middle_of_a_file() -> None:
    """A stream that begins anywhere in a file is read from there, also where bodies are read in part."""
    table = pa.concat_tables([pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})] * 3)
    file = _Counting(b"in front" * 10 + by_pyarrow(table, kind="stream"))
    file.seek(80)
    assert opened(file, "stream", included_fields=[1]).read_all().equals(table.select(["b"]))


def test_damage_in_other_columns_is_not_seen() -> None:
    """Offsets that point anywhere are refused, but not where their column was not chosen."""
    table = pa.table({"good": [1, 2, 3], "bad": ["a", "b", "c"]})
    for kind in KINDS:
        data = by_bowstring(table, kind=kind)
        damaged = data.replace(np.arange(4, dtype="<i4").tobytes(), np.array([0, 9, -1, 99], "<i4").tobytes())
        assert damaged != data
        assert opened(damaged, kind, included_fields=[0]).read_all()["good"].to_pylist() == [1, 2, 3]
        with pytest.raises(ValueError, match="offsets"):
            opened(damaged, kind).read_all()


def test_other_columns_must_be_described() -> None:
    """A header with too few buffers for the whole schema is refused, whatever was chosen."""
    schema = pa.schema({"a": pa.int64(), "b": pa.int64()})
    stream = pa.BufferOutputStream()
    stream.write(schema.serialize())
    stream.write(pa.record_batch({"a": [1]}).serialize())
    with pytest.raises(InvalidMetadata, match="nodes"):
        opened(stream.getvalue(), "stream", included_fields=[0]).read_all()


@given(batches=strategies.tables(), at=st.integers(0, 15))
def test_sources_at_any_address_read_equal(batches: list[pa.RecordBatch], at: int) -> None:
    """A stream or file that begins at any address is read the same, with each alignment that one may ask for."""
    table = pa.Table.from_batches(batches)
    stream = by_pyarrow(table, kind="stream")
    room = np.empty(len(stream) + 64, np.uint8)
    start = -room.ctypes.data % 64 + at
    room[start : start + len(stream)] = np.frombuffer(stream, np.uint8)
    for alignment in (ipc.Alignment.Any, ipc.Alignment.DataTypeSpecific, ipc.Alignment.At64Byte):
        reader = opened(room[start : start + len(stream)], "stream", ensure_alignment=alignment)
        read = list(reader)
        assert pa.Table.from_batches([batch.to_arrow() for batch in read], table.schema).equals(table)
        if alignment is ipc.Alignment.At64Byte:
            assert all(
                buffer is None or buffer.address % 64 == 0 for batch in read for buffer in batch.buffers
            )


def test_only_what_must_lie_elsewhere_is_copied() -> None:
    """At an odd address, bytes and bitmaps stay where they are, and numbers are copied."""
    table = pa.table({"number": pa.array([1, None]), "bytes": pa.array([b"ab", b"c"], pa.large_binary())})
    stream = np.frombuffer(b"!" + by_bowstring(table, kind="stream"), np.uint8)[1:]
    assert stream.ctypes.data % 2
    batch = ipc.open_stream(stream).read_next_batch()
    end = stream.ctypes.data + len(stream)
    stays = [buffer is not None and stream.ctypes.data <= buffer.address < end for buffer in batch.buffers]
    assert stays == [True, False, False, False, True]
    assert all(buffer is None or buffer.address % 8 == 0 for buffer in batch.buffers[1:4])


def _as_pyarrow(options: ipc.IpcWriteOptions) -> pa.ipc.IpcWriteOptions:
    return pa.ipc.IpcWriteOptions(
        metadata_version=pa.ipc.MetadataVersion(options.metadata_version),
        use_legacy_format=options.use_legacy_format,
    )


@pytest.mark.parametrize("is_legacy", [False, True])
@pytest.mark.parametrize("version", [ipc.MetadataVersion.V4, ipc.MetadataVersion.V5])
def test_versions_and_framing_are_as_asked_for(version: ipc.MetadataVersion, is_legacy: bool) -> None:
    """Every message says its version, and is framed as asked for, with options of ours and of pyarrow's."""
    ours = ipc.IpcWriteOptions(metadata_version=version, use_legacy_format=is_legacy)
    for options in (ours, _as_pyarrow(ours)):
        for new, kind in ((ipc.new_stream, "stream"), (ipc.new_file, "file")):
            sink = io.BytesIO()
            with new(sink, SAMPLE.schema, options=options) as writer:
                writer.write(SAMPLE)
            data = sink.getvalue()
            stream = data[8:] if kind == "file" else data
            found = list(pa.ipc.MessageReader.open_stream(stream))
            assert [message.metadata_version for message in found] == [version] * 3
            assert (stream[:4] == b"\xff\xff\xff\xff") is not is_legacy
            assert opened(data, kind).read_all().equals(SAMPLE)
            assert opened(data, kind, pa.ipc).read_all().equals(SAMPLE)


@given(batches=strategies.tables())
def test_version_4_has_the_buffers_that_pyarrow_writes(batches: list[pa.RecordBatch]) -> None:
    """In metadata of version 4, every batch of ours has as many buffers and nodes as one of pyarrow's."""
    for version in (ipc.MetadataVersion.V4, ipc.MetadataVersion.V5):
        counts = []
        for write in (by_bowstring, by_pyarrow):
            stream = write(batches[:1], kind="stream", metadata_version=version)
            *_, last = ipc.MessageReader.open_stream(stream)
            header = record_batch_of(bytes(last.metadata))
            assert header is not None
            # Nodes, buffers, and how many buffers each column of views has.
            counts.append([header.vector(field)[1] for field in (1, 2, 4)])
        assert counts[0] == counts[1]


def test_options_that_are_none_are_refused() -> None:
    """Options of another kind, and values that an option cannot have, are refused by name."""
    opens: list[Any] = [ipc.open_stream, ipc.open_file]
    for open_ in opens:
        with pytest.raises(UsageError, match="IpcReadOptions"):
            open_(by_pyarrow(SAMPLE, kind="stream" if open_ is ipc.open_stream else "file"), options="fast")
    for new in (ipc.new_stream, ipc.new_file):
        with pytest.raises(UsageError, match="IpcWriteOptions"):
            new(io.BytesIO(), SAMPLE.schema, options=ipc.IpcReadOptions())
    versions: list[Any] = [pa.ipc.MetadataVersion.V3, 5, "V5"]
    for version in versions:
        with pytest.raises(Unsupported, match="metadata version"):
            ipc.IpcWriteOptions(metadata_version=version)
    for codec in ("snappy", pa.Codec("gzip"), 3):
        with pytest.raises(UsageError, match="compression"):
            ipc.IpcWriteOptions(compression=codec)
    for alignment in (7, "Any"):
        with pytest.raises(UsageError, match="alignment"):
            ipc.IpcReadOptions(ensure_alignment=alignment)


def test_codecs_are_named_in_any_case() -> None:
    """As for pyarrow, the name of a codec may be written in capitals."""
    for name in ("lz4", "ZSTD"):
        found = ipc.IpcWriteOptions(compression=name).compression
        assert found == pa.ipc.IpcWriteOptions(compression=name).compression == name.lower()


def test_a_sink_is_not_opened_for_options_that_are_refused(tmp_path: Path) -> None:
    """A path stays as it was where the writer could not be made."""
    path = tmp_path / "kept"
    path.write_bytes(b"kept")
    with pytest.raises(UsageError):
        ipc.new_file(path, SAMPLE.schema, options="fast")
    assert path.read_bytes() == b"kept"


def test_columns_of_more_than_31_bits_are_written_only_when_asked_for() -> None:
    """A column without bytes may be as long as it likes; writing it needs the option, as in pyarrow."""
    layout = Layout.of(pa.schema({"a": pa.null()}))
    batch = make_batch(Batch, layout, 1 << 31, np.array([[1 << 31, 1 << 31]]))
    for kind in KINDS:
        with pytest.raises(UsageError, match="allow_64bit"):
            by_bowstring([batch], kind=kind)
        with pytest.raises(pa.ArrowException):
            by_pyarrow([batch.to_arrow()], kind=kind)
        data = by_bowstring([batch], kind=kind, allow_64bit=True)
        assert opened(data, kind).read_all().num_rows == 1 << 31
        assert opened(data, kind, pa.ipc).read_all().num_rows == 1 << 31


def test_unified_dictionaries() -> None:
    """``write_table`` of a file gives all chunks one dictionary where asked for; a stream ignores that."""
    chunks = [pa.array(words).dictionary_encode() for words in (["a", "b"], ["c", "a"], ["b"])]
    table = pa.table({"d": pa.chunked_array(chunks)})
    for write in (by_bowstring, by_pyarrow):
        file = write(table, unify_dictionaries=True)
        for module in (ipc, pa.ipc):
            assert module.open_file(file).read_all()["d"].to_pylist() == table["d"].to_pylist()
        stream = write(table, kind="stream", unify_dictionaries=True)
        assert len(messages(stream)) == 7


def test_defaults_are_those_of_pyarrow() -> None:
    """Options that nobody set have pyarrow's values."""
    for ours, theirs in (
        (ipc.IpcReadOptions(), pa.ipc.IpcReadOptions()),
        (ipc.IpcWriteOptions(), pa.ipc.IpcWriteOptions()),
    ):
        assert type(ours).of(theirs) == ours
        assert type(ours).of(None) == type(ours).of(ours) == ours
