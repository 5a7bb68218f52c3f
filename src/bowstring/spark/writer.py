"""``df.write.format("bowstring")`` and ``writeStream``: data frames go to the depot under a name."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from bowstring import depot
from bowstring.errors import BowstringError, UsageError
from bowstring.spark.keeping import address_of
from bowstring.spark.task import DepotTask, Order, executor_pid
from bowstring.spark.tickets import Ticket, dataset_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

__all__ = ["DatasetStreamWriter", "DatasetWriter", "Written"]

_LEASE_SECONDS: Final = 120.0
_BATCH: Final = "streaming.sql.batchId"
_QUERY: Final = "sql.streaming.queryId"
_RUN: Final = "spark.jobGroup.id"


@dataclasses.dataclass
class Written(WriterCommitMessage):  # type: ignore[misc]  # PySpark has no types
    """What a task tells the commit about the partition that it wrote, and of which data set it is."""

    ticket: Ticket
    dataset: str


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
    readers, lease_seconds
        As for :func:`bowstring.spark.publish`.
    """

    name: str
    schema: pa.Schema
    application: str
    readers: int | None
    lease_seconds: float

    @classmethod
    def of(cls, options: Mapping[str, str], schema: pa.Schema) -> _Target:
        name = options.get("name") or options.get("path")
        if not name:
            raise UsageError(
                "the data set needs a name", hint='df.write.format("bowstring").option("name", "events")…'
            )
        readers = options.get("readers")
        try:
            return cls(
                name,
                schema,
                _driver(),
                None if readers is None else int(readers),
                float(options.get("lease_seconds", _LEASE_SECONDS)),
            )
        except ValueError as error:
            raise UsageError(
                "an option is not a number", expected="readers, lease_seconds", found=str(error)
            ) from error

    def order(self, dataset: str) -> Order:
        return Order(self.application, dataset, self.readers, self.lease_seconds)

    def write(self, batches: Iterable[pa.RecordBatch], dataset: str) -> Written:
        context = TaskContext.get()
        if context is None:
            raise UsageError("this is not a task of Spark")
        task = DepotTask(self.order(dataset))
        return Written(task.publish(batches, context.partitionId(), context.taskAttemptId()), dataset)

    def commit(
        self, messages: Iterable[Any], dataset: str, *, append: bool, batch: int | None = None
    ) -> None:
        """Make a data set of what the tasks wrote, and enter it under its name."""
        tickets = _tickets(messages)
        found = dataset_of(tickets, self.schema, name=self.name, id=dataset, application=self.application)
        with depot.connect() as catalog:
            catalog.hold(self.application, self.lease_seconds, watch_pid=executor_pid())
            catalog.announce(self.name, found, application=self.application, append=append, batch=batch)
            # After a repeated commit this is what the first one entered, and what came now is freed.
            valid = catalog.lookup(self.name)
            if not append:
                self._release_others(catalog, dataset)
        for address in sorted({address_of(ticket) for ticket in tickets if ticket.depot}):
            with depot.connect(address=address, start=False) as held:
                held.settle(dataset, valid.endpoints)
                if not append:
                    self._release_others(held, dataset)

    def _release_others(self, held: depot.Depot, dataset: str) -> None:
        """Free what the name meant before: nobody finds it any more."""
        for each in held.status().datasets:
            ours = each.application == self.application and each.name.startswith(f"{self.name}#")
            if ours and each.name != dataset:
                held.release(each.name)

    def abort(self, messages: Iterable[Any], dataset: str) -> None:
        """Free what tasks wrote for a job that failed."""
        for address in sorted({address_of(ticket) for ticket in _tickets(messages) if ticket.depot}):
            with contextlib.suppress(BowstringError), depot.connect(address=address, start=False) as held:
                held.release(dataset)


def _tickets(messages: Iterable[Any]) -> list[Ticket]:
    return [each.ticket for each in messages if isinstance(each, Written)]


def _driver() -> str:
    """Return an identity of the process of Spark's driver, which is this process's ancestor."""
    pid = executor_pid() or os.getpid()
    started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return f"driver-{socket.gethostname()}-{pid}-{started}"


class DatasetWriter(DataSourceArrowWriter):  # type: ignore[misc]  # PySpark has no types
    """Writes a data frame to the depot under a name (``df.write.format("bowstring")``).

    Parameters
    ----------
    options
        ``name``; ``readers`` and ``lease_seconds`` as for :func:`bowstring.spark.publish`.
    schema
        The schema of the data set, as Bowstring has it.
    overwrite
        Whether the name's data set is replaced; else partitions are added to it.
    """

    def __init__(self, options: Mapping[str, str], schema: pa.Schema, *, overwrite: bool) -> None:
        self._target = _Target.of(options, schema)
        self._overwrite = overwrite
        self._dataset = f"{self._target.name}#{secrets.token_hex(8)}"

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
        As for :class:`DatasetWriter`.
    """

    def __init__(self, options: Mapping[str, str], schema: pa.Schema) -> None:
        self._target = _Target.of(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one partition of a micro-batch; in a task."""
        context = TaskContext.get()
        # The run, too: a batch that was aborted is released for good, and tried again by another run of the query.
        parts = [context.getLocalProperty(each) for each in (_QUERY, _RUN, _BATCH)]
        return self._target.write(iterator, "#".join([self._target.name, *map(str, parts)]))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  Spark's name
        """Add a micro-batch; one that was added before is not added again."""
        # Spark makes a new writer for the commit: what the tasks wrote to is known by their messages alone.
        for dataset in sorted({each.dataset for each in messages if isinstance(each, Written)}):
            self._target.commit(messages, dataset, append=True, batch=batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803, ARG002  Spark's name
        """Free what was written of a micro-batch."""
        for dataset in sorted({each.dataset for each in messages if isinstance(each, Written)}):
            self._target.abort(messages, dataset)
