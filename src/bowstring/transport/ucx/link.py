"""A worker with its one endpoint: what both ends say to each other at the end, and what must be kept until then."""

from __future__ import annotations

import contextlib
import enum
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from bowstring.transport.peer import milliseconds
from bowstring.transport.ucx.attendant import leave
from bowstring.transport.ucx.context import Failure, Request
from bowstring.transport.ucx.remote_memory import Mark, marked
from bowstring.transport.ucx.worker import Endpoint, Worker

COUNT: Final = struct.Struct("<I")
COUNT_MASK: Final = 0xFFFF_FFFF
WHOLE_TAG: Final = (1 << 64) - 1
_PATIENCE: Final = 2.0
_GREETING_PATIENCE: Final = 0.5
_LONGEST: Final = 4096
_SLICE: Final = 0.1
_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)
# Ways by which a process of this host reads memory of ours, whether or not our worker is there.
_IN_PLACE: Final = ("cma", "xpmem", "knem", "cuda_ipc", "rocm_ipc", "ze_ipc")


class Own(enum.IntEnum):
    """Tags of what the two ends of a connection say to each other where both are Bowstring's."""

    GREETING = (0xB3 << 56) | 0xFFFF_FF01
    """The end that was dialled knows the protocol; behind the count follows its mark, if it has one."""
    BYE = (0xB3 << 56) | 0xFFFF_FF02
    """Nothing more comes."""
    GONE = (0xB3 << 56) | 0xFFFF_FF03
    """All that came before ``BYE`` was received."""
    PROTOCOL = (0xB3 << 56) | 0xFFFF_FF04
    """Behind the count, in UTF-8: how UCX moves bodies, which it says to the sender only."""


class Link:
    """A worker with its one endpoint."""

    def __init__(self, worker: Worker, endpoint: Endpoint, peer: str, *, ours: bool) -> None:
        self.worker = worker
        self.endpoint = endpoint
        self.peer = peer  # its address
        self.ours = ours  # the peer is known to be Bowstring's
        self.untagged = 0  # active messages sent
        self.interrupted = False  # a message was begun and given up: no end is announced
        self.let_go = False  # the worker is gone, or will be
        self.mark: Mark | None = None  # tells the peer that memory it was lent is not written
        self._guard = threading.Lock()
        self._background: list[Request] = []
        self._unread: list[Request] = []
        self._process = os.getpid()
        self._said_protocol = False
        self._bye: Request | None = None
        self._closing: Request | None = None
        self._until = 0.0

    @property
    def ways(self) -> list[str]:
        """Transports and devices, without that of the connection to the listener."""
        return [way for way in self.endpoint.ways if not way.endswith("/")]

    def greet(self) -> None:
        """Say to a peer of ours that this end is one, too, and where the mark is."""
        self.mark = marked(self.worker.context)
        self.keep(self.say(Own.GREETING, self.mark.packed if self.mark is not None else b""))

    def say(self, own: Own, more: bytes = b"") -> Request:
        """Begin to send a message of this transport, behind all that was sent."""
        return self.endpoint.send(own, [COUNT.pack(self.untagged & COUNT_MASK) + more])

    def say_protocol(self, body: Request) -> None:
        """Say once to a peer of ours how UCX moves bodies; `body` has just begun to be sent."""
        if self._said_protocol or not self.ours:
            return
        words = body.protocol()
        # The first messages go by the connection to the listener, until the others are made.
        if any(way in words for way in self.ways):
            self._said_protocol = True
            self.keep(self.say(Own.PROTOCOL, words.encode()))

    def keep(self, request: Request) -> None:
        """Keep a request that nobody waits for, and the memory that it reads or writes, until it is done."""
        with self._guard:
            self._background.append(request)

    def give_up(self, requests: list[Request]) -> None:
        """Wait no more for messages that were begun; the peer may still read them in place."""
        with self._guard:
            self.interrupted = True
            self._unread += requests

    def look_after(self) -> bool:
        """Forget the requests of the background that are done; return whether there are others."""
        if not self._background:
            return False
        with self._guard:
            self._background = [each for each in self._background if not _is_done(each)]
            return bool(self._background)

    def _is_read(self) -> bool:
        """Whether the peer may still read messages in place that were given up."""
        with self._guard:
            self._unread = [each for each in self._unread if not _is_done(each)]
            return bool(self._unread)

    def revoke(self) -> None:
        """Say that memory which the peer was lent may be written from now on."""
        if self.mark is not None:
            self.mark.revoke()

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
            self.revoke()
            self.worker.close()
            with self._guard:
                self._bye = self._closing = None
                self._background.clear()
                self._unread.clear()

    def close(self) -> None:
        """End the connection without waiting for it; idempotent."""
        if self.let_go:
            return
        self.let_go = True
        waits = not self.endpoint.failed
        if waits and self.interrupted:
            # Any other way needs our help to read on: what the peer has not got it never gets.
            waits = self._is_read() and any(way.startswith(_IN_PLACE) for way in self.ways)
        elif waits and self.ours:
            with contextlib.suppress(Failure):
                self._bye = self.say(Own.BYE)
        if waits:
            leave(self)
        else:
            self.end()

    def has_ended(self) -> bool:
        """Make progress with the end; return whether it has come."""
        self._until = self._until or time.monotonic() + _PATIENCE
        try:
            self.worker.progress()
            if self.endpoint.failed:
                return True
            if self.interrupted:  # as long as it lives: nobody else may write what it reads
                return not self._is_read()
            return time.monotonic() > self._until or self._take_leave()
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
        probed = self.worker.probe(own, WHOLE_TAG)
        if probed is None or probed.nbytes > _LONGEST:
            return False
        place = np.empty(max(1, probed.nbytes), np.uint8)
        self.keep(self.worker.receive(probed, place.ctypes.data, kept=place))
        return True


def _is_done(request: Request) -> bool:
    """Whether nothing more comes of a request."""
    try:
        return request.done
    except Failure:
        return True


class Sleeper:
    """Where threads wait for UCX, or for each other."""

    def __init__(self, fd: int) -> None:
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._guard = threading.RLock()  # a finalizer may close it
        self._fd = fd
        self.waiting = False

    def sleep(self, seconds: float) -> None:
        """Wait until something comes; `waiting` was set before."""
        poll = select.poll()  # which only one thread may use at a time
        poll.register(self._fd, select.POLLIN)
        poll.register(self._event, select.POLLIN)
        poll.poll(milliseconds(min(seconds, _SLICE), "wait"))
        self.waiting = False
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)

    def wake(self) -> None:
        """Wake the thread, now or when it next waits."""
        with self._guard:
            if self._event >= 0:
                os.eventfd_write(self._event, 1)

    def close(self) -> None:
        """Let go of its descriptor."""
        with self._guard:
            event, self._event = self._event, -1
            if event >= 0:
                os.close(event)


def close_sockets(wanted: Callable[[socket.socket], bool]) -> None:
    """Close the descriptors of this process that are certain sockets of the internet, those of UCX among them."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as copy:
                    is_wanted = copy.family in _INTERNET and wanted(copy)
                if is_wanted:
                    os.close(int(name))
