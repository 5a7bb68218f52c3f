"""File descriptors: those beside a byte stream, the calls that use one, and what a fork does to them."""

from __future__ import annotations

import abc
import array
import collections
import contextlib
import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from bowstring.errors import ClosedError, ForkedError, ProtocolError
from bowstring.memory.slab import close_descriptor

# SCM_MAX_FD of Linux: what one sendmsg may attach.
MOST_DESCRIPTORS = 253
ROOM = socket.CMSG_SPACE(MOST_DESCRIPTORS * array.array("i").itemsize)


def close_all(attachments: Iterable[object]) -> None:
    """Close the descriptors among some attachments, whatever became of them."""
    for fd in attachments:
        if isinstance(fd, int):
            with contextlib.suppress(OSError):
                close_descriptor(fd)


def descriptors_in(ancillary: Iterable[tuple[int, int, bytes]]) -> array.array[int]:
    """Return the descriptors in the ancillary data of one ``recvmsg``."""
    arrived = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            arrived.frombytes(data[: len(data) - len(data) % arrived.itemsize])
    return arrived


class _Group(NamedTuple):
    first: int  # range of the stream in which its sendmsg began
    end: int
    descriptors: Sequence[int]


class Arrivals:
    """Descriptors that came and were not claimed yet; it owns them."""

    def __init__(self) -> None:
        self._groups: collections.deque[_Group] = collections.deque()

    def add(self, first: int, end: int, descriptors: Sequence[int]) -> None:
        """Keep the descriptors of a ``recvmsg`` that returned the bytes ``[first, end)`` of the stream."""
        self._groups.append(_Group(first, end, descriptors))

    def claim(self, count: int, begin: int, end: int) -> tuple[int, ...]:
        """Return the descriptors of the message that lies at ``[begin, end)`` of the stream."""
        if not (count or self._groups):
            return ()
        found: Sequence[int] = ()
        if count and self._groups and self._groups[0].first <= begin < self._groups[0].end:
            found = self._groups.popleft().descriptors
        if len(found) != count:
            close_all(found)
            raise ProtocolError("a message without its file descriptors", expected=count, found=len(found))
        if self._groups and self._groups[0].end <= end:
            close_all(found)
            raise ProtocolError(
                "file descriptors that belong to no message", found=len(self._groups[0].descriptors)
            )
        return tuple(found)

    def __del__(self) -> None:
        if hasattr(self, "_groups"):  # not where an interrupt came first
            self.close()

    def close(self) -> None:
        """Close everything that nobody claimed."""
        while self._groups:
            close_all(self._groups.popleft().descriptors)


class Usage:
    """Counts the calls that use a descriptor, and says when it is closed and none of them is left."""

    def __init__(self) -> None:
        # Re-entrant: the collector may run a finalizer that closes this very thing inside these few lines.
        self._lock = threading.RLock()
        self._users = 0
        self._released = False
        self.closed = False
        self.abandoned = False  # this is a forked child: the descriptor is the parent's

    def enter(self, owner: object) -> None:
        """Begin to use the descriptor of ``owner``."""
        if self.abandoned:
            raise forked(owner)
        with self._lock:
            if self.closed:
                raise ClosedError(f"{owner} was closed")
            self._users += 1

    def leave(self) -> bool:
        """Stop using it; true when the caller must release the descriptor now."""
        with self._lock:
            self._users -= 1
            return self.closed and self._last()

    def close(self) -> None:
        """Let nobody begin to use it; who calls this uses it still, until `leave`."""
        with self._lock:
            self.closed = True
            self._users += 1

    def _last(self) -> bool:
        last = not (self._users or self._released)
        self._released |= last
        return last


class InUse(abc.ABC):
    """The end of what calls of several threads use: when it is closed and none of them is left."""

    _usage: Usage
    _fds: Sequence[int] = ()  # that become readable when there is something to do

    def watch(self, register: Callable[[Sequence[int]], None]) -> bool:
        """Do what `Channel.watch` and `Listener.watch` say."""
        if not self._fds:
            return False
        self._usage.enter(self)
        try:
            register(self._fds)
        finally:
            if self._usage.leave():
                self._release()
        return True

    def close(self) -> None:
        """Let no call begin any more, and wake those that wait. Idempotent."""
        if self._usage.abandoned:
            return
        self._usage.close()
        try:
            self._interrupt()
        finally:  # whoever else is the last to leave must not release what is interrupted just now
            if self._usage.leave():
                self._release()

    @property
    def closed(self) -> bool:
        """Whether this side closed it."""
        return self._usage.closed

    @abc.abstractmethod
    def _interrupt(self) -> None:
        """Wake the calls that wait."""

    @abc.abstractmethod
    def _release(self) -> None:
        """Let go of it: no call is left."""


_held: weakref.WeakSet[Any] = weakref.WeakSet()


def abandon_in_child(thing: Any) -> None:
    """Have ``thing._abandon()`` called in every child that this process forks.

    It closes the child's copies of descriptors, and takes no lock: the thread that held it does not exist there.
    """
    _held.add(thing)


def forked(what: object) -> ForkedError:
    """Return the error for the use of ``what`` in a child of the process that made it."""
    return ForkedError(
        f"{what} was made before a fork and belongs to the parent process",
        hint="Make a connection of its own in each process, or start processes with 'spawn'.",
    )


def _abandon_all() -> None:
    for thing in list(_held):
        thing._abandon()
    _held.clear()


os.register_at_fork(after_in_child=_abandon_all)
