"""What a task of Spark does to publish its partition: it borrows regions of the depot, fills them, and commits."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bowstring import depot
from bowstring.spark.frozen import freeze_imports
from bowstring.spark.incoming import incoming
from bowstring.spark.scheduling import running_task
from bowstring.spark.tickets import Ticket
from bowstring.transport.tcp import spelled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from bowstring.depot import Depot, Options

__all__ = ["LEASE_SECONDS", "DepotTask", "Order", "executor_pid", "own_address"]

LEASE_SECONDS: Final = 120.0
"""How long a depot keeps data by default after it has lost sight of their application, in seconds."""
_JAVA: Final = "java"
_MOST_ANCESTORS: Final = 8
_ANY_PORT: Final = 9
_freed: Final[set[tuple[int | None, str]]] = set()


@dataclasses.dataclass(frozen=True)
class Order:
    """What every task of a publication is told. It pickles.

    Attributes
    ----------
    application
        Who holds the lease.
    dataset
        The data set, by a name that is never used again.
    readers
        How many readers read each stream before it is freed; ``None`` for any number.
    lease_seconds
        How long a depot keeps the data after it has lost sight of the application.
    only
        The partitions wanted; ``None`` for all.
    options
        What a depot is started with, where there is none yet.
    driver
        Where Spark's driver is, if there are readers or drivers on other hosts.
    given_up
        Data sets of jobs that failed, which the driver could not free on hosts that it does not know: each task
        does so where it runs.
    """

    application: str
    dataset: str
    readers: int | None = None
    lease_seconds: float = LEASE_SECONDS
    only: frozenset[int] | None = None
    options: Options | None = None
    driver: str | None = None
    given_up: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class DepotTask:
    """Publishes a partition through the depot of its host; Spark calls it with the partition's batches."""

    order: Order

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Publish the batches of one partition, and give back one ticket."""
        context = running_task()
        partition = context.partitionId()
        if self.order.only is None or partition in self.order.only:
            yield self.publish(batches, partition, context.taskAttemptId()).as_batch()

    def publish(self, batches: Iterable[pa.RecordBatch], partition: int, attempt: int) -> Ticket:
        """Write some batches to the depot, and return the ticket of the committed stream."""
        schema, present = incoming(batches)
        if schema is None:
            return Ticket(partition)
        order = self.order
        with contextlib.ExitStack() as ends:
            held = ends.enter_context(depot.connect(options=order.options, tcp=own_address(order.driver)))
            # The executor lives as long as the application does on this host, a worker's process does not.
            held.hold(order.application, order.lease_seconds, watch_pid=executor_pid())
            _free(held, order.given_up)
            writing = ends.enter_context(
                held.begin(
                    application=order.application,
                    dataset=order.dataset,
                    partition=partition,
                    attempt=attempt,
                    schema=schema,
                    readers=order.readers,
                    spill_folder=_local_folder(),
                )
            )
            for batch in present:
                writing.write(batch)
            done = writing.commit()
            freeze_imports()
            return Ticket(
                partition,
                str(done.endpoint),
                schema.serialize().to_pybytes(),
                done.num_rows,
                done.num_batches,
                done.nbytes,
                held.address,
                held.remote_address or "",
            )


def _free(held: Depot, names: Iterable[str]) -> None:
    """Free data sets that were given up: once for each depot that this process meets."""
    here = {(held.pid, name) for name in names}
    for each in here - _freed:
        held.release(each[1], final=True)
    # What is not named any more is not asked about again.
    _freed.clear()
    _freed.update(here)


def executor_pid() -> int | None:
    """Return the process of the executor that this process works for; ``None`` where there is none.

    Between it and a worker there is a daemon, or not, as ``spark.python.use.daemon`` says.
    """
    pid = os.getppid()
    for _ in range(_MOST_ANCESTORS):
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == _JAVA:
                return pid
            # Behind the name, which may hold anything, come the state and the parent.
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return None
        if pid <= 1:
            return None
    return None


def own_address(driver: str | None) -> str | None:
    """Return an address of this host at which the driver's host, and others, reach it.

    Raises
    ------
    OSError
        The driver's host is not known here, or there is no way to it.

    Examples
    --------
    >>> own_address("127.0.0.1")
    'tcp://127.0.0.1:0'
    """
    if driver is None:
        return None
    found = socket.getaddrinfo(driver.strip("[]"), _ANY_PORT, type=socket.SOCK_DGRAM)
    failure: OSError | None = None
    for family, kind, _, _, place in sorted(found, key=lambda each: each[0] != socket.AF_INET):
        with socket.socket(family, kind) as probe:
            try:
                # Nothing is sent: the system says which of its addresses it would send from.
                probe.connect(place)
            except OSError as error:
                failure = error
            else:
                return f"tcp://{spelled((probe.getsockname()[0], 0))}"
    raise failure or OSError(errno.EADDRNOTAVAIL, "the driver's host has no address", driver)


def _local_folder() -> str | None:
    """Return where Spark keeps what it spills on this host."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    return next((folder for folder in folders if os.path.isdir(folder)), None)
