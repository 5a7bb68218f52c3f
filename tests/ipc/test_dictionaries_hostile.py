"""Dictionaries of hostile streams: what pyarrow would follow, it is not shown before somebody has looked at it."""

from __future__ import annotations

import io
import struct
from typing import Any

import pyarrow as pa
import pytest

from bowstring import ipc
from bowstring.errors import InvalidBody


def ints(*values: int) -> bytes:
    """Return integers as they lie in a body."""
    return struct.pack(f"<{len(values)}i", *values)


def runs(*ends: int) -> pa.Array:
    """Return runs of numbers."""
    return pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), pa.array(range(len(ends))))


def sent(*dictionaries: pa.Array, deltas: bool = False) -> bytearray:
    """Return a stream of batches of one row, each with a dictionary of its own."""
    columns = [pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), each) for each in dictionaries]
    batches = [pa.record_batch({"d": column}) for column in columns]
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=deltas)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytearray(sink.getvalue())


@pytest.mark.parametrize(
    ("first", "rest", "good", "bad"),
    [
        ([[1, 2], [3]], [[77, 5], [6, 7, 8]], ints(2, 3), ints(2, 0x7FFFFFF0)),
        (runs(1, 2), runs(1, 33, 44), ints(1, 33, 44), ints(1, 60, 44)),
        (runs(1, 2), runs(1, 33, 44), ints(1, 33, 44), ints(1, -5, 44)),
    ],
    ids=["sizes of lists", "runs that go back", "runs below 0"],
)
def test_a_delta_of_nested_values_is_looked_at_before_it_is_joined(
    first: Any, rest: Any, good: bytes, bad: bytes
) -> None:
    """What pyarrow would believe while it joins values is an error of ours, in each place where it joins them."""
    if isinstance(first, list):
        first, rest = (pa.array(each, pa.list_view(pa.int64())) for each in (first, rest))
    stream = sent(first, pa.concat_arrays([first, rest]), deltas=True)
    assert len(ipc.open_stream(bytes(stream)).read_all()) == 2
    at = stream.rfind(good)
    stream[at : at + len(bad)] = bad
    with pytest.raises(InvalidBody, match="added to is malformed"):
        ipc.open_stream(bytes(stream)).read_all()


def unions(*numbers: int) -> pa.Array:
    """Return a dense union of three numbers, the last first."""
    return pa.UnionArray.from_dense(
        pa.array([0, 0, 0], pa.int8()), pa.array([2, 1, 0], pa.int32()), [pa.array(numbers)], ["a"]
    )


@pytest.mark.parametrize(
    ("first", "second", "good", "bad"),
    [
        (unions(1, 2, 3), unions(1, 2, 4), ints(2, 1, 0), ints(0x70000000, 1, 0)),
        (
            pa.array(["x" * 20, "y" * 30], pa.string_view()),
            pa.array(["x" * 20, "y" * 29 + "z"], pa.string_view()),
            b"yyyy" + ints(0),
            b"yyyy" + ints(1 << 20),
        ),
    ],
    ids=["unions", "views"],
)
def test_dictionaries_that_point_anywhere_are_written_as_they_are(
    first: pa.Array, second: pa.Array, good: bytes, bad: bytes
) -> None:
    """Values are compared with those before only where they are valid: else pyarrow may bring the process down."""
    stream = bytes(sent(first, second).replace(good, bad))
    reader = ipc.open_stream(stream)
    sink = io.BytesIO()
    with ipc.new_stream(sink, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
    assert sum(batch.num_rows for batch in ipc.open_stream(sink.getvalue())) == 2
