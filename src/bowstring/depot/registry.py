"""What the depot keeps: committed streams by data set and application, names of data sets, and until when."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import threading
import time
import weakref
from typing import TYPE_CHECKING, Final

from bowstring.depot.entries import Application, DataSet, Entry, Holder, Run, Stream
from bowstring.depot.protocol import LOST, RUNNING
from bowstring.dissociated.listing import DatasetInfo
from bowstring.dissociated.position import position_at
from bowstring.errors import RefusedError, UnknownName, UnknownTicket, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bowstring.depot.manifest import BegunAttempt
    from bowstring.depot.slab_pool import SlabPool
    from bowstring.dissociated.endpoint import Dataset
    from bowstring.dissociated.position import Position
    from bowstring.server.catalogue import Publication

_REMEMBERED: Final = 4096
_MOST_LISTED: Final = 8
_MOST_GIVEN_UP: Final = 16
_JOINED: Final = re.compile(rb"([0-9a-f]{32})@([0-9]{1,9})-([0-9]{1,9})")


class Registry:
    """All applications, data sets and names of a depot; every method may be called from any thread."""

    def __init__(self, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._lock = threading.RLock()
        self.applications: dict[str, Application] = {}
        self.datasets: dict[str, DataSet] = {}
        # Those that some readers end: only they end by themselves.
        self._counted: dict[str, DataSet] = {}
        self._names: dict[str, Entry] = {}
        self._runs: weakref.WeakValueDictionary[str, Run] = weakref.WeakValueDictionary()
        self._finished: dict[str, None] = {}
        self._released: dict[str, None] = {}
        self._ends = False

    def application(self, name: str) -> Application:
        """Return an application, a new one where it is not known; a sign of life of it."""
        with self._lock:
            application = self.applications.get(name)
            if application is None:
                application = self.applications[name] = Application(name, self._lease_seconds)
            application.renew()
            return application

    def hold(self, name: str, lease_seconds: float | None, holders: Iterable[Holder]) -> None:
        """Keep an application for as long as one of its holders lives, and then for the time of the lease."""
        with self._lock:
            application = self.application(name)
            if lease_seconds is not None:
                application.lease_seconds = lease_seconds
            for holder in holders:
                # A process that is watched twice is one holder.
                application.holders = {
                    each
                    for each in application.holders
                    if each.alive and (holder.pid is None or each.pid != holder.pid)
                } | {holder}
                application.was_held = True
            application.renew()

    def let_go(self, holder: Holder) -> None:
        """Let the leases run that somebody held who is gone."""
        with self._lock:
            for application in self.applications.values():
                if holder in application.holders:
                    application.holders.discard(holder)
                    application.renew()

    def _is_over(self, name: str) -> bool:
        """Whether all are gone for whom an application was kept: only its lease still runs."""
        application = self.applications.get(name)
        return application is None or (application.was_held and not application.held)

    def end(self, name: str, stays: Mapping[str, float]) -> bool:
        """Free what belongs to an application; return whether there was anything."""
        with self._lock:
            application = self.applications.get(name)
            if application is None:
                return False
            now = time.monotonic()
            for dataset in [each for each in self.datasets.values() if each.application == name]:
                if dataset.name in stays:
                    self._cancel(dataset, "the application has ended")
                    dataset.until = min(dataset.until, now + stays[dataset.name])
                else:
                    self.release(dataset.name)
            # Of data sets that lie on other hosts only their names are here.
            kept = {each.name for each in self.datasets.values() if each.application == name}
            for entry in self._names_of(name):
                kept |= entry.parts.keys()
                stay = max((stays.get(part, 0.0) for part in entry.parts), default=0.0)
                entry.until = min(entry.until, now + stay)
            self._forget_passed()
            # A process that lives on, such as the driver's of local sessions, keeps nothing longer.
            application.holders.clear()
            application.lease_seconds = max((stays.get(each, 0.0) for each in kept), default=0.0)
            application.renew()
            if name not in self._owners():
                del self.applications[name]
            return True

    def _owners(self) -> set[str]:
        owners = {each.application for each in self.datasets.values()}
        return owners | {each.application for each in self._names.values()}

    # Data sets.

    def begin(self, attempt: BegunAttempt) -> None:
        with self._lock:
            self._check_goes_on()
            if attempt.dataset in self._released:
                raise RefusedError("the data set was released", found=attempt.dataset)
            application = self.application(attempt.application)
            dataset = self.datasets.get(attempt.dataset)
            if dataset is None:
                dataset = DataSet(attempt.dataset, application.name)
                self.datasets[dataset.name] = dataset
            elif dataset.application != application.name:
                raise UsageError(
                    "a data set of that name belongs to another application",
                    expected=dataset.application,
                    found=application.name,
                    hint="Make the names of data sets unique, with the application's name in them.",
                )
            self._finished.pop(attempt.dataset, None)
            dataset.attempts.add(attempt)

    def over(self, attempt: BegunAttempt) -> None:
        with self._lock:
            dataset = self.datasets.get(attempt.dataset)
            if dataset is not None:
                dataset.attempts.discard(attempt)
                self._forget_empty(dataset)

    def commit(self, attempt: BegunAttempt, stream: Stream) -> None:
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
            kept |= {each.ticket for ticket in kept for each in self.joined(ticket)}
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
            # With the last of its data sets a name is forgotten.
            for named, entry in list(self._names.items()):
                if entry.parts.pop(name, None) is not None and not entry.parts:
                    del self._names[named]
            self._counted.pop(name, None)
            dataset = self.datasets.pop(name, None)
            if dataset is None:
                return False
            self.applications[dataset.application].renew()
            self._cancel(dataset, "the data set was released")
            for stream in dataset.streams.values():
                stream.publication.withdraw()
            dataset.streams.clear()
            _remember(self._finished, name)
            return True

    def offered(self, name: str) -> list[Stream]:
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

    def _sweep(self) -> None:
        """Forget what was read to its end, and its name, unless that grows, or other hosts hold parts of it."""
        for dataset in list(self._counted.values()):
            done = [ticket for ticket, each in dataset.streams.items() if each.publication.released]
            for ticket in done:
                del dataset.streams[ticket]
            if done:
                _remember(self._finished, dataset.name)
                self._forget_empty(dataset)
                if not dataset.streams:
                    for name, entry in list(self._names.items()):
                        if entry.parts == {dataset.name: ()} and not entry.grows:
                            del self._names[name]

    # Names.

    def announce(
        self,
        name: str,
        dataset: Dataset,
        version: str,  # its id, kept while the data set grows
        *,
        application: str,
        # Adds the endpoints to those of the name; the schema of a data set without endpoints is ignored then.
        append: bool | None,
        new: bool | None,  # the name must be free
        # Number of a micro-batch, or another name of what is appended; the second time nothing changes.
        batch: int | str | None,
        # The depots' data set that holds it, and the depots of other hosts that are asked to release it.
        part: str | None,
        depots: tuple[str, ...],
        ttl: float | None,  # seconds that the name is kept; `None` for as long as the application
        # How it is with the job that makes the data set part by part, where there is one: running, complete, or why
        # it failed. Its parts are `batch`; of each the first counts, and `note` is for those that come later.
        state: str | None,
        note: str | None,
    ) -> tuple[bool, dict[str, tuple[str, ...]], str | None]:
        """Let a name mean a data set; what it meant before is freed here at the same moment.

        Return whether that changed anything, the former data sets, with the depots that hold them elsewhere, and
        the note of what was appended first as this part.
        """
        with self._lock:
            self._check_goes_on()
            self.application(application)
            self.check_name(name, application, new=bool(new))
            known = entry = self._named(name)
            if entry is not None and entry.application == application and append:
                if batch is not None and batch in entry.batches:
                    return False, {}, entry.batches[batch]
                if state == RUNNING and entry.state not in (None, RUNNING):
                    raise RefusedError("the job that makes the data set has ended", found=repr(name))
                entry.extend(dataset)
                entry.grows = True
            else:
                bare = dataclasses.replace(dataset, endpoints=())
                entry = Entry(application, bare, version, grows=bool(append))
            here = self.datasets.get(part or "")
            for run in entry.add(dataset.endpoints, {} if here is None else here.streams):
                self._runs[run.key] = run
            # In place: a name may grow by hundreds of thousands.
            if batch is not None:
                entry.batches[batch] = note
            if part is not None:
                entry.parts[part] = depots
            entry.since, entry.state = time.time(), state
            entry.until = math.inf if ttl is None else time.monotonic() + ttl
            self._names[name] = entry
            former = {} if known is None or known is entry else known.parts
            replaced = {part: depots for part, depots in former.items() if part not in entry.parts}
            for each in replaced:
                self.release(each)
            return True, replaced, note

    def check_name(self, name: str, application: str, *, new: bool) -> list[bytes]:
        """Refuse a name that an application may give no other meaning; return what was last released for good.

        An application that is over gives up its names.
        """
        with self._lock:
            known = self._named(name)
            if known is not None and known.application != application:
                if not self._is_over(known.application):
                    raise UsageError(
                        "the name is taken by another application",
                        expected=known.application,
                        found=application,
                        where=f"the data set {name!r}",
                        hint="Take another name, or drop that data set (bow.spark.drop, Depot.drop).",
                    )
            elif known is not None and new:
                raise UsageError(
                    "a data set of that name is there already",
                    found=repr(name),
                    hint="Drop it, or replace it (replace=True).",
                )
            return [each.encode() for each in list(self._released)[-_MOST_GIVEN_UP:]]

    def lookup(
        self, name: str, first: int = 0, last: int | None = None, *, joined: bool
    ) -> tuple[Position, str | None, Dataset]:
        """Return what a name means: the position behind its endpoints, state, and those between two of them.

        With `joined` one endpoint stands for many small streams.
        """
        with self._lock:
            self._sweep()
            entry = self._meant(name)
            if entry.state == RUNNING and self._is_over(entry.application):
                entry.state = LOST
            dataset = entry.between(first, last, joined=joined)
            return position_at(entry.version, entry.count), entry.state, dataset

    def joined(self, ticket: bytes) -> list[Publication]:
        """Return what an endpoint of many small streams stands for; nothing where the ticket is of one stream."""
        match = _JOINED.fullmatch(ticket)
        if match is None:
            return []
        with self._lock:
            run = self._runs.get(match[1].decode())
            streams = [] if run is None else run.streams[int(match[2]) : int(match[3])]
            return [each.publication for each in streams]

    def drop(self, name: str) -> dict[str, tuple[str, ...]]:
        """Free what a name means, here; return its data sets, and where other depots hold them."""
        with self._lock:
            parts = self._meant(name).parts
            del self._names[name]
            for part in parts:
                self.release(part)
            return parts

    def _named(self, name: str) -> Entry | None:
        entry = self._names.get(name)
        return None if entry is None or entry.has_passed else entry

    def _meant(self, name: str) -> Entry:
        entry = self._named(name)
        if entry is None:
            others = ", ".join(map(repr, sorted(self._names)[:8]))
            raise UnknownName(
                "the depot knows no data set of that name", expected=others or None, found=repr(name[:80])
            )
        return entry

    def _names_of(self, application: str) -> list[Entry]:
        return [each for each in self._names.values() if each.application == application]

    def _forget_passed(self) -> None:
        self._names = {name: each for name, each in self._names.items() if not each.has_passed}

    # All of it.

    def overview(self, most: int) -> tuple[tuple[str, ...], list[tuple[DataSet, list[Stream]]]]:
        """Return the applications, and the first data sets, each with its streams."""
        with self._lock:
            self._sweep()
            first = list(self.datasets.values())[:most]
            return tuple(self.applications), [(each, list(each.streams.values())) for each in first]

    def named(self) -> list[DatasetInfo]:
        with self._lock:
            self._sweep()
            self._forget_passed()
            return [
                DatasetInfo(
                    name,
                    entry.dataset.schema,
                    entry.dataset.num_rows,
                    entry.dataset.nbytes,
                    sum(
                        stream.publication.active
                        for part in entry.parts
                        if part in self.datasets
                        for stream in self.datasets[part].streams.values()
                    ),
                    entry.since,
                    _identity(entry),
                )
                for name, entry in sorted(self._names.items())
                if entry.state is None
            ]

    def tidy(self) -> None:
        """Forget what was read to its end, and end the applications whose lease ran out."""
        with self._lock:
            self._sweep()
            now = time.monotonic()
            busy = set()
            for dataset in list(self.datasets.values()):
                if now >= dataset.until:
                    self.release(dataset.name)
                elif dataset.attempts:
                    busy.add(dataset.application)
            self._forget_passed()
            owners = self._owners()
            for application in list(self.applications.values()):
                held = application.held
                if held or application.name in busy:
                    application.renew()
                if now >= application.expires:
                    self.end(application.name, {})
                elif not held and application.name not in owners:
                    # It comes back by itself when one of its tasks begins.
                    del self.applications[application.name]

    def elsewhere(self, application: str | None) -> list[str]:
        """Return the addresses of other depots that hold data of the names of an application, or of all names."""
        with self._lock:
            self._forget_passed()
            entries = self._names.values() if application is None else self._names_of(application)
            return [address for each in entries for depots in each.parts.values() for address in depots]

    def ends_if_empty(self, slab_pool: SlabPool) -> bool:
        """Take nothing more and return true, unless there are data sets, attempts, names, or readers of such."""
        with self._lock:
            self._forget_passed()
            figures = slab_pool.figures()
            holds = self.datasets or self._names or figures["memory_data"] or figures["disk_data"]
            self._ends = self._ends or not holds
            return self._ends

    def _check_goes_on(self) -> None:
        if self._ends:
            raise RefusedError(
                "the depot ends: it was asked to, and held no data",
                hint="Try again: another one is started in its place.",
            )

    @property
    def empty(self) -> bool:
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
