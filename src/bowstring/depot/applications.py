"""Applications of a depot: whose data sets they are, what is committed of each, and for whom all of it is kept."""

from __future__ import annotations

import dataclasses
import os
import select
import time
from typing import TYPE_CHECKING

from bowstring.errors import UsageError

if TYPE_CHECKING:
    from bowstring.depot.manifest import Attempt
    from bowstring.dissociated.endpoint import Endpoint
    from bowstring.server.catalogue import Publication


class Holder:
    """What keeps an application alive: a process of this host, or, with ``pid=None``, a connection."""

    _fd = -1  # also where an interrupt comes first

    def __init__(self, pid: int | None = None) -> None:
        self.pid = pid
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


@dataclasses.dataclass(eq=False, slots=True)
class Committed:
    """One committed stream: an attempt that can be read."""

    publication: Publication
    endpoint: Endpoint
    partition: int
    number: int
    num_rows: int
    num_batches: int
    nbytes: int
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
    streams: dict[bytes, Committed] = dataclasses.field(default_factory=dict)
    attempts: set[Attempt] = dataclasses.field(default_factory=set)
    until: float | None = None


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
        return any(holder.alive() for holder in self.holders)

    @property
    def expired(self) -> bool:
        """Whether nobody gave a sign of life for as long as the lease runs."""
        if self.held or any(dataset.attempts for dataset in self.datasets.values()):
            self.renew()
        return time.monotonic() >= self._expires
