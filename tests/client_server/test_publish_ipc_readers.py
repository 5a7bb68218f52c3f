"""Readers of ``bow.ipc`` are published as they are: lazily, with their schema and dictionaries."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring import ipc
from bowstring.errors import ClosedError, UsageError

SCHEMA: Final = pa.schema(
    {"n": pa.int64(), "word": pa.dictionary(pa.int8(), pa.string())}, metadata={"made": "by hand"}
)


def batch(first: int, words: list[str | None]) -> pa.RecordBatch:
    """Return a batch of three rows; the dictionary is that of the words."""
    encoded = pa.array(words).dictionary_encode().cast(SCHEMA.field("word").type)
    return pa.record_batch([pa.array(range(first, first + 3)), encoded], schema=SCHEMA)


BATCHES: Final = [batch(0, ["x", "y", None]), batch(3, ["x", "y", "x"]), batch(6, ["x", "y", "z"])]


def reader(kind: str) -> Any:
    """Return a reader of a stream, or a file, whose dictionary grows."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with getattr(pa.ipc, f"new_{kind}")(sink, SCHEMA, options=options) as writer:
        for each in BATCHES:
            writer.write_batch(each)
    return getattr(ipc, f"open_{kind}")(sink.getvalue())


@pytest.mark.parametrize("columns", [None, ["word"]])
@pytest.mark.parametrize("address", ["unix:", "tcp://127.0.0.1:0", "inproc:"])
@pytest.mark.parametrize("kind", ["stream", "file"])
def test_a_reader_goes_round(kind: str, address: str, columns: list[str] | None) -> None:
    """What a reader reads arrives, with metadata and dictionaries, and nothing is read before somebody asks."""
    source = reader(kind)
    with bow.Server(address) as server:
        endpoint = server.publish("read", source, readers=1)
        assert source.stats.num_record_batches == 0
        with bow.connect(endpoint, columns=columns) as stream:
            assert stream.schema.metadata == SCHEMA.metadata
            found = stream.read_all()
        assert source.stats.num_record_batches == 3
    expected = pa.Table.from_batches(BATCHES)
    expected = expected if columns is None else expected.select(columns)
    assert found.schema.equals(expected.schema, check_metadata=True)
    assert found.to_pydict() == expected.to_pydict()


def test_a_file_is_read_by_any_number_and_a_stream_by_one() -> None:
    """Each reader of a file gets all of it; a stream is over after the first."""
    with bow.Server() as server:
        endpoint = server.publish("file", reader("file"))
        for _ in range(2):
            with bow.connect(endpoint) as stream:
                assert stream.read_all().num_rows == 9
        with pytest.raises(UsageError, match="only once"):
            server.publish("stream", reader("stream"), readers=2)
        with pytest.raises(UsageError, match="in place"):
            server.publish("lent", reader("file"), share="in_place")


@pytest.mark.parametrize("kind", ["stream", "file"])
def test_a_closed_reader_is_not_published(kind: str) -> None:
    """Whoever publishes it hears of it, and not whoever connects."""
    source = reader(kind)
    source.close()
    with bow.Server() as server, pytest.raises(ClosedError, match="reader was closed"):
        server.publish("closed", source, readers=1)


class Unplanned:
    """Arrow data of somebody else, whose schema is not known before it is planned."""

    @property
    def schema(self) -> pa.Schema:
        raise RuntimeError("not planned yet")

    def __iter__(self) -> Any:
        raise NotImplementedError

    def read_all(self) -> pa.Table:
        raise NotImplementedError

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.table({"a": [1]}).__arrow_c_stream__(requested_schema)


def test_what_others_call_a_schema_is_not_asked_for() -> None:
    """What is no reader of ours is taken by the interface that it has, whatever else it is called like one."""
    with bow.Server() as server, bow.connect(server.publish("t", Unplanned())) as stream:
        assert stream.read_all().to_pylist() == [{"a": 1}]
