"""Applications of a depot: their data sets, what is committed of each, and for whom all of it is kept."""

from __future__ import annotations

import dataclasses
import math
import os
import select
import time
from typing import TYPE_CHECKING, Any

from bowstring.errors import UsageError
from bowstring.memory.slab import opened

if TYPE_CHECKING:
    from bowstring.depot.manifest import BegunAttempt
    from bowstring.server.catalogue import Publication


class Holder:
    """What keeps an application alive: a process of this host, or, with ``pid=None``, a connection."""

    def __init__(self, pid: int | None = None) -> None:
        self.pid = pid
        self.gone = False
        try:
            self._process = None if pid is None else opened(os.pidfd_open, pid)
        except OSError as error:
            raise UsageError(
                "a process to watch is not there", found=f"pid {pid}: {error.strerror}"
            ) from error

    @property
    def alive(self) -> bool:
        """Whether it is."""
        if self._process is not None and not self.gone:
            poll = select.poll()
            poll.register(self._process, select.POLLIN)
            self.gone = bool(poll.poll(0))
        return not self.gone


@dataclasses.dataclass(eq=False, slots=True)
class Stream:
    """One committed stream: an attempt that can be read."""

    publication: Publication
    described: dict[str, Any]  # as COMMIT is answered
    folder: str  # where its files go
    # The slab that it shares with others of a name; empty where it has no bytes, `None` where it lies by itself.
    slab: bytes | None = None
    schema: bytes = b""  # its message, where it has dictionaries, which that numbers
    shared_bytes: int = 0  # how much it takes of the slab


@dataclasses.dataclass(eq=False, slots=True)
class DataSet:
    """The streams of a data set that are offered, by ticket, the attempts that go on, and until when it is kept."""

    name: str
    application: str
    streams: dict[bytes, Stream] = dataclasses.field(default_factory=dict)
    attempts: set[BegunAttempt] = dataclasses.field(default_factory=set)
    until: float = math.inf


class Application:
    """The owner of data sets, which are kept for `lease_seconds` after its last sign of life."""

    def __init__(self, name: str, lease_seconds: float) -> None:
        self.name = name
        self.lease_seconds = lease_seconds
        self.holders: set[Holder] = set()
        self.was_held = False
        self.datasets: dict[str, DataSet] = {}
        self.renew()

    def renew(self) -> None:
        """Let the lease begin anew."""
        self._expires = time.monotonic() + self.lease_seconds

    @property
    def held(self) -> bool:
        """Whether somebody is known to be alive for whom it is kept."""
        return any(holder.alive for holder in self.holders)

    @property
    def expired(self) -> bool:
        """Whether nobody gave a sign of life for as long as the lease runs."""
        if self.held or any(dataset.attempts for dataset in self.datasets.values()):
            self.renew()
        return time.monotonic() >= self._expires
