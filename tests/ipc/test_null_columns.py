"""Columns of type null, whatever the writer said of their nulls."""

from __future__ import annotations

import io
import struct

import pyarrow as pa
import pytest

from bowstring import ipc
from bowstring.columnar.parts import batch_parts
from bowstring.errors import InvalidMetadata

ROWS = 777  # stands nowhere else in the metadata
NULLS = pa.nulls(ROWS)
COLUMNS = {
    "alone": NULLS,
    "in a struct": pa.StructArray.from_arrays([NULLS], ["x"]),
    "in runs": pa.RunEndEncodedArray.from_arrays(pa.array(range(1, ROWS + 1), pa.int32()), NULLS),
}


def said(column: pa.Array, count: int, batches: int = 40) -> tuple[bytes, int]:
    """Return a stream whose nodes of type null count so many nulls, and how many nodes do."""
    batch = pa.record_batch({"n": column})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    node = struct.Struct("<qq")
    stream = sink.getvalue()
    found = stream.count(node.pack(ROWS, ROWS))
    return stream.replace(node.pack(ROWS, ROWS), node.pack(ROWS, count)), found


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("count", [0, 3, -1, ROWS])
def test_the_type_says_that_all_is_null(column: pa.Array, count: int) -> None:
    """However many nulls a node of type null counts, all of it is null and the batch is valid, as to pyarrow."""
    stream, found = said(column, count)
    assert found == 40
    for source in (stream, io.BytesIO(stream)):  # read ahead, and one by one
        with ipc.open_stream(source) as reader:
            for batch in reader:
                batch.validate(full=True)
                assert batch.to_arrow().column(0).equals(column)
                (node,) = [
                    each for each, kind in enumerate(batch.layout.nodes) if pa.types.is_null(kind.type)
                ]
                assert batch_parts(batch).nodes[node].tolist() == [ROWS, ROWS]
    theirs = pa.ipc.open_stream(stream).read_next_batch().column(0)
    assert theirs.to_pylist() == column.to_pylist()


def test_a_node_of_another_type_says_no_more_than_it_has() -> None:
    """Of any other type, more nulls than slots are an error."""
    values = pa.array([None] * ROWS, pa.int8())
    stream, found = said(values, ROWS + 1, batches=1)
    assert found == 1
    with pytest.raises(InvalidMetadata, match="null count"):
        ipc.open_stream(stream).read_all()
