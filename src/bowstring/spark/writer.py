"""``df.write.format("bowstring")`` and ``writeStream``: data frames go to the depot under a name."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import secrets
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from bowstring.client.names import is_depot
from bowstring.depot.launch import connect
from bowstring.depot.options import Options
from bowstring.depot.publishing import data_set_id
from bowstring.errors import (
    BowstringError,
    BrokenError,
    DeadlineExceeded,
    RefusedError,
    UnknownTicket,
    UsageError,
)
from bowstring.spark import task
from bowstring.spark.application_lease import addresses_of
from bowstring.spark.options import NO_TABLES, known_options
from bowstring.spark.publication import Keep, commit, give_up, settle
from bowstring.spark.tickets import Ticket
from bowstring.spark.types import differences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from bowstring.depot.client import Depot


_OPTIONS: Final = ("name", "path", "readers", "lease_seconds", "ttl", "wait_for_room", "depot_options")
_BATCH: Final = "streaming.sql.batchId"
_QUERY: Final = "sql.streaming.queryId"
_RUN: Final = "spark.jobGroup.id"


@dataclasses.dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]  # PySpark has no types
    """What a task tells the commit: the partition that it wrote, of which data set, and for which query."""

    ticket: Ticket
    dataset: str
    query: str = ""


class _Writer:
    """Writes a data frame to the depot under a name: in Spark's driver, in its tasks, and in their driver again.

    The lease is Spark's driver's, as the application that the order names: it has an executor's life, and more.
    """

    def __init__(
        self, options: Mapping[str, str], schema: pa.Schema, *, append: bool, stream: bool = False
    ) -> None:
        given = known_options(options, _OPTIONS)
        name = given.get("name") or given.get("path")
        # Given to saveAsTable, the option would make a table that nothing can read.
        if not name or ("name" in given and not stream):
            raise UsageError(
                "the data set needs a name, as save(name) or writeStream.start(name) gives it",
                found=f"the option name={name!r}, which only streams and readers take" if name else None,
                hint=f'df.write.format("bowstring").mode("overwrite").save("events"). {NO_TABLES}',
            )
        if is_depot(name):
            name = name.removeprefix("depot:")
        elif ":" in name and "name" not in given:
            raise UsageError(
                "save() takes a name, and what has a colon is a URI for load()",
                found=repr(name[:200]),
                hint="save('depot:NAME') takes any text as the name.",
            )
        readers = _number(given, "readers", None)
        if readers is not None and (readers < 1 or readers != int(readers)):
            raise UsageError("a data set needs a reader", found=f"readers={given['readers']}")
        given_options = given.get("depot_options")
        self._name, self._append = name, append
        self._schema = schema  # of a data set without rows
        self._keep = Keep(name, ttl=_number(given, "ttl", None))
        self._order = task.Order(
            # Spark's driver is an ancestor of this process.
            task.driver_identity(task.executor_pid() or os.getpid()),
            "",
            None if readers is None else int(readers),
            _number(given, "lease_seconds", task.LEASE_SECONDS) or 0.0,
            options=None if given_options is None else Options.from_json(given_options),
            wait=_number(given, "wait_for_room", task.WAIT_SECONDS) or 0.0,
        )
        with (
            # Nothing is there yet, or no depot can be started in time: the tasks say so where it matters.
            contextlib.suppress(BrokenError, DeadlineExceeded, UnknownTicket, RefusedError),
            # Started by a task, it would have the limits of that (spark.executor.pyspark.memory).
            self._depot() as catalog,
        ):
            self._check(catalog, append=append and not stream)

    def _check(self, catalog: Depot, *, append: bool) -> None:
        """Refuse another application's name, and to append another schema, before any task.

        Tasks free what jobs that failed have left where they run.
        """
        given_up = catalog.check_name(self._name, application=self._order.application)
        self._order = dataclasses.replace(self._order, given_up=given_up)
        known = catalog.lookup(self._name) if append else None
        # One without rows was made of a guess, as this schema is one: its first rows say what it is.
        ours = known and known.endpoints and known.metadata.get("application") == self._order.application
        columns = differences(known.schema, self._schema) if known and ours else None
        if columns is not None:
            raise UsageError(
                "what is appended has another schema",
                expected=columns[0],
                found=columns[1],
                where=f"the data set {self._name!r}",
                hint="Give the data frame those columns, or write it under another name or with overwrite.",
            )

    def _depot(self, addresses: tuple[str, ...] | None = None) -> Depot:
        """Find the depot of these addresses; by default that of this host, which is started where there is none."""
        options = self._order.options
        tls = None if options is None else options.tls
        if addresses is None:
            return connect(options=options, tls=tls)
        return connect(address=addresses, tls=tls)

    def _write(self, batches: Iterable[pa.RecordBatch], dataset: str, query: str = "") -> Written:
        order = dataclasses.replace(self._order, dataset=dataset)
        return Written(task.DepotTask(order).ticket(batches), dataset, query)

    def _commit(self, messages: Iterable[Any], dataset: str, batch: int | None = None) -> None:
        """Make a data set of what the tasks wrote, and enter it under its name."""
        tickets, order = _tickets(messages), dataclasses.replace(self._order, dataset=dataset)
        with contextlib.ExitStack() as ends:
            depots = [ends.enter_context(self._depot(each)) for each in addresses_of(tickets)]
            catalog = ends.enter_context(self._depot())
            task.hold(catalog, order)
            _, new = commit(
                tickets, self._schema, order, self._keep, depots, catalog, append=self._append, batch=batch
            )
            if not new:
                # The first commit of this batch stands, and what came now is freed.
                settle(dataset, catalog.lookup(self._name), depots, ttl=self._keep.ttl)

    def _abort(self, messages: Iterable[Any], dataset: str) -> None:
        """Free what tasks wrote for a job that failed, and what they write yet."""
        # Messages know no task that goes on: what it writes on another host is freed by tasks of later jobs, for
        # which the depot of this host remembers what was given up.
        with contextlib.suppress(BowstringError), self._depot() as here:
            task.hold(here, self._order)
            give_up(dataset, (here,))
        for addresses in addresses_of(_tickets(messages)):
            with contextlib.suppress(BowstringError), self._depot(addresses) as depot:
                give_up(dataset, (depot,))


def _number(given: Mapping[str, str], name: str, default: float | None) -> float | None:
    try:
        number = default if name not in given else float(given[name])
    except ValueError:
        number = -1.0
    if number is not None and not 0 <= number < float("inf"):
        raise UsageError(f"the option {name} is not a number above 0", found=given[name])
    return number


def _tickets(messages: Iterable[Any]) -> list[Ticket]:
    return [each.ticket for each in messages if isinstance(each, Written)]


class DatasetWriter(_Writer, DataSourceArrowWriter):  # type: ignore[misc]  # PySpark has no types
    """Writes a data frame to the depot under a name (``df.write.format("bowstring")``)."""

    def __init__(self, options: Mapping[str, str], schema: pa.Schema, *, overwrite: bool) -> None:
        super().__init__(options, schema, append=not overwrite)
        self._dataset = data_set_id(self._name, secrets.token_hex(8))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one partition; in a task."""
        return self._write(iterator, self._dataset)

    def commit(self, messages: list[Any]) -> None:
        """Enter the data set; in a process of Spark's driver."""
        self._commit(messages, self._dataset)

    def abort(self, messages: list[Any]) -> None:
        """Free what was written."""
        self._abort(messages, self._dataset)


class DatasetStreamWriter(_Writer, DataSourceStreamArrowWriter):  # type: ignore[misc]  # PySpark has no types
    """Adds each micro-batch of a streaming query to a data set in the depot, once (``writeStream``)."""

    def __init__(self, options: Mapping[str, str], schema: pa.Schema, *, overwrite: bool = False) -> None:
        super().__init__(options, schema, append=not overwrite, stream=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one partition of a micro-batch; in a task."""
        context = TaskContext.get()
        # The run, too: a batch that was aborted is released for good, and tried again by another run of the query.
        query, run, batch = (str(context.getLocalProperty(each)) for each in (_QUERY, _RUN, _BATCH))
        return self._write(iterator, data_set_id(self._name, query, run, batch), query)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  Spark's name
        """Add a micro-batch; one that was added before is not added again."""
        # Spark makes a new writer for the commit: what the tasks wrote to is known by their messages alone.
        for dataset, query in _written(messages):
            # A number among those of all queries, of which each begins at 0.
            key = int.from_bytes(hashlib.sha256(f"{query}#{batchId}".encode()).digest()[:7])
            self._commit(messages, dataset, key)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803, ARG002  Spark's name
        """Free what was written of a micro-batch."""
        for dataset, _ in _written(messages):
            self._abort(messages, dataset)


def _written(messages: Iterable[Any]) -> list[tuple[str, str]]:
    return sorted({(each.dataset, each.query) for each in messages if isinstance(each, Written)})
