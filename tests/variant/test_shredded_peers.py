"""Shredded files go from a live Spark and from DuckDB to Bowstring and back, with equal documents."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring import variant
from tests.spark.live import MARKS, live_session
from tests.variant.documents import document
from tests.variant.test_geonames import places_of

pytestmark = MARKS
GENERATED = 40_000  # DuckDB shreds from 30,000 rows on


@pytest.fixture(scope="module", params=["generated", "events", "places"])
def documents(request: pytest.FixtureRequest) -> list[Any]:
    """Return random documents, of no common shape and of one; and the 234,908 places of the world."""
    drawn = random.Random(22)
    if request.param == "places":
        return places_of("cities500.json")
    if request.param == "generated":
        # DuckDB 2.0 shreds a field whose name is empty under a name of its own making.
        pool = [_named(document(drawn)) for _ in range(500)]
        return [pool[row % 500] for row in range(GENERATED)]
    return [
        {
            "id": row,
            "at": f"2026-01-{row % 28 + 1:02}",
            "price": drawn.randrange(10**6) / 4,
            "user": {"name": f"u{row % 97}"},
        }
        | ({"tags": ["a", f"t{row}"]} if row % 3 else {"tags": None})
        | ({"rare": [row, {"x": None}]} if row % 50 == 0 else {})
        | ({"id": "none"} if row % 1000 == 7 else {})
        for row in range(GENERATED)
    ]


def _named(document: Any) -> Any:
    if isinstance(document, dict):
        return {name or "empty": _named(each) for name, each in document.items()}
    return [_named(each) for each in document] if isinstance(document, list) else document


def _texts(documents: list[Any]) -> list[str]:
    return [json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in documents]


def _same(found: list[str | None], documents: list[Any]) -> None:
    """Check that JSON texts are the documents; engines may write 1.0 as 1."""
    assert len(found) == len(documents)
    for text, each in zip(found, documents, strict=True):
        assert json.loads(text or "null") == each


def _read(path: Path) -> tuple[pa.Schema, list[str | None]]:
    with bow.parquet.read(path, columns=["id", "v"]) as stream:
        rows = [
            row
            for batch in stream
            for row in zip(
                batch["id"].to_arrow().to_pylist(),
                variant.to_json(batch["v"]).to_arrow().to_pylist(),
                strict=True,
            )
        ]
        return stream.schema, [text for _, text in sorted(rows, key=lambda row: row[0])]


def _written_again(path: Path, again: Path) -> None:
    with bow.parquet.read(path) as stream:
        bow.parquet.write(stream, again, shred="infer", row_group_size=50_000)


def test_from_spark_and_back(documents: list[Any], tmp_path: Path) -> None:
    """Spark shreds by default, and reads what Bowstring has shredded anew."""
    spark = live_session()
    for name, value in (("writeShredding.enabled", "true"), ("inferShreddingSchema", "true")):
        spark.conf.set(f"spark.sql.variant.{name}", value)
    source = tmp_path / "texts.parquet"
    bow.parquet.write({"id": pa.array(range(len(documents))), "t": pa.array(_texts(documents))}, source)
    frame = spark.read.parquet(str(source)).selectExpr("id", "parse_json(t) AS v")
    frame.coalesce(1).write.parquet(str(tmp_path / "spark"))
    [path] = (tmp_path / "spark").glob("*.parquet")
    schema, found = _read(path)
    _same(found, documents)
    if isinstance(documents[0], dict) and "id" in documents[0]:
        assert "typed_value" in schema.field("v").type.names
    again = tmp_path / "again.parquet"
    _written_again(path, again)
    frame = spark.read.parquet(str(again))
    assert dict(frame.dtypes)["v"] == "variant"
    _same([row[0] for row in frame.selectExpr("to_json(v)", "id").orderBy("id").collect()], documents)


def test_from_duckdb_and_back(documents: list[Any], tmp_path: Path) -> None:
    """DuckDB shreds by default, and by a given type, and reads what Bowstring has shredded anew."""
    source, again = tmp_path / "texts.parquet", tmp_path / "again.parquet"
    bow.parquet.write({"id": pa.array(range(len(documents))), "t": pa.array(_texts(documents))}, source)
    with duckdb.connect() as connection:
        # DuckDB makes doubles of whole numbers beyond its own: what it has in memory is what comes back.
        rows = connection.execute(
            f"SELECT t::JSON::VARIANT::JSON::VARCHAR FROM '{source}' ORDER BY id"
        ).fetchall()
        documents = [json.loads(row[0] or "null") for row in rows]
        for options in ("", ", SHREDDING {v: 'STRUCT(id BIGINT, name VARCHAR, price DOUBLE)'}"):
            path = tmp_path / f"duckdb{len(options)}.parquet"
            connection.execute(
                f"COPY (SELECT id, t::JSON::VARIANT AS v FROM '{source}') TO '{path}' (FORMAT parquet{options})"
            )
            _, found = _read(path)
            _same(found, documents)
            _written_again(path, again)
            rows = connection.execute(f"SELECT v::JSON::VARCHAR FROM '{again}' ORDER BY id").fetchall()
            _same([row[0] for row in rows], documents)
