"""Names of data sets: what each means, whose it is, which data sets of depots it is made of, and until when."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from bowstring.dissociated.endpoint import Dataset
from bowstring.errors import UnknownTicket, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Announcement", "Entry", "Names"]


@dataclasses.dataclass(slots=True)
class Announcement:
    """What a name shall mean.

    Attributes
    ----------
    name, dataset, application
        What a reader asks for, what it gets, and the owner.
    version
        An identity of the data set, which is kept while it grows.
    append
        Whether the endpoints are added to those that the name has; the schema of a data set without endpoints
        says nothing then.
    new
        Whether the name must mean nothing yet.
    batch
        Number of a micro-batch, or another name of what is appended; the second time nothing changes.
    part, depots
        The data set of the depots that holds it, and where those of other hosts are asked to release it.
    ttl
        How long the name is kept, in seconds; as long as the application where it is ``None``.
    """

    name: str
    dataset: Dataset
    application: str
    version: str
    append: bool = False
    new: bool = False
    batch: int | str | None = None
    part: str | None = None
    depots: tuple[str, ...] = ()
    ttl: float | None = None


@dataclasses.dataclass(slots=True)
class Entry:
    """A name, whose it is, what it means, which micro-batches made it, and which data sets hold it."""

    application: str
    dataset: Dataset
    version: str
    batches: set[int | str] = dataclasses.field(default_factory=set)
    parts: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    since: float = dataclasses.field(default_factory=time.time)
    until: float | None = None
    grows: bool = False


class Names:
    """The names of a depot. Callers hold a lock.

    Parameters
    ----------
    is_over
        Whether an application has ended, so that its names may be taken.
    """

    def __init__(self, is_over: Callable[[str], bool]) -> None:
        self._is_over = is_over
        self._entries: dict[str, Entry] = {}

    def announce(self, wanted: Announcement) -> tuple[bool, dict[str, tuple[str, ...]]]:
        """Let a name mean a data set.

        Returns
        -------
        changed
            Whether that changed anything.
        replaced
            The data sets that it meant before, and where other depots hold them.

        Raises
        ------
        UsageError
            The name is taken, or the schema is another one.
        """
        known = self.check(wanted.name, wanted.application, new=wanted.new)
        replaced: dict[str, tuple[str, ...]] = {}
        if known is not None and known.application != wanted.application:
            replaced, known = known.parts, None
        if known is not None and wanted.append:
            if wanted.batch is not None and wanted.batch in known.batches:
                return False, {}
            made = dataclasses.replace(known, dataset=_joined(known.dataset, wanted.dataset), grows=True)
        else:
            replaced = known.parts if known is not None else replaced
            made = Entry(wanted.application, wanted.dataset, wanted.version, grows=wanted.append)
        if wanted.batch is not None:
            made.batches = made.batches | {wanted.batch}
        if wanted.part is not None:
            made.parts = made.parts | {wanted.part: wanted.depots}
        made.since = time.time()
        made.until = None if wanted.ttl is None else time.monotonic() + wanted.ttl
        self._entries[wanted.name] = made
        return True, {part: depots for part, depots in replaced.items() if part not in made.parts}

    def check(self, name: str, application: str, *, new: bool) -> Entry | None:
        """Return what a name means that an application may give another meaning.

        Raises
        ------
        UsageError
            It may not: the name is another application's that goes on, or taken though it must be new.
        """
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
        """Return what a name means.

        Raises
        ------
        UnknownTicket
            Nothing.
        """
        found = self._entries.get(name)
        if found is None or _has_passed(found):
            others = ", ".join(map(repr, sorted(self._entries)[:8]))
            raise UnknownTicket(
                "the depot knows no data set of that name", expected=others or None, found=repr(name[:80])
            )
        return found

    def drop(self, name: str) -> dict[str, tuple[str, ...]]:
        """Forget a name; return the data sets that it meant, and where other depots hold them.

        Raises
        ------
        UnknownTicket
            It meant nothing.
        """
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
            if list(entry.parts) == [part] and not entry.grows and not entry.parts[part]:
                del self._entries[name]

    def end(self, application: str, keep: float) -> None:
        """Keep what an application named for some seconds more, and no longer."""
        until = time.monotonic() + keep
        for entry in self._entries.values():
            if entry.application == application:
                entry.until = until if entry.until is None else min(until, entry.until)
        self.tidy()

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


def _joined(before: Dataset, more: Dataset) -> Dataset:
    # Where there is no row nobody has seen a batch, and its schema is a guess: of a time zone, for instance.
    if not more.endpoints:
        return before
    if not before.endpoints:
        return more
    if not before.schema.equals(more.schema):
        raise UsageError(
            "what is appended has another schema", expected=str(before.schema), found=str(more.schema)
        )

    def total(first: int | None, second: int | None) -> int | None:
        return None if first is None or second is None else first + second

    return dataclasses.replace(
        before,
        endpoints=(*before.endpoints, *more.endpoints),
        num_rows=total(before.num_rows, more.num_rows),
        nbytes=total(before.nbytes, more.nbytes),
    )
