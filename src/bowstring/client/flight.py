"""Arrow Flight: what a server offers, and the endpoints of a data set as it tells them."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import operator
import ssl
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bowstring import errors
from bowstring.closing import Closing
from bowstring.dissociated.endpoint import Dataset, Endpoint, Offer, of_offers
from bowstring.dissociated.listing import DatasetInfo, only_name
from bowstring.dissociated.location import Location, token_of, with_token
from bowstring.transport import encrypts, is_known, passes_memory
from bowstring.transport import is_loopback as stays_here
from bowstring.transport.certificates import WHOM_TO_TRUST
from bowstring.transport.tcp import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bowstring.limits import Limits
    from bowstring.transport.certificates import TlsConfig

MARK: Final = "bowstring"
"""The key in ``app_metadata`` by which a server of ours is known."""
REUSE: Final = "arrow-flight-reuse-connection://?"
"""The location that is the server which was asked."""
_MOST_OFFERS: Final = 17
_ENCRYPTED: Final = "grpc+tls"


class FlightClient(Closing):
    """A client of one Flight server."""

    def __init__(self, uri: str, tls: TlsConfig | ssl.SSLContext | None, limits: Limits) -> None:
        try:
            from pyarrow import flight
        except ImportError as error:
            raise errors.MissingDependency(
                "this pyarrow came without Arrow Flight", found=str(error)
            ) from error
        self.address = uri.partition("?")[0]
        token = token_of(uri)
        self._headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        self.limits = limits
        with self.asking():
            self.client = flight.FlightClient(self.address, **_certificates(self.address, tls))

    def options(self, seconds: float | None) -> Any:
        """Return what goes with a call that may take so long."""
        from pyarrow import flight

        # Bodies of gRPC lie anywhere, and numbers must not.
        aligned = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.DataTypeSpecific)
        return flight.FlightCallOptions(timeout=seconds, headers=self._headers, read_options=aligned)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Raise what Flight raises as errors of ours."""
        try:
            yield
        except (pa.ArrowException, KeyError, OSError) as error:
            if isinstance(error, errors.BowstringError):
                raise
            raise _failure(error, self.address) from None

    def info(self, path: tuple[str, ...]) -> Any:
        from pyarrow import flight

        with self.asking():
            descriptor = flight.FlightDescriptor.for_path(*path)
            return self.client.get_flight_info(descriptor, self.options(self.limits.connect_timeout))

    def infos(self) -> list[Any]:
        with self.asking():
            return list(self.client.list_flights(b"", self.options(self.limits.reply_timeout)))

    def close(self) -> None:
        with contextlib.suppress(pa.ArrowException):
            self.client.close()


def _certificates(address: str, tls: TlsConfig | ssl.SSLContext | None) -> dict[str, Any]:
    """Return the TLS arguments for a client of Flight; refuse what gRPC cannot use, or `tls` without encryption."""
    if isinstance(tls, ssl.SSLContext):
        raise errors.UsageError("Flight does not take an ssl.SSLContext", expected="a bowstring.TlsConfig")
    scheme = address.partition(":")[0]
    if scheme != _ENCRYPTED:
        if tls is not None and scheme != "grpc+unix" and not is_loopback(address):
            raise errors.AccessDenied("the connection would not be encrypted", found=f"tls=… for {address}")
        return {}
    arguments: dict[str, Any] = {}
    if tls is not None:
        tls.for_client()  # which says what is wrong with them
    # gRPC would take authorities of its own, or none.
    ca = ssl.get_default_verify_paths().cafile if tls is None or tls.ca is None else tls.ca
    if ca is not None:
        arguments["tls_root_certs"] = Path(ca).read_bytes()
    if tls is not None and tls.cert is not None:
        arguments |= {
            "cert_chain": Path(tls.cert).read_bytes(),
            "private_key": Path(tls.key or tls.cert).read_bytes(),
        }
    return arguments


def located(
    address: str,
    name: bytes | None,
    token: str | None,
    tls: TlsConfig | ssl.SSLContext | None,
    limits: Limits,
    token_hosts: Sequence[str] = (),
) -> Endpoint | Dataset:
    """Return the endpoints of a data set of a Flight server, each with the places where it is, best first."""
    if isinstance(token_hosts, str) or not all(isinstance(each, str) for each in token_hosts):
        raise errors.UsageError(
            "token_hosts is a list of hosts", expected='["host", "host:port"]', found=repr(token_hosts)[:80]
        )
    base, path = _split(address)
    uri = base if token is None else with_token(base, token)
    with FlightClient(uri, tls, limits) as server:
        info = _info(server, path if name is None else (name.decode(errors="replace"),))
    numbered: list[tuple[int | None, Endpoint]] = []
    for part in info.endpoints:  # each is one of ours, or stands for several
        endpoint = _endpoint(part, uri, token_hosts)
        partitions = _partitions(part)
        numbered += [(number, dataclasses.replace(endpoint, ticket=ticket)) for number, ticket in partitions]
        numbered += [] if partitions else [(None, endpoint)]
    if all(number is not None for number, _ in numbered):  # which is the order of the data
        numbered.sort(key=lambda each: each[0] or 0)
    if len(numbered) == 1:
        return numbered[0][1]
    return Dataset(
        tuple(endpoint for _, endpoint in numbered),
        info.schema,
        _count(info.total_records),
        _count(info.total_bytes),
    )


def _split(address: str) -> tuple[str, tuple[str, ...]]:
    """Return the address of a server, and the path of a data set there; what is percent-encoded is of one name."""
    scheme, _, rest = address.partition("://")
    if scheme == "grpc+unix":
        return address, ()
    place, _, path = rest.partition("?")[0].partition("/")
    query = address.partition("?")[2]
    parts = tuple(urllib.parse.unquote(part) for part in path.split("/") if part)
    return f"{scheme}://{place}" + (f"?{query}" if query else ""), parts


def _info(server: FlightClient, path: tuple[str, ...]) -> Any:
    if path:
        try:
            return server.info(path)
        except errors.UnknownTicket:
            # Servers of others may have paths of several parts, which are listed as one name.
            parts = tuple(path[0].split("/"))
            if len(path) > 1 or len(parts) == 1:
                raise
            return server.info(parts)
    infos = server.infos()
    only_name([_name(each) for each in infos], server.address)
    return infos[0]


def _partitions(endpoint: Any) -> list[tuple[int, bytes]]:
    """Return the places and tickets of several endpoints that stand for one of Flight; empty if it has none."""
    facts = _facts(endpoint.app_metadata)
    rows = facts.get("partitions") if MARK in facts else None
    try:
        return [(operator.index(number), base64.b64decode(ticket)) for number, ticket in rows or ()]
    except (TypeError, ValueError):  # such as of a server of another version
        return []


def _endpoint(part: Any, uri: str, token_hosts: Sequence[str]) -> Endpoint:
    """Return an endpoint of Flight as one of ours: places that hand over memory first, ``DoGet`` last."""
    facts = _facts(part.app_metadata)
    hosts = facts.get("hosts") if MARK in facts else None
    locations = [each.uri.decode(errors="replace") for each in part.locations]
    if not isinstance(hosts, list) or len(hosts) != len(locations):
        hosts = [None] * len(locations)
    ours: list[Offer] = []
    flights: list[Offer] = []
    token, asked_place = token_of(uri), _place(uri)
    listed = {each.lower() for each in token_hosts}
    for location, only_on in zip(locations, hosts, strict=True):
        offer = Offer(location, None, only_on if isinstance(only_on, str) else None)
        if offer.by_flight:
            place = _place(location)
            if asked_place[0] == _ENCRYPTED != place[0]:
                continue  # a caller that asks for encryption gets nothing less
            host = f"[{place[1]}]" if ":" in place[1] else place[1]
            trusted = place == asked_place or not listed.isdisjoint((place[1], host, f"{host}:{place[2]}"))
            flights.append(Offer(with_token(location, token)) if token is not None and trusted else offer)
        elif _is_ours(location) and (
            asked_place[0] != _ENCRYPTED or encrypts(location) or stays_here(location)
        ):
            ours.append(offer)
    ours.sort(key=lambda each: (passes_memory(each.address) is None, each.host is None))
    asked = Offer(uri)
    if asked.address not in {each.address for each in flights}:  # which is reached, whatever it is called
        flights.append(asked)
    return of_offers(part.ticket.ticket, [*ours[: _MOST_OFFERS - 1], *flights][:_MOST_OFFERS])


def _place(uri: str) -> tuple[str, str, int | None]:
    """Return the scheme, host and port of a Flight server."""
    parts = urllib.parse.urlsplit(uri.partition("?")[0])
    try:
        port = parts.port
    except ValueError:
        port = None
    return parts.scheme.replace("grpc+tcp", "grpc"), parts.hostname or parts.path, port


def _is_ours(uri: str) -> bool:
    """Whether a location is one that a server of ours gave, and that this process can dial."""
    try:
        return is_known(uri) and Location.parse(uri).hello is not None
    except errors.UsageError:
        return False


def _facts(metadata: Any) -> dict[str, Any]:
    try:
        facts = json.loads(bytes(metadata or b""))
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _count(value: int) -> int | None:
    return value if value >= 0 else None


def list_flights(
    address: str, token: str | None, tls: TlsConfig | ssl.SSLContext | None, limits: Limits
) -> list[DatasetInfo]:
    """Return what a Flight server offers."""
    base, _ = _split(address)
    with FlightClient(base if token is None else with_token(base, token), tls, limits) as server:
        return [_listed(each) for each in server.infos()]


def _listed(info: Any) -> DatasetInfo:
    facts = _facts(info.app_metadata)
    is_alone = len(info.endpoints) == 1 and len(_partitions(info.endpoints[0])) <= 1
    published, readers, left = (facts.get(key) for key in ("published_at", "readers", "readers_left"))
    return DatasetInfo(
        _name(info),
        info.schema,
        _count(info.total_records),
        _count(info.total_bytes),
        readers if isinstance(readers, int) else 0,
        published if isinstance(published, float) else None,
        # Of a data set of one endpoint; nothing for others.
        info.endpoints[0].ticket.ticket if is_alone else b"",
        left if isinstance(left, int) else None,
    )


def _name(info: Any) -> str:
    descriptor = info.descriptor
    parts = descriptor.path or ([descriptor.command] if descriptor.command else [])
    return "/".join(bytes(part).decode(errors="replace") for part in parts)


def _failure(error: BaseException, where: str) -> errors.BowstringError:
    """Return what an error of Flight means."""
    # pyarrow sends the traceback of the server, and gRPC adds its own.
    said = str(error).partition(". Detail: ")[0].partition(". gRPC client debug context")[0].strip('"')[:500]
    if where.startswith("grpc+tls:") and "certificate" in said:  # gRPC has no error of its own for it
        return errors.AccessDenied(
            "the certificate of the Flight server is not accepted",
            found=said.rpartition("SSL routines::")[2],
            where=where,
            hint=WHOM_TO_TRUST,
        )
    from pyarrow import flight

    kinds: list[tuple[type[BaseException], str, type[errors.BowstringError]]] = [
        (
            flight.FlightUnauthenticatedError,
            "the Flight server does not let this client in",
            errors.AccessDenied,
        ),
        (flight.FlightUnauthorizedError, "the Flight server does not allow that", errors.AccessDenied),
        (flight.FlightTimedOutError, "the Flight server does not answer in time", errors.DeadlineExceeded),
        (flight.FlightUnavailableError, "the Flight server cannot be reached", errors.BrokenError),
        (flight.FlightCancelledError, "the call was cancelled", errors.BrokenError),
        (flight.FlightServerError, "the Flight server failed", errors.ProducerFailed),
        (flight.FlightInternalError, "the Flight server failed", errors.BrokenError),
        (KeyError, "the Flight server has no such data set", errors.UnknownTicket),
        (pa.ArrowNotImplementedError, "the Flight server does not know that", errors.Unsupported),
        (pa.ArrowInvalid, "the Flight server sends what it should not, or was asked so", errors.InvalidData),
        (OSError, "the Flight server cannot be reached", errors.BrokenError),
    ]
    kind, what = next(
        ((kind, what) for raised, what, kind in kinds if isinstance(error, raised)),
        (errors.BrokenError, "the Flight server failed"),
    )
    return kind(what, found=said, where=where)
