"""A data set in depots, as its driver keeps it, is whole or an error: Spark's part is played, the depot is real."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.depot import Depot
from bowstring.spark import application_lease
from bowstring.spark.driver import driver_of
from bowstring.spark.publication import Job, Keep, Publication
from bowstring.spark.published import PublishedDataset
from bowstring.spark.refusals import forbidden
from bowstring.spark.task import DepotTask, Order
from bowstring.spark.tickets import Ticket
from tests.client_server.conftest import until
from tests.transport.certified import serving, trusting

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
    numbers = itertools.count()

    def make(
        frame: Frame, readers: int | None = None, stay: float = 0.0, **given: Any
    ) -> bow.spark.PublishedDataset:
        order = Order("app", f"d#{next(numbers)}", readers)
        work = Publication(
            order, application, Job(frame, DepotTask, SCHEMA, again=True), None, Keep(stay=stay, **given)
        )
        return PublishedDataset._of(work.dataset(work.run(order), fresh=True), work)

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


@pytest.mark.parametrize("trusted", [True, False])
def test_a_driver_asks_depots_elsewhere_by_their_certificates(
    folder: str, stopped: threading.Event, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    """Depots of other hosts that were started with a certificate are held, settled and freed by TLS."""
    certificate = dataclasses.replace(serving(), ca=trusting().ca)
    options = bow.depot.Options(tls=certificate)
    order = Order("app", "d#0", None, options=options, driver="127.0.0.1")
    application = application_lease.Application("app", stopped.is_set)
    if trusted:
        application.trust(options)
    work = Publication(order, application, Job(Frame([1, 2], [3]), DepotTask, SCHEMA), None, Keep())
    tickets = [
        dataclasses.replace(ticket, depot=ticket.depot.replace(folder, "/nowhere"))
        for ticket in work.run(order)
    ]
    monkeypatch.setenv("BOWSTRING_HOST", "the driver's host, which is another one")
    if not trusted:
        with pytest.raises(bow.AccessDenied, match="certificate"):
            PublishedDataset._of(work.dataset(tickets, fresh=True), work)
        return
    published = PublishedDataset._of(work.dataset(tickets, fresh=True), work)
    with bow.connect(published, tls=certificate) as stream:
        assert stream.read_all()["n"].to_pylist() == [1, 2, 3]
        assert stream.stats.path == "tls: packed"
    [held] = application.depots
    assert held.address.startswith("tls:")
    published.release()
    assert held.status().datasets == ()
    application.end()


def test_what_stays_elsewhere_stays(folder: str, stopped: threading.Event) -> None:
    """The end of an application leaves what shall stay, also in a depot that its socket does not lead to."""
    order = Order("app", "d#0", driver="127.0.0.1")
    application = application_lease.Application("app", stopped.is_set)
    work = Publication(order, application, Job(Frame([1]), DepotTask, SCHEMA), None, Keep(stay=60.0))
    tickets = [
        dataclasses.replace(each, depot=each.depot.replace(folder, "/nowhere")) for each in work.run(order)
    ]
    published = PublishedDataset._of(work.dataset(tickets, fresh=True), work)
    assert [each.address.partition(":")[0] for each in application.depots] == ["tcp"]
    with pytest.raises(bow.UsageError, match="recoverable=True"):
        published.republish()
    application.end()
    assert rows(published) == [1]


def test_only_the_driver_is_warned(folder: str, publish: Callable[..., Any]) -> None:
    """Tasks do not warn of options that come too late for a depot, also where the driver would."""
    kept = publish(Frame([1]))
    options = bow.depot.Options(memory_budget=1 << 26)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number in range(2):
            task = DepotTask(Order("app", f"late#{number}", options=options))
            task.publish([pa.record_batch({"n": pa.array([1])})], 0, 1)
    assert not [each for each in said if "too late" in str(each.message)]
    with pytest.warns(RuntimeWarning, match="too late") as warned:
        bow.depot.connect(options=options).close()
    assert (warned[0].filename, rows(kept)) == (__file__, [1])


def test_depots_of_what_spark_saved_are_stopped_by_their_certificates(folder: str) -> None:
    """`stop_depots(tls=…)` ends a depot of `tls:` of another host that only a name in the catalog leads to."""
    certificate = dataclasses.replace(serving(), ca=trusting().ca)
    context = types.SimpleNamespace(applicationId="saved", startTime=1, _jsc=object(), _jvm=None)
    job = types.SimpleNamespace(mapInArrow=lambda *_: types.SimpleNamespace(collect=list))
    session = types.SimpleNamespace(sparkContext=context, range=lambda *_: job)
    application = driver_of(session).application()
    with tempfile.TemporaryDirectory(prefix="bow-") as elsewhere:
        options = bow.depot.Options(tls=certificate)
        with bow.depot.connect(folder=elsewhere, tcp="tls://127.0.0.1:0", options=options) as far:
            with far.begin(application=application, dataset="part") as attempt:
                attempt.write({"n": [1]})
                written = attempt.commit()
            with bow.depot.connect() as catalog:
                found = bow.Dataset((written.endpoint,), SCHEMA)
                catalog.announce(
                    "saved", found, application=application, part="part", depots=far.addresses[1:]
                )
            pid = far.status().pid
            bow.spark.stop_depots(session, tls=certificate)
            until(lambda: not os.path.exists(f"/proc/{pid}"))
    context._jsc = None


def test_names_outlive_a_depot_that_is_replaced(publish: Callable[..., Any]) -> None:
    """An application whose empty depot made room for one with other options publishes names in that."""
    publish(Frame([1]), name="first")
    bow.spark.drop("first")
    with bow.depot.connect(options=bow.depot.Options(memory_budget=1 << 26)) as depot:
        assert depot.status().memory_budget == 1 << 26
    publish(Frame([2]), name="second")
    assert rows(bow.spark.dataset("second")) == [2]


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
    goes = publish(Frame([1]))
    stays = publish(Frame([2]), stay=60.0)
    assert len(goes) == 1
    stopped.set()
    with bow.depot.connect() as depot:
        until(lambda: [each.name for each in depot.status().datasets] == ["d#1"])
    assert rows(stays) == [2]


def names() -> list[str]:
    """Return what has a name in the depot of this host."""
    return [each.name for each in bow.list_datasets("depot:")]


def data_sets() -> list[str]:
    """Return what the depot holds."""
    with bow.depot.connect() as depot:
        return [each.name for each in depot.status().datasets]


def test_a_name_is_replaced_when_the_new_one_is_whole(publish: Callable[..., Any]) -> None:
    """Five reruns of a cell hold one copy; a job that fails leaves what was there, and its memory."""
    for number in range(5):
        flights = publish(Frame([number, number]), name="flights")
        assert len(data_sets()) == 1
        assert rows(bow.spark.dataset("flights")) == rows(flights) == [number, number]
    assert names() == ["flights"]
    with bow.connect("depot:flights") as stream:
        kept = stream.read_all()
        publish(Frame([9]), name="flights")
        assert kept["n"].to_pylist() == [4, 4]
        del kept
    frame = Frame([1])
    frame.after = lambda: (_ for _ in ()).throw(RuntimeError("the job fails"))
    with pytest.raises(RuntimeError):
        publish(frame, name="flights")
    assert rows(bow.spark.dataset("flights")) == [9]
    with pytest.raises(bow.UsageError, match="there already"):
        publish(Frame([3]), name="flights", replace=False)
    assert rows(bow.spark.dataset("flights")) == [9]
    bow.spark.drop("flights")
    assert names() == []
    with pytest.raises(bow.UnknownTicket):
        bow.spark.drop("flights")


def test_without_a_name_it_ends_with_its_handle(publish: Callable[..., Any]) -> None:
    """What has no name is freed when the last handle is gone; a stream that reads it is one."""
    first = publish(Frame([1], [2]))
    again = first.republish()
    del first
    stream = bow.connect(again)
    del again
    time.sleep(1.2)
    assert [batch["n"].to_arrow().to_pylist() for batch in stream] == [[1], [2]]
    stream.close()
    del stream
    until(lambda: data_sets() == [])
    named = publish(Frame([1]), name="stays")
    del named
    time.sleep(1.2)
    assert rows(bow.spark.dataset("stays")) == [1]


def test_a_with_block_releases(publish: Callable[..., Any]) -> None:
    """At the end of the block data and name are gone; what a notebook shows says so."""
    with publish(Frame([1, 2], [], [3]), name="a <b>") as block:
        shown = block._repr_html_()
        assert "a &lt;b&gt;" in shown
        for text in ("<td>3</td>", "24 bytes", "<td>2</td>", "available", socket.gethostname()):
            assert text in shown
        assert names() == ["a <b>"]
    assert (names(), data_sets()) == ([], [])
    assert "<td>released</td>" in block._repr_html_()
    assert "unknown here" in bow.spark.PublishedDataset(block.endpoints, block.schema)._repr_html_()


def test_time_to_live(publish: Callable[..., Any]) -> None:
    """After ttl seconds data and name are freed, though the handle is there."""
    kept = publish(Frame([1]), name="short", ttl=1.0)
    assert rows(kept) == [1]
    until(lambda: (names(), data_sets()) == ([], []))


def test_stay_counts_from_the_end(publish: Callable[..., Any], stopped: threading.Event) -> None:
    """What stays goes after its seconds, though a process that the depot watches lives on, and so does its name."""
    stays = publish(Frame([2]), stay=1.0, name="stays")
    with bow.depot.connect() as depot:
        # The driver of a local session is such a process.
        depot.hold("app", watch_pid=os.getpid())
    time.sleep(1.0)
    assert rows(bow.spark.dataset("stays")) == rows(stays) == [2]
    ended = time.monotonic()
    stopped.set()
    until(lambda: (names(), data_sets()) == ([], []))
    assert time.monotonic() - ended >= 1.0


def test_applications_are_forgotten() -> None:
    """A session is one application however often it publishes, and the next one forgets those that were stopped."""

    def context(number: int) -> Any:
        made = types.SimpleNamespace(applicationId=f"local-{number}", startTime=number, _jsc=object())
        return driver_of(types.SimpleNamespace(sparkContext=made))

    one, other = context(1), context(2)
    assert application_lease.application_of(one) is application_lease.application_of(one)
    one.session.sparkContext._jsc = None
    before = len(application_lease._applications)
    assert application_lease.application_of(other).name == "local-2-2"
    assert len(application_lease._applications) == before
    other.session.sparkContext._jsc = None
    application_lease.application_of(context(3)).end()
    application_lease._applications.clear()


class Client:
    """A session of Spark Connect, as far as publishing asks it."""

    session_id = "5e55"
    is_stopped = False

    def __init__(self, host: str, **settings: str) -> None:
        self.client = types.SimpleNamespace(host=host)
        known = {
            "spark.app.id": "app-7",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.conf = types.SimpleNamespace(get=lambda name, default=None: known.get(name, default))


@pytest.mark.parametrize(
    ("client", "host"),
    [
        (Client("localhost", spark_master="local[2]", spark_driver_host="192.0.2.2"), None),
        (Client("192.0.2.7", spark_master="local[2]", spark_driver_host="192.0.2.2"), "192.0.2.2"),
        (Client("localhost", spark_master="yarn", spark_driver_host="192.0.2.2"), "192.0.2.2"),
        (Client("192.0.2.7"), "192.0.2.7"),
    ],
)
def test_clients_of_a_server_are_applications(client: Client, host: str | None) -> None:
    """Each client session is one, until it is stopped; tasks look for a way to others where they run elsewhere."""
    driver = driver_of(client)
    assert (driver.host(), driver.shared, driver.ended()) == (host, True, False)
    assert driver.application() == "connect-app-7-5e55"
    client.is_stopped = True
    assert driver.ended()


def test_shared_executors_keep_nothing(folder: str, stopped: threading.Event) -> None:
    """What tasks on them wrote is kept for the driver, however long the job, and then as long as that says."""
    order = Order("app", "d#0", lease_seconds=0.3, shared=True)
    application = application_lease.Application("app", stopped.is_set)
    work = Publication(order, application, Job(Frame([1], [2]), DepotTask, SCHEMA), None, Keep())
    tickets = work.run(order)
    time.sleep(1.0)
    published = PublishedDataset._of(work.dataset(tickets, fresh=True), work)
    assert rows(published) == [1, 2]
    # As when the client is killed: its connections are gone, and the server's executors are not.
    for held in application.depots:
        held.close()
    with bow.depot.connect() as depot:
        until(lambda: depot.status().datasets == ())
    application.end()


def test_what_a_cluster_forbids_is_said(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that may start no process says so, and the driver finds that in whatever Spark makes of it."""

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    batch = pa.record_batch({"n": pa.array([1], pa.int64())})
    with monkeypatch.context() as forbidding:
        forbidding.setattr("subprocess.Popen.__init__", refused)
        with pytest.raises(bow.Unsupported, match="neither find nor start a depot") as caught:
            DepotTask(Order("app", "d#0")).publish([batch], 0, 0)
    lines = "".join(traceback.format_exception(caught.value))
    error = forbidden(RuntimeError(f"Job aborted\n{lines}\tat java.base"))
    assert isinstance(error, bow.Unsupported)
    assert "this cluster does not let tasks" in str(error)
    assert "Operation not permitted" in str(error)
    assert "init script" in str(error)
    assert forbidden(RuntimeError("Job aborted")) is None


def test_tickets_keep_tokens_to_themselves() -> None:
    """What prints a ticket, such as a log, does not give away how to get at the data."""
    ticket = Ticket(1, "tcp://h:1?token=secret", b"", 1, 1, 1, "unix:/x", "tcp://h:2?token=secret")
    assert "secret" not in repr(ticket)


def test_an_empty_name_is_answered_with_what_to_do() -> None:
    """A data set without a name is one whose name is left out."""
    pytest.importorskip("pyspark.sql")
    frame: Any = types.SimpleNamespace(mapInArrow=None)
    with pytest.raises(bow.UsageError, match="Leave it out"):
        bow.spark.publish(frame, "")
