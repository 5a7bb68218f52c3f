"""Leases: who is known to be alive, so that what belongs to an application is kept."""

from __future__ import annotations

import os
import select

from bowstring.errors import UsageError

__all__ = ["Holder"]


class Holder:
    """Somebody for whom an application is kept: a connection, or a process of this host.

    Parameters
    ----------
    pid
        The process; ``None`` where the connection itself is the sign of life.

    Raises
    ------
    UsageError
        There is no such process.
    """

    def __init__(self, pid: int | None = None) -> None:
        self.pid = pid
        self._fd = -1
        self._open = True
        if pid is not None:
            try:
                self._fd = os.pidfd_open(pid)
            except OSError as error:
                raise UsageError(
                    "a process to watch is not there", found=f"pid {pid}: {error.strerror}"
                ) from error

    def alive(self) -> bool:
        """Whether it is."""
        if not self._open:
            return False
        if self._fd < 0:
            return True
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        if poll.poll(0):
            self.close()
        return self._open

    def close(self) -> None:
        """Watch no longer: it counts as gone."""
        self._open = False
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()
