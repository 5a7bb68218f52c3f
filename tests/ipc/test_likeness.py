"""Messages that look alike: the quick decoder and the careful one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.errors import BowstringError, LimitExceeded
from bowstring.ipc.body.template import MessageDecoder
from bowstring.ipc.flatbuf.message import Message, decode_message, decode_record_batch
from bowstring.limits import Limits


def metadata_of(batch: pa.RecordBatch) -> bytes:
    metadata: bytes = pa.ipc.read_message(batch.serialize()).metadata.to_pybytes()
    return metadata


def batch_of(rows: int, *, nulls: bool = False) -> pa.RecordBatch:
    values = [None if nulls and row % 3 == 0 else row for row in range(rows)]
    views = pa.array([f"a text of some length {row}" for row in range(rows)], pa.string_view())
    return pa.record_batch({"a": values, "b": [str(row) for row in range(rows)], "c": views})


def assert_same(found: Message, expected: Message) -> None:
    """The envelope, and what the header says, are the same."""
    assert found[:6] == expected[:6]
    ours, theirs = decode_record_batch(found), decode_record_batch(expected)
    assert (ours.length, *ours[3:]) == (theirs.length, *theirs[3:])
    assert np.array_equal(ours.nodes, theirs.nodes)
    assert np.array_equal(ours.buffers, theirs.buffers)
    assert not ours.nodes.flags.writeable
    assert not ours.buffers.flags.writeable


def warmed(metadata: bytes) -> MessageDecoder:
    decoder = MessageDecoder()
    for _ in range(2):
        decoder.decode(metadata)
    assert decoder.decode(metadata).record_batch is not None
    return decoder


@given(rows=st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=8))
def test_alike_or_not_the_result_is_the_same(rows: list[tuple[int, bool]]) -> None:
    """Whatever messages follow one another, each is decoded as if it came alone."""
    decoder = MessageDecoder()
    for count, nulls in rows:
        metadata = metadata_of(batch_of(count, nulls=nulls))
        assert_same(decoder.decode(memoryview(metadata)), decode_message(metadata))


@given(data=st.data())
def test_changed_bytes_are_never_taken_for_the_same(data: st.DataObject) -> None:
    """A message that differs anywhere from the one before gives what the careful decoder gives, errors included."""
    metadata = metadata_of(batch_of(5, nulls=True))
    decoder = warmed(metadata)
    changed = bytearray(metadata)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    other = bytes(changed)
    try:
        expected = decode_message(other)
        decode_record_batch(expected)
    except BowstringError as error:
        with pytest.raises(type(error)):
            decode_record_batch(decoder.decode(other))
    else:
        assert_same(decoder.decode(other), expected)


def test_bounds_hold_for_what_looks_alike() -> None:
    """A body beyond the limit is refused in the quick decoder as in the careful one."""
    metadata = metadata_of(batch_of(5))
    length = decode_message(metadata).body_length
    decoder = MessageDecoder(Limits(message_bytes=length))
    for _ in range(3):
        assert decoder.decode(metadata).body_length == length
    at = metadata.index(length.to_bytes(8, "little"))
    with pytest.raises(LimitExceeded):
        decoder.decode(metadata[:at] + (length + 1).to_bytes(8, "little") + metadata[at + 8 :])


def test_tables_that_overlap_are_not_remembered() -> None:
    """A message whose two tables are the same bytes is decoded with care each time, and right."""
    metadata = bytearray(metadata_of(batch_of(5)))
    header = decode_record_batch(decode_message(metadata))
    places = {table.ctypes.data for table in (header.nodes, header.buffers)}
    first = np.frombuffer(header.nodes.base or b"", np.uint8).ctypes.data
    nodes, buffers = (table.ctypes.data - first - 4 for table in (header.nodes, header.buffers))
    assert len(places) == 2
    references = [
        at for at in range(0, nodes, 4) if at + int.from_bytes(metadata[at : at + 4], "little") == nodes
    ]
    for at in references:
        metadata[at : at + 4] = (buffers - at).to_bytes(4, "little")
    changed = bytes(metadata)
    expected = decode_message(changed)
    assert np.array_equal(decode_record_batch(expected).nodes, decode_record_batch(expected).buffers)
    decoder = MessageDecoder()
    for _ in range(3):
        message = decoder.decode(changed)
        assert message.record_batch is None
        assert_same(message, expected)
