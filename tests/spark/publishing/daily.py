"""Scenarios of daily use: cells that are run again, names, full depots, and what ends a data set."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bowstring as bow
from tests.spark.live import patient
from tests.spark.publishing.local import MIB, held, numbers, streams, wait_for
from tests.ucx import NO_UCX

ROWS = 1_000_000
OPTIONS = bow.depot.Options(memory_budget=64 * MIB, disk_budget=0)


def start() -> Any:
    """Return a session as a user makes one: whose settings are Spark's, but for Java and Python."""
    return bow.spark.session(master="local[2]", config={"spark.ui.enabled": "false"})


def taken() -> int:
    """Return how many bytes the depot's memory files take beyond what is warm, as the kernel says."""
    status, found = held(), {}
    for fd in Path(f"/proc/{status.pid}/fd").iterdir():
        try:
            if "/memfd:bowstring" in str(fd.readlink()):
                found[fd.stat().st_ino] = fd.stat().st_blocks * 512
        except OSError:
            continue
    return sum(found.values()) - int(status.memory_warm)


def count(name: str) -> int:
    """Return how many rows a name of the depot means."""
    with bow.connect(f"depot:{name}") as stream:
        return sum(batch.num_rows for batch in stream)


def a_cell_that_is_run_again(session: Any) -> None:
    """Five runs of a cell hold one copy, of 1.1 times the data."""
    for _ in range(5):
        published = bow.spark.publish(numbers(session, 4, ROWS), "cell", depot_options=OPTIONS)
    assert published.nbytes is not None
    wait_for(lambda: streams("cell") == 4)
    assert taken() <= 1.1 * published.nbytes
    assert "available" in published._repr_html_()
    bow.spark.drop("cell")
    wait_for(lambda: held().memory_in_use == 0)


def one_kind_of_name(session: Any) -> None:
    """What is published and what is saved under a name is the same to whoever looks for it."""
    frame = numbers(session, 2, 1000)
    bow.spark.publish(frame, "one")
    frame.limit(10).write.format("bowstring").mode("overwrite").save("two")
    assert [(each.name, each.num_rows) for each in bow.list_datasets("depot:")] == [
        ("one", 1000),
        ("two", 10),
    ]
    for name, rows in (("one", 1000), ("two", 10)):
        assert bow.spark.dataset(name).num_rows == count(name) == rows
        assert session.read.format("bowstring").load(name).count() == rows
    frame.limit(20).write.format("bowstring").mode("overwrite").save("one")
    bow.spark.publish(frame, "two")
    assert (count("one"), count("two")) == (20, 1000)
    assert (streams("one"), streams("two")) == (1, 2)
    frame.write.format("bowstring").mode("append").save("two")
    assert count("two") == 2000
    for name in ("one", "two"):
        bow.spark.drop(name)
    assert bow.list_datasets("depot:") == []
    wait_for(lambda: held().memory_in_use == 0)
    with pytest.raises(Exception, match=r"Did you mean 'lease_seconds'\?"):
        frame.write.format("bowstring").option("lease_secnds", 3).mode("overwrite").save("three")
    with pytest.raises(Exception, match="knows no data set of that name"):
        session.read.format("bowstring").load("three")
    bow.spark.publish(frame, "three", replace=False)
    with pytest.raises(bow.UsageError, match="there already"):
        bow.spark.publish(frame, "three", replace=False)
    bow.spark.drop("three")


def a_full_depot(session: Any) -> None:
    """Waiting for room is told at once, is bounded, and ends in an error that names what holds the memory."""
    records: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record.getMessage())

    handler = Keep()
    logging.getLogger("bowstring.spark").addHandler(handler)
    first = bow.spark.publish(numbers(session, 4, 2 * ROWS), "first", depot_options=OPTIONS)
    assert first.num_rows == 2 * ROWS
    began = time.monotonic()
    with pytest.raises(bow.OutOfBudget) as caught:
        bow.spark.publish(numbers(session, 4, 2 * ROWS), "second", wait_for_room=3.0)
    assert time.monotonic() - began < patient(20.0)
    assert re.search(r"held by 'first' [0-9.]+ MiB.*bow.spark.drop\('first'\)", str(caught.value)), (
        caught.value
    )
    [said] = records
    assert "publishing 'second' waits for room" in said
    assert "held by 'first'" in said
    with pytest.raises(bow.OutOfBudget, match="The earlier 'first' is kept until the new one is whole"):
        bow.spark.publish(numbers(session, 4, 2 * ROWS), "first", wait_for_room=0.5)
    assert count("first") == 2 * ROWS
    timer = threading.Timer(2.0, bow.spark.drop, ["first"])
    timer.start()
    assert bow.spark.publish(numbers(session, 4, 2 * ROWS), "second").num_rows == 2 * ROWS
    timer.join()
    bow.spark.drop("second")
    logging.getLogger("bowstring.spark").removeHandler(handler)


PROGRAM = """
import os, signal, sys, time
import bowstring as bow
spark = bow.spark.session(master="local[1]", config={"spark.ui.enabled": "false"})
frame = spark.range(1000)
bow.spark.publish(frame, "named", lease_seconds=2.0)
kept = bow.spark.publish(frame, lease_seconds=2.0)
bow.spark.publish(frame, "stays", stay_seconds=float(sys.argv[2]), lease_seconds=2.0)
frame.write.format("bowstring").option("lease_seconds", 2).mode("overwrite").save("saved")
print("ready", flush=True)
sys.stdin.readline()
end = sys.argv[1]
if end == "stop":
    spark.stop()
    print("stopped", flush=True)
    sys.stdin.readline()
elif end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def what_ends_a_program(session: Any) -> None:
    """Data of a program go when Spark stops, when it ends or when it is killed, and stay for stay_seconds."""
    for end, stays in (("stop", True), ("exit", True), ("kill", False)):
        stay = patient(6.0)  # long enough to be read meanwhile
        program: Any = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, end, str(stay)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert program.stdout.readline() == "ready\n"
        names = {each.name for each in bow.list_datasets("depot:")}
        assert names == {"named", "stays", "saved"}, names
        assert len(held().datasets) == 4
        began = time.monotonic()
        program.stdin.write("\n")
        program.stdin.flush()
        if end == "stop":
            assert program.stdout.readline() == "stopped\n"
        if stays:
            wait_for(lambda: [each.name.split("#")[0] for each in held().datasets] == ["stays"], 5.0)
            assert count("stays") == 1000
        wait_for(lambda: held().datasets == () and not bow.list_datasets("depot:"), 15.0 + stay)
        # A driver that is killed takes its Java along, which may take a moment, and then the lease runs.
        assert time.monotonic() - began > (stay - 1.0 if stays else 1.5)
        if end == "stop":
            program.stdin.write("\n")
            program.stdin.flush()
        program.stdin.close()
        program.stdout.close()
        assert program.wait(patient(60.0)) == (-signal.SIGKILL if end == "kill" else 0)


def what_ends_a_data_set(session: Any) -> None:
    """The handle, release(), drop, the next one of the name, ttl, readers and the depot's death, one by one."""
    frame = numbers(session, 2, 1000)

    def gone() -> bool:
        return held().datasets == () and bow.list_datasets("depot:") == []

    published = bow.spark.publish(frame)
    assert len(held().datasets) == 1
    del published
    wait_for(gone, 5.0)
    published = bow.spark.publish(frame, "kept")
    del published
    time.sleep(1.5)
    assert count("kept") == 1000
    bow.spark.dataset("kept")
    bow.spark.publish(frame, "kept").release()
    assert gone()
    with bow.spark.publish(frame, "kept"):
        assert count("kept") == 1000
    assert gone()
    bow.spark.publish(frame, "short", ttl=2.0)
    wait_for(gone, 6.0)
    once = bow.spark.publish(frame, "once", readers=1)
    assert count("once") == 1000
    once.wait_released(patient(20.0))
    wait_for(lambda: held().datasets == ())
    lost = bow.spark.publish(frame, "lost", recoverable=True)
    os.kill(held().pid, signal.SIGKILL)
    time.sleep(0.5)
    assert lost.republish().num_rows == 1000
    assert count("lost") == 1000
    bow.spark.drop("lost")


def strange_names(session: Any) -> None:
    """Columns with dots, repeated names and backticks are published, saved and read back, each with its values."""
    names = ["a.b", "x", "x", "X", "t`k", "a"]
    frame = session.range(0, 1000, 1, 2).selectExpr(
        "id", "id + 1", "id + 2", "cast(id as string)", "-id", "struct(id as b)"
    )
    frame = frame.toDF(*names)
    assert frame.columns == names
    published = bow.spark.publish(frame, "dots")
    with bow.connect("depot:dots") as stream:
        table = stream.read_all()
    assert table.column_names == names
    assert [table.column(index)[3].as_py() for index in range(6)] == [3, 4, 5, "3", -3, {"b": 3}]
    # Spark writes no repeated names to data sources of Python.
    frame.toDF("a.b", "x", "y", "z", "t`k", "a").write.format("bowstring").mode("overwrite").save("too")
    with bow.connect("depot:too") as stream:
        assert stream.schema.names == ["a.b", "x", "y", "z", "t`k", "a"]
    back = session.read.format("bowstring").load("dots")
    assert back.columns == ["a.b", "x", "x_2", "X", "t`k", "a"]
    assert [tuple(row) for row in back.toDF(*"abcdef").orderBy("a").limit(2).collect()] == [
        (0, 1, 2, "0", 0, (0,)),
        (1, 2, 3, "1", -1, (1,)),
    ]
    del table
    published.release()
    bow.spark.drop("too")


def pandas_on_spark(session: Any) -> None:
    """Data frames and series of pandas-on-Spark are published."""
    frame = session.range(0, 1000, 1, 2).selectExpr("id", "id * 2 as y").pandas_api(index_col="id")
    for given, names in ((frame, ["y"]), (frame["y"], ["y"]), (frame.reset_index(), ["id", "y"])):
        with bow.spark.publish(given) as published, bow.connect(published) as stream:
            table = stream.read_all()
            assert (table.column_names, table.num_rows) == (names, 1000)
            del table


def small_partitions_are_joined(session: Any) -> None:
    """Hundreds of small partitions take a few tasks and keep their order; large ones and sorted ones stay."""
    small = session.range(0, 200_000, 1, 60).selectExpr("id", "cast(id as double) x")
    with bow.spark.publish(small) as published, bow.connect(published) as stream:
        assert 2 <= len(published) <= 8
        assert stream.read_all()["id"].to_pylist() == list(range(200_000))
    with bow.spark.publish(small, coalesce=None) as published:
        assert len(published) == 60
    with bow.spark.publish(small, coalesce=3) as published:
        assert len(published) == 3
    with bow.spark.publish(small.repartition(20)) as published:
        assert len(published) <= 8
        assert published.num_rows == 200_000
    with (
        bow.spark.publish(small.orderBy("id", ascending=False)) as published,
        bow.connect(published) as stream,
    ):
        assert stream.read_all()["id"].to_pylist() == list(range(199_999, -1, -1))
    for large in (
        session.range(0, 3_000_000, 1, 8).selectExpr("id", "id + 1 as y"),
        small.mapInArrow(lambda batches: batches, "id bigint, x double").coalesce(40),
    ):
        with bow.spark.publish(large) as published:
            assert len(published) in (8, 40)
    cached = small.cache()
    cached.count()
    with bow.spark.publish(cached) as published, bow.connect(published) as stream:
        assert stream.read_all()["id"].to_pylist() == list(range(200_000))
    cached.unpersist()
    with pytest.raises(bow.UsageError, match="coalesce"):
        bow.spark.publish(small, coalesce=0)


def far_enough(session: Any) -> None:
    """A callback hears of tasks, rows and bytes, and ends with all of them; one that fails costs nothing else."""
    seen: list[bow.spark.Progress] = []

    def slow(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(0.4)
            yield batch

    frame = numbers(session, 6, 6000).mapInArrow(slow, "id bigint, text string")
    with bow.spark.publish(frame, "slow", progress=seen.append) as published:
        last = seen[-1]
        assert (last.name, last.tasks_done, last.tasks, last.rows) == ("slow", 6, 6, 6000)
        assert last.nbytes == published.nbytes
        assert seen[0].tasks <= 6
        assert [each.rows for each in seen] == sorted(each.rows for each in seen)
        assert len({each.rows for each in seen}) > 2
    with bow.spark.publish(frame, progress=lambda progress: 1 / 0):
        pass
    with pytest.raises(bow.UsageError, match="progress"):
        bow.spark.publish(frame, progress=3)  # type: ignore[arg-type]


def what_cannot_work_is_said(session: Any) -> None:
    """Options for a depot that holds data already are a warning that says so."""
    other = bow.depot.Options(memory_budget=32 * MIB, disk_budget=0)
    with bow.spark.publish(numbers(session, 2, 100), depot_options=OPTIONS):
        with pytest.warns(RuntimeWarning, match=f"too late.*memory_budget={64 * MIB}") as said:
            bow.spark.publish(numbers(session, 2, 100), depot_options=other)
        assert {each.filename for each in said} == {__file__}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            bow.spark.publish(numbers(session, 2, 100), depot_options=OPTIONS)


QUIET = """
import time
import bowstring as bow
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config(
    map=bow.spark.session_config()
).getOrCreate()
frame = spark.range(0, 300_000, 1, 4).selectExpr("id", "cast(id as string) s")
for name in ("a", "b"):
    bow.spark.publish(frame, name)
    read = spark.read.format("bowstring").load(name)
    read.show(2)
    assert read.limit(3).count() == 3
    assert len(frame.mapInArrow(lambda batches: batches, "id bigint, s string").limit(2).collect()) == 2
    frame.limit(10).write.format("bowstring").mode("overwrite").save(name)
    assert spark.read.format("bowstring").load(name).where("id < 5").count() == 5
time.sleep(75)  # after a minute Spark lets idle workers go
spark.stop()
"""


def an_ordinary_run_is_quiet(session: Any) -> None:
    """With the documented line and pip's Java alone, PySpark's daemon prints no traceback."""
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    with tempfile.TemporaryDirectory() as programs:  # those of this host but its Java
        for program in (each for folder in os.environ["PATH"].split(":") for each in Path(folder).glob("*")):
            if program.name != "java" and not os.path.lexists(f"{programs}/{program.name}"):
                Path(programs, program.name).symlink_to(program)
        done = subprocess.run(
            [sys.executable, "-c", QUIET],
            env={**kept, "PATH": f"{os.path.dirname(sys.executable)}:{programs}"},
            capture_output=True,
            text=True,
            timeout=patient(300.0),
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr


LIMITED = """
import os, sys, bowstring as bow
from pathlib import Path
config = {"spark.ui.enabled": "false", "spark.executor.pyspark.memory": "1200m"}
spark = bow.spark.session(master="local[2]", config=config)
if sys.argv[1] == "publish":
    bow.spark.publish(spark.range(10), "limited")
elif sys.argv[1] == "stream":
    files = os.environ["BOWSTRING_DEPOT"] + "/files"
    spark.range(10).write.parquet(files)
    stream = spark.readStream.schema("id bigint").parquet(files).writeStream.format("bowstring")
    stream = stream.option("checkpointLocation", files + "-checkpoint").trigger(availableNow=True)
    stream.option("name", "limited").start().awaitTermination()
else:
    spark.range(10).write.format("bowstring").mode("overwrite").save("limited")
with bow.depot.connect(start=False) as depot:
    print(Path(f"/proc/{depot.status().pid}/limits").read_text())
    spark.stop()
    depot.stop()
"""


def a_limit_of_workers_is_not_the_depot_s(session: Any) -> None:
    """A depot of a session whose workers have little address space has all of it, also without root's rights."""
    for way in ("publish", "write", "stream"):
        with tempfile.TemporaryDirectory(prefix="bow-") as folder:
            done = subprocess.run(
                ["setpriv", "--bounding-set", "-sys_resource", sys.executable, "-c", LIMITED, way],
                env={**os.environ, "BOWSTRING_DEPOT": folder},
                capture_output=True,
                text=True,
                timeout=patient(300.0),
            )
            assert done.returncode == 0, done.stderr[-3000:]
            [line] = [each for each in done.stdout.splitlines() if each.startswith("Max address space")]
            assert line.split()[3:5] == ["unlimited", "unlimited"]


BY_UCX = """
import bowstring as bow
spark = bow.spark.session(master="local[2]", config={"spark.ui.enabled": "false"})
published = bow.spark.publish(spark.range(0, 300_000, 1, 4).selectExpr("id", "cast(id as string) s"), "u")
with bow.connect(published, options=bow.ConnectOptions(transport="ucx")) as stream:
    table = stream.read_all()
    print(table.num_rows, sum(table["id"].to_pylist()), stream.stats.path)
spark.stop()
"""


def a_depot_that_is_reached_by_ucx(session: Any) -> None:
    """What Spark published in a depot that was started with `--remote ucx://` is read whole by UCX."""
    with tempfile.TemporaryDirectory(prefix="bow-") as folder:
        environment = {**os.environ, "BOWSTRING_DEPOT": folder}
        run = [sys.executable, "-m", "bowstring", "depot", "run", "--remote", "ucx://127.0.0.1:0"]
        with subprocess.Popen(run, env=environment, stdout=subprocess.PIPE, text=True) as depot:
            try:
                assert depot.stdout is not None
                assert depot.stdout.readline().startswith("unix:")
                read = subprocess.run(
                    [sys.executable, "-c", BY_UCX],
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=patient(300.0),
                )
            finally:
                depot.terminate()
    assert read.stdout.split() == ["300000", "44999850000", "ucx:", "read"], read.stderr[-3000:]


LACKING = """
import bowstring as bow
spark = bow.spark.session(master="local[1]", config={"spark.ui.enabled": "false"})
spark.sparkContext.setLogLevel("OFF")
try:
    bow.spark.publish(spark.range(10))
except bow.MissingDependency as error:
    print(error)
"""
HIDES = """
import sys
class Hides:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "bowstring":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hides())
"""


def workers_without_bowstring(session: Any) -> None:
    """Where the Python of the workers has no bowstring, the error names that cause and what to do."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(HIDES)
        python = Path(folder, "python")
        python.write_text(
            f'#!/bin/sh\nexport PYTHONPATH={folder}:"$PYTHONPATH"\nexec {sys.executable} "$@"\n'
        )
        python.chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", LACKING],
            env={**os.environ, "PYSPARK_PYTHON": str(python)},
            capture_output=True,
            text=True,
            timeout=patient(300.0),
        )
    assert "the Python of Spark's workers has no bowstring" in done.stdout, done.stdout + done.stderr[-3000:]


SCENARIOS = [
    a_cell_that_is_run_again,
    one_kind_of_name,
    a_full_depot,
    strange_names,
    pandas_on_spark,
    small_partitions_are_joined,
    far_enough,
    what_cannot_work_is_said,
    an_ordinary_run_is_quiet,
    a_limit_of_workers_is_not_the_depot_s,
    *([] if NO_UCX else [a_depot_that_is_reached_by_ucx]),
    workers_without_bowstring,
    what_ends_a_data_set,
    what_ends_a_program,
]
