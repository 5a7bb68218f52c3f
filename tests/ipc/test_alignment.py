"""Bodies at any address: what cannot be read there is copied, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.ipc import Alignment

from bowstring import ipc
from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import batch_parts, make_batch
from bowstring.columnar.spans import buffer_of
from bowstring.errors import InvalidMetadata
from bowstring.ipc.body.pack import aligned, needed_alignment, unpack
from bowstring.ipc.flatbuf.message import RecordBatchHeader, decode_message, decode_record_batch
from bowstring.memory import Buffer, wrap
from bowstring.testing import fake_device
from tests import strategies

CODECS = (None, "lz4", "zstd")
TABLE = pa.table(
    {
        "number": pa.array([1, None, 3], pa.int64()),
        "small": pa.array([1, 2, 3], pa.int16()),
        "byte": pa.array([1, 2, 3], pa.int8()),
        "text": ["x", None, "yz"],
        "fixed": pa.array([b"abcd", b"efgh", None], pa.binary(4)),
        "decimal": pa.array([1, 2, 3], pa.decimal128(5)),
        "flag": [True, None, False],
    }
)


def stream_of(table: pa.Table, compression: str | None = None) -> bytes:
    """Return a table as a stream of pyarrow's."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def shifted(data: bytes, shift: int) -> memoryview:
    """Return the same bytes `shift` behind a multiple of 64."""
    room = np.zeros(len(data) + 128, np.uint8)
    start = -room.ctypes.data % 64 + shift
    room[start : start + len(data)] = np.frombuffer(data, np.uint8)
    return memoryview(room)[start : start + len(data)]  # type: ignore[arg-type]  # NumPy's arrays are buffers


def is_inside(buffer: Buffer, source: memoryview) -> bool:
    """Whether a buffer lies in some memory."""
    start = np.frombuffer(source, np.uint8).ctypes.data
    return start <= buffer.address < start + len(source)


@given(batches=strategies.tables(), shift=st.integers(0, 63), codec=st.sampled_from(CODECS))
def test_streams_at_any_address_read_equal(
    batches: list[pa.RecordBatch], shift: int, codec: str | None
) -> None:
    """Streams of any type at any address are read as the same values, and every buffer can be read in place."""
    table = pa.Table.from_batches(batches)
    found = list(ipc.open_stream(shifted(stream_of(table, codec), shift)))
    assert pa.Table.from_batches([batch.to_arrow() for batch in found], schema=table.schema).equals(table)
    for batch in found:
        for part in (batch, *(each.values for each in batch.dictionaries.values())):
            needed = needed_alignment(part.layout, batch_parts(part).variadic_counts)
            assert not (batch_parts(part).spans.addresses() % needed).any()


@pytest.mark.parametrize("shift", [1, 2, 3, 4, 7])
def test_only_what_cannot_be_read_is_copied(shift: int) -> None:
    """Bitmaps, bytes and fixed-size binary stay where they are; numbers do where they can be read."""
    source = shifted(stream_of(TABLE), shift)
    batch = ipc.open_stream(source).read_next_batch()
    needed = needed_alignment(batch.layout)
    for buffer, multiple in zip(batch.buffers, needed.tolist(), strict=True):
        if buffer is not None:
            assert is_inside(buffer, source) == (shift % multiple == 0)


def test_what_lies_well_is_not_copied() -> None:
    """A body at a multiple of 8 bytes is used where it is."""
    source = shifted(stream_of(TABLE), 8)
    batch = ipc.open_stream(source).read_next_batch()
    assert all(is_inside(buffer, source) for buffer in batch.buffers if buffer is not None)


def test_at_64_bytes_everything_is_placed_so() -> None:
    """The option copies each buffer that does not lie at a multiple of 64 bytes, dictionaries too."""
    table = TABLE.append_column("word", pa.array(["a", "b", "a"]).dictionary_encode())
    options = ipc.IpcReadOptions(ensure_alignment=Alignment.At64Byte)
    for shift in (0, 8, 33):
        batch = ipc.open_stream(shifted(stream_of(table), shift), options=options).read_next_batch()
        for part in (batch, *(each.values for each in batch.dictionaries.values())):
            assert not (batch_parts(part).spans.addresses() % 64).any()
        assert batch.to_arrow().equals(table.to_batches()[0])


def test_elements_are_read_at_multiples_of_their_width() -> None:
    """Numbers need their own width, or 8 bytes where they are wider; the rest needs nothing."""
    types = {
        pa.int8(): 1,
        pa.bool_(): 1,
        pa.float16(): 2,
        pa.date32(): 4,
        pa.timestamp("us"): 8,
        pa.decimal256(5): 8,
        pa.month_day_nano_interval(): 8,
        pa.binary(8): 1,
        pa.string_view(): 8,
    }
    for type_, needed in types.items():
        assert needed_alignment(Layout.of(pa.schema({"a": type_}))).tolist() == [1, needed]
    assert needed_alignment(Layout.of(pa.schema({"a": pa.large_list_view(pa.int8())}))).tolist() == [
        1,
        8,
        8,
        1,
        1,
    ]
    assert needed_alignment(Layout.of(pa.schema({"a": pa.string_view()})), (2,)).tolist() == [1, 8, 1, 1]


def test_buffers_on_a_device_are_put_right_there() -> None:
    """A misaligned batch of a device is copied on the device."""
    device = fake_device()
    room = device.from_host(np.frombuffer(bytes(4) + np.arange(3, dtype=np.int64).tobytes(), np.uint8))
    odd = buffer_of(room, device).slice(4, 24)
    layout = Layout.of(pa.schema({"a": pa.int64()}))
    batch = make_batch(Batch, layout, 3, np.array([[3, 0]]), [None, odd])
    device.stats.reset()
    moved = aligned(batch)
    assert moved.device is device
    assert device.stats.host_reads == 0
    assert not (batch_parts(moved).spans.addresses() % 64).any()
    assert moved.to_device("cpu")["a"].values.tolist() == [0, 1, 2]


def test_overlapping_buffers_are_not_copied_without_bound() -> None:
    """A body whose buffers all span it is refused where they would have to be copied."""
    count = 100
    layout = Layout.of(pa.schema({str(index): pa.int64() for index in range(count)}))
    buffers = np.array([[0, 0], [0, 80_000]] * count)
    header = RecordBatchHeader(10_000, np.array([[10_000, 0]] * count), buffers)
    assert unpack(header, layout, wrap(shifted(bytes(80_000), 0))).num_rows == 10_000
    with pytest.raises(InvalidMetadata, match="overlap"):
        unpack(header, layout, wrap(shifted(bytes(80_000), 1)))


@pytest.mark.parametrize("shift", [0, 1, 5])
def test_single_messages_at_any_address(shift: int) -> None:
    """A body that came by itself, as from gRPC, is read wherever it lies."""
    record_batch: Any = TABLE.combine_chunks().to_batches()[0]
    message = pa.ipc.read_message(record_batch.serialize())
    header = decode_record_batch(decode_message(message.metadata))
    body = wrap(shifted(message.body.to_pybytes(), shift))
    assert unpack(header, Layout.of(TABLE.schema), body).to_arrow().equals(record_batch)
