"""Readers of streams that are interrupted lose no batch in silence, and take none twice."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bowstring import parquet, vortex
from bowstring.columnar import validation
from bowstring.errors import ClosedError, UsageError
from bowstring.ipc import MessageReader, open_stream
from tests.faults.interrupting import interrupted
from tests.ipc.forms import without_library


def with_deltas() -> bytes:
    """Return a stream of batches with a number each, as an index into a dictionary that grows by their values."""
    schema = pa.schema({"n": pa.dictionary(pa.int32(), pa.int64())})
    sink = io.BytesIO()
    with pa.ipc.new_stream(
        sink, schema, options=pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    ) as writer:
        for count in range(1, 9):
            codes = pa.array([count - 1], pa.int32())
            column = pa.DictionaryArray.from_arrays(codes, pa.array(range(count), pa.int64()))
            writer.write_batch(pa.record_batch([column], schema=schema))
    return sink.getvalue()


def plain() -> bytes:
    """Return a stream of a few batches with a number each."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema({"n": pa.int64()})) as writer:
        for number in range(8):
            writer.write_batch(pa.record_batch({"n": [number] * 20}))
    return sink.getvalue()


def encoded() -> bytes:
    """Return a stream of Vortex of a few batches with a number each."""
    sink = io.BytesIO()
    with vortex.new_stream(sink, pa.schema({"n": pa.int64()})) as writer:
        for number in range(8):
            writer.write_batch(pa.record_batch({"n": [number] * 20}))
    return sink.getvalue()


def number_of(batch: Any) -> int:
    """Return the number of a batch."""
    return int(pa.record_batch(batch).column(0)[0].as_py())


FORMS: Final[dict[str, tuple[Callable[[], bytes], Callable[[Any], Any]]]] = {
    "Arrow": (plain, open_stream),
    "deltas": (with_deltas, open_stream),
    "Vortex": (encoded, vortex.open_stream),
}
SOURCES: Final[dict[str, Callable[[bytes], Any]]] = {
    "memory": lambda data: data,
    "file": io.BytesIO,
    "file of pyarrow": lambda data: pa.PythonFile(io.BytesIO(data), "r"),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("reads", [0, 3])
def test_no_batch_is_lost_in_silence(form: str, source: str, reads: int) -> None:
    """Interrupted before any line of a read by itself, a stream goes on where it was, or says that it cannot."""
    make, open_ = FORMS[form]
    data, wrapped = make(), SOURCES[source]

    def opened() -> tuple[Any, list[int]]:
        reader = open_(wrapped(data))
        return reader, [number_of(reader.read_next_batch()) for _ in range(reads)]

    with without_library():
        for line in range(interrupted(opened()[0].read_next_batch, sys.maxsize)[1]):
            reader, found = opened()
            batch, _ = interrupted(reader.read_next_batch, line)
            found += [] if batch is None else [number_of(batch)]
            is_whole = True
            try:
                found += map(number_of, reader)
            except ClosedError:
                is_whole = False
            # The one that was about to be returned is lost with the call.
            if is_whole:
                assert found in (list(range(8)), [n for n in range(8) if n != reads]), line
            else:
                assert found == list(range(reads)), line
                assert source != "memory" or form == "deltas", line


def in_parquet() -> bytes:
    """Return a file of Parquet of a few row groups with a number each."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, pa.schema({"n": pa.int64()})) as writer:
        for number in range(8):
            writer.write_batch(pa.record_batch({"n": [number] * 20}))
    return bytes(sink.getvalue())


@pytest.mark.parametrize("way", ["read_next_batch", "reader of pyarrow"])
@pytest.mark.parametrize("reads", [0, 3])
def test_no_row_group_is_lost_in_silence(reads: int, way: str) -> None:
    """Interrupted before any line of a read, a stream of Parquet gives all other rows, or says that it cannot."""
    data = in_parquet()

    def opened() -> tuple[Any, Callable[[], Any], list[int]]:
        stream = parquet.read(data)
        read = stream.read_next_batch if way == "read_next_batch" else stream.to_reader().read_next_batch
        return stream, read, [number_of(read()) for _ in range(reads)]

    count = interrupted(opened()[1], sys.maxsize)[1]
    for line in range(0, count, max(1, count // 100)):
        stream, read, found = opened()
        with contextlib.suppress(pa.ArrowException):  # pyarrow has its own error for what ends a generator
            batch, _ = interrupted(read, line)
            found += [] if batch is None else [number_of(batch)]
        try:
            found += map(number_of, stream)
        except ClosedError:
            assert found == list(range(reads)), line
        else:
            assert found in (list(range(8)), [n for n in range(8) if n != reads]), line


@pytest.mark.parametrize("form", ["Arrow", "Parquet"])
@pytest.mark.parametrize("reads", [0, 3])
def test_no_batch_is_lost_while_it_is_checked(form: str, reads: int) -> None:
    """Interrupted before any line of the check of elements, a stream does not go on behind the batch."""
    make, open_ = (plain, open_stream) if form == "Arrow" else (in_parquet, parquet.read)
    data = make()

    def opened() -> Any:
        reader = open_(io.BytesIO(data), validate="full")
        assert [number_of(reader.read_next_batch()) for _ in range(reads)] == list(range(reads))
        return reader

    checking = str(Path(validation.__file__).parent)
    opened().read_next_batch()  # which imports what checks
    lines = interrupted(opened().read_next_batch, sys.maxsize, checking)[1]
    assert lines > 0
    for line in range(lines):
        reader = opened()
        assert interrupted(reader.read_next_batch, line, checking)[0] is None
        with pytest.raises(ClosedError):
            reader.read_next_batch()


def test_a_message_is_not_lost_in_silence() -> None:
    """Interrupted before any line, a reader of messages goes on with the next one, or says that it cannot."""
    data = plain()
    count = len(list(MessageReader.open_stream(data)))
    lines = interrupted(MessageReader.open_stream(io.BytesIO(data)).read_next_message, sys.maxsize)[1]
    for line in range(lines):
        for source in (data, io.BytesIO(data)):
            reader = MessageReader.open_stream(source)
            message, _ = interrupted(reader.read_next_message, line)
            read = 0 if message is None else 1
            try:
                read += len(list(reader))
                assert read in (count, count - 1), line
            except ClosedError:
                assert source is not data, line


@pytest.mark.parametrize("form", ["Arrow", "Vortex"])
def test_a_file_that_does_not_wait_is_no_end(form: str) -> None:
    """Where nothing has come yet in a file that does not wait, that is an error, and no shorter table."""
    make, open_ = FORMS[form]
    data = make()
    for size in (0, 2, len(data) // 2, len(data) - 4):
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        with open(reading, "rb", buffering=0) as file, open(writing, "wb") as other:
            other.write(data[:size])
            other.flush()
            with pytest.raises(UsageError, match="does not wait"):
                open_(file).read_all()
