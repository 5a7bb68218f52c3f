"""Files come as streams of batches: the same values as pyarrow's, row group by row group, and no more at a time."""

from __future__ import annotations

import gc
import io
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.errors import (
    ClosedError,
    EndOfStream,
    ForkedError,
    InvalidData,
    LimitExceeded,
    MissingFile,
    UnknownColumn,
    Unsupported,
    UsageError,
)
from bowstring.testing import fake_device
from tests import strategies
from tests.parquet.logical_types import described

ROWS = 1000
TABLE = pa.table(
    {
        "id": np.arange(ROWS),
        "name": [f"row {number}" if number % 3 else None for number in range(ROWS)],
        "a.b": np.arange(ROWS) * 2,
        "s": [{"x": number, "y.z": [number, None]} for number in range(ROWS)],
    }
)


def file_of(table: pa.Table, **options: Any) -> pa.Buffer:
    """Return a file of a table."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


FILE = file_of(TABLE, row_group_size=300)


@settings(max_examples=30)
@given(strategies.tables(), st.integers(1, 50))
def test_every_table_is_read_as_pyarrow_reads_it(batches: list[pa.RecordBatch], rows: int) -> None:
    """Whatever pyarrow can write, the batches of its file are what pyarrow reads."""
    try:
        file = file_of(pa.Table.from_batches(batches), row_group_size=rows)
    except (pa.ArrowException, ValueError, OSError):
        return
    try:
        expected = pq.ParquetFile(pa.BufferReader(file)).read()
    except (pa.ArrowException, OSError):  # of what it has written itself: lists of no width
        with pytest.raises(bow.BowstringError), bow.parquet.read(file) as stream:
            stream.read_all()
        return
    with bow.parquet.read(file) as stream:
        found = stream.read_all()
    assert found.schema.metadata == expected.schema.metadata
    assert list(map(described, found.schema)) == list(map(described, expected.schema))
    assert _values(found) == _values(expected)


def _values(table: pa.Table) -> list[str]:
    """Return values as text: dictionaries are of a row group here, of a file there; NaN is unequal to itself."""
    try:
        return [repr(column.to_pylist()) for column in table.columns]
    except ValueError:  # a struct has two fields of one name
        return [repr(column.combine_chunks().flatten()) for column in table.columns]


def test_a_batch_is_a_row_group() -> None:
    """Row groups come one by one, in order, and their values are right."""
    with bow.parquet.read(FILE) as stream:
        assert (stream.schema, stream.num_rows) == (TABLE.schema, ROWS)
        batches = list(stream)
    assert [batch.num_rows for batch in batches] == [300, 300, 300, 100]
    assert pa.Table.from_batches([batch.to_arrow() for batch in batches]).equals(TABLE)


@pytest.mark.parametrize("how", ["path", "Path", "file:", "native", "file", "bytes", "Buffer"])
def test_sources(tmp_path: Path, how: str) -> None:
    """A path, a URL, an open file and memory are the same file."""
    path = tmp_path / "é a.parquet"
    path.write_bytes(FILE.to_pybytes())
    with open(path, "rb") as opened, pa.OSFile(str(path)) as native:
        source: Any = {
            "path": str(path),
            "Path": path,
            "file:": f"file:{path}".replace(" ", "%20"),
            "native": native,
            "file": opened,
            "bytes": FILE.to_pybytes(),
            "Buffer": FILE,
        }[how]
        with bow.parquet.read(source) as stream:
            assert stream.read_all().equals(TABLE)


def test_a_list_of_files_is_one_stream(tmp_path: Path) -> None:
    """Files follow one another; one with another schema is an error that names it, when it is reached."""
    paths = []
    for number in range(3):
        paths.append(tmp_path / f"{number}.parquet")
        pq.write_table(TABLE.slice(number * 300, 300), paths[-1])
    with bow.parquet.read(paths) as stream:
        assert stream.num_rows is None
        assert stream.read_all().equals(TABLE.slice(0, 900))
    pq.write_table(pa.table({"other": [1]}), paths[1])
    with (
        bow.parquet.read(paths) as stream,
        pytest.raises(InvalidData, match=r"(?s)different schemas.*1\.parquet"),
    ):
        stream.read_all()
    with pytest.raises(UsageError, match="no files"):
        bow.parquet.read([])


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["name", "id"], TABLE.select(["name", "id"])),
        (["a.b"], TABLE.select(["a.b"])),
        ([("a.b",)], TABLE.select(["a.b"])),
        (["s.x"], pa.table({"s": [{"x": number} for number in range(ROWS)]})),
        (
            [("s", "y.z"), "id"],
            pa.table({"s": [{"y.z": [n, None]} for n in range(ROWS)], "id": np.arange(ROWS)}),
        ),
        (["s.x", ("s", "y.z")], TABLE.select(["s"])),
        ([], TABLE.select([])),
    ],
    ids=["order", "dots", "tuple", "leaf", "tuple of a leaf", "all leaves", "none"],
)
def test_columns_are_chosen_by_name_and_path(columns: Any, expected: pa.Table) -> None:
    """Columns come in the order of the call; a path takes a part of a column."""
    with bow.parquet.read(FILE, columns=columns) as stream:
        assert stream.schema.equals(expected.schema)
        found = stream.read_all()
    assert found.equals(expected)
    assert found.num_rows == ROWS


def test_names_that_occur_twice() -> None:
    """All columns of a name that occurs twice come with it; each keeps its values."""
    table = pa.Table.from_arrays([pa.array([1]), pa.array(["x"]), pa.array([2.5])], names=["a", "b", "a"])
    with bow.parquet.read(file_of(table)) as stream:
        assert stream.read_all().equals(table)
    with pytest.raises(UnknownColumn, match="twice"):
        bow.parquet.read(file_of(table), columns=["a"])


@pytest.mark.parametrize("columns", ["id", ["ID"], [("s", "q")], [1], ["s.y.z.q"]])
def test_columns_that_are_not_there(columns: Any) -> None:
    """A column that the file lacks, and what is no list of columns, is a usage error at once."""
    with pytest.raises(UsageError):
        bow.parquet.read(FILE, columns=columns)


class Watched(io.BytesIO):
    """A file that knows how much of it was read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.taken += len(found)
        return found


def test_nothing_is_read_before_it_is_asked_for() -> None:
    """Opening reads the footer; one batch of many costs some row groups ahead of it, not the file."""
    table = pa.table({"n": np.random.default_rng(1).random(1_000_000)})
    file = Watched(
        file_of(table, row_group_size=10_000, compression="none", use_dictionary=False).to_pybytes()
    )
    with bow.parquet.read(file) as stream:
        opening = file.taken
        assert opening < 200_000
        assert stream.read_next_batch().num_rows == 10_000
    assert file.taken < opening + 12 * 100_000


def test_what_is_read_ahead_is_bounded() -> None:
    """No more than the window is read beside the batch that is due."""
    table = pa.table({"n": np.random.default_rng(1).random(400_000)})
    data = file_of(table, row_group_size=50_000, compression="none", use_dictionary=False)
    limits = bow.DEFAULT_LIMITS.replace(window_bytes=500_000)
    before = pa.total_allocated_bytes()
    with bow.parquet.read(data, limits=limits) as stream:
        most = 0
        for batch in stream:
            most = max(most, pa.total_allocated_bytes() - before)
            assert batch.num_rows == 50_000
            del batch
    assert most < 4 * 500_000


def test_a_row_group_larger_than_the_window_comes_in_pieces() -> None:
    """A row group that is too large is never in memory as a whole, and its values are right."""
    rows = 2_000_000
    table = pa.table({"n": np.arange(rows), "t": np.random.default_rng(1).random(rows)})
    data = file_of(table, row_group_size=rows, compression="none", use_dictionary=False)
    limits = bow.DEFAULT_LIMITS.replace(window_bytes=1_000_000)
    before = pa.total_allocated_bytes()
    total, most = 0, 0
    with bow.parquet.read(data, limits=limits) as stream:
        for batch in stream:
            assert batch["n"].values[0] == total
            total += batch.num_rows
            most = max(most, pa.total_allocated_bytes() - before)
            del batch
    assert total == rows
    assert most < rows * 16 / 3


def test_batches_live_on() -> None:
    """What was read stays true after the stream is closed; a closed stream says so; its end is an end."""
    stream = bow.parquet.read(FILE)
    first = stream.read_next_batch()
    stream.close()
    stream.close()
    assert first["id"].values.tolist() == list(range(300))
    with pytest.raises(ClosedError):
        stream.read_next_batch()
    with bow.parquet.read(FILE) as other:
        list(other)
        with pytest.raises(EndOfStream):
            other.read_next_batch()


def test_a_row_group_is_measured_by_all_that_is_read_of_it() -> None:
    """Also where columns are read apart: values by path, or what a filter compares, and the others."""
    rows = 20_000
    documents = bow.variant.from_python([{"a": number, "b": "x" * 100} for number in range(rows)], name="v")
    texts = pa.array([f"{number:0100d}" for number in range(rows)])
    data = io.BytesIO()
    table = pa.table({"v": documents.to_arrow(), "t": texts, "u": texts})
    bow.parquet.write(table, data, use_dictionary=False)
    path = bow.variant.path("v", "$.a", pa.int64())
    for options in ({"columns": [path, "t"]}, {"columns": ["t"], "filters": [("u", ">=", "0")]}):
        for window, is_whole in ((3 << 20, False), (64 << 20, True)):
            limits = bow.DEFAULT_LIMITS.replace(window_bytes=window)
            with bow.parquet.read(data.getvalue(), limits=limits, **options) as stream:
                batches = list(stream)
            assert [batch.num_rows for batch in batches] == [rows] if is_whole else len(batches) > 1
            assert sum(batch.num_rows for batch in batches) == rows
            assert batches[0].to_arrow()["t"][0].as_py() == "0" * 100


def test_a_stream_given_up_leaves_nothing(tmp_path: Path) -> None:
    """A stream that is dropped in the midst of reading ends its threads and closes its file."""
    path = tmp_path / "x.parquet"
    pq.write_table(TABLE, path, row_group_size=10)
    stream = bow.parquet.read(path)
    stream.read_next_batch()
    del stream
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("bowstring-parquet"):
            thread.join(10)
            assert not thread.is_alive()
    # Threads of pyarrow may hold the file for a moment after they have read.
    deadline = time.monotonic() + 10
    while _open_files(path) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _open_files(path)


def test_files_of_a_list_are_closed_one_by_one(tmp_path: Path) -> None:
    """A stream of 60 files has a few open at any time, also where row groups come in pieces or no row is left."""
    for number in range(60):
        pq.write_table(TABLE.slice(0, number % 3), tmp_path / f"{number}.parquet", row_group_size=1)
    paths = [tmp_path / f"{number}.parquet" for number in range(60)]
    for limits in (bow.DEFAULT_LIMITS, bow.DEFAULT_LIMITS.replace(window_bytes=1)):
        for filters in (None, [("id", "<", -5)]):
            before = _open_files(tmp_path)
            with bow.parquet.read(paths, filters=filters, limits=limits) as stream:
                counts = [_open_files(tmp_path) for _ in stream]
                assert _open_files(tmp_path) == before
            assert max(counts, default=0) <= before + 8


def test_batches_before_a_file_that_cannot_be_opened_come_first(tmp_path: Path) -> None:
    """The error of a later file comes when it is reached; no row before it is lost, and none after it is read."""
    path = tmp_path / "x.parquet"
    pq.write_table(TABLE, path, row_group_size=300)
    for files in ([path, tmp_path / "none.parquet", path], [path, file_of(TABLE.select(["id"])), path]):
        found: list[bow.Batch] = []
        with bow.parquet.read(files) as stream:
            with pytest.raises((MissingFile, InvalidData)):
                found.extend(iter(stream))
            with pytest.raises(ClosedError):
                stream.read_next_batch()
        assert pa.Table.from_batches([batch.to_arrow() for batch in found]).equals(TABLE)


def _open_files(folder: Path) -> int:
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return sum(os.path.lexists(link) and os.readlink(link).startswith(str(folder)) for link in links)


def test_a_stream_belongs_to_its_process() -> None:
    """A child of a fork is told that the stream is not its own, and does not wait for threads that it lacks."""
    stream = bow.parquet.read(FILE)
    stream.read_next_batch()
    child = os.fork()
    if not child:
        status = 1
        try:
            stream.read_next_batch()
        except ForkedError:
            status = 0
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(stream)) == 3
    stream.close()


def test_other_libraries_take_a_stream() -> None:
    """A stream goes by PyCapsule to whatever takes Arrow streams, and can be published."""
    with bow.parquet.read(FILE) as stream:
        assert pa.table(stream).equals(TABLE)
    with (
        bow.Server() as server,
        bow.parquet.read(FILE) as stream,
        bow.connect(server.publish("t", stream)) as read,
    ):
        assert read.read_all().equals(TABLE)


def test_a_device() -> None:
    """With a device, every batch is there, uploaded once, and its values are right."""
    device = fake_device()
    with bow.parquet.read(FILE, columns=["id", "name"], device=device) as stream:
        batches = list(stream)
        assert {batch.device for batch in batches} == {device}
    found = pa.Table.from_batches([batch.to_device("cpu").to_arrow() for batch in batches])
    assert found.equals(TABLE.select(["id", "name"]))


def test_int96_is_never_wrapped(parquet_test_data: Path) -> None:
    """INT96 comes as microseconds, in which the last day of the year 9999 is right."""
    with bow.parquet.read(parquet_test_data / "data" / "int96_from_spark.parquet") as stream:
        assert stream.schema.types == [pa.timestamp("us")]
        found = stream.read_all().column(0).cast(pa.int64()).to_pylist()
    assert any(each is not None and each // 86_400_000_000 == 2_932_896 for each in found)


def test_bad_files(parquet_test_data: Path, tmp_path: Path) -> None:
    """Files that are damaged, no Parquet, or not there are errors that name the file."""
    for name in ("PARQUET-1481.parquet", "ARROW-GH-41317.parquet"):
        with pytest.raises(InvalidData, match=name):
            bow.parquet.read(parquet_test_data / "bad_data" / name).read_all()
    other = tmp_path / "text.parquet"
    other.write_bytes(b"no Parquet at all")
    with pytest.raises(InvalidData, match=r"text\.parquet"):
        bow.parquet.read(other)
    with pytest.raises(UsageError, match="no such file"):
        bow.parquet.read(tmp_path / "none.parquet")
    with pytest.raises(UsageError, match="folder"):
        bow.parquet.read(tmp_path)
    with pytest.raises(UsageError):
        bow.parquet.read(3)
    with pytest.raises(Unsupported, match="gopher"):
        bow.parquet.read("gopher://x/y.parquet")
    damaged = bytearray(FILE.to_pybytes())
    damaged[10:40] = bytes(30)
    with bow.parquet.read(bytes(damaged)) as stream, pytest.raises(InvalidData):
        stream.read_all()


def test_limits_of_a_schema() -> None:
    """A schema beyond the limits is refused, where Bowstring reads it."""
    limits = bow.DEFAULT_LIMITS.replace(columns=4)
    with pytest.raises(LimitExceeded, match=r"Limits\.columns"):
        bow.parquet.read_schema(FILE, limits=limits)
    variants = pa.BufferOutputStream()
    bow.parquet.write({"v": bow.variant.from_json(["1"]), "n": [1], "m": [2]}, variants)
    with pytest.raises(LimitExceeded, match=r"Limits\.columns"):
        bow.parquet.read(variants.getvalue(), limits=limits)


def test_the_schema_of_a_file(parquet_test_data: Path) -> None:
    """The physical, logical and Arrow types of each column; also of a file that pyarrow cannot read."""
    found = bow.parquet.read_schema(FILE)
    assert [(each.path, each.physical, each.logical) for each in found.columns] == [
        (("id",), "INT64", None),
        (("name",), "BYTE_ARRAY", "STRING"),
        (("a.b",), "INT64", None),
        (("s", "x"), "INT64", None),
        (("s", "y.z", "list", "element"), "INT64", None),
    ]
    assert found.arrow.equals(TABLE.schema)
    assert [each.arrow for each in found.columns] == [
        pa.int64(),
        pa.string(),
        pa.int64(),
        pa.int64(),
        pa.int64(),
    ]
    folder = parquet_test_data / "data"
    [decimal] = bow.parquet.read_schema(folder / "int32_decimal.parquet").columns
    assert (decimal.physical, decimal.logical) == ("INT32", "DECIMAL(precision=4, scale=2)")
    [unknown] = [
        each
        for each in bow.parquet.read_schema(folder / "unknown-logical-type.parquet").columns
        if "unknown" in str(each.logical)
    ]
    assert "unknown logical type" in str(unknown.logical)
    crs = bow.parquet.read_schema(folder / "geospatial" / "crs-srid.parquet")
    assert [each.logical for each in crs.columns][-1] == "GEOMETRY(srid:5070)"


def test_row_groups_that_are_read_together_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Threads that read row groups of one file at the same time get what pyarrow reads one by one."""
    rows = [{"a": number, "b": [str(number)] * 2} for number in range(500)]
    table = pa.table({f"c{number}": rows for number in range(5)})
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, row_group_size=50)
    for _ in range(60):
        with bow.parquet.read(path) as stream:
            assert pa.table(stream).equals(table)


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="Linux counts what is read")
def test_of_a_file_elsewhere_only_what_is_needed_is_read(tmp_path: Path) -> None:
    """A small column of each row group of a file system's file takes a few requests, and no bytes of the others."""
    numbers = np.random.default_rng(0).integers(0, 1 << 60, 1 << 18)
    columns = {f"c{number}": numbers for number in range(8)}
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"small": numbers % 2, **columns}), path, row_group_size=1 << 16)
    assert path.stat().st_size > 12 << 20

    def read_bytes() -> int:
        text = Path("/proc/self/io").read_text()
        return int(text.partition("rchar: ")[2].split()[0])

    before = read_bytes()
    with bow.parquet.read(f"file://{path}", columns=["small"]) as stream:
        assert stream.read_all().num_rows == len(numbers)
    assert read_bytes() - before < 2 << 20
