"""The catalogue: which data sets a server offers, by name and by ticket, and for how long."""

from __future__ import annotations

import contextlib
import fractions
import functools
import logging
import math
import secrets
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from bowstring import errors
from bowstring.dissociated.listing import DatasetInfo
from bowstring.dissociated.position import another_version, place_of, version_of
from bowstring.dissociated.producer import Role
from bowstring.server.growth import Growth
from bowstring.server.materialized import MaterializedSource
from bowstring.transport.loop import Job, do_in_loop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.dissociated.position import Position
    from bowstring.locks import Condition
    from bowstring.memory import Pool
    from bowstring.server.growth import Chunk
    from bowstring.server.sources import Source
    from bowstring.transport import Channel, Message

_REMEMBERED: Final = 1024
_log = logging.getLogger("bowstring")


class Client(Protocol):
    """What answers the requests of one connection that are not for data sets: those of a depot's client."""

    pause: float | None  # after how many seconds a request that waits is tried again

    @property
    def lent(self) -> bool: ...

    def hear(self, tag: int | None, body: Any) -> None:
        """Answer a request; of the first one, raise `AccessDenied` where it may ask nothing."""

    def go_on(self) -> None: ...

    def gone(self) -> None: ...

    def leave(self, *, exited: bool) -> None:
        """Free what it had; `exited` where its process is known to write nothing any more."""


# Counts a reader out: whether it read to the end and gave everything back.
Leave = Callable[[bool], None]
ClientOf = Callable[["Channel", Callable[["Message"], None], Callable[[], None]], Client]


class Catalogue:
    """The publications of one server."""

    def __init__(self, changed: Condition, token: str | None = None) -> None:
        self._changed = changed  # the server's condition: all changes happen under it, and notify it
        self.token = token
        # Several offers of resident data that a ticket stands for, as one.
        self.joined: Callable[[bytes], Sequence[Publication]] | None = None
        # What answers requests that are not for data sets, for a connection: given that, how to answer, and how to
        # have a turn made.
        self.client_of: ClientOf | None = None
        self._publications: dict[bytes, Publication] = {}
        # By name, the last one that was offered: of all that had a name, no other one can be offered still.
        self._newest: dict[str, Publication] = {}
        self._most = _REMEMBERED
        self._growing = threading.Lock()

    def add(self, publication: Publication, *, replace: bool = False, ttl: float | None = None) -> None:
        with self._changed:
            before = self.find(publication.name)
            if before is not None and not replace:
                raise taken(publication.name)
            if ttl is not None:  # first: without a thread for it nothing is offered
                publication.expire_after(ttl)
            if len(self._publications) > self._most:
                self.forget()
            self._publications[publication.ticket] = self._newest[publication.name] = publication
            if before is not None:
                before.replace()
            verb = "published" if before is None else "replaced"
            _log.info("%s %r: %s rows", verb, publication.name, publication._source.num_rows)

    def enter(self, publication: Publication) -> None:
        """Offer a data set whatever is offered under its name: attempts of a task may have the same number."""
        with self._changed:
            self._publications[publication.ticket] = self._newest[publication.name] = publication

    def renew(self, name: str) -> float | None:
        """Restart the time after which a data set is withdrawn; return `Publication.expires_at`."""
        with self._changed:
            publication = self.named(name)
            publication.renew()
            return publication.expires_at

    def find(self, name: str) -> Publication | None:
        newest = self._newest.get(name)
        return newest if newest is not None and newest.offered else None

    def named(self, name: str) -> Publication:
        publication = self.find(name)
        if publication is None:
            raise self._unknown(name)
        return publication

    def _unknown(self, name: str, otherwise: str = "") -> errors.UnknownName:
        hint = errors.did_you_mean(name, [each.name for each in self.offered()], otherwise)
        return errors.UnknownName("no data set of that name is offered", found=repr(name[:80]), hint=hint)

    def admit(
        self,
        ticket: bytes,
        role: Role,
        *,
        authenticated: bool,
        shards: int = 1,  # how many such readers count as one
        looks: bool = False,  # it is not counted
        follows: bool = False,
        since: Position | None = None,
    ) -> tuple[Publication, Leave]:
        """Return the data set that a reader asks for, by ticket or by name, and what counts the reader out.

        Of two connections that carry one stream, the one with the bodies counts.
        """
        names = authenticated or self.token is not None
        # Not under the condition, which `joined` may need while it holds a lock of its own.
        parts = () if self.joined is None else self.joined(ticket)
        joined = JoinedPublication(ticket, parts, self._changed) if parts else None
        with self._changed:
            publication = self._publications.get(ticket, joined)
            if publication is None and names:
                # Or what the name stood for last, so that an error can say what became of it.
                publication = self._newest.get(ticket.decode(errors="replace"))
            if (follows or since is not None) and (names or publication is not None):
                self._check_version(ticket, publication, since)
            if publication is None and names and version_of(ticket) is None:
                raise self._unknown(
                    ticket.decode(errors="replace"), "It may have been withdrawn; ask its producer."
                )
            if publication is None:
                raise errors.UnknownTicket(
                    "no such data set",
                    found=repr(ticket[:80]),
                    hint="It may have been withdrawn; ask its producer."
                    if names
                    else "Over a network a data set is found by name only if its server has a token; "
                    "else connect by the endpoint that publish() returned.",
                )
            if role is not Role.BOTH and publication._source.charged:
                raise errors.UsageError(
                    "a lazily produced data set goes over one connection", found=publication.name
                )
            if looks and publication._source.charged:
                raise errors.Unsupported("batches that are made as they are read are for readers only")
            if role is Role.METADATA:
                publication.check_offered()
                return publication, lambda _: None
            if looks:
                return publication, publication.look()
            return publication, publication.enter(shards, follows=follows, since=since)

    def _check_version(self, ticket: bytes, publication: Publication | None, since: Position | None) -> None:
        """Refuse a reader whose version was replaced with an error that says so."""
        gone = publication is None or publication.replaced
        newest = self._newest.get(ticket.decode(errors="replace").rpartition("#")[0])
        if gone and version_of(ticket) is not None and newest is not None and newest.offered:
            raise errors.DatasetReplaced(
                "the endpoint belongs to a version of the data set that was replaced",
                found=newest.name,
                hint="Connect by its name, which stands for the newer version.",
            )
        if since is not None and publication is not None and place_of(since)[0] != publication.version:
            raise another_version(since, publication.version)

    def growth_of(self, publication: Publication, pool: Pool | None) -> Growth:
        """Return a data set as one that grows, which it is from now on; refuse one that cannot."""
        with self._growing:
            growth = publication.growth
            if growth is None:
                growth = Growth(publication.version, publication.resident(), pool)
                if self.joined is not None:  # what a depot offers is whole
                    growth.end()
                with self._changed:
                    publication.check_offered()
                    publication.grow(growth)
            return growth

    def enter_chunks(
        self, publication: Publication, growth: Growth, chunks: Sequence[Chunk]
    ) -> Position | None:
        """Add chunks to a data set at once; ``None`` if it is not offered any more."""
        with self._changed:
            if not publication.offered:
                if publication.released:  # maybe while they were placed
                    growth.release()
                return None
            position = growth.enter(chunks)
            # Readers that came before count no more: what they read is not the whole any longer.
            publication._appends += 1
            publication.completed, publication._taken = 0, publication._following
        growth.ring()
        return position

    def finish(self, publication: Publication, growth: Growth) -> Position | None:
        """Let nothing be appended to a data set any more; ``None`` if it is not offered any more."""
        with self._changed:
            if not publication.offered:
                return None
            growth.end()
            publication.settle()
            return growth.position

    def wait_released(self, name: str | None, seconds: float, closed: Callable[[], bool]) -> None:
        with self._changed:
            waited = [each for each in self._publications.values() if name in (None, each.name)]
            if name is not None and not waited:
                raise self._unknown(name)
            if not self._changed.wait_for(lambda: closed() or all(p.released for p in waited), seconds):
                raise errors.DeadlineExceeded(
                    "data sets are still read, or wait for a reader",
                    found=", ".join(
                        f"{each.name!r}: {each.active} reading, {each.completed} of {each.readers or 'any'} done"
                        for each in waited
                        if not each.released
                    ),
                    hint="Data sets published without readers= are released when they are withdrawn.",
                )
            if closed():  # which withdraws them all, read or not
                raise errors.ClosedError("the server was closed")

    def offered(self) -> list[Publication]:
        with self._changed:
            return [p for p in self._publications.values() if p.offered]

    def token_matches(self, token: str | None) -> bool:
        """Whether a reader may come in; takes the same time for every wrong token."""
        if self.token is None:
            return True
        given = (token or "").encode(errors="replace")
        return secrets.compare_digest(given, self.token.encode())

    def infos(self, *, authenticated: bool) -> list[DatasetInfo]:
        """Return what a reader may know of the data sets that are offered, by name."""
        if not authenticated and self.token is None:
            raise errors.AccessDenied(
                "over a network data sets are listed only with a token",
                hint="Give the server a token, or connect by the endpoint that publish() returned.",
            )
        with self._changed:
            return [each.info() for each in sorted(self.offered(), key=lambda each: each.name)]

    def sources(self) -> list[Source]:
        """Return the sources of what is offered, or read still."""
        with self._changed:
            return [p.source for p in self._publications.values() if not p.released]

    def withdraw_all(self) -> None:
        with self._changed:
            publications = list(self._publications.values())
        for publication in publications:
            publication.withdraw(closing=True)

    def forget(self) -> None:
        """Forget released data sets, except some whose readers may still need an error that explains it."""
        with self._changed:
            if len(self._publications) <= self._most:
                return
            self._publications = {t: p for t, p in self._publications.items() if not p.released}
            self._newest = {n: p for n, p in self._newest.items() if p.ticket in self._publications}
            # So many more may come before it is worth looking again.
            self._most = max(_REMEMBERED, 2 * len(self._publications))

    def __len__(self) -> int:
        return len(self._publications)


def taken(name: str) -> errors.UsageError:
    """Return the error for a name that a data set has which is offered."""
    return errors.UsageError(
        "the name is taken",
        found=repr(name),
        hint="publish(…, replace=True) replaces it; withdraw() frees it.",
    )


class Publication:
    """One version of a data set of a server: its source, its ticket, its readers.

    All changes happen under the server's condition, which is notified of each.
    """

    def __init__(self, name: str, source: Source, readers: int | None, changed: Condition) -> None:
        self.name = name
        # Of this version only: by it readers still come while it is replaced and others read it.
        self.version = secrets.token_hex(8)
        self.ticket = f"{name}#{self.version}".encode()
        self._source = source  # as it was published
        self.growth: Growth | None = None  # once something is appended to it, or it is followed
        self.separate = False  # each reader has two connections
        self._appends = self._following = 0  # appends, and readers that follow it from its beginning
        self.readers = readers  # how many read it before it is released; `None` for any number
        # Shards count as parts of a reader.
        self.completed: fractions.Fraction | int = 0
        self._taken: fractions.Fraction | int = 0
        self.active = 0
        self._looking = 0  # connections that read without being counted
        self.published = time.time()
        self.ttl: float | None = None
        self.expires = math.inf  # on the monotonic clock
        self._expiry: Job | None = None  # of the loop, until it is withdrawn or released
        self.replaced = False
        self.withdrawn = False
        self.released = False
        self.offered = True  # its name stands for it
        self._changed = changed

    @property
    def source(self) -> Source:
        """Its data as they are now, which a reader that comes now has."""
        # In this order: where it begins to grow meanwhile, what it grows from is taken away afterwards.
        source, growth = self._source, self.growth
        return source if growth is None else growth.snapshot()

    def expire_after(self, ttl: float) -> None:
        """Have it withdrawn when its time is over; called under the condition."""
        self.ttl = ttl
        self.renew()
        job = self._expiry = Job(self._expire, "bowstring-expiry", prompt=True)
        try:
            do_in_loop(job, ttl)
        except BaseException:
            self._expiry = None
            job.ring()  # which an interrupt may have left in the loop
            raise

    def _expire(self) -> float | None:
        with self._changed:
            left = self.expires - time.monotonic()
            if self._expiry is not None and left <= 0:
                self.withdraw()
            return None if self._expiry is None else left

    def renew(self) -> None:
        """Withdraw it no sooner than `ttl` from now on."""
        if self.ttl is not None:
            self.expires = time.monotonic() + self.ttl

    @property
    def expires_at(self) -> float | None:
        """When it is withdrawn, in seconds since the beginning of 1970; ``None`` where that is not known."""
        return None if self.ttl is None else time.time() + self.expires - time.monotonic()

    def info(self) -> DatasetInfo:
        source = self.source
        return DatasetInfo(
            self.name,
            source.schema,
            source.num_rows,
            source.nbytes,
            self.active,
            self.published,
            self.ticket,
            None if self.readers is None else math.floor(max(0, self.readers - self._taken)),
        )

    def resident(self) -> MaterializedSource:
        """Return its data; refuse those that cannot grow."""
        source = self._source
        if source.charged or not isinstance(source, MaterializedSource):
            raise errors.UsageError(
                "a data set that is made as it is read does not grow, and cannot be followed",
                found=self.name,
                hint="Publish a table, or append() batches.",
            )
        if self.separate:
            raise errors.UsageError(
                "a data set that is read over two connections does not grow, and cannot be followed",
                found="publish(separate=True)",
            )
        return source

    def grow(self, growth: Growth) -> None:
        self.growth = growth
        # What is trimmed must not stay here.
        self._source = MaterializedSource.of_placed(growth.schema, ())
        self.tell()

    def enter(self, shards: int = 1, *, follows: bool = False, since: Position | None = None) -> Leave:
        """Count one more reader, of which `shards` count as one."""
        part = 1 if shards == 1 else fractions.Fraction(1, shards)
        with self._changed:
            if not self.offered:
                self.check_offered()
            growth, appends = self.growth, self._appends
            is_partial = since is not None and place_of(since)[1] > 0
            goes_on = growth is not None and growth.appended and not growth.finished
            counts = not is_partial and (follows or not goes_on)
            if counts:
                if self.readers is not None and self._taken + part > self.readers:
                    raise errors.UnknownTicket(
                        "the data set has all its readers",
                        expected=f"at most {self.readers} (publish(…, readers=…))",
                        found=f"{self.completed} done, {self.active} reading",
                    )
                self._taken += part
                self._following += follows
            self.active += 1

        def leave(completed: bool) -> None:
            with self._changed:
                self.active -= 1
                self._following -= counts and follows
                if counts and (follows or appends == self._appends):
                    if completed:
                        self.completed += part
                    else:
                        self._taken -= part
                self.settle()

        return leave

    def check_offered(self) -> None:
        if self.withdrawn or self.released:
            hint = "Connect by its name, which stands for the newer version." if self.replaced else ""
            raise errors.UnknownTicket("the data set is no longer offered", found=self.name, hint=hint)

    def look(self) -> Leave:
        """Keep the data for a connection that is not counted as a reader."""
        with self._changed:
            self.check_offered()
            self._looking += 1

        def leave(_: bool) -> None:
            with self._changed:
                self._looking -= 1
                self.settle()

        return leave

    def move(self, source: Source) -> None:
        """Let readers that come from now on have the same data from another place, unless it was released."""
        with self._changed:
            if not self.released:
                # Who follows it has what it was.
                self._source, self.growth = source, None

    def withdraw(self, *, closing: bool = False) -> None:
        """Let no new reader in; those that read keep what they have."""
        with self._changed:
            self.withdrawn = True
            self.settle()
            if not closing and self.growth is not None:  # else the sessions tell their readers that it closes
                self.tell()

    def replace(self) -> None:
        with self._changed:
            self.replaced = True
            self.settle()
            if self.growth is not None:
                self.tell()

    def tell(self) -> None:
        """Tell those who follow it, once they have read what is there, that it was replaced or withdrawn."""
        if self.growth is not None and (self.replaced or self.withdrawn):
            kind = errors.DatasetReplaced if self.replaced else errors.DatasetWithdrawn
            what = "replaced" if self.replaced else "withdrawn"
            self.growth.end(kind(f"the data set was {what} while it was followed", found=self.name))

    def settle(self) -> None:
        """Release the data if nobody needs them any more, and wake who waits for changes; under the condition."""
        satisfied = self.readers is not None and self.completed >= self.readers
        if self.growth is not None and self.growth.appended and not self.growth.finished:
            satisfied = False
        unused = not (self.active or self._looking)
        if unused and (self.replaced or self.withdrawn or satisfied) and not self.released:
            self.released = True
            self._source.release()
            if self.growth is not None:
                self.growth.release()
            with contextlib.suppress(Exception):  # whatever a handler of the user's raises
                _log.info("released %r", self.name)
        self.offered = not (self.replaced or self.withdrawn or self.released)
        if self._expiry is not None and (self.withdrawn or self.released):
            job, self._expiry = self._expiry, None
            job.ring()
        self._changed.notify_all()


class JoinedPublication(Publication):
    """Several publications that one reader reads as one: it is admitted to each, or to none of them.

    Only its readers refer to it, so it is never withdrawn or released itself.
    """

    def __init__(self, ticket: bytes, parts: Sequence[Publication], changed: Condition) -> None:
        sources = [cast("MaterializedSource", part.source) for part in parts]
        super().__init__(parts[0].name, MaterializedSource.joined(sources), None, changed)
        self.ticket = ticket
        self._parts = parts

    def enter(self, shards: int = 1, *, follows: bool = False, since: Position | None = None) -> Leave:  # noqa: ARG002
        with self._changed, contextlib.ExitStack() as undo:
            self.check_offered()
            leaves: list[Leave] = []
            for part in self._parts:
                leaves.append(part.enter(shards))
                undo.callback(leaves[-1], False)
            undo.pop_all()
        return functools.partial(_leave_all, leaves)

    def look(self) -> Leave:
        with self._changed:
            self.check_offered()
            return functools.partial(_leave_all, [part.look() for part in self._parts])

    def check_offered(self) -> None:
        for part in self._parts:
            part.check_offered()


def _leave_all(leaves: Sequence[Leave], completed: bool) -> None:
    for leave in leaves:
        leave(completed)
