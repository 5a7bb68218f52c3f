"""``unix:``, messages over a Unix socket, which also carries file descriptors.

Only processes of the same user speak to each other: the socket file has mode 0600 from its first moment, and
both sides ask the kernel who the other one is. That goes for root too: it neither gets in nor is believed.
"""

from __future__ import annotations

import array
import errno
import logging
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from bowstring.errors import (
    AccessDenied,
    BowstringError,
    BrokenError,
    DeadlineExceeded,
    LimitExceeded,
    ProtocolError,
    UsageError,
)
from bowstring.limits import Limits
from bowstring.memory.slab import NO_DESCRIPTOR, Descriptor, on_their_way
from bowstring.transport.channel import Listener
from bowstring.transport.descriptors import MOST_DESCRIPTORS, ROOM, close_all, descriptors_in
from bowstring.transport.framing import Views
from bowstring.transport.listener import SocketListener
from bowstring.transport.peer import Peer
from bowstring.transport.socket_file import MOST_BYTES, SocketFile, address_of, connectable, path_of
from bowstring.transport.sockets import SEND, SEND_BUFFER, SEND_NOW, StreamChannel

if TYPE_CHECKING:
    from bowstring.memory import Region

_log = logging.getLogger("bowstring")

# What the registry of transports says without a connection.
passes_memory: Final = "fd"

_FIRST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.05
_NO_ANCILLARY: tuple[tuple[int, int, array.array[int]], ...] = ()
# As plain numbers: an operation on two of socket's enumeration takes as long as the system call.
_LOOK: Final = int(socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
_TRUNCATED: Final = int(socket.MSG_CTRUNC)


class UnixChannel(StreamChannel):
    """One end of a connection over a Unix socket."""

    scheme = "unix"
    passes_memory = "fd"
    authenticated = True
    most_attachments = MOST_DESCRIPTORS

    def __init__(self, sock: socket.socket, address: str, peer: Peer, limits: Limits) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        super().__init__(sock, address, peer, limits)

    def _check_attachments(self, attachments: tuple[object, ...]) -> None:
        if len(attachments) > MOST_DESCRIPTORS:
            raise UsageError(
                "too many file descriptors on one message",
                expected=f"at most {MOST_DESCRIPTORS}",
                found=len(attachments),
                hint="Spread them over several messages.",
            )
        for fd in attachments:
            if not isinstance(fd, int) or isinstance(fd, bool):
                raise UsageError("attachments on unix: are file descriptors", found=repr(fd))
            try:
                os.fstat(fd)
            except (OSError, OverflowError) as error:
                raise UsageError("an attachment is not an open file descriptor", found=fd) from error

    def attachments_of(self, region: Region) -> tuple[object, ...]:
        # Lent memory is opened by what the message says of it.
        return () if region.lent or region.slab is None else (region.slab.fd,)

    def drop(self, attachments: tuple[object, ...]) -> None:
        close_all(attachments)

    def _push(self, views: Views, attachments: tuple[object, ...], *, wait: bool = True) -> int:
        ancillary = _NO_ANCILLARY
        if attachments:
            ancillary = ((socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", attachments)),)  # type: ignore[arg-type]
        try:
            return self._sock.sendmsg(views, ancillary, SEND if wait else SEND_NOW)
        except BlockingIOError:
            return -1

    def _recv(self, view: memoryview, *, wait: bool) -> int:
        if wait:
            # No room for descriptors: the kernel closes any that ride on a body, and says so.
            got, _, flags, _ = self._sock.recvmsg_into([view], 0, socket.MSG_WAITALL)
            if flags & _TRUNCATED:
                raise ProtocolError("file descriptors in the middle of a body", where=str(self))
            return got
        # C code notes what came, so that no interrupt comes between.
        received: list[tuple[int, list[tuple[int, int, bytes]], int, object]] = []
        arrived: list[Descriptor] = []
        try:
            received += map(self._sock.recvmsg_into, ([view],), (ROOM,), (_LOOK,))
            got, ancillary, flags, _ = received[0]
            if not (ancillary or flags & _TRUNCATED):
                return got
            numbers = descriptors_in(ancillary)
            arrived.extend(map(Descriptor, numbers))
            on_their_way.update(numbers)
        except BaseException:
            if received and not arrived:  # an interrupt: nothing owns what came
                close_all(descriptors_in(received[0][1]))
            raise
        if flags & _TRUNCATED:
            close_all(arrived)
            raise LimitExceeded(
                "file descriptors from the peer were lost",
                found=f"{len(arrived)} arrived, then the process had no room for more",
                where=str(self),
                hint="Raise the limit of open files (ulimit -n).",
            )
        # Descriptors that came and were not claimed yet, with the range of the stream that came in one call.
        first = self.position + self._end - self._start
        self._arrivals.append((first, first + got, arrived))
        return got

    def _claim(self, count: int, begin: int, end: int) -> tuple[object, ...]:
        arrivals = self._arrivals
        if not (count or arrivals):
            return ()
        claimed: list[Descriptor] = []
        if count and arrivals and arrivals[0][0] <= begin < arrivals[0][1]:
            claimed = arrivals.popleft()[2]
        if len(claimed) != count:
            close_all(claimed)
            raise ProtocolError("a message without its file descriptors", expected=count, found=len(claimed))
        if arrivals and arrivals[0][1] <= end:
            close_all(claimed)
            raise ProtocolError("file descriptors that belong to no message", found=len(arrivals[0][2]))
        return tuple(claimed)

    def _abandon(self) -> None:
        super()._abandon()
        self._arrivals.clear()


class UnixListener(SocketListener):
    """Accepts connections of the same user on a socket file."""

    def __init__(self, sock: socket.socket, file: SocketFile, limits: Limits) -> None:
        self._file = file
        self._renewing = threading.RLock()
        self._reported = False
        uri = address_of(file.path)

        def accepted(sock: socket.socket, _: object) -> UnixChannel:
            return UnixChannel(sock, uri, _same_user(sock, uri), limits)

        super().__init__(sock, uri, UnixChannel, accepted)

    def _seen_to(self) -> None:
        """Listen on a new file, if somebody has removed the one that readers dial."""
        if self._file.is_there:
            return
        with self._renewing:
            if self._closed or self._file.is_there:
                return
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                    file = self._file.made_anew(sock)
                    sock.setblocking(False)
                    # Threads that wait at the former socket come back when their time is over.
                    os.dup2(sock.fileno(), self._sock.fileno(), inheritable=False)
                self._file = file
            except (BowstringError, OSError) as error:
                if not self._reported:
                    _log.error(
                        "the socket file %s is gone, and nobody can connect: %s", self._file.path, error
                    )
                self._reported = True
            else:
                self._reported = False
                _log.warning("the socket file %s was removed; it was made anew", self._file.path)

    def close(self) -> None:
        if self._abandoned:
            return
        with self._renewing:
            # First the name, then the socket: while it listens nobody takes the file for an abandoned one.
            if not self._closed:
                self._file.remove()
            super().close()


def listen(address: str, limits: Limits) -> Listener:
    """Listen on ``unix:/path/to.sock``, or on a new path in a private folder for ``unix:``."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        return UnixListener(sock, SocketFile.listen(sock, path_of(address)), limits)
    except BaseException:
        sock.close()
        raise


def dial(address: str, limits: Limits, deadline: float) -> UnixChannel:
    """Connect to ``unix:/path/to.sock`` within ``deadline`` seconds."""
    path = path_of(address)
    if path is None:
        raise UsageError("a path to dial is needed", found=address)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _connect(sock, path, deadline)
        return UnixChannel(sock, address, _same_user(sock, address), limits)
    except BaseException:
        sock.close()
        raise


def _connect(sock: socket.socket, path: str, deadline: float) -> None:
    # A Unix socket connects at once or not at all, but where the server's queue of connections is full.
    end, pause = time.monotonic() + deadline, _FIRST_PAUSE
    sock.setblocking(False)
    while True:
        try:
            if len(os.fsencode(path)) <= MOST_BYTES:
                sock.connect(path)
            else:
                with connectable(path) as place:
                    sock.connect(place)
            return
        except BlockingIOError as error:
            left = end - time.monotonic()
            if left <= 0:
                raise DeadlineExceeded(
                    f"the server at {path} took no connection for {deadline:g} s"
                ) from error
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
        except PermissionError as error:
            raise AccessDenied(
                f"{path} belongs to another user", hint="Only the same user gets in."
            ) from error
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                raise  # which the registry of transports names
            reason = "the socket's server is gone" if error.errno == errno.ECONNREFUSED else error.strerror
            raise BrokenError(
                f"nobody listens at {path}",
                found=reason,
                hint="Start the server; containers must both mount the socket's folder.",
            ) from error


def _same_user(sock: socket.socket, address: str) -> Peer:
    peer = Peer.of_socket(sock)
    if peer.uid != os.geteuid():
        peer.close()
        raise AccessDenied(
            f"the peer at {address} runs as another user",
            expected=f"uid {os.geteuid()}",
            found=peer.description,
            hint="Processes of different users, root included, are kept apart on unix:; tcp: has tokens.",
        )
    return peer


def is_loopback(address: str) -> bool:
    """Return ``True``: a Unix socket is reached from its own machine only."""
    path_of(address)
    return True
