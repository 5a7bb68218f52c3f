"""``tcp:``, messages over a TCP connection; bodies go straight from and into the buffers.

There is no authentication here, and no encryption: the server refuses an address off loopback without a token and
``plaintext=True``, and :func:`is_loopback` tells. ``tls:`` makes its connections here, too.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import select
import socket
import time
import urllib.parse
from collections.abc import Sequence

from bowstring.errors import BrokenError, DeadlineExceeded, UsageError, without_frames
from bowstring.limits import Limits
from bowstring.transport.channel import Listener
from bowstring.transport.listener import SocketListener
from bowstring.transport.peer import Peer, milliseconds
from bowstring.transport.scatter_read import Rows
from bowstring.transport.sockets import StreamChannel, alone

_LOOPBACK = "127.0.0.1"
# Milliseconds that the rest of a body is waited for by who only looks.
_MOMENT = 1
# After 30 s of silence, every 10 s, three times.
_KEEP_ALIVE = (
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 30),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPINTVL), 10),
    ((socket.IPPROTO_TCP, socket.TCP_KEEPCNT), 3),
)


class TcpChannel(StreamChannel):
    """One end of a TCP connection."""

    scheme = "tcp"
    takes_rows = True

    def __init__(self, sock: socket.socket, address: str, peer: Peer, limits: Limits) -> None:
        # Requests are small and answered at once: nothing is gained by waiting to fill a segment.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A host that is gone says nothing. The kernels ask each other, also while nobody here does.
        for option, value in _KEEP_ALIVE:
            sock.setsockopt(*option, value)
        # No pacing between two processes of one machine: BBR takes every delay of a reader for a bottleneck, and
        # 64 KiB messages went at two thirds of their rate. Every kernel has Reno, and all may choose it, unless
        # somebody forbade just that. A peer that is gone already has no address.
        with contextlib.suppress(OSError):
            if sock.getsockname()[0] == sock.getpeername()[0]:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        super().__init__(sock, address, peer, limits)

    @alone
    def receive_rows(self, rows: Rows, bodies: Sequence[memoryview], idle: float = 0.0) -> int:
        """Receive what was foreseen, as far as it is there (:meth:`Channel.receive_rows`)."""
        wait = milliseconds(idle, "idle")
        count = self._receive_now(rows, bodies, waits=wait > 0)
        nothing = not (count or self._unreadable or self._start < self._end)
        if nothing and wait:
            self._wait(wait)
            count = self._receive_now(rows, bodies, waits=True)
        if wait:
            return count
        # The rest of a body has a moment to come.
        end, begun = time.monotonic() + _MOMENT / 1000, 0
        while not count and rows.begun > begun and time.monotonic() < end and self._poll.poll(_MOMENT):
            begun = rows.begun
            count = self._receive_now(rows, bodies, waits=False)
        return count

    def _receive_now(self, rows: Rows, bodies: Sequence[memoryview], *, waits: bool) -> int:
        if self._unreadable:
            rows.begun = 0
            return 0  # `receive` says why
        begun = rows.begun
        if not begun and self._start < self._end:
            begun = rows.begin(self._ahead_view[self._start : self._end], bodies)
            if not begun:
                return 0
        try:
            self._settled = False
            count = self._read_rows(rows, bodies, begun, waits=waits)
            self._settled = True
            return count
        except BaseException as error:
            self._stop_reading(error)
            raise

    def _read_rows(self, rows: Rows, bodies: Sequence[memoryview], begun: int, *, waits: bool) -> int:
        if not rows.begun:
            self._start += begun
        places = rows.places(bodies, begun) if self._start == self._end else []
        nbytes = begun + (self._read_now(places) if places else 0)
        turn = rows.before + rows.body
        count, rest = divmod(nbytes, turn)
        rows.expect(count)
        right = rows.right(count + (rest >= rows.before))
        rows.begun = 0
        if right <= count:
            # Of what comes next not even the header is there, or it is something else.
            behind = self._ahead_view[self._start : self._end]
            self._put_back(rows.rest(bodies, right, nbytes - right * turn) + behind)
            self.position += right * turn
            return right
        if count or not waits:
            rows.go_on(count, rest)
            self.position += count * turn
            return count
        rows.landing = True
        try:
            self._read_whole(bodies[0][rest - rows.before :])
        finally:
            rows.landing = False
        self.position += turn
        return 1

    def _read_now(self, places: list[memoryview]) -> int:
        """Read what is there; 0 if that is nothing, or the end."""
        try:
            return self._sock.recvmsg_into(places, 0, socket.MSG_DONTWAIT)[0]
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._cut_off(error) from error


def listen(address: str, limits: Limits) -> Listener:
    """Listen on ``tcp://host:port``; loopback and a free port where they are left out."""
    sock = listening(address)
    uri = f"tcp://{spelled(sock.getsockname())}"
    return SocketListener(
        sock, uri, TcpChannel, lambda sock, at: TcpChannel(sock, uri, Peer.at(spelled(at)), limits)
    )


def listening(address: str) -> socket.socket:
    """Return a socket that listens on ``scheme://host:port``."""
    host, port = host_and_port(address)
    failure: OSError | None = None
    for family, place in look_up(address, host, port):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(place)
            sock.listen(socket.SOMAXCONN)
            return sock
        except OSError as error:
            sock.close()
            failure = without_frames(error)
    raise UsageError(
        f"cannot listen on {address}", found=failure, hint="Port 0 picks a free port."
    ) from failure


def dial(address: str, limits: Limits, deadline: float) -> TcpChannel:
    """Connect to ``tcp://host:port``, trying every address of the host within ``deadline`` seconds."""
    sock, peer = connected(address, deadline)
    return TcpChannel(sock, address, peer, limits)


def connected(address: str, deadline: float) -> tuple[socket.socket, Peer]:
    """Return a socket that is connected to ``scheme://host:port``, and who is at its other end."""
    milliseconds(deadline, "deadline")
    host, port = host_and_port(address)
    if port == 0:
        raise UsageError("a port to dial is needed", found=address)
    end = time.monotonic() + deadline
    failure: OSError | None = None
    for family, place in look_up(address, host, port):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            _connect(sock, place, end)
            return sock, Peer.at(spelled(sock.getpeername()))
        except OSError as error:
            sock.close()
            failure = without_frames(error)
    if isinstance(failure, TimeoutError):
        raise DeadlineExceeded(f"nobody answered at {address} for {deadline:g} s") from failure
    raise BrokenError(f"nobody listens at {address}", found=failure) from failure


def _connect(sock: socket.socket, place: tuple[object, ...], end: float) -> None:
    sock.setblocking(False)
    code = sock.connect_ex(place)
    if code == errno.EINPROGRESS:
        poll = select.poll()
        poll.register(sock, select.POLLOUT)
        if not poll.poll(milliseconds(max(0.0, end - time.monotonic()), "deadline")):
            raise TimeoutError(errno.ETIMEDOUT, "no answer in time")
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, errno.errorcode.get(code, "error"))
    # A free port of this machine can be dialled from that very port: TCP then connects the socket to itself.
    if sock.getsockname() == sock.getpeername():
        raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens")


def is_loopback(address: str) -> bool:
    """Return whether nobody off this machine can reach the address; a name is looked up."""
    host, port = host_and_port(address)
    return all(is_loopback_ip(str(place[0])) for _, place in look_up(address, host, port))


def ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address that a host is, unless it is a name."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0])
    return None


def is_loopback_ip(host: str) -> bool:
    """Whether a host is an IP address of loopback."""
    ip = ip_of(host)
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        return ip.ipv4_mapped.is_loopback
    return ip is not None and ip.is_loopback


def host_and_port(address: str) -> tuple[str, int]:
    """Return host and port of an address; loopback and 0 where they are left out."""
    scheme = address.partition(":")[0]
    with contextlib.suppress(ValueError):
        parts = urllib.parse.urlsplit(address)
        port = parts.port or 0
        extra = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
        if address.startswith(f"{scheme}://") and not extra:
            return parts.hostname or _LOOPBACK, port
    name = scheme.upper()
    raise UsageError(
        f"not an address of a {name} listener",
        expected=f"{scheme}://host:port, IPv6 in brackets",
        found=repr(address),
    )


def look_up(address: str, host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[object, ...]]]:
    """Return the families and addresses of a host."""
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"the host of {address} is unknown", found=error) from error
    return [(family, place) for family, _, _, _, place in answers]


def spelled(place: object) -> str:
    """Return a socket's address as it stands in a URI."""
    assert isinstance(place, tuple)
    host, port = place[0], place[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
