"""Compressed bodies: read and written as pyarrow does, on the host and for devices."""

from __future__ import annotations

import gc
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
from bowstring.columnar.spans import buffer_of
from bowstring.errors import InvalidBody, UsageError
from bowstring.ipc.body.pack import pack, unpack
from bowstring.ipc.flatbuf.message import RecordBatchHeader, decode_message, decode_record_batch
from bowstring.ipc.flatbuf.schema import encode_schema
from bowstring.ipc.flatbuf.template import Template
from bowstring.ipc.framing import frame
from bowstring.memory import wrap
from bowstring.testing import fake_device
from tests import strategies

CODECS = ("lz4", "zstd")
TABLE = pa.table(
    {
        "number": pa.array(np.arange(3000)),
        "noise": pa.array(np.random.default_rng(1).integers(0, 1 << 62, 3000)),
        "text": [str(row % 7) * (row % 5) for row in range(3000)],
        "flag": pa.array([None, True, False] * 1000),
        "view": pa.array([str(row) * 5 for row in range(3000)], pa.string_view()),
        "tags": [["a", None] * (row % 3) for row in range(3000)],
        "word": pa.array([str(row % 9) for row in range(3000)]).dictionary_encode(),
        "nothing": pa.nulls(3000),
    }
)


def written_by_pyarrow(table: pa.Table, compression: Any, **options: Any) -> bytes:
    """Return a table as a compressed stream of pyarrow's."""
    sink = pa.BufferOutputStream()
    chosen = pa.ipc.IpcWriteOptions(compression=compression, **options)
    with pa.ipc.new_stream(sink, table.schema, options=chosen) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def written_by_bowstring(table: pa.Table, compression: Any, **options: Any) -> bytes:
    """Return a table as a compressed stream of ours."""
    sink = io.BytesIO()
    chosen = ipc.IpcWriteOptions(compression=compression, **options)
    with ipc.new_stream(sink, table.schema, options=chosen) as writer:
        writer.write(table)
    return sink.getvalue()


def record_batch_of(stream: bytes) -> tuple[RecordBatchHeader, pa.Buffer]:
    """Return the header and the body of the first record batch of a stream."""
    for message in pa.ipc.MessageReader.open_stream(stream):
        if message.type == "record batch":
            return decode_record_batch(decode_message(message.metadata)), message.body
    raise AssertionError("no batch")


@given(batches=strategies.tables(), codec=st.sampled_from(CODECS), threads=st.booleans())
def test_compressed_streams_of_pyarrow_read_equal(
    batches: list[pa.RecordBatch], codec: str, threads: bool
) -> None:
    """What pyarrow compresses, of any type, is read as the same values, and valid in full."""
    table = pa.Table.from_batches(batches)
    stream = written_by_pyarrow(table, codec)
    options = ipc.IpcReadOptions(use_threads=threads)
    found = ipc.open_stream(stream, options=options).read_all()
    assert found.equals(pa.ipc.open_stream(stream).read_all(), check_metadata=True)
    found.validate(full=True)


@given(batches=strategies.tables(), codec=st.sampled_from(CODECS), threads=st.booleans())
def test_compressed_streams_of_ours_read_equal(
    batches: list[pa.RecordBatch], codec: str, threads: bool
) -> None:
    """What we compress, of any type and from sliced chunks, is read by pyarrow and by us as the same values."""
    table = pa.Table.from_batches(batches)
    stream = written_by_bowstring(table, codec, use_threads=threads)
    found = pa.ipc.open_stream(stream).read_all()
    assert found.equals(table, check_metadata=True)
    found.validate(full=True)
    assert ipc.open_stream(stream).read_all().equals(table, check_metadata=True)


@pytest.mark.parametrize("suffix", ["stream", "arrow_file"])
def test_golden_compressed_data_read_equal_to_pyarrow(arrow_test_data: Path, suffix: str) -> None:
    """Arrow's own compressed streams and files, uncompressible ones too, are read as pyarrow reads them."""
    folder = arrow_test_data / "arrow-ipc-stream" / "integration" / "2.0.0-compression"
    paths = sorted(folder.glob(f"*.{suffix}"))
    if not paths:
        pytest.skip(f"no golden files: {folder} holds none")
    name = "open_stream" if suffix == "stream" else "open_file"
    for path in paths:
        expected = getattr(pa.ipc, name)(path).read_all()
        assert getattr(ipc, name)(path).read_all().equals(expected, check_metadata=True), path.name


@pytest.mark.parametrize("codec", CODECS)
def test_the_framing_before_arrow_0_15_goes_with_compression(codec: str) -> None:
    """Messages with a prefix of 4 bytes are compressed, too, read and written."""
    ours = written_by_bowstring(TABLE, codec, use_legacy_format=True)
    assert pa.ipc.open_stream(ours).read_all().equals(TABLE)
    theirs = written_by_pyarrow(TABLE, codec, use_legacy_format=True)
    assert ipc.open_stream(theirs).read_all().equals(TABLE)


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_bodies_of_version_4_are_read(codec: str) -> None:
    """What pyarrow writes, although it reads it wrongly itself, is read; we write none."""
    theirs = written_by_pyarrow(TABLE, codec, metadata_version=pa.ipc.MetadataVersion.V4)
    assert ipc.open_stream(theirs).read_all().equals(TABLE)
    with pytest.raises(UsageError, match="V4"):
        written_by_bowstring(TABLE, codec, metadata_version=ipc.MetadataVersion.V4)


@pytest.mark.parametrize("codec", CODECS)
def test_the_codec_of_arrow_0_17_is_found_beside_the_header(codec: str) -> None:
    """Arrow 0.17 named the codec in the custom metadata of each message; pyarrow still reads that, and so do we."""
    batch = Batch.from_arrow(TABLE.select(["number", "text"]).combine_chunks())
    packed = pack(batch, pa.Codec(codec))
    parts = batch.num_rows, packed.nodes, packed.buffers, packed.body_length
    template = Template(batch.layout, ipc.MetadataVersion.V4)
    metadata = template.encode_batch(*parts, (), {"ARROW:experimental_compression": codec.upper()})
    schema = encode_schema(batch.schema, version=ipc.MetadataVersion.V4)
    stream = b"".join((frame(schema, alignment=8), frame(metadata, alignment=8), *packed.pieces))
    expected = pa.ipc.open_stream(stream).read_all()
    assert expected.equals(TABLE.select(["number", "text"]))
    assert ipc.open_stream(stream).read_all().equals(expected)


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_files_are_read_by_batch(codec: str) -> None:
    """Any batch of a compressed file, ours or pyarrow's, is read by itself."""
    for module, options in ((ipc, ipc.IpcWriteOptions), (pa.ipc, pa.ipc.IpcWriteOptions)):
        sink = io.BytesIO()
        with module.new_file(sink, TABLE.schema, options=options(compression=codec)) as writer:
            writer.write_table(TABLE, max_chunksize=1000)
        assert pa.ipc.open_file(sink.getvalue()).read_all().equals(TABLE)
        with ipc.open_file(sink.getvalue()) as reader:
            assert reader.get_batch(2).to_arrow().equals(TABLE.slice(2000).combine_chunks().to_batches()[0])


@pytest.mark.parametrize("codec", CODECS)
def test_what_does_not_shrink_is_stored(codec: str) -> None:
    """A buffer is a frame where that is smaller, and else itself behind the length -1."""
    header, body = record_batch_of(written_by_bowstring(TABLE.select(["number", "noise"]), codec))
    lengths = header.buffers[:, 1].tolist()
    prefixes = [
        int.from_bytes(body[offset : offset + 8].to_pybytes(), "little", signed=True) if length else None
        for offset, length in header.buffers.tolist()
    ]
    assert prefixes == [None, 24_000, None, -1]
    assert lengths[1] < 24_008
    assert lengths[3] == 24_008


@pytest.mark.parametrize("codec", CODECS)
def test_stored_buffers_are_not_copied(codec: str) -> None:
    """What the writer did not compress stays where it is in the source; frames go to memory of their own."""
    stream = pa.py_buffer(written_by_bowstring(TABLE.select(["number", "noise"]), codec))
    batch = ipc.open_stream(stream).read_next_batch()
    inside = [
        stream.address <= buffer.address < stream.address + stream.size
        for buffer in batch.buffers
        if buffer is not None
    ]
    assert inside == [False, True]


def test_decompressed_buffers_are_placed_at_64_bytes() -> None:
    """What was decompressed lies where any kernel can read it."""
    batch = ipc.open_stream(written_by_pyarrow(TABLE, "zstd")).read_next_batch()
    assert [buffer.address % 64 for buffer in batch.buffers if buffer is not None].count(0) >= 10
    assert not any(buffer.address % 64 for buffer in batch.buffers if buffer is not None)


def test_the_level_of_a_codec_is_used() -> None:
    """A codec object compresses at its own level."""
    fast, small = (written_by_bowstring(TABLE, pa.Codec("zstd", level)) for level in (1, 19))
    assert len(small) < len(fast)
    assert pa.ipc.open_stream(small).read_all().equals(TABLE)


def test_other_codecs_are_refused() -> None:
    """Bodies know LZ4 frames and ZSTD only."""
    with pytest.raises(UsageError, match="compression"):
        written_by_bowstring(TABLE, pa.Codec("gzip"))


@pytest.mark.parametrize("codec", CODECS)
def test_other_readers_read_what_we_compress(codec: str) -> None:
    """Our compressed streams are read by nanoarrow and arro3, of the types that they know."""
    arro3 = pytest.importorskip("arro3.io")
    nanoarrow = pytest.importorskip("nanoarrow.ipc")
    table = TABLE.select(["number", "noise", "text", "flag", "tags"])
    stream = written_by_bowstring(table, codec)
    assert pa.table(arro3.read_ipc_stream(io.BytesIO(stream))).equals(table)
    if codec == "zstd":  # nanoarrow's wheels have no LZ4
        with nanoarrow.InputStream.from_readable(stream) as readable:
            assert pa.RecordBatchReader.from_stream(readable).read_all().equals(table)


@pytest.mark.parametrize("codec", CODECS)
def test_columns_that_are_not_chosen_are_not_decompressed(codec: str) -> None:
    """A column that cannot be decompressed does not matter to those who read others."""
    stream = bytearray(written_by_bowstring(TABLE.select(["number", "text"]), codec))
    header, body = record_batch_of(bytes(stream))
    start = bytes(stream).index(body.to_pybytes()) + int(header.buffers[1, 0]) + 8
    stream[start : start + 16] = bytes(16)
    with pytest.raises(InvalidBody, match="number"):
        ipc.open_stream(bytes(stream)).read_all()
    options = ipc.IpcReadOptions(included_fields=[1])
    assert ipc.open_stream(bytes(stream), options=options).read_all().equals(TABLE.select(["text"]))


@pytest.mark.parametrize("codec", CODECS)
def test_bodies_on_a_device_are_decompressed_there_by_one_copy(codec: str) -> None:
    """The host decompresses for a device, and copies all buffers to it at once."""
    table = TABLE.drop_columns(["word"])
    header, body = record_batch_of(written_by_pyarrow(table, codec))
    device = fake_device()
    on_device = buffer_of(device.from_host(np.frombuffer(body, np.uint8)), device)
    device.stats.reset()
    batch = unpack(header, Layout.of(table.schema), on_device)
    assert batch.device is device
    assert device.stats.host_writes == 2  # the buffers, and which ends of text and lists to look at
    assert batch.to_device("cpu").to_arrow().equals(table.combine_chunks().to_batches()[0])


@pytest.mark.parametrize("codec", CODECS)
def test_batches_on_a_device_are_written_compressed(codec: str) -> None:
    """A batch of a device is compressed as one of the host is."""
    batch = ipc.open_stream(written_by_pyarrow(TABLE, None)).read_next_batch()
    on_host = pack(batch, pa.Codec(codec))
    on_device = pack(batch.to_device(fake_device()), pa.Codec(codec))
    assert b"".join(on_device.pieces) == b"".join(on_host.pieces)
    assert np.array_equal(on_device.buffers, on_host.buffers)
    assert on_device.body_length == len(b"".join(on_device.pieces))


@pytest.mark.parametrize("codec", CODECS)
def test_decompressed_data_outlive_their_stream(codec: str) -> None:
    """Values stay true when batch, reader and source are gone."""
    reader = ipc.open_stream(io.BytesIO(written_by_pyarrow(TABLE, codec)))
    values = reader.read_next_batch()["number"].values
    reader.close()
    del reader
    gc.collect()
    noise = [np.zeros(3000, np.int64) for _ in range(50)]
    assert np.array_equal(values, np.arange(3000))
    del noise


def test_empty_buffers_may_come_with_or_without_their_length() -> None:
    """Nothing at all is an empty buffer, and so are a length of 0, or of -1, with nothing behind it."""
    layout = Layout.of(pa.schema({"a": pa.binary()}))
    nodes = np.array([[0, 0]])
    for prefix in (b"", bytes(8), b"\xff" * 8):
        buffers = np.array([[0, 0], [0, 0], [0, len(prefix)]])
        header = RecordBatchHeader(0, nodes, buffers, (), "zstd")
        assert unpack(header, layout, wrap(prefix)).to_arrow().num_rows == 0
