"""What a Flight server offers: the data sets of a server of this process, or those of others by their endpoints."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from bowstring.client import connect
from bowstring.client.grouping import by_process
from bowstring.dissociated.partitions import generation_of
from bowstring.dissociated.producer import Role
from bowstring.errors import BowstringError, OutOfBudget, UnknownName, UnknownTicket, Unsupported, UsageError
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.server import catalogue_of, offered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bowstring.client.stream import Stream
    from bowstring.columnar.batch import Batch
    from bowstring.dissociated.endpoint import Dataset, Endpoint
    from bowstring.dissociated.partitions import PartitionTicket
    from bowstring.server import Server
    from bowstring.server.catalogue import Publication


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """What one endpoint of Flight stands for: an endpoint of ours, or several that one process serves."""

    endpoint: Endpoint  # its ticket is that of Flight
    # The tickets for each of several, by their places in the data set; empty for one endpoint alone.
    partitions: tuple[PartitionTicket, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Offered:
    """A data set as Flight is to describe it."""

    name: str
    schema: pa.Schema
    rows: int | None
    nbytes: int | None
    places: tuple[Place, ...]
    ordered: bool = False  # whether they are in the order of the data
    readers: int = 0
    published_at: float | None = None
    readers_left: int | None = None
    # Unix time when it is withdrawn, if known.
    expires_at: float | None = None


class Catalog(Protocol):
    """What a Flight server asks."""

    limits: Limits
    token: str | None
    """What readers must give who come by other ways."""
    holds_tokens: bool
    """Whether endpoints hold tokens."""

    def all(self) -> list[Offered]:
        """Return what is offered now, by name."""

    def named(self, name: str) -> Offered:
        """Return one data set."""

    def read(self, ticket: bytes) -> tuple[pa.Schema, Reading]:
        """Let one reader in, by the ticket of an endpoint; return the schema, and the batches."""

    def publish(self, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Publish a data set, in the place of one of that name."""

    def withdraw(self, name: str) -> None:
        """Offer a data set no longer."""

    def renew(self, name: str) -> float | None:
        """Let a data set that has a time have all of it again; return until when, as in :class:`Offered`."""


class Reading:
    """The batches of a data set as one reader takes them; the reader counts as long as this is there."""

    _over = True  # also where an interrupt comes first

    def __init__(self) -> None:
        self._over = False

    def __iter__(self) -> Reading:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._over:
            raise StopIteration
        try:
            return self._next()
        except StopIteration:
            self._end(completed=True)
            raise
        except BaseException:
            self.close()
            raise

    def _next(self) -> pa.RecordBatch:
        raise NotImplementedError

    def close(self) -> None:
        """Take no more."""
        self._end(completed=False)

    def _end(self, *, completed: bool) -> None:
        if not self._over:
            self._over = True
            self._leave(completed=completed)

    def _leave(self, *, completed: bool) -> None:
        raise NotImplementedError

    def __del__(self) -> None:
        # Arrow lets go of it when the client is gone, whatever it has read.
        self.close()


class _OfPublication(Reading):
    """Views of what a server of this process has, without a connection."""

    def __init__(self, publication: Publication, left: Callable[[bool], None]) -> None:
        self._left = left
        super().__init__()
        self._batches: Iterator[Batch] = publication.source.batches()

    def _next(self) -> pa.RecordBatch:
        return next(self._batches).to_arrow()

    def _leave(self, *, completed: bool) -> None:
        batches, self._batches = getattr(self, "_batches", iter(())), iter(())
        close = getattr(batches, "close", None)
        if close is not None:
            close()
        del batches  # before the data set may be released
        self._left(completed)


class _OfStream(Reading):
    """What a stream of another server brings."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        super().__init__()

    def _next(self) -> pa.RecordBatch:
        return next(self._stream).to_arrow()

    def _leave(self, *, completed: bool) -> None:  # noqa: ARG002  its server counts
        self._stream.close()


class ServerCatalog:
    """The data sets of a server of this process."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.limits = server.limits
        self.token = server.token
        self.holds_tokens = server.token is not None

    def all(self) -> list[Offered]:
        """Return what is offered now, by name."""
        return [_offered(*each) for each in offered(self._server)]

    def named(self, name: str) -> Offered:
        """Return one data set."""
        for publication, endpoint in offered(self._server):
            if publication.name == name:
                return _offered(publication, endpoint)
        raise _unknown(name)

    def read(self, ticket: bytes) -> tuple[pa.Schema, Reading]:
        """Let one reader in; it counts until the last batch is handed to Flight, or the client is gone."""
        publication, left = catalogue_of(self._server).admit(ticket, Role.BOTH, authenticated=True)
        return publication.source.schema, _OfPublication(publication, left)

    def publish(self, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Publish a data set, in the place of one of that name."""
        budget, nbytes = self._server.pool.budget, 0
        taken: list[pa.RecordBatch] = []
        for batch in batches:
            nbytes += batch.nbytes
            if nbytes > budget:
                raise OutOfBudget(
                    "the server's pool has no room", expected=f"at most {budget} bytes", where=name
                )
            taken.append(batch)
        self._server.publish(name, pa.Table.from_batches(taken, schema), replace=True)

    def withdraw(self, name: str) -> None:
        """Offer a data set no longer."""
        self._server.withdraw(name)

    def renew(self, name: str) -> float | None:
        """Let a data set that has a time have all of it again."""
        return catalogue_of(self._server).renew(name)


def _offered(publication: Publication, endpoint: Endpoint) -> Offered:
    info = publication.info()
    return Offered(
        info.name,
        info.schema,
        info.num_rows,
        info.nbytes,
        (Place(endpoint),),
        readers=info.readers,
        published_at=info.published_at,
        readers_left=info.readers_left,
        expires_at=publication.expires_at,
    )


def _unknown(name: str) -> UnknownName:
    return UnknownName("no data set of that name is offered", found=repr(name)[:80])


class DatasetCatalog:
    """Data sets of other servers and depots, which are read there, and passed on."""

    limits = DEFAULT_LIMITS
    token: str | None = None

    def __init__(self, datasets: Mapping[str, Dataset]) -> None:
        # Of those of one process, what their ticket stands for.
        self._together: dict[bytes, Dataset] = {}
        self._offered = {name: self._described(name, dataset) for name, dataset in datasets.items()}
        self._endpoints: dict[bytes, Endpoint] = {}
        for endpoint in (each for dataset in datasets.values() for each in dataset):
            if self._endpoints.setdefault(endpoint.ticket, endpoint) != endpoint:
                raise UsageError("two endpoints have the same ticket", found=repr(endpoint.ticket)[:80])
        offers = (offer for endpoint in self._endpoints.values() for offer in endpoint.offers)
        self.holds_tokens = any(each.token for offer in offers for each in offer.locations)

    def all(self) -> list[Offered]:
        """Return what is offered, by name."""
        return [self.named(name) for name in sorted(self._offered)]

    def named(self, name: str) -> Offered:
        """Return one data set."""
        offered = self._offered.get(name)
        if offered is None:
            raise _unknown(name)
        return offered

    def _described(self, name: str, dataset: Dataset) -> Offered:
        places = []
        for process, tickets in by_process(dataset).items():
            endpoints = tuple(dataclasses.replace(process, ticket=each.ticket) for each in tickets)
            if len(tickets) == 1:
                places.append(Place(endpoints[0], tuple(tickets)))
                continue
            ticket = generation_of(tickets)
            places.append(Place(dataclasses.replace(process, ticket=ticket), tuple(tickets)))
            self._together[ticket] = dataclasses.replace(dataset, endpoints=endpoints)
        numbers = [number for place in places for number, _ in place.partitions]
        return Offered(
            name,
            dataset.schema,
            dataset.num_rows,
            dataset.nbytes,
            tuple(places),
            ordered=len(places) > 1 and numbers == sorted(numbers),
        )

    def read(self, ticket: bytes) -> tuple[pa.Schema, Reading]:
        """Read one endpoint, or those of one process, where they are."""
        source = self._together.get(ticket) or self._endpoints.get(ticket)
        if source is None:
            raise UnknownTicket("no endpoint has that ticket", found=repr(ticket[:80]))
        stream = connect(source)
        return stream.schema, _OfStream(stream)

    def publish(self, name: str, schema: pa.Schema, batches: Any) -> None:  # noqa: ARG002
        """Refuse: these data sets are others'."""
        raise _of_others()

    def withdraw(self, name: str) -> None:  # noqa: ARG002
        """Refuse: these data sets are others'."""
        raise _of_others()

    def renew(self, name: str) -> float | None:
        """Return that no time is known."""
        self.named(name)
        return None


def _of_others() -> BowstringError:
    return Unsupported("these data sets are others': they are published and withdrawn where they are")
