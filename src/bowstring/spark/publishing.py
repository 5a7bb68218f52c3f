"""Publishing a data frame: each task writes its partition, and the driver gets all tickets as one data set."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import secrets
import time
from typing import TYPE_CHECKING, Any, Literal

from bowstring import depot
from bowstring.errors import (
    BowstringError,
    BrokenError,
    InvalidData,
    MissingDependency,
    UnknownTicket,
    UsageError,
)
from bowstring.limits import DEFAULT_LIMITS
from bowstring.server.arguments import check_offer
from bowstring.spark.application_lease import Application, application_of
from bowstring.spark.barrier import publish_in_tasks
from bowstring.spark.parquet_scan import ScanTask, pieces_of, scan_of
from bowstring.spark.schemas import check_columns, published_schema
from bowstring.spark.sessions import warn_of_memory_limit
from bowstring.spark.task import LEASE_SECONDS, DepotTask, Order
from bowstring.spark.tickets import COLUMNS, Control, PublishedDataset, Ticket, dataset_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from bowstring.depot import Depot, Options
    from bowstring.dissociated.endpoint import Dataset

__all__ = ["dataset", "publish"]


def publish(
    df: Any,
    name: str,
    *,
    readers: int | None = None,
    mode: Literal["depot", "barrier"] = "depot",
    scan: Literal["spark", "tasks"] = "spark",
    recoverable: bool = False,
    profile: Any = None,
    device: str | None = None,
    lease_seconds: float = LEASE_SECONDS,
    stay_seconds: float = 0.0,
    depot_options: Options | None = None,
) -> PublishedDataset:
    """Publish a data frame from the tasks that compute it, as one data set for any process or host.

    Each task writes its batches into shared memory of its host; nothing but tickets comes to the driver. Partitions
    are the endpoints of the data set, in their order; those without rows have none.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        What to publish; it is computed once, by this call.
    name
        What to call the data set.
    readers
        How many readers read the data set to its end before it is freed; any number by default.
    mode
        ``"depot"``: the depot of each host keeps the data when the tasks are over. ``"barrier"``: all tasks run at
        once, and each keeps its data itself until they are read, for memory that must not outlive its process.
    scan
        ``"tasks"``: the data frame only reads columns of Parquet files, and the tasks read these by themselves,
        which is several times as fast. Rows come in the order of the files; each piece of a file is a partition.
    recoverable
        Whether :meth:`PublishedDataset.republish` shall work. The data frame must give the same rows again:
        persist it, or read it from files.
    profile : pyspark.resource.ResourceProfile
        What tasks need, such as a GPU each.
    device
        With ``mode="barrier"``, where the data are put: ``"gpu"`` for the GPU that Spark gave the task, or the name
        of a device. The host by default.
    lease_seconds
        How long a depot keeps the data after it has lost sight of the application, in seconds.
    stay_seconds
        How long the data stay after the application has ended, for readers that come later.
    depot_options
        What a depot is started with where there is none (:class:`bowstring.depot.Options`).

    Returns
    -------
    PublishedDataset
        It pickles, and :func:`bowstring.connect` opens it.

    Raises
    ------
    MissingDependency
        PySpark is not installed.
    UsageError
        This is no data frame of Spark, or the options contradict each other.
    InvalidData
        Partitions have different schemas.
    Unsupported
        The data frame has no columns, or does more than read Parquet files with ``scan="tasks"``.

    Examples
    --------
    >>> import bowstring as bow
    >>> spark = bow.spark.session()  # doctest: +SKIP
    >>> flights = bow.spark.publish(spark.range(1000), "ids")  # doctest: +SKIP
    >>> with bow.connect(flights) as stream:  # doctest: +SKIP
    ...     sum(batch.num_rows for batch in stream)
    1000
    """
    _check(df, name, mode, scan, readers, device=device, recoverable=recoverable)
    warn_of_memory_limit(functools.partial(_setting, df.sparkSession), gpus=device is not None)
    application = application_of(df.sparkSession)
    order = Order(
        application.name,
        f"{name}#{secrets.token_hex(8)}",
        readers,
        lease_seconds,
        None,
        depot_options,
        _driver_host(df.sparkSession),
        tuple(application.given_up),
    )
    if mode == "barrier":
        return publish_in_tasks(df, name, order, profile=profile, device=device)
    work = _Publication(name, order, application, _job(df, scan), profile, stay_seconds)
    try:
        return work.dataset(work.run(order), recoverable=recoverable, fresh=True)
    except BaseException:
        work.abandon()
        raise


@dataclasses.dataclass(frozen=True)
class _Job:
    """What Spark runs: a data frame, what is done with its partitions, and the schema of what comes out."""

    df: Any
    task: Callable[[Order], Any]
    schema: pa.Schema


def _job(df: Any, scan: str) -> _Job:
    schema = published_schema(df)
    if scan == "spark":
        return _Job(df, DepotTask, schema)
    spark = df.sparkSession
    read = scan_of(df)
    pieces = pieces_of(read.files, spark.sparkContext.defaultParallelism)
    numbers = spark.range(0, len(pieces), 1, max(1, len(pieces)))
    return _Job(numbers, lambda order: ScanTask(order, pieces, read.columns, schema), schema)


class _Publication:
    """One data set in depots, for as long as the driver wants something of it."""

    def __init__(
        self, name: str, order: Order, application: Application, job: _Job, profile: Any, stay: float
    ) -> None:
        self._name = name
        self._order = order
        self._application = application
        self._job = job
        self._profile = profile
        self._stay = stay
        self._tickets: dict[int, Ticket] = {}
        self._depots: list[Depot] = []

    def run(self, order: Order) -> list[Ticket]:
        """Let the tasks publish; return their tickets."""
        job = self._job.df.mapInArrow(self._job.task(order), COLUMNS, profile=self._profile)
        return [Ticket.of_row(row) for row in job.collect()]

    def dataset(
        self, tickets: Iterable[Ticket], *, recoverable: bool, fresh: bool = False
    ) -> PublishedDataset:
        """Take tickets in, and tell the depots what the data set is: what other attempts left is freed.

        A fresh one was read by nobody yet, and must be whole.
        """
        self._tickets |= {ticket.partition: ticket for ticket in tickets}
        order = self._order
        found = dataset_of(
            self._tickets.values(),
            self._job.schema,
            name=self._name,
            id=order.dataset,
            application=order.application,
        )
        self._depots = self._application.hold(
            order.dataset, self._tickets.values(), order.lease_seconds, self._stay
        )
        kept = 0
        for held in self._depots:
            # What all its readers have read by now is gone, and need not be there.
            with contextlib.suppress(UnknownTicket):
                kept += held.settle(order.dataset, found.endpoints)
        if kept < len(found.endpoints) and (fresh or order.readers is None):
            raise BrokenError(
                "a depot ended and took streams of the data set with it",
                expected=f"{len(found.endpoints)} streams",
                found=f"{kept} streams",
                hint="Publish it again.",
            )
        control = Control(self._release, self._wait_released, self._republish if recoverable else None)
        return PublishedDataset(
            found.endpoints, found.schema, found.num_rows, found.nbytes, found.metadata, control
        )

    def abandon(self) -> None:
        """Free what tasks committed for a job that failed: where this process can reach it now, elsewhere later."""
        self._application.given_up.append(self._order.dataset)
        with contextlib.suppress(BowstringError), depot.connect(start=False) as here:
            here.release(self._order.dataset, final=True)
        for held in self._application.depots:
            with contextlib.suppress(BowstringError):
                held.release(self._order.dataset, final=True)

    def _release(self) -> None:
        for held in self._depots:
            # One that is gone has freed all it had.
            with contextlib.suppress(BowstringError):
                held.release(self._order.dataset)

    def _wait_released(self, timeout: float | None) -> None:
        end = time.monotonic() + (DEFAULT_LIMITS.release_timeout if timeout is None else timeout)
        for held in self._depots:
            held.wait_released(self._order.dataset, max(0.0, end - time.monotonic()))

    def _lost(self) -> frozenset[int]:
        offered: set[str] = set()
        for held in self._depots:
            with contextlib.suppress(BowstringError):
                offered |= {str(each.endpoint) for each in held.offered(self._order.dataset)}
        return frozenset(
            ticket.partition
            for ticket in self._tickets.values()
            if ticket.endpoint and ticket.endpoint not in offered
        )

    def _republish(self, partitions: frozenset[int] | None) -> PublishedDataset:
        wanted = self._lost() if partitions is None else partitions
        unknown = wanted - self._tickets.keys()
        if unknown:
            raise UsageError("the data set has no such partitions", found=sorted(unknown))
        if not wanted:
            return self.dataset((), recoverable=True)
        order = Order(**{**vars(self._order), "only": wanted})
        tickets = self.run(order)
        missing = wanted - {ticket.partition for ticket in tickets}
        if missing:
            raise InvalidData(
                "Spark made other partitions this time",
                expected=f"partitions {sorted(wanted)[:8]}",
                found=f"none of {sorted(missing)[:8]}",
                hint="Persist the data frame before it is published, or publish it anew.",
            )
        for ticket in tickets:
            before = self._tickets[ticket.partition]
            if ticket.num_rows != before.num_rows:
                raise InvalidData(
                    "Spark made another partition this time",
                    expected=f"{before.num_rows} rows",
                    found=f"{ticket.num_rows} rows",
                    where=f"partition {ticket.partition}",
                    hint="Persist the data frame before it is published, or publish it anew.",
                )
        return self.dataset(tickets, recoverable=True)


def _driver_host(session: Any) -> str | None:
    """Return where the driver is, if tasks run in processes that might be on other hosts."""
    if session.sparkContext.master.partition("[")[0] == "local":
        return None
    return _setting(session, "spark.driver.host") or "127.0.0.1"


def _setting(session: Any, name: str) -> str | None:
    found: str | None = session.conf.get(name, None)
    return found


def _check(
    df: Any, name: str, mode: str, scan: str, readers: int | None, *, device: str | None, recoverable: bool
) -> None:
    try:
        import pyspark.sql  # noqa: F401
    except ImportError as error:
        raise MissingDependency(
            "publishing from Spark needs PySpark", hint="pip install 'bowstring[spark]'"
        ) from error
    if not hasattr(df, "mapInArrow"):
        raise UsageError("this is no data frame of Spark", found=type(df).__name__)
    if not hasattr(df.sparkSession, "sparkContext"):
        raise UsageError("publishing needs a session of this process", found="a session of Spark Connect")
    if mode not in ("depot", "barrier"):
        raise UsageError("no such mode", expected="'depot' or 'barrier'", found=repr(mode))
    if scan not in ("spark", "tasks") or (scan == "tasks" and mode == "barrier"):
        raise UsageError("no such scan", expected="'spark', or 'tasks' through a depot", found=repr(scan))
    check_offer(name, None, readers)
    check_columns(df)
    if mode == "depot" and device is not None:
        raise UsageError(
            "a depot keeps data on the host", expected="mode='barrier'", found=f"device={device!r}"
        )
    if mode == "barrier" and recoverable:
        raise UsageError("what tasks keep themselves cannot be recovered", expected="mode='depot'")


def dataset(name: str, *, address: str | None = None) -> Dataset:
    """Return the data set that was written under a name: ``df.write.format("bowstring").option("name", …)``.

    One that a streaming query writes grows: ask again, and take the endpoints behind those that you know.

    Parameters
    ----------
    name
        What it was called.
    address
        The depot to ask (:attr:`bowstring.depot.Depot.remote_address`), where Spark's driver is on another host.

    Raises
    ------
    UnknownTicket
        Nothing has that name, or its application has ended.
    BrokenError
        There is no depot.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, bowstring as bow
    >>> with tempfile.TemporaryDirectory() as folder, bow.depot.connect(folder=folder) as depot:
    ...     depot.announce("none", bow.Dataset((), pa.schema([("a", pa.int8())])), application="app")
    ...     found = bow.spark.dataset("none", address=depot.address)
    ...     depot.stop()
    True
    >>> found.schema.names
    ['a']
    """
    with depot.connect(address=address, start=False) as catalog:
        return catalog.lookup(name)
