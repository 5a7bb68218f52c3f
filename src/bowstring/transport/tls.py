"""``tls:``, the messages of ``tcp:`` inside TLS 1.3, by the standard library's ``ssl``.

``ssl.SSLSocket`` cannot gather and scatter, nor serve two threads at a time. So `ssl.SSLObject` encrypts between
two buffers in memory: one system call moves many records, and waits for the network happen outside OpenSSL's lock.
The first call that sends or receives makes the handshake, within its deadline: a silent peer blocks no listener.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Final

from bowstring.errors import (
    AccessDenied,
    BowstringError,
    LimitExceeded,
    ProtocolError,
    UsageError,
)
from bowstring.limits import Limits
from bowstring.transport import tcp
from bowstring.transport.certificates import (
    WHOM_TO_TRUST,
    TlsConfig,
    asks_certificates,
    client_context,
    server_context,
)
from bowstring.transport.channel import UNAUTHENTICATED_BYTES, Listener
from bowstring.transport.framing import Views
from bowstring.transport.listener import SocketListener
from bowstring.transport.peer import Peer
from bowstring.transport.sockets import SEND, SEND_NOW, alone

# What the registry of transports asks a module: then `listen` and `dial` take certificates.
encrypts: Final = True

is_loopback = tcp.is_loopback

_SILENT: Final = -1
_SLICE: Final = 0.1
_SLICE_MILLISECONDS: Final = 100
# Sealed together; of larger pieces the records of one fall out of the processor's caches before they are sent.
_MOST_SEALED: Final = 256 << 10
# Up to here pieces are joined, so that each does not become a record of its own.
_SMALL: Final = 16 << 10
# Read from the socket at once: from a peer that is not let in, of what begins, and of the rest of a body.
_LITTLE: Final = 4 << 10
_FEW: Final = 16 << 10
_MANY: Final = 256 << 10
# What a peer that is not let in may send beside what is in its records: a handshake, and the records' own bytes.
_MOST_BESIDE: Final = 2 * UNAUTHENTICATED_BYTES
_MOST_BESIDE_WITH_CERTIFICATES: Final = 64 << 10
# The largest record: nothing of it is read before all of it is there.
_RECORD: Final = (16 << 10) + 256


class TlsChannel(tcp.TcpChannel):
    """One end of a TLS connection; `host` is what the server's certificate must name, ``None`` at the server."""

    scheme = "tls"

    def __init__(
        self,
        sock: socket.socket,
        address: str,
        peer: Peer,
        limits: Limits,
        context: ssl.SSLContext,
        host: str | None = None,
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, host is None, host)
        self._is_server = host is None
        self._asks = host is None and context.verify_mode == ssl.CERT_REQUIRED
        # OpenSSL lets one thread at a time read or write; no wait happens while it is held.
        self._speaking = threading.Lock()
        self._shaking = threading.Lock()
        self._shaken = False
        # Records that are on their way, of how many bytes, for how many bytes of messages, of which so many count
        # as sent.
        self._sealed = memoryview(b"")
        self._sealed_bytes = self._plain = self._counted = 0
        self._raw = memoryview(bytearray(_LITTLE))
        self._beside = 0
        super().__init__(sock, address, peer, limits)

    # -- the handshake -------------------------------------------------------------------------------------

    def _shake(self, *, wait: bool) -> bool:
        """Take the handshake on, as far as it goes at once, or in a slice of time; return whether it is done."""
        if not self._shaking.acquire(timeout=_SLICE if wait else 0):
            return False
        try:
            while not self._shaken:
                done = self._step()
                self._flush()
                if done:
                    version = self._tls.version()
                    if version != "TLSv1.3":
                        raise ProtocolError(
                            "the peer speaks an older TLS", expected="TLSv1.3", found=version, where=str(self)
                        )
                    self._beside = 0
                    self.certified = self._asks
                    self._shaken = True
                elif not self._pull(_FEW, wait=wait):
                    raise self._cut_off(
                        "the peer closed the connection in the TLS handshake, as one at tcp: would"
                    )
        except BlockingIOError:
            return False
        finally:
            self._shaking.release()
        return True

    def _step(self) -> bool:
        with self._speaking:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return False
            except ssl.SSLError as error:
                failure = self._failure(error)
                if not self._sealed:  # an alert for the peer, if it can be sent at once
                    with contextlib.suppress(OSError):
                        self._sock.send(self._outgoing.read(), socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
                raise failure from None
        return True

    def _flush(self) -> None:
        """Send what the handshake has made; nobody else sends before it is done."""
        while self._sealed or self._outgoing.pending:
            self._sealed = self._sealed or memoryview(self._outgoing.read())
            self._sealed = self._sealed[self._sock.send(self._sealed, socket.MSG_NOSIGNAL) :]

    def _failure(self, error: ssl.SSLError) -> BowstringError:
        """Return what an error of OpenSSL means."""
        other = "client" if self._is_server else "server"
        reason = error.reason or str(error)
        words = reason.lower().replace("_", " ")
        if isinstance(error, ssl.SSLCertVerificationError):
            return AccessDenied(
                f"the certificate of the {other} is not accepted",
                found=error.verify_message,
                where=str(self),
                hint="TlsConfig.ca names the authorities that are trusted."
                if self._is_server
                else WHOM_TO_TRUST,
            )
        if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return AccessDenied("the client has no certificate", where=str(self))
        if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
            return AccessDenied(
                f"the {other} does not accept the certificate of this end",
                found=words,
                where=str(self),
                hint="TlsConfig.ca of the other end says whom it trusts."
                if self._is_server
                else "It asks for one of an authority that it trusts: connect(tls=bow.TlsConfig(cert=…, key=…)).",
            )
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return self._cut_off("the peer closed the connection")
        if not self._shaken:
            return ProtocolError(
                "the TLS handshake failed",
                found=words,
                where=str(self),
                hint="A server at tcp: does not speak TLS, and one at tls: speaks nothing else.",
            )
        return ProtocolError("a record of TLS is wrong", found=words, where=str(self))

    # -- sending -------------------------------------------------------------------------------------------

    def _push(
        self,
        views: Views,
        attachments: tuple[object, ...],  # noqa: ARG002 - there are none
        *,
        wait: bool = True,
    ) -> int:
        try:
            if not (self._shaken or self._shake(wait=wait)):
                return _SILENT
            if not self._sealed:
                self._seal(views)
            sent = self._sock.send(self._sealed, SEND if wait else SEND_NOW)
        except BlockingIOError:
            return _SILENT
        except OSError as error:
            if not isinstance(error, BowstringError):
                with contextlib.suppress(UsageError):  # another thread receives
                    self._look_for_alert()
            raise
        self._sealed = self._sealed[sent:]
        reached = self._plain * (self._sealed_bytes - len(self._sealed)) // self._sealed_bytes
        moved, self._counted = reached - self._counted, reached
        return moved

    def _seal(self, views: Views) -> None:
        """Make records of the first bytes that are to be sent."""
        self._plain = self._counted = 0
        with self._speaking:
            for piece in _joined(views):
                try:
                    self._tls.write(piece)
                except ssl.SSLError as error:
                    raise self._failure(error) from None
                self._plain += len(piece)
            self._sealed = memoryview(self._outgoing.read())
        self._sealed_bytes = len(self._sealed)

    @alone
    def _look_for_alert(self) -> None:
        """Raise what the peer said before it hung up, if that can be read still; other data are kept."""
        if self._end < len(self._ahead):
            self._look()

    # -- receiving -----------------------------------------------------------------------------------------

    def _recv(self, view: memoryview, *, wait: bool) -> int:
        return self._open(view, len(view), wait=wait)

    def _read_now(self, places: list[memoryview]) -> int:
        got, wanted = 0, sum(map(len, places))
        try:
            for place in places:
                at = 0
                while at < len(place):
                    count = self._open(place[at:], wanted - got, wait=False)
                    if not count:
                        return got
                    at, got = at + count, got + count
        except BlockingIOError:
            pass
        except OSError as error:
            if isinstance(error, BowstringError):
                raise
            raise self._cut_off(error) from error
        return got

    def _wait(self, timeout: int) -> bool:
        # While another thread shakes hands, it may read what comes for this one.
        if self._incoming.pending:
            return False
        return super()._wait(timeout if self._shaken else min(timeout, _SLICE_MILLISECONDS))

    def _open(self, view: memoryview, wanted: int, *, wait: bool) -> int:
        """Read what comes, 0 at the end; with `wait` until the view is full, or for a slice of time.

        Of the socket, so many bytes are `wanted` in all.
        """
        if not (self._shaken or self._shake(wait=wait)):
            raise BlockingIOError
        got, end = 0, time.monotonic() + _SLICE
        while True:
            count, ended = self._read(view[got:])
            got += count
            # A byte now and then must not keep the caller from looking at its own deadline.
            if ended or got == len(view) or (got and not (wait and time.monotonic() < end)):
                return got
            try:
                if not self._pull(wanted - got, wait=wait):
                    return got
            except BlockingIOError:
                if got:
                    return got
                raise

    def _read(self, view: memoryview) -> tuple[int, bool]:
        """Read what is in the records that came; return how many bytes, and whether no more can come."""
        got = 0
        with self._speaking:
            try:
                while got < len(view):
                    count = int(self._tls.read(len(view) - got, view[got:]))  # into a buffer: never bytes
                    if not count:
                        return got, True
                    got += count
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                raise self._failure(error) from None
            finally:
                self._beside -= got
        return got, False

    def _pull(self, wanted: int, *, wait: bool) -> int:
        """Take records from the socket; return how many bytes, 0 at the end."""
        restricted = self.restriction is not None
        size = _LITTLE if restricted else _FEW if wanted <= _FEW else _MANY
        if len(self._raw) < size:
            self._raw = memoryview(bytearray(size))
        got = self._sock.recv_into(self._raw, size, 0 if wait else socket.MSG_DONTWAIT)
        with self._speaking:
            self._incoming.write(self._raw[:got])
        if restricted:
            self._beside += got
            most = _MOST_BESIDE_WITH_CERTIFICATES if self._asks else _MOST_BESIDE
            if self._beside > most + (_RECORD if self._shaken else 0):
                raise LimitExceeded(
                    "the peer sends too much before it is let in",
                    expected=f"at most {most} bytes beside its messages",
                    where=str(self),
                )
        return got


def _joined(views: Views) -> Iterator[bytes | memoryview]:
    """Yield the first bytes of some views, small ones together."""
    small: list[bytes | memoryview] = []
    size, left = 0, _MOST_SEALED
    for view in views:
        if len(view) < _SMALL and size + len(view) <= _SMALL and left > size + len(view):
            small.append(view)
            size += len(view)
            continue
        if small:
            yield b"".join(small)
            left -= size
            small, size = [], 0
        piece = view[:left] if isinstance(view, bytes) and len(view) <= left else memoryview(view)[:left]
        yield piece
        left -= len(piece)
        if not left:
            return
    if small:
        yield b"".join(small)


def listen(address: str, limits: Limits, tls: TlsConfig | ssl.SSLContext | None = None) -> Listener:
    """Listen on ``tls://host:port``; loopback and a free port where they are left out."""
    context = server_context(tls)
    host = tcp.host_and_port(address)[0]
    sock = tcp.listening(address)
    place = tcp.spelled(sock.getsockname())
    if tcp.ip_of(host) is None:  # certificates name hosts by name
        place = f"{host}:{place.rpartition(':')[2]}"
    uri = f"tls://{place}"

    def accepted(sock: socket.socket, source: object) -> TlsChannel:
        return TlsChannel(sock, uri, Peer.at(tcp.spelled(source)), limits, context)

    listener = SocketListener(sock, uri, TlsChannel, accepted)
    listener.asks_certificates = asks_certificates(context)
    return listener


def dial(
    address: str, limits: Limits, deadline: float, tls: TlsConfig | ssl.SSLContext | None = None
) -> TlsChannel:
    """Connect to ``tls://host:port``, trying every address of the host within ``deadline`` seconds.

    Whether the server is trusted is found out by the first call that sends or receives.
    """
    context = client_context(tls)
    host = tcp.host_and_port(address)[0].partition("%")[0]
    sock, peer = tcp.connected(address, deadline)
    try:
        return TlsChannel(sock, address, peer, limits, context, host)
    except BaseException:
        sock.close()
        raise
