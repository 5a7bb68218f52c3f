"""Big-endian data: turned round where they are, value by value what pyarrow makes of them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from bowstring import ipc
from bowstring.columnar.layout import Layout
from bowstring.columnar.spans import buffer_of
from bowstring.errors import BowstringError, InvalidBody, InvalidMetadata, Unsupported
from bowstring.ipc.body.pack import unpack
from bowstring.ipc.compression.codec import all_compressed
from bowstring.ipc.flatbuf.message import RecordBatchHeader, decode_message, decode_record_batch
from bowstring.memory import wrap
from bowstring.testing import fake_device
from tests import strategies
from tests.ipc.big_endian import big_endian_file, big_endian_stream
from tests.ipc.files import by_pyarrow


@given(batches=strategies.tables())
def test_big_endian_streams_read_equal_to_pyarrow(batches: list[pa.RecordBatch]) -> None:
    """Streams of any type, dictionaries and views too, are read as the values that were written."""
    table = pa.Table.from_batches(batches)
    stream = big_endian_stream(by_pyarrow(table, kind="stream"))
    found = ipc.open_stream(stream).read_all()
    found.validate(full=True)
    assert found.equals(table, check_metadata=True)
    with contextlib.suppress(pa.ArrowNotImplementedError):  # pyarrow does not turn round views
        assert found.equals(pa.ipc.open_stream(stream).read_all())


@pytest.mark.parametrize("suffix", ["stream", "arrow_file"])
def test_golden_big_endian_data_read_equal_to_pyarrow(arrow_test_data: Path, suffix: str) -> None:
    """Arrow's own big-endian streams and files are read value by value as pyarrow reads them."""
    folder = arrow_test_data / "arrow-ipc-stream" / "integration" / "1.0.0-bigendian"
    paths = sorted(folder.glob(f"*.{suffix}"))
    if not paths:
        pytest.skip(f"no golden files: {folder} holds none")
    name = "open_stream" if suffix == "stream" else "open_file"
    for path in paths:
        expected = getattr(pa.ipc, name)(path).read_all()
        found = getattr(ipc, name)(path).read_all()
        found.validate()  # in full they are not valid: some dates are no whole days
        assert found.equals(expected, check_metadata=True), path.name


@pytest.mark.parametrize("folder", ["1.0.0-littleendian", "cpp-21.0.0"])
def test_golden_data_turned_round_read_equal_to_what_they_were(arrow_test_data: Path, folder: str) -> None:
    """Golden streams and files, made big-endian, are read as their little-endian originals; by pyarrow, too."""
    for path in sorted((arrow_test_data / "arrow-ipc-stream" / "integration" / folder).glob("*.stream")):
        expected = pa.ipc.open_stream(path).read_all()
        stream = big_endian_stream(path.read_bytes())
        file = big_endian_file(path.with_suffix(".arrow_file").read_bytes())
        for found in (ipc.open_stream(stream).read_all(), ipc.open_file(file).read_all()):
            found.validate()
            assert found.equals(expected, check_metadata=True), path.name
        with contextlib.suppress(pa.ArrowNotImplementedError):  # pyarrow does not turn round views and runs
            assert pa.ipc.open_stream(stream).read_all().equals(expected), path.name
            assert pa.ipc.open_file(file).read_all().equals(expected), path.name


TABLE = pa.table(
    {
        "number": pa.array([1, None, 1 << 40], pa.int64()),
        "small": pa.array([1, 256, -2], pa.int16()),
        "text": ["x", None, "yz"],
        "view": pa.array(["x" * 20, "y", None], pa.string_view()),
        "decimal": pa.array([1, -2, 1 << 20], pa.decimal128(30)),
        "interval": pa.array([(1, 2, 3), None, (-1, -2, -3)], pa.month_day_nano_interval()),
        "tags": [["a"], None, ["b", "c"]],
    }
)


STREAM = big_endian_stream(by_pyarrow(TABLE, kind="stream"))


def _one_batch() -> tuple[RecordBatchHeader, bytes]:
    _, message = pa.ipc.MessageReader.open_stream(STREAM)
    return decode_record_batch(decode_message(message.metadata)), message.body.to_pybytes()


def test_the_streams_of_these_tests_are_big_endian_for_pyarrow() -> None:
    """What pyarrow can turn round of the streams made here, it reads as the values that were written."""
    table = TABLE.drop_columns(["view"])
    stream = big_endian_stream(by_pyarrow(table, kind="stream"))
    assert pa.ipc.open_stream(stream).read_all().equals(table)
    assert ipc.open_stream(stream).read_all().equals(table)


def test_single_big_endian_messages_are_turned_round() -> None:
    """A schema that was read from its message knows the byte order of the batches and dictionaries behind it."""
    table = TABLE.append_column("word", TABLE["text"].dictionary_encode())
    stream = big_endian_stream(by_pyarrow(table, kind="stream"))
    first, dictionary, batch = ipc.MessageReader.open_stream(stream)
    memo = ipc.DictionaryMemo()
    schema = ipc.read_schema(first, memo)
    ipc.read_dictionary(dictionary, memo)
    assert ipc.read_record_batch(batch, schema, memo).to_arrow().equals(table.to_batches()[0])
    first, batch = ipc.MessageReader.open_stream(STREAM)
    assert ipc.read_record_batch(batch, ipc.read_schema(first)).to_arrow().equals(TABLE.to_batches()[0])


def test_big_endian_bodies_on_a_device_are_turned_round_there() -> None:
    """The bodies are swapped by a kernel of the device; the host reads offsets only."""
    pytest.importorskip("numba")
    header, body = _one_batch()
    device = fake_device()
    on_device = buffer_of(device.from_host(np.frombuffer(body, np.uint8)), device)
    device.stats.reset()
    batch = unpack(header, Layout.of(TABLE.schema), on_device, is_big_endian=True)
    assert batch.device is device
    assert device.stats.launches >= 8
    assert device.stats.host_read_bytes < 100
    assert batch.to_device("cpu").to_arrow().equals(TABLE.to_batches()[0])


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_big_endian_bodies_are_read(codec: str) -> None:
    """The length before a compressed buffer is little-endian, whatever is in it."""
    header, body = _one_batch()
    places, whole = [], b""
    for offset, length in header.buffers.tolist():
        data = body[offset : offset + length]
        piece = b"".join(map(bytes, all_compressed([data], pa.Codec(codec))[0])) if data else b""
        places.append((len(whole), len(piece)))
        whole += piece + bytes(-len(piece) % 8)
    changed = header._replace(buffers=np.array(places), compression=codec)
    batch = unpack(changed, Layout.of(TABLE.schema), wrap(whole), is_big_endian=True)
    assert batch.to_arrow().equals(TABLE.to_batches()[0])


def test_offsets_are_checked_once_they_are_turned_round() -> None:
    """Offsets that are wrong in the order of their writer are refused, and those that are right are not."""
    layout = Layout.of(pa.schema({"a": pa.string()}))
    for offsets, is_right in (
        ([0, 2, 4], True),
        ([0, 2, 5], False),
        ([0, 1 << 24, 4], True),
        ([3, 2, 1], False),
    ):
        body = np.array(offsets, ">i4").tobytes() + bytes(4) + b"abcd"
        header = RecordBatchHeader(2, np.array([[2, 0]]), np.array([[0, 0], [0, 12], [16, 4]]))
        if is_right:
            assert unpack(header, layout, wrap(body), is_big_endian=True).num_rows == 2
        else:
            with pytest.raises(InvalidBody):
                unpack(header, layout, wrap(body), is_big_endian=True)


def test_overlapping_buffers_are_not_turned_round_without_bound() -> None:
    """A body whose buffers all span it is refused: each would be copied."""
    count = 100
    layout = Layout.of(pa.schema({str(index): pa.int64() for index in range(count)}))
    header = RecordBatchHeader(1000, np.array([[1000, 0]] * count), np.array([[0, 0], [0, 8000]] * count))
    with pytest.raises(InvalidMetadata, match="overlap"):
        unpack(header, layout, wrap(bytes(8000)), is_big_endian=True)
    in_a_file = wrap(bytes(8000 * count)).slice(0, 8000)
    with pytest.raises(InvalidMetadata, match="overlap"):
        unpack(header, layout, in_a_file, is_big_endian=True)


def test_data_are_not_left_in_a_foreign_order() -> None:
    """A reader that asks for them as they are is refused: a batch in another byte order would mean nothing."""
    options = ipc.IpcReadOptions(ensure_native_endian=False)
    with pytest.raises(Unsupported, match="byte order"):
        ipc.open_stream(STREAM, options=options)


def test_changed_bytes_of_big_endian_streams() -> None:
    """Each byte of a big-endian stream, flipped: one of our errors, or a table, never anything else."""
    read = 0
    for position in range(len(STREAM)):
        damaged = bytearray(STREAM)
        damaged[position] ^= 0xFF
        try:
            for batch in ipc.open_stream(bytes(damaged)):
                batch.validate(full=True)
            read += 1
        except BowstringError:
            pass
    assert 0 < read < len(STREAM)
