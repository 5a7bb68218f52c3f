"""CUDA streams as callers name them: by objects of CuPy, torch, cuda.core and Numba, or by their addresses."""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

from bowstring.errors import UsageError
from bowstring.memory.lease import Finalizer


class NamedStream(NamedTuple):
    """A stream that a caller named: its address (``CUstream``), and the object that keeps it alive."""

    address: int
    owner: object


def named_streams(given: Any) -> tuple[NamedStream, ...]:
    """Return the streams that a caller names, one or several; none for ``None``."""
    if given is None:
        return ()
    alone = _address(given) is not None or not isinstance(given, Iterable)
    pairs = [(_address(each), each) for each in ([given] if alone else given)]
    if not pairs or any(address is None for address, _ in pairs):
        raise UsageError(
            "not a CUDA stream",
            expected="a stream of CuPy, torch, cuda.core or Numba, its address, or several",
            found=repr(given)[:80],
            where="cuda_stream",
        )
    return tuple(NamedStream(address, owner) for address, owner in pairs if address is not None)


def _address(stream: Any) -> int | None:
    """Return the address of a stream, by the protocol of cuda.core or by the names that libraries have for it."""
    protocol = getattr(stream, "__cuda_stream__", None)
    if callable(protocol):
        stream = protocol()[1]
    for name in ("ptr", "cuda_stream", "handle", "value"):
        stream = getattr(stream, name, stream)
    is_address = isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0
    return int(stream) if is_address else None


class _Reader:
    """A stream that may read memory, and how often that was noted."""

    __slots__ = ("ended", "handed", "notes", "stream")

    def __init__(self, stream: NamedStream) -> None:
        self.stream = stream
        self.notes = self.handed = 0
        self.ended: collections.deque[None] = collections.deque()


class Seen(NamedTuple):
    """A stream as it was seen at one moment, before an event was recorded on it."""

    reader: _Reader
    address: int
    notes: int
    holds: bool  # whether something that was handed out on it is alive


class SeenStreams:
    """The streams that may read memory of one device.

    Work queued on a stream outlives it: each is kept until an event recorded behind its last reads is done.
    """

    def __init__(self) -> None:
        # Reentrant: the collector may run anything inside it.
        self._lock = threading.RLock()
        self._readers: dict[tuple[int, int], _Reader] = {}

    def __len__(self) -> int:
        return len(self._readers)

    def note(self, stream: NamedStream) -> _Reader:
        """Take note of a stream on which something is queued now."""
        with self._lock:
            # One address may have owners that destroy it, and others that do not.
            reader = self._readers.setdefault((stream.address, id(stream.owner)), _Reader(stream))
            reader.notes += 1
            return reader

    def hand_out(self, stream: NamedStream) -> Finalizer:
        """Take note of a stream that may read as long as what is returned is alive."""
        with self._lock:
            reader = self.note(stream)
            reader.handed += 1
            while reader.ended:
                reader.ended.pop()
                reader.handed -= 1
        return Finalizer(reader.ended.append, None)

    def now(self) -> list[Seen]:
        """Return all, to be forgotten when they have come to events that are recorded from now on."""
        with self._lock:
            return [
                Seen(each, each.stream.address, each.notes, each.handed > len(each.ended))
                for each in list(self._readers.values())
            ]

    def forget(self, done: Iterable[Seen]) -> None:
        """Forget streams that have come to their events, unless they were noted again or can be used still."""
        with self._lock:
            for reader, address, notes, holds in done:
                if not holds and reader.notes == notes:
                    self._readers.pop((address, id(reader.stream.owner)), None)
