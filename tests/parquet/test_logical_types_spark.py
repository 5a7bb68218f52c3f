"""A live Spark reads each type that it has from files of Bowstring, and Bowstring each type from files of Spark."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring import geo
from tests.parquet.logical_types import POINTS, TABLE
from tests.spark.live import MARKS, live_session

pytestmark = MARKS
READ = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "uint64": "decimal(20,0)",
    "float": "float",
    "double": "double",
    "string": "string",
    "enum": "string",
    "enum in dictionary": "string",
    "large enum": "string",
    "bson": "binary",
    "json": "string",
    "decimal 5": "decimal(5,2)",
    "decimal 12": "decimal(12,2)",
    "decimal 30": "decimal(30,2)",
    "decimal in bytes": "decimal(20,2)",
    "date": "date",
    "time64[us]": "time(6)",
    "timestamp ms None": "timestamp_ntz",
    "timestamp ms UTC": "timestamp",
    "timestamp us None": "timestamp_ntz",
    "timestamp us UTC": "timestamp",
    "null": "int",
}
# Spark refuses FLOAT16, UUID, INTERVAL, TIME of milliseconds or with UTC, TIMESTAMP of nanoseconds, 39 digits.


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return Spark's data frame of a file of all types that it reads."""
    path = tmp_path_factory.mktemp("types") / "all.parquet"
    table = TABLE.select(list(READ)).rename_columns([f"c{number}" for number in range(len(READ))])
    bow.parquet.write(table, path)
    return live_session().read.parquet(str(path))


@pytest.mark.parametrize("name", READ)
def test_spark_reads_what_it_can(name: str, frame: Any) -> None:
    """Types and values are those of Spark for the logical type of the column."""
    column = f"c{list(READ).index(name)}"
    assert dict(frame.dtypes)[column] == READ[name]
    found = [row[0] for row in frame.selectExpr(f"CAST({column} AS STRING)").collect()]
    plain = frame.selectExpr(column).collect()
    if name.startswith("timestamp"):
        zoned = "UTC" in name
        expected = frame.sparkSession.sql("SELECT CAST(TIMESTAMP_MICROS(0) AS STRING)").collect()[0][0]
        assert found[1] is None
        assert found[0].startswith(expected if zoned else "1970-01-01 00:00:00")
        return
    ours = TABLE[name].to_pylist()
    assert [row[0] for row in plain] == ours


def test_spark_reads_maps_and_geometries(tmp_path: Path) -> None:
    """Of pairs with equal keys Spark takes the last; GEOGRAPHY is one, with its coordinates, inside lists, too."""
    path = tmp_path / "x.parquet"
    bow.parquet.write(TABLE.select(["map", "geography", "points"]), path)
    frame = live_session().read.parquet(str(path))
    types = dict(frame.dtypes)
    assert types == {
        "map": "map<string,string>",
        "geography": "geography(4326)",
        "points": "array<geometry(4326)>",
    }
    rows = frame.collect()
    assert [row[0] for row in rows] == [{"a": "c"}, None, {}]
    found = frame.selectExpr("ST_AsBinary(geography)").collect()
    assert [None if row[0] is None else bytes(row[0]) for row in found] == POINTS


def test_what_spark_writes_is_read(tmp_path: Path) -> None:
    """Types of Spark come back: TIME, both timestamps, decimals, INT96 on request, geometries with their SRID."""
    spark = live_session()
    texts = (
        "CAST('01:02:03.000004' AS TIME(6)) AS t",
        "TIMESTAMP_NTZ '2024-01-02 03:04:05' AS n",
        "TIMESTAMP '2024-01-02 03:04:05 UTC' AS z",
        "CAST(1.25 AS DECIMAL(9, 2)) AS d9",
        "CAST(1.25 AS DECIMAL(18, 2)) AS d18",
        "CAST(1.25 AS DECIMAL(38, 2)) AS d38",
        "map('a', 1) AS m",
        f"ST_GeogFromWKB(X'{struct.pack('<bIdd', 1, 1, 1, 2).hex()}') AS g",
    )
    frame = spark.sql(f"SELECT {', '.join(texts)}")
    for kind, unit in (("INT96", "us"), ("TIMESTAMP_MICROS", "us")):
        spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
        folder = tmp_path / kind
        frame.coalesce(1).write.parquet(str(folder))
        [path] = folder.glob("*.parquet")
        with bow.parquet.read(path) as stream:
            found = stream.read_all()
        physical = {each.path[0]: each.physical for each in bow.parquet.read_schema(path).columns}
        assert (physical["z"] == "INT96") == (kind == "INT96")
        assert found["t"].cast(pa.int64()).to_pylist() == [3_723_000_004]
        assert found.schema.field("z").type == pa.timestamp(unit, None if kind == "INT96" else "UTC")
        assert found["z"].cast(pa.int64()).to_pylist() == [1_704_164_645_000_000]
        assert found["n"].cast(pa.int64()).to_pylist() == [1_704_164_645_000_000]
        assert [str(found[name][0].as_py()) for name in ("d9", "d18", "d38")] == ["1.25"] * 3
        assert found["m"].to_pylist() == [[("a", 1)]]
        wkb = geo.type_of(found.schema.field("g"))
        assert wkb is not None
        assert (wkb.edges, wkb.crs) == ("spherical", "OGC:CRS84")
        assert geo.statistics(found.select(["g"])).bbox == geo.Box(1, 2, 1, 2)
        again = tmp_path / f"{kind}.parquet"
        bow.parquet.write(found, again)
        assert spark.read.parquet(str(again)).selectExpr("ST_AsBinary(g)", "t", "d38", "m").count() == 1
