"""Batches are taken from anything that is Arrow data, one by one and no sooner than asked for."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import nanoarrow as na
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given

from bowstring.columnar import Batch, batches
from bowstring.columnar.one_column import one_column
from bowstring.errors import UsageError
from tests.strategies import schemas, tables

NUMBERS = {"a": [1, 2, 3], "b": ["x", None, "z"]}
TABLE = pa.table(NUMBERS)


class ArrayProducer:
    """Speaks ``__arrow_c_array__`` only."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return TABLE.to_batches()[0].__arrow_c_array__(requested_schema)


class StreamProducer:
    """Speaks ``__arrow_c_stream__`` only."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return TABLE.__arrow_c_stream__(requested_schema)


SOURCES: dict[str, Any] = {
    "table": lambda: TABLE,
    "record batch": lambda: TABLE.to_batches()[0],
    "reader": TABLE.to_reader,
    "struct array": lambda: TABLE.to_struct_array().chunk(0),
    "array producer": ArrayProducer,
    "stream producer": StreamProducer,
    "polars": lambda: pl.DataFrame(NUMBERS),
    "pandas": lambda: pd.DataFrame(NUMBERS),
    "nanoarrow array": lambda: na.Array(TABLE.to_batches()[0]),
    "nanoarrow stream": lambda: na.ArrayStream(TABLE),
    "batch": lambda: Batch.from_arrow(TABLE),
    "dict": lambda: {"a": np.array([1, 2, 3]), "b": np.array(["x", None, "z"], object)},
    "dict of arrow": lambda: {"a": pa.chunked_array([[1, 2], [3]]), "b": pl.Series(["x", None, "z"])},
}


@pytest.mark.parametrize("kind", SOURCES)
def test_everything_that_speaks_arrow_is_taken(kind: str) -> None:
    """The same rows come from every kind of source, as one batch and as a stream of batches."""
    one = Batch.from_arrow(SOURCES[kind]())
    assert one.to_pandas().to_dict("list")["a"] == [1, 2, 3]
    assert one["b"].to_arrow().to_pylist() == ["x", None, "z"]
    schema, taken = batches(SOURCES[kind]())
    assert schema.names == ["a", "b"]
    assert sum(batch.num_rows for batch in taken) == 3


DTYPES: dict[str, tuple[Any, pa.DataType]] = {
    "text": (np.array(["a", "bc"]), pa.string()),
    "objects": (np.array(["a", None], object), pa.string()),
    "days": (np.array(["2013-01-01", "NaT"], "M8[D]"), pa.date32()),
    "instants": (np.array(["2013-01-01T00:00:01", "NaT"], "M8[ns]"), pa.timestamp("ns")),
    "durations": (np.array([1, 2], "m8[ms]"), pa.duration("ms")),
    "flags": (np.array([True, False]), pa.bool_()),
    "half": (np.array([1, 2], np.float16), pa.float16()),
    "every other": (np.arange(4)[::2], pa.int64()),
    "backwards": (np.arange(2)[::-1], pa.int64()),
    "masked": (np.ma.MaskedArray([1, 2], [False, True]), pa.int64()),
    "bytes": (np.array([b"a", b"b"]), pa.binary()),
}


@pytest.mark.parametrize("kind", DTYPES)
def test_dicts_of_numpy_arrays(kind: str) -> None:
    """NumPy arrays of every useful dtype become columns of the type that pyarrow gives them."""
    values, expected = DTYPES[kind]
    batch = Batch.from_arrow({"c": values})
    assert batch.schema.field("c").type == expected
    assert (
        batch["c"].to_arrow().to_pylist() == pa.array(np.ma.getdata(values)).to_pylist() or kind == "masked"
    )
    if kind == "masked":
        assert batch["c"].to_arrow().to_pylist() == [1, None]


def test_numbers_are_not_copied() -> None:
    """A NumPy array and a pyarrow buffer are seen where they are."""
    numbers = np.arange(10.0)
    assert Batch.from_arrow({"a": numbers})["a"].raw_values.ctypes.data == numbers.ctypes.data
    array = pa.array([1, 2, 3, None])
    part = Batch.from_arrow({"a": array.slice(2)})["a"]
    assert part.raw_values.ctypes.data == array.buffers()[1].address + 16


@given(parts=tables())
def test_streams_give_batch_after_batch(parts: list[pa.RecordBatch]) -> None:
    """Lists, generators, readers and tables give equal rows in order, with one schema."""
    schema = parts[0].schema
    expected = pa.Table.from_batches(parts)
    for source in (parts, iter(parts), pa.RecordBatchReader.from_batches(schema, parts), expected):
        found, taken = batches(source)
        got = [batch.to_arrow() for batch in taken]
        assert found.equals(schema, check_metadata=True)
        assert len(got) == len(parts) or source is expected
        if len(schema):
            decoded = [each for part in got for each in [part] if part.num_rows]
            whole = pa.Table.from_batches(decoded, schema)
            assert whole.num_rows == expected.num_rows
            if got and not any(_has_dictionary(field.type) for field in schema):
                assert whole.equals(expected)


def _has_dictionary(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        return True
    return any(_has_dictionary(type_.field(index).type) for index in range(type_.num_fields))


@given(schema=schemas())
def test_no_rows_of_any_schema(schema: pa.Schema) -> None:
    """A stream without batches gives its schema and nothing, and as one batch it has no rows."""
    reader = pa.RecordBatchReader.from_batches(schema, [])
    assert list(batches(reader)[1]) == []
    empty = Batch.from_arrow(pa.RecordBatchReader.from_batches(schema, []))
    empty.validate(full=True)
    assert empty.num_rows == 0
    assert empty.to_arrow().schema.equals(schema, check_metadata=True)


def test_chunks_are_joined_for_one_batch() -> None:
    """A table of several chunks becomes one batch, and its dictionaries one dictionary."""
    chunks = [pa.array(["x", "y"]).dictionary_encode(), pa.array(["y", "z"]).dictionary_encode()]
    batch = Batch.from_arrow(pa.table({"d": pa.chunked_array(chunks)}))
    assert batch["d"].to_arrow().to_pylist() == ["x", "y", "y", "z"]


def test_chunks_of_a_table_share_one_dictionary() -> None:
    """The batches of a table with one dictionary a chunk share one object, of all values."""
    chunks = [pa.array([word, "y"]).dictionary_encode() for word in "xyz"]
    table = pa.table({"d": pa.chunked_array(chunks), "n": pa.chunked_array([[1, 2], [3], [4, 5, 6]])})
    taken = list(batches(table)[1])
    assert len({id(batch.dictionaries[0]) for batch in taken}) == 1
    assert len(taken[0].dictionaries[0]) == 3
    assert [value for batch in taken for value in batch["d"].to_arrow().to_pylist()] == [
        "x",
        "y",
        "y",
        "y",
        "z",
        "y",
    ]


def test_dictionaries_that_cannot_be_unified_stay_apart() -> None:
    """Where pyarrow cannot unify dictionaries, each batch keeps its own."""
    chunks = [pa.DictionaryArray.from_arrays([0], pa.array([[number]])) for number in (1, 2)]
    taken = list(batches(pa.table({"d": pa.chunked_array(chunks)}))[1])
    assert [batch["d"].dictionary.to_arrow().to_pylist() for batch in taken] == [[[1]], [[2]]]  # type: ignore[union-attr]


def test_generators_are_run_when_batches_are_asked_for() -> None:
    """With a schema nothing runs before it is asked for, without one the first item does; none is kept."""
    made: list[weakref.ref[pa.RecordBatch]] = []

    def items() -> Iterator[pa.RecordBatch]:
        for number in range(5):
            batch = pa.record_batch({"a": np.full(3, number)})
            made.append(weakref.ref(batch))
            yield batch
            del batch

    schema, taken = batches(items(), pa.schema({"a": pa.int64()}))
    assert made == []
    schema, taken = batches(items())
    assert schema.names == ["a"]
    assert len(made) == 1
    for number, batch in enumerate(taken):
        assert batch["a"].raw_values.tolist() == [number] * 3
        del batch
        gc.collect()
        assert all(reference() is None for reference in made[:-1])
    assert len(made) == 5


def test_items_may_be_anything() -> None:
    """An iterable may mix tables, dicts and batches, as long as their schema is one."""
    table = pa.table({"a": pa.chunked_array([[2], [3]])})
    _, taken = batches([{"a": [1]}, table, Batch.from_arrow({"a": [4]})])
    assert [value for batch in taken for value in batch["a"].raw_values.tolist()] == [1, 2, 3, 4]


BAD: dict[str, Any] = {
    "nothing": lambda: None,
    "a number": lambda: 7,
    "text": lambda: "trips.parquet",
    "an array": lambda: pa.array([1]),
    "a struct with nulls": lambda: pa.array([{"a": 1}, None]),
    "two dimensions": lambda: {"a": np.zeros((2, 2))},
    "unequal lengths": lambda: {"a": [1], "b": [1, 2]},
    "swapped bytes": lambda: {"a": np.array([1], ">i4")},
    "mixed objects": lambda: {"a": np.array([1, "x"], object)},
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_record_batch_is_refused(kind: str) -> None:
    """What cannot be a record batch raises a UsageError that says what it was."""
    with pytest.raises(UsageError):
        Batch.from_arrow(BAD[kind]())
    with pytest.raises(UsageError):
        list(batches(BAD[kind]())[1])


def test_arrays_that_end_behind_their_buffers_are_refused() -> None:
    """An array of pyarrow whose last offset leads outside is an error, alone, in chunks, and as one column."""
    offsets = np.array([0, 1, 2], np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"abcdefghijkl")]
    texts = pa.Array.from_buffers(pa.string(), 2, buffers)
    rows = pa.StructArray.from_arrays([texts], ["a"])
    sources: list[Any] = [rows, pa.chunked_array([rows]), {"a": texts}, {"a": pa.chunked_array([texts])}]
    for source in sources:
        assert Batch.from_arrow(source)["a"].to_arrow().to_pylist() == ["a", "b"]
    offsets[2] = 2**31 - 1
    for source in sources:
        with pytest.raises(UsageError, match="2147483647"):
            Batch.from_arrow(source)
        with pytest.raises(UsageError, match="2147483647"):
            list(batches(source)[1])
    for column in (texts, pa.chunked_array([texts]), pa.chunked_array([texts, texts])):
        with pytest.raises(UsageError, match="2147483647"):
            one_column(column, "a")


def test_schemas_must_agree() -> None:
    """A second schema in a stream, an empty iterable without a schema, and a wrong one given are refused."""
    _, taken = batches([{"a": [1]}, {"a": ["x"]}])
    with pytest.raises(UsageError, match="another schema"):
        list(taken)
    with pytest.raises(UsageError, match="schema="):
        batches([])
    assert list(batches([], TABLE.schema)[1]) == []
    with pytest.raises(UsageError, match="another schema"):
        batches(TABLE, pa.schema({"a": pa.string()}))
