"""The host that endpoints name, for servers that listen at all addresses of their machine."""

from __future__ import annotations

import contextlib
import socket
import urllib.parse
from typing import TYPE_CHECKING, Any, Final

from bowstring.errors import UsageError
from bowstring.transport.tcp import host_and_port, ip_of, is_loopback_ip, look_up

if TYPE_CHECKING:
    import ssl

    from bowstring.transport.certificates import TlsConfig

# Addresses of documentation: nothing is sent there, the system says from which of its own it would be.
_ELSEWHERE: Final = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
_LOOPBACK: Final = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
_ANY_PORT: Final = 9


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
