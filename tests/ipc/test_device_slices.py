"""Slices of batches on a device are written as what they are: offsets from 0, bitmaps from bit 0, nulls counted."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import ipc
from bowstring.columnar import Batch
from bowstring.memory import Device, cpu
from bowstring.testing import fake_device
from tests.arrays import array_of
from tests.strategies import LEAF_TYPES, record_batches


@pytest.fixture(scope="session", params=["cpu", "fake"])
def device(request: pytest.FixtureRequest) -> Device:
    """Return the host, then the fake device."""
    return cpu() if request.param == "cpu" else fake_device()


def streamed(*batches: Batch, compression: str | None = None) -> pa.Table:
    """Write batches as a stream, and return what pyarrow reads of it, checked."""
    sink = io.BytesIO()
    options = ipc.IpcWriteOptions(compression=compression)
    with ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    table = pa.ipc.open_stream(sink.getvalue()).read_all()
    table.validate(full=True)
    return table


@given(source=record_batches(min_columns=1), start=st.integers(0, 40), rows=st.integers(0, 40))
def test_slices_are_written_as_they_are(
    device: Device, source: pa.RecordBatch, start: int, rows: int
) -> None:
    """A slice of any batch, at any row, is read by pyarrow as the same rows."""
    batch = Batch.from_arrow(source).to_device(device).slice(start, rows)
    assert streamed(batch).equals(pa.table(source.slice(start, rows)))


@pytest.mark.parametrize("start", [1, 7, 8, 13, 64, 65])
def test_slices_of_flat_columns(device: Device, start: int) -> None:
    """Bitmaps are shifted and offsets rebased wherever the slice begins within a byte, and within a word."""
    rng = np.random.default_rng(start)
    columns = {f"c{i}": array_of(type_, 300, rng) for i, type_ in enumerate(LEAF_TYPES)}
    source = pa.record_batch(columns)
    batch = Batch.from_arrow(source).to_device(device)
    parts = [batch.slice(start, 150), batch.slice(start).slice(start), batch.slice(300 - start)]
    expected = [source.slice(start, 150), source.slice(2 * start), source.slice(300 - start)]
    assert streamed(*parts).equals(pa.Table.from_batches(expected))


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_slices(device: Device, codec: str) -> None:
    """What does not become smaller is stored as it is, also where it was made for the slice only."""
    source = pa.record_batch({"text": [f"{i:x}" for i in range(60)], "flag": [i % 3 != 1 for i in range(60)]})
    batch = Batch.from_arrow(source).to_device(device)
    for start in range(1, 50):
        found = streamed(batch.slice(start, 3), compression=codec)
        assert found.equals(pa.table(source.slice(start, 3)))


def test_a_slice_is_written_without_what_it_left_out(device: Device) -> None:
    """Ten rows of a long column take the room of ten rows."""
    text = pa.array([f"row {i:06}" for i in range(10_000)])
    batch = Batch.from_arrow({"t": text, "l": pa.array([[i] for i in range(10_000)])}).to_device(device)
    sink = io.BytesIO()
    with ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch.slice(5_000, 10))
    assert len(sink.getvalue()) < 2_000
