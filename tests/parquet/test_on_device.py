"""Row groups come to a device as the batches that pyarrow reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring import variant
from bowstring.errors import InvalidData, LimitExceeded, Unsupported
from bowstring.testing import FakeDevice, OnlyCurrent, fake_device
from tests import strategies
from tests.parquet import footers as claims
from tests.parquet.footers import rechunked

ROWS = 100
COLUMNS: dict[str, Any] = {
    "id": pa.array(range(ROWS)),
    "a.b": pa.array([f"row {row}" if row % 3 else None for row in range(ROWS)]),
    "day": pa.array(range(ROWS), pa.date32()),
    "at": pa.array(range(ROWS), pa.timestamp("us", "Europe/Zurich")),
    "nested": pa.array(
        [{"x": [row, None], "y": {"z": str(row)}} if row % 7 else None for row in range(ROWS)]
    ),
    "bytes": pa.array([b"x"] * ROWS),
    "price": pa.array(range(ROWS), pa.int64()).cast(pa.decimal128(20, 0)),
    "time": pa.array(range(ROWS), pa.time64("us")),
    "took": pa.array(range(ROWS), pa.duration("us")),
    "map": pa.array([[("k", row)] for row in range(ROWS)], pa.map_(pa.string(), pa.int64())),
    "word": pa.array(["u", "v"] * (ROWS // 2)).dictionary_encode(),
    "v": pa.array([0] * ROWS),
}


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Return a file of several row groups."""
    columns = dict(COLUMNS)
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
def test_batches_of_a_device_are_those_of_the_host(options: dict[str, Any], file: str) -> None:
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
def test_files_that_contradict_themselves_never_come_to_a_device(data: bytes) -> None:
    """What pages and footers claim is compared before it is uploaded."""
    with pytest.raises((InvalidData, LimitExceeded)):
        _read(data)
    whole = claims.file([claims.page(claims.NUMBERS, 6)], 6, 6)
    assert [batch.num_rows for batch in _read(whole)[1]] == [6]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=strategies.tables(), rows=st.integers(1, 50))
def test_every_table_comes_to_a_device(batches: list[pa.RecordBatch], rows: int, tmp_path: Path) -> None:
    path = tmp_path / "random.parquet"
    try:
        bow.parquet.write(pa.Table.from_batches(batches), path, row_group_size=rows)
    except Unsupported:
        return
    _, found = _read(path)
    _, expected = _on_host(path)
    assert repr([each.to_pylist() for each in found]) == repr([each.to_pylist() for each in expected])


@pytest.mark.parametrize("columns", [["id"], ["id", "a.b", "nested", "v"]], ids=str)
def test_a_row_group_is_one_upload(columns: list[str], file: str) -> None:
    """However many columns and buffers it has; a dictionary of Variant metadata is another."""
    device: FakeDevice = fake_device(1)
    device.stats.reset()
    with bow.parquet.read(file, columns=columns, device=device) as stream:
        batches = sum(1 for _ in stream)
    assert device.stats.host_writes <= (1 + ("v" in columns)) * batches
