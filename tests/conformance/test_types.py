"""Every type of Schema.fbs, nested in every other, against pyarrow in both directions and with all options."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from bowstring import ipc
from bowstring.errors import BowstringError
from tests import strategies
from tests.conformance.arrow_types import deep_tables, message_metadata, read_options, write_options

TABLES = st.one_of(deep_tables(), strategies.tables())


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[pa.RecordBatch], pa.ipc.IpcWriteOptions, list[dict[str, str]]]:
    """Draw batches, how they are to be written, and metadata of their messages."""
    batches, options = draw(TABLES), draw(write_options())
    return batches, options, draw(message_metadata(options, len(batches)))


def written(
    new: Any, batches: list[pa.RecordBatch], options: Any, of_messages: list[dict[str, str]]
) -> bytes:
    """Return batches, and metadata of their messages, as a writer of ours or of pyarrow's writes them."""
    sink = io.BytesIO()
    with new(sink, batches[0].schema, options=options) as writer:
        for batch, pairs in zip(batches, of_messages, strict=True):
            writer.write_batch(batch, custom_metadata=pairs or None)
    return sink.getvalue()


def read(reader: Any) -> tuple[pa.Table, list[dict[bytes, bytes]]]:
    """Return what a reader of streams, ours or pyarrow's, gives: a table, and the metadata of its messages."""
    batches: list[Any] = []
    metadata: list[dict[bytes, bytes]] = []
    with reader:
        while True:
            try:
                batch, pairs = reader.read_next_batch_with_custom_metadata()
            except (StopIteration, EOFError):
                return pa.Table.from_batches([arrow(each) for each in batches], reader.schema), metadata
            batches.append(batch)
            metadata.append(dict(pairs or {}))


def read_file(reader: Any) -> tuple[pa.Table, list[dict[bytes, bytes]]]:
    """Return the same of a reader of files, its last batch read first."""
    with reader:
        pairs = [
            reader.get_batch_with_custom_metadata(index)
            for index in reversed(range(reader.num_record_batches))
        ][::-1]
        table = pa.Table.from_batches([arrow(batch) for batch, _ in pairs], reader.schema)
        return table, [dict(metadata or {}) for _, metadata in pairs]


def arrow(batch: Any) -> pa.RecordBatch:
    """Return a batch of ours as pyarrow's, and one of pyarrow's as it is."""
    return batch if isinstance(batch, pa.RecordBatch) else batch.to_arrow()


def assert_same(found: Any, expected: Any) -> None:
    """Two tables with the metadata of their messages are the same, to the last field's metadata, and valid."""
    assert found[0].schema.equals(expected[0].schema, check_metadata=True)
    assert found[0].equals(expected[0])
    assert [len(each) for each in found[0].to_batches()] == [len(each) for each in expected[0].to_batches()]
    assert found[1] == expected[1]
    found[0].validate(full=True)


def expected(batches: list[pa.RecordBatch], _options: Any, of_messages: list[dict[str, str]]) -> Any:
    """Return what a reader must give of batches that were written."""
    pairs = [
        {key.encode(): value.encode() for key, value in metadata.items()}
        for _, metadata in zip(batches, of_messages, strict=True)
    ]
    return pa.Table.from_batches(batches), pairs


@given(case=cases(), reading=read_options())
def test_streams_of_pyarrow(case: Any, reading: Any) -> None:
    """A stream that pyarrow writes, with any options, is read as pyarrow reads it."""
    stream = written(pa.ipc.new_stream, *case)
    found = read(ipc.open_stream(stream, options=reading))
    assert_same(found, read(pa.ipc.open_stream(stream)))
    assert_same(found, expected(*case))


@given(case=cases())
def test_streams_of_ours(case: Any) -> None:
    """A stream that we write, with any options, is read by pyarrow, and by us, as what was written."""
    stream = written(ipc.new_stream, *case)
    assert_same(read(pa.ipc.open_stream(stream)), expected(*case))
    assert_same(read(ipc.open_stream(stream)), expected(*case))


def file_of(new: Any, batches: Any, options: Any, of_messages: Any) -> bytes | None:
    """Return batches as a file, ``None`` where its writer refuses dictionaries that change."""
    try:
        return written(new, batches, options, of_messages)
    except (pa.ArrowInvalid, BowstringError) as error:
        if "ictionar" not in str(error):
            raise
        return None


@given(case=cases(), reading=read_options())
def test_files_of_pyarrow(case: Any, reading: Any) -> None:
    """A file that pyarrow writes, with any options, is read as pyarrow reads it."""
    file = file_of(pa.ipc.new_file, *case)
    assume(file is not None)
    found = read_file(ipc.open_file(file, options=reading))
    assert_same(found, read_file(pa.ipc.open_file(file)))
    assert_as_written(found, case)


@given(case=cases())
def test_files_of_ours(case: Any) -> None:
    """We refuse the files that pyarrow refuses to write; the others are read by pyarrow as those that it writes."""
    file, theirs = file_of(ipc.new_file, *case), file_of(pa.ipc.new_file, *case)
    assert (file is None) is (theirs is None)
    if file is not None:
        assert_same(read_file(pa.ipc.open_file(file)), read_file(pa.ipc.open_file(theirs)))
        assert_same(read_file(ipc.open_file(file)), read_file(pa.ipc.open_file(file)))
        assert_as_written(read_file(ipc.open_file(file)), case)


def assert_as_written(found: Any, case: Any) -> None:
    """A table is what was written; but with deltas, a file gives all batches the last dictionary."""
    if not case[1].emit_dictionary_deltas:
        assert_same(found, expected(*case))


@given(batches=TABLES)
def test_the_c_stream_interface(batches: Any) -> None:
    """A reader of ours is a stream for anybody who takes Arrow's C stream interface."""
    stream = written(pa.ipc.new_stream, batches, None, [{}] * len(batches))
    assert pa.table(ipc.open_stream(stream)).equals(pa.Table.from_batches(batches), check_metadata=True)
