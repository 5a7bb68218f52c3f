"""Scenarios on local cores about what is published: types, tiny batches, schemas, plans, readers that die."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring as bow
from tests.spark.live import patient
from tests.spark.publishing.local import ROWS, SUM, held, numbers, streams, total, wait_for
from tests.spark.test_live_types import EVERY

_TINY = 10_000
_MANY = 1500


def start() -> Any:
    """Return a session that has the types of previews, too."""
    config = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.timeType.enabled": "true",
        "spark.sql.geospatial.enabled": "true",
        "spark.sql.session.timeZone": "America/New_York",
    }
    return bow.spark.session(master="local[2]", config=config)


def every_type(session: Any) -> None:
    """Each type of Spark's, nested, null and without rows, is published and read back with the same values."""
    one = session.range(0, 6, 1, 2).selectExpr(
        "id", *[f"{value} as `{name}`" for name, value in EVERY.items()]
    )
    frame = one.selectExpr("*", *[f"if(id % 2 = 0, null, `{name}`) as `null_{name}`" for name in EVERY])
    published = bow.spark.publish(frame, "types")
    back = session.read.format("bowstring").option("dataset", published.to_json()).load()
    assert back.schema.simpleString() == frame.schema.simpleString().replace("varchar(5)", "string")
    assert _shown(back) == _shown(frame)
    with bow.connect(published) as stream:
        for batch in stream:
            batch.validate(full=True)
    published.release()
    none = bow.spark.publish(frame.where("id < 0"), "no rows")
    assert none.schema.equals(published.schema, check_metadata=True)
    assert session.read.format("bowstring").option("dataset", none.to_json()).load().count() == 0


def _shown(frame: Any) -> list[str]:
    """Return the rows as text that Spark makes of them, sorted."""
    # Geometries and intervals of Spark have no text of their own.
    columns = [
        f"to_json(`{name}`)"
        if "variant" in kind or kind.startswith(("array", "map", "struct"))
        else f"`{name}`"
        for name, kind in frame.dtypes
        if "geo" not in kind
    ]
    return sorted(map(str, frame.selectExpr(*columns).collect()))


def what_is_lost_on_the_way(session: Any) -> None:
    """Vectors of ML are published as lists, dense, sparse and null, one within a struct as Spark stores it; text
    loses its collation.
    """
    from pyspark.ml.linalg import Vectors

    rows = [(0, Vectors.dense([1.0, 2.0, 0.5])), (1, Vectors.sparse(3, {1: 4.0})), (2, None)]
    frame = session.createDataFrame(rows, ["id", "v"])
    frame = frame.selectExpr(
        "id", "v AS `a.v`", "named_struct('v', v) AS s", "collate('A', 'UNICODE_CI') AS c"
    )
    published = bow.spark.publish(frame)
    with bow.connect(published) as stream:
        table = stream.to_arrow().sort_by("id")
    assert pa.types.is_list(table.schema.field("a.v").type)
    assert table.schema.field("a.v").type.value_type == pa.float64()
    assert table["a.v"].to_pylist() == [[1.0, 2.0, 0.5], [0.0, 4.0, 0.0], None]
    stored = table.schema.field("s").type.field("v").type
    assert [child.name for child in stored] == ["type", "size", "indices", "values"]
    back = session.read.format("bowstring").option("dataset", published.to_json()).load()
    assert frame.filter("c = 'a'").count() == 3
    assert back.filter("c = 'a'").count() == 0
    published.release()


def many_tiny_batches(session: Any) -> None:
    """Ten thousand batches of a row each come joined, in their order: one for each partition."""
    limit = "spark.sql.execution.arrow.maxRecordsPerBatch"
    session.conf.set(limit, "1")
    try:
        published = bow.spark.publish(session.range(0, _TINY, 1, 2), "tiny")
    finally:
        session.conf.unset(limit)
    with bow.connect(published) as stream:
        batches = [batch.to_arrow() for batch in stream]
    assert [batch.num_rows for batch in batches] == [_TINY // 2] * 2
    assert [number for batch in batches for number in batch["id"].to_pylist()] == list(range(_TINY))
    del batches
    published.release()
    wait_for(lambda: held().memory_in_use + held().disk_in_use == 0)


def many_small_partitions(session: Any) -> None:
    """More partitions than a server has connections are one data set, which can be kept whole."""
    published = bow.spark.publish(numbers(session, _MANY, 4 * _MANY), "many", coalesce=None)
    assert (len(published), published.num_rows) == (_MANY, 4 * _MANY)
    assert held().memory_in_use <= _MANY * 64 << 10
    with bow.connect(published) as stream:
        table = stream.read_all()
        # Small partitions share slabs, of which few are mapped; nothing needs to be copied.
        assert stream.stats.cached_regions > 0.9 * _MANY
        assert stream.stats.copied == ""
    assert table["id"].to_pylist() == list(range(4 * _MANY))
    assert total(published)[0] == 4 * _MANY
    del table
    published.release()
    wait_for(lambda: held().memory_in_use + held().disk_in_use == 0)


def a_reader_that_dies(session: Any) -> None:
    """A reader that is killed in the middle does not count: the next one gets every row, and then all is free."""
    published = bow.spark.publish(numbers(session), "dead", readers=1)
    program = (
        "import sys, pickle, bowstring as bow\n"
        "stream = bow.connect(pickle.load(sys.stdin.buffer))\n"
        "kept = stream.read_next_batch()\n"
        "print('reading', flush=True)\n"
        "import time; time.sleep(600)\n"
    )
    reader = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert reader.stdin is not None
    assert reader.stdout is not None
    reader.stdin.write(pickle.dumps(published))
    reader.stdin.close()
    assert reader.stdout.readline() == b"reading\n"
    os.kill(reader.pid, signal.SIGKILL)
    reader.wait(patient(20.0))
    reader.stdout.close()

    def is_read() -> bool:
        try:
            return total(published) == (ROWS, SUM)
        except bow.RefusedError:  # not everybody has noticed yet
            return False

    wait_for(is_read)
    published.wait_released(patient(20.0))
    wait_for(lambda: held().memory_in_use + held().disk_in_use == 0)


def other_schemas_are_refused(session: Any) -> None:
    """What is appended under a name must have its schema; the user is told which, and what is there stays."""
    numbers(session, 2).write.format("bowstring").mode("append").save("fixed")
    other = numbers(session, 2).withColumnRenamed("text", "words")
    with pytest.raises(Exception, match="what is appended has another schema"):
        other.write.format("bowstring").mode("append").save("fixed")
    assert total(bow.spark.dataset("fixed")) == (ROWS, SUM)
    wait_for(lambda: streams("fixed") == 2)


def output_that_is_complete(session: Any) -> None:
    """With the output mode complete the name means the last result alone, whatever the checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in")
        for number in range(3):
            session.range(10).write.mode("append").parquet(str(source))
            read = session.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).parquet(str(source))
            query = (
                read.groupBy("id")
                .count()
                .writeStream.format("bowstring")
                .outputMode("complete")
                .option("name", "counts")
                .option("checkpointLocation", f"{folder}/checkpoint")
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(patient(90))
            found = bow.spark.dataset("counts")
            with bow.connect(found) as stream:
                table = stream.read_all()
            assert sorted(table["id"].to_pylist()) == list(range(10))
            assert set(table["count"].to_pylist()) == {number + 1}


def queries_with_one_name(session: Any) -> None:
    """A query with a new checkpoint counts its micro-batches from 0 again: its rows are added all the same."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in")
        session.range(100).coalesce(1).write.parquet(str(source))
        for times in (1, 2):
            query = (
                session.readStream.schema("id bigint")
                .parquet(str(source))
                .writeStream.format("bowstring")
                .option("name", "both")
                .option("checkpointLocation", f"{folder}/checkpoint{times}")
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(patient(90))
            assert total(bow.spark.dataset("both")) == (100 * times, 4950 * times)


def plans_that_tasks_read(session: Any) -> None:
    """Files that tasks read give what Spark gives, whatever they are called; what may differ is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/a b%20#ä"
        session.range(0, 1000, 1, 3).selectExpr(
            "id as Id",
            "cast(id as string) as `a.b`",
            "named_struct('x', id, 'y', array(id)) as s",
            "timestamp_seconds((id - 500) * 100000000) as t",
            "date_add(date'1500-01-01', cast(id as int)) as d",
            "cast(id as decimal(20,3)) as n",
            "if(id % 3 = 0, null, map('k', id)) as m",
        ).write.parquet(path)
        frame = session.read.parquet(path)
        good = frame.selectExpr("ID as other", "s", "t", "d", "n", "m", "iD as again")
        one = bow.spark.publish(good, "pq", scan="tasks")
        two = bow.spark.publish(good, "pq2")
        assert one.schema.equals(two.schema, check_metadata=True)
        with bow.connect(one) as stream, bow.connect(two) as known:
            assert stream.read_all().sort_by("other").equals(known.read_all().sort_by("other"))
        variants = f"{folder}/v"
        session.sql("select parse_json('{\"a\": 1}') as v, 1 as i").write.parquet(variants)
        for strange in (
            frame.select("`a.b`"),
            frame.select("s.x"),
            frame.select(),
            frame.select("_metadata"),
            frame.select("Id", "_metadata.file_path"),
            session.read.parquet(variants),
            session.read.option("datetimeRebaseMode", "LEGACY").parquet(path).select("d"),
            frame.select("Id").distinct(),
        ):
            with pytest.raises(bow.Unsupported):
                bow.spark.publish(strange, "no", scan="tasks")
        with pytest.raises(bow.Unsupported):
            bow.spark.publish(frame.cache(), "no", scan="tasks")
        frame.unpersist()
        # Spark fills in what a file lacks, and finds other spellings: tasks do neither, and say so.
        extended = session.read.schema("id bigint, more string").parquet(path)
        assert extended.where("more is null").count() == 1000
        with pytest.raises(Exception, match="lacks a column"):
            bow.spark.publish(extended, "no", scan="tasks")
        pq.write_table(pa.table({"t": pa.array([1], pa.timestamp("us"))}), f"{folder}/ntz.parquet")
        zoned = session.read.schema("t timestamp").parquet(f"{folder}/ntz.parquet")
        with pytest.raises(Exception, match="another type"):
            bow.spark.publish(zoned, "no", scan="tasks")


SCENARIOS = [
    every_type,
    what_is_lost_on_the_way,
    many_tiny_batches,
    many_small_partitions,
    a_reader_that_dies,
    other_schemas_are_refused,
    output_that_is_complete,
    queries_with_one_name,
    plans_that_tasks_read,
]
