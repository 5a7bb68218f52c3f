"""Publishing a data frame: each task writes its partition, and the driver gets all tickets as one data set."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import secrets
from typing import TYPE_CHECKING, Any, Literal

from bowstring.depot.launch import connect
from bowstring.depot.options import Options
from bowstring.depot.publishing import data_set_id
from bowstring.errors import BowstringError, BrokenError, Unsupported, UsageError
from bowstring.server.arguments import check_offer, check_seconds
from bowstring.spark.application_lease import application_of
from bowstring.spark.batches import published_schema
from bowstring.spark.driver import driver_of
from bowstring.spark.frames import coalesced, frame_of, with_lists_of_vectors, with_plain_names
from bowstring.spark.parquet_scan import ScanTask, pieces_of, scan_of
from bowstring.spark.progress import reporter
from bowstring.spark.publication import Job, Keep, Publication
from bowstring.spark.published import PublishedDataset, RunningDataset
from bowstring.spark.refusals import forbidden, lacking
from bowstring.spark.sessions import pyspark_sql
from bowstring.spark.task import LEASE_SECONDS, WAIT_SECONDS, DepotTask, Order, StopTask, own_address
from bowstring.spark.types import check_columns
from bowstring.spark.waiting import no_room, watched

if TYPE_CHECKING:
    from collections.abc import Callable

    from bowstring.dissociated.endpoint import Dataset
    from bowstring.spark.progress import Progress
    from bowstring.transport.certificates import TlsConfig


def publish(
    df: Any,
    name: str | None = None,
    *,
    replace: bool = True,
    ttl: float | None = None,
    readers: int | None = None,
    scan: Literal["spark", "tasks"] = "spark",
    recoverable: bool = False,
    coalesce: Literal["auto"] | int | None = "auto",
    profile: Any = None,
    wait_for_room: float = WAIT_SECONDS,
    progress: Callable[[Progress], object] | bool | None = None,
    lease_seconds: float = LEASE_SECONDS,
    stay_seconds: float = 0.0,
    depot_options: Options | None = None,
    wait: bool = True,
) -> PublishedDataset:
    """Publish a data frame from the tasks that compute it, as one data set for any process or host.

    Each task writes its batches into shared memory of its host; nothing but tickets comes to the driver. Partitions
    are the endpoints of the data set, in their order; those without rows have none.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        What to publish; it is computed once, by this call. Names of columns may hold dots and may be repeated.
        A data frame or series of pandas-on-Spark is published without its index: ``reset_index()`` makes that a
        column. Columns of vectors of Spark's ML become ``array<double>``.
    name
        What to call the data set: any process of the driver's host finds it then (:func:`dataset`,
        ``bow.connect("depot:NAME")``, ``spark.read.format("bowstring").load(NAME)``). It is kept until it is
        replaced, dropped or released, or the application ends. Without a name it is freed when nothing refers to
        what this function returns.
    replace
        Whether it takes the place of what this application published under the name before, at the moment at which
        it is whole: until then readers find the earlier one, and both take memory. A job that fails leaves the
        earlier one. With ``False`` a name that is taken is an error.
    ttl
        After how many seconds the data are freed.
    readers
        How many readers read the data set to its end before it is freed; any number by default.
    scan
        ``"tasks"``: the data frame only reads columns of Parquet files, and the tasks read these by themselves,
        which is several times as fast. Rows come in the order of the files; each piece of a file is a partition.
    recoverable
        Whether :meth:`PublishedDataset.republish` shall work. The data frame must give the same rows again:
        persist it, or read it from files.
    coalesce
        ``"auto"``: partitions that Spark estimates below 1 MiB are joined before the tasks run, to no fewer than
        two for each core, where rows keep their order or have none (behind a shuffle that is no sort). A number: at
        most so many partitions, as ``df.coalesce`` makes them. ``None``: a task for each partition.
    profile : pyspark.resource.ResourceProfile
        What tasks need, such as a GPU each.
    wait_for_room
        How long a task waits for room in the depot of its host, in seconds; each later attempt of a task that Spark
        tries again waits a tenth of it.
    progress
        A function that is called several times a second, from another thread, with how far it is
        (:class:`bowstring.spark.Progress`); or whether a line on the terminal shows it. By default it does where
        there is a terminal, and Spark shows no line of its own.
    lease_seconds
        How long a depot keeps the data after it has lost sight of the application, in seconds.
    stay_seconds
        How long the data stay after the application has ended, for readers that come later.
    depot_options
        What a depot is started with where there is none (:class:`bowstring.depot.Options`).
    wait
        With ``False`` a thread runs the job, and this call returns a :class:`RunningDataset` at once:
        :func:`bowstring.connect` reads of it what tasks have committed, and waits for the rest until the job is
        complete, or raises the error with which it failed; ``wait()`` returns the whole data set. A host that is
        lost while the job runs fails it. The `name` stands for the data set once that is whole.

    Returns
    -------
    PublishedDataset
        It pickles, and :func:`bowstring.connect` opens it.

    Raises
    ------
    MissingDependency
        PySpark is not installed.
    UsageError
        This is no data frame of Spark, the options contradict each other, or the name is taken by another
        application, or at all where ``replace=False``.
    OutOfBudget
        A depot had no room in time; says which data sets hold the memory.
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
    df = frame_of(df)
    _check(df, name, scan, readers)
    seconds = {"wait_for_room": wait_for_room, "lease_seconds": lease_seconds, "stay_seconds": stay_seconds}
    for what, given in (seconds if ttl is None else {"ttl": ttl, **seconds}).items():
        check_seconds(given, what)
    driver = driver_of(df.sparkSession)
    if scan == "tasks" and driver.shared:
        raise Unsupported(
            "scan='tasks' needs Spark's driver in this process",
            found="a session of Spark Connect",
            hint="Leave it out.",
        )
    df = with_lists_of_vectors(df)
    report = reporter(False if progress is None and not wait else progress, driver)
    application = application_of(driver)
    application.trust(depot_options)
    dataset_id = data_set_id(name or "", secrets.token_hex(8))
    given_up = set(application.given_up)
    nowhere = BowstringError if name is None else BrokenError  # without a depot every name is free
    with contextlib.suppress(nowhere), connect(start=False) as here:
        given_up.update(here.check_name(name or dataset_id, application=application.name, new=not replace))
    order = Order(
        application.name,
        dataset_id,
        readers,
        lease_seconds,
        None,
        depot_options,
        driver.host(),
        tuple(given_up),
        wait_for_room,
        driver.shared,
    )
    if depot_options is not None:
        # It warns where a depot runs already, with other options.
        with contextlib.suppress(BowstringError), connect(start=False, options=depot_options):
            pass
    if driver.setting("spark.executor.pyspark.memory") is not None:
        # Started by a task, it would have the task's limit for as long as it lives.
        with contextlib.suppress(BowstringError):
            application.catalog(depot_options, lease_seconds)
    keep = Keep(name, replace, ttl, stay_seconds)
    # What is computed again must have the same partitions.
    job = _job(df, scan, None if recoverable and coalesce == "auto" else coalesce, again=recoverable)
    growing = None
    if not wait:
        growing = application.catalog(depot_options, lease_seconds)
        if order.driver is not None and (address := own_address(order.driver, depot_options)) is not None:
            growing._listen(address, encrypted=None)
        order = dataclasses.replace(order, growing=growing.addresses)
    work = Publication(order, application, job, profile, keep)

    def finish() -> PublishedDataset:
        try:
            with watched(driver, order, application, name, report):
                tickets = work.run(order)
            return PublishedDataset._of(work.dataset(tickets, fresh=True), work)
        except BaseException as error:
            refused = no_room(error, order, application, name) or lacking(error) or forbidden(error)
            work.abandon(refused or error)
            if refused is not None:
                raise refused from error
            raise

    if growing is None:
        return finish()
    from pyspark import inheritable_thread_target

    # With this thread's properties and tags of jobs.
    followed, running = work.start(growing, finish, inheritable_thread_target(df.sparkSession))
    return RunningDataset._of(followed, work, job=running)


def _job(df: Any, scan: str, coalesce: Literal["auto"] | int | None, *, again: bool) -> Job:
    schema = published_schema(df)
    if scan == "spark":
        plain, names = with_plain_names(coalesced(df, coalesce))
        return Job(plain, functools.partial(DepotTask, names=names), schema, again)
    spark = df.sparkSession
    files, columns = scan_of(df)
    pieces = pieces_of(files, spark.sparkContext.defaultParallelism)
    numbers = spark.range(0, len(pieces), 1, max(1, len(pieces)))
    return Job(numbers, lambda order: ScanTask(order, pieces, columns, schema), schema, again)


def _check(df: Any, name: str | None, scan: str, readers: int | None) -> None:
    pyspark_sql()
    if not hasattr(df, "mapInArrow"):
        raise UsageError("this is no data frame of Spark", found=type(df).__name__)
    if scan not in ("spark", "tasks"):
        raise UsageError("no such scan", expected="'spark' or 'tasks'", found=repr(scan))
    if name == "":
        raise UsageError("an empty name", hint="Leave it out for a data set that is freed with its handle.")
    check_offer("unnamed" if name is None else name, None, readers)
    check_columns(df)


def dataset(name: str, *, address: str | None = None, tls: TlsConfig | None = None) -> Dataset:
    """Return the data set of a name: of :func:`publish`, or of ``df.write.format("bowstring").save(name)``.

    One that a streaming query writes grows: ask again, and take the endpoints behind those that you know. For that
    each append keeps its own; ``bow.connect("depot:NAME")`` reads all of them faster where many are small.

    Parameters
    ----------
    name
        What it was called.
    address
        The depot to ask (:attr:`bowstring.depot.Depot.remote_address`), where Spark's driver is on another host.
    tls
        Whom to trust, and what to show, at a depot of ``tls:``.

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
    ...     _ = depot.stop()
    True
    >>> found.schema.names
    ['a']
    """
    with connect(address=address, start=False, tls=tls) as catalog:
        # Not `lookup`: endpoints that stand for many have no place behind those that a caller knows.
        return catalog.lookup_version(name)[1]


def stop_depots(spark: Any, *, tls: TlsConfig | None = None) -> None:
    """Free what a session of Spark published, and end its depots on all hosts, so that others start anew.

    A depot that holds data of other applications then goes on. Found are the depots that this process knows, those
    that hold named data sets of the application, and those of the hosts where tasks run now. What an application
    without a session left ends with `bowstring depot stop --everywhere`.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
        The session.
    tls
        Whom to trust, and what to show, at depots of ``tls:`` that hold what ``df.write`` and streams wrote; by
        default that of `depot_options` of :func:`publish`.

    Warns
    -----
    RuntimeWarning
        A depot that holds named data of the application does not answer.

    Examples
    --------
    >>> bow.spark.publish(df, "flights")  # doctest: +SKIP
    >>> bow.spark.stop_depots(spark)  # doctest: +SKIP
    """
    application = application_of(driver_of(spark))
    if tls is not None:
        application.trust(Options(tls=tls))
    application.stop_depots()
    # Of names that `df.write` made, and of which this process knows nothing.
    with contextlib.suppress(BrokenError), connect(start=False, tls=application._tls) as here:
        here.stop(application=application.name, everywhere=True)
    # A number for each slot of the cluster, by default.
    tasks = spark.range(1 << 12).mapInArrow(StopTask(application.name), "stopped boolean")
    tasks.collect()
