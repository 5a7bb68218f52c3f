"""Where readers reach a server: its endpoints, and the host that they name, also of one that listens everywhere."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import urllib.parse
from typing import TYPE_CHECKING, Any, Final

from bowstring.dissociated.endpoint import Endpoint, Offer, this_host
from bowstring.dissociated.location import Location
from bowstring.dissociated.partitions import are_enabled
from bowstring.dissociated.tags import Want
from bowstring.errors import UsageError
from bowstring.transport.tcp import host_and_port, ip_of, is_loopback_ip, look_up

if TYPE_CHECKING:
    import ssl

    from bowstring.server.acceptor import Acceptor
    from bowstring.transport.certificates import TlsConfig

# Addresses of documentation: nothing is sent there, the system says from which of its own it would be.
_ELSEWHERE: Final = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
_LOOPBACK: Final = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
_ANY_PORT: Final = 9


class Addresses:
    """The addresses of a server, the first one first, and the endpoints that name them."""

    def __init__(self, acceptor: Acceptor, token: str | None, host: str | None) -> None:
        self._acceptor = acceptor
        self._token = token
        self._host = host  # that URIs name
        self._reached: dict[str, str] = {}  # as readers dial them, by what listens
        self._locations: dict[tuple[Want, str], str] = {}

    def listen(self, address: str, tls: TlsConfig | ssl.SSLContext | None) -> str:
        """Take readers at one more address; return it as a transport dials it."""
        host = self._host or host_to_name(address, tls)  # which may look names up: nothing listens yet
        listened = self._acceptor.listen(address, tls)
        self._reached[listened] = reached_at(listened, host)
        self.first = next(iter(self._reached))
        listeners = self._acceptor.listeners
        self.passes_memory = listeners[0].channels.passes_memory is not None
        # Whether every reader of this server may ask by name: processes of this user, or such with a certificate.
        all_known = all(each.channels.authenticated or each.asks_certificates for each in listeners)
        self.names_open = self._token is not None or all_known
        return listened

    def endpoint(self, ticket: bytes, *, separate: bool = False) -> Endpoint:
        """Return what a reader needs, with the other addresses beside the first."""
        location, first = self._location, self.first
        if separate:
            endpoint = Endpoint(location(Want.METADATA, first), ticket, location(Want.BODIES, first))
        else:
            endpoint = Endpoint(location(Want.DATA, first), ticket)
        if len(self._reached) == 1:
            return endpoint
        more = [location(Want.DATA, address) for address in [*self._reached][1:]]
        others = tuple(map(Offer, more[1:]))
        return dataclasses.replace(endpoint, elsewhere=more[0], host=this_host(), others=others)

    def _location(self, want: Want, address: str) -> str:
        uri = self._locations.get((want, address))
        if uri is None:
            takes_partitions = want is Want.DATA and are_enabled()
            free, hello = int(Want.FREE), int(Want.HELLO)
            at = self._reached[address]
            location = Location(at, int(want), free, None, hello, self._token, takes_partitions)
            uri = self._locations[want, address] = str(location)
        return uri


def reached_at(address: str, host: str | None) -> str:
    """Return the address of a listener, with its port, as readers are to dial it; `host` replaces its own."""
    scheme, _, rest = address.partition("://")
    return f"{scheme}://{host}:{rest.rpartition(':')[2]}" if rest and host is not None else address


def host_to_name(address: str, tls: TlsConfig | ssl.SSLContext | None) -> str | None:
    """Return a host to name in the place of 0.0.0.0 or ``::``: of the server's certificate, or the first address of
    this machine; ``None`` where the address names a host.
    """
    if "://" not in address:
        return None
    host, port = host_and_port(address)
    places = ((kind, ip_of(str(place[0]))) for kind, place in look_up(address, host, port))
    family = next((kind for kind, ip in places if ip is not None and ip.is_unspecified), None)
    if family is None:
        return None
    own = _own_address(family)
    if tls is not None:
        from bowstring.transport.certificates import names_in, server_context  # and `ssl`

        here = socket.gethostname().lower().partition(".")[0]
        names = [each.replace("*", here) for each in names_in(server_context(tls))]
        # As others spell it: OpenSSL writes all zeros of an IPv6 address.
        names = [str(ip_of(name) or name) for name in names]
        own = min(names, key=lambda name: _distance(name, own), default=own)
    return bracketed(own)


def _own_address(family: socket.AddressFamily) -> str:
    """Return the first address of this machine that is not loopback, if it has any."""
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((_ELSEWHERE[family], _ANY_PORT))
        return str(probe.getsockname()[0])
    with contextlib.suppress(OSError):
        for *_, place in socket.getaddrinfo(socket.gethostname(), None, family):
            if not is_loopback_ip(str(place[0])):
                return str(place[0])
    return _LOOPBACK[family]


def _distance(name: str, own: str) -> int:
    """Return how far a name of a certificate is from what others call this machine."""
    host = socket.gethostname().lower()
    if (":" in name) != (":" in own) and ip_of(name) is not None:
        return 4
    if name.lower() == host or name == own:
        return 0
    if name.lower().partition(".")[0] == host.partition(".")[0]:
        return 1
    return 3 if name.lower() == "localhost" or is_loopback_ip(name) else 2


def advertised_host(host: Any, address: str) -> str:
    """Return the host as URIs name it; refuse one that is not a host, or an address that has none."""
    if (
        "://" not in address or urllib.parse.urlsplit(address).path
    ):  # a socket's file, or a name in this process
        raise UsageError("this address has no host to advertise", found=address, where="advertise")
    text = host if isinstance(host, str) else ""
    plain = text.removeprefix("[").removesuffix("]")
    is_name = bool(plain) and all(each.isalnum() or each in "-._:%" for each in plain)
    if not is_name:
        raise UsageError(
            "not a host", expected="a name or an IP address, without a port", found=repr(host)[:80]
        )
    return bracketed(plain)


def bracketed(host: str) -> str:
    """Return a host as it stands in a URI."""
    return f"[{host}]" if ":" in host else host
