"""A thread that makes progress where no other does: while a connection ends, and when somebody sends and goes.

What was sent arrives before the peer learns of the end.
UCX closes the connection to the listener at once, and what is still under way in others may be lost. So the end
that closes says ``BYE``, and lets go of its worker when the other has answered, or after a while.
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import os
import queue
import select
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from bowstring.transport.tcp import spelled
from bowstring.transport.ucx.context import Failure, Request
from bowstring.transport.ucx.endpoint import Endpoint
from bowstring.transport.ucx.worker import Worker

__all__ = ["AtOnce", "Link", "Own", "all_ended", "begin", "close_sockets", "leave", "let_go", "watch"]

_PATIENCE: Final = 2.0
_GREETING_PATIENCE: Final = 0.5
_EXIT_PATIENCE: Final = 1.0
_SLICE: Final = 20  # milliseconds
_TICK: Final = 0.002
_ALL: Final = (1 << 64) - 1
_COUNT: Final = struct.Struct("<I")
_LONGEST: Final = 64
_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)


class Own(enum.IntEnum):
    """Tags of what the two ends of a connection say to each other where both are Bowstring's."""

    GREETING = (0xB3 << 56) | 0xFFFF_FF01
    """The end that was dialled knows the protocol."""
    BYE = (0xB3 << 56) | 0xFFFF_FF02
    """Nothing more comes."""
    GONE = (0xB3 << 56) | 0xFFFF_FF03
    """All that came before ``BYE`` was received."""


class Link:
    """A worker with its one endpoint.

    Attributes
    ----------
    ours
        Whether the peer is known to be Bowstring's.
    untagged
        Active messages that were sent.
    interrupted
        Whether a message was begun and not finished: then the peer must not take it for whole.
    background
        Requests that nobody waits for, with the memory that they read.
    let_go
        Whether it has begun to end: the worker is gone, or will be.
    """

    def __init__(self, worker: Worker, endpoint: Endpoint, peer: str, *, ours: bool) -> None:
        self.worker = worker
        self.endpoint = endpoint
        self._peer = peer
        self.ours = ours
        self.untagged = 0
        self.interrupted = False
        self.let_go = False
        self.background: list[Request] = []
        self._process = os.getpid()
        self._bye: Request | None = None
        self._closing: Request | None = None
        self._until = 0.0

    @property
    def lost(self) -> str:
        """Why the peer was lost, in words; empty where it was not."""
        return self.endpoint.failed

    @property
    def ways(self) -> list[str]:
        """Transports and devices, without that of the connection to the listener."""
        return [way for way in self.endpoint.ways if not way.endswith("/")]

    def say(self, own: Own) -> Request:
        """Begin to send a message of this transport, behind all that was sent."""
        return self.endpoint.send(own, [_COUNT.pack(self.untagged & 0xFFFF_FFFF)])

    def look_after(self) -> bool:
        """Forget the requests of the background that are done; return whether there are others."""
        self.background = [each for each in self.background if not _is_done(each)]
        return bool(self.background)

    def abandon(self) -> None:
        """In a forked child: let its copy of the connection not keep that alive."""
        close_copies(self._peer)

    @property
    def fd(self) -> int | None:
        """What tells of progress to be made, where there is none to be made now."""
        try:
            return self.worker.fd if self.worker.arm() else None
        except Failure:
            return None

    def end(self) -> None:
        """Let go of the worker, with all that is not done."""
        if os.getpid() == self._process:
            self.worker.close()
            self._bye = self._closing = None
            self.background.clear()

    def begin_to_end(self) -> None:
        """Say at once that nothing more comes, where the peer is known to understand it."""
        if self.ours:
            with contextlib.suppress(Failure):
                self._bye = self.say(Own.BYE)

    def has_ended(self) -> bool:
        """Make progress with the end; return whether it has come."""
        self._until = self._until or time.monotonic() + _PATIENCE
        if self.interrupted:
            return True
        try:
            self.worker.progress()
            return self.lost != "" or time.monotonic() > self._until or self._take_leave()
        except Failure:
            return True

    def _take_leave(self) -> bool:
        if self._closing is not None:  # there is no endpoint any more
            return self._closing.done
        self.ours = self.ours or self._came(Own.GREETING)
        if self.ours and self._bye is None:
            self._bye = self.say(Own.BYE)
        if self._bye is None:
            # A peer that knows only the specification, or one that has not come to greet us yet.
            if self._until - time.monotonic() > _PATIENCE - _GREETING_PATIENCE:
                return False
        elif not (self._came(Own.GONE) or self._came(Own.BYE)):
            return False
        self._closing = self.endpoint.close(force=False)
        return self._closing.done

    def _came(self, own: Own) -> bool:
        """Whether a message of this transport has come, whatever came before it."""
        probed = self.worker.probe(own, _ALL)
        if probed is None or probed.nbytes > _LONGEST:
            return False
        place = np.empty(max(1, probed.nbytes), np.uint8)
        self.worker.receive(probed, place.ctypes.data, kept=place)
        return True


def _is_done(request: Request) -> bool:
    """Whether nothing more comes of a request."""
    try:
        return request.done
    except Failure:
        return True


class Ending(Protocol):
    """What ends with the help of the thread."""

    @property
    def fd(self) -> int | None: ...
    def has_ended(self) -> bool: ...
    def end(self) -> None: ...


class AtOnce:
    """The end of something for which there is nothing to wait, left to the thread: a call."""

    fd = None

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end

    def has_ended(self) -> bool:
        """Whether there is nothing to wait for."""
        return True

    def end(self) -> None:
        """End it."""
        self._end()


class Attended(Protocol):
    """What may have sent something, with no thread of its own to make progress."""

    def attend(self) -> bool: ...


class _Attendant:
    """The thread that makes progress where no other does; there is one in a process that has used UCX.

    Finalizers may hand things over at any time, also inside a callback of UCX: they take no lock.
    """

    def __init__(self) -> None:
        self._ending: queue.SimpleQueue[Ending] = queue.SimpleQueue()
        self._sending: queue.SimpleQueue[weakref.ref[Attended]] = queue.SimpleQueue()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._asleep = True
        self._left = 0
        threading.Thread(target=self._run, name="ucx (bowstring)", daemon=True).start()

    def end(self, thing: Ending) -> None:
        """See to the end of something."""
        self._ending.put(thing)
        os.eventfd_write(self._event, 1)

    def watch(self, channel: Attended) -> None:
        """Make progress with a channel in a moment, unless another thread does before."""
        self._sending.put(weakref.ref(channel))
        if self._asleep:
            os.eventfd_write(self._event, 1)

    def wait(self, seconds: float) -> bool:
        """Wait until nothing is left that ends; return whether that is so."""
        end = time.monotonic() + seconds
        while self._left or not self._ending.empty():
            if time.monotonic() > end:
                return False
            time.sleep(_TICK)
        return True

    def _run(self) -> None:
        ending: list[Ending] = []
        sending: list[weakref.ref[Attended]] = []
        while True:
            _take_all(self._ending, ending)
            self._left = len(ending)
            for thing in [each for each in ending if each.has_ended()]:
                thing.end()
                ending.remove(thing)
                del thing
            self._left = len(ending)
            sending = [each for each in sending if _attend(each)]
            _take_all(self._sending, sending)
            self._sleep([fd for each in ending if (fd := each.fd) is not None], bool(ending), bool(sending))

    def _sleep(self, fds: Sequence[int], ending: bool, sending: bool) -> None:
        poll = select.poll()
        self._asleep = not (ending or sending)
        if not self._ending.empty() or not self._sending.empty():
            return
        if sending:  # the thread that sent may be about to receive
            time.sleep(_TICK)
            return
        for fd in (self._event, *fds):
            poll.register(fd, select.POLLIN)
        poll.poll(_SLICE if ending else None)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)


def _take_all(given: queue.SimpleQueue[Any], into: list[Any]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            into.append(given.get_nowait())


def _attend(reference: weakref.ref[Attended]) -> bool:
    """Make progress with a channel; return whether there is more to be made."""
    channel = reference()
    return channel is not None and channel.attend()


_attendant: _Attendant | None = None


def begin() -> None:
    """Have the thread in this process, from before the first connection on."""
    global _attendant  # noqa: PLW0603  one for the process
    if _attendant is None:
        _attendant = _Attendant()


def watch(channel: Attended) -> None:
    """Let the thread make progress with a channel that no other thread looks after."""
    if _attendant is not None:
        _attendant.watch(channel)


def leave(thing: Ending) -> None:
    """Let the thread see to the end of something; for finalizers, too."""
    if _attendant is not None:
        _attendant.end(thing)


def all_ended(seconds: float) -> bool:
    """Wait until nothing is left that ends; return whether that is so."""
    return _attendant is None or _attendant.wait(seconds)


def let_go(link: Link) -> None:
    """End a connection without waiting for it; idempotent."""
    if link.let_go:
        return
    link.let_go = True
    if link.interrupted or link.lost:
        link.end()
    else:
        link.begin_to_end()
        leave(link)


@atexit.register
def _before_exit() -> None:
    all_ended(_EXIT_PATIENCE)


def _forget() -> None:
    """In a child: there is no thread, and what ends is the parent's."""
    global _attendant  # noqa: PLW0603
    _attendant = None


os.register_at_fork(after_in_child=_forget)


def close_copies(peer: str) -> None:
    """Close the descriptors of this process that are sockets connected to an address."""
    if peer:
        close_sockets(lambda copy: spelled(copy.getpeername()) == peer)


def close_sockets(wanted: Callable[[socket.socket], bool]) -> None:
    """Close the descriptors of this process that are certain sockets of the internet, those of UCX among them."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as copy:
                    found = copy.family in _INTERNET and wanted(copy)
                if found:
                    os.close(int(name))
