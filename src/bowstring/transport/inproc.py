"""``inproc:``, messages between threads of one process; attachments are any objects, by reference.

The bytes go through a pair of sockets, so that a sender may reuse its buffers as on any other transport.
What should not be copied travels as an attachment.
"""

from __future__ import annotations

import collections
import contextlib
import os
import secrets
import select
import socket
import time
import urllib.parse
import weakref
from typing import TYPE_CHECKING, Final

from bowstring.errors import BrokenError, ClosedError, DeadlineExceeded, UsageError
from bowstring.limits import Limits
from bowstring.memory.slab import opened
from bowstring.transport.channel import Channel, Listener
from bowstring.transport.descriptors import InUse
from bowstring.transport.framing import Views
from bowstring.transport.peer import Peer, milliseconds
from bowstring.transport.sockets import SEND_BUFFER, StreamChannel

if TYPE_CHECKING:
    from bowstring.memory import Region

    _Attachments = collections.deque[tuple[object, ...]]

# What the registry of transports says without a connection.
passes_memory: Final = "object"

# Connections that wait to be accepted, of two descriptors each.
_BACKLOG = 128
_PAUSE = 0.001
# More than threads can wait for one listener.
_ALL = 1 << 32
_MOST_ATTACHMENTS = 0xFFFF

_listeners: weakref.WeakValueDictionary[str, InprocListener] = weakref.WeakValueDictionary()


class InprocChannel(StreamChannel):
    """One end of a connection within the process."""

    scheme = "inproc"
    passes_memory = "object"
    authenticated = True
    most_attachments = _MOST_ATTACHMENTS

    def __init__(
        self,
        sock: socket.socket,
        address: str,
        limits: Limits,
        incoming: _Attachments,
        outgoing: _Attachments,
    ) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        super().__init__(sock, address, Peer.in_this_process(), limits)
        # What travels beside messages that were not received yet, in their order.
        self._arrivals, self._outgoing = incoming, outgoing

    def attachments_of(self, region: Region) -> tuple[object, ...]:
        return (region,)

    def _check_attachments(self, attachments: tuple[object, ...]) -> None:
        if len(attachments) > _MOST_ATTACHMENTS:
            raise UsageError("too many attachments on one message", expected=f"at most {_MOST_ATTACHMENTS}")

    def _push(self, views: Views, attachments: tuple[object, ...], *, wait: bool = True) -> int:
        if not attachments:
            return super()._push(views, (), wait=wait)
        # The other end looks for them as soon as the first byte is there, maybe before an interrupt here.
        self._outgoing.append(attachments)
        stays = False
        try:
            sent = super()._push(views, (), wait=wait)
            stays = sent < 0
        except OSError:
            stays = True
            raise
        finally:
            if stays:
                with contextlib.suppress(IndexError):  # the other end was closed
                    self._outgoing.pop()
        return sent

    def _claim(self, count: int, begin: int, end: int) -> tuple[object, ...]:  # noqa: ARG002 - they are in order
        return self._arrivals.popleft() if count else ()


class InprocListener(InUse, Listener):
    """Accepts connections under a name of this process."""

    channels = InprocChannel

    def __init__(self, name: str, limits: Limits) -> None:
        self.uri = f"inproc:{urllib.parse.quote(name)}"
        self._name = name
        self._limits = limits
        self._waiting: collections.deque[InprocChannel] = collections.deque()
        # Counts the connections that wait; behind an interrupt it may count more, and never fewer.
        self._bell = opened(os.eventfd, 0, os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        self._fds = [self._bell]
        self._begin_use()

    def accept(self, timeout: float) -> Channel | None:
        milliseconds(timeout, "timeout")
        end = time.monotonic() + timeout
        self._enter()
        try:
            poll = select.poll()
            poll.register(self._bell, select.POLLIN)
            while True:
                if self._closed:
                    raise ClosedError(f"{self.uri} was closed")
                channel: Channel | None = None
                with contextlib.suppress(IndexError):
                    channel = self._waiting.popleft()
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
                    if channel is None:
                        continue
                left = end - time.monotonic()
                if channel is not None or left <= 0:
                    return channel
                poll.poll(milliseconds(left, "timeout"))
        finally:
            self._leave()

    def _connect(self, limits: Limits, deadline: float) -> InprocChannel:
        """Put one end of a new connection in line and return the other."""
        there: _Attachments = collections.deque()
        back: _Attachments = collections.deque()
        end = time.monotonic() + deadline
        self._enter()
        try:
            while len(self._waiting) >= _BACKLOG and not self._closed:
                if time.monotonic() >= end:
                    raise DeadlineExceeded(f"the server at {self.uri} took no connection for {deadline:g} s")
                time.sleep(_PAUSE)
            one, other = socket.socketpair()
            here = InprocChannel(one, self.uri, limits, back, there)
            self._waiting.append(InprocChannel(other, self.uri, self._limits, there, back))
            os.eventfd_write(self._bell, 1)
            return here
        finally:
            self._leave()

    def _interrupt(self) -> None:
        if _listeners.get(self._name) is self:
            _listeners.pop(self._name, None)
        os.eventfd_write(self._bell, _ALL)

    def _release(self) -> None:
        self._bell.close()
        while self._waiting:
            self._waiting.pop().close()

    def _abandon(self) -> None:
        super()._abandon()
        self._bell.close()
        _listeners.pop(self._name, None)


def listen(address: str, limits: Limits) -> Listener:
    """Listen on ``inproc:name``, or under a new name for ``inproc:``."""
    name = _name_of(address) or secrets.token_hex(6)
    listener = InprocListener(name, limits)
    if _listeners.setdefault(name, listener) is not listener:
        raise UsageError("a server is listening there already", where=listener.uri)
    return listener


def dial(address: str, limits: Limits, deadline: float) -> InprocChannel:
    """Connect to ``inproc:name``."""
    milliseconds(deadline, "deadline")
    listener = _listeners.get(_name_of(address))
    if listener is not None:
        with contextlib.suppress(ClosedError):  # meanwhile
            return listener._connect(limits, deadline)
    raise BrokenError(f"nobody listens at {address}", hint="inproc: reaches its own process only.")


def is_loopback(address: str) -> bool:
    """Return ``True``: a name is reached from its own process only."""
    _name_of(address)
    return True


def _name_of(address: str) -> str:
    scheme, _, rest = address.partition(":")
    if scheme != "inproc" or any(mark in rest for mark in "?#"):
        raise UsageError("not an address within the process", expected="inproc:name", found=repr(address))
    name = urllib.parse.unquote(rest)
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise UsageError("a name within the process is Unicode text", found=ascii(address)) from error
    return name
