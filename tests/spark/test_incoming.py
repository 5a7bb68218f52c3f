"""What a task publishes of what Spark hands it: the same rows, in batches that are worth a reader's while."""

from __future__ import annotations

import itertools

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from bowstring.spark.batches import incoming, joined
from bowstring.spark.types import variant_type


def batches_of(rows: list[int]) -> list[pa.RecordBatch]:
    """Return batches of so many rows, numbered through."""
    ends = [0, *itertools.accumulate(rows)]
    return [pa.record_batch({"n": pa.array(range(a, b), pa.int64())}) for a, b in itertools.pairwise(ends)]


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 2000))
def test_small_batches_are_joined(rows: list[int], least: int) -> None:
    """The same rows come in order, none empty, large batches as they were, and no two small ones in a row."""
    source = batches_of(rows)
    found = list(joined(source, least))
    assert [n for batch in found for n in batch["n"].to_pylist()] == list(range(sum(rows)))
    assert all(batch.num_rows for batch in found)
    assert all(max(a.nbytes, b.nbytes) >= least for a, b in itertools.pairwise(found))
    large = [batch for batch in source if batch.num_rows and batch.nbytes >= least]
    assert all(any(batch is each for each in found) for batch in large)


def test_a_large_batch_goes_on_at_once() -> None:
    """A batch that is large enough is not held back until the next one comes."""
    taken = []

    def arriving() -> object:
        for batch in batches_of([100, 100]):
            taken.append(batch)
            yield batch

    next(joined(arriving(), 8))  # type: ignore[arg-type]
    assert len(taken) == 1


def test_small_batches_are_converted_joined() -> None:
    """Variants of small batches come as one batch in Arrow's own form, with the schema that is said before."""
    rows = pa.array([{"value": b"\x0c\x2a", "metadata": b"\x01\x00\x00"}], variant_type(pa.binary()))
    schema, present = incoming([pa.record_batch({"v": rows})] * 3)
    [batch] = present
    assert schema is not None
    assert batch.num_rows == 3
    assert batch.schema == schema
    assert batch.schema.field("v").metadata[b"ARROW:extension:name"] == b"arrow.parquet.variant"


def test_nothing_has_no_schema() -> None:
    """Empty batches, or none, are a partition without rows."""
    for source in ([], batches_of([0, 0])):
        schema, present = incoming(source)
        assert schema is None
        assert not list(present)


def test_columns_get_their_names_back() -> None:
    """Columns that Spark was given by position have their own names again, repeated ones and dots included."""
    schema, present = incoming([pa.record_batch({"c0": [1], "c1": ["a"]})] * 2, ["a.b", "a.b"])
    [batch] = present
    assert schema is not None
    assert schema.names == batch.schema.names == ["a.b", "a.b"]
    assert [column.to_pylist() for column in batch.columns] == [[1, 1], ["a", "a"]]


def test_null_shapes_hold_no_null_where_none_may_be() -> None:
    """Spark leaves the children of a null GEOMETRY null; readers get children without nulls, as the schema says."""
    fields = [
        pa.field("srid", pa.int32(), nullable=False),
        pa.field("wkb", pa.binary(), nullable=False, metadata={"geometry": "true", "srid": "4326"}),
    ]
    children = [pa.array([4326, None], pa.int32()), pa.array([b"\x01", None], pa.binary())]
    bitmap = pa.array([True, False]).buffers()[1]
    shapes = pa.Array.from_buffers(pa.struct(fields), 2, [bitmap], children=children)
    schema, present = incoming([pa.record_batch({"g": shapes})])
    [batch] = present
    assert batch.schema == schema
    assert batch["g"].to_pylist() == [{"srid": 4326, "wkb": b"\x01"}, None]
    assert [batch["g"].field(name).null_count for name in ("srid", "wkb")] == [0, 0]
