"""``serve``: starts a Flight server, if what it is to offer may be offered there."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from bowstring.closing import Closing
from bowstring.dissociated.endpoint import Dataset
from bowstring.errors import MissingDependency, UsageError
from bowstring.flight.catalogs import Catalog, DatasetCatalog, ServerCatalog
from bowstring.server import Server
from bowstring.server.advertising import advertised_host, bracketed, host_to_name, reached_at
from bowstring.server.arguments import check_exposed, check_name, check_token
from bowstring.transport.tcp import host_and_port, is_loopback, listening

if TYPE_CHECKING:
    from bowstring.transport.certificates import TlsConfig

_SCHEMES: Final = ("grpc", "grpc+tcp", "grpc+tls")


def serve(
    source: Server | Dataset | Mapping[str, Dataset],
    address: str = "grpc://127.0.0.1:0",
    *,
    token: str | None = None,
    tls: TlsConfig | None = None,
    plaintext: bool = False,
    unbounded_requests: bool = False,
    allow_put: bool = False,
    advertise: str | None = None,
) -> FlightServer:
    """Offer data sets by Arrow Flight.

    A Flight client lists them, asks for one by its name (``FlightDescriptor.for_path(name)``), and reads it with
    ``DoGet``. Bowstring's clients are told besides where else each data set is: they take the best way there is,
    such as the memory of the server on the same host.

    Parameters
    ----------
    source
        A server, whose data sets are offered as long as the server offers them; or data sets of other servers and
        depots, by name or by ``metadata["name"]``, such as those of :func:`bowstring.spark.publish`.
    address
        ``grpc://host:port``, or ``grpc+tls://host:port``; port 0 picks one.
    token
        A secret that clients must give, as ``authorization: Bearer …`` (``connect(token=…)``); that of the server
        by default. Where endpoints hold tokens there must be one: clients are told them.
    tls
        The certificate for ``grpc+tls:``; with ``TlsConfig(ca=…)`` those of clients must be of that authority.
    plaintext
        Whether data and token may cross a network unencrypted; without it, ``grpc:`` listens on loopback only.
    unbounded_requests
        Whether to listen off loopback without certificates of clients. pyarrow sets no bound on requests and takes
        them whole before it looks at their token: any client can make the server allocate any amount.
    allow_put
        Whether clients may publish (``DoPut``, which replaces) and withdraw data sets of a server. There must be a
        token: any user of this machine could else do so.
    advertise
        The host that clients are told to read from, for an address such as ``grpc+tls://0.0.0.0:4711``. By default
        they read from the host that they asked, and `uri` names the certificate's host or this machine's address.

    Raises
    ------
    UsageError
        The address means nothing or is in use, or needs a token, encryption or certificates of clients; or another
        argument means nothing.
    MissingDependency
        This pyarrow came without Arrow Flight.

    Examples
    --------
    >>> import pyarrow.flight, bowstring as bow
    >>> with bow.Server() as server, bow.flight.serve(server) as flights:
    ...     endpoint = server.publish("trips", {"fare": [1.5, 2.5]})
    ...     with pyarrow.flight.connect(flights.uri) as client:
    ...         info = client.get_flight_info(pyarrow.flight.FlightDescriptor.for_path("trips"))
    ...         table = client.do_get(info.endpoints[0].ticket).read_all()
    >>> table.num_rows
    2
    """
    scheme = str(address).partition(":")[0]
    if scheme not in _SCHEMES:
        raise UsageError(
            "not an address of a Flight server",
            expected="grpc://host:port or grpc+tls://host:port",
            found=repr(address)[:80],
        )
    encrypted = scheme == "grpc+tls"
    if encrypted == (tls is None):
        raise UsageError(
            "a certificate belongs to grpc+tls:, and that has one",
            found=f"{address}, tls={'None' if tls is None else '…'}",
        )
    catalog = _catalog_of(source)
    token = _token(catalog, token)
    if allow_put and (token is None or not isinstance(source, Server)):
        raise UsageError(
            "clients may publish on a server only, and with a token",
            found=f"allow_put=True, {'no token' if token is None else type(source).__name__}",
            hint="Give token=secrets.token_urlsafe().",
        )
    if not is_loopback(address):
        certified = tls is not None and tls.ca is not None
        check_exposed(address, token, encrypted=encrypted, certified=certified, plaintext=plaintext)
        if not (certified or unbounded_requests):
            raise UsageError(
                "Flight takes requests of any size before it looks at their token",
                expected="certificates of clients: grpc+tls: with TlsConfig(cert=…, key=…, ca=…)",
                found="a token",
                where=address,
                hint="Say unbounded_requests=True, where everybody who reaches the address is trusted so far.",
            )
    return FlightServer(catalog, address, token, tls, allow_put=allow_put, advertise=advertise)


def _catalog_of(source: Any) -> Catalog:
    if isinstance(source, Server):
        return ServerCatalog(source)
    if isinstance(source, Dataset):
        name = source.metadata.get("name")
        if not isinstance(name, str) or not name:
            raise UsageError("the data set has no name", hint='flight.serve({"name": dataset}, …)')
        return DatasetCatalog({name: source})
    if isinstance(source, Mapping) and all(isinstance(each, Dataset) for each in source.values()):
        for name in source:
            check_name(name)
        return DatasetCatalog(dict(source))
    raise UsageError(
        "this is nothing to serve",
        expected="a Server, a Dataset, or data sets by name",
        found=type(source).__name__,
    )


def _token(catalog: Catalog, token: str | None) -> str | None:
    """Return the token that clients must give."""
    if token is None:
        token = catalog.token
    else:
        check_token(token)
    if token is None and catalog.holds_tokens:
        raise UsageError(
            "endpoints of these data sets hold tokens, which clients are told",
            expected="a token that lets clients in",
            hint="Give token=secrets.token_urlsafe().",
        )
    return token


class FlightServer(Closing):
    """A server of Arrow Flight; from :func:`serve`. Close it, or use it in a ``with`` block.

    Attributes
    ----------
    uri
        Where clients find it: ``grpc+tcp://127.0.0.1:4711``.
    port
        The port that it listens at.
    """

    def __init__(
        self,
        catalog: Catalog,
        address: str,
        token: str | None,
        tls: TlsConfig | None,
        *,
        allow_put: bool,
        advertise: str | None,
    ) -> None:
        try:
            from bowstring.flight.service import started
        except ImportError as error:
            raise MissingDependency(
                "this pyarrow came without Arrow Flight", found=str(error), hint="pip install pyarrow"
            ) from error
        host, port = host_and_port(address)
        if port:
            # gRPC would share a port that is in use with its owner, and each client would find one of the two.
            listening(address).close()
        scheme = "grpc+tcp" if tls is None else "grpc+tls"
        named = None if advertise is None else advertised_host(advertise, address)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._closed = False
        self._seconds = catalog.limits.close_timeout
        listens = f"{scheme}://{bracketed(host)}:{port}"
        reached = reached_at(listens, named or host_to_name(listens, tls))
        # Where the host is chosen here, clients are told to stay with the address at which they asked.
        where = reached.rpartition(":")[0] if named is not None or reached == listens else None
        self._service = started(catalog, listens, token, tls, where, allow_put)
        self.port: int = self._service.port
        self.uri = f"{reached.rpartition(':')[0]}:{self.port}"

    def close(self) -> None:
        """Offer nothing any more, and end the calls that go on. Idempotent.

        Calls of clients that have stopped reading end after ``Limits.close_timeout``, with their connections. A
        server that is still open when the process exits is closed then.
        """
        if self._pid != os.getpid():
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._service.end(self._seconds)

    def __repr__(self) -> str:
        return f"<FlightServer {self.uri}{' closed' if self._closed else ''}>"
