"""Sinks may keep what they are given: pieces stay as they were written, whatever is written after them."""

from __future__ import annotations

import functools
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow

COMPRESSION = [None, "lz4", "zstd"]
MAKERS = [bow.ipc.new_stream, bow.ipc.new_file]


class KeepingSink(io.RawIOBase):
    """Keeps each piece as it was given, and a copy of what it held then."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[Any] = []
        self.joined = io.BytesIO()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.pieces.append(data)
        return self.joined.write(data)

    def is_as_given(self) -> bool:
        return b"".join(self.pieces) == self.joined.getvalue()


@functools.cache
def batch_of(rows: int, most: int, seed: int) -> pa.RecordBatch:
    """Return rows of noise, which codecs cannot make smaller, and of what they can."""
    rng = np.random.default_rng(seed)
    ends = np.concatenate([[0], np.cumsum(rng.integers(0, most + 1, rows))]).astype(np.int32)
    noise = pa.py_buffer(rng.bytes(int(ends[-1])))
    values = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), noise])
    flags = pa.array(rng.random(rows) < 0.5, mask=rng.random(rows) < 0.2)
    numbers = pa.array(rng.integers(0, 1 << 62, rows))
    lists = pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32), numbers)
    columns = {
        "noise": values, "flags": flags, "numbers": numbers, "lists": lists,
        "coins": pa.array(rng.random(rows) < 0.5),
        "text": pa.array([f"{row % 5}" for row in range(rows)]),
        "views": values.cast(pa.binary_view()),
        "words": flags.dictionary_encode(),
    }  # fmt: skip
    return pa.record_batch(columns)


def is_kept(make: Any, batches: list[pa.RecordBatch], starts: list[int], compression: str | None) -> bool:
    """Write slices to a sink that keeps them; they are read back, too."""
    sink = KeepingSink()
    options = bow.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=True)
    written = [bow.Batch.from_arrow(batch).slice(start) for batch, start in zip(batches, starts, strict=True)]
    with make(sink, batches[0].schema, options=options) as writer:
        for batch in written:
            writer.write_batch(batch)
    data = sink.joined.getvalue()
    read = bow.ipc.open_file(data) if make is bow.ipc.new_file else bow.ipc.open_stream(data)
    assert read.read_all().equals(pa.Table.from_batches([batch.to_arrow() for batch in written]))
    return sink.is_as_given()


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("compression", COMPRESSION)
@settings(max_examples=25)
@given(data=st.data())
def test_pieces_stay_as_they_were_given(make: Any, compression: str | None, data: st.DataObject) -> None:
    """Batches of any columns and sizes, sliced anywhere."""
    names = data.draw(st.sets(st.sampled_from(sorted(batch_of(1, 1, 0).schema.names)), min_size=1))
    if make is bow.ipc.new_file:
        names -= {"words"}  # dictionaries of files only grow
    rows = data.draw(st.lists(st.sampled_from([1, 9, 500, 60_000]), min_size=2, max_size=4))
    batches = [batch_of(each, 40, seed).select(sorted(names or {"noise"})) for seed, each in enumerate(rows)]
    starts = [data.draw(st.integers(0, min(each, 9))) for each in rows]
    assert is_kept(make, batches, starts, compression)


@pytest.mark.parametrize("compression", COMPRESSION)
@pytest.mark.parametrize(("rows", "most"), [(40_000, 250), (12, 1 << 20)])
def test_pieces_of_large_bodies_stay_as_they_were_given(
    rows: int, most: int, compression: str | None
) -> None:
    """Bodies that go out in pieces, with offsets that were made for the slice and no codec makes smaller."""
    batches = [batch_of(rows, most, seed).select(["noise", "coins"]) for seed in range(3)]
    assert is_kept(bow.ipc.new_stream, batches, [1, 3, 9], compression)
