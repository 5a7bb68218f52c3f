"""A data set is read while its job runs: Spark's part is played, the depot, tasks and readers are real."""

from __future__ import annotations

import concurrent.futures
import pickle
import queue
import random
import shutil
import tempfile
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.spark.application_lease import Application
from bowstring.spark.publication import Job, Keep, Publication
from bowstring.spark.published import PublishedDataset, RunningDataset
from bowstring.spark.task import DepotTask, Order
from tests.client_server.conftest import until

SCHEMA = pa.schema([("part", pa.int64()), ("n", pa.int64())])
ROWS = 3
WAIT = 20.0


class Attempt(NamedTuple):
    """An attempt at a partition; with `is_lost` Spark does not take its result, and tries the partition again."""

    partition: int
    is_lost: bool = False


class Frame:
    """A data frame whose attempts run one after the other, each when the test lets it."""

    def __init__(self) -> None:
        self.attempts: queue.SimpleQueue[Attempt | BaseException | None] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[Attempt] = queue.SimpleQueue()

    def mapInArrow(self, task: DepotTask, *_: Any, **__: Any) -> Any:  # noqa: N802  Spark's name
        """Return a data frame of tickets."""
        return types.SimpleNamespace(collect=lambda: self._rows(task))

    def _rows(self, task: DepotTask) -> list[Any]:
        rows, number = {}, 0
        while (each := self.attempts.get(timeout=WAIT)) is not None:
            if isinstance(each, BaseException):
                raise each
            number += 1
            values = {"part": [each.partition] * ROWS, "n": range(ROWS)}
            row = task.publish([pa.record_batch(values, schema=SCHEMA)], each.partition, number)
            if not each.is_lost:
                rows[each.partition] = row
            self.done.put(each)
        return [types.SimpleNamespace(asDict=lambda row=row: vars(row)) for row in rows.values()]

    def do(self, *attempts: Attempt) -> None:
        """Let attempts run, and wait for their end."""
        for each in attempts:
            self.attempts.put(each)
        for _ in attempts:
            self.done.get(timeout=WAIT)


class Running(NamedTuple):
    """A job that runs, and what is followed of it."""

    frame: Frame
    dataset: Any
    application: Application
    work: Publication


@pytest.fixture
def running(
    monkeypatch: pytest.MonkeyPatch, forked: None, no_leaks: None
) -> Iterator[Callable[..., Running]]:
    """Return a function that begins to publish a frame as ``bow.spark.publish(df, wait=False)`` does."""
    folder = tempfile.mkdtemp(prefix="bow-")
    monkeypatch.setenv("BOWSTRING_DEPOT", folder)
    stopped = threading.Event()
    application = Application("app", stopped.is_set)
    begun: list[Running] = []

    def begin(readers: int | None = None, *, again: bool = False, **keep: Any) -> Running:
        frame, growing = Frame(), application.catalog(None, 60.0)
        order = Order("app", f"d#{len(begun)}", readers, 60.0, growing=growing.addresses)
        work = Publication(order, application, Job(frame, DepotTask, SCHEMA, again), None, Keep(**keep))

        def finish() -> bow.spark.PublishedDataset:
            try:
                return PublishedDataset._of(work.dataset(work.run(order), fresh=True), work)
            except BaseException as error:
                work.abandon(error)
                raise

        followed, run = work.start(growing, finish, lambda target: target)
        begun.append(Running(frame, RunningDataset._of(followed, work, job=run), application, work))
        return begun[-1]

    yield begin
    for each in begun:
        each.frame.attempts.put(None)
        until(lambda each=each: not each.work.running)  # type: ignore[misc]
    stopped.set()
    application.end()
    with bow.depot.connect() as depot:
        depot.stop()
    shutil.rmtree(folder, ignore_errors=True)


def rows_of(stream: bow.Stream) -> list[tuple[int, int]]:
    """Return all rows that are left of a stream."""
    return [
        (int(part), int(n))
        for batch in stream
        for part, n in zip(*batch.to_arrow().to_pydict().values(), strict=True)
    ]


def rows(*partitions: int) -> list[tuple[int, int]]:
    """Return the rows of some partitions."""
    return [(part, n) for part in partitions for n in range(ROWS)]


def test_partitions_are_read_as_they_are_committed(running: Callable[..., Running]) -> None:
    """A reader has each partition before the next one is begun, and the end when the job is complete."""
    job = running()
    with bow.connect(job.dataset) as stream:
        for partition in (2, 0, 1):
            job.frame.do(Attempt(partition))
            assert stream.read_next_batch()["part"].values[0] == partition
        with pytest.raises(bow.DeadlineExceeded, match="still runs"):
            job.dataset.wait(0.01)
        assert job.dataset.control.state() == "running"
        job.frame.attempts.put(None)
        assert rows_of(stream) == []
        assert (stream.stats.rows, stream.stats.batches, stream.stats.path) == (3 * ROWS, 3, "unix: mapped")
    whole = job.dataset.wait(WAIT)
    with bow.connect(whole) as stream:
        assert rows_of(stream) == rows(0, 1, 2)
    with bow.connect(job.dataset) as stream:  # also when it is complete
        assert rows_of(stream) == rows(2, 0, 1)


@pytest.mark.parametrize("seed", range(6))
def test_each_row_once(running: Callable[..., Running], seed: int) -> None:
    """Attempts in any order, some twice, some lost: all readers, and those of the end, have each row once."""
    chance = random.Random(seed)
    count = chance.randint(1, 8)
    attempts = [Attempt(part) for part in range(count)]
    attempts += [Attempt(chance.randrange(count), is_lost=chance.random() < 0.5) for _ in range(count)]
    chance.shuffle(attempts)
    job = running(name=chance.choice([None, "named"]))
    handle = pickle.dumps(job.dataset)

    def read(options: dict[str, Any]) -> list[tuple[int, int]]:
        with bow.connect(pickle.loads(handle), **options) as stream:
            return rows_of(stream)

    with concurrent.futures.ThreadPoolExecutor() as readers:
        whole = [
            readers.submit(read, {"options": bow.ConnectOptions(ordered=ordered)})
            for ordered in (True, False)
        ]
        job.frame.do(*attempts[:count])
        shards = [readers.submit(read, {"shard": (index, 3)}) for index in range(3)]
        job.frame.do(*attempts[count:])
        job.frame.attempts.put(None)
        assert [sorted(each.result(WAIT)) for each in whole] == [rows(*range(count))] * 2
        assert sorted(row for each in shards for row in each.result(WAIT)) == rows(*range(count))
    published = job.dataset.wait(WAIT)
    with bow.connect(published) as stream:
        assert rows_of(stream) == rows(*range(count))
    [status] = [
        each
        for each in job.application.depots[0].status().datasets
        if each.name == job.dataset.metadata["id"]
    ]
    assert status.streams == count  # what other attempts wrote is freed


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (bow.OutOfBudget("no room in the depot"), bow.OutOfBudget, "no room"),
        (RuntimeError("Job aborted due to stage failure"), bow.BrokenError, "Job aborted"),
    ],
)
def test_a_job_that_fails_is_an_error(
    running: Callable[..., Running], error: Exception, kind: type[bow.BowstringError], text: str
) -> None:
    """Readers have the job's own error, those that wait and those that come later, and never an end."""
    job = running()
    with bow.connect(job.dataset) as stream:
        job.frame.do(Attempt(0), Attempt(1))
        assert stream.read_next_batch().num_rows == ROWS
        job.frame.attempts.put(error)
        with pytest.raises(kind, match=text):
            rows_of(stream)
    with pytest.raises(type(error), match=text):
        job.dataset.wait(WAIT)
    with bow.connect(job.dataset) as late, pytest.raises(kind, match=text):
        rows_of(late)


def test_an_attempt_comes_too_late(running: Callable[..., Running]) -> None:
    """What an attempt commits after the end of a job that failed changes nothing for its readers."""
    job = running()
    job.frame.attempts.put(ValueError("wrong"))
    until(lambda: not job.work.running)
    with pytest.raises(bow.RefusedError):
        DepotTask(job.work._order).publish([pa.record_batch({"part": [0], "n": [0]}, schema=SCHEMA)], 0, 9)
    with bow.connect(job.dataset) as stream, pytest.raises(bow.BrokenError, match="wrong"):
        rows_of(stream)


@pytest.mark.parametrize("way", ["killed", "ended"])
def test_a_driver_that_is_gone_is_an_error(running: Callable[..., Running], way: str) -> None:
    """A driver that ends while its job runs is an error of the readers, and never an end."""
    job = running()
    with bow.connect(job.dataset) as stream:
        job.frame.do(Attempt(0))
        assert stream.read_next_batch().num_rows == ROWS
        if way == "ended":
            job.application.end()
        for held in job.application.depots:  # as the end of its process does
            held.close()
        with pytest.raises(bow.BrokenError, match="driver"):
            rows_of(stream)


def test_released_while_it_runs(running: Callable[..., Running]) -> None:
    """A data set that is released while its job runs fails the job, and is an error for its readers."""
    job = running()
    job.frame.do(Attempt(0))
    with bow.connect(job.dataset) as stream:
        kept = stream.read_next_batch()
        job.dataset.release()
        job.frame.attempts.put(Attempt(1))
        with pytest.raises(bow.BrokenError, match="released"):
            rows_of(stream)
    with pytest.raises(bow.RefusedError, match="released"):
        job.dataset.wait(WAIT)
    assert kept["n"].to_arrow().to_pylist() == list(range(ROWS))


def test_closed_by_another_thread(running: Callable[..., Running]) -> None:
    """A reader that waits for the next partition hears that its stream was closed."""
    job = running()
    stream = bow.connect(job.dataset)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(stream.read_next_batch)
        assert not waiting.done()
        stream.close()
        with pytest.raises(bow.ClosedError):
            waiting.result(WAIT)


def test_a_job_without_rows(running: Callable[..., Running]) -> None:
    """A job without rows has a schema, and an end; a wrong column is refused at once."""
    job = running()
    job.frame.attempts.put(None)
    with bow.connect(job.dataset, columns=["n"]) as stream:
        assert stream.read_all().schema.names == ["n"]
    with pytest.raises(bow.UsageError, match="nothing"):
        bow.connect(job.dataset, columns=["nothing"])
    assert job.dataset.wait(WAIT).to_arrow().num_rows == 0


def test_what_is_read_is_freed(running: Callable[..., Running]) -> None:
    """With ``readers=1`` a partition is freed when it was read, also while the job runs."""
    job = running(readers=1)
    depot = job.application.catalog(None, 60.0)
    with bow.connect(job.dataset) as stream:
        job.frame.do(Attempt(0))
        assert stream.read_next_batch().num_rows == ROWS
        job.frame.do(Attempt(1))
        assert stream.read_next_batch()["part"].values[0] == 1
        until(lambda: len(depot.offered(job.dataset.metadata["id"])) == 1)
        job.frame.attempts.put(None)
        assert rows_of(stream) == []
    assert job.dataset.wait(WAIT).num_rows == 2 * ROWS


def test_it_is_no_data_set_of_none(running: Callable[..., Running]) -> None:
    """What would read its endpoints, which are not known yet, says so, and finds no data set without rows."""
    job = running()
    for each in (job.dataset, pickle.loads(pickle.dumps(job.dataset))):
        for use in ("__len__", "__iter__", "to_json"):
            with pytest.raises(bow.UsageError, match="wait=False"):
                getattr(each, use)()
    pytest.importorskip("torch")
    with pytest.raises(bow.UsageError, match="wait=False"):
        bow.torch.IterableDataset(job.dataset, columns=["n"])


def test_what_was_lost_is_published_again(running: Callable[..., Running]) -> None:
    """A partition that is gone after the job counts as it is computed again, and not as it was at first."""
    job = running(again=True)
    job.frame.do(Attempt(0), Attempt(1))
    job.frame.attempts.put(None)
    whole = job.dataset.wait(WAIT)
    job.application.depots[0].settle(whole.metadata["id"], whole.endpoints[:1])
    job.frame.attempts.put(Attempt(1))
    job.frame.attempts.put(None)
    with bow.connect(job.dataset.republish()) as stream:
        assert rows_of(stream) == rows(0, 1)


def test_a_job_that_runs_out_of_time(running: Callable[..., Running]) -> None:
    """A job's own error is never taken for the end of the wait for it."""
    job = running()
    job.frame.attempts.put(TimeoutError("no answer"))
    with pytest.raises(TimeoutError, match="no answer"):
        job.dataset.wait(WAIT)
