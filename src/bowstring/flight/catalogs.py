"""What a Flight server offers: the data sets of a server of this process, or those of others by their endpoints."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bowstring.client import connect
from bowstring.client.grouping import by_process
from bowstring.columnar.batch import Batch
from bowstring.dissociated.listing import DatasetInfo
from bowstring.dissociated.partitions import generation_of
from bowstring.dissociated.producer import Role
from bowstring.errors import OutOfBudget, UnknownName, UnknownTicket, Unsupported, UsageError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.server import catalogue_of, offered

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from bowstring.dissociated.endpoint import Dataset, Endpoint
    from bowstring.dissociated.partitions import PartitionTicket
    from bowstring.server import Server
    from bowstring.server.catalogue import Leave, Publication


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """What one endpoint of Flight stands for: an endpoint of ours, or several that one process serves."""

    endpoint: Endpoint  # its ticket is that of Flight
    # The tickets for each of several, by their places in the data set; empty for one endpoint alone.
    partitions: tuple[PartitionTicket, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Offered:
    """A data set as Flight is to describe it."""

    info: DatasetInfo
    places: tuple[Place, ...]
    ordered: bool = False  # whether they are in the order of the data
    # Unix time when it is withdrawn, if known.
    expires_at: float | None = None


def _views(publication: Publication, leave: Leave) -> Generator[Any, None, None]:
    """Yield the schema, and views of what a server of this process has, without a connection.

    The reader that was let in counts until the last batch was taken, or until this is closed or collected.
    """
    batches: Any = ()
    completed = False
    try:
        batches = publication.source.batches()
        yield publication.source.schema
        yield from map(Batch.to_arrow, batches)
        completed = True
    finally:
        if hasattr(batches, "close"):
            batches.close()
        del batches  # before the data set may be released
        leave(completed)


def _relayed(source: Endpoint | Dataset) -> Generator[Any, None, None]:
    """Yield the schema, and what another server sends."""
    with connect(source) as stream:
        yield stream.schema
        yield from map(Batch.to_arrow, stream)


class ServerCatalog:
    """The data sets of a server of this process."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.limits = server.limits
        self.token = server.token
        self.holds_tokens = server.token is not None

    def all(self, name: str | None = None) -> list[Offered]:
        """Return what is offered now, by name, or of one name."""
        return [
            Offered(publication.info(), (Place(endpoint),), expires_at=publication.expires_at)
            for publication, endpoint in offered(self._server, name)
        ]

    def named(self, name: str) -> Offered:
        """Return one data set."""
        for each in self.all(name):
            return each
        raise _unknown(name)

    def read(self, ticket: bytes) -> Generator[Any, None, None]:
        """Let one reader in; return the schema and the batches, one after the other."""
        return _views(*catalogue_of(self._server).admit(ticket, Role.BOTH, authenticated=True))

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


def _unknown(name: str) -> UnknownName:
    return UnknownName("no data set of that name is offered", found=repr(name)[:80])


class DatasetCatalog:
    """Data sets of other servers and depots, which are read there, and passed on."""

    limits = DEFAULT_LIMITS
    token: str | None = None  # what readers must give who come by other ways

    def __init__(self, datasets: Mapping[str, Dataset]) -> None:
        # Of those of one process, what their ticket stands for.
        self._together: dict[bytes, Dataset] = {}
        self._offered = {name: self._described(name, dataset) for name, dataset in datasets.items()}
        self._endpoints: dict[bytes, Endpoint] = {}
        for endpoint in (each for dataset in datasets.values() for each in dataset):
            if self._endpoints.setdefault(endpoint.ticket, endpoint) != endpoint:
                raise UsageError("two endpoints have the same ticket", found=repr(endpoint.ticket)[:80])
        offers = (offer for endpoint in self._endpoints.values() for offer in endpoint.offers)
        # Whether endpoints hold tokens.
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
        info = DatasetInfo(name, dataset.schema, dataset.num_rows, dataset.nbytes, 0, None, b"")
        return Offered(info, tuple(places), len(places) > 1 and numbers == sorted(numbers))

    def read(self, ticket: bytes) -> Generator[Any, None, None]:
        """Read one endpoint, or those of one process, where they are."""
        source = self._together.get(ticket) or self._endpoints.get(ticket)
        if source is None:
            raise UnknownTicket("no endpoint has that ticket", found=repr(ticket[:80]))
        return _relayed(source)

    def publish(self, *_: Any) -> None:
        """Refuse: these data sets are others'."""
        raise Unsupported("these data sets are others': they are published and withdrawn where they are")

    withdraw = publish

    def renew(self, name: str) -> float | None:
        """Return that no time is known."""
        self.named(name)
        return None


Catalog = ServerCatalog | DatasetCatalog
"""What a Flight server asks."""
