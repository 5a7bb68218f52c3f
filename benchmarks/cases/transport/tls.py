"""Bytes over ``tls:`` on loopback, beside a plain `ssl.SSLSocket` that moves messages of the same sizes."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Role, Scale, Skipped, Target, Way
from bowstring.benchmarks.data.payload import fingerprint, payload
from bowstring.benchmarks.data.tables import size_name, table
from bowstring.benchmarks.processes.child import Child

_SIZES: Final = (64 << 10, 1 << 20, 64 << 20)
_FULL: Final = 256 << 20
_QUICK: Final = 64 << 20
_SECONDS: Final = 60.0
_HOST: Final = "127.0.0.1"
_BOUND: Final = 0.9


class Sender:
    """A role for a started process: sends a table, as a server of ours does and through a plain socket."""

    def __init__(self, size: int, total: int, cert: str) -> None:
        self._size = size
        data = table("floats", total, 1, total // size)
        # One batch after the other in one piece of memory, as the plain socket sends them.
        self._bytes = np.concatenate(payload(data.to_batches()))
        self._server = bow.Server("tls://", tls=bow.TlsConfig(cert=cert))
        self._endpoint = str(self._server.publish("t", data))
        self._context = bow.TlsConfig(cert=cert).for_server()
        self._listener = socket.create_server((_HOST, 0))
        self._listener.settimeout(_SECONDS)

    def about(self) -> dict[str, Any]:
        """Return where to connect, and the fingerprint of the table."""
        return {
            "endpoint": self._endpoint,
            "sent": fingerprint([self._bytes]),
            "port": self._listener.getsockname()[1],
        }

    def answer(self) -> None:
        """Answer one connection that asks for the bytes."""
        peer, _ = self._listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.settimeout(None)
        with self._context.wrap_socket(peer, server_side=True) as secure:
            if secure.recv(1) == b"?":
                view = self._bytes.data
                for start in range(0, len(view), self._size):
                    secure.sendall(view[start : start + self._size])
            secure.recv(1)

    def close(self) -> None:
        """End everything."""
        self._server.close()


class Receiver:
    """The other end of a `Sender`."""

    def __init__(self, size: int, total: int, ca: str) -> None:
        self._size, self._total = size, total
        self._tls = bow.TlsConfig(ca=ca)
        self._landing = np.zeros(total, np.uint8)

    def plain(self, port: int) -> dict[str, Any]:
        """Connect, ask, and receive into memory that is there."""
        self._landing[:] = 0
        context = self._tls.for_client()
        begin = time.perf_counter()
        with (
            socket.create_connection((_HOST, port), _SECONDS) as peer,
            context.wrap_socket(peer, server_hostname=_HOST) as secure,
        ):
            secure.settimeout(None)
            secure.sendall(b"?")
            for start in range(0, self._total, self._size):
                _fill(secure, self._landing[start : start + self._size].data)
            seconds = time.perf_counter() - begin
            secure.sendall(b"!")
        return {"seconds": seconds, "arrived": fingerprint([self._landing])}

    def stream(self, endpoint: str) -> dict[str, Any]:
        """Connect, and take all batches."""
        begin = time.perf_counter()
        with bow.connect(endpoint, tls=self._tls) as stream:
            batches = list(stream)
            seconds = time.perf_counter() - begin
        return {"seconds": seconds, "arrived": fingerprint(payload([each.to_arrow() for each in batches]))}


def _fill(peer: ssl.SSLSocket, view: memoryview) -> None:
    while view:
        got = peer.recv_into(view)
        if not got:
            raise ConnectionError("the sender is gone")
        view = view[got:]


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    try:
        import trustme
    except ImportError:
        yield Skipped("connect to last batch", "needs trustme, which makes the certificates (extra bench)")
        return
    authority = trustme.CA()
    with tempfile.TemporaryDirectory() as folder:
        ca, cert = (os.path.join(folder, name) for name in ("ca.pem", "cert.pem"))
        authority.cert_pem.write_to_path(ca)
        authority.issue_cert(_HOST).private_key_and_cert_chain_pem.write_to_path(cert)
        total = _QUICK if scale.quick else _FULL
        for size in _SIZES:
            with contextlib.ExitStack() as ends:
                sender = ends.enter_context(Child(Sender, size=size, total=total, cert=cert))
                receiver = ends.enter_context(Child(Receiver, size=size, total=total, ca=ca))
                ways = tuple(_ways(sender, receiver, total))
                target = Target(ways[0].name, "at least", _BOUND, ways[1].name)
                name = f"connect to last batch, {size_name(total)} in messages of {size_name(size)}"
                yield LineUp(
                    name, ways, scale.rounds(21, 3), (target,), panel="one stream", at={"bytes": size}
                )


def _ways(sender: Child, receiver: Child, total: int) -> Iterator[Way]:
    about = sender.call("about")

    def ours() -> Measured:
        return Measured(sent=about["sent"], **receiver.call("stream", endpoint=about["endpoint"]))

    def plain() -> Measured:
        sender.begin("answer")
        result = receiver.call("plain", port=about["port"])
        sender.finish()
        return Measured(sent=about["sent"], **result)

    def way(name: str, role: Role, once: Callable[[], Measured], *beside: str) -> Way:
        return Way(name, role, once, total, *beside)

    yield way("bowstring stream", "subject", ours, "plain ssl socket")
    yield way("plain ssl socket", "baseline", plain)


CASE: Final = Case(
    "tls",
    "bytes over tls: on loopback, beside a plain ssl socket",
    _line_ups,
    Explanation(
        measured=(
            "A stream from connect() over tls:// to its last batch, handshake included, on loopback in two "
            "processes."
        ),
        baseline="A plain ssl.SSLSocket that receives the same bytes into memory that is there already.",
        floor="",
        reading=(
            "What the protocol adds to encrypting bytes, which is most of the work. The size is that of a "
            "message."
        ),
    ),
)
