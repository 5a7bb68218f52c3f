"""Tasks that read Parquet files themselves read every row once, as Spark would."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bowstring.errors import InvalidData, Unsupported
from bowstring.spark.parquet_scan import Piece, ScanTask, pieces_of
from bowstring.spark.task import Order

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
    with pytest.raises(InvalidData, match=r"lacks a column.*expected N"):
        rows_of([uri], 1, pa.schema([("N", pa.int64())]))


def read(path: Path, schema: pa.Schema) -> pa.Table:
    """Return what a task reads of one file."""
    return rows_of([f"file:{path}"], 1, schema)[1]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array(["12"]), pa.int64()),
        (pa.array([12]), pa.string()),
        (pa.array([1]), pa.int32()),
        (pa.array([1.5]), pa.float32()),
        (pa.array([1], pa.timestamp("us")), pa.timestamp("us", "UTC")),
        (pa.array([1], pa.timestamp("us", "UTC")), pa.timestamp("us")),
        (pa.array([1000], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([{"A": 1}]), pa.struct([("a", pa.int64())])),
        (pa.array([{"b": 1, "a": 2}]), pa.struct([("a", pa.int64()), ("b", pa.int64())])),
        (pa.array([{"a": 1, "c": 2}]), pa.struct([("a", pa.int64())])),
        (pa.array([[{"x": 1}]]), pa.list_(pa.struct([("X", pa.int64())]))),
        (pa.array([b"x"]), pa.string()),
        (pa.array([1], pa.duration("us")), pa.int64()),
        *((pa.array([1000], pa.duration(unit)), pa.duration("us")) for unit in ("s", "ms", "ns")),
        (pa.array([1.5], pa.float16()), pa.float32()),
    ],
    ids=str,
)
def test_what_spark_might_give_otherwise_is_refused(
    tmp_path: Path, values: pa.Array, wanted: pa.DataType
) -> None:
    """Casts that pyarrow makes in another way than Spark, or Spark not at all, are refused though they succeed."""
    pq.write_table(pa.table({"a": values}), tmp_path / "a.parquet")
    with pytest.raises(InvalidData, match="another type"):
        read(tmp_path / "a.parquet", pa.schema([("a", wanted)]))


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([255, None], pa.uint8()), pa.int16()),
        (pa.array([2**64 - 1], pa.uint64()), pa.decimal128(20, 0)),
        (pa.array(["x", "y", "x"]).dictionary_encode(), pa.string()),
        (
            pa.array([["x"], None], pa.large_list(pa.large_string())),
            pa.list_(pa.field("element", pa.string())),
        ),
        (pa.array([b"ab"], pa.binary(2)), pa.binary()),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.uint16())), pa.map_(pa.string(), pa.int32())),
        (pa.array([1500], pa.timestamp("ms", "UTC")), pa.timestamp("us", "Asia/Tokyo")),
    ],
    ids=str,
)
def test_the_same_values_in_spark_s_types(tmp_path: Path, values: pa.Array, wanted: pa.DataType) -> None:
    """What files hold in narrower types, or behind other offsets, comes in Spark's types with the same values."""
    pq.write_table(pa.table({"a": values}), tmp_path / "a.parquet")
    found = read(tmp_path / "a.parquet", pa.schema([("a", wanted)]))
    assert found["a"].type == wanted
    assert found["a"].to_pylist() == values.to_pylist()


def write_int96(path: Path, micros: list[int]) -> None:
    """Write instants as INT96, on their own and in a struct."""
    times = pa.array(micros, pa.timestamp("us"))
    table = pa.table({"t": times, "s": pa.StructArray.from_arrays([times], ["t"])})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)


def test_times_of_twelve_bytes(tmp_path: Path) -> None:
    """INT96 holds instants: those beyond nanoseconds come as they are, and with Spark's zone."""
    micros = [0, -1, 10**17, -(6 * 10**16)]
    write_int96(tmp_path / "t.parquet", micros)
    zoned = pa.timestamp("us", "Europe/Prague")
    assert read(tmp_path / "t.parquet", pa.schema([("t", zoned)]))["t"].cast(pa.int64()).to_pylist() == micros
    for field in (pa.field("t", pa.timestamp("us")), pa.field("s", pa.struct([("t", zoned)]))):
        with pytest.raises(InvalidData, match="another type"):
            read(tmp_path / "t.parquet", pa.schema([field]))


@pytest.mark.parametrize("micros", [-(5 * 10**17), -62_135_596_800_000_001, 253_402_300_800_000_000])
def test_years_that_nobody_has(tmp_path: Path, micros: int) -> None:
    """INT96 of years before 1, which pyarrow may take for years far ahead, and those after 9999, are refused."""
    write_int96(tmp_path / "t.parquet", [0, micros])
    with pytest.raises(InvalidData, match="years"):
        read(tmp_path / "t.parquet", pa.schema([("t", pa.timestamp("us", "UTC"))]))


@pytest.mark.parametrize(
    "notes",
    [
        {"org.apache.spark.version": "3.0.3"},
        {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""},
        {"org.apache.spark.version": "4.3.0", "org.apache.spark.legacyINT96": ""},
    ],
    ids=str,
)
def test_days_of_another_calendar(tmp_path: Path, notes: dict[str, str]) -> None:
    """Files whose days Spark converts from the Julian calendar are refused where days are wanted."""
    table = pa.table({"d": pa.array([0], pa.date32()), "n": [1]})
    pq.write_table(table.replace_schema_metadata(notes), tmp_path / "d.parquet")
    with pytest.raises(InvalidData, match="calendar"):
        read(tmp_path / "d.parquet", pa.schema([("d", pa.date32())]))
    assert read(tmp_path / "d.parquet", pa.schema([("n", pa.int64())])).num_rows == 1


def test_a_column_that_is_there_twice(tmp_path: Path) -> None:
    """Two columns that differ by their case alone are one for Spark, which refuses them."""
    pq.write_table(pa.table({"n": [1], "N": [2]}), tmp_path / "n.parquet")
    with pytest.raises(InvalidData, match="twice"):
        read(tmp_path / "n.parquet", pa.schema([("n", pa.int64())]))


def test_a_file_that_changes(tmp_path: Path) -> None:
    """A file that has become another one since it was cut is refused: its row groups lie elsewhere."""
    uri = write(tmp_path / "x.parquet", 10, 10)
    pieces = pieces_of([uri], 2)
    write(tmp_path / "x.parquet", 5000, 10)
    task = ScanTask(ORDER, pieces, (("n", "n"),), pa.schema([("n", pa.int64())]))
    with pytest.raises(InvalidData, match="changed"):
        list(task.read(pieces[0]))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    """A missing file is an error, not a file without rows; one without bytes has none; names may hold anything."""
    with pytest.raises(FileNotFoundError):
        pieces_of([f"file:{tmp_path}/none.parquet"], 1)
    with pytest.raises(Unsupported, match=r"no file system.*scan=.spark"):
        pieces_of(["s3a://bucket/x.parquet"], 1)
    (tmp_path / "_empty").touch()
    assert pieces_of([f"file:{tmp_path}/_empty"], 4) == []
    folder = tmp_path / "a b%20#?ä"
    folder.mkdir()
    write(folder / "x.parquet", 7, 3)
    for left in ("", "ä"):  # which Java leaves as it is
        uri = f"file://{quote(str(folder), safe='/' + left)}/x.parquet"
        assert rows_of([uri], 2)[1].num_rows == 7
