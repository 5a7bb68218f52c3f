"""Batches and columns convert to pandas, polars and Python as pyarrow does, and are indexed as its arrays are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import Batch
from bowstring.errors import UnknownColumn, UsageError
from bowstring.testing import fake_device
from tests.strategies import record_batches

TABLE = pa.record_batch(
    {
        "number": pa.array([1, None, 3]),
        "text": pa.array(["a", None, "c"]),
        "category": pa.array(["x", "y", "x"]).dictionary_encode(),
        "time": pa.array([0, 1, None], pa.timestamp("ms", "Europe/Zurich")),
        "list": pa.array([[1], None, []], pa.list_(pa.int64())),
        "uuid": pa.array([bytes(16), None, b"\x01" * 16], pa.uuid()),
    }
)


@pytest.mark.parametrize("device", ["cpu", "fake"])
def test_a_batch_converts_as_that_of_pyarrow(device: str) -> None:
    """Frames, dicts and lists of a batch, on the host or a device, equal those of pyarrow's batch."""
    batch = Batch.from_arrow(TABLE).to_device(fake_device() if device == "fake" else device)
    pd.testing.assert_frame_equal(batch.to_pandas(), TABLE.to_pandas())
    assert batch.to_polars().equals(pl.from_arrow(TABLE))
    assert batch.to_pydict() == TABLE.to_pydict()
    assert batch.to_pylist() == TABLE.to_pylist()
    assert (batch.column_names, batch.shape, len(batch)) == (TABLE.schema.names, (3, 6), 3)


@pytest.mark.parametrize("name", TABLE.schema.names)
def test_a_column_converts_as_that_of_pyarrow(name: str) -> None:
    """Series and lists of a column equal those of pyarrow's array, and have the name of the column."""
    column, array = Batch.from_arrow(TABLE)[name], TABLE.column(name)
    pd.testing.assert_series_equal(column.to_pandas(), array.to_pandas().rename(name))
    series = column.to_polars()
    assert series.name == name
    assert series.equals(pl.DataFrame(TABLE)[name])
    assert column.to_pylist() == array.to_pylist()
    assert list(column) == list(array)


@given(record_batches(), st.data())
def test_rows_are_chosen_as_from_an_array(batch: pa.RecordBatch, data: st.DataObject) -> None:
    """A row is pyarrow's scalar and a slice is a column of those rows, whatever the type and the bounds."""
    taken = Batch.from_arrow(batch)
    for position in range(batch.num_columns):
        array, column = batch.column(position), taken[position]
        bounds = st.none() | st.integers(-len(array) - 2, len(array) + 2)
        chosen = slice(data.draw(bounds), data.draw(bounds))
        assert column[chosen].to_arrow().equals(taken[position].to_arrow()[chosen])
        if len(array):
            row = data.draw(st.integers(-len(array), len(array) - 1))
            assert column[row].equals(array[row])


def test_wrong_rows_are_refused() -> None:
    """A row beyond the end is an IndexError, a step another than 1 and a name are errors."""
    column = Batch.from_arrow({"a": [1, 2]})["a"]
    for row in (2, -3):
        with pytest.raises(IndexError, match="2 rows"):
            column[row]
    with pytest.raises(UsageError, match="step"):
        column[::2]
    wrong: Any = "a"
    with pytest.raises(TypeError):
        column[wrong]


def test_a_list_of_names_chooses_columns() -> None:
    """``batch[["b", "a"]]`` is a batch of these columns in this order, over the same memory."""
    batch = Batch.from_arrow({"a": np.arange(3), "b": np.arange(3.0), "c": [1, 2, 3]})
    chosen = batch[["b", "a"]]
    assert chosen.column_names == ["b", "a"]
    assert np.shares_memory(chosen["a"].values, batch["a"].values)


def test_an_unknown_name_suggests_the_nearest_one() -> None:
    """The error of an unknown column is a KeyError, and names a column that is spelled nearly so."""
    batch = Batch.from_arrow({"passengers": [1], "fare": [2]})
    with pytest.raises(UnknownColumn, match="Did you mean 'passengers'") as raised:
        batch["pasengers"]
    assert isinstance(raised.value, KeyError)
