"""What publishing asks of Spark's driver: in this process, or on a server of Spark Connect."""

from __future__ import annotations

import contextlib
import math
import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bowstring.spark.task import driver_identity
from bowstring.spark.types import task_schema
from bowstring.transport.tcp import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_DESCRIPTION: Final = "spark.job.description"
_ANY_PORT: Final = 9


class Driver:
    """A session of Spark, as a publication needs it; its driver is in this process."""

    # Whether executors also work for others than this process: their life says nothing about its data then.
    shared = False

    def __init__(self, session: Any) -> None:
        self.session = session
        self._context = session.sparkContext
        # Tells apart what this process calls an application.
        self.key = f"{self._context.applicationId}-{self._context.startTime}"

    def ended(self) -> bool:
        """Whether the session, or Spark, was stopped."""
        return self._context._jsc is None

    def application(self) -> str:
        """Return what tasks and depots call the application."""
        try:
            pid = int(self._context._jvm.java.lang.ProcessHandle.current().pid())
        except Exception:  # noqa: BLE001  whatever a gateway to Java raises that is not one
            return self.key
        return driver_identity(pid)

    def host(self) -> str | None:
        """Return where tasks find the way to this process's host; ``None`` where they run on this host."""
        if self._context.master.partition("[")[0] == "local":
            return None
        return self.setting("spark.driver.host") or "127.0.0.1"

    @contextlib.contextmanager
    def counted_tasks(self, tag: str) -> Iterator[Callable[[], tuple[int, int]]]:
        """Yield what counts the tasks that have ended, and all, of this thread's jobs in a ``with`` block."""
        self._context.addJobTag(tag)
        tracker = self._context.statusTracker()

        def count() -> tuple[int, int]:
            jobs = map(tracker.getJobInfo, self._context._jsc.sc().statusTracker().getJobIdsForTag(tag))
            stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
            known = [stage for stage in stages if stage]
            return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)

        try:
            yield count
        finally:
            self._context.removeJobTag(tag)

    def described(self, text: str) -> contextlib.AbstractContextManager[None]:
        """Let the jobs of this thread have a description, where they have none, in a ``with`` block."""
        return _local_property(self._context, _DESCRIPTION, text)

    def setting(self, name: str) -> str | None:
        """Return a setting of the session; ``None`` where it is not set."""
        value: str | None = self.session.conf.get(name, None)
        return value


class _Connect(Driver):
    """A session of Spark Connect, whose driver is a server's."""

    shared = True

    def __init__(self, session: Any) -> None:
        self.session = session
        # A server has one application for all of its clients, and its executors outlive each of them.
        self.key = f"connect-{self.setting('spark.app.id')}-{session.session_id}"

    def ended(self) -> bool:
        return bool(self.session.is_stopped)

    def application(self) -> str:
        return self.key

    def host(self) -> str | None:
        master = self.setting("spark.master") or ""
        server = str(self.session.client.host)
        if master.partition("[")[0] == "local" and is_loopback(f"tcp://{server}:{_ANY_PORT}"):
            return None
        return self.setting("spark.driver.host") or server

    @contextlib.contextmanager
    def counted_tasks(self, tag: str) -> Iterator[Callable[[], tuple[int, int]]]:  # noqa: ARG002
        # What the server last reported of the operations of the session: jobs of other threads are not told apart.
        last = 0, 0

        def take(stages: Any = (), **_: Any) -> None:
            nonlocal last
            if known := list(stages or ()):
                last = sum(each.num_completed_tasks for each in known), sum(each.num_tasks for each in known)

        self.session.registerProgressHandler(take)
        try:
            yield lambda: last
        finally:
            self.session.removeProgressHandler(take)

    def described(self, text: str) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002  there are none
        return contextlib.nullcontext()


def driver_of(session: Any) -> Driver:
    """Return the driver of a session."""
    return Driver(session) if hasattr(session, "sparkContext") else _Connect(session)


@contextlib.contextmanager
def _local_property(context: Any, name: str, value: str) -> Iterator[None]:
    """Let the jobs of this thread have a property, where they have none, in a ``with`` block."""
    before = context.getLocalProperty(name)
    if before is None:
        context.setLocalProperty(name, value)
    try:
        yield
    finally:
        if before is None:
            context.setLocalProperty(name, None)


_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
# Spark's own bound, and the number that it takes for none: with any other it measures its batch for every row.
_SPARKS_BOUND: Final = 64 << 20
_NO_BOUND: Final = (1 << 31) - 1
# Of rows that may be long: less memory than 64 MiB in Java and in workers, and a tenth to a third less time.
_BOUND: Final = 8 << 20
# Functions in a plan get their batches by the same settings, and of other rows than those that are published.
_FUNCTIONS: Final = re.compile("Python|Pandas|Arrow|RDD")


def sized_batches(df: Any) -> contextlib.AbstractContextManager[None]:
    """Let the jobs of this thread have batches that suit the rows of a data frame, in a ``with`` block."""
    # Tasks read settings among the properties of their job, over which Spark writes what the session has set: so
    # what the user has set holds, and queries of other threads, and later ones, have the batches that they had.
    try:
        bound = _bound(df)
    except Exception:  # noqa: BLE001  what is private to Spark may be other in a later release; its own bound holds
        bound = None
    if bound is None:
        return contextlib.nullcontext()
    return _local_property(df.sparkSession.sparkContext, _BYTES, bound)


def _bound(df: Any) -> str | None:
    """Return the bound of bytes that suits the rows of a data frame; ``None`` for Spark's own."""
    if not hasattr(df, "_jdf"):
        return None  # the plan is on a server of Spark Connect
    # Where threads of Python's have none of their own in Java (PYSPARK_PIN_THREAD), a property may reach any query.
    if type(df.sparkSession.sparkContext._gateway).__name__ != "ClientServer":
        return None
    # Functions of Python's, or what may be some, count also where they are in what is cached, or will be.
    plan = df._jdf.queryExecution().optimizedPlan()
    patterns = df.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    if plan.containsPattern(patterns.PYTHON_UDF()) or _FUNCTIONS.search(plan.toString()):
        return None
    rows = int(df.sparkSession.conf.get(_ROWS))
    short = rows > 0 and rows * _row_bytes(task_schema(df)) <= _SPARKS_BOUND
    return str(_NO_BOUND if short else _BOUND)


def _row_bytes(fields: Iterable[pa.Field]) -> float:
    """Return how many bytes each row takes; infinity where that depends on the row."""
    total = 0.0
    for type_ in (field.type for field in fields):
        if pa.types.is_struct(type_):
            total += _row_bytes(type_)
        elif pa.types.is_primitive(type_) or pa.types.is_decimal(type_):
            total += type_.bit_width / 8
        elif not pa.types.is_null(type_):
            return math.inf
    return total
