"""``tls:`` as a target: bytes in the place of a handshake, at either end, and messages after one."""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Final

from bowstring import Limits
from bowstring.errors import BowstringError
from bowstring.transport.channel import Restriction
from bowstring.transport.header import pack_header
from bowstring.transport.peer import Peer
from bowstring.transport.tls import TlsChannel
from tests.transport.certified import serving, trusting

__all__ = ["tls", "tls_seeds"]

_LIMITS: Final = Limits(
    metadata_bytes=1 << 12, message_bytes=1 << 14, control_bytes=1 << 10, stall_timeout=0.05
)
_HOST: Final = "127.0.0.1"
_MOST: Final = 1 << 15
_KINDS: Final = 3
_MESSAGES: Final = 50


@functools.cache
def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return serving().for_server(), trusting().for_client()


@contextlib.contextmanager
def _pair(*, server: bool) -> Iterator[tuple[TlsChannel, socket.socket]]:
    """Give one end of a connection, and the plain socket that is its peer."""
    with socket.create_server((_HOST, 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        near, _ = listener.accept()
    context = _contexts()[0 if server else 1]
    channel = TlsChannel(near, "tls://fuzz:1", Peer.at("fuzz"), _LIMITS, context, None if server else _HOST)
    with far, channel:
        channel.restriction = Restriction(time.monotonic() + 0.5) if server else None
        far.settimeout(1.0)
        yield channel, far


def tls(data: bytes) -> None:
    """Give bytes to a server, or to a client, or as messages to a server that has shaken hands."""
    kind, data = (data[0] % _KINDS if data else 0), data[1:_MOST]
    with _pair(server=kind != 1) as (channel, far):
        if kind == 2:
            data = _sealed(channel, far, data)
        far.sendall(data)
        far.shutdown(socket.SHUT_WR)
        with contextlib.suppress(BowstringError):
            for _ in range(_MESSAGES):
                channel.receive(0.2, lambda _, nbytes: bytearray(nbytes))


def _sealed(channel: TlsChannel, far: socket.socket, data: bytes) -> bytes:
    """Shake hands as a client; return the records of some bytes."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = _contexts()[1].wrap_bio(incoming, outgoing, server_hostname=_HOST)
    while True:
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            far.sendall(outgoing.read())
            channel.receive(0.01)
            incoming.write(far.recv(1 << 16))
        else:
            break
    client.write(data or b"x")
    return outgoing.read()


def tls_seeds() -> Iterator[tuple[str, bytes]]:
    """Yield the first flight of either end, and messages."""
    with _pair(server=True) as (channel, far):
        outgoing = ssl.MemoryBIO()
        client = _contexts()[1].wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=_HOST)
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        hello = outgoing.read()
        yield "client hello", b"\0" + hello
        far.sendall(hello)
        channel.receive(0.01)
        yield "flight of a server", b"\1" + far.recv(1 << 16)
    messages = (
        pack_header(None, 0, 5) + b"hello" + pack_header(7, 0, 300) + bytes(300) + pack_header(2 << 56, 0, 0)
    )
    yield "messages", b"\2" + messages
    yield "too long", b"\2" + pack_header(7, 0, 1 << 20)
    yield "nothing", b""
