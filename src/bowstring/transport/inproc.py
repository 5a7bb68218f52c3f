"""``inproc:``, messages between threads of one process; attachments are any objects, by reference.

The bytes are copied when they are sent, so that a sender may reuse its buffers as on any other transport.
What should not be copied travels as an attachment.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import secrets
import threading
import time
import urllib.parse
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from bowstring.errors import BowstringError, BrokenError, ClosedError, DeadlineExceeded, UsageError
from bowstring.limits import Limits
from bowstring.locks import Condition
from bowstring.memory.slab import Descriptor, needing_descriptor, opened
from bowstring.transport.channel import Channel, Land, Listener, Message, Received
from bowstring.transport.descriptors import abandon_in_child, forked
from bowstring.transport.framing import check_length, landing
from bowstring.transport.peer import Peer, milliseconds

if TYPE_CHECKING:
    from bowstring.memory import Region

# What the registry of transports says without a connection.
passes_memory: Final = "object"

# What may lie in a queue before a sender waits, as in the buffer of a socket; one message may always go.
_QUEUE_BYTES = 4 << 20
_QUEUE_MESSAGES = 1024
_BACKLOG = 1024
_MOST_ATTACHMENTS = 0xFFFF

_listeners: weakref.WeakValueDictionary[str, InprocListener] = weakref.WeakValueDictionary()


@dataclasses.dataclass(slots=True)
class _Parcel:
    tag: int | None
    body: bytes
    attachments: tuple[object, ...]


class _Queue:
    """Parcels on their way in one direction."""

    def __init__(self) -> None:
        self.parcels: collections.deque[_Parcel] = collections.deque()
        self.nbytes = 0
        self.taken = 0
        self.ended: str | None = None  # why nothing more will be put in
        self.bell: Descriptor | None = None  # for who waits for many of them

    def has_room(self, nbytes: int) -> bool:
        fits = self.nbytes + nbytes <= _QUEUE_BYTES and len(self.parcels) < _QUEUE_MESSAGES
        return fits or not self.parcels

    def put(self, parcel: _Parcel) -> None:
        self.parcels.append(parcel)
        self.nbytes += len(parcel.body)
        self.ring()

    def ring(self) -> None:
        bell = self.bell
        if bell is not None:
            with contextlib.suppress(OSError):  # closed meanwhile, by a finalizer or in a child
                os.eventfd_write(bell, 1)

    def take(self) -> _Parcel:
        parcel = self.parcels.popleft()
        self.nbytes -= len(parcel.body)
        self.taken += 1
        return parcel

    def clear(self) -> list[_Parcel]:
        """Empty it, and return what was in it: an attachment's finalizer must not run inside our lock."""
        left = list(self.parcels)
        self.parcels.clear()
        self.nbytes = 0
        return left


class InprocChannel(Channel):
    """One end of a connection within the process."""

    scheme = "inproc"
    passes_memory = "object"
    authenticated = True
    most_attachments = _MOST_ATTACHMENTS

    def __init__(
        self, address: str, changed: Condition, incoming: _Queue, outgoing: _Queue, limits: Limits
    ) -> None:
        self.address = address
        self.peer = Peer.in_this_process()
        self.limits = limits
        self._changed = changed  # guards both queues
        self._incoming = incoming
        self._outgoing = outgoing
        self._turn = threading.Lock()
        self._receiver: dict[None, object] = {}  # who receives, as in `StreamChannel`
        self._received = self.position = 0
        self._closed = False
        self._abandoned = False
        abandon_in_child(self)

    def attachments_of(self, region: Region) -> tuple[object, ...]:
        return (region,)

    def send(self, messages: Sequence[Message], deadline: float) -> None:
        milliseconds(deadline, "deadline")
        checked = [(message, message.views()) for message in messages]
        if any(len(message.attachments) > _MOST_ATTACHMENTS for message, _ in checked):
            raise UsageError("too many attachments on one message", expected=f"at most {_MOST_ATTACHMENTS}")
        self._check_open()
        held: list[bool] = []
        try:
            held += map(self._turn.acquire, (True,), (deadline,))  # see `bowstring.locks`
            if True not in held:
                self._check_open()
                raise DeadlineExceeded(f"another thread was sending for {deadline:g} s", where=str(self))
            for message, views in checked:
                self._put(_Parcel(message.tag, b"".join(views), message.attachments), deadline)
        finally:
            if True in held:
                self._turn.release()

    def _put(self, parcel: _Parcel, deadline: float) -> None:
        queue = self._outgoing
        with self._changed:
            end, taken = time.monotonic() + deadline, queue.taken
            while not self._closed and queue.ended is None and not queue.has_room(len(parcel.body)):
                if queue.taken != taken:
                    end, taken = time.monotonic() + deadline, queue.taken
                if not self._changed.wait(max(0.0, end - time.monotonic())) and queue.taken == taken:
                    what = f"the peer took nothing for {deadline:g} s"
                    self._end(f"the connection broke before: {what}")
                    raise DeadlineExceeded(what, where=str(self))
            self._check_open()
            if queue.ended is not None:
                raise BrokenError(queue.ended, where=str(self))
            queue.put(parcel)
            self._changed.notify_all()

    @property
    def takes_more(self) -> bool:
        return self._outgoing.has_room(0)

    def watch(self, register: Callable[[Sequence[int]], None]) -> bool:
        queue = self._incoming
        with self._changed:
            self._check_open()
            if queue.bell is None:
                with needing_descriptor(f"a connection to {self.address}"):
                    queue.bell = opened(os.eventfd, 0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(queue.bell)
            if queue.parcels or queue.ended is not None:
                queue.ring()
            register([int(queue.bell)])
        return True

    def receive(self, idle: float, land: Land | None = None) -> Received | None:
        timeout = milliseconds(idle, "idle") / 1000
        self._check_open()
        me = object()
        try:
            if self._receiver.setdefault(None, me) is not me:
                raise UsageError("another thread is receiving", where=str(self))
            parcel = self._take(timeout)
            return None if parcel is None else self._deliver(parcel, land)
        finally:
            if None in self._receiver and self._receiver[None] is me:
                del self._receiver[None]

    def _take(self, timeout: float) -> _Parcel | None:
        queue = self._incoming
        with self._changed:
            self._changed.wait_for(lambda: queue.parcels or queue.ended is not None or self._closed, timeout)
            self._check_open()
            if queue.parcels:
                parcel = queue.take()
                self.position += 1
                self._changed.notify_all()
                return parcel
            if queue.ended is not None:
                raise BrokenError(queue.ended, where=str(self))
            return None

    def _deliver(self, parcel: _Parcel, land: Land | None) -> Received:
        length = len(parcel.body)
        try:
            check_length(parcel.tag, length, self.limits)
            self._received += length
            if self.restriction is not None:
                self.restriction.check(self._received)
            if parcel.tag is None:
                return Received(None, memoryview(parcel.body), parcel.attachments)
            place = landing(parcel.tag, length, land)
            if place.prepare is not None:
                place.prepare(length)
        except BaseException as error:
            reason = str(error) if isinstance(error, BowstringError) else f"receiving failed: {error!r}"
            self._say_last(error)
            with self._changed:
                left = self._incoming.clear()
                self._end(f"the connection broke before: {reason}")
            del left
            raise
        place.view[:] = parcel.body
        return Received(parcel.tag, place.body, parcel.attachments)

    def _end(self, reason: str) -> None:
        """Say in both queues why nothing more comes; the lock is held."""
        for queue in (self._incoming, self._outgoing):
            queue.ended = queue.ended or reason
            queue.ring()
        self._changed.notify_all()

    def _check_open(self) -> None:
        if self._abandoned:
            raise forked(self)
        if self._closed:
            raise ClosedError(f"{self} was closed")

    def close(self) -> None:
        if self._abandoned:
            return
        with self._changed:
            self._closed = True
            left = self._incoming.clear()
            self._end("the peer closed the connection")
            self._incoming.bell = None
        del left

    @property
    def closed(self) -> bool:
        return self._closed

    def _abandon(self) -> None:
        self._abandoned = True

    def __del__(self) -> None:
        if not hasattr(self, "_outgoing"):  # an interrupt came first
            return
        # As with a socket: who drops an end without closing it has ended the connection. A finalizer must not
        # wait for a lock; where it cannot have it, the peer notices at the end of its own wait.
        for queue in (self._incoming, self._outgoing):
            queue.ended = queue.ended or "the peer closed the connection"
            queue.ring()
        held: list[bool] = []
        try:
            held += map(self._changed.acquire, (False,))  # see `bowstring.locks`
            if True in held:
                self._changed.notify_all()
        finally:
            if True in held:
                self._changed.release()


class InprocListener(Listener):
    """Accepts connections under a name of this process."""

    channels = InprocChannel

    def __init__(self, name: str, limits: Limits) -> None:
        self.uri = f"inproc:{urllib.parse.quote(name)}"
        self._name = name
        self._limits = limits
        self._changed = Condition()
        self._waiting: collections.deque[InprocChannel] = collections.deque()
        self._bell: Descriptor | None = None  # for who waits for connections to many listeners
        self._closed = False
        self._abandoned = False
        abandon_in_child(self)

    def accept(self, timeout: float) -> Channel | None:
        seconds = milliseconds(timeout, "timeout") / 1000
        self._check_open()
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed, seconds)
            self._check_open()
            self._changed.notify_all()
            return self._waiting.popleft() if self._waiting else None

    def watch(self, register: Callable[[Sequence[int]], None]) -> bool:
        with self._changed:
            self._check_open()
            if self._bell is None:
                with needing_descriptor(f"a listener at {self.uri}"):
                    self._bell = opened(os.eventfd, 0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._bell)
            if self._waiting:
                os.eventfd_write(self._bell, 1)
            register([int(self._bell)])
        return True

    def _connect(self, limits: Limits, deadline: float) -> InprocChannel:
        """Put one end of a new connection in line and return the other."""
        changed, there, back = Condition(), _Queue(), _Queue()
        here = InprocChannel(self.uri, changed, back, there, limits)
        far = InprocChannel(self.uri, changed, there, back, self._limits)
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed or len(self._waiting) < _BACKLOG, deadline):
                raise DeadlineExceeded(f"the server at {self.uri} took no connection for {deadline:g} s")
            if self._closed:
                raise BrokenError(f"nobody listens at {self.uri}")
            self._waiting.append(far)
            self._changed.notify_all()
            if self._bell is not None:
                os.eventfd_write(self._bell, 1)
        return here

    def _check_open(self) -> None:
        if self._abandoned:
            raise forked(self.uri)
        if self._closed:
            raise ClosedError(f"{self.uri} was closed")

    def close(self) -> None:
        if self._abandoned:
            return
        with self._changed:
            self._closed = True
            waiting = list(self._waiting)
            self._waiting.clear()
            self._bell = None
            self._changed.notify_all()
        if _listeners.get(self._name) is self:
            _listeners.pop(self._name, None)
        for channel in waiting:
            channel.close()

    @property
    def closed(self) -> bool:
        return self._closed

    def _abandon(self) -> None:
        self._abandoned, self._bell = True, None
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
    if listener is None:
        raise BrokenError(f"nobody listens at {address}", hint="inproc: reaches its own process only.")
    return listener._connect(limits, deadline)


def is_loopback(address: str) -> bool:
    """Return ``True``: a queue is reached from its own process only."""
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
