"""Row groups come to a device as the batches that pyarrow reads: decoded there by (a fake of) pylibcudf, else
uploaded column by column.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring import variant
from bowstring.errors import InvalidData, LimitExceeded, Unsupported
from bowstring.testing import FakeDevice, OnlyCurrent, fake_device
from tests import strategies
from tests.columnar import fake_rapids
from tests.columnar.fake_rapids import ParquetReader
from tests.parquet import footers as claims
from tests.parquet.footers import rechunked

ROWS = 100
SAME = {
    "id": pa.array(range(ROWS)),
    "a.b": pa.array([f"row {row}" if row % 3 else None for row in range(ROWS)]),
    "day": pa.array(range(ROWS), pa.date32()),
    "at": pa.array(range(ROWS), pa.timestamp("us", "Europe/Zurich")),
    "nested": pa.array(
        [{"x": [row, None], "y": {"z": str(row)}} if row % 7 else None for row in range(ROWS)]
    ),
}
CHANGED = {
    "bytes": pa.array([b"x"] * ROWS),
    "price": pa.array(range(ROWS), pa.int64()).cast(pa.decimal128(20, 0)),
    "time": pa.array(range(ROWS), pa.time64("us")),
    "took": pa.array(range(ROWS), pa.duration("us")),
    "map": pa.array([[("k", row)] for row in range(ROWS)], pa.map_(pa.string(), pa.int64())),
    "word": pa.array(["u", "v"] * (ROWS // 2)).dictionary_encode(),
    "v": pa.array([0] * ROWS),
}


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> ParquetReader:
    """Return a fake of pylibcudf's reader, where it would be imported from."""
    return fake_rapids.install_parquet(monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Return a file of several row groups, with columns that cuDF has other types for between others."""
    columns: dict[str, Any] = {}
    for one, other in zip(SAME.items(), CHANGED.items(), strict=False):
        columns.update((one, other))
    columns |= CHANGED
    columns["v"] = variant.from_python([{"a": row} for row in range(ROWS)])
    path = tmp_path / "file.parquet"
    bow.parquet.write(columns, path, row_group_size=40)
    return str(path)


def _read(source: Any, **options: Any) -> tuple[pa.Schema, list[Any]]:
    with OnlyCurrent(), bow.parquet.read(source, device=fake_device(1), **options) as stream:
        batches = list(stream)
        assert all(batch.schema.equals(stream.schema, check_metadata=True) for batch in batches)
        assert {batch.device for batch in batches} <= {fake_device(1)}
        return stream.schema, [batch.to_device("cpu").to_arrow() for batch in batches]


def _on_host(source: Any, **options: Any) -> tuple[pa.Schema, list[Any]]:
    with bow.parquet.read(source, **options) as stream:
        return stream.schema, [batch.to_arrow() for batch in stream]


CHOICES: list[dict[str, Any]] = [
    {},
    {"columns": ["took", "id", "v", "a.b", "nested"]},
    {"columns": ["nested.y", "id", "bytes"]},
    {"columns": ["at", variant.path("v", "$.a", pa.int64()), "day", variant.path("v", "$", variant.type())]},
    {"columns": [variant.path("v", "$.a", pa.int64())]},
    {"columns": []},
    {"filters": [("id", ">", 75)]},
    {"filters": variant.path("v", "$.a", pa.int64()) < 3, "columns": ["a.b", "v"]},
    {"limits": bow.Limits(window_bytes=1)},
    {"limits": bow.Limits(window_bytes=1), "columns": ["id", "nested"]},
]


@pytest.mark.parametrize("options", CHOICES, ids=str)
@pytest.mark.parametrize("installed", [False, True])
def test_batches_of_a_device_are_those_of_the_host(
    options: dict[str, Any], installed: bool, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installed:
        fake_rapids.install_parquet(monkeypatch)
    schema, batches = _read(file, **options)
    expected, there = _on_host(file, **options)
    assert schema.equals(expected, check_metadata=True)
    assert [batch.num_rows for batch in batches] == [batch.num_rows for batch in there]
    assert repr([batch.to_pylist() for batch in batches]) == repr([batch.to_pylist() for batch in there])


@pytest.mark.parametrize(
    "data",
    [
        claims.file([claims.page(claims.NUMBERS, 6)], 7, 7),
        claims.file([claims.page(claims.NUMBERS, 5)], 6, 6),
        claims.file([claims.page(claims.NUMBERS, 6, raw=claims.MOST)], 6, 6),
        rechunked(
            claims.file([claims.page(claims.NUMBERS, 6)], 6, 6),
            lambda facts: {**facts, 7: facts[7]._replace(value=1 << 40)},
        ),
    ],
    ids=["rows", "values", "size", "place"],
)
def test_files_that_contradict_themselves_never_come_to_libcudf(
    data: bytes, reader: ParquetReader, tmp_path: Path
) -> None:
    """What pages and footers claim is compared before a library of the device believes it."""
    path = tmp_path / "file.parquet"
    path.write_bytes(data)
    with pytest.raises((InvalidData, LimitExceeded)):
        _read(str(path))
    assert reader.calls == []
    path.write_bytes(claims.file([claims.page(claims.NUMBERS, 6)], 6, 6))
    assert [batch.num_rows for batch in _read(str(path))[1]] == [6]
    assert len(reader.calls) == 1


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=strategies.tables(), rows=st.integers(1, 50))
def test_every_table_comes_to_a_device(
    batches: list[pa.RecordBatch], rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "random.parquet"
    try:
        bow.parquet.write(pa.Table.from_batches(batches), path, row_group_size=rows)
    except Unsupported:
        return
    fake_rapids.install_parquet(monkeypatch)
    _, found = _read(path)
    _, expected = _on_host(path)
    assert repr([each.to_pylist() for each in found]) == repr([each.to_pylist() for each in expected])


def test_pylibcudf_decodes_the_columns_whose_types_it_keeps(reader: ParquetReader, file: str) -> None:
    """It is asked for each row group once, for these columns only, and nothing of them goes to the host."""
    device = fake_device(1)
    device.stats.reset()
    with bow.parquet.read(file, columns=list(SAME), device=device) as stream:
        batches = list(stream)
    numbers = [pq.ParquetFile(file).schema_arrow.get_field_index(name) for name in SAME]
    assert reader.calls == [([[group]], numbers) for group in range(3)]
    assert device.stats.host_read_bytes < 2000  # ends of text and lists
    found = pa.Table.from_batches([batch.to_device("cpu").to_arrow() for batch in batches])
    assert found.to_pydict() == pa.table(SAME).to_pydict()


def test_files_that_pylibcudf_cannot_open_and_filtered_rows_are_decoded_by_pyarrow(
    reader: ParquetReader, file: str
) -> None:
    data = Path(file).read_bytes()
    for source in (data, pa.BufferReader(data), f"file:{file}"):
        assert len(_read(source)[1]) == 3
    _read(file, filters=[("id", ">", 3)])
    assert reader.calls == []


def test_a_row_group_that_libcudf_has_another_type_for_is_decoded_by_pyarrow(
    reader: ParquetReader, file: str
) -> None:
    """Text of more than 2 GiB has wider offsets there."""
    reader.casts = {pa.string(): pa.large_string()}
    _, batches = _read(file, columns=["a.b", "id"])
    assert len(reader.calls) == 3
    assert pa.Table.from_batches(batches).to_pydict() == {
        name: SAME[name].to_pylist() for name in ("a.b", "id")
    }


def test_int96_is_decoded_by_pyarrow(reader: ParquetReader, tmp_path: Path) -> None:
    """CuDF reads nanoseconds, which end in the year 2262."""
    path = tmp_path / "int96.parquet"
    last = dt.datetime(9999, 12, 31)  # noqa: DTZ001  it has no zone
    table = pa.table({"at": pa.array([last], pa.timestamp("us")), "n": [1]})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    assert pa.Table.from_batches(_read(path)[1]).to_pydict() == {"at": [last], "n": [1]}
    assert reader.calls == [([[0]], [1])]


@pytest.mark.usefixtures("reader")
def test_what_pylibcudf_cannot_read_is_an_error_that_names_the_file(file: str) -> None:
    chunk = pq.read_metadata(file).row_group(0).column(0)
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    with bow.parquet.read(file, columns=["id"], device=fake_device(1)) as stream:
        with open(file, "r+b") as damaged:  # the headers of its pages stay as they are
            damaged.seek(begin + chunk.total_compressed_size - 20)
            damaged.write(b"\xff" * 20)
        with pytest.raises(InvalidData, match=r"cuDF.*file\.parquet"):
            list(stream)


@pytest.mark.parametrize(
    ("columns", "chunks"), [(["id"], 1), (["a.b"], 1), (["id", "a.b", "nested", "v"], 1 + 1 + 2 + 2)]
)
def test_no_column_chunk_is_uploaded_twice(columns: list[str], chunks: int, file: str) -> None:
    """However many buffers it has."""
    device: FakeDevice = fake_device(1)
    device.stats.reset()
    with bow.parquet.read(file, columns=columns, device=device) as stream:
        batches = sum(1 for _ in stream)
    assert device.stats.host_writes <= chunks * batches
