"""Where the driver meets its tasks: who is let in, which attempt counts, and what a lost task means. No Spark."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.errors import BowstringError, BrokenError, DeadlineExceeded, LimitExceeded
from bowstring.spark import barrier
from bowstring.spark.barrier import StayingTask
from bowstring.spark.task import Order
from bowstring.spark.tickets import Ticket
from bowstring.transport import Channel, Message, dial
from bowstring.transport.listener import SocketListener
from tests.client_server.conftest import until

PACKED = pa.schema([("a", pa.int64())]).serialize().to_pybytes()


class Spark:
    """A session, a data frame and a job that ends when the test says so."""

    def __init__(self) -> None:
        self.sparkSession = self.sparkContext = self
        self.columns = ["a"]
        self.over = threading.Event()
        self.rows: list[Any] = []
        self.error: BaseException | None = None
        self.task: Any = None

    def setJobGroup(self, *_: Any, **__: Any) -> None:  # noqa: N802  Spark's name
        """Do nothing."""

    def cancelJobGroup(self, _: str) -> None:  # noqa: N802  Spark's name
        """End the job."""
        self.over.set()

    def mapInArrow(self, task: StayingTask, *_: Any, **__: Any) -> Spark:  # noqa: N802  Spark's name
        """Take the task."""
        self.task = task
        return self

    def collect(self) -> list[Any]:
        """Return the rows when the job is over."""
        self.over.wait(30.0)
        if self.error is not None:
            raise self.error
        return self.rows

    def end(self, *tickets: Ticket, error: BaseException | None = None) -> None:
        """Let the job be over."""
        self.error = error
        self.rows = [types.SimpleNamespace(asDict=lambda each=each: vars(each)) for each in tickets]
        self.over.set()


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch, no_leaks: None) -> Iterator[Spark]:
    """Return Spark as far as a meeting needs it."""
    fake = types.ModuleType("pyspark")
    fake.InheritableThread = threading.Thread  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark", fake)
    made = Spark()
    yield made
    made.over.set()


@pytest.fixture
def meeting(spark: Spark) -> Iterator[Any]:
    """Return a meeting, which ends with the test."""
    made = barrier._Meeting(spark, Order("app", "d#1"), None, None)
    yield made
    spark.over.set()
    made.end()


@pytest.fixture
def come(spark: Spark, meeting: Any) -> Iterator[Callable[..., Channel]]:
    """Return a function that comes to the meeting as a task does."""
    channels: list[Channel] = []

    def say(body: bytes) -> Channel:
        channels.append(dial(spark.task.driver))
        channels[-1].send([Message(None, [body])], 5.0)
        return channels[-1]

    def make(partition: int | bytes, attempt: int = 1, tasks: int = 2, token: str | None = None) -> Channel:
        if isinstance(partition, bytes):
            return say(partition)
        ticket = {**dataclasses.asdict(offered(partition)), "schema": PACKED.hex()}
        token = spark.task.token if token is None else token
        return say(
            json.dumps({"token": token, "ticket": ticket, "attempt": attempt, "tasks": tasks}).encode()
        )

    yield make
    for channel in channels:
        channel.close()


def offered(partition: int) -> Ticket:
    """Return the ticket of a partition."""
    return Ticket(partition, f"unix:/x?want_data=1&ticket=dA{partition:02d}", PACKED, 1, 1, 8)


def hung_up(channel: Channel) -> bool:
    """Whether the driver's side closed a connection."""
    try:
        return channel.receive(0.0) is not None
    except BowstringError:
        return True


def test_all_tasks_are_waited_for(meeting: Any, come: Callable[..., Channel]) -> None:
    """The data set is there when every task has come."""
    come(1)
    come(0)
    assert sorted(ticket.partition for ticket in meeting.tickets()) == [0, 1]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"[" * 100_000, b"\xff", b'{"token": 3}', b'{"token": "\xc3\xa9"}', b"null",
        b'{"token": "x", "ticket": {}, "attempt": 0, "tasks": 1}',
    ],
)  # fmt: skip
def test_strangers_are_sent_away(meeting: Any, come: Callable[..., Channel], body: bytes) -> None:
    """Whoever does not know the token is hung up on, whatever he says, and tasks are let in after him."""
    stranger = come(body)
    until(lambda: hung_up(stranger))
    come(0, tasks=1)
    assert [ticket.partition for ticket in meeting.tickets()] == [0]


def test_who_says_nothing_holds_nobody_up(spark: Spark, meeting: Any, come: Callable[..., Channel]) -> None:
    """A connection that says nothing does not keep the tasks behind it waiting."""
    with dial(spark.task.driver), dial(spark.task.driver):
        come(0, tasks=1)
        until(lambda: len(meeting._guests) == 1, 5.0)


def test_no_descriptor_is_left_for_a_while(
    meeting: Any, come: Callable[..., Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While no connection can be accepted the driver rests between its tries, and lets tasks in after it."""
    tries: list[float] = []

    def fail(*_: Any) -> None:
        tries.append(time.monotonic())
        raise LimitExceeded("no descriptor left")

    with monkeypatch.context() as patched:
        patched.setattr(SocketListener, "accept", fail)
        time.sleep(1.5)
    assert len(tries) < 1000
    come(0, tasks=1)
    assert len(meeting.tickets()) == 1


def test_no_thread_is_left_for_a_while(
    meeting: Any, come: Callable[..., Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection for which no thread can be started is hung up on, and the next one is let in."""

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(barrier, "run_in_thread", fail)
        turned_away = come(0, tasks=1)
        until(lambda: hung_up(turned_away))
    come(0, tasks=1)
    assert len(meeting.tickets()) == 1


def test_attempts_at_the_stage_are_not_mixed(meeting: Any, come: Callable[..., Channel]) -> None:
    """When Spark runs all tasks again, those that came of the attempt before count no more, and may go."""
    old = come(0, attempt=1)
    until(lambda: len(meeting._guests) == 1)
    new = come(1, attempt=3)
    until(lambda: hung_up(old))
    assert list(meeting._guests) == [1]
    late = come(0, attempt=1)
    until(lambda: hung_up(late))
    come(0, attempt=3)
    assert len(meeting.tickets()) == 2
    assert not hung_up(new)


def test_a_task_that_is_lost_later(spark: Spark, meeting: Any, come: Callable[..., Channel]) -> None:
    """When Spark runs tasks again whose data set is out already, those go, and who waits hears of it."""
    come(0, attempt=1, tasks=1)
    meeting.tickets()
    again = come(0, attempt=2, tasks=1)
    until(lambda: hung_up(again))
    spark.end(offered(0))
    with pytest.raises(BrokenError, match="was lost"):
        meeting.wait_released(5.0)


def test_tasks_without_rows_end_at_once(spark: Spark, meeting: Any) -> None:
    """Where no task has rows the job is over before the tasks were heard: that is a data set without rows."""
    spark.end(Ticket(0), Ticket(1))
    assert [ticket.partition for ticket in meeting.tickets()] == [0, 1]


class _Context:
    """What Spark tells a task of a stage of one task."""

    @classmethod
    def get(cls) -> _Context:
        return cls()

    def partitionId(self) -> int:  # noqa: N802  Spark's name
        return 0

    def taskAttemptId(self) -> int:  # noqa: N802  Spark's name
        return 1

    def allGather(self, message: str) -> list[str]:  # noqa: N802  Spark's name
        return [message]

    def getTaskInfos(self) -> list[None]:  # noqa: N802  Spark's name
        return [None]


def test_readers_of_this_host_and_of_others_are_counted_together(tidy: None, spark: Spark) -> None:
    """With ``readers=2`` a partition has two readers, whichever way they come, and its task ends after them."""
    sys.modules["pyspark"].BarrierTaskContext = _Context  # type: ignore[attr-defined]
    meeting = barrier._Meeting(spark, Order("app", "d#1", readers=2, driver="127.0.0.1"), None, None)
    given: list[pa.RecordBatch] = []
    task = threading.Thread(target=lambda: given.extend(spark.task([pa.record_batch({"a": [1, 2]})])))
    task.start()
    try:
        (ticket,) = meeting.tickets()
        here = bow.Endpoint.parse(ticket.endpoint)
        elsewhere = dataclasses.replace(here, host="another host")
        with bow.connect(here) as first, bow.connect(elsewhere) as second:
            for third in (here, elsewhere):
                with pytest.raises(bow.UnknownTicket, match="has all its readers"):
                    bow.connect(third)
            assert [stream.read_all().num_rows for stream in (first, second)] == [2, 2]
            assert [stream.stats.path for stream in (first, second)] == ["unix: mapped", "tcp: packed"]
        task.join(20.0)
        assert (task.is_alive(), len(given)) == (False, 1)
    finally:
        spark.over.set()
        meeting.end()
        task.join(20.0)


def test_a_job_without_tasks(spark: Spark, meeting: Any) -> None:
    """A data frame without partitions is a data set without rows."""
    spark.end()
    assert meeting.tickets() == []


def test_what_a_task_said_is_told(spark: Spark, meeting: Any) -> None:
    """The error of a task reaches the user as what we said, though Spark puts pages around it."""
    text = (
        "Job aborted" + "\n\tat x.y.Z" * 500 + "\nbowstring.errors.OutOfBudget: no room; found 3\n\n\tat java"
    )
    spark.end(error=RuntimeError(text))
    with pytest.raises(BrokenError, match=r"found OutOfBudget: no room; found 3$"):
        meeting.tickets()


def test_tasks_that_end_without_a_word(spark: Spark, meeting: Any) -> None:
    """A job that ends though it has rows has lost them: no data set without rows is made of it."""
    spark.end(offered(0))
    with pytest.raises(BrokenError):
        meeting.tickets()


def test_waiting_ends(meeting: Any, come: Callable[..., Channel]) -> None:
    """Waiting for readers has a deadline, and ends when they were all here."""
    come(0, tasks=1)
    meeting.tickets()
    with pytest.raises(DeadlineExceeded):
        meeting.wait_released(0.05)
