"""Listening and dialling over UCX, and the contexts of this process."""

from __future__ import annotations

import functools
import os
import resource
import secrets
import socket
import threading
import time
from typing import Final

from bowstring.errors import (
    BrokenError,
    ClosedError,
    DeadlineExceeded,
    ForkedError,
    LimitExceeded,
    UsageError,
    without_frames,
)
from bowstring.limits import Limits
from bowstring.transport import tcp
from bowstring.transport.channel import Channel, Listener
from bowstring.transport.descriptors import InUse
from bowstring.transport.peer import Peer, milliseconds
from bowstring.transport.ucx.attendant import begin, call_soon
from bowstring.transport.ucx.channel import UcxChannel
from bowstring.transport.ucx.context import Context, Failure
from bowstring.transport.ucx.link import Link, Sleeper, close_sockets
from bowstring.transport.ucx.worker import ConnectionRequest, ListenerHandle, Worker

# A client of ours says so by the upper half of the number that its worker has.
_OURS: Final = 0xB057_0001
_BACKLOG: Final = 1024
# Where the user has none. What is longer than the threshold waits for the receiver, which may be about to send,
# too; bodies of 64 KiB must not, which took three times the processor time over TCP. Segments of 8 KiB, the
# default, went over loopback at a fifth of the speed; but none may be larger than the 64 KiB that a peer has for
# what it receives (TCP_RX_SEG_SIZE), since UCX writes on behind them. UCX 1.22 ends the process where the peer is
# killed while the two connect, if a way to it cannot be opened at once: its segments of shared memory, or a socket
# that blocks.
_SETTINGS: Final = {
    "RNDV_THRESH": "128k",
    "TCP_TX_SEG_SIZE": "64k",
    "TCP_CONN_NB": "y",
    "TLS": "^posix,sysv,xpmem",
}
_POLL: Final = 0.0005
# A worker takes some ten, and more while peers connect to it.
_DESCRIPTORS: Final = 40
is_loopback = tcp.is_loopback

_making = threading.Lock()
_HINT: Final = (
    "UCX_TLS and UCX_NET_DEVICES choose transports and devices; `bowstring doctor` says what is there."
)


_contexts: dict[tuple[int, bool, bool], Context] = {}


# The lock may have been held by a thread that the child does not have.
def _renew_lock() -> None:
    global _making  # noqa: PLW0603  one for the process
    _making = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def shared_context(*, loopback: bool, version6: bool = False) -> Context:
    """Return the context of this process for connections on loopback, or for any, over IPv4 or IPv6."""
    key = os.getpid(), loopback, version6
    with _making:
        if any(pid != key[0] for pid, *_ in _contexts):
            raise ForkedError(
                "UCX was in use when this process was forked, and cannot be used in the child",
                hint="Start processes with 'spawn', or let the parent use ucx: after it has forked.",
            )
        if key not in _contexts:
            settings = {"TCP_CM_REUSEADDR": "y"}
            settings |= {name: value for name, value in _SETTINGS.items() if f"UCX_{name}" not in os.environ}
            if version6 and "UCX_TCP_AF_PRIO" not in os.environ:
                settings["TCP_AF_PRIO"] = "inet6"
            # UCX listens on each device that it uses, for more connections of a peer that it knows.
            if loopback and "UCX_NET_DEVICES" not in os.environ:
                settings["NET_DEVICES"] = "lo"
            try:
                _contexts[key] = Context(settings)
            except Failure as failure:
                raise UsageError("UCX cannot be used so", found=str(failure), hint=_HINT) from failure
            begin()
        return _contexts[key]


def _turn_away(worker: Worker, handle: ListenerHandle) -> None:
    """Turn away who waits, and let go of a listener."""
    while handle.requests:
        handle.reject(handle.requests.popleft())
    handle.close()
    worker.close()


class UcxListener(InUse, Listener):
    """Accepts connections over UCX; several threads may wait in `accept` at a time."""

    channels = UcxChannel

    def __init__(self, context: Context, host: str, port: int, limits: Limits) -> None:
        self._context = context
        self._limits = limits
        self._worker = _worker(context, f"ucx://{tcp.spelled((host, port))}")
        try:
            self._handle = ListenerHandle(self._worker, host, port)
        except BaseException:
            self._worker.close()
            raise
        self._end = functools.partial(_turn_away, self._worker, self._handle)
        self.uri = f"ucx://{tcp.spelled(self._handle.address)}"
        self._lock = threading.Lock()
        self._begin_use()
        self._waiting = Sleeper(self._worker.fd)

    def accept(self, timeout: float) -> Channel | None:
        milliseconds(timeout, "timeout")
        self._enter()
        try:
            request = self._next(timeout)
            return None if request is None else self._take(request)
        finally:
            self._leave()

    def _next(self, timeout: float) -> ConnectionRequest | None:
        end = time.monotonic() + timeout
        while True:
            with self._lock:
                while self._worker.progress():
                    pass
                requests = self._handle.requests
                while len(requests) > _BACKLOG:
                    self._handle.reject(requests.pop())
                if requests:
                    request = requests.popleft()
                    if requests:
                        self._waiting.wake()
                    return request
                armed = self._worker.arm()
            if self._closed:
                raise ClosedError(f"{self.uri} was closed")
            left = end - time.monotonic()
            if left <= 0:
                return None
            if armed:
                self._waiting.sleep(left)

    def _take(self, request: ConnectionRequest) -> Channel:
        try:
            worker = _worker(self._context, self.uri)
        except LimitExceeded:
            with self._lock:
                self._handle.reject(request)
            raise
        try:
            with self._lock:  # the request belongs to the worker of the listener
                endpoint = worker.accept(request)
        except Failure as failure:
            worker.close()
            raise BrokenError(
                f"a connection to {self.uri} failed before it was made",
                found=str(failure),
                hint="Both ends must use the same error handling mode (UCP_ERR_HANDLING_MODE_NONE).",
            ) from failure
        link = Link(worker, endpoint, request.address, ours=request.client_id >> 32 == _OURS)
        return UcxChannel(link, self.uri, Peer.at(request.address), self._limits, dialled=False)

    def _interrupt(self) -> None:
        self._waiting.wake()

    def _release(self) -> None:
        self._waiting.close()
        self._end()

    def _abandon(self) -> None:
        super()._abandon()
        place = self._handle.address
        close_sockets(  # a copy of a listening socket would keep its port
            lambda copy: (
                bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
                and copy.getsockname()[:2] == place
            )
        )

    def __del__(self) -> None:
        if hasattr(self, "_users") and not (self._abandoned or self._released):
            # Inside a callback of UCX, maybe, which must not let go of anything of UCX.
            self._closed = self._released = True
            call_soon(self._end)
            self._waiting.close()


def _worker(context: Context, where: str, client_id: int = 0) -> Worker:
    """Return a new worker."""
    failed = ""
    with _making:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        left = limit - len(os.listdir("/proc/self/fd"))
        if left >= _DESCRIPTORS:
            try:
                return Worker(context, client_id)
            except Failure as failure:
                failed = str(failure)
    raise LimitExceeded(
        f"no descriptors are left for a worker of UCX at {where}",
        expected=f"{_DESCRIPTORS} or more",
        found=failed or str(max(0, left)),
        hint="Raise the limit of open files (ulimit -n), or serve fewer peers at once.",
    )


def listen(address: str, limits: Limits) -> Listener:
    """Listen on ``ucx://host:port``; loopback and a free port where they are left out."""
    host, port = tcp.host_and_port(address)
    loopback = is_loopback(address)
    failure: Failure | None = None
    for family, place in tcp.look_up(address, host, port):
        context = shared_context(loopback=loopback, version6=family == socket.AF_INET6)
        try:
            return UcxListener(context, str(place[0]), port, limits)
        except Failure as error:
            failure = without_frames(error)
    raise UsageError(
        f"cannot listen on {address}", found=str(failure), hint=f"Port 0 picks a free port. {_HINT}"
    ) from failure


def dial(address: str, limits: Limits, deadline: float) -> UcxChannel:
    """Connect to ``ucx://host:port``, trying every address of the host within ``deadline`` seconds."""
    milliseconds(deadline, "deadline")
    host, port = tcp.host_and_port(address)
    if port == 0:
        raise UsageError("a port to dial is needed", found=address)
    end = time.monotonic() + deadline
    loopback = is_loopback(address)
    lost = ""
    for family, place in tcp.look_up(address, host, port):
        context = shared_context(loopback=loopback, version6=family == socket.AF_INET6)
        link = _connect(context, address, str(place[0]), port)
        try:
            lost = _reached(link, end)
        except BaseException:
            link.end()
            raise
        if not lost:
            return UcxChannel(link, address, Peer.at(tcp.spelled(place)), limits, dialled=True)
        link.end()
    if time.monotonic() >= end:
        raise DeadlineExceeded(f"nobody answered at {address} for {deadline:g} s")
    raise BrokenError(f"nobody listens at {address}", found=lost, hint=_HINT)


def _connect(context: Context, address: str, host: str, port: int) -> Link:
    worker = _worker(context, address, _OURS << 32 | secrets.randbits(32))
    try:
        return Link(worker, worker.connect(host, port), tcp.spelled((host, port)), ours=False)
    except Failure as failure:
        worker.close()
        raise BrokenError(f"{address} cannot be reached", found=str(failure), hint=_HINT) from failure


def _reached(link: Link, end: float) -> str:
    """Wait until the listener's host has answered; return why it has not, or nothing."""
    while True:
        link.worker.progress()
        if link.endpoint.failed:
            return link.endpoint.failed
        if link.endpoint.peer and link.ways:
            return ""
        if time.monotonic() >= end:
            return "no answer"
        time.sleep(_POLL)
