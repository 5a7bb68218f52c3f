"""Names of data sets: what each means, whose it is, which data sets of depots it is made of, and until when."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
import secrets
import time
from typing import TYPE_CHECKING, Final

from bowstring.dissociated.endpoint import Dataset
from bowstring.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bowstring.depot.applications import Stream
    from bowstring.dissociated.endpoint import Endpoint


@dataclasses.dataclass(slots=True)
class Announcement:
    """What a name shall mean."""

    name: str
    dataset: Dataset
    application: str
    version: str  # its id, kept while the data set grows
    # Adds the endpoints to those of the name; the schema of a data set without endpoints is ignored then.
    append: bool | None = None
    new: bool | None = None  # the name must be free
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


@dataclasses.dataclass(eq=False, slots=True, weakref_slot=True)
class Run:
    """Endpoints of a name, one behind the other: many that lie in one slab here are looked up as one."""

    first: int  # how many endpoints of the name are before it
    slab: bytes | None  # where the streams lie; `None` for endpoints that are looked up one by one
    schema: bytes  # its message, where it matters: it numbers the dictionaries
    endpoints: list[Endpoint] = dataclasses.field(default_factory=list)
    streams: list[Stream] = dataclasses.field(default_factory=list)
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
    grows: bool
    runs: list[Run] = dataclasses.field(default_factory=list)
    count: int = 0
    batches: dict[int | str, str | None] = dataclasses.field(default_factory=dict)
    parts: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    since: float = 0.0
    until: float = math.inf
    state: str | None = None

    @property
    def has_passed(self) -> bool:
        """Whether its time has passed."""
        return time.monotonic() >= self.until

    def extend(self, more: Dataset) -> None:
        """Make its data set, but for the endpoints, that of both."""
        before = self.dataset
        if not more.endpoints:
            return
        # Where there is no row nobody has seen a batch, and its schema is a guess: of a time zone, for instance.
        if not self.count:
            self.dataset = dataclasses.replace(more, endpoints=())
            return
        if not before.schema.equals(more.schema):
            raise UsageError(
                "what is appended has another schema", expected=str(before.schema), found=str(more.schema)
            )

        def total(first: int | None, second: int | None) -> int | None:
            return None if first is None or second is None else first + second

        self.dataset = dataclasses.replace(
            before,
            num_rows=total(before.num_rows, more.num_rows),
            nbytes=total(before.nbytes, more.nbytes),
        )

    def add(self, endpoints: Iterable[Endpoint], streams: Mapping[bytes, Stream]) -> Iterator[Run]:
        """Add endpoints, of which some are streams of this depot, by ticket; yield the runs that this begins."""
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
