"""Filters are exact by row, in the forms that pyarrow takes, and paths into Variant columns are columns to them."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring import variant
from bowstring.errors import UnknownColumn, UsageError
from bowstring.parquet.file import OpenFile
from bowstring.parquet.filters import RowFilter

ROWS = 600
NUMBERS = [None if number % 7 == 0 else number % 50 for number in range(ROWS)]
TABLE = pa.table(
    {
        "id": np.arange(ROWS),
        "n": pa.array(NUMBERS, pa.int64()),
        "t": [f"t{number % 5}" for number in range(ROWS)],
        "s": [{"x": number % 10, "y": "z"} for number in range(ROWS)],
    }
)
DOCUMENTS = [
    None if number % 11 == 0 else json.dumps({"a": number % 40 if number % 3 else "text", "b.c": [number]})
    for number in range(ROWS)
]


def file_of(table: Any) -> bytes:
    """Return a file of row groups of 100 rows."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=100)
    return sink.getvalue().to_pybytes()


FILE = file_of(TABLE)
COMPARISONS = st.one_of(
    st.tuples(
        st.sampled_from(["id", "n"]),
        st.sampled_from(["=", "==", "!=", "<", ">", "<=", ">="]),
        st.integers(-5, 620),
    ),
    st.tuples(
        st.sampled_from(["id", "n"]),
        st.sampled_from(["in", "not in"]),
        st.lists(st.integers(0, 60), min_size=1),
    ),
    st.tuples(st.just("t"), st.sampled_from(["=", "!=", "<"]), st.sampled_from(["t0", "t3", "x"])),
)


@settings(max_examples=60)
@given(
    st.one_of(
        st.lists(COMPARISONS, min_size=1, max_size=3),
        st.lists(st.lists(COMPARISONS, min_size=1, max_size=2), min_size=1, max_size=3),
    ),
    st.none() | st.lists(st.sampled_from(TABLE.column_names), unique=True, min_size=1),
)
def test_the_rows_are_those_that_pyarrow_gives(filters: Any, columns: list[str] | None) -> None:
    """Every filter in tuples gives the rows that ``pyarrow.parquet.read_table`` gives, whatever the columns are."""
    with bow.parquet.read(FILE, columns=columns, filters=filters) as stream:
        found = stream.read_all()
    expected = pq.read_table(pa.BufferReader(FILE), columns=columns, filters=filters)
    assert found.equals(expected if columns is None else expected.select(columns))


def test_expressions() -> None:
    """Expressions are taken, of fields inside columns, too; what is null is left out."""
    expression = ((pc.field("n") > 45) & (pc.field("s", "x") < 7)) | (pc.field("id") == 3)
    with bow.parquet.read(FILE, columns=["id", "s.y"], filters=expression) as stream:
        found = stream.read_all()
    rows = [i for i in range(ROWS) if ((NUMBERS[i] or 0) > 45 and i % 10 < 7) or i == 3]
    assert found.to_pydict() == {"id": rows, "s": [{"y": "z"}] * len(rows)}
    with bow.parquet.read(
        FILE, filters=pc.field(0) < 2
    ) as stream:  # by position: pyarrow cannot say which column
        assert stream.read_all()["id"].to_pylist() == [0, 1]


def test_statistics_leave_out_row_groups() -> None:
    """Row groups without a row that can match are not looked at; those that might have one are."""
    file = OpenFile(FILE)
    assert RowFilter([("id", ">", 450)]).row_groups(file) == [4, 5]
    assert RowFilter([[("id", "<", 5)], [("id", "==", 599)]]).row_groups(file) == [0, 5]
    assert RowFilter(pc.field("t") == "t3").row_groups(file) == list(range(6))
    assert RowFilter([("id", ">", 449.5), ("n", "!=", 3.5)]).row_groups(file) == [4, 5]
    assert RowFilter([("id", "in", [7, 2**70, 512.0])]).row_groups(file) == [0, 5]
    assert RowFilter([("id", "<", -(2**70))]).row_groups(file) == []
    assert RowFilter(~(pc.field("id") < 500)).row_groups(file) == [5]


def test_statistics_of_floats_leave_out_row_groups_but_not_for_what_nan_passes() -> None:
    """Bounds do not say whether there is a NaN, and do not tell zeros apart."""
    x = pc.field("x")
    file = OpenFile(file_of(pa.table({"x": np.arange(ROWS) / 2})))
    assert RowFilter((x > 99.4) & (x < 150)).row_groups(file) == [1, 2]
    assert RowFilter(x.isin([0.0, 40.0])).row_groups(file) == [0]
    assert RowFilter(~(x != 250.0)).row_groups(file) == [5]
    for passed in (x != 1.0, ~(x < 1e9), ~x.isin([-0.0]), x.is_nan(), x.isin([float("nan")])):
        assert RowFilter(passed).row_groups(file) == list(range(6))


def documents() -> bytes:
    """Return a file with a Variant column."""
    table = pa.table({"id": np.arange(ROWS), "v": variant.from_json(DOCUMENTS).to_arrow()})
    sink = pa.BufferOutputStream()
    bow.parquet.write(table, sink, row_group_size=100)
    return sink.getvalue().to_pybytes()


@pytest.mark.filterwarnings("ignore:.* are not numbers:UserWarning")
def test_paths_into_variants() -> None:
    """A path stands for a name in tuples and in expressions; values of other types match nothing."""
    file = documents()
    path = variant.path("v", "$.a", pa.int64())

    def value(row: int) -> int | None:
        return row % 40 if row % 11 and row % 3 else None

    expected = [row for row in range(ROWS) if (value(row) or 0) > 30]
    for filters in ([(path, ">", 30)], path > 30, pickle.loads(pickle.dumps(path)) > 30):
        with bow.parquet.read(file, columns=["id"], filters=filters) as stream:
            assert stream.schema.names == ["id"]
            assert stream.read_all()["id"].to_pylist() == expected
    inside = variant.path("v", ["b.c", 0], pa.int32())
    with bow.parquet.read(file, filters=(inside >= 590) & (pc.field("id") != 595)) as stream:
        found = stream.read_all()
    assert found["id"].to_pylist() == [590, 591, 592, 593, 596, 597, 598, 599]
    column = bow.Batch.from_arrow(found.select(["v"]))
    assert variant.get(column, "$['b.c'][0]", pa.int64()).to_arrow().to_pylist() == found["id"].to_pylist()


@pytest.mark.parametrize(
    ("filters", "error"),
    [
        ([], UsageError),
        ("id > 3", UsageError),
        ([("id", "~", 3)], UsageError),
        ([("no", ">", 3)], UnknownColumn),
        (pc.field("id") + 1, UsageError),
        (pc.field("id") > "x", UsageError),
        ([(variant.path("id", "$.a", pa.int64()), ">", 3)], UsageError),
        ([(pc.field("id") + 1, ">", 3)], UsageError),
    ],
    ids=[
        "empty",
        "text",
        "operator",
        "column",
        "no comparison",
        "type",
        "no Variant",
        "expression in a tuple",
    ],
)
def test_filters_that_mean_nothing(filters: Any, error: type[Exception]) -> None:
    """What is no filter, or does not fit the file, is a usage error."""
    with pytest.raises(error):
        bow.parquet.read(FILE, filters=filters).read_all()


def test_large_row_groups_are_filtered_piece_by_piece() -> None:
    """A row group larger than the window is filtered as the others are."""
    table = pa.table({"n": np.arange(400_000), "t": np.arange(400_000) % 7})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    limits = bow.DEFAULT_LIMITS.replace(window_bytes=1000)
    with bow.parquet.read(sink.getvalue(), columns=["n"], filters=[("t", "==", 3)], limits=limits) as stream:
        assert stream.read_all().equals(table.filter(pc.field("t") == 3).select(["n"]))
