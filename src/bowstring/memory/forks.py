"""Forks: memory that is in use at a fork is never written again, so that views which a child inherits stay true.

Forks by Python are announced: `os.register_at_fork` runs our code before and after. A fork by C code is not, and no
Python can run during one. It is noticed later, before memory is used again: the kernel counts how many processes
have a segment of System V shared memory attached, and a child inherits the attachment.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import threading
import weakref
from typing import Any, Final, Protocol, TypeVar

from bowstring.errors import BowstringError

_Item = TypeVar("_Item")

_PRIVATE: Final = 0  # IPC_PRIVATE
_CREATE: Final = 0o1600  # IPC_CREAT, for this user only
_READ_ONLY: Final = 0o10000  # SHM_RDONLY
_REMOVE: Final = 0  # IPC_RMID
_STATUS: Final = 2  # IPC_STAT
_FAILED: Final = ctypes.c_void_p(-1).value


class Forking(Protocol):
    """An object that takes part in forks. Neither method may wait long."""

    def before_fork(self) -> None:
        """Prepare; what changes until `after_fork` may or may not be seen by the child."""

    def after_fork(self) -> None:
        """Go on, in the parent."""


class _Status(ctypes.Structure):
    """``struct shmid_ds`` of 64-bit Linux, with space for fields that a libc may append."""

    _fields_ = (
        ("permissions", ctypes.c_char * 48),
        ("size", ctypes.c_size_t),
        ("times", ctypes.c_long * 3),
        ("pids", ctypes.c_int * 2),
        ("attached", ctypes.c_ulong),
        ("reserved", ctypes.c_ulong * 8),
    )


@functools.cache
def libc() -> Any:
    """Return the C library, with the types of what is called here."""
    # With the interpreter's lock held: to let another thread have it takes longer than these calls.
    library = ctypes.PyDLL(None)
    number = ctypes.c_int
    library.shmget.argtypes = (number, ctypes.c_size_t, number)
    library.shmat.restype = ctypes.c_void_p
    library.shmat.argtypes = (number, ctypes.c_void_p, number)
    library.shmdt.argtypes = (ctypes.c_void_p,)
    library.shmctl.argtypes = (number, number, ctypes.POINTER(_Status))
    return library


def _fresh_segment() -> tuple[int, int] | None:
    """Return number and address of a page that goes with its last attachment; nothing if the system gives none."""
    number = libc().shmget(_PRIVATE, mmap.PAGESIZE, _CREATE)
    if number < 0:
        return None
    address = libc().shmat(number, None, _READ_ONLY)
    libc().shmctl(number, _REMOVE, None)  # takes effect with the last attachment
    if address in (None, _FAILED):
        return None
    segment = number, int(address)
    if _attached(segment) != 1:  # another layout of the status than ours, or a fork just now
        libc().shmdt(address)
        return None
    return segment


def _attached(segment: tuple[int, int]) -> int:
    """Return how many processes have a segment attached; -1 where that cannot be known any more."""
    status = _Status()
    return -1 if libc().shmctl(segment[0], _STATUS, ctypes.byref(status)) else int(status.attached)


class ForkSentinel:
    """Notices after the fact that this process forked without announcing it.

    A fork attaches a segment of shared memory once more; a child that has ended, or runs another program, does not.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._segment: tuple[int, int] | None = None
        self._asked = False
        self._noticed = 0

    def noticed(self) -> int:
        """Return a number that grows when there is a child that was not announced; call it after a last view ends.

        If it is unchanged since before a view was made, no living child has that view by an unannounced fork.
        """
        segment = self._segment
        if segment is None:
            with self._lock:
                if self._segment is None:
                    self._segment = _fresh_segment()
                    # Nothing watched since the first call, for which there was no segment.
                    self._noticed += self._asked and self._segment is not None
                    self._asked = True
        elif _attached(segment) != 1:
            self._begin_anew(segment, noticed=1)
        # Read last: a thread that replaces the segment counts before it detaches, so that no other thread takes the
        # child's attachment for ours and returns the old count.
        return self._noticed

    def announced(self) -> None:
        """Count no child of a fork that was announced."""
        segment = self._segment
        if segment is not None and _attached(segment) != 1:
            self._begin_anew(segment, noticed=0)

    def _begin_anew(self, segment: tuple[int, int], *, noticed: int) -> None:
        """Watch by another segment, since the child may live for ever. Without one, every call counts."""
        with self._lock:
            if self._segment is not segment:
                return
            fresh = _fresh_segment()
            self._noticed += noticed
            if fresh is not None:
                self._segment = fresh
                libc().shmdt(segment[1])

    def inherited(self) -> None:
        """Begin anew in a child: the parent's segment is not ours to hold."""
        segment, self._segment, self._asked = self._segment, None, False
        self._lock = threading.RLock()
        if segment is not None:
            libc().shmdt(segment[1])

    @property
    def works(self) -> bool:
        """Whether the system lets forks be noticed."""
        self.noticed()
        return self._segment is not None


_sentinel = ForkSentinel()


def fork_sentinel() -> ForkSentinel:
    """Return the sentinel of this process."""
    return _sentinel


_watched: weakref.WeakSet[Forking] = weakref.WeakSet()
_prepared: list[Forking] = []
_one_at_a_time = threading.RLock()


def watch_forks(forking: Forking) -> None:
    """Let an object take part in forks as long as it lives."""
    _watched.add(forking)


def snapshot(items: weakref.WeakSet[_Item]) -> list[_Item]:
    """Return what is in a weak set that finalizers and other threads may change at any moment."""
    while True:
        try:
            return list(items)
        except RuntimeError:  # it changed during the iteration
            continue


def _before() -> None:
    _one_at_a_time.acquire()
    for forking in snapshot(_watched):
        _prepared.append(forking)
        with contextlib.suppress(BowstringError):
            forking.before_fork()


def _after_in_parent() -> None:
    # Before the others go on: what they do for the announced fork covers a fork by C code that this hides.
    _sentinel.announced()
    while _prepared:
        with contextlib.suppress(BowstringError):
            _prepared.pop().after_fork()
    _one_at_a_time.release()


def _after_in_child() -> None:
    global _one_at_a_time  # noqa: PLW0603  a fork leaves locks in any state
    _one_at_a_time = threading.RLock()
    _prepared.clear()
    _sentinel.inherited()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
