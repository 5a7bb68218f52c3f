"""A listener over a listening socket: what ``unix:`` and ``tcp:`` share."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
from collections.abc import Callable

from bowstring.errors import BrokenError, ClosedError, LimitExceeded
from bowstring.transport.channel import Channel, Listener
from bowstring.transport.descriptors import InUse
from bowstring.transport.peer import milliseconds

_OUT_OF_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class SocketListener(InUse, Listener):
    """Accepts connections on a listening socket, which it owns from now on.

    Several threads may wait in `accept` at a time.
    """

    def __init__(
        self,
        sock: socket.socket,
        uri: str,
        channels: type[Channel],
        accepted: Callable[[socket.socket, object], Channel],
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self.uri = uri
        self.channels = channels
        # Returns the channel of a new connection, from somewhere, or raises to turn it away.
        self._accepted = accepted
        self._begin_use()
        self._fds = [sock.fileno()]

    def accept(self, timeout: float) -> Channel | None:
        wait = milliseconds(timeout, "timeout") if timeout else 0
        self._enter()
        try:
            connection = self._next()
            if connection is None and wait and self._somebody_comes(wait):
                connection = self._next()
        finally:
            self._leave()
        if connection is None:
            self._seen_to()
            return None
        sock, source = connection
        try:
            return self._accepted(sock, source)
        except BaseException:
            sock.close()
            raise

    def _seen_to(self) -> None:
        """Do what is to be done now and then while nobody comes."""

    def _next(self) -> tuple[socket.socket, object] | None:
        try:
            return self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            # No peer is waiting, or it has gone again.
            self._check_open()
            return None
        except OSError as error:
            self._check_open()
            if error.errno in _OUT_OF_DESCRIPTORS:
                # The system reports that even if no peer waits.
                if not self._somebody_comes(0):
                    return None
                raise LimitExceeded(
                    f"no descriptor left for a connection to {self.uri}",
                    found=error,
                    hint="Raise the limit of open files (ulimit -n), or serve fewer peers at once.",
                ) from error
            raise BrokenError(f"a connection to {self.uri} failed before it was made", found=error) from error

    def _somebody_comes(self, wait: int) -> bool:
        poll = select.poll()
        poll.register(self._sock.fileno(), select.POLLIN)
        somebody = bool(poll.poll(wait))
        self._check_open()
        return somebody

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"{self.uri} was closed")

    def _interrupt(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def _release(self) -> None:
        self._sock.close()

    def _abandon(self) -> None:
        super()._abandon()
        self._sock.close()
