"""Tasks that read Parquet files themselves read every row once, as Spark would."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bowstring.errors import InvalidData
from bowstring.spark.scan import Piece, ScanTask, pieces_of
from bowstring.spark.task import Order, joined

ORDER = Order("app", "d#1")
FIELDS = pa.schema([("n", pa.int64()), ("s", pa.string())])


def write(path: Path, rows: int, group: int) -> str:
    """Write a file of some row groups; return its URI."""
    table = pa.table({"n": np.arange(rows), "s": [f"row {n}" for n in range(rows)]})
    pq.write_table(table, path, row_group_size=group)
    return f"file:{path}"


def rows_of(uris: list[str], least: int, schema: pa.Schema = FIELDS) -> tuple[list[Piece], pa.Table]:
    """Return the pieces, and what tasks read of them."""
    pieces = pieces_of(uris, least)
    task = ScanTask(ORDER, pieces, tuple((name, name) for name in schema.names), schema)
    return pieces, pa.Table.from_batches([b for piece in pieces for b in task.read(piece)], schema)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(1, 90)), min_size=1, max_size=4), st.integers(1, 40)
)
def test_every_row_is_read_once(tmp_path: Path, files: list[tuple[int, int]], least: int) -> None:
    """However files are cut into pieces and row groups, their rows come once, in the order of the files."""
    uris = [write(tmp_path / f"{index}.parquet", *shape) for index, shape in enumerate(files)]
    pieces, found = rows_of(uris, least)
    assert found["n"].to_pylist() == [n for rows, _ in files for n in range(rows)]
    assert list(dict.fromkeys(piece.uri for piece in pieces)) == uris


def test_the_same_instants_in_another_zone(tmp_path: Path) -> None:
    """Timestamps get the zone that Spark gives them, and stay the same instants; other units must be exact."""
    times = pa.array([0, 10**15], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"t": times}), tmp_path / "t.parquet")
    schema = pa.schema([("t", pa.timestamp("us", "Europe/Prague"))])
    _, found = rows_of([f"file:{tmp_path}/t.parquet"], 1, schema)
    assert found["t"].cast(pa.int64()).to_pylist() == [0, 10**15]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([2**40]), pa.int32()),
        (pa.array(["x"]), pa.int64()),
        (pa.array([1, 1001], pa.timestamp("ns")), pa.timestamp("us")),
    ],
    ids=["number", "text", "nanoseconds"],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, values: pa.Array, wanted: pa.DataType) -> None:
    """A file that holds what Spark's type cannot say is refused by column and file, not cut short."""
    pq.write_table(pa.table({"a": values}), tmp_path / "a.parquet")
    with pytest.raises(InvalidData, match=r"a in file:.*a\.parquet"):
        rows_of([f"file:{tmp_path}/a.parquet"], 1, pa.schema([("a", wanted)]))


def test_a_column_that_is_missing(tmp_path: Path) -> None:
    """A file without one of the columns is refused: Spark might find it under another case."""
    uri = write(tmp_path / "x.parquet", 3, 3)
    with pytest.raises(InvalidData, match="lacks a column; expected N"):
        rows_of([uri], 1, pa.schema([("N", pa.int64())]))


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 2000))
def test_small_batches_are_joined(rows: list[int], least: int) -> None:
    """Joined batches hold the same rows in order, none is empty, and all but the last have the bytes asked for."""
    ends = [0, *itertools.accumulate(rows)]
    given_batches = [
        pa.record_batch({"n": pa.array(range(a, b), pa.int64())}) for a, b in itertools.pairwise(ends)
    ]
    found = list(joined(given_batches, least))
    assert [n for batch in found for n in batch["n"].to_pylist()] == list(range(ends[-1]))
    assert all(batch.num_rows for batch in found)
    assert all(batch.nbytes >= least for batch in found[:-1])
    # What is large enough is not copied.
    large = [batch for batch in given_batches if batch.nbytes >= least]
    assert all(any(batch is each for each in joined([batch], least)) for batch in large if batch.num_rows)
