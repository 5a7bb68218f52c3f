"""What a task of Spark does to publish its partition: it borrows regions of the depot, fills them, and commits."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import gc
import json
import os
import re
import socket
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bowstring.depot.launch import TOO_LATE, connect
from bowstring.depot.protocol import RUNNING
from bowstring.dissociated.endpoint import Dataset, Endpoint
from bowstring.errors import BowstringError, NotOnDevice, RefusedError, UsageError
from bowstring.memory import device_by_name
from bowstring.memory.handle import start_time
from bowstring.spark.batches import incoming
from bowstring.spark.refusals import no_depot
from bowstring.spark.tickets import Ticket
from bowstring.transport.tcp import spelled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from bowstring.depot.client import Depot
    from bowstring.depot.options import Options
    from bowstring.memory import Device


@functools.cache
def freeze_imports() -> bool:
    """Leave what this process has imported out of all later collections; return whether it does.

    Spark's workers look for cycles after each task, and nearly all that they look at are modules.
    """
    # Spark sets it for workers that get more than one task.
    if not os.environ.get("SPARK_REUSE_WORKER"):
        return False
    gc.collect()  # what is garbage now would stay for good
    gc.freeze()
    return True


def running_task() -> Any:
    """Return the context of the task of Spark that calls."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise UsageError("this is not a task of Spark")
    return context


def task_address(resource: str = "gpu") -> str:
    """Return the address of the resource that Spark gave to the task that calls.

    Spark says it for each task anew: a worker that is used again may get another one.

    Raises
    ------
    UsageError
        This is not a task of Spark.
    NotOnDevice
        The task was given none.
    """
    resources = running_task().resources()
    given = resources.get(resource)
    if given is None or not given.addresses:
        raise NotOnDevice(
            f"Spark gave this task no {resource}",
            found=", ".join(sorted(resources)) or "no resources at all",
            hint=f"Set spark.executor.resource.{resource}.amount and spark.task.resource.{resource}.amount, "
            "or give a resource profile.",
        )
    return str(given.addresses[0])


def task_device(kind: str = "cuda", resource: str = "gpu") -> Device:
    """Return the GPU that Spark gave to the task that calls.

    Parameters
    ----------
    kind
        ``"cuda"``; another kind of device in tests.
    resource
        What Spark calls it: ``spark.executor.resource.<resource>.amount``.

    Raises
    ------
    UsageError
        This is not a task of Spark.
    NotOnDevice
        The task was given none, or this process cannot see it.

    Examples
    --------
    >>> def train(batches):  # runs in a task: df.mapInArrow(train, …, profile=…)
    ...     device = bow.spark.task_device()
    ...     for batch in batches:
    ...         yield fit(bow.Batch.from_arrow(batch).to_device(device))
    """
    address, visible = task_address(resource), os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        if not address.isdecimal():
            raise NotOnDevice("Spark names a GPU not by its number", found=address)
        return device_by_name(f"{kind}:{int(address)}")
    # Spark does not set it, but who started the executor may have; it then renumbers what this process sees.
    names = [each.strip() for each in visible.split(",")]
    if address not in names:
        raise NotOnDevice(
            "this process does not see the GPU that Spark gave to the task",
            expected=address,
            found=f"CUDA_VISIBLE_DEVICES={visible}",
            hint="Leave CUDA_VISIBLE_DEVICES unset for executors: the task's resources say which GPU it has.",
        )
    return device_by_name(f"{kind}:{names.index(address)}")


LEASE_SECONDS: Final = 120.0
"""How long a depot keeps data by default after it has lost sight of their application, in seconds."""
WAIT_SECONDS: Final = 30.0
"""How long tasks wait for room in a depot by default, in seconds."""
# Of each later attempt at a partition: one that found no room has waited for all of the time.
_AGAIN: Final = 0.1
# What tasks on shared executors have written is kept so long after the last of them on a host, while the job goes
# on; then the driver says for how long.
_JOB_SECONDS: Final = 3600.0
# Of the command line of an executor, in every kind of cluster.
_DRIVER: Final = re.compile(r"\0--driver-url\0spark://[^\0@]*@(\[[^]\0]*\]|[^:\0]*):\d+\0")
_MOST_ANCESTORS: Final = 8
_ANY_PORT: Final = 9
_STAY_SECONDS: Final = 0.3
_freed: Final[set[tuple[int | None, str]]] = set()


@dataclasses.dataclass(frozen=True)
class Order:
    """What every task of a publication is told, as :func:`bowstring.spark.publish` says it. It pickles."""

    application: str  # which holds the lease
    dataset: str  # by a name that is never used again
    readers: int | None = None
    lease_seconds: float = LEASE_SECONDS
    # The partitions wanted; ``None`` for all.
    only: frozenset[int] | None = None
    options: Options | None = None
    # Where Spark's driver is, if there are readers or drivers on other hosts; by default the executor knows.
    driver: str | None = None
    # Data sets of jobs that failed, for tasks to free on hosts that the driver does not know.
    given_up: tuple[str, ...] = ()
    wait: float = WAIT_SECONDS
    # Whether the executors also work for others, so that their life says nothing about the application's.
    shared: bool = False
    # The addresses of the depot where each partition is counted that is committed, for readers that follow the job.
    growing: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class DepotTask:
    """Publishes a partition through the depot of its host; Spark calls it with the partition's batches."""

    order: Order
    # The names of the columns, where Spark was given others; ``None`` for those that Spark has.
    names: tuple[str, ...] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Publish the batches of one partition, and give back one ticket."""
        if self.order.only is None or running_task().partitionId() in self.order.only:
            yield self.ticket(batches).as_batch()

    def ticket(self, batches: Iterable[pa.RecordBatch]) -> Ticket:
        """Publish some batches as the partition of the task that calls."""
        context = running_task()
        wait = self.order.wait * (_AGAIN if context.attemptNumber() else 1.0)
        return self.publish(batches, context.partitionId(), context.taskAttemptId(), wait)

    def publish(
        self, batches: Iterable[pa.RecordBatch], partition: int, attempt: int, wait: float | None = None
    ) -> Ticket:
        """Write some batches to the depot, and return the ticket of the committed stream."""
        schema, present = incoming(batches, self.names)
        if schema is None:
            return Ticket(partition)
        order, folders = self.order, os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
        with contextlib.ExitStack() as ends:
            depot = ends.enter_context(self._depot())
            hold(depot, order)
            _free(depot, order.given_up)
            writing = ends.enter_context(
                depot.begin(
                    application=order.application,
                    dataset=order.dataset,
                    partition=partition,
                    attempt=attempt,
                    schema=schema,
                    readers=order.readers,
                    spill_folder=next(filter(os.path.isdir, folders), None),
                    wait=order.wait if wait is None else wait,
                )
            )
            for batch in present:
                writing.write(batch)
            done = writing.commit()
            ticket = Ticket(
                partition,
                str(done.endpoint),
                schema.serialize().to_pybytes(),
                done.num_rows,
                done.num_batches,
                done.nbytes,
                depot.addresses[0],
                depot.remote_address or "",
            )
            ticket = self._counted(ticket, schema, depot) if order.growing else ticket
            freeze_imports()
            return ticket

    def _counted(self, ticket: Ticket, schema: pa.Schema, depot: Depot) -> Ticket:
        """Let those that follow the job read a partition; return the ticket of the attempt that did this first."""
        order = self.order
        with contextlib.ExitStack() as ends:
            if depot.addresses[0] not in order.growing:
                tls = None if order.options is None else order.options.tls
                depot = ends.enter_context(connect(start=False, address=order.growing, tls=tls))
            note = json.dumps(dataclasses.asdict(dataclasses.replace(ticket, schema=b"")) | {"schema": None})
            part = Dataset((Endpoint.parse(ticket.endpoint),), schema)
            first = depot._grow(order.dataset, part, order.application, RUNNING, ticket.partition, note=note)
        return Ticket(**json.loads(first or note) | {"schema": ticket.schema})

    def _depot(self) -> Depot:
        """Find the depot of this host, or start it."""
        elsewhere = own_address(self.order.driver or _driver_host(), self.order.options)
        try:
            with warnings.catch_warnings():
                # The driver has said so, once and not in each worker.
                warnings.filterwarnings("ignore", TOO_LATE)
                return connect(options=self.order.options, tcp=elsewhere)
        except (RefusedError, OSError) as error:
            if isinstance(error, OSError) or type(error) is RefusedError:
                raise no_depot(error) from error
            raise


def hold(depot: Depot, order: Order) -> None:
    """Let a depot keep what belongs to the application until the driver holds it itself."""
    if order.shared:
        depot.hold(order.application, max(order.lease_seconds, _JOB_SECONDS))
    else:
        # The executor lives as long as the application does on this host, a worker's process does not.
        depot.hold(order.application, order.lease_seconds, watch_pid=lasting_pid(order.application))


@dataclasses.dataclass(frozen=True)
class StopTask:
    """Frees what the depot of a host has of an application, and ends it where it then holds nothing.

    It stays for a moment, so that tasks of the same job run on the other hosts, too.
    """

    application: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do so, and give back nothing."""
        for _ in batches:
            pass
        with contextlib.suppress(BowstringError), connect(start=False) as depot:
            depot.stop(application=self.application)
        time.sleep(_STAY_SECONDS)
        yield from ()


def _free(depot: Depot, names: Iterable[str]) -> None:
    """Free data sets that were given up: once for each depot that this process meets."""
    here = {(depot.pid, name) for name in names}
    for each in here - _freed:
        depot.release(each[1], final=True)
    # What is not named any more is not asked about again.
    _freed.clear()
    _freed.update(here)


def executor_pid() -> int | None:
    """Return the process of the executor that this process works for; ``None`` where there is none.

    Between it and a worker there is a daemon, or not, as ``spark.python.use.daemon`` says.
    """
    return _line_to_java()[0]


def lasting_pid(application: str) -> int | None:
    """Return a process of this host that lives as long as an application does there; ``None`` where there is none.

    It is the executor, but in local sessions and other processes of the driver's: there Java goes on when Spark has
    stopped, and its daemon of Python workers does not.
    """
    java, child = _line_to_java()
    if java is None or child == os.getpid() or driver_identity(java) != application:
        return java
    return child


def driver_identity(pid: int) -> str:
    """Return what an application is called whose driver is a process of this host."""
    return f"driver-{socket.gethostname()}-{pid}-{start_time(pid)}"


def _line_to_java() -> tuple[int | None, int]:
    """Return the process of Java that this process descends from, and its child in this line."""
    child, pid = os.getpid(), os.getppid()
    for _ in range(_MOST_ANCESTORS):
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                return pid, child
            # Behind the name, which may hold anything, come the state and the parent.
            child, pid = pid, int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
        if pid <= 1:
            break
    return None, child


def own_address(driver: str | None, options: Options | None = None) -> str | None:
    """Return an address of this host at which the driver's host and others reach it, of ``tls:`` by the options."""
    if driver is None:
        return None
    places = socket.getaddrinfo(driver.strip("[]"), _ANY_PORT, type=socket.SOCK_DGRAM)
    failure: OSError | None = None
    scheme = "tls" if options is not None and options.tls is not None else "tcp"
    for family, kind, _, _, place in sorted(places, key=lambda each: each[0] != socket.AF_INET):
        with socket.socket(family, kind) as probe:
            try:
                # Nothing is sent: the system says which of its addresses it would send from.
                probe.connect(place)
            except OSError as error:
                failure = error
                continue
            own = probe.getsockname()[0]
            if own == place[0] and scheme == "tcp" and not (options is not None and options.plaintext):
                # Of another user or container, say, but in the same network.
                own = "127.0.0.1" if family == socket.AF_INET else "::1"
            return f"{scheme}://{spelled((own, 0))}"
    raise failure or OSError(errno.EADDRNOTAVAIL, "the driver's host has no address", driver)


def _driver_host() -> str | None:
    """Return where Spark's driver is, as the executor of this task knows it; ``None`` where that is the driver."""
    java = executor_pid()
    try:
        match = _DRIVER.search(Path(f"/proc/{java}/cmdline").read_text())
    except OSError:
        return None
    return None if match is None else match[1]
