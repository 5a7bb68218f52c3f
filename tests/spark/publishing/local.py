"""Scenarios on local cores: every row once, whatever happens to tasks, readers, depots and names."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from tests.spark.live import patient

ROWS = 200_000
SUM = ROWS * (ROWS - 1) // 2
MIB = 1 << 20
# So small that most data sets here go to files.
OPTIONS = bow.depot.Options(memory_budget=8 * MIB, disk_budget=512 * MIB)


def start() -> Any:
    """Return a session whose tasks are tried four times."""
    return bow.spark.session(
        master="local[2,4]", config={"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    )


def numbers(session: Any, partitions: int = 4, rows: int = ROWS) -> Any:
    """Return a data frame of numbers, and the same as text."""
    return session.range(0, rows, 1, partitions).selectExpr("id", "cast(id as string) as text")


def total(dataset: bow.Dataset, **given: Any) -> tuple[int, int]:
    """Return how many rows there are, and the sum of their numbers."""
    with bow.connect(dataset, **given) as stream:
        sums = [(batch.num_rows, int(batch["id"].values.sum())) for batch in stream]
    return sum(rows for rows, _ in sums), sum(part for _, part in sums)


def held() -> Any:
    """Return what the depot holds."""
    with bow.depot.connect(start=False) as depot:
        return depot.status()


def streams(name: str) -> int:
    """Return how many streams the depot has of data sets of a name."""
    return sum(each.streams + each.attempts for each in held().datasets if each.name.startswith(f"{name}#"))


def wait_for(wanted: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + patient(seconds)
    while not wanted():
        assert time.monotonic() < end, held()
        time.sleep(0.05)


def kill_the_depot() -> None:
    """Kill the depot, and wait until nothing of it is left."""
    process = Path("/proc", str(held().pid))
    os.kill(int(process.name), signal.SIGKILL)
    end = time.monotonic() + patient(20.0)
    with contextlib.suppress(OSError):  # it is gone; one that nobody has waited for has no command line
        while (process / "cmdline").read_bytes():
            assert time.monotonic() < end, "the depot does not end"
            time.sleep(0.05)


def every_row_comes_once(session: Any) -> None:
    """Partitions come in order, with all rows; the text agrees with the numbers."""
    published = bow.spark.publish(numbers(session, 5), "numbers", depot_options=OPTIONS, coalesce=None)
    assert (len(published), published.num_rows) == (5, ROWS)
    with bow.connect(published) as stream:
        table = stream.read_all()
    assert table["id"].to_pylist() == list(range(ROWS))
    assert table["text"].cast(pa.int64()).equals(table["id"].cast(pa.int64()))
    del table
    published.release()
    wait_for(lambda: held().memory_in_use + held().disk_in_use == 0)
    assert streams("numbers") == 0


def another_process_reads_it(session: Any) -> None:
    """A pickled data set is opened by a process that knows nothing of Spark."""
    published = bow.spark.publish(numbers(session), "pickled")
    program = (
        "import pickle, sys, bowstring as bow\n"
        "with bow.connect(pickle.load(sys.stdin.buffer)) as stream:\n"
        "    print(sum(int(batch['id'].values.sum()) for batch in stream), 'pyspark' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(published),
        capture_output=True,
        timeout=patient(60.0),
    )
    assert done.stdout.split() == [str(SUM).encode(), b"False"], done.stderr.decode()
    published.release()


def one_reader_frees_it(session: Any) -> None:
    """With readers=1 the memory is free when the one reader has read all, and nobody else gets in."""
    published = bow.spark.publish(numbers(session), "once", readers=1)
    assert total(published) == (ROWS, SUM)
    published.wait_released(patient(20.0))
    wait_for(lambda: held().memory_in_use + held().disk_in_use == 0)
    with pytest.raises(bow.UnknownTicket):
        total(published)


def partitions_without_rows(session: Any) -> None:
    """Empty partitions have no endpoint, and a data frame without rows is a data set without endpoints."""
    some = bow.spark.publish(numbers(session).where("id < 10"), "some")
    assert (len(some), some.num_rows, total(some)) == (1, 10, (10, 45))
    none = bow.spark.publish(numbers(session).where("id < 0"), "none")
    assert (len(none), none.num_rows, total(none)) == (0, 0, (0, 0))
    assert none.schema == some.schema
    some.release()


def workers_collect_no_imports(session: Any) -> None:
    """After its first task a worker has its imports out of its collections, and later tasks add nothing to them."""

    def frozen() -> dict[int, int]:
        def count(batches: Iterator[Any]) -> Iterator[Any]:
            import gc

            for _ in batches:
                pass
            time.sleep(0.3)  # so that each worker gets one of the tasks
            yield pa.record_batch({"pid": [os.getpid()], "count": [gc.get_freeze_count()]})

        rows = numbers(session, 2).mapInArrow(count, "pid bigint, count bigint").collect()
        return {row["pid"]: row["count"] for row in rows}

    seen: list[dict[int, int]] = []
    for _ in range(3):
        bow.spark.publish(numbers(session), "frozen").release()
        seen.append(frozen())
    assert min(seen[-1].values()) > 10_000, seen
    for pid in set.intersection(*map(set, seen)):
        assert len({each[pid] for each in seen}) == 1, seen


def _dies_first(folder: str, how: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function that dies in the middle of the first attempt of partition 1."""

    def passed_on(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        # However large Spark's batches are, there are two at least.
        parts = (part for batch in batches for part in (batch.slice(0, 1), batch.slice(1)))
        for number, batch in enumerate(parts):
            if context.partitionId() == 1 and number == 1 and context.attemptNumber() == 0:
                Path(folder, "died").touch()
                if how == "raise":
                    raise RuntimeError("the first attempt fails")
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    return passed_on


def attempts_that_die(session: Any) -> None:
    """A task that fails, or whose worker is killed, is tried again: no row twice, and its memory comes back."""
    for how in ("raise", "kill"):
        with tempfile.TemporaryDirectory() as folder:
            frame = numbers(session, 4).mapInArrow(_dies_first(folder, how), "id bigint, text string")
            published = bow.spark.publish(frame, how)
            assert Path(folder, "died").exists()
        assert total(published) == (ROWS, SUM)
        [known] = [each for each in held().datasets if each.name.startswith(how)]
        assert (known.streams, known.attempts, known.num_rows) == (4, 0, ROWS)
        published.release()
    wait_for(lambda: held().memory_in_use + held().disk_in_use == 0)


def attempts_that_both_commit(session: Any) -> None:
    """Of two attempts that both committed (as speculation has it) the one that Spark takes stays."""
    from bowstring.spark.task import DepotTask, Order
    from bowstring.spark.tickets import COLUMNS, Ticket

    task = DepotTask(Order("two", "two#1"))

    def after_commit(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        tickets = list(batches)
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("committed, and failed all the same")
        yield from tickets

    rows = numbers(session, 2).mapInArrow(task, COLUMNS).mapInArrow(after_commit, COLUMNS).collect()
    tickets = [Ticket.of_row(row) for row in rows]
    with bow.depot.connect(start=False) as depot:
        assert streams("two") == 4
        assert depot.settle("two#1", [bow.Endpoint.parse(each.endpoint) for each in tickets]) == 2
        assert streams("two") == 2
        depot.end("two")
    wait_for(lambda: held().memory_in_use + held().disk_in_use == 0)


def a_cancelled_job(session: Any) -> None:
    """A job that is cancelled leaves nothing in the depot."""

    def slow(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(1.0)
            yield batch

    errors: list[BaseException] = []

    def publish() -> None:
        session.sparkContext.setJobGroup("cancelled", "", interruptOnCancel=True)
        try:
            bow.spark.publish(numbers(session).mapInArrow(slow, "id bigint, text string"), "cancelled")
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    from pyspark import InheritableThread

    thread = InheritableThread(target=publish)
    thread.start()
    wait_for(lambda: streams("cancelled") > 0, 60.0)
    session.sparkContext.cancelJobGroup("cancelled")
    thread.join(patient(60.0))
    assert errors
    wait_for(lambda: streams("cancelled") == 0 and held().memory_in_use + held().disk_in_use == 0)


def a_depot_that_is_killed(session: Any) -> None:
    """What was lost with a depot is published again on request, and what was not stays where it is."""
    published = bow.spark.publish(numbers(session), "lost", recoverable=True, depot_options=OPTIONS)
    kill_the_depot()
    with pytest.raises(bow.BowstringError):
        total(published)
    again = published.republish()
    assert total(again) == (ROWS, SUM)
    part = again.republish([2])
    assert total(part) == (ROWS, SUM)
    assert [a == b for a, b in zip(again, part, strict=True)] == [True, True, False, True]
    part.release()
    wait_for(lambda: held().memory_in_use + held().disk_in_use == 0)


def data_beyond_the_budget(session: Any) -> None:
    """A data set of four times the memory goes to files, and reads the same."""
    rows = 4 * 8 * MIB // 12
    published = bow.spark.publish(numbers(session, 4, rows), "big")
    assert published.nbytes is not None
    assert published.nbytes > 3 * 8 * MIB
    assert held().disk_in_use > 0
    assert total(published) == (rows, rows * (rows - 1) // 2)
    published.release()
    wait_for(lambda: held().memory_in_use + held().disk_in_use == 0)


def names(session: Any) -> None:
    """What is written under a name is found under it, grows by append, and is replaced by overwrite."""
    frame = numbers(session, 2)

    def write(mode: str) -> None:
        frame.write.format("bowstring").mode(mode).save("ev")

    for mode, times in (("append", 1), ("append", 2), ("overwrite", 1)):
        write(mode)
        found = bow.spark.dataset("ev")
        assert (found.num_rows, total(found)) == (times * ROWS, (times * ROWS, times * SUM))
        back = session.read.format("bowstring").option("name", "ev").load()
        assert back.selectExpr("count(*)", "sum(id)").collect()[0][:] == (times * ROWS, times * SUM)
        del back
    assert streams("ev") == 2


def another_schema_is_not_appended(session: Any) -> None:
    """Appending other columns is refused in the driver, in words; no task begins, the data set stays."""
    frame = numbers(session, 2)
    frame.write.format("bowstring").mode("append").save("kept")
    with tempfile.TemporaryDirectory() as folder:

        def marked(batches: Iterator[Any]) -> Iterator[Any]:
            Path(folder, "began").touch()
            yield from batches

        other = frame.mapInArrow(marked, "id bigint, text string").selectExpr("cast(id as string) id", "text")
        with pytest.raises(Exception, match=r"(?s)another schema.*id int64.*id string.*'kept'"):
            other.write.format("bowstring").mode("append").save("kept")
        assert not Path(folder, "began").exists()
    assert total(bow.spark.dataset("kept")) == (ROWS, SUM)
    other = numbers(session, 2).selectExpr("timestamp_micros(id) t", "id")
    for zone in ("America/New_York", "UTC"):
        session.conf.set("spark.sql.session.timeZone", zone)
        try:
            other.write.format("bowstring").mode("overwrite").save("times")
            other.write.format("bowstring").mode("append").save("times")
        finally:
            session.conf.unset("spark.sql.session.timeZone")
        assert bow.spark.dataset("times").num_rows == 2 * ROWS


def micro_batches(session: Any) -> None:
    """A streaming query adds each micro-batch once, also when it is started again from its checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        source, checkpoint = Path(folder, "in"), Path(folder, "checkpoint")

        def add(first: int) -> None:
            session.range(first, first + 100).write.mode("append").parquet(str(source))

        def run() -> None:
            read = session.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).parquet(str(source))
            query = (
                read.writeStream.format("bowstring")
                .option("name", "stream")
                .option("checkpointLocation", str(checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(patient(90))
            assert query.exception() is None

        add(0)
        run()
        assert total(bow.spark.dataset("stream")) == (100, 4950)
        add(100)
        run()
        assert total(bow.spark.dataset("stream")) == (200, 19900)
        # The last commit is forgotten, as when the query died just before it wrote it down: the batch is run again.
        last = max(Path(checkpoint, "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        Path(last.parent, f".{last.name}.crc").unlink(missing_ok=True)
        run()
        assert total(bow.spark.dataset("stream")) == (200, 19900)


def parquet_by_tasks(session: Any) -> None:
    """Parquet files that tasks read themselves give what Spark gives; other plans are refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/p"
        numbers(session).selectExpr(
            "id", "text", "timestamp_micros(id) as t", "cast(id as decimal(12,2)) d"
        ).write.parquet(path)
        frame = session.read.parquet(path)
        by_tasks = bow.spark.publish(frame.selectExpr("text", "id as id", "t", "d"), "pq", scan="tasks")
        by_spark = bow.spark.publish(frame.selectExpr("text", "id as id", "t", "d"), "pq2")
        assert by_tasks.schema.equals(by_spark.schema, check_metadata=True), (
            by_tasks.schema,
            by_spark.schema,
        )
        with bow.connect(by_tasks) as one, bow.connect(by_spark) as other:
            assert one.read_all().sort_by("id").equals(other.read_all().sort_by("id"))
        for strange in (frame.where("id > 3"), frame.selectExpr("id + 1 as id"), frame.limit(3)):
            with pytest.raises(bow.Unsupported):
                bow.spark.publish(strange, "no", scan="tasks")


def threads_and_processes_end(session: Any) -> None:
    """When Spark has stopped, the depot holds nothing, and this process has no thread of ours at work."""
    bow.spark.publish(numbers(session), "last")
    bow.spark.publish(numbers(session), "stays", stay_seconds=600.0)
    session.stop()
    wait_for(lambda: streams("last") == 0)
    assert streams("stays") == 4
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("bowstring-")], names


SCENARIOS = [
    every_row_comes_once,
    another_process_reads_it,
    one_reader_frees_it,
    partitions_without_rows,
    workers_collect_no_imports,
    attempts_that_die,
    attempts_that_both_commit,
    a_cancelled_job,
    a_depot_that_is_killed,
    data_beyond_the_budget,
    parquet_by_tasks,
    names,
    another_schema_is_not_appended,
    micro_batches,
    threads_and_processes_end,
]
