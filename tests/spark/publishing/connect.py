"""Scenarios of Spark Connect: a server with executors of its own, and clients that come and go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bowstring as bow
from tests.spark.live import patient
from tests.spark.publishing import standalone
from tests.spark.publishing.daily import a_cell_that_is_run_again
from tests.spark.publishing.local import ROWS, SUM, held, numbers, streams, total, wait_for

_port = 0


def start() -> Any:
    """Start a server, and return a session of a client."""
    global _port  # noqa: PLW0603  what other clients need, too
    _port = standalone.start_connect_server(
        {
            "spark.master": "local-cluster[2,1,1024]",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.log.level": "OFF",
            **standalone.python_settings(),
            "spark.executorEnv.BOWSTRING_DEPOT": os.environ["BOWSTRING_DEPOT"],
        }
    )
    from pyspark.sql import SparkSession

    return SparkSession.builder.remote(f"sc://127.0.0.1:{_port}").getOrCreate()


def a_client_publishes(session: Any) -> None:
    """What executors of a server publish for a client is mapped by any process of the host, whole, by its name."""
    seen: list[bow.spark.Progress] = []
    published = bow.spark.publish(numbers(session, 5), "remote", progress=seen.append)
    assert total(published) == (ROWS, SUM)
    assert len(published) == 5
    # A server says now and then how far it is, and not always that it has come to the end.
    assert seen[-1].rows == ROWS
    assert all(0 <= each.tasks_done <= each.tasks <= 5 for each in seen)
    with bow.connect("depot:remote") as stream:
        assert sum(batch.num_rows for batch in stream) == ROWS
        assert stream.stats.path == "unix: mapped"
    assert session.read.format("bowstring").load("remote").count() == ROWS
    assert "available" in published._repr_html_()
    bow.spark.drop("remote")
    wait_for(lambda: held().datasets == ())


def events(session: Any) -> None:
    """Variants, decimals, timestamps and nested columns come as they do from a session of one's own."""
    frame = session.range(0, 100, 1, 2).selectExpr(
        "id", "cast(id as decimal(12, 2)) price", "timestamp_micros(id) at",
        "array(struct(id, id + 1 as next)) many", "parse_json(concat('{\"a\": ', id, '}')) event",
    )  # fmt: skip
    with bow.spark.publish(frame) as published, bow.connect(published) as stream:
        batches = list(stream)
        found = [
            value
            for batch in batches
            for value in bow.variant.get(batch["event"], "$.a", "int64").to_pylist()
        ]
        assert found == list(range(100))
        row = batches[0].to_arrow().slice(3, 1).drop_columns("event").to_pylist()[0]
        assert (str(row["price"]), row["many"]) == ("3.00", [{"id": 3, "next": 4}])


def a_job_that_fails(session: Any) -> None:
    """A job that fails leaves the earlier data of the name, and nothing of its own."""

    def fails(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        if TaskContext.get().partitionId() == 3:
            raise ValueError("this one fails")
        yield from batches

    kept = bow.spark.publish(numbers(session), "kept")
    with pytest.raises(Exception, match="this one fails"):
        bow.spark.publish(numbers(session).mapInArrow(fails, "id bigint, text string"), "kept")
    assert total(bow.spark.dataset("kept")) == (ROWS, SUM)
    wait_for(lambda: streams("kept") == len(kept))
    kept.release()


def a_full_depot(session: Any) -> None:
    """A server's tasks that find no room end in an error that names what holds the memory."""
    first = bow.spark.publish(numbers(session, 4, 2_000_000), "first")
    with pytest.raises(bow.OutOfBudget, match=r"held by 'first' .*bow.spark.drop\('first'\)"):
        bow.spark.publish(numbers(session, 4, 2_000_000), "second", wait_for_room=0.5)
    first.release()


def what_needs_a_driver_here(session: Any) -> None:
    """Reading Parquet in tasks is refused by name, before anything is computed."""
    with pytest.raises(bow.Unsupported, match=r"scan='tasks' needs Spark's driver.*Spark Connect"):
        bow.spark.publish(session.range(10), scan="tasks")


CLIENT = """
import os, signal, sys
import bowstring as bow
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
published = bow.spark.publish(spark.range(1000), "theirs", lease_seconds=2.0)
kept = bow.spark.publish(spark.range(1000), lease_seconds=2.0)
print("ready", flush=True)
end = sys.stdin.readline().strip()
if end == "stop":
    spark.stop()
    print("stopped", flush=True)
    sys.stdin.readline()
elif end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def what_ends_a_client(session: Any) -> None:
    """Data of a client go with its session, its process or its life, though the server and its executors go on."""
    others = bow.spark.publish(session.range(10), "others")
    for end in ("stop", "exit", "kill"):
        client: Any = subprocess.Popen(
            [sys.executable, "-c", CLIENT, f"sc://127.0.0.1:{_port}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdout.readline() == "ready\n"
        assert {each.name for each in bow.list_datasets("depot:")} == {"theirs", "others"}
        assert len(held().datasets) == 3
        client.stdin.write(f"{end}\n")
        client.stdin.flush()
        if end == "stop":
            assert client.stdout.readline() == "stopped\n"
        wait_for(lambda: len(held().datasets) == 1, 10.0)
        assert [each.name for each in bow.list_datasets("depot:")] == ["others"]
        client.stdin.close()
        client.stdout.close()
        assert client.wait(patient(60.0)) == (-signal.SIGKILL if end == "kill" else 0)
    assert others.num_rows == 10
    others.release()


LOCAL = """
import bowstring as bow
bow.spark.use_java()
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
try:
    with bow.spark.publish(spark.range(0, 100_000, 1, 4)) as published, bow.connect(published) as stream:
        print(sum(int(batch["id"].values.sum()) for batch in stream), stream.stats.path)
except bow.BowstringError as error:
    print(type(error).__name__, error)
spark.stop()
"""
# As a sandbox does in which a shared cluster runs what its users wrote.
FORBIDS = """
import subprocess, sys
if "pyspark" in " ".join(sys.orig_argv):
    def refused(*_, **__):
        raise PermissionError(1, "Operation not permitted")
    subprocess.Popen.__init__ = refused
"""


def a_server_in_the_client(session: Any) -> None:
    """``remote("local[2]")`` publishes, with pip's Java alone; where tasks may start nothing, that is said."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(FORBIDS)
        python = Path(folder, "python")
        python.write_text(
            f'#!/bin/sh\nexport PYTHONPATH={folder}:"$PYTHONPATH"\nexec {sys.executable} "$@"\n'
        )
        python.chmod(0o755)
        said = []
        for number, command in enumerate((sys.executable, str(python))):
            depot = str(Path(folder, str(number)))
            environment = {**os.environ, "PYSPARK_PYTHON": command, "BOWSTRING_DEPOT": depot}
            done = subprocess.run(
                [sys.executable, "-c", LOCAL],
                env=environment,
                capture_output=True,
                text=True,
                timeout=patient(300.0),
            )
            assert done.returncode == 0, done.stderr[-3000:]
            said.append(done.stdout.strip().splitlines()[-1])
            if not number:
                with bow.depot.connect(folder=depot, start=False) as started:
                    started.stop()
    assert said[0] == f"{100_000 * 99_999 // 2} unix: mapped"
    assert said[1].startswith("Unsupported this cluster does not let tasks keep data in shared memory")
    assert "Operation not permitted" in said[1]
    assert "bowstring depot run" in said[1]


SCENARIOS = [
    # The first of these starts the depot, with a small budget.
    a_cell_that_is_run_again,
    a_client_publishes,
    events,
    a_job_that_fails,
    a_full_depot,
    what_needs_a_driver_here,
    what_ends_a_client,
    a_server_in_the_client,
]
