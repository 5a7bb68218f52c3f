"""One data set in depots, as its driver keeps it: the job that makes it, its name, its lost partitions, its end."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
import weakref
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from bowstring.depot.launch import connect
from bowstring.depot.protocol import COMPLETE, RUNNING
from bowstring.dissociated.endpoint import Dataset
from bowstring.dissociated.failures import pack_error
from bowstring.errors import (
    BowstringError,
    BrokenError,
    InvalidData,
    UnknownTicket,
    UsageError,
    without_frames,
)
from bowstring.limits import DEFAULT_LIMITS
from bowstring.spark.application_lease import Application, addresses_of
from bowstring.spark.driver import sized_batches
from bowstring.spark.refusals import reason
from bowstring.spark.task import Order
from bowstring.spark.tickets import COLUMNS, Ticket, dataset_of
from bowstring.transport.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    import pyarrow as pa

    from bowstring.depot.client import Depot


T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Keep:
    """How long a data set is kept, and under which name."""

    # None for one that is freed with its handle.
    name: str | None = None
    # Whether the name may mean something already.
    replace: bool = True
    # After how many seconds it is freed; None for as long as the application.
    ttl: float | None = None
    # For how many seconds it is kept after the end of the application.
    stay: float = 0.0


def commit(
    tickets: Collection[Ticket],
    empty: pa.Schema,
    order: Order,
    keep: Keep,
    depots: Iterable[Depot],
    catalog: Depot | None,
    *,
    whole: bool = True,
    **announced: Any,
) -> tuple[Dataset, bool]:
    """Make a data set of what tasks wrote, and let its name mean it; whether what was announced is new.

    What other attempts left at the `depots` is freed. With `whole` all streams must be there still.
    """
    dataset = dataset_of(tickets, empty, name=keep.name, id=order.dataset, application=order.application)
    # Before anybody hears of them: a micro-batch that was announced is not tried again.
    grows = keep.name if announced.get("append") and keep.ttl is None else None
    kept = settle(order.dataset, dataset, depots, ttl=keep.ttl, name=grows)
    if whole and kept < len(dataset.endpoints):
        raise BrokenError(
            "a depot ended, or freed streams of the data set, before all was committed",
            expected=f"{len(dataset.endpoints)} streams",
            found=f"{kept} streams",
            hint="Publish or write it again.",
        )
    if catalog is None:
        return dataset, True
    others = [each for each in addresses_of(tickets) if each[0] != catalog.addresses[0]]
    new = catalog.announce(
        keep.name or "",
        dataset,
        application=order.application,
        part=order.dataset,
        depots=itertools.chain.from_iterable(others),
        ttl=keep.ttl,
        **announced,
    )
    return dataset, new


def settle(
    dataset: str,
    whole: Dataset,
    depots: Iterable[Depot],
    *,
    ttl: float | None = None,
    name: str | None = None,
) -> int:
    """Keep what a data set names, free what else its tasks wrote, and return how many streams are kept."""
    kept = 0
    for depot in depots:
        # What all its readers have read by now is gone, and need not be there.
        with contextlib.suppress(UnknownTicket):
            kept += depot.settle(dataset, whole.endpoints, ttl=ttl, name=name)
    return kept


def give_up(dataset: str, depots: Iterable[Depot]) -> None:
    """Free what tasks wrote for a job that failed, and what they write yet."""
    for depot in depots:
        with contextlib.suppress(BowstringError):
            depot.release(dataset, final=True)


@dataclasses.dataclass(frozen=True)
class Job:
    """What Spark runs: a data frame, what is done with its partitions, and the schema of what comes out."""

    df: Any
    task: Callable[[Order], Any]
    schema: pa.Schema
    # Whether it gives the same rows again.
    again: bool = False


class Publication:
    """One data set in depots, for as long as the driver wants something of it."""

    def __init__(self, order: Order, application: Application, job: Job, profile: Any, keep: Keep) -> None:
        self._order = order
        self._application = application
        self._job = job
        self._profile = profile
        self._keep = keep
        self._tickets: dict[int, Ticket] = {}
        self._depots: list[Depot] = []
        self._released = False
        # Where readers follow the job, and whether it runs.
        self._growing: Depot | None = None
        self.running = False

    def start(self, growing: Depot, finish: Callable[[], T], run: Any) -> tuple[Dataset, Future[T]]:
        """Let a thread do a job, by `run`; return what readers follow in a depot, and what `finish` will return."""
        self._growing, order = growing, self._order
        self._tell(RUNNING)
        self.running = True
        job: Future[T] = Future()

        def work() -> None:
            try:
                job.set_result(finish())
            except BaseException as error:  # noqa: BLE001  the thread that waits for the job has it
                job.set_exception(without_frames(error))
            finally:
                self.running = False

        run_in_thread(run(work), name="bowstring-spark-publish")
        metadata: dict[str, Any] = {"name": self._keep.name, "id": order.dataset}
        metadata |= {"application": order.application, "growing": list(order.growing)}
        return Dataset((), self._job.schema, metadata=metadata), job

    def _tell(self, state: str, **given: Any) -> None:
        """Tell those that follow the job how it is with it."""
        if self._growing is not None:
            order = self._order
            none = Dataset((), self._job.schema)
            self._growing._grow(order.dataset, none, order.application, state, **given)

    def run(self, order: Order) -> list[Ticket]:
        """Let the tasks publish; return their tickets."""
        job = self._job.df.mapInArrow(self._job.task(order), COLUMNS, profile=self._profile)
        with sized_batches(self._job.df):
            return [Ticket.of_row(row) for row in job.collect()]

    def dataset(self, tickets: Iterable[Ticket], *, fresh: bool = False) -> Dataset:
        """Take tickets in, and tell the depots what the data set is: what other attempts left is freed.

        A fresh one was read by nobody yet, and must be whole.
        """
        self._tickets |= {ticket.partition: ticket for ticket in tickets}
        order, keep = self._order, self._keep
        every = self._tickets.values()
        self._depots = self._application.hold(order.dataset, every, order.lease_seconds, keep.stay)
        named = keep.name is not None
        dataset, _ = commit(
            every,
            self._job.schema,
            order,
            keep,
            self._depots,
            self._application.catalog(order.options, order.lease_seconds) if named else None,
            # Who follows the job may have read, and so freed, partitions before all are there.
            whole=order.readers is None or (fresh and self._growing is None),
            new=fresh and not keep.replace,
            version=order.dataset,  # partitions that were lost and are published again hold the same rows
        )
        if fresh:
            self._tell(COMPLETE, part=order.dataset)
        if fresh and not named:
            # All handles of it refer to this object, and nothing else does.
            where = self._depots if self._growing is None else [*self._depots, self._growing]
            weakref.finalize(self, self._application.forget, order.dataset, where).atexit = False
        return dataset

    def abandon(self, error: BaseException) -> None:
        """Free what tasks committed for a job that failed: where this process can reach it now, elsewhere later."""
        with contextlib.suppress(BowstringError):
            if not isinstance(error, BowstringError):
                error = BrokenError("the job that publishes the data set failed", found=reason(error))
            self._tell(pack_error(error).decode(), ttl=self._order.lease_seconds)
        self._application.given_up.append(self._order.dataset)
        with contextlib.suppress(BowstringError), connect(start=False) as here:
            give_up(self._order.dataset, (here,))
        give_up(self._order.dataset, self._application.depots)

    def release(self) -> None:
        """Free the data; readers keep what they have."""
        self._released = True
        catalog = self._application.known_catalog
        for depot in dict.fromkeys([*([] if catalog is None else [catalog]), *self._depots]):
            # One that is gone has freed all it had.
            with contextlib.suppress(BowstringError):
                depot.release(self._order.dataset)

    def wait_released(self, timeout: float | None) -> None:
        """Wait, at most so many seconds, until all was read and freed."""
        end = time.monotonic() + (DEFAULT_LIMITS.release_timeout if timeout is None else timeout)
        for depot in self._depots:
            depot.wait_released(self._order.dataset, max(0.0, end - time.monotonic()))

    def state(self) -> str:
        """Return what has become of it: ``running``, ``available``, ``released``, or how much of it is gone."""
        if self._released:
            return "released"
        if self.running:
            return "running"
        gone, parts = len(self._lost()), sum(bool(ticket.endpoint) for ticket in self._tickets.values())
        if not gone:
            return "available"
        return "released, or lost" if gone == parts else f"{gone} of {parts} partitions are gone"

    def _lost(self) -> frozenset[int]:
        offered: set[str] = set()
        for depot in self._depots:
            with contextlib.suppress(BowstringError):
                offered |= {str(each.endpoint) for each in depot.offered(self._order.dataset)}
        return frozenset(
            ticket.partition
            for ticket in self._tickets.values()
            if ticket.endpoint and ticket.endpoint not in offered
        )

    def republish(self, partitions: frozenset[int] | None) -> Dataset:
        """Publish some partitions again, by default those that are lost, and return the data set."""
        if not self._job.again:
            raise UsageError(
                "the data set cannot be published again",
                hint="publish(…, recoverable=True) keeps what it takes.",
            )
        wanted = self._lost() if partitions is None else partitions
        unknown = wanted - self._tickets.keys()
        if unknown:
            raise UsageError("the data set has no such partitions", found=sorted(unknown))
        if not wanted:
            return self.dataset(())
        # Nobody follows this job: what counts for its partitions is what is computed now.
        tickets = self.run(dataclasses.replace(self._order, only=wanted, growing=()))
        rows = {ticket.partition: ticket.num_rows for ticket in tickets}
        for partition in sorted(wanted):
            before = self._tickets[partition].num_rows
            if rows.get(partition) != before:
                raise InvalidData(
                    "Spark made another partition this time",
                    expected=f"{before} rows",
                    found=f"{rows[partition]} rows" if partition in rows else "no such partition",
                    where=f"partition {partition}",
                    hint="Persist the data frame before it is published, or publish it anew.",
                )
        return self.dataset(tickets)
