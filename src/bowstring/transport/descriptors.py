"""File descriptors that arrive beside a byte stream, and which message they belong to.

The kernel delivers descriptors with the first byte of the ``sendmsg`` they were attached to, and ends a
``recvmsg`` after the piece that carried them. So of one ``recvmsg`` it is known that its descriptors began
somewhere in the bytes it returned, and a receiver that reads ahead may hold them before it has come to their
message. They are kept here with that range until the message's header claims them.
"""

from __future__ import annotations

import array
import collections
import contextlib
import os
import socket
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bowstring.errors import ProtocolError

__all__ = ["MOST_DESCRIPTORS", "ROOM", "Arrivals", "close_all", "descriptors_in"]

# SCM_MAX_FD of Linux: what one sendmsg may attach.
MOST_DESCRIPTORS = 253
ROOM = socket.CMSG_SPACE(MOST_DESCRIPTORS * array.array("i").itemsize)


def close_all(attachments: Iterable[object]) -> None:
    """Close the descriptors among some attachments, whatever became of them."""
    for fd in attachments:
        if isinstance(fd, int):
            with contextlib.suppress(OSError):
                os.close(fd)


def descriptors_in(ancillary: Iterable[tuple[int, int, bytes]]) -> list[int]:
    """Return the descriptors in the ancillary data of one ``recvmsg``."""
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return found.tolist()


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
        """Return the descriptors of the message that lies at ``[begin, end)`` of the stream.

        Raises
        ------
        ProtocolError
            They are not as many as the header says, or there are some that belong to no header.
        """
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
        self.close()

    def close(self) -> None:
        """Close everything that nobody claimed."""
        while self._groups:
            close_all(self._groups.popleft().descriptors)
