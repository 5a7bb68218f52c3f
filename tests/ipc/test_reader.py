"""Readers made of batches, and casts: what `pyarrow.RecordBatchReader` offers beside reading."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from bowstring import ipc
from bowstring.columnar.batch import Batch
from bowstring.errors import ClosedError, EndOfStream, UsageError
from bowstring.testing import fake_device
from tests import strategies

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.string()})
ROWS = pa.record_batch({"a": [1, 2, 3], "b": ["x", None, "z"]}, schema=SCHEMA)


def stream_of(*batches: pa.RecordBatch) -> bytes:
    """Return batches as a stream."""
    sink = io.BytesIO()
    with ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


@given(batches=strategies.tables())
def test_batches_come_back_as_they_were_given(batches: list[pa.RecordBatch]) -> None:
    """A reader of batches gives their values under their schema, whatever the types."""
    schema = batches[0].schema
    reader = ipc.RecordBatchReader.from_batches(schema, batches)
    assert reader.schema.equals(schema)
    assert reader.read_all().equals(pa.Table.from_batches(batches))
    table = pa.Table.from_batches(batches)
    # From a reader, because chunks of a table are given common dictionaries.
    assert ipc.RecordBatchReader.from_stream(table.to_reader()).read_all().equals(table)


def test_batches_are_taken_one_by_one() -> None:
    """Nothing is taken from an iterable before it is asked for, and what was read is counted."""
    taken = []

    def given_() -> Iterator[Any]:
        for number in range(3):
            taken.append(number)
            yield ROWS

    reader = ipc.RecordBatchReader.from_batches(SCHEMA, given_())
    assert taken == []
    assert reader.read_next_batch().num_rows == 3
    assert taken == [0]
    assert reader.stats.num_record_batches == 1
    assert [batch.num_rows for batch in reader] == [3, 3]
    with pytest.raises(EndOfStream):
        reader.read_next_batch()
    reader.close()
    with pytest.raises(ClosedError):
        reader.read_next_batch()


def test_another_schema_is_refused_where_it_stands() -> None:
    """A batch of another schema is an error when it is reached; those before it are read."""
    reader = ipc.RecordBatchReader.from_batches(SCHEMA, [ROWS, ROWS.select(["a"])])
    assert reader.read_next_batch().num_rows == 3
    with pytest.raises(UsageError, match="schema"):
        reader.read_next_batch()


@pytest.mark.parametrize("open_", [ipc.open_stream, pa.ipc.open_stream])
def test_casts_are_those_of_pyarrow(open_: Any) -> None:
    """Batches that are left are cast as pyarrow's reader casts them, one when it is asked for."""
    wanted = pa.schema({"a": pa.int8(), "b": pa.large_string()})
    reader = open_(stream_of(ROWS, ROWS.slice(1)))
    reader.read_next_batch()
    found = reader.cast(wanted)
    assert found.schema.equals(wanted)
    assert found.read_all().equals(pa.Table.from_batches([ROWS.slice(1)]).cast(wanted))


def test_casts_that_lose_something_are_refused() -> None:
    """A value that does not fit is an error where it is read; other names are one at once."""
    large = pa.record_batch({"a": [1, 1000], "b": ["x", "y"]}, schema=SCHEMA)
    narrow = pa.schema({"a": pa.int8(), "b": pa.string()})
    reader = ipc.open_stream(stream_of(ROWS, large)).cast(narrow)
    assert reader.read_next_batch()["a"].values.dtype == np.int8
    with pytest.raises(UsageError, match="cast"):
        reader.read_next_batch()
    with pytest.raises(UsageError, match="cast"):
        ipc.open_stream(stream_of(ROWS)).cast(pa.schema({"c": pa.int8(), "b": pa.string()}))


def test_data_are_cast_to_a_schema_that_is_asked_for() -> None:
    """`from_stream` with a schema gives batches of that schema."""
    wanted = pa.schema({"a": pa.int32(), "b": pa.string()})
    assert ipc.RecordBatchReader.from_stream(pa.table(ROWS), wanted).read_all().schema.equals(wanted)
    with pytest.raises(UsageError):
        ipc.RecordBatchReader.from_stream(7)


def test_batches_of_a_device_stay_there_until_they_are_cast() -> None:
    """A reader hands on a device's batches as they are; cast ones are on the host, with the same values."""
    device = fake_device()
    batch = Batch.from_arrow(ROWS).to_device(device)
    [found] = ipc.RecordBatchReader.from_batches(SCHEMA, [batch])
    assert found.device is device
    wanted = pa.schema({"a": pa.int32(), "b": pa.string()})
    [cast] = ipc.RecordBatchReader.from_batches(SCHEMA, [batch]).cast(wanted)
    assert cast.device.is_host
    assert cast.to_arrow().equals(ROWS.cast(wanted))


TABLE = pa.table({"a": [1, 2, 3]})
CALLS: dict[str, Any] = {
    "read_all": lambda reader: reader.read_all(),
    "read_pandas": lambda reader: reader.read_pandas(),
    "cast": lambda reader: reader.cast(pa.schema({"a": pa.int8()})),
    "capsule": lambda reader: reader.__arrow_c_stream__(),
    "pyarrow": pa.table,
    "iteration": list,
}
CLOSED: dict[str, Any] = {
    "stream": lambda: ipc.open_stream(written(ipc.new_stream)),
    "file": lambda: ipc.open_file(written(ipc.new_file)),
    "iterated": lambda: ipc.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches()),
    "cast": lambda: ipc.open_stream(written(ipc.new_stream)).cast(pa.schema({"a": pa.int32()})),
    "empty": lambda: ipc.open_file(written(ipc.new_file, TABLE.slice(0, 0))),
}


def written(new: Any, table: pa.Table = TABLE) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with new(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", CLOSED)
def test_closed_readers_say_so(kind: str, call: str) -> None:
    """Whatever is asked of a closed reader for its batches, it says that it was closed, at once and in words."""
    reader = CLOSED[kind]()
    reader.close()
    with pytest.raises(ClosedError, match="was closed"):
        CALLS[call](reader)
