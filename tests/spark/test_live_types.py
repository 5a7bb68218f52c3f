"""Every type into Spark and out of it, with a live Spark."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.errors import Unsupported
from bowstring.spark.batches import FromSpark, column_form, published_schema, to_spark_schema
from bowstring.spark.types import task_schema
from tests.arrays import array_of
from tests.spark.live import MARKS, batches_of, live_session
from tests.spark.values import normalise, plain
from tests.strategies import LEAF_TYPES

pytestmark = MARKS
ROWS = 40
SHAPES = {
    "plain": lambda type_: type_,
    "list": pa.large_list,
    "struct": lambda type_: pa.struct([("a", pa.int8()), ("b", type_)]),
    "map": lambda type_: pa.map_(pa.string(), pa.list_(type_, 2)),
    "coded": lambda type_: pa.run_end_encoded(pa.int16(), pa.list_view(type_)),
}
EVERY = {
    "void": "null",
    "boolean": "true",
    "tinyint": "-128Y",
    "smallint": "32767S",
    "int": "-2147483648",
    "bigint": "9223372036854775807",
    "float": "float('NaN')",
    "double": "-0.0D",
    "decimal": "12345678901234567890.123456789BD",
    "decimal_wide": "cast('99999999999999999999999999999999999999' as decimal(38,0))",
    "string": "'Zürich 漢字'",
    "varchar": "cast('abc' as varchar(5))",
    "binary": "x'00ff'",
    "date": "date'0001-01-01'",
    "timestamp": "timestamp'2026-11-20 12:34:56.123456'",
    "timestamp_ntz": "timestamp_ntz'1969-12-31 23:59:59.999999'",
    "time": "time'23:59:59.999999'",
    "interval": "interval '-1 02:03:04.000005' day to second",
    "variant": 'parse_json(\'{"a": [1, {"b": null}], "c": "x"}\')',
    "geometry": "st_geomfromwkb(x'0101000000000000000000F03F0000000000000040')",
    "geography": "array(st_geogfromwkb(x'0101000000000000000000F03F0000000000000040'))",
    "array": "array(1, null)",
    "map": "map('k', parse_json('[1]'), 'n', null)",
    "struct": "named_struct('v', parse_json('1'), 'd', 1.5BD, 'a', array(named_struct('x', 1Y)))",
    "empty": "array()",
}


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """Leave PySpark's own warnings alone."""
    pytest.importorskip("pyspark", reason="Spark itself is not installed: pip install 'bowstring[spark]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def load(session: Any, dataset: Any, **options: str) -> Any:
    """Return a data frame of an endpoint."""
    return session.read.format("bowstring").options(**options).load(str(dataset))


def every_type(rows: int) -> pa.RecordBatch:
    """Return a batch with a column of each Arrow type that Spark takes, in each shape."""
    rng = np.random.default_rng(7)
    arrays, fields = [], []
    for number, leaf in enumerate(LEAF_TYPES):
        for shape, make in SHAPES.items():
            field = pa.field(f"{number}_{shape}", make(leaf))
            try:
                column_form(field)
            except Unsupported:
                continue
            arrays.append(array_of(field.type, rows, rng))
            fields.append(field)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


@pytest.mark.parametrize("rows", [ROWS, 0])
def test_every_arrow_type_goes_into_spark(rows: int) -> None:
    """Each Arrow type, nested, with nulls or without rows, is in Spark what the table says, value by value."""
    session, batch = live_session(), every_type(rows)
    assert batch.num_columns > 100
    with bow.Server() as server:
        frame = load(session, server.publish("every", batch), truncate="true")
        assert frame.schema == to_spark_schema(batch.schema)
        found = batches_of(frame)
    expected = normalise(batch, truncate=True)
    for name in batch.schema.names:
        values = [value for part in found for value in plain(part.column(name))]
        assert values == plain(expected.column(name)), name


@pytest.mark.parametrize("large", ["false", "true"])
def test_every_spark_type_comes_back(large: str) -> None:
    """Each type of Spark's, nested and null, goes through a server and back: the same schema and the same rows."""
    session = live_session()
    session.conf.set("spark.sql.execution.arrow.useLargeVarTypes", large)
    try:
        one = session.range(6).selectExpr("id", *[f"{value} as `{name}`" for name, value in EVERY.items()])
        nulls = [f"if(id % 2 = 0, null, `{name}`) as `null_{name}`" for name in EVERY]
        frame = one.selectExpr("*", *nulls)
        before = batches_of(frame)
        assert before[0].schema.names == task_schema(frame).names
        ours = FromSpark(before[0].schema)
        for seen, known in zip(ours.schema, published_schema(frame), strict=True):
            assert seen.equals(known, check_metadata=True), (seen.metadata, known.metadata, seen.type)
        made = [ours(batch) for batch in before]
        for batch in made:
            batch.validate(full=True)
        with bow.Server() as server:
            back = load(session, server.publish("back", pa.Table.from_batches(made)))
            assert back.schema.simpleString() == frame.schema.simpleString().replace("varchar(5)", "string")
            assert back.schema == to_spark_schema(ours.schema)
            after = batches_of(back)
        for name in frame.columns:
            assert _shown(after, name) == _shown(before, name), name
    finally:
        session.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


def _shown(batches: list[pa.RecordBatch], name: str) -> list[str]:
    return sorted(repr(value) for batch in batches for value in batch.column(name).to_pylist())


def test_types_that_do_not_leave_spark() -> None:
    """Year-month intervals are refused before any task runs, calendar intervals when they would come back."""
    session = live_session()
    with pytest.raises(Unsupported, match=r"YearMonthIntervalType.*at a"):
        published_schema(session.sql("select interval '1-2' year to month as a"))
    calendar = published_schema(session.sql("select array(make_interval(1, 2, 3)) as a"))
    with pytest.raises(Unsupported, match=r"at a\.element"):
        to_spark_schema(calendar)


def test_rows_without_columns_do_not_leave_spark() -> None:
    """Tasks would be told nothing of such rows, so a table of none would come of them: they are refused before."""
    frame = live_session().range(1000).select()
    with pytest.raises(Unsupported, match="columns"):
        bow.spark.publish(frame, "none")
    with pytest.raises(Unsupported, match="columns"):
        published_schema(frame.schema)
