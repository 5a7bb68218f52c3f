"""File descriptors: those beside a byte stream, the calls that use one, and what a fork does to them."""

from __future__ import annotations

import abc
import array
import contextlib
import os
import socket
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence

from bowstring.errors import ClosedError, ForkedError
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


class InUse(abc.ABC):
    """What calls of several threads use: its end comes when it is closed and none of them is left."""

    _fds: Sequence[int] = ()  # that become readable when there is something to do
    _closed = _released = _abandoned = False  # abandoned in a forked child: what it uses is the parent's

    def _begin_use(self) -> None:
        # Re-entrant: the collector may run a finalizer that closes this very thing while a call holds it.
        self._guard = threading.RLock()
        self._users = 0
        _used.add(self)

    def _enter(self) -> None:
        """Begin to use it."""
        if self._abandoned:
            raise ForkedError(
                f"{self} was made before a fork and belongs to the parent process",
                hint="Make a connection of its own in each process, or start processes with 'spawn'.",
            )
        with self._guard:
            if self._closed:
                raise ClosedError(f"{self} was closed")
            self._users += 1

    def _leave(self) -> None:
        """Stop using it; the last one after it was closed releases it."""
        with self._guard:
            self._users -= 1
            if self._users or self._released or not self._closed:
                return
            self._released = True
        self._release()

    def watch(self, register: Callable[[Sequence[int]], None]) -> bool:
        """Do what `Channel.watch` and `Listener.watch` say."""
        if not self._fds:
            return False
        self._enter()
        try:
            register(self._fds)
        finally:
            self._leave()
        return True

    def close(self) -> None:
        """Let no call begin any more, and wake those that wait. Idempotent."""
        if self._abandoned:
            return
        with self._guard:
            if self._released:
                return
            self._closed = True
            self._users += 1  # what is interrupted just now is not released by another call
        try:
            self._interrupt()
        finally:
            self._leave()

    @property
    def closed(self) -> bool:
        """Whether this side closed it."""
        return self._closed

    def _abandon(self) -> None:
        self._abandoned = True

    @abc.abstractmethod
    def _interrupt(self) -> None:
        """Wake the calls that wait."""

    @abc.abstractmethod
    def _release(self) -> None:
        """Let go of it: no call is left."""


_used: weakref.WeakSet[InUse] = weakref.WeakSet()


def _abandon_all() -> None:
    """Close a child's copies of descriptors, without a lock: the thread that held it does not exist there."""
    for thing in list(_used):
        thing._abandon()
    _used.clear()


os.register_at_fork(after_in_child=_abandon_all)
