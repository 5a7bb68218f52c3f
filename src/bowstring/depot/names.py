"""Names of data sets: what each means, whose it is, which data sets of depots it is made of, and until when."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import re
import secrets
import time
import weakref
from typing import TYPE_CHECKING, Final

from bowstring.depot.protocol import RUNNING
from bowstring.dissociated.endpoint import Dataset
from bowstring.errors import RefusedError, UnknownName, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bowstring.depot.applications import Committed
    from bowstring.dissociated.endpoint import Endpoint


@dataclasses.dataclass(slots=True)
class Announcement:
    """What a name shall mean."""

    name: str
    dataset: Dataset
    application: str
    version: str  # its id, kept while the data set grows
    # Adds the endpoints to those of the name; the schema of a data set without endpoints is ignored then.
    append: bool = False
    new: bool = False  # the name must be free
    # Number of a micro-batch, or another name of what is appended; the second time nothing changes.
    batch: int | str | None = None
    # The depots' data set that holds it, and the depots of other hosts that are asked to release it.
    part: str | None = None
    depots: tuple[str, ...] = ()
    # Seconds that the name is kept; ``None`` for as long as the application.
    ttl: float | None = None
    # How it is with the job that makes the data set part by part, where there is one: running, complete, or why it
    # failed. Its parts are `batch`, and of each the first is what counts: `note` is for those that come later.
    state: str | None = None
    note: str | None = None


# Fewer are looked up one by one: then several readers have one each.
_FEW: Final = 8
_JOINED: Final = re.compile(rb"([0-9a-f]{32})@([0-9]{1,9})-([0-9]{1,9})")


@dataclasses.dataclass(eq=False, slots=True, weakref_slot=True)
class Run:
    """Endpoints of a name, one behind the other: many that lie in one slab here are looked up as one."""

    first: int  # how many endpoints of the name are before it
    slab: bytes | None  # where the streams lie; `None` for endpoints that are looked up one by one
    schema: bytes  # its message, where it matters: it numbers the dictionaries
    endpoints: list[Endpoint] = dataclasses.field(default_factory=list)
    streams: list[Committed] = dataclasses.field(default_factory=list)
    key: str = dataclasses.field(default_factory=lambda: secrets.token_hex(16))

    def found(self, first: int, last: int, *, joined: bool) -> list[Endpoint]:
        """Return what stands for its endpoints between two positions of the name."""
        first, last = max(first - self.first, 0), min(last - self.first, len(self.endpoints))
        if not joined or self.slab is None or last - first <= _FEW:
            return self.endpoints[first : max(first, last)]
        ticket = f"{self.key}@{first}-{last}".encode()
        return [dataclasses.replace(self.endpoints[last - 1], ticket=ticket)]


@dataclasses.dataclass(slots=True)
class Entry:
    """A name, whose it is, what it means, which micro-batches made it, and which data sets hold it.

    The endpoints of its data set are in the runs.
    """

    application: str
    dataset: Dataset
    version: str
    runs: list[Run] = dataclasses.field(default_factory=list)
    count: int = 0
    batches: dict[int | str, str | None] = dataclasses.field(default_factory=dict)
    parts: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    since: float = dataclasses.field(default_factory=time.time)
    until: float | None = None
    grows: bool = False
    state: str | None = None

    def add(self, endpoints: Iterable[Endpoint], streams: Mapping[bytes, Committed]) -> Iterator[Run]:
        """Add endpoints, of which some are streams of this depot; yield the runs that this begins."""
        for endpoint in endpoints:
            stream = streams.get(endpoint.ticket)
            slab = None if stream is None else stream.slab
            schema = b"" if stream is None or slab is None else stream.schema
            run = self.runs[-1] if self.runs else None
            if slab == b"" and run is not None and run.slab is not None:
                slab = run.slab
            if run is None or (run.slab, run.schema) != (slab, schema):
                run = Run(self.count, slab, schema)
                self.runs.append(run)
                yield run
            run.endpoints.append(endpoint)
            if stream is not None and slab is not None:
                run.streams.append(stream)
            self.count += 1

    def found(self, first: int = 0, last: int | None = None, *, joined: bool = True) -> Dataset:
        """Return its data set, or that of the endpoints from one position to another."""
        last = self.count if last is None else min(last, self.count)
        begin = max(bisect.bisect_right(self.runs, first, key=lambda run: run.first) - 1, 0)
        endpoints: list[Endpoint] = []
        for run in itertools.islice(self.runs, begin, None):
            if run.first >= last:
                break
            endpoints += run.found(first, last, joined=joined)
        return dataclasses.replace(self.dataset, endpoints=tuple(endpoints))


class Names:
    """The names of a depot; callers hold a lock. Names of an application that `is_over` may be taken."""

    def __init__(self, is_over: Callable[[str], bool]) -> None:
        self._is_over = is_over
        self._entries: dict[str, Entry] = {}
        self._runs: weakref.WeakValueDictionary[str, Run] = weakref.WeakValueDictionary()

    def announce(
        self, wanted: Announcement, streams: Mapping[bytes, Committed]
    ) -> tuple[bool, dict[str, tuple[str, ...]]]:
        """Let a name mean a data set, of whose endpoints some are streams of this depot, by ticket.

        Return whether that changed anything, and the former data sets, with the depots that hold them elsewhere.
        """
        known = self.check(wanted.name, wanted.application, new=wanted.new)
        entry = known
        if entry is not None and entry.application == wanted.application and wanted.append:
            if wanted.batch is not None and wanted.batch in entry.batches:
                return False, {}
            if wanted.state == RUNNING and entry.state not in (None, RUNNING):
                raise RefusedError("the job that makes the data set has ended", found=repr(wanted.name))
            entry.dataset, entry.grows = _joined(entry, wanted.dataset), True
        else:
            bare = dataclasses.replace(wanted.dataset, endpoints=())
            entry = Entry(wanted.application, bare, wanted.version, grows=wanted.append)
        for run in entry.add(wanted.dataset.endpoints, streams):
            self._runs[run.key] = run
        # In place: a name may grow by hundreds of thousands.
        if wanted.batch is not None:
            entry.batches[wanted.batch] = wanted.note
        if wanted.part is not None:
            entry.parts[wanted.part] = wanted.depots
        entry.since, entry.state = time.time(), wanted.state
        entry.until = None if wanted.ttl is None else time.monotonic() + wanted.ttl
        self._entries[wanted.name] = entry
        if known is None or known is entry:
            return True, {}
        return True, {part: depots for part, depots in known.parts.items() if part not in entry.parts}

    def note(self, name: str, batch: int | str | None) -> str | None:
        """Return the note of what was appended first to a name as a part."""
        return None if batch is None else self._entries[name].batches[batch]

    def joined(self, ticket: bytes) -> list[Committed]:
        """Return the streams that the ticket of a part of a run stands for; none where it is no such ticket."""
        said = _JOINED.fullmatch(ticket)
        run = None if said is None else self._runs.get(said[1].decode())
        return [] if said is None or run is None else run.streams[int(said[2]) : int(said[3])]

    def check(self, name: str, application: str, *, new: bool) -> Entry | None:
        """Return what a name means that an application may give another meaning."""
        known = self._entries.get(name)
        if known is None or _has_passed(known):
            return None
        if known.application != application:
            if not self._is_over(known.application):
                raise UsageError(
                    "the name is taken by another application",
                    expected=known.application,
                    found=application,
                    where=f"the data set {name!r}",
                    hint="Take another name, or drop that data set (bow.spark.drop, Depot.drop).",
                )
        elif new:
            raise UsageError(
                "a data set of that name is there already",
                found=repr(name),
                hint="Drop it, or replace it (replace=True).",
            )
        return known

    def lookup(self, name: str) -> Entry:
        """Return what a name means."""
        found = self._entries.get(name)
        if found is None or _has_passed(found):
            others = ", ".join(map(repr, sorted(self._entries)[:8]))
            raise UnknownName(
                "the depot knows no data set of that name", expected=others or None, found=repr(name[:80])
            )
        return found

    def drop(self, name: str) -> dict[str, tuple[str, ...]]:
        """Forget a name; return the data sets that it meant, and where other depots hold them."""
        parts = self.lookup(name).parts
        del self._entries[name]
        return parts

    def released(self, part: str) -> None:
        """Forget the names of which a data set that was released was the last."""
        for name, entry in list(self._entries.items()):
            if entry.parts.pop(part, None) is not None and not entry.parts:
                del self._entries[name]

    def was_read(self, part: str) -> None:
        """Forget the name of a data set that was read, unless it grows, or other hosts hold parts of it."""
        for name, entry in list(self._entries.items()):
            if part in entry.parts and len(entry.parts) == 1 and not entry.grows and not entry.parts[part]:
                del self._entries[name]

    def end(self, application: str, stays: Mapping[str, float]) -> set[str]:
        """Keep names of an application as long as a data set of theirs stays; return the data sets of all."""
        now = time.monotonic()
        named: set[str] = set()
        for entry in self._entries.values():
            if entry.application == application:
                until = now + max((stays.get(part, 0.0) for part in entry.parts), default=0.0)
                entry.until = until if entry.until is None else min(until, entry.until)
                named |= entry.parts.keys()
        self.tidy()
        return named

    def tidy(self) -> None:
        """Forget names whose time has passed."""
        self._entries = {name: each for name, each in self._entries.items() if not _has_passed(each)}

    def __iter__(self) -> Iterator[tuple[str, Entry]]:
        return iter(sorted((name, each) for name, each in self._entries.items() if not _has_passed(each)))

    def any_of(self, application: str) -> bool:
        """Whether an application named anything."""
        return any(each.application == application for each in self._entries.values())


def _has_passed(entry: Entry) -> bool:
    return entry.until is not None and time.monotonic() >= entry.until


def _joined(entry: Entry, more: Dataset) -> Dataset:
    # Where there is no row nobody has seen a batch, and its schema is a guess: of a time zone, for instance.
    before = entry.dataset
    if not more.endpoints:
        return before
    if not entry.count:
        return dataclasses.replace(more, endpoints=())
    if not before.schema.equals(more.schema):
        raise UsageError(
            "what is appended has another schema", expected=str(before.schema), found=str(more.schema)
        )

    def total(first: int | None, second: int | None) -> int | None:
        return None if first is None or second is None else first + second

    return dataclasses.replace(
        before,
        num_rows=total(before.num_rows, more.num_rows),
        nbytes=total(before.nbytes, more.nbytes),
    )
