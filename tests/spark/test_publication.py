"""A data set in depots, as its driver keeps it, is whole or an error: Spark's part is played, the depot is real."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.depot import Depot
from bowstring.spark import application_lease, sessions
from bowstring.spark.publishing import _Job, _Publication
from bowstring.spark.task import DepotTask, Order
from bowstring.spark.tickets import Ticket
from tests.client_server.conftest import until

SCHEMA = pa.schema([("n", pa.int64())])


class Frame:
    """A data frame whose tasks run here, one after the other; `after` is called when they are done."""

    def __init__(self, *partitions: list[int]) -> None:
        self.partitions = dict(enumerate(partitions))
        self.after: Callable[[], None] = lambda: None
        self._attempts = 0

    def mapInArrow(self, task: DepotTask, *_: Any, **__: Any) -> Any:  # noqa: N802  Spark's name
        """Return a data frame of tickets."""
        return types.SimpleNamespace(collect=lambda: self._rows(task))

    def _rows(self, task: DepotTask) -> list[Any]:
        rows = []
        for number, values in self.partitions.items():
            if task.order.only is None or number in task.order.only:
                self._attempts += 1
                batch = pa.record_batch({"n": pa.array(values, pa.int64())})
                rows.append(task.publish([batch], number, self._attempts))
        self.after()
        return [types.SimpleNamespace(asDict=lambda row=row: vars(row)) for row in rows]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the folder of a depot of the test's own, which is stopped afterwards."""
    made = tempfile.mkdtemp(prefix="bow-")
    monkeypatch.setenv("BOWSTRING_DEPOT", made)
    yield made
    with bow.depot.connect() as depot:
        depot.stop()
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def stopped() -> Iterator[threading.Event]:
    """Return what is set when Spark has stopped, at the latest after the test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def publish(folder: str, stopped: threading.Event) -> Iterator[Callable[..., bow.spark.PublishedDataset]]:
    """Return a function that publishes a frame as :func:`bowstring.spark.publish` does."""
    application = application_lease.Application("app", stopped.is_set)

    def make(frame: Frame, readers: int | None = None, stay: float = 0.0) -> bow.spark.PublishedDataset:
        order = Order("app", f"d#{len(application._stays)}", readers)
        work = _Publication("d", order, application, _Job(frame, DepotTask, SCHEMA), None, stay)
        return work.dataset(work.run(order), recoverable=True, fresh=True)

    yield make
    application.end()


def rows(dataset: bow.Dataset) -> list[int]:
    """Return all numbers of a data set."""
    with bow.connect(dataset) as stream:
        return [value for batch in stream for value in batch["n"].to_arrow().to_pylist()]


def kill_depot() -> None:
    """Kill the depot, as a host that is lost does."""
    with bow.depot.connect() as depot:
        pid = depot.status().pid
    os.kill(pid, signal.SIGKILL)


def die_and_rise() -> None:
    """Kill the depot, and start another one in its place."""
    kill_depot()
    bow.depot.connect().close()


def test_what_was_lost_is_published_again(publish: Callable[..., Any]) -> None:
    """A depot that was killed took all with it; after republish() every row is there once, in the same order."""
    published = publish(Frame([1, 2], [], [3]))
    kill_depot()
    again = published.republish()
    assert rows(again) == [1, 2, 3]
    assert rows(again.republish([2])) == [1, 2, 3]


@pytest.mark.parametrize("others", [[[1, 2]], [[1], [2, 3]]], ids=["fewer partitions", "other rows"])
def test_other_partitions_are_refused(publish: Callable[..., Any], others: list[list[int]]) -> None:
    """Partitions that are others the second time are an error, not a data set without some rows."""
    frame = Frame([1, 2], [3])
    published = publish(frame)
    kill_depot()
    frame.partitions = dict(enumerate(others))
    with pytest.raises(bow.InvalidData, match="this time"):
        published.republish()


@pytest.mark.parametrize("readers", [None, 1])
def test_a_depot_that_dies_too_early(publish: Callable[..., Any], readers: int | None) -> None:
    """A depot that dies after the tasks and before the data set is one is an error, whoever would read it."""
    frame = Frame([1])
    frame.after = kill_depot
    with pytest.raises(bow.BowstringError):
        publish(frame, readers)
    frame.after = die_and_rise
    with pytest.raises(bow.BrokenError, match="a depot ended"):
        publish(frame, readers)


def test_what_was_given_up_is_freed(folder: str) -> None:
    """A task frees what its host holds of jobs that failed, and their late attempts are refused there."""

    def publish(name: str, *given_up: str) -> None:
        task = DepotTask(Order("app", name, given_up=given_up))
        task.publish([pa.record_batch({"n": pa.array([1])})], 0, 1)

    publish("failed#1")
    publish("next#1", "failed#1")
    with bow.depot.connect(start=False) as depot:
        assert [each.name for each in depot.status().datasets] == ["next#1"]
    with pytest.raises(bow.RefusedError):
        publish("failed#1")


def test_what_was_given_up_is_freed_once(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later tasks of a process ask each depot once to free what was given up."""
    asked: list[str] = []
    release = Depot.release

    def noted(depot: Depot, name: str, **given: Any) -> bool:
        asked.append(name)
        return release(depot, name, **given)

    monkeypatch.setattr(Depot, "release", noted)

    def publish(number: int, *given_up: str) -> None:
        task = DepotTask(Order("app", f"next#{number}", given_up=given_up))
        task.publish([pa.record_batch({"n": pa.array([1])})], 0, number)

    publish(0, "failed#1")
    publish(1, "failed#1")
    publish(2, "failed#1", "failed#2")
    assert asked == ["failed#1", "failed#2"]
    kill_depot()
    publish(3, "failed#2")
    assert asked[2:] == ["failed#2"]


def test_when_spark_has_stopped(publish: Callable[..., Any], stopped: threading.Event) -> None:
    """Data sets are freed when Spark has stopped, but for those that were to stay."""
    publish(Frame([1]))
    stays = publish(Frame([2]), stay=60.0)
    stopped.set()
    with bow.depot.connect() as depot:
        until(lambda: [each.name for each in depot.status().datasets] == ["d#1"])
    assert rows(stays) == [2]


def test_applications_are_forgotten() -> None:
    """A session is one application however often it publishes, and the next one forgets those that were stopped."""

    def context(number: int) -> Any:
        made = types.SimpleNamespace(applicationId=f"local-{number}", startTime=number, _jsc=object())
        return types.SimpleNamespace(sparkContext=made)

    one, other = context(1), context(2)
    assert application_lease.application_of(one) is application_lease.application_of(one)
    one.sparkContext._jsc = None
    before = len(application_lease._applications)
    assert application_lease.application_of(other).name == "local-2-2"
    assert len(application_lease._applications) == before
    other.sparkContext._jsc = None
    application_lease.application_of(context(3)).end()
    application_lease._applications.clear()


def test_tickets_keep_tokens_to_themselves() -> None:
    """What prints a ticket, such as a log, does not give away how to get at the data."""
    ticket = Ticket(1, "tcp://h:1?token=secret", b"", 1, 1, 1, "unix:/x", "tcp://h:2?token=secret")
    assert "secret" not in repr(ticket)


def test_memory_limits_are_named_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on the memory of Python workers is warned of where data go to GPUs, whatever resources Spark has."""
    monkeypatch.setattr(sessions, "_warned", set())
    limited = {"spark.executor.pyspark.memory": "2g"}.get
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sessions.warn_of_memory_limit(limited)
    with pytest.warns(RuntimeWarning, match="address space"):
        sessions.warn_of_memory_limit(limited, gpus=True)
