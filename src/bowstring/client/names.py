"""Names: what a server offers, and the endpoint that an address and a name stand for."""

from __future__ import annotations

import contextlib
import importlib
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.dissociated.endpoint import Dataset, Endpoint, is_flight
from bowstring.dissociated.listing import (
    DatasetInfo,
    DatasetInfos,
    ListingReader,
    ask_for_list,
    only_name,
    shown_names,
)
from bowstring.dissociated.location import Location
from bowstring.dissociated.tags import Want
from bowstring.errors import (
    AccessDenied,
    BrokenError,
    DeadlineExceeded,
    UnknownTicket,
    Unsupported,
)
from bowstring.limits import Limits, limits_or_default
from bowstring.transport import check_scheme, dial
from bowstring.transport.framing import as_messages

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Sequence

    from bowstring.transport.certificates import TlsConfig

_DEPOT: Final = "depot:"


def list_datasets(
    address: str,
    *,
    token: str | None = None,
    tls: TlsConfig | ssl.SSLContext | None = None,
    limits: Limits | None = None,
) -> list[DatasetInfo]:
    """Return what a server offers now, by name.

    Parameters
    ----------
    address
        Where it listens: ``"unix:/run/app/tables.sock"``, ``"tcp://host:port"``, ``"inproc:name"``,
        ``"grpc://host:port"`` (any server of Arrow Flight), or the URI of one of its data sets. ``"depot:"`` is the
        depot of this host, where Spark's data sets have their names.
    token
        The server's secret. Over ``tcp:`` a server without one tells nobody what it offers.
    tls
        Whom to trust, and what to show, on ``tls:``.
    limits
        Bounds and deadlines.

    Raises
    ------
    AccessDenied
        The token is wrong, or the server has none and is asked over a network.
    BrokenError, DeadlineExceeded
        The server cannot be reached, or does not answer.
    Unsupported
        It has no lists, because it knows the plain protocol only.
    UsageError
        The address means nothing.

    Examples
    --------
    >>> import bowstring as bow
    >>> with bow.Server() as server:
    ...     for name in ("trips", "zones"):
    ...         endpoint = server.publish(name, {"id": [1, 2, 3]})
    ...     found = bow.list_datasets(server.address)
    >>> [(each.name, each.num_rows) for each in found]
    [('trips', 3), ('zones', 3)]
    """
    limits = limits_or_default(limits)
    if not isinstance(address, str):
        check_scheme(address)
    if is_depot(address):
        with _depot() as depot:
            return DatasetInfos(depot.list_datasets())
    if is_flight(address):
        from bowstring.client.flight import list_flights  # and with it pyarrow's

        return DatasetInfos(list_flights(address, token, tls, limits))
    *first, last = _locations(address, token)
    for location in first:
        with contextlib.suppress(AccessDenied, BrokenError, DeadlineExceeded):
            return _list(location, tls, limits)
    return _list(last, tls, limits)


def _list(location: Location, tls: TlsConfig | ssl.SSLContext | None, limits: Limits) -> list[DatasetInfo]:
    if location.hello is None:
        raise Unsupported(
            "a server of the plain protocol has no list of its data sets", where=location.address
        )
    deadline = time.monotonic() + limits.reply_timeout
    reader = ListingReader(limits)
    channel = dial(location.address, limits, limits.connect_timeout, tls=tls)
    try:
        channel.send(as_messages(ask_for_list(location), channel), limits.connect_timeout)
        while not reader.complete:
            received = channel.receive(max(0.0, deadline - time.monotonic()))
            if received is None:
                raise DeadlineExceeded(
                    "the server does not say in time what it offers", where=location.address
                )
            reader.receive(received.tag, bytes(received.body))
    except BrokenError as error:
        error.hint = error.hint or "The server may have ended."
        raise
    finally:
        channel.close()
    return DatasetInfos(reader.infos)


def info_of(endpoint: Endpoint, infos: Iterable[DatasetInfo]) -> DatasetInfo | None:
    """Return what a server's list says of an endpoint, if it has it."""
    return next((info for info in infos if endpoint.ticket in (info.ticket, info.name.encode())), None)


def is_address(text: str) -> bool:
    """Whether a text is an address of a server, and names neither tags nor a data set."""
    return ":" in text and "?" not in text


def is_depot(address: str) -> bool:
    """Whether a text is the address of this host's depot, with a name or without one."""
    return address.startswith(_DEPOT)


def depot_dataset(address: str, name: str | None = None) -> Dataset:
    """Return the data set that ``depot:NAME`` stands for, or ``depot:`` and a name."""
    named = address.removeprefix(_DEPOT) or name
    with _depot() as depot:
        if not named:
            raise UnknownTicket(
                "which data set of the depot?",
                expected="a name: depot:NAME",
                found=shown_names([each.name for each in depot.list_datasets()]) or "no names",
            )
        dataset: Dataset = depot.lookup(named)
        return dataset


def _depot() -> Any:
    # It stands above this floor: the names that it keeps are reached by its own client.
    return importlib.import_module("bowstring.depot").connect(start=False)


def _locations(address: str, token: str | None) -> list[Location]:
    """Return the locations of a server of ours at an address, or those that a URI offers, best first."""
    text = address.strip()
    check_scheme(text.partition("?")[0][:200])
    if "?" not in text:
        return [Location(text, int(Want.DATA), int(Want.FREE), None, int(Want.HELLO), token)]
    endpoint = Endpoint.parse(text, b"")
    endpoint = endpoint if token is None else endpoint.with_token(token)
    return [offer.locations[0] for offer in endpoint.candidates() if not offer.by_flight]


def named_endpoint(
    address: str,
    name: bytes | None,
    token: str | None,
    limits: Limits,
    tls: TlsConfig | ssl.SSLContext | None = None,
    token_hosts: Sequence[str] = (),
) -> Endpoint | Dataset:
    """Return the endpoint that an address and a name stand for; without a name, that of the only data set there."""
    if is_flight(address):
        from bowstring.client.flight import located

        return located(address, name, token, tls, limits, token_hosts)
    [location] = _locations(address, token)
    if name is None:
        names = [each.name for each in list_datasets(address, token=token, tls=tls, limits=limits)]
        name = only_name(names, location.address).encode()
    return Endpoint(str(location), name)
