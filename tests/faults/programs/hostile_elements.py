"""Sends and reads batches whose bodies hold other words than they should: ``hostile_elements.py EXAMPLES``.

What is read with ``validate="full"`` is an error of Bowstring's, or what pyarrow reads of the same bytes and finds
valid; what is read with ``"structure"`` can be displayed. What pyarrow read of them, and cut, is refused, or
arrives as it is. A crash ends this process.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.columnar.parts import batch_parts
from tests.strategies import LEAF_TYPES, data_types, record_batches

WORDS = (
    0,
    1,
    2,
    3,
    7,
    12,
    13,
    40,
    127,
    128,
    255,
    256,
    65_535,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**62,
    2**63,
    2**64 - 1,
)
# Not times, days and decimals: what their values mean is delivered as it is, and pyarrow refuses it.
LEAVES = tuple(
    each
    for each in LEAF_TYPES
    if not (pa.types.is_time(each) or pa.types.is_date64(each) or pa.types.is_decimal(each))
)
PLACES = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from((1, 4, 8)), st.sampled_from(WORDS)),
    min_size=1,
    max_size=4,
)
CUTS = st.tuples(st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))


def parts_of(data: pa.Buffer) -> list[tuple[int, int]]:
    """Return where the bodies of the messages of a stream begin and end."""
    found = []
    for message in pa.ipc.MessageReader.open_stream(data):
        if message.body is not None and message.body.size:
            start = message.body.address - data.address
            found.append((start, start + message.body.size))
    return found


def mutated(batch: pa.RecordBatch, places: list[tuple[float, int, int]]) -> bytes:
    """Return a stream of a batch with other words at some places of its bodies."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = sink.getvalue()
    bodies = np.concatenate([np.zeros(0, np.int64), *(np.arange(*each) for each in parts_of(data))])
    changed = bytearray(data)
    for where, width, word in places:
        if len(bodies):
            at = int(bodies[int(where * len(bodies))]) // width * width
            changed[at : at + width] = (word % (1 << (8 * width))).to_bytes(width, "little")
    return bytes(changed)


def pyarrows(data: bytes) -> pa.RecordBatch | None:
    """Return what pyarrow reads, ``None`` where it finds it invalid."""
    with pa.ipc.open_stream(data) as reader:
        try:
            batch = reader.read_next_batch()
            batch.validate(full=True)
        except pa.ArrowException:
            return None
    return batch


def values(data: Any) -> str:
    """Return the values of a valid batch, or table, in one text."""
    table = pa.table(data)
    try:
        return repr(table.to_pylist())
    except (ValueError, OverflowError, KeyError, pa.ArrowException) as error:  # what Python has no value for
        return type(error).__name__


def compare(batches: list[bow.Batch], expected: pa.RecordBatch | None, how: str) -> None:
    """Check that what was delivered is what pyarrow validated."""
    for batch in batches:
        assert batch.validated == "full"
        exported = batch.to_arrow()
        exported.validate(full=True)
        # Offsets of columns without rows are none of pyarrow's business then.
        assert expected is not None or not all(batch_parts(batch).nodes[:, 0]), (
            f"{how}: pyarrow finds it invalid"
        )
        assert expected is None or values(exported) == values(expected), how


def show(batch: bow.Batch) -> None:
    """Display a batch, and its columns, in every way."""
    assert batch._repr_html_().startswith("<p>")
    assert repr(batch).startswith("<Batch")
    for column in batch.columns:
        assert repr(column).startswith("<Column")


def sent(server: bow.Server, batch: bow.Batch, expected: pa.RecordBatch | None) -> None:
    """Send a batch that was read with its structure checked only."""
    try:
        endpoint = server.publish("t", batch, replace=True)
    except bow.BowstringError:
        return
    with contextlib.suppress(bow.InvalidData), bow.connect(endpoint) as stream:
        compare(list(stream), expected, "connect")
    with bow.connect(endpoint, options=bow.ConnectOptions(validate="structure")) as stream:
        assert stream._repr_html_().startswith("<p>")
        for each in stream:
            show(each)


def taken(server: bow.Server, data: bytes, cut: tuple[float, float]) -> None:
    """Write and publish rows of what pyarrow read, which has looked at no element of it."""
    with pa.ipc.open_stream(data) as reader:
        try:
            whole = reader.read_next_batch()
        except pa.ArrowException:
            return
    start = int(cut[0] * whole.num_rows)
    batch = whole.slice(start, int(cut[1] * (whole.num_rows - start + 1)))
    sink, found = pa.BufferOutputStream(), list[bow.Batch]()
    with contextlib.suppress(bow.BowstringError):
        show(bow.Batch.from_arrow(batch))
        with bow.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        with bow.ipc.open_stream(sink.getvalue(), validate="full") as again:
            found += again
        with bow.connect(server.publish("t", batch, replace=True)) as stream:
            found += stream
    try:
        batch.validate(full=True)
    except pa.ArrowException:  # which looks at elements of children outside of the rows, too
        for each in found:
            each.to_arrow().validate(full=True)
    else:
        assert len(found) == 2
        compare(found, batch, "taken from pyarrow")


def main() -> None:
    """Try so many examples."""

    @settings(
        max_examples=int(sys.argv[1]),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(record_batches(min_columns=1, max_columns=3, types=data_types(leaves=LEAVES)), PLACES, CUTS)
    def run(batch: pa.RecordBatch, places: list[tuple[float, int, int]], cut: tuple[float, float]) -> None:
        data = mutated(batch, places)
        print(batch.schema.to_string(), places, cut, flush=True)
        taken(server, data, cut)
        expected = pyarrows(data)
        with contextlib.suppress(bow.BowstringError), bow.ipc.open_stream(data, validate="full") as reader:
            compare(list(reader), expected, "open_stream")
        try:
            with bow.ipc.open_stream(data) as reader:
                read = list(reader)
        except bow.BowstringError:
            return
        for each in read:
            show(each)
            sent(server, each, expected)

    with bow.Server("tcp://127.0.0.1:0", token="t" * 16) as server:
        run()
    print("survived")


if __name__ == "__main__":
    main()
