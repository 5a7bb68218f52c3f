"""Scenarios of speculation: Spark starts copies of tasks that lag behind, on the other one of two hosts."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bowstring as bow
from tests.spark.live import patient
from tests.spark.publishing import standalone
from tests.spark.publishing.local import ROWS, SUM, held, numbers, streams, total, wait_for

_SCHEMA = "id bigint, text string"
_LAGGARD = 1
# Spark copies no task to a host that runs it. To Spark, two addresses are two hosts.
_HOSTS = ("127.0.0.1", "127.0.0.2")


def start() -> Any:
    """Return a session on a cluster of two hosts that does not wait long before it starts copies."""
    port = standalone.start_cluster(_HOSTS[0], [(host, [], {}) for host in _HOSTS])
    config = {
        "spark.ui.enabled": "false",
        "spark.executor.memory": "1g",
        "spark.executor.cores": "2",
        "spark.driver.host": _HOSTS[0],
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.interval": "100ms",
        # A task can lag in the middle of its rows where it has several batches.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        **standalone.python_settings(),
        "spark.executorEnv.BOWSTRING_DEPOT": os.environ["BOWSTRING_DEPOT"],
    }
    return bow.spark.session(master=f"spark://{_HOSTS[0]}:{port}", config=config)


def _lagging(folder: str, *, at: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function that stops the first attempt of a partition at one of its batches until a copy is done.

    The copy waits until it has stopped: Spark copies a task that is slow to begin, too.
    """
    seconds = patient(60.0)

    def wait_until(name: str) -> None:
        end = time.monotonic() + seconds
        while not Path(folder, name).exists() and time.monotonic() < end:
            time.sleep(0.05)

    def passed_on(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.attemptNumber()
        if context.partitionId() == _LAGGARD and attempt > 0:
            wait_until("lags")
        for number, batch in enumerate(batches):
            if context.partitionId() == _LAGGARD and attempt == 0 and number == at:
                Path(folder, "lags").touch()
                wait_until("copy")
                time.sleep(2.0)  # the copy ends before it
            yield batch
        if context.partitionId() == _LAGGARD and attempt > 0:
            Path(folder, "copy").touch()

    return passed_on


def a_copy_overtakes_its_task(session: Any) -> None:
    """The copy of a task that lags in the middle of its rows is taken, and what the task wrote is freed."""
    with tempfile.TemporaryDirectory() as folder:
        frame = numbers(session, 4).mapInArrow(_lagging(folder, at=1), _SCHEMA)
        published = bow.spark.publish(frame, "copied")
        assert sorted(os.listdir(folder)) == ["copy", "lags"], os.listdir(folder)
    assert total(published) == (ROWS, SUM)
    [known] = [each for each in held().datasets if each.name.startswith("copied")]
    assert (known.streams, known.attempts, known.num_rows) == (4, 0, ROWS)
    published.release()
    wait_for(lambda: held().memory_in_use + held().disk_in_use == 0)


def a_copy_is_followed(session: Any) -> None:
    """Who follows a job reads of a task and its copy that which was first to commit, and it stays."""
    with tempfile.TemporaryDirectory() as folder:
        frame = numbers(session, 4).mapInArrow(_lagging(folder, at=1), _SCHEMA)
        running = bow.spark.publish(frame, "followed", wait=False)
        assert total(running) == (ROWS, SUM)
        assert total(running.wait(patient(60.0))) == (ROWS, SUM)
        assert sorted(os.listdir(folder)) == ["copy", "lags"], os.listdir(folder)
    assert streams("followed") == 4
    running.release()
    wait_for(lambda: held().memory_in_use + held().disk_in_use == 0)


def a_copy_of_what_is_committed(session: Any) -> None:
    """Where the task had committed before its copy did, Spark takes the copy, and one stream of the two stays."""
    from bowstring.spark.task import DepotTask, Order
    from bowstring.spark.tickets import COLUMNS, Ticket

    task = DepotTask(Order("both", "both#1"))
    with tempfile.TemporaryDirectory() as folder:
        # Of tickets, each partition has one batch: the task lags behind its commit.
        after = _lagging(folder, at=0)
        rows = numbers(session, 4).mapInArrow(task, COLUMNS).mapInArrow(after, COLUMNS).collect()
        assert sorted(os.listdir(folder)) == ["copy", "lags"], os.listdir(folder)
    tickets = [Ticket.of_row(row) for row in rows]
    assert sum(ticket.num_rows for ticket in tickets) == ROWS
    with bow.depot.connect(start=False) as depot:
        # Of tasks that are slow to begin there may be copies, too.
        assert streams("both") >= 5, streams("both")
        assert depot.settle("both#1", [bow.Endpoint.parse(each.endpoint) for each in tickets]) == 4
        assert streams("both") == 4
        depot.end("both")
    wait_for(lambda: held().memory_in_use + held().disk_in_use == 0)


SCENARIOS = [a_copy_overtakes_its_task, a_copy_is_followed, a_copy_of_what_is_committed]
