"""What is written comes back, pyarrow and DuckDB read it, and what failed leaves no file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.errors import ClosedError, Unsupported, UsageError
from bowstring.parquet import ParquetWriter
from bowstring.testing import fake_device
from tests import strategies

TABLE = pa.table({"id": np.arange(1000), "name": [f"row {number}" for number in range(1000)]})


@settings(max_examples=30)
@given(strategies.tables(), st.integers(1, 50))
def test_what_pyarrow_can_write_comes_back(batches: list[pa.RecordBatch], rows: int) -> None:
    """Batches of every type that pyarrow writes are read as pyarrow's own file of them is."""
    table = pa.Table.from_batches(batches)
    theirs, ours = io.BytesIO(), io.BytesIO()
    refused = None
    try:
        bow.parquet.write(table, ours, row_group_size=rows)
    except Unsupported as error:
        if "no width" in str(error):  # pyarrow ends the process for rows of such types
            return
        refused = error
    try:
        pq.write_table(table, theirs)
    except (pa.ArrowException, ValueError):
        return
    assert refused is None
    found, expected = (pq.ParquetFile(io.BytesIO(file.getvalue())).read() for file in (ours, theirs))
    assert found.schema.equals(expected.schema, check_metadata=True)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())
    with bow.parquet.read(ours.getvalue()) as stream:
        assert repr(stream.read_all().to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        TABLE.to_reader(),
        bow.Batch.from_arrow(TABLE),
        {"id": TABLE["id"], "name": TABLE["name"]},
        TABLE.to_batches(300),
    ],
    ids=["table", "reader", "batch", "mapping", "iterable"],
)
def test_all_that_is_arrow_data_is_written(data: Any, tmp_path: Path) -> None:
    """Tables, readers, batches, mappings and iterables of batches are written alike."""
    path = tmp_path / "x.parquet"
    bow.parquet.write(data, path)
    assert pq.read_table(path).equals(TABLE)
    assert [each.name for each in tmp_path.iterdir()] == ["x.parquet"]


def test_small_batches_share_row_groups(tmp_path: Path) -> None:
    """Row groups have as many rows as was asked for, however small or large the batches are."""
    path = tmp_path / "x.parquet"
    bow.parquet.write(TABLE.to_batches(7), path, row_group_size=100, compression="zstd")
    footer = pq.read_metadata(path)
    rows = [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]
    assert sum(rows) == 1000
    assert max(rows) <= 100
    assert len(rows) <= 20
    assert footer.row_group(0).column(0).compression == "ZSTD"
    assert bow.parquet.read(path).read_all().equals(TABLE)


def test_a_stream_larger_than_memory() -> None:
    """Batches are let go of as row groups are written: 1 GB passes in a fraction of it."""
    block = np.zeros(1 << 20)
    before = pa.total_allocated_bytes()
    most = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for number in range(128):
            most = max(most, pa.total_allocated_bytes() - before)
            yield pa.record_batch({"a": pa.array(block + number)})

    file = io.BytesIO()
    bow.parquet.write(batches(), file, schema=pa.schema({"a": pa.float64()}))
    assert pq.read_metadata(io.BytesIO(file.getvalue())).num_rows == 128 << 20
    assert most < 400 << 20


def test_what_fails_leaves_no_file(tmp_path: Path) -> None:
    """A source that fails half-way leaves the file that was there before, and nothing that looks like a new one."""
    path = tmp_path / "x.parquet"
    bow.parquet.write(TABLE, path)

    def failing() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        bow.parquet.write(failing(), path)
    assert pq.read_table(path).equals(TABLE)
    file = io.BytesIO()
    with pytest.raises(RuntimeError, match="no more"):
        bow.parquet.write(failing(), file, row_group_size=10)
    assert not file.getvalue().endswith(b"PAR1") or len(file.getvalue()) == 4
    url = f"file://{tmp_path}/y.parquet"
    with pytest.raises(RuntimeError, match="no more"):
        bow.parquet.write(failing(), url)
    assert [each.name for each in tmp_path.iterdir()] == ["x.parquet"]
    bow.parquet.write(TABLE, url)
    assert bow.parquet.read(url).read_all().equals(TABLE)


def test_a_writer(tmp_path: Path) -> None:
    """A writer takes batches one by one; closed, it takes no more."""
    path = tmp_path / "x.parquet"
    with ParquetWriter(path, TABLE.schema) as writer:
        for batch in TABLE.to_batches(100):
            writer.write_batch(batch)
    writer.close()
    assert pq.read_table(path).equals(TABLE)
    with pytest.raises(ClosedError):
        writer.write_batch(TABLE.to_batches()[0])
    with ParquetWriter(path, TABLE.schema):
        pass
    assert bow.parquet.read(path).read_all().equals(TABLE.slice(0, 0))


def test_batches_of_a_device(tmp_path: Path) -> None:
    """Batches of a device are copied to the host and written."""
    batch = bow.Batch.from_arrow(TABLE).to_device(fake_device())
    bow.parquet.write(batch, tmp_path / "x.parquet")
    assert pq.read_table(tmp_path / "x.parquet").equals(TABLE)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    """Types that Parquet lacks, folders that are not there and unknown options are named."""
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    with pytest.raises(Unsupported, match="union"):
        bow.parquet.write(pa.table({"u": union}), tmp_path / "x.parquet")
    with pytest.raises(UsageError, match="no such folder"):
        bow.parquet.write(TABLE, tmp_path / "none" / "x.parquet")
    with pytest.raises(UsageError, match="nonsense"):
        bow.parquet.write(TABLE, tmp_path / "x.parquet", nonsense=True)
    with pytest.raises(UsageError, match="not Arrow data"):
        bow.parquet.write(3, tmp_path / "x.parquet")
    with pytest.raises(UsageError, match="row group"):
        bow.parquet.write(TABLE, tmp_path / "x.parquet", row_group_size=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"", b""], pa.binary(0)),
        pa.array([b""], pa.binary(0)).dictionary_encode(),
        pa.array([[], None], pa.list_(pa.string(), 0)),
    ],
    ids=["bytes", "dictionary", "lists"],
)
def test_types_of_no_width_are_refused(column: Any) -> None:
    """A type that Parquet does not have is an error of ours, inside others, too."""
    inside = pa.array([{"b": None}], pa.struct([("b", column.type)]))
    for values in (column, inside):
        with pytest.raises(Unsupported, match="no width"):
            bow.parquet.write(pa.table({"a": values}), io.BytesIO())
