"""A validity bitmap means nothing where the null count is 0: pyarrow does not look at it, and nor do we."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest

from bowstring.columnar import Batch
from bowstring.ipc import IpcReadOptions, open_stream, read_record_batch
from bowstring.memory import cpu
from bowstring.testing import fake_device
from tests.ipc.null_counts import stream_without_nulls, without_nulls

ROWS = 20
COUNT = 24


def _flat(seed: int) -> dict[str, Any]:
    return {
        "number": [None if row % 3 == seed % 3 else row for row in range(ROWS)],
        "text": [None if row % 4 == seed % 4 else f"text {row}" for row in range(ROWS)],
        "flag": [None if row % 5 else bool(row % 2) for row in range(ROWS)],
    }


def _nested(seed: int) -> dict[str, Any]:
    views = [None if row % 3 else f"a text longer than a view {row}" for row in range(ROWS)]
    pairs = [None if row % 3 else {"a": row, "b": None} for row in range(ROWS)]
    return {
        "view": pa.array(views, pa.string_view()),
        "list": [None if row % 3 else [row, None] for row in range(ROWS)],
        "pair": pa.array(pairs, pa.struct({"a": pa.int8(), "b": pa.int8()})),
        "nothing": pa.nulls(ROWS),
        "fixed": pa.array([None if row % 2 else [seed, None] for row in range(ROWS)], pa.list_(pa.int8(), 2)),
    }


def _dictionaries(seed: int) -> dict[str, Any]:
    indices = pa.array([None if row % 3 == seed % 3 else row % 2 for row in range(ROWS)], pa.int8())
    return {"words": pa.DictionaryArray.from_arrays(indices, pa.array(["a", None, "b"]))}


KINDS = {"flat": _flat, "nested": _nested, "dictionaries": _dictionaries}


def _stream(kind: str, codec: str | None, count: int) -> bytes:
    """Return a stream of `count` batches that have bitmaps and say that they have no nulls."""
    batches = [pa.record_batch(KINDS[kind](seed)) for seed in range(count)]
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return stream_without_nulls(sink.getvalue())


def _same(batch: Batch, expected: pa.RecordBatch) -> None:
    """Ask for the values, and for those of a part, whose nulls are counted anew."""
    host = batch.to_device(cpu())
    host.validate(full=True)
    assert host.to_arrow().to_pylist() == expected.to_pylist()
    assert host.slice(1).to_arrow().to_pylist() == expected.slice(1).to_pylist()
    assert all(
        batch[name].validity is None for name in batch.schema.names if not pa.types.is_null(batch[name].type)
    )


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, COUNT])
def test_streams(kind: str, codec: str | None, count: int) -> None:
    """One batch, and many read ahead, plain or compressed, have the values that pyarrow finds."""
    stream = _stream(kind, codec, count)
    expected = list(pa.ipc.open_stream(stream))
    with open_stream(stream) as reader:
        for batch, each in zip(reader, expected, strict=True):
            _same(batch, each)


@pytest.mark.parametrize("kind", KINDS)
def test_chosen_columns(kind: str) -> None:
    """So have single columns of a stream."""
    stream = _stream(kind, None, 2)
    expected = list(pa.ipc.open_stream(stream, options=pa.ipc.IpcReadOptions(included_fields=[0])))
    with open_stream(stream, options=IpcReadOptions(included_fields=[0])) as reader:
        for batch, each in zip(reader, expected, strict=True):
            _same(batch, each)


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_devices(codec: str | None) -> None:
    """So have batches that are read onto a device."""
    stream = _stream("flat", codec, 3)
    with open_stream(stream, device=fake_device()) as reader:
        for batch, each in zip(reader, pa.ipc.open_stream(stream), strict=True):
            _same(batch, each)


def test_single_messages() -> None:
    """So has a batch of a single message."""
    message = pa.ipc.read_message(pa.record_batch(_flat(0)).serialize())
    metadata, schema = without_nulls(message.metadata.to_pybytes()), pa.record_batch(_flat(0)).schema
    padding = bytes(-len(metadata) % 8)
    head = b"\xff\xff\xff\xff" + (len(metadata) + len(padding)).to_bytes(4, "little")
    whole = head + metadata + padding + message.body.to_pybytes()
    _same(read_record_batch(whole, schema), pa.ipc.read_record_batch(pa.py_buffer(whole), schema))


def test_bitmaps_that_are_used_stay() -> None:
    """Beside them, a column with nulls, and one whose nulls nobody counted, keep their bitmaps."""
    batch = pa.record_batch(_flat(0))
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    with open_stream(stream.getvalue()) as reader:
        assert reader.read_next_batch().to_arrow().equals(batch)
