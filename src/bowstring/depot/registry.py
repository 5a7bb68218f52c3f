"""What the depot keeps: committed streams by data set and application, names of data sets, and until when."""

from __future__ import annotations

import itertools
import threading
import time
from typing import TYPE_CHECKING, Final

from bowstring.depot.applications import Application, Committed, DataSet, Holder
from bowstring.depot.names import Names
from bowstring.depot.protocol import LOST, RUNNING
from bowstring.dissociated.listing import DatasetInfo
from bowstring.dissociated.position import position_at
from bowstring.errors import RefusedError, UnknownTicket, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bowstring.depot.manifest import Attempt
    from bowstring.depot.names import Announcement, Entry
    from bowstring.depot.slab_pool import SlabPool
    from bowstring.dissociated.endpoint import Dataset
    from bowstring.dissociated.position import Position
    from bowstring.server.catalogue import Publication

_REMEMBERED: Final = 4096
_MOST_LISTED: Final = 8
_MOST_GIVEN_UP: Final = 16


class Registry:
    """All applications and data sets of a depot; every method may be called from any thread."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._lock = threading.RLock()
        self.applications: dict[str, Application] = {}
        self.datasets: dict[str, DataSet] = {}
        # Those that some readers end: only they end by themselves.
        self._counted: dict[str, DataSet] = {}
        self._names = Names(self._is_over)
        self._finished: dict[str, None] = {}
        self._released: dict[str, None] = {}
        self._ends = False

    def application(self, name: str) -> Application:
        """Return an application, a new one where it is not known; a sign of life of it."""
        with self._lock:
            found = self.applications.get(name)
            if found is None:
                found = self.applications[name] = Application(name, self._lease_seconds)
            found.renew()
            return found

    def hold(self, name: str, lease_seconds: float | None, holder: Holder | None) -> None:
        """Keep an application for as long as its holder lives, and then for the time of the lease."""
        with self._lock:
            application = self.application(name)
            if lease_seconds is not None:
                application.lease_seconds = lease_seconds
            if holder is None:
                return
            gone = {each for each in application.holders if not each.alive()}
            # Somebody who says it again is the same one.
            again = {
                each for each in application.holders if holder.pid is not None and each.pid == holder.pid
            }
            application.holders -= gone | again
            application.holders.add(holder)
            application.was_held = True
            application.renew()

    def let_go(self, holder: Holder) -> None:
        """Let the leases run that somebody held who is gone."""
        with self._lock:
            for application in self.applications.values():
                if holder in application.holders:
                    application.holders.discard(holder)
                    application.renew()

    def begin(self, attempt: Attempt) -> None:
        """Enter an attempt."""
        with self._lock:
            self._check_goes_on()
            if attempt.dataset in self._released:
                raise RefusedError("the data set was released", found=attempt.dataset)
            application = self.application(attempt.application)
            dataset = self.datasets.get(attempt.dataset)
            if dataset is None:
                dataset = DataSet(attempt.dataset, application.name)
                self.datasets[dataset.name] = application.datasets[dataset.name] = dataset
            elif dataset.application != application.name:
                raise UsageError(
                    "a data set of that name belongs to another application",
                    expected=dataset.application,
                    found=application.name,
                    hint="Make the names of data sets unique, with the application's name in them.",
                )
            self._finished.pop(attempt.dataset, None)
            dataset.attempts.add(attempt)

    def over(self, attempt: Attempt) -> None:
        """Forget an attempt that was aborted or lost."""
        with self._lock:
            dataset = self.datasets.get(attempt.dataset)
            if dataset is not None:
                dataset.attempts.discard(attempt)
                self._forget_empty(dataset)

    def commit(self, attempt: Attempt, stream: Committed) -> None:
        """Enter what an attempt wrote."""
        with self._lock:
            dataset = self.datasets.get(attempt.dataset)
            if dataset is None or attempt not in dataset.attempts:
                raise RefusedError("the data set was settled or released before the attempt was done")
            dataset.attempts.discard(attempt)
            dataset.streams[stream.publication.ticket] = stream
            if stream.publication.readers is not None:
                self._counted[dataset.name] = dataset
            self.applications[dataset.application].renew()

    def settle(self, name: str, tickets: Iterable[bytes], ttl: float | None = None) -> int:
        """Keep these streams of a data set and free all others; return how many are kept.

        Attempts that go on fail with their next request. With `ttl` what is kept is freed after so many seconds.
        """
        kept = frozenset(tickets)
        with self._lock:
            dataset = self._known(name)
            kept |= {each.publication.ticket for ticket in kept for each in self._names.joined(ticket)}
            self.applications[dataset.application].renew()
            self._cancel(dataset, "the data set was settled without this attempt")
            for ticket in [ticket for ticket in dataset.streams if ticket not in kept]:
                dataset.streams.pop(ticket).publication.withdraw()
            if ttl is not None:
                dataset.until = time.monotonic() + ttl
            return len(dataset.streams)

    def release(self, name: str, *, final: bool = False) -> bool:
        """Free a data set; readers keep what they have. Return whether there was one.

        `final` refuses attempts that begin later: who cancels a job does not know what its tasks still do.
        """
        with self._lock:
            if final:
                _remember(self._released, name)
            self._names.released(name)
            self._counted.pop(name, None)
            dataset = self.datasets.pop(name, None)
            if dataset is None:
                return False
            application = self.applications[dataset.application]
            application.datasets.pop(name, None)
            application.renew()
            self._cancel(dataset, "the data set was released")
            for stream in dataset.streams.values():
                stream.publication.withdraw()
            dataset.streams.clear()
            _remember(self._finished, name)
            return True

    def end(self, name: str, stays: Mapping[str, float]) -> bool:
        """Free what belongs to an application; return whether there was anything."""
        with self._lock:
            application = self.applications.get(name)
            if application is None:
                return False
            for dataset in list(application.datasets.values()):
                if dataset.name in stays:
                    self._cancel(dataset, "the application has ended")
                    until = time.monotonic() + stays[dataset.name]
                    dataset.until = until if dataset.until is None else min(until, dataset.until)
                else:
                    self.release(dataset.name)
            # Of data sets that lie on other hosts only their names are here.
            named = self._names.end(name, stays)
            stay = max((stays.get(each, 0.0) for each in (*application.datasets, *named)), default=0.0)
            # A process that lives on, such as the driver's of local sessions, keeps nothing longer.
            application.holders.clear()
            application.lease_seconds = stay
            application.renew()
            if not (application.datasets or self._names.any_of(name)):
                del self.applications[name]
            return True

    def offered(self, name: str) -> list[Committed]:
        """Return the streams of a data set that are offered now."""
        with self._lock:
            self._sweep()
            dataset = self.datasets.get(name)
            return [] if dataset is None else list(dataset.streams.values())

    def is_released(self, name: str) -> bool:
        """Whether nothing of a data set is written, offered or read any more."""
        with self._lock:
            self._sweep()
            # One stream that was read to its end does not speak for those that are left.
            if name in self._finished and name not in self.datasets:
                return True
            dataset = self._known(name)
            return not (dataset.streams or dataset.attempts)

    def names(self) -> tuple[str, ...]:
        """Return the applications."""
        with self._lock:
            return tuple(self.applications)

    def overview(self, most: int) -> list[tuple[DataSet, list[Committed]]]:
        """Return the first data sets, each with its streams."""
        with self._lock:
            self._sweep()
            first = list(self.datasets.values())[:most]
            return [(dataset, list(dataset.streams.values())) for dataset in first]

    def announce(self, wanted: Announcement) -> tuple[bool, dict[str, tuple[str, ...]], str | None]:
        """Let a name mean a data set; what it meant before is freed here at the same moment.

        Return whether that changed anything, the former data sets, with the depots that hold them elsewhere, and
        the note of what was appended first as this part.
        """
        with self._lock:
            self._check_goes_on()
            self.application(wanted.application)
            here = self.datasets.get(wanted.part or "")
            changed, replaced = self._names.announce(wanted, {} if here is None else here.streams)
            for part in replaced:
                self.release(part)
            return changed, replaced, self._names.note(wanted.name, wanted.batch)

    def check_name(self, name: str, application: str, *, new: bool) -> list[bytes]:
        """Refuse a name that an application may give no other meaning; return what was last released for good."""
        with self._lock:
            self._names.check(name, application, new=new)
            return [each.encode() for each in list(self._released)[-_MOST_GIVEN_UP:]]

    def drop(self, name: str) -> dict[str, tuple[str, ...]]:
        """Free what a name means, here; return its data sets, and where other depots hold them."""
        with self._lock:
            parts = self._names.drop(name)
            for part in parts:
                self.release(part)
            return parts

    def _is_over(self, name: str) -> bool:
        """Whether all are gone for whom an application was kept: only its lease still runs."""
        found = self.applications.get(name)
        return found is None or (found.was_held and not found.held)

    def lookup(
        self, name: str, first: int = 0, last: int | None = None, *, joined: bool
    ) -> tuple[Position, str | None, Dataset]:
        """Return what a name means: the position behind its endpoints, state, and those between two of them.

        With `joined` one endpoint stands for many small streams.
        """
        with self._lock:
            self._sweep()
            found = self._names.lookup(name)
            if found.state == RUNNING and self._is_over(found.application):
                found.state = LOST
            dataset = found.found(first, last, joined=joined)
            return position_at(found.version, found.count), found.state, dataset

    def joined(self, ticket: bytes) -> list[Publication]:
        """Return what such an endpoint stands for; nothing where the ticket is of one stream."""
        with self._lock:
            return [each.publication for each in self._names.joined(ticket)]

    def named(self) -> list[DatasetInfo]:
        """Return what all names mean."""
        with self._lock:
            self._sweep()
            return [
                DatasetInfo(
                    name,
                    entry.dataset.schema,
                    entry.dataset.num_rows,
                    entry.dataset.nbytes,
                    sum(self._readers(part) for part in entry.parts),
                    entry.since,
                    _identity(entry),
                )
                for name, entry in self._names
                if entry.state is None
            ]

    def _readers(self, part: str) -> int:
        dataset = self.datasets.get(part)
        return 0 if dataset is None else sum(each.publication.active for each in dataset.streams.values())

    def _known(self, name: str) -> DataSet:
        dataset = self.datasets.get(name)
        if dataset is None:
            raise UnknownTicket(
                "the depot has no such data set",
                found=repr(name[:80]),
                hint="It was released, or its application ended.",
            )
        return dataset

    def _cancel(self, dataset: DataSet, why: str) -> None:
        for attempt in dataset.attempts:
            attempt.fail(RefusedError(why))
        dataset.attempts.clear()

    def _forget_empty(self, dataset: DataSet) -> None:
        if not (dataset.attempts or dataset.streams):
            self.datasets.pop(dataset.name, None)
            self._counted.pop(dataset.name, None)
            application = self.applications.get(dataset.application)
            if application is not None:
                application.datasets.pop(dataset.name, None)

    def _sweep(self) -> None:
        for dataset in list(self._counted.values()):
            done = [ticket for ticket, each in dataset.streams.items() if each.publication.released]
            for ticket in done:
                del dataset.streams[ticket]
            if done:
                _remember(self._finished, dataset.name)
                self._forget_empty(dataset)
                if not dataset.streams:
                    self._names.was_read(dataset.name)

    def tidy(self) -> None:
        """Forget what was read to its end, and end the applications whose lease ran out."""
        with self._lock:
            self._sweep()
            now = time.monotonic()
            for dataset in list(self.datasets.values()):
                if dataset.until is not None and now >= dataset.until:
                    self.release(dataset.name)
            self._names.tidy()
            for application in list(self.applications.values()):
                if application.expired:
                    self.end(application.name, {})
                elif not (application.datasets or application.held or self._names.any_of(application.name)):
                    # It comes back by itself when one of its tasks begins.
                    del self.applications[application.name]

    def elsewhere(self, application: str | None) -> list[str]:
        """Return the addresses of other depots that hold data of the names of an application, or of all names."""
        with self._lock:
            entries = [each for _, each in self._names if application in (None, each.application)]
            return [address for each in entries for held in each.parts.values() for address in held]

    def ends_if_empty(self, slab_pool: SlabPool) -> bool:
        """Take nothing more and return true, unless there are data sets, attempts, names, or readers of such."""
        with self._lock:
            stock = slab_pool.stats
            self._ends = self._ends or not (
                self.datasets or any(True for _ in self._names) or stock.memory_data or stock.disk_data
            )
            return self._ends

    def _check_goes_on(self) -> None:
        if self._ends:
            raise RefusedError(
                "the depot ends: it was asked to, and held no data",
                hint="Try again: another one is started in its place.",
            )

    @property
    def empty(self) -> bool:
        """Whether nothing is held, for nobody."""
        with self._lock:
            return not self.applications and not self.datasets


def _identity(entry: Entry) -> bytes:
    """Return what a list says of the data sets that a name means, in few bytes."""
    named = itertools.islice(entry.parts, _MOST_LISTED)
    return ("+".join(named) + f"+{len(entry.parts)}" * (len(entry.parts) > _MOST_LISTED)).encode()


def _remember(names: dict[str, None], name: str) -> None:
    names[name] = None
    while len(names) > _REMEMBERED:
        del names[next(iter(names))]
