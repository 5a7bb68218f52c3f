"""A published data set: what its URI says, what its server says, and what comes."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from bowstring.cli.inspection.facts import Facts, batch_facts, schema_facts
from bowstring.client import connect
from bowstring.errors import BowstringError

if TYPE_CHECKING:
    from bowstring.client.stream import Stream
    from bowstring.dissociated.endpoint import Endpoint, Location
    from bowstring.memory import Region

__all__ = ["inspect_endpoint"]


def inspect_endpoint(endpoint: Endpoint, most: int) -> tuple[Facts, BowstringError | None]:
    """Return what a data set is, and the error that ended the look at it, if one did.

    Parameters
    ----------
    endpoint
        The data set.
    most
        How many batches are fetched. One that can be read only once is gone after that for others.
    """
    facts: Facts = {
        "connections": [_location(location) for location in endpoint.locations],
        "ticket": endpoint.ticket.decode(errors="replace"),
        "ticket_base64": base64.urlsafe_b64encode(endpoint.ticket).decode(),
    }
    try:
        with connect(endpoint) as stream:
            _look(stream, facts, most)
    except BowstringError as error:
        return facts, error
    return facts, None


def _location(location: Location) -> Facts:
    return {
        "name": location.address,
        "want_data": location.want_data,
        "free_data": location.free_data,
        "hello": location.hello,
        "extensions": location.hello is not None,
        "token": location.token is not None,
        "remote_handle": location.remote_handle is not None,
    }


def _look(stream: Stream, facts: Facts, most: int) -> None:
    fetched: list[Facts] = []
    regions: dict[bytes, Region] = {}
    for index in range(most):
        batch = next(stream, None)
        if batch is None:
            break
        fetched.append({"name": f"batch {index}", "device": batch.device.name, **batch_facts(batch)})
        regions |= {region.uuid: region for region in batch.spans.regions if region.slab is not None}
        del batch  # its memory goes home before the next one is asked for
    # Only now, since over two connections the server's answer may come after the schema.
    stats = stream.stats
    facts |= {
        "path": stats.path,
        "why": stats.why,
        "rows": getattr(stream, "num_rows", None),
        "batches": getattr(stream, "num_batches", None),
        "bytes": getattr(stream, "nbytes", None),
        "schema": schema_facts(stream.schema),
        "fetched_batches": fetched,
        "regions": [_region(region) for region in regions.values()],
    }


def _region(region: Region) -> Facts:
    # What this process made is where packed bodies landed; what it only reads is the producer's.
    own = region.slab is not None and region.slab.writable
    return {
        "name": region.uuid.hex(),
        "device": region.device.name,
        "bytes": region.nbytes,
        "memory_of": "this process" if own else "the producer",
    }
