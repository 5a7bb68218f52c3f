"""Random documents, read and written by Spark and DuckDB as they are installed: the same values, paths and text."""

from __future__ import annotations

import decimal
import json
import random
import struct
import warnings
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.variant import Value
from tests.variant.decoding import decode
from tests.variant.documents import (
    DUCKDB_TYPES,
    agree_with_duckdb,
    document,
    extraction,
    path_into,
    plain_table,
    written,
)
from tests.variant.encoding import primitive_bytes
from tests.variant.get_columns import Row, column_of
from tests.variant.matrix import DICTIONARIES, cells
from tests.variant.spark_casts import TYPES, rows_of
from tests.variant.spark_peer import WANTED, spark_session, typed, view_of
from tests.variant.spark_random import random_value

pytestmark = [pytest.mark.slow, pytest.mark.peers]
DOCUMENTS = 3000
PATHS = 40


@pytest.fixture(scope="module")
def documents() -> list[Any]:
    """Return random documents; some are wide, some long."""
    drawn = random.Random(2026)
    found = [document(drawn) for _ in range(DOCUMENTS)]
    sizes = (1, 31, 32, 33, 255, 256, 257, 300)
    wide = [{f"k{number}": number for number in range(size)} for size in sizes]
    return [*found, *wide, *(list(range(size)) for size in (255, 256, 70_000))]


@pytest.fixture(scope="module")
def column(documents: list[Any]) -> Column:
    """Return the documents as we write them."""
    return variant.from_json([json.dumps(each) for each in documents], rules="spark")


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """Start Spark, whose own warnings are none of ours."""
    pytest.importorskip("pyspark", reason=f"Spark itself is not installed: {WANTED}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield spark_session()


def bytes_of(column: Column) -> list[Row]:
    """Return metadata and value of each row."""
    rows = plain_table(column)["v"].combine_chunks()
    metadata, values = (rows.field(name).to_pylist() for name in ("metadata", "value"))
    valid = rows.is_valid().to_pylist()
    return [
        (blob, value) if there else None for blob, value, there in zip(metadata, values, valid, strict=True)
    ]


def test_sparks_python_reader(documents: list[Any], column: Column) -> None:
    """Spark's pure-Python reader reads what we write, and we what it writes, in the same types."""
    utils = pytest.importorskip("pyspark.sql.variant_utils", reason="pyspark is not installed").VariantUtils
    typed_rows = variant.to_python(column, typed=True)
    with decimal.localcontext(prec=64):  # it multiplies decimals in the current context
        rows = zip(bytes_of(column), typed_rows, variant.to_python(column), documents, strict=True)
        for row, tree, plain, whole in rows:
            assert row is not None
            assert utils.to_python(row[1], row[0]) == plain
            value, metadata = utils.parse_json(json.dumps(whole))
            assert decode(metadata, value) == tree


def test_duckdb(documents: list[Any], column: Column) -> None:
    """DuckDB imports what we write as the same documents, and extracts by path what we get by path."""
    duckdb = pytest.importorskip("duckdb", "2.0", reason="DuckDB 2.0 or later is not installed")
    drawn = random.Random(7)
    connection = duckdb.connect().register("arrived", plain_table(column))
    connection.execute("CREATE TABLE ours AS SELECT * FROM arrived")
    read = connection.sql("SELECT CAST(v AS JSON)::VARCHAR FROM ours").fetchall()
    assert [json.loads(text) for (text,) in read] == documents
    containers = [each for each in documents if each and isinstance(each, (dict, list))]
    for _ in range(PATHS):
        path = path_into(drawn, drawn.choice(containers))
        for type_ in DUCKDB_TYPES:
            query = f"SELECT TRY_CAST({extraction(path)} AS {type_}) FROM ours"
            agree_with_duckdb(column, path, type_, [value for (value,) in connection.sql(query).fetchall()])


def test_spark_reads_what_we_write(column: Column, spark: Any) -> None:
    """Spark finds all of it valid, and its `to_json` is ours, for documents and for values of all its types."""
    drawn = random.Random(8)
    with decimal.localcontext(prec=64):
        values = rows_of([random_value(drawn) for _ in range(DOCUMENTS)])
    for each in (column, column_of(values)):
        view_of(bytes_of(each), "ours")
        read = spark.sql("SELECT is_valid_variant(v) valid, to_json(v) json FROM ours ORDER BY row").toArrow()
        assert set(read["valid"].to_pylist()) <= {True, None}
        assert variant.to_json(each, rules="spark").to_arrow().to_pylist() == read["json"].to_pylist()


def test_spark_writes_doubles_as_we_do(spark: Any) -> None:
    """Doubles and floats have the digits of Java: the least ones, short ones, powers of two, and random bits."""
    drawn = random.Random(10)
    kinds = (("double", "<d", "<Q", 1074, 1024), ("float", "<f", "<I", 149, 128))
    rows: list[Row] = []
    for type_, form, bits, low, high in kinds:
        size = struct.calcsize(form)
        numbers = [struct.pack(bits, number) for number in range(1, 3000)]
        numbers += [struct.pack(form, 2.0**power) for power in range(-low, high)]
        short = (
            drawn.randrange(1, 1000) * 10.0 ** drawn.randrange(-low * 3 // 10, 35) for _ in range(20_000)
        )
        numbers += [struct.pack(form, number) for number in short]
        numbers += [drawn.randbytes(size) for _ in range(50_000)]
        header = primitive_bytes(Value(type_, 0.0))[:1]
        rows += [(b"\x01\x00\x00", header + number) for number in numbers]
    view_of(rows, "ours")
    theirs = spark.sql("SELECT to_json(v) json FROM ours ORDER BY row").toArrow()["json"]
    assert variant.to_json(column_of(rows), rules="spark").to_arrow().to_pylist() == theirs.to_pylist()


@pytest.mark.parametrize("dictionary", DICTIONARIES)
def test_spark_reads_the_matrix(dictionary: str, spark: Any) -> None:
    """Spark reads every width over every kind of dictionary as we do, but for the types that it does not know."""
    rows, trees, _ = cells(dictionary)
    unknown = ("time", "timestamp_ns", "timestamp_ntz_ns")
    known = [row for row, tree in zip(rows, trees, strict=True) if tree.value["😀"].type not in unknown]
    view_of(known, "ours")
    theirs = spark.sql("SELECT to_json(v) json FROM ours ORDER BY row").toArrow()["json"]
    assert variant.to_json(column_of(known), rules="spark").to_arrow().to_pylist() == theirs.to_pylist()


def test_spark_gets_what_we_get(documents: list[Any], column: Column, spark: Any) -> None:
    """`try_variant_get` by random paths and types is `get` in the mode of its casts."""
    drawn = random.Random(9)
    containers = [each for each in documents if each and isinstance(each, (dict, list))]
    view_of(bytes_of(column), "ours")
    for _ in range(PATHS):
        path, name = path_into(drawn, drawn.choice(containers)), drawn.choice(list(TYPES))
        if "" in path or "variant" in name:  # Spark's paths have no empty names
            continue
        sql = written(path).replace("\\", "\\\\").replace("'", "\\'")
        theirs = spark.sql(
            f"SELECT try_variant_get(v, '{sql}', '{name}') c FROM ours ORDER BY row"
        ).toArrow()["c"]
        assert typed(variant.get(column, written(path), TYPES[name], cast="spark").to_arrow()) == typed(
            theirs
        )
        exact = variant.get(column, written(path), pa.int64()).to_arrow().to_pylist()
        asked = f"SELECT try_variant_get(v, '{sql}', 'bigint') c FROM ours ORDER BY row"
        for ours, spark_value in zip(exact, spark.sql(asked).toArrow()["c"].to_pylist(), strict=True):
            assert ours in (None, spark_value)


def test_spark_parses_what_we_parse(documents: list[Any], column: Column, spark: Any) -> None:
    """`parse_json` gives the types and values of ``from_json(rules="spark")``."""
    texts = pa.table({"row": range(len(documents)), "text": [json.dumps(each) for each in documents]})
    spark.createDataFrame(texts).createOrReplaceTempView("texts")
    read = spark.sql("SELECT parse_json(text) v FROM texts ORDER BY row").collect()
    theirs = [decode(bytes(row.v.metadata), bytes(row.v.value)) for row in read]
    assert theirs == variant.to_python(column, typed=True)
