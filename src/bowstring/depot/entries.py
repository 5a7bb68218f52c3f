"""What a registry has: applications, their data sets and what is committed of each, and names of data sets."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
import os
import secrets
import select
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.errors import UsageError
from bowstring.memory.slab import opened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bowstring.depot.manifest import BegunAttempt
    from bowstring.dissociated.endpoint import Dataset, Endpoint
    from bowstring.server.catalogue import Publication


class Holder:
    """What keeps an application alive: a process of this host, or, with ``pid=None``, a connection."""

    def __init__(self, pid: int | None = None) -> None:
        self.pid = pid
        self.gone = False
        try:
            self._process = None if pid is None else opened(os.pidfd_open, pid)
        except OSError as error:
            raise UsageError(
                "a process to watch is not there", found=f"pid {pid}: {error.strerror}"
            ) from error

    @property
    def alive(self) -> bool:
        if self._process is not None and not self.gone:
            poll = select.poll()
            poll.register(self._process, select.POLLIN)
            self.gone = bool(poll.poll(0))
        return not self.gone


@dataclasses.dataclass(eq=False, slots=True)
class Stream:
    """One committed stream: an attempt that can be read."""

    publication: Publication
    described: dict[str, Any]  # as COMMIT is answered
    folder: str  # where its files go
    # The slab that it shares with others of a name; empty where it has no bytes, `None` where it lies by itself.
    slab: bytes | None = None
    schema: bytes = b""  # its message, where it has dictionaries, which that numbers
    shared_bytes: int = 0  # how much it takes of the slab


@dataclasses.dataclass(eq=False, slots=True)
class DataSet:
    """The streams of a data set that are offered, by ticket, the attempts that go on, and until when it is kept."""

    name: str
    application: str
    streams: dict[bytes, Stream] = dataclasses.field(default_factory=dict)
    attempts: set[BegunAttempt] = dataclasses.field(default_factory=set)
    until: float = math.inf


@dataclasses.dataclass(eq=False, slots=True)
class Application:
    """The owner of data sets, which are kept for `lease_seconds` after its last sign of life."""

    name: str
    lease_seconds: float
    holders: set[Holder] = dataclasses.field(default_factory=set)
    was_held: bool = False
    expires: float = 0.0  # on the monotonic clock

    def renew(self) -> None:
        self.expires = time.monotonic() + self.lease_seconds

    @property
    def held(self) -> bool:
        """Whether somebody is known to be alive for whom it is kept."""
        return any(holder.alive for holder in self.holders)


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

    def between(self, first: int, last: int, *, joined: bool) -> list[Endpoint]:
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

    def between(self, first: int = 0, last: int | None = None, *, joined: bool = True) -> Dataset:
        """Return its data set, or that of the endpoints from one position to another."""
        last = self.count if last is None else min(last, self.count)
        begin = max(bisect.bisect_right(self.runs, first, key=lambda run: run.first) - 1, 0)
        endpoints: list[Endpoint] = []
        for run in itertools.islice(self.runs, begin, None):
            if run.first >= last:
                break
            endpoints += run.between(first, last, joined=joined)
        return dataclasses.replace(self.dataset, endpoints=tuple(endpoints))
