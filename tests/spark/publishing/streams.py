"""Scenarios of streams that read a name: it grows, and is replaced."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import bowstring as bow
from tests.spark.live import patient
from tests.spark.publishing.local import wait_for

REPLACED = "it was replaced.*onReplace"
# A stream's own worker must have imported PySpark within 10 s, which no setting changes, and a busy machine misses.
_LATE = "to connect back"
_STARTS = 10


def start() -> Any:
    """Return a session as a user makes one."""
    return bow.spark.session(
        master="local[2]", config={"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    )


class Query:
    """A streaming query with a checkpoint of its own, which is started anew for each look.

    Parameters
    ----------
    source
        What is loaded.
    before
        Called in each micro-batch with its number, before it is read.
    """

    def __init__(
        self, session: Any, source: str, before: Callable[[int], object] = lambda _: None, **options: str
    ) -> None:
        self.session, self.source, self.before, self.options = session, source, before, options
        self.checkpoint = tempfile.mkdtemp()
        self.batches: list[list[int]] = []

    def start(self, **trigger: Any) -> Any:
        """Start it; each micro-batch that has rows is one of `batches`."""

        def take(frame: Any, number: int) -> None:
            self.before(number)
            found = sorted(row["id"] for row in frame.collect())
            self.batches += [found] if found else []

        reading = self.session.readStream.format("bowstring").options(**self.options).load(self.source)
        writing = reading.writeStream.option("checkpointLocation", self.checkpoint).foreachBatch(take)
        return writing.trigger(**trigger).start()

    def look(self) -> list[int]:
        """Read what there is; return what was read."""
        before = len(self.rows())
        for _ in range(_STARTS):
            query = self.start(availableNow=True)
            try:
                assert query.awaitTermination(patient(120))
            except Exception as error:
                if _LATE not in str(error):
                    raise
            else:
                return self.rows()[before:]
            finally:
                query.stop()
        raise AssertionError("Spark's worker did not start in time")

    def rows(self) -> list[int]:
        """Return all that was read."""
        return [row for batch in self.batches for row in batch]


def publish(session: Any, name: str, rows: Iterable[int], partitions: int = 2, **options: Any) -> Any:
    """Publish rows of consecutive numbers."""
    first, *_, last = rows
    frame = session.range(first, last + 1, 1, partitions)
    return bow.spark.publish(frame, name, coalesce=None, **options)


def append(session: Any, name: str, rows: Iterable[int]) -> None:
    """Append rows of consecutive numbers."""
    first, *_, last = rows
    session.range(first, last + 1, 1, 2).write.format("bowstring").mode("append").save(name)


def a_replaced_name_is_an_error(session: Any) -> None:
    """A name that is replaced ends the query, each time it is started; with onReplace=read all new rows come."""
    query = Query(session, "replaced")
    publish(session, "replaced", range(10))
    assert query.look() == list(range(10))
    assert query.look() == []
    publish(session, "replaced", range(100, 110), 4)
    for _ in range(2):
        with pytest.raises(Exception, match=REPLACED):
            query.look()
    query.options = {"onReplace": "read"}
    assert query.look() == list(range(100, 110))
    for partitions in (1, 4):
        publish(session, "replaced", range(200, 210), partitions)
        assert query.look() == list(range(200, 210))
    query.options = {"onReplace": "error"}
    assert query.look() == []
    with pytest.raises(Exception, match="onReplace is error or read"):
        Query(session, "replaced", onReplace="skip").look()


def _has(query: Query, rows: int) -> bool:
    return len(query.rows()) == rows


def rows_that_are_appended(session: Any) -> None:
    """Rows appended while a query runs and while it is stopped are read once, also by several queries."""
    publish(session, "grows", range(10))
    one, other = Query(session, "grows"), Query(session, "grows", maxEndpointsPerTrigger="1")
    running = one.start(processingTime="0 seconds")
    wait_for(lambda: bool(one.batches), 60.0)
    for rows in (20, 30):
        append(session, "grows", range(rows - 10, rows))
        wait_for(functools.partial(_has, one, rows), 60.0)
    running.processAllAvailable()  # a batch that is stopped before its commit is read again
    running.stop()
    assert other.look() == list(range(30))
    append(session, "grows", range(30, 40))
    assert other.look() == one.look() == list(range(30, 40))
    for first in range(40, 100, 10):
        append(session, "grows", range(first, first + 10))
    # Few endpoints stand for all that is small; positions count each of the 20, also those that were read before.
    with bow.depot.connect(start=False) as catalog:
        assert len(catalog.lookup("grows")) < 8 < len(bow.spark.dataset("grows")) == 20
    other.options["maxEndpointsPerTrigger"] = "5"
    assert other.look() == one.look() == list(range(40, 100))
    assert [len(batch) for batch in other.batches[-3:]] == [25, 25, 10]
    assert sorted(one.rows()) == sorted(other.rows()) == list(range(100))
    session.range(50, 60, 1, 2).write.format("bowstring").mode("overwrite").save("grows")
    other.options |= {"onReplace": "read"}
    assert other.look() == list(range(50, 60))
    with pytest.raises(Exception, match=REPLACED):
        one.look()


def each_complete_batch(session: Any) -> None:
    """A name that a query in the output mode complete writes is read whole each time it was written."""
    query = Query(session, "totals", onReplace="read")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        for count in (1, 2, 3):
            session.range(10 * count, 10 * count + 10, 1, 1).write.mode("append").parquet(str(source))
            arriving = session.readStream.schema("id bigint").parquet(str(source)).groupBy("id").count()
            writing = arriving.writeStream.format("bowstring").option("name", "totals").outputMode("complete")
            done = writing.option("checkpointLocation", f"{folder}/at").trigger(availableNow=True).start()
            assert done.awaitTermination(patient(120))
            assert query.look() == list(range(10, 10 * count + 10))


def a_name_replaced_in_a_micro_batch(session: Any) -> None:
    """Replaced between two micro-batches, or after one was planned, no version is read in part and called whole."""
    from pyspark.errors import PySparkException

    def replace(number: int) -> None:
        if number in (1, 3):
            publish(session, "within", range(100 * number, 100 * number + 4), 4)

    publish(session, "within", range(4), 4)
    query = Query(session, "within", replace, onReplace="read", maxEndpointsPerTrigger="2")
    for _ in range(5):  # one that was planned and lost its data fails, and is followed by the new data set
        with contextlib.suppress(PySparkException):
            query.look()
    read = query.rows()
    assert len(set(read)) == len(read)
    assert read[-4:] == [300, 301, 302, 303]
    publish(session, "within", range(4), 4)
    query = Query(session, "within", lambda _: replace(1))
    with pytest.raises(Exception, match=r"replaced|UnknownTicket"):
        query.look()
    query.before = lambda _: None
    with pytest.raises(Exception, match="before the stream had read it"):
        query.look()
    query.options = {"onReplace": "read"}
    assert query.look() == [100, 101, 102, 103]


SCENARIOS = [
    a_replaced_name_is_an_error,
    rows_that_are_appended,
    each_complete_batch,
    a_name_replaced_in_a_micro_batch,
]
