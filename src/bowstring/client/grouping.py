"""Grouping: the endpoints of a data set that one serving process has are read in one stream."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from bowstring.dissociated.endpoint import of_offers
from bowstring.dissociated.partitions import (
    MOST_BYTES,
    STRANGERS_BYTES,
    PartitionTicket,
    are_enabled,
    lists_of,
)
from bowstring.errors import BrokenError
from bowstring.transport import passes_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bowstring.dissociated.endpoint import Dataset, Endpoint

UNDER_WAY: Final = 64
"""How many partitions of a stream may have come, or come, whose batches the user has not all taken."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """What one stream reads of a data set."""

    endpoint: Endpoint
    numbers: tuple[int, ...]  # of its endpoints in the data set, in order
    tickets: tuple[PartitionTicket, ...] = ()  # one per number; empty for a stream of the endpoint alone
    by_flight: bool = False  # whether a Flight server can also give them one by one


def by_process(dataset: Dataset) -> dict[Endpoint, list[PartitionTicket]]:
    """Return the serving processes of a data set, without a ticket, and of each the endpoints by their numbers."""
    tickets: dict[Endpoint, list[PartitionTicket]] = {}
    for number, endpoint in enumerate(dataset.endpoints):
        process = dataclasses.replace(endpoint, ticket=b"")
        tickets.setdefault(process, []).append(PartitionTicket(number, endpoint.ticket))
    return tickets


def grouped(dataset: Dataset, connections: int, *, ordered: bool) -> list[Unit]:
    """Return what is read in one stream each, as `in_turn` orders them."""
    processes = by_process(dataset).items()
    units = [unit for process, tickets in processes for unit in _units(process, tickets, connections)]
    return in_turn(units, ordered=ordered)


def in_turn(units: Iterable[Unit], *, ordered: bool) -> list[Unit]:
    """Return units by their first endpoints; those of other hosts come last where the data need no order."""
    return sorted(units, key=lambda unit: (not (ordered or unit.endpoint.is_here), unit.numbers[0]))


def _units(process: Endpoint, tickets: list[PartitionTicket], connections: int) -> Iterator[Unit]:
    where = _over_our_protocol(process) if len(tickets) > 1 and are_enabled() else None
    if where is None:
        for number, ticket in tickets:
            yield Unit(dataclasses.replace(process, ticket=ticket), (number,))
        return
    reached = where.candidates()
    maps = [passes_memory(offer.address) in ("fd", "object") for offer in reached]
    known = all(here or offer.locations[0].token for here, offer in zip(maps, reached, strict=True))
    streams = 1 if maps[0] else min(connections, len(tickets))
    for index in range(streams):
        for part in lists_of(tickets[index::streams], MOST_BYTES if known else STRANGERS_BYTES):
            numbers = tuple(number for number, _ in part)
            yield Unit(where, numbers, tuple(part), len(where.offers) < len(process.offers))


def apart(unit: Unit, dataset: Dataset) -> list[Unit]:
    """Return what a unit has with one stream for each endpoint."""
    return [Unit(dataset.endpoints[number], (number,)) for number in unit.numbers]


def _over_our_protocol(process: Endpoint) -> Endpoint | None:
    """Return where a process sends many partitions in one stream, if it does so on all ways to it from here."""
    offers = [offer for offer in process.offers if not offer.by_flight]
    if not offers:
        return None
    endpoint = of_offers(b"", offers)
    try:
        reached = endpoint.candidates()
    except BrokenError:  # it is on another host: the error belongs to the stream of each endpoint
        return None
    takes = all(offer.data_uri is None and offer.locations[0].partitions for offer in reached)
    return endpoint if takes else None
