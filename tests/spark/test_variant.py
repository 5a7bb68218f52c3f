"""Variants between Spark's form and Arrow's, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.errors import InvalidData, Unsupported, UsageError
from bowstring.spark.batches import FromSpark, Normaliser
from bowstring.spark.conversions import shared
from bowstring.spark.types import variant_type
from tests.spark.values import normalise

SPARK = variant_type(pa.binary())
ROW = st.fixed_dictionaries(
    {"value": st.binary(min_size=1, max_size=9), "metadata": st.binary(min_size=1, max_size=3)}
)
ROWS = st.lists(st.none() | ROW, max_size=30)


def as_spark_writes(rows: list[Any]) -> pa.Array:
    """Return Variants with children that are null under a null, though their type allows none."""
    columns = [
        pa.array([None if row is None else row[name] for row in rows], pa.binary()) for name in SPARK.names
    ]
    valid = pa.array([row is not None for row in rows])
    bitmap = None if all(valid.to_pylist()) else valid.buffers()[1]
    return pa.Array.from_buffers(SPARK, len(rows), [bitmap], children=columns)


def nested(array: pa.Array, how: str, *, nullable: bool) -> pa.Array:
    """Return an array inside of something else, as Spark nests it."""
    rows = len(array)
    if how == "struct":
        fields = [pa.field("a", pa.int32()), pa.field("v", array.type, nullable)]
        return pa.StructArray.from_arrays([pa.array(range(rows), pa.int32()), array], fields=fields)
    offsets = pa.array(range(rows + 1), pa.int32())
    if how == "list":
        return pa.Array.from_buffers(
            pa.list_(pa.field("element", array.type, nullable)),
            rows, [None, offsets.buffers()[1]], children=[array],
        )  # fmt: skip
    keys = pa.array([str(row) for row in range(rows)], pa.string())
    fields = [pa.field("key", pa.string(), nullable=False), pa.field("value", array.type, nullable)]
    entries = pa.StructArray.from_arrays([keys, array], fields=fields)
    return pa.Array.from_buffers(pa.map_(*fields), rows, [None, offsets.buffers()[1]], children=[entries])


def leaves(array: pa.Array) -> list[Any]:
    """Return the Variants at the bottom of a nest, by name."""
    while not (pa.types.is_struct(array.type) and "metadata" in array.type.names):
        if pa.types.is_struct(array.type):
            array = array.field("v")
        else:
            array = array.items if pa.types.is_map(array.type) else array.values
    parts = {name: array.field(name) for name in ("value", "metadata")}
    if pa.types.is_dictionary(parts["metadata"].type):
        parts["metadata"] = parts["metadata"].dictionary_decode()
    rows = [
        dict(zip(parts, row, strict=True))
        for row in zip(*(part.to_pylist() for part in parts.values()), strict=True)
    ]
    return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]


@given(ROWS, st.lists(st.sampled_from(["struct", "list", "map"]), max_size=3), st.integers(0, 9))
def test_there_and_back(rows: list[Any], nest: list[str], start: int) -> None:
    """Variants at any depth, nulls among them, sliced, come from Spark and go back as they were."""
    array = as_spark_writes(rows)
    for how in nest:
        array = nested(array, how, nullable=True)
    batch = pa.record_batch({"v": array}).slice(start)
    ours = FromSpark(batch.schema)(batch)
    ours.validate(full=True)
    assert leaves(pa.record_batch({"v": array}).column("v")) == rows
    field = ours.schema.field("v")
    for how in reversed(nest):
        field = (
            field.type.field("v")
            if how == "struct"
            else field.type.item_field
            if how == "map"
            else field.type.value_field
        )
    assert field.metadata[b"ARROW:extension:name"] == b"arrow.parquet.variant"
    back = normalise(ours)
    back.validate(full=True)
    assert back.schema == Normaliser(ours.schema).schema
    assert _rows(back.column("v")) == _rows(batch.column("v"))


def _rows(array: pa.Array) -> list[Any]:
    """Return rows without a look at what a null hides."""
    return array.to_pylist()


@given(ROWS)
def test_values_are_not_copied(rows: list[Any]) -> None:
    """Both ways, the bytes of the values stay where they are."""
    batch = pa.record_batch({"v": as_spark_writes(rows)})
    ours = FromSpark(batch.schema)(batch)
    before, after = (each.column("v").field("value").buffers()[2] for each in (batch, ours))
    assert before is None or before.address == after.address
    back = normalise(ours)
    assert (
        back.column("v").field("value").buffers()[1].address
        == batch.column("v").field("value").buffers()[1].address
    ) or not rows


@given(st.lists(st.none() | st.sampled_from([b"a", b"ab", b"", b"\1\0\0", b"\1\0\1"])), st.integers(0, 3))
def test_shared_metadata_is_that_of_each_row(rows: list[Any], start: int) -> None:
    """Encoded metadata decodes to each row's, and no entry is there twice."""
    for type_ in (pa.binary(), pa.large_binary()):
        array = pa.array(rows, type_).slice(start)
        found = shared(array)
        assert found.null_count == 0
        assert [
            value for value, row in zip(found.to_pylist(), array.to_pylist(), strict=True) if row is not None
        ] == [row for row in array.to_pylist() if row is not None]
        assert len(set(found.dictionary.to_pylist())) == len(found.dictionary)


def test_metadata_that_never_repeats_is_not_copied() -> None:
    """Where a dictionary would be as long as the column, the column is the dictionary."""
    array = pa.array([b"%05d" % row for row in range(5_000)])
    found = shared(array)
    assert found.dictionary.buffers()[2].address == array.buffers()[2].address
    assert found.to_pylist() == array.to_pylist()


def test_a_dictionary_that_stays_is_the_same_object() -> None:
    """Batches with the same metadata share one dictionary, so that it travels once."""
    rows = [{"value": b"\0", "metadata": b"\1\0\0"}] * 9
    batch = pa.record_batch({"v": as_spark_writes(rows)})
    made = FromSpark(batch.schema)
    first, second = (made(batch).column("v").field("metadata").dictionary for _ in range(2))
    assert first.buffers()[2].address == second.buffers()[2].address


def test_bowstring_reads_what_comes_from_spark() -> None:
    """The kernels of Variants take the batches as they are, nulls included."""
    texts = ['{"a": 1, "b": "x"}', None, '{"a": 2}', "[1]", '{"a": 3, "b": "y"}']
    column = variant.from_json(texts)
    storage = column.to_arrow()
    rows = [
        None if text is None else {"value": value, "metadata": metadata}
        for text, value, metadata in zip(
            texts,
            storage.field("value").to_pylist(),
            storage.field("metadata").dictionary_decode().to_pylist()
            if pa.types.is_dictionary(storage.field("metadata").type)
            else storage.field("metadata").to_pylist(),
            strict=True,
        )
    ]
    batch = pa.record_batch({"v": as_spark_writes(rows)})
    ours = FromSpark(batch.schema)(batch)
    from bowstring.columnar.batch import Batch

    found = variant.get(Batch.from_arrow(ours)["v"], "$.a", pa.int64())
    assert found.to_arrow().to_pylist() == [1, None, 2, None, 3]


def test_a_missing_value_is_a_variant_null() -> None:
    """A value that is missing in a row that is there counts as a Variant null, as Parquet's text has it."""
    field = pa.field("v", pa.struct([("metadata", pa.binary()), ("value", pa.binary())]),
                     metadata={"ARROW:extension:name": "arrow.parquet.variant"})  # fmt: skip
    array = pa.array([{"metadata": b"\1\0\0", "value": None}, None], field.type)
    found = normalise(pa.RecordBatch.from_arrays([array], schema=pa.schema([field]))).column("v")
    assert found.to_pylist() == [{"value": b"\0", "metadata": b"\1\0\0"}, None]


def test_missing_metadata_is_refused() -> None:
    """A Variant without metadata is an error that names the row."""
    field = pa.field("v", pa.struct([("metadata", pa.binary()), ("value", pa.binary())]),
                     metadata={"ARROW:extension:name": "arrow.parquet.variant"})  # fmt: skip
    array = pa.array([None, {"metadata": None, "value": b"\0"}], field.type)
    with pytest.raises(InvalidData, match=r"row 1; at v\.metadata"):
        normalise(pa.RecordBatch.from_arrays([array], schema=pa.schema([field])))


def test_shredded_variants_are_refused() -> None:
    """A Variant with typed_value is named, and not read as if it had none."""
    type_ = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())])
    field = pa.field("v", type_, metadata={"ARROW:extension:name": "arrow.parquet.variant"})
    with pytest.raises(Unsupported, match="typed_value"):
        Normaliser(pa.schema([field]))


def test_another_schema_is_refused() -> None:
    """A batch of another schema in the middle of a stream is an error, in both directions."""
    batch, other = pa.record_batch({"a": [1]}), pa.record_batch({"b": [1]})
    for made in (FromSpark(batch.schema), Normaliser(batch.schema)):
        with pytest.raises(UsageError, match="another schema"):
            made(other)


@pytest.mark.parametrize("nullable", [True, False])
def test_the_schema_follows_from_names_and_types_alone(nullable: bool) -> None:
    """Batches of one query have one schema, though Spark's optimiser finds out what may not be null."""
    inside = nested(as_spark_writes([{"value": b"\0", "metadata": b"\1"}]), "struct", nullable=nullable)
    array = nested(inside, "list", nullable=nullable)
    schema = pa.schema([pa.field("v", array.type, nullable), pa.field("i", pa.int8(), nullable)])
    made = FromSpark(schema)
    inner = made.schema.field("v").type.value_field
    assert all(field.nullable for field in (*made.schema, inner, *inner.type))
    found = made(pa.RecordBatch.from_arrays([array, pa.array([1], pa.int8())], schema=schema))
    found.validate(full=True)
    assert found.schema == made.schema


def test_batches_have_the_schema_that_is_promised() -> None:
    """What Spark's plan says can never be null may be null in the batch's schema, as in every other task's."""
    given = pa.record_batch([pa.array([1, 2])], pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    convert = FromSpark(given.schema)
    assert convert(given).schema.equals(convert.schema, check_metadata=True)
    assert convert.schema.field("a").nullable
    same = convert(given)
    assert FromSpark(same.schema)(same) is same


def test_keys_of_maps_that_spark_let_be_are_taken() -> None:
    """Spark refuses maps in the keys of maps in expressions, not in schemas: what comes from it is published."""
    inner = pa.map_(pa.string(), pa.int32())
    for key in (inner, pa.struct([("m", inner)])):
        batch = pa.record_batch({"a": pa.array([], pa.map_(key, pa.int32()))})
        assert FromSpark(batch.schema)(batch).equals(batch)
