"""Single messages against pyarrow's."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given

from bowstring import ipc
from bowstring.columnar.batch import Batch
from bowstring.errors import EndOfStream, InvalidMetadata, Truncated, UsageError
from bowstring.testing import fake_device
from tests import strategies
from tests.ipc.files import SAMPLE, by_bowstring, by_pyarrow


def test_messages_are_those_of_pyarrow() -> None:
    """Type, version, metadata and body of every message of a stream are what pyarrow says."""
    for write in (by_bowstring, by_pyarrow):
        for version in (ipc.MetadataVersion.V4, ipc.MetadataVersion.V5):
            stream = write(SAMPLE, kind="stream", metadata_version=version)
            pairs = list(
                zip(
                    ipc.MessageReader.open_stream(stream),
                    pa.ipc.MessageReader.open_stream(stream),
                    strict=True,
                )
            )
            assert [ours.type for ours, _ in pairs] == ["schema", "dictionary", "record batch"]
            for ours, theirs in pairs:
                assert ours.type == theirs.type
                assert ours.metadata_version == theirs.metadata_version
                assert ours.metadata.equals(theirs.metadata)
                assert ours.body.equals(theirs.body)
                for alignment in (8, 64):
                    assert ours.serialize(alignment).equals(theirs.serialize(alignment))
                assert ours.equals(ipc.read_message(theirs.serialize()))
                assert not ours.equals(ipc.read_message(SAMPLE.schema.remove(0).serialize()))


def test_the_end_and_what_is_cut_off() -> None:
    """Without a message there is an end; within one, an error. Iterating stops where reading raises."""
    for nothing in (b"", b"\xff\xff\xff\xff\x00\x00\x00\x00", io.BytesIO()):
        with pytest.raises(EndOfStream):
            ipc.read_message(nothing)
    message = SAMPLE.to_batches()[0].serialize()
    with pytest.raises(Truncated):
        ipc.read_message(message.slice(0, message.size - 1))
    reader = ipc.MessageReader.open_stream(by_bowstring(SAMPLE, kind="stream"))
    assert len(list(reader)) == 3
    assert list(reader) == []
    for _ in range(2):
        with pytest.raises(EndOfStream):
            reader.read_next_message()


def test_messages_are_read_one_after_the_other_from_a_file() -> None:
    """Reading one message of a file leaves the file behind it."""
    file = io.BytesIO(by_bowstring(SAMPLE, kind="stream"))
    types = [ipc.read_message(file).type for _ in range(3)]
    assert types == ["schema", "dictionary", "record batch"]


@given(batch=strategies.record_batches(types=strategies.data_types(dictionaries=False)))
def test_batches_and_schemas_go_both_ways(batch: pa.RecordBatch) -> None:
    """Single batches and schemas of any type, made by one and read by the other, are equal."""
    for schema in (batch.schema.serialize(), ipc.serialize_schema(batch.schema)):
        assert ipc.read_schema(schema).equals(batch.schema, check_metadata=True)
        assert pa.ipc.read_schema(schema).equals(batch.schema, check_metadata=True)
    data = ipc.serialize_record_batch(batch)
    assert data.size == ipc.get_record_batch_size(batch)
    assert pa.ipc.read_record_batch(data, batch.schema).equals(batch)
    found = ipc.read_record_batch(batch.serialize(), batch.schema)
    found.validate(full=True)
    assert found.to_arrow().equals(batch)


def test_bodies_are_aligned_in_memory() -> None:
    """The buffers of a serialized batch lie at multiples of 64 bytes, so that reading copies nothing."""
    data = ipc.serialize_record_batch(SAMPLE.to_batches()[0].select(["number", "tags", "amount"]))
    schema = SAMPLE.select(["number", "tags", "amount"]).schema
    for buffer in ipc.read_record_batch(data, schema).buffers:
        assert buffer is None or buffer.address % 64 == 0
        assert buffer is None or data.address <= buffer.address < data.address + data.size


def test_batches_of_a_device_are_serialized() -> None:
    """A batch of the fake device becomes the same message as one of the host."""
    batch = Batch.from_arrow(pa.record_batch({"a": np.arange(5), "b": list("abcde")}))
    there = batch.to_device(fake_device(0))
    assert ipc.serialize_record_batch(there).equals(ipc.serialize_record_batch(batch))


def test_dictionaries_by_a_memo() -> None:
    """A memo that has read the schema takes dictionaries and deltas, for batches read one by one."""
    words = [["a", "b"], ["a", "b", "c"]]
    table = pa.table({"d": pa.chunked_array([pa.array(each).dictionary_encode() for each in words])})
    stream = by_bowstring(table, kind="stream", emit_dictionary_deltas=True)
    schema, dictionary, first, delta, second = ipc.MessageReader.open_stream(stream)
    memo = ipc.DictionaryMemo()
    with pytest.raises(UsageError, match="read_schema"):
        ipc.read_dictionary(dictionary, memo)
    assert ipc.read_schema(schema, memo).equals(table.schema)
    with pytest.raises(InvalidMetadata, match="never sent"):
        ipc.read_dictionary(delta, memo)
    with pytest.raises(InvalidMetadata, match="not been sent"):
        ipc.read_record_batch(first, table.schema, memo)
    ipc.read_dictionary(dictionary, memo)
    read = [ipc.read_record_batch(first, table.schema, memo)]
    ipc.read_dictionary(delta, memo)
    read.append(ipc.read_record_batch(second, table.schema, memo))
    assert [each["d"].to_arrow().dictionary.to_pylist() for each in read] == words
    with pytest.raises(UsageError, match="another schema"):
        ipc.read_record_batch(first, pa.schema({"a": pa.int8()}), memo)
    with pytest.raises(InvalidMetadata, match="not been sent"):
        ipc.read_record_batch(first, table.schema)


def test_messages_of_another_kind_are_refused() -> None:
    """A batch is no schema, a schema no batch and no dictionary, and nothing is none of them."""
    batch = pa.record_batch({"a": [1]})
    memo = ipc.DictionaryMemo()
    with pytest.raises(InvalidMetadata, match="SCHEMA"):
        ipc.read_schema(batch.serialize(), memo)
    with pytest.raises(InvalidMetadata, match="RECORD_BATCH"):
        ipc.read_record_batch(batch.schema.serialize(), batch.schema)
    ipc.read_schema(batch.schema.serialize(), memo)
    with pytest.raises(InvalidMetadata, match="DICTIONARY_BATCH"):
        ipc.read_dictionary(batch.serialize(), memo)
    with pytest.raises(InvalidMetadata, match="no message"):
        ipc.read_schema(b"")


def test_alignments_that_are_none() -> None:
    """Messages are padded to multiples of 8 bytes only."""
    message = ipc.read_message(SAMPLE.schema.serialize())
    for alignment in (0, 4, -8):
        with pytest.raises(UsageError, match="multiples of 8"):
            message.serialize(alignment)


@pytest.mark.parametrize("preserve_index", [None, True, False])
def test_data_frames_go_both_ways(preserve_index: bool | None) -> None:
    """Data frames that one has serialized are what the other reads, indices included."""
    for index in (None, pd.Index([3, 5], name="i"), pd.Index(["x", "y"])):
        frame = pd.DataFrame({"a": [1, 2], "b": ["u", None]}, index=index)
        ours = ipc.serialize_pandas(frame, preserve_index=preserve_index)
        theirs = pa.ipc.serialize_pandas(frame, preserve_index=preserve_index)
        expected = pa.ipc.deserialize_pandas(theirs)
        for data in (ours, theirs):
            pd.testing.assert_frame_equal(ipc.deserialize_pandas(data), expected)
            pd.testing.assert_frame_equal(pa.ipc.deserialize_pandas(data), expected)


def test_the_names_of_pyarrow_are_there() -> None:
    """Every public name of ``pyarrow.ipc`` is one of ours."""
    theirs = {name for name in vars(pa.ipc) if not name.startswith("_")} - {"lib", "os", "pa"}
    assert theirs <= set(ipc.__all__)
    assert all(hasattr(ipc, name) for name in ipc.__all__)
