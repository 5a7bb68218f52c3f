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

from bowstring import depot
from bowstring.client.names import is_depot
from bowstring.errors import (
    BowstringError,
    BrokenError,
    DeadlineExceeded,
    RefusedError,
    UnknownTicket,
    UsageError,
)
from bowstring.spark.application_lease import addresses_elsewhere, addresses_of
from bowstring.spark.options import NO_TABLES, known_options
from bowstring.spark.task import (
    LEASE_SECONDS,
    WAIT_SECONDS,
    DepotTask,
    Order,
    data_set_id,
    driver_identity,
    executor_pid,
    lasting_pid,
    running_task,
)
from bowstring.spark.tickets import Ticket, dataset_of
from bowstring.spark.types import differences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from bowstring.dissociated.endpoint import Dataset

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


@dataclasses.dataclass(frozen=True)
class _Target:
    """Where a data frame goes: a name in the depot, and how long it stays there.

    Attributes
    ----------
    name
        The name.
    schema
        The schema of a data set without rows.
    application
        Spark's driver, which holds the lease: it has an executor's life, and more.
    readers, lease_seconds, ttl, wait, options
        As for :func:`bowstring.spark.publish`.
    """

    name: str
    schema: pa.Schema
    application: str
    readers: int | None
    lease_seconds: float
    ttl: float | None
    wait: float
    options: depot.Options | None

    @classmethod
    def of(cls, options: Mapping[str, str], schema: pa.Schema, *, stream: bool = False) -> _Target:
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
        return cls(
            name,
            schema,
            _driver(),
            None if readers is None else int(readers),
            _number(given, "lease_seconds", LEASE_SECONDS) or 0.0,
            _number(given, "ttl", None),
            _number(given, "wait_for_room", WAIT_SECONDS) or 0.0,
            depot.Options.from_json(given["depot_options"]) if "depot_options" in given else None,
        )

    def check(self, *, append: bool) -> None:
        """Refuse another application's name, and to append another schema; in the driver, before any task."""
        with (
            # Nothing is there yet, or no depot can be started in time: the tasks say so where it matters.
            contextlib.suppress(BrokenError, DeadlineExceeded, UnknownTicket, RefusedError),
            # Started by a task, it would have the limits of that (spark.executor.pyspark.memory).
            self.connect() as catalog,
        ):
            catalog.check_name(self.name, application=self.application)
            if not append:
                return
            known = catalog.lookup(self.name)
            # One without rows was made of a guess, as this schema is one: its first rows say what it is.
            if not known.endpoints or known.metadata.get("application") != self.application:
                return
            found = differences(known.schema, self.schema)
            if found is not None:
                raise UsageError(
                    "what is appended has another schema",
                    expected=found[0],
                    found=found[1],
                    where=f"the data set {self.name!r}",
                    hint="Give the data frame those columns, or write it under another name or with overwrite.",
                )

    def data_set(self, *parts: str) -> str:
        """Return the name of a data set in the depot; the user's name may hold anything."""
        return data_set_id(self.name, *parts)

    def order(self, dataset: str) -> Order:
        return Order(
            self.application,
            dataset,
            self.readers,
            self.lease_seconds,
            options=self.options,
            wait=self.wait,
        )

    def connect(self, addresses: tuple[str, ...] | None = None) -> depot.Depot:
        """Find the depot of these addresses; by default that of this host, which is started where there is none."""
        tls = None if self.options is None else self.options.tls
        if addresses is None:
            return depot.connect(options=self.options, tls=tls)
        return depot.connect(address=addresses, tls=tls)

    def write(self, batches: Iterable[pa.RecordBatch], dataset: str, query: str = "") -> Written:
        context = running_task()
        task = DepotTask(self.order(dataset))
        return Written(task.publish(batches, context.partitionId(), context.taskAttemptId()), dataset, query)

    def commit(
        self, messages: Iterable[Any], dataset: str, *, append: bool, batch: int | None = None
    ) -> None:
        """Make a data set of what the tasks wrote, and enter it under its name."""
        tickets = _tickets(messages)
        found = dataset_of(tickets, self.schema, name=self.name, id=dataset, application=self.application)
        # They must be there still before anybody hears of them: a batch that was announced is not tried again.
        kept = self._settle(tickets, dataset, found, grows=append)
        if kept < len(found.endpoints):
            raise BrokenError(
                "a depot ended, or the data set was overwritten, before it was committed",
                expected=f"{len(found.endpoints)} streams",
                found=f"{kept} streams",
            )
        with self.connect() as catalog:
            catalog.hold(self.application, self.lease_seconds, watch_pid=lasting_pid(self.application))
            new = catalog.announce(
                self.name,
                found,
                application=self.application,
                append=append,
                batch=batch,
                part=dataset,
                depots=addresses_elsewhere(tickets, catalog),
                ttl=self.ttl,
            )
            if not new:
                # The first commit of this batch stands, and what came now is freed.
                self._settle(tickets, dataset, catalog.lookup(self.name))

    def _settle(self, tickets: Iterable[Ticket], dataset: str, found: Dataset, *, grows: bool = False) -> int:
        """Keep what a data set names, free what else its tasks wrote, and return how many streams are kept."""
        kept, name = 0, self.name if grows and self.ttl is None else None
        for addresses in addresses_of(tickets):
            with contextlib.suppress(UnknownTicket), self.connect(addresses) as held:
                kept += held.settle(dataset, found.endpoints, ttl=self.ttl, name=name)
        return kept

    def abort(self, messages: Iterable[Any], dataset: str) -> None:
        """Free what tasks wrote for a job that failed, and what they write yet."""
        for addresses in addresses_of(_tickets(messages)):
            with contextlib.suppress(BowstringError), self.connect(addresses) as held:
                held.release(dataset, final=True)


def _number(given: Mapping[str, str], name: str, default: float | None) -> float | None:
    try:
        found = default if name not in given else float(given[name])
    except ValueError:
        found = -1.0
    if found is not None and not 0 <= found < float("inf"):
        raise UsageError(f"the option {name} is not a number above 0", found=given[name])
    return found


def _key(query: str, batch: int) -> int:
    """Return the number of a micro-batch among those of all queries: each begins at 0."""
    return int.from_bytes(hashlib.sha256(f"{query}#{batch}".encode()).digest()[:7])


def _tickets(messages: Iterable[Any]) -> list[Ticket]:
    return [each.ticket for each in messages if isinstance(each, Written)]


def _driver() -> str:
    """Return an identity of the process of Spark's driver, which is this process's ancestor."""
    return driver_identity(executor_pid() or os.getpid())


class DatasetWriter(DataSourceArrowWriter):  # type: ignore[misc]  # PySpark has no types
    """Writes a data frame to the depot under a name (``df.write.format("bowstring")``).

    Parameters
    ----------
    options
        ``path``, which is what ``save`` is given: the name; ``readers``, ``lease_seconds``, ``ttl``,
        ``wait_for_room`` and ``depot_options`` (:meth:`bowstring.depot.Options.to_json`) as for
        :func:`bowstring.spark.publish`.
    schema
        The schema of the data set, as Bowstring has it.
    overwrite
        Whether the name's data set is replaced; else partitions are added to it.

    Raises
    ------
    UsageError
        An option is missing or wrong, or what is appended has another schema than what is there.
    """

    def __init__(self, options: Mapping[str, str], schema: pa.Schema, *, overwrite: bool) -> None:
        self._target = _Target.of(options, schema)
        self._overwrite = overwrite
        self._target.check(append=not overwrite)
        self._dataset = self._target.data_set(secrets.token_hex(8))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one partition; in a task."""
        return self._target.write(iterator, self._dataset)

    def commit(self, messages: list[Any]) -> None:
        """Enter the data set; in a process of Spark's driver."""
        self._target.commit(messages, self._dataset, append=not self._overwrite)

    def abort(self, messages: list[Any]) -> None:
        """Free what was written."""
        self._target.abort(messages, self._dataset)


class DatasetStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # PySpark has no types
    """Adds each micro-batch of a streaming query to a data set in the depot, once (``writeStream``).

    Parameters
    ----------
    options, schema
        As for :class:`DatasetWriter`; ``name`` is another word for ``path``.
    overwrite
        Whether each micro-batch replaces all before it, as those of the output mode ``complete`` do.
    """

    def __init__(self, options: Mapping[str, str], schema: pa.Schema, *, overwrite: bool = False) -> None:
        self._target = _Target.of(options, schema, stream=True)
        self._overwrite = overwrite
        self._target.check(append=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one partition of a micro-batch; in a task."""
        context = TaskContext.get()
        # The run, too: a batch that was aborted is released for good, and tried again by another run of the query.
        query, run, batch = (str(context.getLocalProperty(each)) for each in (_QUERY, _RUN, _BATCH))
        return self._target.write(iterator, self._target.data_set(query, run, batch), query)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  Spark's name
        """Add a micro-batch; one that was added before is not added again."""
        # Spark makes a new writer for the commit: what the tasks wrote to is known by their messages alone.
        for dataset, query in _written(messages):
            key = _key(query, batchId)
            self._target.commit(messages, dataset, append=not self._overwrite, batch=key)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803, ARG002  Spark's name
        """Free what was written of a micro-batch."""
        for dataset, _ in _written(messages):
            self._target.abort(messages, dataset)


def _written(messages: Iterable[Any]) -> list[tuple[str, str]]:
    return sorted({(each.dataset, each.query) for each in messages if isinstance(each, Written)})
