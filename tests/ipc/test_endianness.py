"""Big-endian data: turned round where they are, value by value what pyarrow makes of them."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from bowstring import ipc
from bowstring.columnar.layout import Kind, Layout
from bowstring.columnar.spans import buffer_of
from bowstring.errors import BowstringError, InvalidBody, InvalidMetadata, Unsupported
from bowstring.ipc.compression import codec_of, compressed
from bowstring.ipc.framing import end_of_stream, frame
from bowstring.ipc.metadata import (
    MessageKind,
    RecordBatchHeader,
    decode_dictionary,
    decode_message,
    decode_record_batch,
)
from bowstring.ipc.packing import unpack
from bowstring.memory import wrap
from bowstring.testing import fake_device, strategies

INTERVAL_DAY_TIME = 22


def big_endian_schema(metadata: bytes) -> bytes:
    """Return a schema message that says Big: with another vtable behind it, and the 1 that this one names."""
    table = decode_message(metadata).header
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    size = struct.unpack_from("<H", metadata, vtable)[0]
    changed = bytearray(metadata + bytes(-len(metadata) % 8))
    one_at = len(changed)
    changed += struct.pack("<H6x", 1)
    struct.pack_into("<i", changed, table, table - len(changed))
    changed += (
        struct.pack("<HHH", size, one_at + 2 - table, one_at - table) + metadata[vtable + 6 : vtable + size]
    )
    return bytes(changed)


def turned(data: bytes, type_: pa.DataType, kind: Kind, width: int) -> bytes:
    """Return a little-endian buffer as a big-endian machine has it; all our own elements, one after the other."""
    parts: tuple[int, ...] = (width,)
    if kind in (Kind.VALIDITY, Kind.BITS, Kind.BYTES, Kind.TYPE_IDS):
        return data
    if kind is Kind.VIEWS:
        views = [data[at : at + 16] for at in range(0, len(data) - 15, 16)]
        short = [view[3::-1] + view[4:] for view in views]
        long = [view[3::-1] + view[4:8] + view[11:7:-1] + view[:11:-1] for view in views]
        is_short = [int.from_bytes(view[:4], "little") <= 12 for view in views]
        return b"".join(
            each[0] if first else each[1]
            for each, first in zip(zip(short, long, strict=True), is_short, strict=True)
        )
    if kind is Kind.DATA:
        if type_.id == pa.lib.Type_FIXED_SIZE_BINARY:
            return data
        if type_.id == INTERVAL_DAY_TIME:
            parts = 4, 4
        elif type_.id == pa.lib.Type_INTERVAL_MONTH_DAY_NANO:
            parts = 4, 4, 8
    result, at = b"", 0
    while at + sum(parts) <= len(data):
        for part in parts:
            result += data[at : at + part][::-1]
            at += part
    return result + data[at:]


def big_endian_body(header: RecordBatchHeader, layout: Layout, body: bytes) -> bytes:
    """Return a body as a big-endian machine writes it."""
    changed = bytearray(body)
    rows = layout.fixed_buffers(header.variadic_counts).tolist()
    for position, row in enumerate(rows):
        offset, length = header.buffers[row].tolist()
        kind = Kind(layout.buffer_kinds[position])
        node = layout.nodes[layout.buffer_nodes[position]]
        width = node.width if kind is Kind.DATA else kind.bits >> 3
        changed[offset : offset + length] = turned(body[offset : offset + length], node.type, kind, width)
    return bytes(changed)


def big_endian_stream(table: pa.Table) -> bytes:
    """Return a table as a big-endian machine's stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    layout = Layout.of(table.schema)
    pieces = []
    for each in pa.ipc.MessageReader.open_stream(sink.getvalue()):
        metadata = each.metadata.to_pybytes()
        message = decode_message(metadata)
        if message.kind is MessageKind.SCHEMA:
            pieces.append(frame(big_endian_schema(metadata), alignment=8))
            continue
        if message.kind is MessageKind.DICTIONARY_BATCH:
            id_, _, header = decode_dictionary(message)
            body = big_endian_body(header, layout.dictionaries[id_], each.body.to_pybytes())
        else:
            body = big_endian_body(decode_record_batch(message), layout, each.body.to_pybytes())
        pieces += [frame(metadata, alignment=8), body]
    return b"".join((*pieces, end_of_stream()))


@given(batches=strategies.tables())
def test_big_endian_streams_read_equal_to_pyarrow(batches: list[pa.RecordBatch]) -> None:
    """Streams of any type, dictionaries and views too, are read as the values that were written."""
    table = pa.Table.from_batches(batches)
    stream = big_endian_stream(table)
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
        found.validate(full=True)
        assert found.equals(expected, check_metadata=True), path.name


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


def _one_batch() -> tuple[RecordBatchHeader, bytes]:
    messages = pa.ipc.MessageReader.open_stream(big_endian_stream(TABLE))
    messages.read_next_message()
    message = messages.read_next_message()
    return decode_record_batch(decode_message(message.metadata)), message.body.to_pybytes()


def test_the_streams_of_these_tests_are_big_endian_for_pyarrow() -> None:
    """What pyarrow can turn round of the streams made here, it reads as the values that were written."""
    table = TABLE.drop_columns(["view"])
    assert pa.ipc.open_stream(big_endian_stream(table)).read_all().equals(table)
    assert ipc.open_stream(big_endian_stream(table)).read_all().equals(table)


def test_big_endian_bodies_on_a_device_are_turned_round_there() -> None:
    """The bodies are swapped by a kernel of the device; the host reads offsets only."""
    pytest.importorskip("numba")
    header, body = _one_batch()
    device = fake_device()
    on_device = buffer_of(device.from_host(np.frombuffer(body, np.uint8)), device)
    device.statistics.reset()
    batch = unpack(header, Layout.of(TABLE.schema), on_device, is_big_endian=True)
    assert batch.device is device
    assert device.statistics.launches >= 8
    assert device.statistics.host_read_bytes < 100
    assert batch.to_device("cpu").to_arrow().equals(TABLE.to_batches()[0])


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_big_endian_bodies_are_read(codec: str) -> None:
    """The length before a compressed buffer is little-endian, whatever is in it."""
    header, body = _one_batch()
    places, whole = [], b""
    for offset, length in header.buffers.tolist():
        data = body[offset : offset + length]
        piece = b"".join(map(bytes, compressed(data, codec_of(codec)))) if data else b""
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


def test_data_are_not_left_in_a_foreign_order() -> None:
    """A reader that asks for them as they are is refused: a batch in another byte order would mean nothing."""
    options = ipc.IpcReadOptions(ensure_native_endian=False)
    with pytest.raises(Unsupported, match="byte order"):
        ipc.open_stream(big_endian_stream(TABLE), options=options)


def test_changed_bytes_of_big_endian_streams() -> None:
    """Each byte of a big-endian stream, flipped: one of our errors, or a table, never anything else."""
    stream = big_endian_stream(TABLE)
    read = 0
    for position in range(len(stream)):
        damaged = bytearray(stream)
        damaged[position] ^= 0xFF
        try:
            for batch in ipc.open_stream(bytes(damaged)):
                batch.validate(full=True)
            read += 1
        except BowstringError:
            pass
    assert 0 < read < len(stream)
