"""``format("bowstring")`` in a live Spark: filters, streams, errors, and what is left behind."""

from __future__ import annotations

import datetime as dt
import decimal
import importlib.util
import math
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.dissociated.endpoint import Dataset
from tests.spark.live import MARKS, live_session

pytestmark = MARKS
PROGRAMS = Path(__file__).parent / "programs"
DAYS = [dt.date(1969, 12, 31), dt.date(2026, 11, 20), None, dt.date(1, 1, 1)]
TABLE = pa.table(
    {
        "row": pa.array(range(8), pa.int32()),
        "i": pa.array([0, -1, None, 2**31 - 1] * 2, pa.int32()),
        "f": pa.array([0.0, -0.0, math.nan, None, 1.5, -math.inf, math.inf, -1.5]),
        "d": pa.array([*map(decimal.Decimal, ("1.50", "-0.01", "0")), None] * 2, pa.decimal128(6, 2)),
        "s": pa.array(["", "a", "ab", "Z", "é", None, "漢", "a\0b"]),
        "b": pa.array([b"", b"\x7f", b"\x80", None, b"\0", b"a", b"ab", b"b"]),
        "t": pa.array([True, False, None, True] * 2),
        "day": pa.array(DAYS * 2),
        "at": pa.array([0, -1, None, 1_000_000] * 2, pa.timestamp("us", "UTC")),
        "local": pa.array([0, -1, None, 1_000_000] * 2, pa.timestamp("us")),
        "in": pa.array([{"x": 1}, {"x": None}, None, {"x": 3}] * 2, pa.struct([("x", pa.int64())])),
    }
)
FILTERS = [
    "i <> 0", "i <= 0", "i <=> null", "not (i <=> 0)", "i not in (0, 5)", "i not in (0, null)", "f = -0.0D",
    "f > 1.5D", "f <= 1.5D", "f = double('NaN')", "f in (0.0D, 1.5D)", "not (f > 1.5D)", "not (f <= 1.5D)",
    "d in (0.00, 1.50)", "s > 'Z'", "s < 'b'", "s like 'a%'", "s not like '%b'", "s like '%a%'", "b < x'80'",
    "not t", "day < date'1970-01-01'", "at < timestamp'1970-01-01 00:00:00Z'",
    "local >= timestamp_ntz'1970-01-01 00:00:00'", "in.x <> 1", "in.x is null and s <> ''",
    "length(s) = 1 and i = 0",
]  # fmt: skip


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Leave PySpark's own warnings alone."""
    pytest.importorskip("pyspark", reason="Spark itself is not installed: pip install 'bowstring[spark]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def load(source: Any, **options: str) -> Any:
    """Return a data frame of endpoints, or of a data set."""
    reading = live_session().read.format("bowstring").options(**options)
    if isinstance(source, Dataset):
        return reading.option("dataset", source.to_json()).load()
    return reading.load("\n".join(map(str, source)))


def test_filters_give_what_spark_gives() -> None:
    """Each filter keeps the same rows pushed down as when Spark itself looks at rows in its own memory."""
    with bow.Server() as server:
        dataset = Dataset((server.publish("t", TABLE),), TABLE.schema)
        plain = load(dataset)
        own = live_session().createDataFrame(plain.collect(), plain.schema)
        for text in FILTERS:
            assert rows(load(dataset, pushFilters="true").filter(text)) == rows(own.filter(text)), text
        frame = load(dataset, pushFilters="true").filter("i = 0 and s like 'a%'")
        assert "Filter (" not in frame._jdf.queryExecution().executedPlan().toString()


def test_a_data_frame_forgets_its_filters() -> None:
    """Queries of one data frame do not see each other's filters, as they would with Spark's push-down up to 4.3."""
    with bow.Server() as server:
        frame = load([server.publish("t", TABLE)])
        assert rows(frame.filter("i = 0")) == [0, 4]
        assert rows(frame) == list(range(8))
        assert rows(frame.filter("i = 0 or i = -1")) == [0, 1, 4, 5]


@pytest.mark.xfail(reason="Spark up to 4.3: where this passes, pushFilters can be the default", strict=True)
def test_filters_pushed_are_forgotten() -> None:
    """A query that pushes no filters gets all rows after one of the same data frame that did."""
    with bow.Server() as server:
        frame = load([server.publish("t", TABLE)], pushFilters="true")
        assert rows(frame.filter("i = 0")) == [0, 4]
        assert rows(frame.filter("i = -1")) == [1, 5]
        assert rows(frame) == list(range(8))


def rows(frame: Any) -> list[int]:
    """Return which rows are there."""
    return sorted(row["row"] for row in frame.select("row").collect())


def test_without_push_down() -> None:
    """A session that does not push filters reads all the same."""
    session = live_session()
    session.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        with bow.Server() as server:
            frame = load([server.publish("t", TABLE)], pushFilters="true")
            assert rows(frame.filter("i = 0")) == [0, 4]
    finally:
        session.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_partitions_are_endpoints() -> None:
    """Each endpoint is one partition, in order; a data set without endpoints has no rows and its schema."""
    with bow.Server() as server:
        endpoints = [server.publish(f"t{part}", TABLE.slice(2 * part, 2)) for part in range(4)]
        dataset = Dataset(tuple(endpoints), TABLE.schema)
        frame = load(dataset, columns="s,row")
        assert frame.columns == ["s", "row"]
        assert frame.rdd.getNumPartitions() == 4
        assert [row["row"] for row in frame.collect()] == list(range(8))
        assert load(Dataset((), TABLE.schema)).count() == 0


def test_an_error_says_what_bowstring_says() -> None:
    """Who loads what is not there, or computes after it was withdrawn, reads our message in Spark's error."""
    with bow.Server() as server:
        endpoint = server.publish("t", TABLE)
        frame = load([endpoint])
        with pytest.raises(Exception, match="no such option"):
            load([endpoint], nothing="1")
        server.withdraw("t")
        with pytest.raises(Exception, match="UnknownTicket: the data set is no longer offered"):
            frame.count()
        union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
        endpoint = server.publish("u", pa.table({"u": union}))
        with pytest.raises(Exception, match=r"Spark has no such type.*at u"):
            load([endpoint])


def test_a_stream_takes_each_endpoint_once(tmp_path: Path) -> None:
    """A stream reads endpoints as offsets: some at a time, none twice, and goes on where its checkpoint is."""
    session = live_session()

    def run(count: int) -> list[int]:
        text = "\n".join(map(str, endpoints[:count]))
        source = session.readStream.format("bowstring").option("maxEndpointsPerTrigger", "2").load(text)
        query = (
            source.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "at"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        assert query.awaitTermination(90)
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]

    with bow.Server() as server:
        endpoints = [server.publish(f"t{part}", TABLE) for part in range(4)]
        # Spark 4.1 asks a stream for all that there is.
        limited = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
        assert run(3) == ([16, 8] if limited else [24])
        assert run(4) == [8]
    found = session.read.parquet(str(tmp_path / "out")).groupBy("row").count().collect()
    assert {row["count"] for row in found} == {4}


def test_tasks_leave_nothing_with_the_producer() -> None:
    """After queries, one of which stops early, all readers are gone and have given everything back."""
    with bow.Server() as server:
        endpoint = server.publish("t", pa.concat_tables([TABLE] * 1000), readers=2)
        frame = load([endpoint])
        assert len(frame.limit(3).collect()) == 3
        gone(server)
        assert frame.count() == 8000
        gone(server)
        assert frame.filter("row = 1").count() == 1000
        server.wait_released(timeout=20)


def gone(server: bow.Server) -> None:
    """Wait until the server has heard what its readers said last."""
    end = time.monotonic() + 20
    while server.statistics.connections:
        assert time.monotonic() < end, "a reader stays"
        time.sleep(0.01)


@pytest.mark.parametrize("program", ["cluster.py", "retries.py"])
def test_other_clusters(program: str, tmp_path: Path) -> None:
    """Two executors of their own, and attempts that fail: all rows come, and none twice, from a pip-only Java."""
    ran = subprocess.run(
        [sys.executable, str(PROGRAMS / program), str(tmp_path)], capture_output=True, text=True, timeout=170
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.strip().endswith("as it should be")
