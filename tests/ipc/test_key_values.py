"""Key-value pairs of messages, as pyarrow has them."""

from __future__ import annotations

import copy
import io
import pickle

import pyarrow as pa
import pytest

import bowstring as bow

BATCH = pa.record_batch({"a": [1, 2, 3]})
PAIRS = [(b"tag", b"first"), (b"unit", b"m"), (b"tag", b"second"), (b"", b"")]


def written(library: object, metadata: object, source: object = BATCH, *, file: bool = False) -> bytes:
    """Return a stream or file of one batch with these pairs, as pyarrow or bowstring writes it."""
    sink = io.BytesIO()
    new = library.new_file if file else library.new_stream  # type: ignore[attr-defined]
    with new(sink, BATCH.schema) as writer:
        writer.write_batch(source, custom_metadata=metadata)
    return sink.getvalue()


@pytest.mark.parametrize("writer", [pa.ipc, bow.ipc], ids=["pyarrow", "bowstring"])
def test_repeated_keys_are_read_as_pyarrow_reads_them(writer: object) -> None:
    """Every pair of a message is there, in its order, whoever wrote it; an index gives the first of a key."""
    data = written(writer, pa.KeyValueMetadata(PAIRS))
    theirs = pa.ipc.open_stream(data).read_next_batch_with_custom_metadata().custom_metadata
    ours = bow.ipc.open_stream(data).read_next_batch_with_custom_metadata().custom_metadata
    assert isinstance(ours, bow.ipc.KeyValueMetadata)
    assert list(ours.pairs) == list(theirs.items()) == PAIRS
    assert ours.get_all("tag") == theirs.get_all("tag") == [b"first", b"second"]
    assert ours[b"tag"] == theirs[b"tag"] == b"first"
    assert ours == {b"tag": b"first", b"unit": b"m", b"": b""}
    for twin in (copy.copy(ours), pickle.loads(pickle.dumps(ours))):
        assert isinstance(twin, bow.ipc.KeyValueMetadata)
        assert (twin, twin.pairs) == (ours, ours.pairs)


@pytest.mark.parametrize("file", [False, True], ids=["stream", "file"])
def test_repeated_keys_are_written_on(file: bool) -> None:
    """A batch that was read keeps all its pairs when it is written again, to a stream or a file."""
    batch = bow.ipc.open_stream(written(pa.ipc, pa.KeyValueMetadata(PAIRS))).read_next_batch()
    data = written(bow.ipc, None, batch, file=file)
    if file:
        found = pa.ipc.open_file(data).get_batch_with_custom_metadata(0).custom_metadata
    else:
        found = pa.ipc.open_stream(data).read_next_batch_with_custom_metadata().custom_metadata
    assert list(found.items()) == PAIRS


def test_a_reader_in_another_place_has_all_pairs() -> None:
    """Repeated keys reach the reader of a published stream."""
    batch = bow.ipc.open_stream(written(pa.ipc, pa.KeyValueMetadata(PAIRS))).read_next_batch()
    with bow.Server() as server:
        endpoint = server.publish("pairs", [batch], readers=1)
        with bow.connect(endpoint) as stream:
            [taken] = stream
    assert isinstance(taken.custom_metadata, bow.ipc.KeyValueMetadata)
    assert list(taken.custom_metadata.pairs) == PAIRS


def test_lz4_frame_is_lz4() -> None:
    """`compression="lz4_frame"`, pyarrow's other name, writes what "lz4" writes."""
    options = [bow.ipc.IpcWriteOptions(compression=name) for name in ("lz4", "lz4_frame", "LZ4_FRAME")]
    assert {each.codec_name for each in options} == {"lz4"}
    sinks = [io.BytesIO() for _ in options]
    for sink, each in zip(sinks, options, strict=True):
        with bow.ipc.new_stream(sink, BATCH.schema, options=each) as writer:
            writer.write_batch(BATCH)
    assert len({sink.getvalue() for sink in sinks}) == 1
    assert pa.ipc.open_stream(sinks[1].getvalue()).read_all().to_batches() == [BATCH]
