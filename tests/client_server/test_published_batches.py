"""What is published is placed and encoded by kernels as it is without a library of kernels."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.columnar.batch import batches
from bowstring.columnar.parts import batch_parts
from bowstring.kernels.host import bound
from bowstring.kernels.ipc import batch as kernel
from bowstring.server.materialized import MaterializedSource

pytestmark = pytest.mark.skipif(
    bound(kernel.write_batch) is None, reason="no library of kernels was built here"
)

ROWS = 200
COLUMNS = {
    "numbers": pa.array([row if row % 5 else None for row in range(ROWS)]),
    "without nulls": pa.array(range(ROWS), pa.float32()),
    "flags": pa.array([row % 3 == 0 if row % 4 else None for row in range(ROWS)]),
    "text": pa.array(["é" * (row % 5) if row % 7 else None for row in range(ROWS)]),
    "nothing": pa.nulls(ROWS),
    "lists": pa.array([[row, None][: row % 3] for row in range(ROWS)], pa.list_(pa.int32())),
    "pairs": pa.array([[row % 2 == 0, None] for row in range(ROWS)], pa.list_(pa.bool_(), 2)),
    "structs": pa.array([{"u": row, "v": str(row)} if row % 6 else None for row in range(ROWS)]),
    "words": pa.array([f"d{row % 9}" for row in range(ROWS)]).dictionary_encode(),
    "views": pa.array([f"{row} is no short text" for row in range(ROWS)], pa.string_view()),
}
TABLE = pa.table(COLUMNS)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Return some columns in some chunks, which may begin within a byte of bits."""
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4, unique=True))
    cuts = sorted(draw(st.lists(st.integers(0, ROWS), min_size=2, max_size=4)))
    chosen = TABLE.select(names)
    parts = [chosen.slice(start, stop - start) for start, stop in itertools.pairwise(cuts)]
    return pa.concat_tables(parts)


def sent(table: pa.Table) -> list[tuple[bytes, list[bytes]]]:
    """Return metadata and buffers of each message."""
    schema, found = batches(table)
    source = MaterializedSource(schema, found, bow.Pool())
    messages = []
    for item in source.encoded():
        spans = [] if item.spans is None else item.spans.tolist()
        buffers = [
            item.regions[index].array(at, size).tobytes() if size else b"" for index, at, size in spans
        ]
        messages.append((item.metadata, buffers))
    return messages


@settings(max_examples=80, deadline=None)
@given(tables())
def test_both_send_the_same(table: pa.Table) -> None:
    """Metadata and bodies of tables of any chunks are alike, byte for byte."""
    compiled = sent(table)
    with pytest.MonkeyPatch.context() as context:
        context.setattr("bowstring.server.encoder.BatchEncoder.of", lambda _: None)
        # Another schema, since encoders are kept with layouts.
        plain = sent(table.replace_schema_metadata({"encoded": "otherwise"}))
    assert [each[1] for each in compiled] == [each[1] for each in plain]
    assert [each[0] for each in compiled[1:]] == [each[0] for each in plain[1:]]


def test_padding_is_zero_in_memory_that_was_used_before() -> None:
    """Between the buffers of a table there is nothing of another one that lay there before."""
    pool = bow.Pool()
    before = pool.allocate(1 << 20)
    with before.writable() as memory:
        memory[:] = 255
    before.freeze()
    del memory, before
    schema, found = batches(pa.table({"a": pa.array([1], pa.int8()), "b": pa.array(["x"])}))
    source = MaterializedSource(schema, found, pool)
    (batch,) = source.batches()
    (region,) = batch_parts(batch).spans.regions
    for _, start, size in batch_parts(batch).spans.table.tolist():
        assert not np.asarray(region.array(start + size, -size % 64)).any()


@pytest.mark.parametrize("columns", [None, ["a"]])
def test_readers_get_the_schema_that_was_named(
    serve: Callable[..., bow.Server], columns: list[str] | None
) -> None:
    """What a reader gets has the metadata of `schema=`, as the endpoint has, whatever those of the batches are."""
    server = serve("unix:")
    table = pa.table({"a": [1, 2], "b": ["x", None]}).replace_schema_metadata({"of": "the data"})
    fields = [pa.field("a", pa.int64(), metadata={"of": "a field"}), pa.field("b", pa.string())]
    schema = pa.schema(fields, {"of": "the schema"})
    expected = table.cast(schema) if columns is None else table.cast(schema).select(columns)
    with bow.connect(server.publish("first", table)) as stream:
        of_stream = list(stream)
    for data in (table.to_batches(), of_stream, lambda: iter(table.to_batches())):
        endpoint = server.publish("t", data, schema=schema, replace=True)
        with bow.connect(endpoint, columns=columns) as stream:
            assert stream.read_all().equals(expected, check_metadata=True)
