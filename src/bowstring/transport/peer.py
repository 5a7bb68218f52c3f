"""Who is at the other end, and whether that process still exists.

A socket says that its last copy was closed, which is later than the death of the process where a forked
child kept a copy. A pidfd names the process itself and is never reused, so it can be waited for and a
recycled process number cannot fool it.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import struct
import time
from typing import TYPE_CHECKING

from bowstring.errors import UsageError
from bowstring.memory.slab import Descriptor, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# <asm-generic/socket.h>, Linux 6.5; the socket module has no name for it.
_SO_PEERPIDFD = 77
_UCRED = struct.Struct("@iII")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Peer:
    """The process at the other end of a channel, as far as it can be known.

    A peer holds one descriptor of the process until its channel is closed: ask ``exited`` after a connection
    was lost and before closing it.

    Parameters
    ----------
    pid, uid
        Process number and user, ``None`` where the transport cannot know them.
    description
        A few words for messages: ``pid 123, uid 1000``, or an address.
    pidfd
        Descriptor of the process, owned by the peer from now on.
    gone
        The process was already gone when the connection was made.

    Examples
    --------
    >>> peer = Peer.at("127.0.0.1:4711")
    >>> peer
    <Peer 127.0.0.1:4711>
    >>> peer.exited(0.0)
    False
    """

    def __init__(
        self,
        pid: int | None,
        uid: int | None,
        description: str,
        *,
        pidfd: int | None = None,
        gone: bool = False,
    ) -> None:
        self.pid = pid
        self.uid = uid  # the effective user of the process when it connected
        self.description = description  # a few words for messages
        # Readable when the process ends. A reference holds it open where another thread may close the peer.
        self.pidfd = pidfd if pidfd is None or isinstance(pidfd, Descriptor) else Descriptor(pidfd)
        self._gone = gone

    @classmethod
    def at(cls, address: str) -> Peer:
        """Return a peer of which only the address is known."""
        return cls(None, None, address)

    @classmethod
    def in_this_process(cls) -> Peer:
        """Return the peer at the other end of a queue: this process itself."""
        pid, uid = os.getpid(), os.geteuid()
        return cls(pid, uid, f"this process, pid {pid}")

    @classmethod
    def of_socket(cls, sock: socket.socket) -> Peer:
        """Return the process that made the other end of a Unix socket (``SO_PEERCRED``).

        That is the process that called ``connect`` or ``listen``, whichever process holds the socket now.
        """
        known_at = time.clock_gettime(time.CLOCK_BOOTTIME)
        pid, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        gone = False
        pidfd: int | None = None
        with contextlib.suppress(OSError):  # Linux before 6.5, or a process that is already gone
            # As `opened` does, of which each connection of a server would cost the call.
            (pidfd,) = map(Descriptor, map(sock.getsockopt, (socket.SOL_SOCKET,), (_SO_PEERPIDFD,)))
        if pid <= 0:  # it lives in a pid namespace that cannot be seen from here
            return cls(None, uid, f"pid unknown, uid {uid}", pidfd=pidfd)
        if pidfd is None:
            pidfd, gone = _pidfd_of_number(pid, known_at)
        return cls(pid, uid, f"pid {pid}, uid {uid}", pidfd=pidfd, gone=gone)

    def exited(self, wait: float) -> bool:
        """Return whether the process is known to be gone, waiting for that at most ``wait`` seconds.

        ``False`` says nothing: the process may live, or there may be no way to know. After the channel was
        closed, the answer is what was known by then.

        Raises
        ------
        UsageError
            ``wait`` is negative or not finite.
        """
        timeout = milliseconds(wait, "wait")
        pidfd = self.pidfd
        if self._gone or pidfd is None:
            return self._gone
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        # This process is there as long as it can ask.
        own = self.pid == os.getpid()
        self._gone = any(event & select.POLLIN for _, event in poll.poll(0 if own else timeout))
        return self._gone

    def watch(self, register: Callable[[Sequence[int]], None]) -> bool:
        """Say what becomes readable when the process ends; false where nothing does, or not any more.

        The descriptor is open until `register`, which is called with it, returns, and not longer for sure.
        """
        pidfd = self.pidfd
        if pidfd is not None:
            register([int(pidfd)])  # the number alone: a reference would hold it open
        return pidfd is not None

    def close(self) -> None:
        """Let go of the process; its channel does that when it is closed."""
        self.exited(0)
        self.pidfd = None

    def __repr__(self) -> str:
        return f"<Peer {self.description}>"


def check_seconds(seconds: float, name: str) -> None:
    """Refuse a wait that is not finite."""
    try:
        if 0 <= seconds < math.inf:
            return
    except TypeError:
        pass
    raise UsageError(f"{name} must be a finite number of seconds, 0 or more", found=repr(seconds))


def milliseconds(seconds: float, name: str) -> int:
    """Return a finite wait in whole milliseconds, rounded up, as ``poll`` wants it."""
    check_seconds(seconds, name)
    return min(math.ceil(seconds * 1000), 2**31 - 1)


def _pidfd_of_number(pid: int, known_at: float) -> tuple[int | None, bool]:
    """Return a pidfd for a process number, and whether its process is already gone.

    The number may be reused: a process that started after the connection was known cannot be the peer.
    """
    try:
        pidfd = opened(os.pidfd_open, pid)
    except ProcessLookupError:
        return None, True
    except OSError:  # no pidfd here at all: a seccomp filter, or Linux before 5.3
        return None, False
    started = _start_time(pid)
    if started is None or started > known_at + 1.0 / _TICKS_PER_SECOND:
        pidfd.close()
        return None, started is not None
    return pidfd, False


def _start_time(pid: int) -> float | None:
    """Return when a process started, in seconds since boot."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            # The second field is a name in brackets that may itself hold brackets and spaces.
            fields = stat.read().rpartition(b")")[2].split()
        return int(fields[19]) / _TICKS_PER_SECOND
    except (OSError, ValueError, IndexError):
        return None
