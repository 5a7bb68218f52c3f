"""A transport of one file, for `docs/architecture.md`: ``abstract:name``, Unix sockets without a file (unix(7))."""

from __future__ import annotations

import secrets
import socket

from bowstring.errors import BrokenError, UsageError
from bowstring.limits import Limits
from bowstring.transport import Channel, Listener, Peer
from bowstring.transport.listener import SocketListener
from bowstring.transport.sockets import StreamChannel


class AbstractChannel(StreamChannel):
    """One end of a connection: bytes alone, and anybody on this machine may be the peer."""

    scheme = "abstract"
    passes_memory = None
    authenticated = False


def listen(address: str, limits: Limits) -> Listener:
    """Listen on ``abstract:name``, or under a new name for ``abstract:``."""
    name = _name_of(address) or secrets.token_hex(6)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(f"\0{name}")
        sock.listen(socket.SOMAXCONN)
    except OSError as error:
        sock.close()
        raise UsageError("a server is listening there already", where=address) from error
    uri = f"abstract:{name}"
    return SocketListener(
        sock, uri, AbstractChannel, lambda sock, _: AbstractChannel(sock, uri, Peer.of_socket(sock), limits)
    )


def dial(address: str, limits: Limits, deadline: float) -> Channel:
    """Connect to ``abstract:name``."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(deadline)
        sock.connect(f"\0{_name_of(address)}")
        return AbstractChannel(sock, address, Peer.of_socket(sock), limits)
    except OSError as error:
        sock.close()
        raise BrokenError(f"nobody listens at {address}", found=error) from error


def is_loopback(address: str) -> bool:
    """Return ``True``: a Unix socket is reached from its own machine only."""
    _name_of(address)
    return True


def _name_of(address: str) -> str:
    scheme, _, name = address.partition(":")
    if scheme != "abstract" or not name.isascii() or any(mark in name for mark in "?#\0"):
        raise UsageError("not an abstract address", expected="abstract:name", found=repr(address))
    return name
