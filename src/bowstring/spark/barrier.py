"""Publishing by barrier tasks: each serves its own memory and stays, and the driver's process holds them there."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.columnar.batch import Batch
from bowstring.depot import Options
from bowstring.errors import BowstringError, BrokenError, DeadlineExceeded, UsageError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import Pool, cpu
from bowstring.server import Server
from bowstring.spark.batches import incoming, published_schema
from bowstring.spark.driver import sized_batches
from bowstring.spark.frames import has_stages, with_plain_names
from bowstring.spark.refusals import reason
from bowstring.spark.task import device_of, own_address
from bowstring.spark.tickets import COLUMNS, Control, PublishedDataset, Ticket, dataset_of
from bowstring.transport import Message, dial, listen
from bowstring.transport.accepting import Restriction, accept_all
from bowstring.transport.threads import NO_THREAD, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from bowstring.spark.task import Order
    from bowstring.transport import Channel

_LOOK_SECONDS: Final = 0.2
_SEND_SECONDS: Final = 10.0
_NAME: Final = "partition"


@dataclasses.dataclass(frozen=True)
class StayingTask:
    """Publishes a partition from the task's own memory; Spark calls it with the partition's batches."""

    order: Order
    # Where the driver's process waits, and the secret that it knows its tasks by.
    driver: str
    token: str = dataclasses.field(repr=False)
    # Where the data are put (:func:`bowstring.spark.publish`).
    device: str | None = None
    # The names of the columns, where Spark was given others.
    names: tuple[str, ...] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Publish the batches of one partition, and stay; give back one ticket."""
        from pyspark import BarrierTaskContext

        context = BarrierTaskContext.get()
        device = device_of(self.device) or cpu()
        with contextlib.ExitStack() as ends:
            pool = Pool(device)
            ends.callback(pool.close)
            _, present = incoming(batches, self.names)
            data = [Batch.from_arrow(batch).to_device(device, pool) for batch in present]
            server = self._server(ends, pool)
            ticket = self._offer(server, data, context.partitionId())
            del data
            # Spark numbers attempts at tasks; those of one attempt at the stage are known by their lowest.
            attempt = min(map(int, context.allGather(str(context.taskAttemptId()))))
            channel = ends.enter_context(dial(self.driver, tls=(self.order.options or Options()).tls))
            self._say(channel, ticket, attempt, len(context.getTaskInfos()))
            if ticket.endpoint:
                self._stay(server, channel)
        yield ticket.as_batch()

    def _server(self, ends: contextlib.ExitStack, pool: Pool) -> Server:
        """Return a server for readers of this host and, where there are other hosts, for those, too."""
        options = self.order.options or Options()
        elsewhere = own_address(self.order.driver, options)
        token = None if elsewhere is None else secrets.token_hex(16)
        server = ends.enter_context(Server(token=token, pool=pool))
        if elsewhere is not None:
            server.listen_too(elsewhere, tls=options.tls, plaintext=options.plaintext)
        return server

    def _offer(self, server: Server, data: list[Batch], partition: int) -> Ticket:
        if not data:
            return Ticket(partition)
        endpoint = server.publish(_NAME, data, readers=self.order.readers)
        return Ticket(
            partition,
            str(endpoint),
            data[0].schema.serialize().to_pybytes(),
            sum(batch.num_rows for batch in data),
            len(data),
            sum(batch.nbytes for batch in data),
        )

    def _say(self, channel: Channel, ticket: Ticket, attempt: int, tasks: int) -> None:
        said = {
            "token": self.token,
            "ticket": {**dataclasses.asdict(ticket), "schema": ticket.schema.hex()},
            "attempt": attempt,
            "tasks": tasks,
        }
        channel.send([Message(None, [json.dumps(said).encode()])], _SEND_SECONDS)

    def _stay(self, server: Server, channel: Channel) -> None:
        """Wait until all readers were here, or the driver's process says so or is gone."""
        wanted = self.order.readers
        while wanted is None or server.statistics.readers < wanted:
            try:
                if channel.receive(_LOOK_SECONDS) is not None:
                    return
            except BowstringError:
                return


_LOOK: Final = 0.2
_EXECUTORS_SECONDS: Final = 10.0
_SAY_SECONDS: Final = 10.0
_MOST_GREETED: Final = 32
_JOB_SECONDS: Final = 10.0
# Anybody who reaches the host can connect: what is believed before the token is known is small.
_LIMITS: Final = dataclasses.replace(DEFAULT_LIMITS, message_bytes=DEFAULT_LIMITS.metadata_bytes)


def publish_in_tasks(
    df: Any, name: str, order: Order, *, profile: Any, device: str | None
) -> PublishedDataset:
    """Publish a data frame from tasks that all run at once and stay until they are read.

    Returns when all of them offer their part.
    """
    meeting = _Meeting(df, order, profile, device)
    try:
        tickets = meeting.tickets()
    except BaseException:
        meeting.end()
        raise
    made = dataset_of(
        tickets, published_schema(df), name=name, id=order.dataset, application=order.application
    )
    control = Control(meeting.end, meeting.wait_released)
    return PublishedDataset(made.endpoints, made.schema, made.num_rows, made.nbytes, made.metadata, control)


def _check_slots(df: Any, profile: Any) -> None:
    """Refuse a data frame that has more partitions than Spark has slots: it would try for ten minutes.

    Spark itself looks where the number of partitions is known when earlier stages have run, and not before.
    """
    if profile is not None or not hasattr(df, "_jdf"):
        return
    query = df._jdf.queryExecution()
    if has_stages(query.executedPlan()):
        return
    partitions = int(query.toRdd().getNumPartitions())
    # Executors of a session that has just begun may be on their way.
    end = time.monotonic() + (
        0.0 if df.sparkSession.sparkContext.master.startswith("local[") else _EXECUTORS_SECONDS
    )
    while (slots := _slots(df)) < partitions and time.monotonic() < end:
        time.sleep(_LOOK)
    if 0 < slots < partitions:
        raise UsageError(
            "mode='barrier' runs all tasks at once, and Spark has too few slots for them",
            expected=f"at most {slots} partitions",
            found=f"{partitions}",
            hint=f"Publish df.repartition({slots}), or use mode='depot'.",
        )


def _slots(df: Any) -> int:
    context = df.sparkSession.sparkContext._jsc.sc()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


@dataclasses.dataclass
class _Guest:
    """A task that stays."""

    ticket: Ticket
    # The attempt at the stage that it belongs to: Spark runs all tasks of one, or none.
    attempt: int
    # It stays as long as this is open.
    channel: Channel


class _Meeting:
    """Where the driver's process meets the tasks: they say what they offer, and stay until it hangs up.

    The job runs in a thread, since it ends only when everything was read.
    """

    def __init__(self, df: Any, order: Order, profile: Any, device: str | None) -> None:
        from pyspark import InheritableThread

        plain, names = with_plain_names(df)
        _check_slots(plain, profile)
        self._spark = df.sparkSession.sparkContext
        self._frame = plain
        self._group = order.dataset
        self._token = secrets.token_hex(16)
        tls = None if order.options is None or order.driver is None else order.options.tls
        scheme = "tcp" if tls is None else "tls"
        self._listener = listen(f"{scheme}://{order.driver or '127.0.0.1'}:0", _LIMITS, tls=tls)
        self._greeting = threading.BoundedSemaphore(_MOST_GREETED)
        self._changed = threading.Condition()
        self._guests: dict[int, _Guest] = {}
        self._expected: int | None = None
        self._attempt = -1
        self._full = False
        self._given: list[Ticket] = []
        self._error: BaseException | None = None
        self._done = self._ended = False
        task = StayingTask(order, self._listener.uri, self._token, device, names)
        job = plain.mapInArrow(task, COLUMNS, barrier=True, profile=profile)
        run_in_thread(self._accept, name="bowstring-spark-meeting")
        self._job = InheritableThread(target=self._run, args=(job,), name="bowstring-spark-job", daemon=True)
        self._job.start()

    def _run(self, job: Any) -> None:
        try:
            self._spark.setJobGroup(
                self._group, "Bowstring: tasks that publish, and stay", interruptOnCancel=True
            )
            with sized_batches(self._frame):
                self._given = [Ticket.of_row(row) for row in job.collect()]
        except Exception as error:  # noqa: BLE001  whatever Spark says, those who wait must hear it
            self._error = self._error or error
        with self._changed:
            self._done = True
            self._changed.notify_all()

    def _accept(self) -> None:
        accept_all(self._listener, self._receive, lambda: None, self._stopped)

    def _stopped(self) -> bool:
        return self._ended or self._done

    def _receive(self, channel: Channel) -> None:
        # Whoever says nothing keeps one of few places busy, not the door.
        while not self._greeting.acquire(timeout=_LOOK):
            if self._stopped():
                channel.close()
                return
        try:
            run_in_thread(self._greet, channel, name="bowstring-spark-guest")
        except NO_THREAD:  # no thread left: that passes, and listening goes on
            self._greeting.release()
            channel.close()

    def _greet(self, channel: Channel) -> None:
        try:
            self._welcome(channel)
        except (BowstringError, LookupError, ValueError, TypeError, RecursionError):
            channel.close()  # somebody who is no task of ours
        finally:
            self._greeting.release()

    def _welcome(self, channel: Channel) -> None:
        # A schema can be long; who sends it slowly keeps one of few places no longer than others.
        channel.restriction = Restriction(time.monotonic() + _SAY_SECONDS, None)
        received = channel.receive(_SAY_SECONDS)
        if received is None:
            raise DeadlineExceeded("a task said nothing")
        said = json.loads(bytes(received.body))
        if not secrets.compare_digest(str(said["token"]), self._token):
            raise ValueError
        ticket = Ticket(**{**said["ticket"], "schema": bytes.fromhex(said["ticket"]["schema"])})
        self._enter(_Guest(ticket, int(said["attempt"]), channel), int(said["tasks"]))

    def _enter(self, guest: _Guest, tasks: int) -> None:
        """Take a task in; those of another attempt at the stage than the last one go."""
        with self._changed:
            if self._ended or guest.attempt < self._attempt or (self._full and guest.attempt > self._attempt):
                gone = [guest]
                if not self._ended and guest.attempt > self._attempt and self._error is None:
                    self._error = BrokenError(
                        "a task that kept its data was lost, and Spark would compute all of them again",
                        hint="Publish the data frame again, or through the depot, which survives its tasks.",
                    )
            else:
                gone = list(self._guests.values()) if guest.attempt > self._attempt else []
                if gone or not self._guests:
                    self._guests, self._attempt = {}, guest.attempt
                self._guests[guest.ticket.partition] = guest
                self._expected = tasks
            self._changed.notify_all()
        for each in gone:
            each.channel.close()

    def tickets(self) -> list[Ticket]:
        """Wait until all tasks have come; Spark says when one cannot."""
        with self._changed:
            while self._expected is None or len(self._guests) < self._expected:
                if self._done:
                    return self._without_rows()
                self._changed.wait(_LOOK)
            self._full = True
            return [guest.ticket for guest in self._guests.values()]

    def _without_rows(self) -> list[Ticket]:
        """Return the tickets of a job that is over: tasks stay unless they have no rows."""
        if self._error is not None or any(ticket.endpoint for ticket in self._given):
            raise BrokenError(
                "the tasks that were to publish have ended", found=reason(self._error)
            ) from self._error
        return self._given

    def wait_released(self, timeout: float | None) -> None:
        """Wait until every task has ended because it was read."""
        limit = DEFAULT_LIMITS.release_timeout if timeout is None else timeout
        end = time.monotonic() + limit
        with self._changed:
            while not self._done:
                if (
                    not self._changed.wait(min(_LOOK, max(0.0, end - time.monotonic())))
                    and time.monotonic() >= end
                ):
                    raise DeadlineExceeded(
                        "the tasks are still read, or wait for a reader", expected=f"{limit} s"
                    )
        if self._error is not None and not self._ended:
            raise BrokenError("a task that published has failed", found=reason(self._error)) from self._error

    def end(self) -> None:
        """Let the tasks go: those who read keep what they have mapped. Idempotent."""
        if self._ended:
            return
        self._ended = True
        for guest in list(self._guests.values()):
            with contextlib.suppress(BowstringError):
                guest.channel.send([Message(None, [b"{}"])], 1.0)
            guest.channel.close()
        self._listener.close()
        self._job.join(_JOB_SECONDS)
        if self._job.is_alive():
            with contextlib.suppress(Exception):  # Spark may have stopped
                self._spark.cancelJobGroup(self._group)
