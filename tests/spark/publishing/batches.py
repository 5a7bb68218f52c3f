"""Scenarios about the batches that Spark makes of a publication's rows: their size, and whose settings hold."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import bowstring as bow
from bowstring.spark.driver import sized_batches
from tests.spark.live import patient

BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
NARROW = "cast(id as int) i", "id * 0.5D d", "named_struct('a', id, 'b', cast(id as decimal(38, 2))) s"
TEXT = "id", "repeat('x', 5000) t"


def start() -> Any:
    """Return a session as a user makes one."""
    return bow.spark.session(master="local[2]", config={"spark.ui.enabled": "false"})


def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Say how many rows and bytes each batch has, and which settings the task has, in a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        yield pa.RecordBatch.from_pylist(
            [{"rows": batch.num_rows, "bytes": batch.nbytes, "setting": context.getLocalProperty(BYTES)}]
        )


def seen(frame: Any) -> list[Any]:
    """Return what tasks see of a data frame."""
    return frame.mapInArrow(sizes, "rows bigint, bytes bigint, setting string").collect()


def rows_decide(session: Any) -> None:
    """Short rows of fixed width are not measured, long ones and those of any length are bounded by 8 MiB, and a
    plan with functions of Python's, a setting of the user's and an unbounded number of rows keep Spark's bound.
    """
    from pyspark.sql.functions import pandas_udf

    _mean.__annotations__ = {"values": importlib.import_module("pandas").Series, "return": float}
    numbers = session.range(0, 30_000, 1, 1)
    session.udf.register("plus", pandas_udf(lambda s: s + 1, "long"))
    numbers.createOrReplaceTempView("numbers")
    wide = numbers.selectExpr(*[f"id + {i} c{i}" for i in range(1_000)])
    cases = [
        (numbers, "2147483647"),
        (numbers.selectExpr(*NARROW), "2147483647"),
        (session.table("numbers").where("id > 3"), "2147483647"),
        (numbers.selectExpr(*TEXT), "8388608"),
        (numbers.selectExpr("parse_json('1') v"), "8388608"),
        (numbers.selectExpr("named_struct('a', array(id)) s"), "8388608"),
        (wide, "8388608"),
        (numbers.selectExpr("plus(id)"), None),
        (session.sql("SELECT id, (SELECT max(plus(id)) FROM numbers) m FROM numbers"), None),
        (numbers.selectExpr("plus(id) p").cache().selectExpr("p + 1"), None),
        (numbers.groupBy("id").agg(pandas_udf(_mean, "double")("id")), None),
        (numbers.rdd.toDF(), None),
    ]
    for frame, wanted in cases:
        with sized_batches(frame):
            assert {each.setting for each in seen(frame)} == {wanted}, frame
        assert {each.setting for each in seen(numbers)} == {None}
    with sized_batches(numbers.selectExpr(*TEXT)):
        got = seen(numbers.selectExpr(*TEXT))
        assert max(each.bytes for each in got) < 9 << 20 < sum(each.bytes for each in got)
    for name, value, wanted in (
        (BYTES, "65536", "65536"),
        (ROWS, "0", "8388608"),
        (ROWS, "100", "2147483647"),
    ):
        session.conf.set(name, value)
        with sized_batches(numbers):
            got = seen(numbers)
        session.conf.unset(name)
        assert {each.setting for each in got} == {wanted}
        assert name != ROWS or value != "100" or {each.rows for each in got} == {100}
    session.catalog.clearCache()


def _mean(values: Any) -> float:
    return float(values.mean())


def other_queries_keep_their_settings(session: Any) -> None:
    """While a thread publishes, queries of another thread, and the session's settings, are Spark's."""
    began, end = threading.Event(), threading.Event()
    before = dict(session.conf.getAll)

    def publish() -> None:
        frame = session.range(0, 2_000_000, 1, 2)
        while not end.is_set():
            bow.spark.publish(frame, "busy", coalesce=None)
            began.set()
        assert {each.setting for each in seen(frame)} == {None}

    failed: list[BaseException] = []

    def run() -> None:
        try:
            publish()
        except BaseException as error:  # noqa: BLE001  raised below
            failed.append(error)
            began.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert began.wait(patient(60.0))
        for _ in range(5):
            assert {each.setting for each in seen(session.range(0, 30_000, 1, 2))} == {None}
            assert dict(session.conf.getAll) == before
    finally:
        end.set()
        thread.join()
    assert not failed, failed
    bow.spark.drop("busy")


def what_a_session_has_holds(session: Any) -> None:
    """Views, functions, variables, the current database, observations, groups and tags of jobs hold for what is
    published of them.
    """
    from pyspark.sql import Observation
    from pyspark.sql.functions import count

    context = session.sparkContext
    session.sql("CREATE DATABASE IF NOT EXISTS other")
    session.sql("USE other")
    session.range(1000).createOrReplaceTempView("rows")
    session.udf.register("twice", lambda value: 2 * value, "long")
    session.sql("DECLARE OR REPLACE VARIABLE least INT DEFAULT 990")
    observed = Observation("counted")
    context.setJobGroup("mine", "described")
    context.addJobTag("tagged")
    frame = session.sql("SELECT id, length(current_database()) n FROM rows WHERE id >= least")
    for chosen in (frame, frame.selectExpr("twice(id) DIV 2 AS id", "n")):
        with (
            bow.spark.publish(chosen.observe(observed, count("id").alias("c"))) as published,
            bow.connect(published) as stream,
        ):
            table = stream.read_all()
            assert table["id"].to_pylist() == list(range(990, 1000))
            assert set(table["n"].to_pylist()) == {len("other")}
        assert observed.get == {"c": 10}
        observed = Observation("counted again")
    assert len(context.statusTracker().getJobIdsForGroup("mine")) >= 2
    assert context._jsc.sc().statusTracker().getJobIdsForTag("tagged")
    context.removeJobTag("tagged")
    session.sql("USE default")
    session.sql("DROP DATABASE other")


SCENARIOS = [rows_decide, other_queries_keep_their_settings, what_a_session_has_holds]
