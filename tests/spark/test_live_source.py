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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.dissociated.endpoint import Dataset
from bowstring.errors import Unsupported
from tests.spark.live import MARKS, live_session, patient

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


def test_a_data_frame_forgets_its_filters() -> None:
    """Queries of one data frame do not see each other's filters, as they would with Spark's push-down up to 4.3."""
    with bow.Server() as server:
        frame = load([server.publish("t", TABLE)])
        assert rows(frame.filter("i = 0")) == [0, 4]
        assert rows(frame) == list(range(8))
        assert rows(frame.filter("i = 0 or i = -1")) == [0, 1, 4, 5]


def rows(frame: Any) -> list[int]:
    """Return which rows are there."""
    return sorted(row["row"] for row in frame.select("row").collect())


def test_a_schema_chooses_columns(tmp_path: Path) -> None:
    """``schema`` takes columns by name, in any case and order, for frames and streams; types must be the same."""
    session = live_session()
    with bow.Server() as server:
        text = str(server.publish("t", TABLE))
        frame = session.read.format("bowstring").schema("S string, ROW int").load(text)
        assert [tuple(row) for row in frame.collect()] == list(
            zip(*TABLE.select(["s", "row"]).to_pydict().values(), strict=True)
        )
        stream = session.readStream.format("bowstring").schema("S string").load(text)
        writing = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "at"))
        assert writing.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination(patient(90))
        assert session.read.parquet(str(tmp_path / "out")).exceptAll(frame.select("S")).count() == 0
        for wrong in ("s int", "nope string"):
            with pytest.raises(Exception, match="another schema"):
                session.read.format("bowstring").schema(wrong).load(text).collect()


def test_tables_say_what_works() -> None:
    """Tables of Spark's catalog are refused before the job, with what works instead, and that works."""
    session = live_session()
    frame = session.range(10)
    fails = frame.mapInArrow(_fails, "id bigint")
    frame.write.format("bowstring").mode("overwrite").save("depot:viewed")
    refused: list[Callable[[], Any]] = [
        lambda: fails.write.format("bowstring").saveAsTable("tabled"),
        lambda: fails.write.format("bowstring").mode("append").option("name", "viewed").saveAsTable("tabled"),
        lambda: fails.writeTo("tabled").using("bowstring").option("name", "viewed").create(),
        lambda: session.sql("CREATE TABLE tabled USING bowstring OPTIONS (name 'viewed')"),
        lambda: session.sql("CREATE TABLE tabled USING bowstring AS SELECT 1 AS x"),
        lambda: frame.writeTo("tabled").using("bowstring").create(),
    ]
    for tried in refused:
        with pytest.raises(Exception, match="CREATE TEMPORARY VIEW … USING bowstring OPTIONS"):
            tried()
        assert not session.catalog.tableExists("tabled")
    session.sql("CREATE OR REPLACE TEMPORARY VIEW viewed USING bowstring OPTIONS (name 'viewed')")
    assert session.sql("SELECT sum(id) FROM viewed").first()[0] == 45
    assert session.read.format("bowstring").load("depot:viewed").count() == 10
    bow.spark.drop("viewed")


def test_a_name_of_another_application_is_refused_before_the_job() -> None:
    """What is saved under a name of another application that goes on is refused in the driver, before any task."""
    session = live_session()
    held = session.range(10).mapInArrow(_fails, "id bigint")
    with bow.depot.connect() as depot:
        depot.hold("another")
        depot.announce("taken", bow.Dataset((), pa.schema([("id", pa.int64())])), application="another")
        for mode in ("overwrite", "append"):
            with pytest.raises(Exception, match="taken by another application"):
                held.write.format("bowstring").mode(mode).save("taken")
        depot.end("another")


def _fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    raise RuntimeError("a task began")


def test_what_spark_cannot_hand_over_is_named(tmp_path: Path) -> None:
    """Columns that cannot be published are named: maps whose keys have no type, Variants that tasks would read."""
    session = live_session()
    session.sql("SELECT parse_json('1') AS payload, 1 AS id").write.parquet(str(tmp_path / "v"))
    with pytest.raises(Unsupported, match="payload variant"):
        bow.spark.publish(session.read.parquet(str(tmp_path / "v")), scan="tasks")
    for text, where in (
        ("map()", "at m"),
        ("array(struct(map() AS x))", r"at m\.element\.x"),
        ("map(1, map())", r"at m\.value"),
    ):
        with pytest.raises(Unsupported, match=rf"(?s)keys have no type.*{where}.*Cast it"):
            bow.spark.publish(session.sql(f"SELECT 1 AS id, {text} AS m"))
    with bow.spark.publish(
        session.sql("SELECT cast(map() AS map<string, int>) AS m, map('a', null) AS n")
    ) as made:
        assert made.to_arrow().to_pylist() == [{"m": [], "n": [("a", None)]}]
        assert repr(made).startswith("<PublishedDataset 1 rows × 2 columns")
    with bow.spark.publish(session.range(100, numPartitions=50), coalesce=None) as made:
        assert len(repr(made)) < 100


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
        assert query.awaitTermination(patient(90))
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
        server.wait_released(timeout=patient(20))


def gone(server: bow.Server) -> None:
    """Wait until the server has heard what its readers said last."""
    end = time.monotonic() + patient(20)
    while server.stats.connections:
        assert time.monotonic() < end, "a reader stays"
        time.sleep(0.01)


@pytest.mark.parametrize("program", ["cluster.py", "retries.py"])
def test_other_clusters(program: str, tmp_path: Path) -> None:
    """Two executors of their own, and attempts that fail: all rows come, and none twice, from a pip-only Java."""
    ran = subprocess.run(
        [sys.executable, str(PROGRAMS / program), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=patient(170),
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.strip().endswith("as it should be")
