"""How Flight describes a data set of ours: a ticket for each endpoint, and all places where that can be read."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import flight

from bowstring.client.flight import MARK, REUSE
from bowstring.dissociated.endpoint import this_host
from bowstring.transport import is_known, is_loopback, passes_memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bowstring.dissociated.endpoint import Endpoint, Offer
    from bowstring.flight.catalogs import Offered, Place

_NANOSECONDS: Final = 1_000_000_000
_UNKNOWN: Final = -1


def flight_info(offered: Offered, where: str | None) -> Any:
    """Return the FlightInfo of a data set; `where` is the server, ``None`` if only clients know its address."""
    info = offered.info
    facts = {
        MARK: 1,
        "name": info.name,
        "readers": info.readers,
        "published_at": info.published_at,
        "readers_left": info.readers_left,
    }
    return flight.FlightInfo(
        info.schema,
        flight.FlightDescriptor.for_path(info.name),
        [flight_endpoint(each, where, offered.expires_at) for each in offered.places],
        _UNKNOWN if info.num_rows is None else info.num_rows,
        _UNKNOWN if info.nbytes is None else info.nbytes,
        ordered=offered.ordered,
        app_metadata=json.dumps(facts),
    )


def flight_endpoint(place: Place, where: str | None, expires_at: float | None) -> Any:
    """Return the FlightEndpoint of an endpoint, or of several that one process serves (tickets in its metadata).

    The Flight server is the first location: some clients fail at an unknown scheme instead of going on.
    """
    endpoint = place.endpoint
    offers = list(_offers(endpoint))
    facts: dict[str, Any] = {
        MARK: 1,
        "host": this_host(),
        "roles": ["flight", *("data" for _ in offers)],
        "hosts": [None, *(host for _, host in offers)],
    }
    if place.partitions:
        facts["partitions"] = [
            [number, base64.b64encode(ticket).decode()] for number, ticket in place.partitions
        ]
    expires = None
    if expires_at is not None:
        expires = pa.scalar(int(expires_at * _NANOSECONDS), pa.timestamp("ns", tz="UTC"))
    locations = [where or REUSE, *(uri for uri, _ in offers)]
    return flight.FlightEndpoint(endpoint.ticket, locations, expires, json.dumps(facts))


def _offers(endpoint: Endpoint) -> Iterator[tuple[str, str | None]]:
    """Yield the URIs at which an endpoint is read over one connection, and the hosts that they are for."""
    for offer in endpoint.offers:
        if offer.by_flight or offer.data_uri is not None or not is_known(offer.uri):
            continue
        if passes_memory(offer.address) == "object":  # within one process, which is not the client's
            continue
        yield offer.uri, _host_of(offer)


def _host_of(offer: Offer) -> str | None:
    return offer.host or (this_host() if is_loopback(offer.address) else None)
