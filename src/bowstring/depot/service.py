"""A depot of this process: slabs, data sets, its server, and how long it goes on."""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from bowstring.depot.launch import Paths, locked, try_lock
from bowstring.depot.options import DataSetStatus, DepotStatus, Options, check_remote
from bowstring.depot.protocol import DEPOT_LIMITS, VERSION
from bowstring.depot.registry import Registry
from bowstring.depot.slab_pool import SlabPool
from bowstring.errors import BowstringError, UsageError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.server import Server, catalogue_of
from bowstring.transport import dial

if TYPE_CHECKING:
    from bowstring.memory.slab import Descriptor

_MOST_DATASETS: Final = 1000
_TICK: Final = 0.5
_LEAST_TICK: Final = 0.02
_LIFE_SECONDS: Final = 5.0
_PAUSE: Final = 0.01


class DepotProcess:
    """Owns slabs, lends them to tasks, and serves what these committed, alone at its path as long as it lives.

    With `kept` it is never replaced: it was started with `bowstring depot run`.
    """

    def __init__(self, paths: Paths, options: Options, *, kept: bool = False) -> None:
        self.paths = paths
        self._life = _lock_for_life(paths)
        self.kept = kept
        self.options = options
        self.limits = DEFAULT_LIMITS
        self.token = secrets.token_urlsafe()
        self.slab_pool = SlabPool(options.memory, options.disk, options.warm_seconds)
        self.registry = Registry(options.lease_seconds)
        self.server = Server(paths.new_data(), token=self.token, limits=DEPOT_LIMITS)
        catalogue_of(self.server).joined = self.registry.joined
        self.clients: set[Any] = set()
        self.stopping = False
        self.remote_address: str | None = None
        # No event: a signal handler that interrupts a thread waiting for one would wait for its lock.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._started = self.asked = time.monotonic()
        self._lock = threading.Lock()

    def listen_too(self, address: str) -> str:
        """Serve readers and clients on other hosts at an address; return where those find it.

        Only the first call listens: later ones return its address.
        """
        with self._lock:
            if self.remote_address is None:
                check_remote(self.options, address)
                listened = self.server.listen_too(
                    address, tls=self.options.tls, plaintext=self.options.plaintext
                )
                self.remote_address = f"{listened}?token={self.token}"
            return self.remote_address

    def run(self) -> None:
        """Do what there is to do until it is stopped, or holds nothing and is asked for nothing for long."""
        # Who says short times wants them kept.
        shortest = min(self.options.lease_seconds, self.options.idle_seconds) / 4
        tick = min(_TICK, max(_LEAST_TICK, shortest))
        try:
            while not self.stopping:
                with contextlib.suppress(queue.Empty):
                    self._wake.get(timeout=tick)
                self.registry.tidy()
                self.slab_pool.trim()
                if self._is_idle():
                    # A client that looks for the depot holds the lock: it connects before that, or starts another.
                    with contextlib.suppress(BowstringError), locked(self.paths.start_lock, 0.0):
                        if self._is_idle():
                            self.stopping = True
                            self.server.close()
        finally:
            self.stopping = True
            self.slab_pool.close()
            self.server.close()
            self._life.close()

    def _is_idle(self) -> bool:
        holds = not self.registry.empty or self.slab_pool.in_use
        return not holds and time.monotonic() - self.asked >= self.options.idle_seconds

    def stop(self) -> None:
        """End soon; from a signal handler, too. Readers keep what they have mapped."""
        self.stopping = True
        self._wake.put(None)

    def ends_if_empty(self) -> bool:
        """Take nothing more and return true, unless data are held, written or read, or it stays without any."""
        return not self.kept and self.registry.ends_if_empty(self.slab_pool)

    def status(self) -> DepotStatus:
        held, waiting = self.slab_pool.held(), self.slab_pool.waiting()
        applications, datasets = self.registry.overview(_MOST_DATASETS)
        return DepotStatus(
            version=VERSION,
            pid=os.getpid(),
            uptime=time.monotonic() - self._started,
            clients=len(self.clients),
            readers=self.server.stats.connections - len(self.clients),
            applications=applications,
            datasets=tuple(
                DataSetStatus(
                    name=dataset.name,
                    application=dataset.application,
                    streams=len(streams),
                    attempts=len(dataset.attempts),
                    num_rows=sum(each.described["num_rows"] for each in streams),
                    nbytes=sum(each.described["nbytes"] for each in streams),
                    readers=sum(each.publication.active for each in streams),
                    held=held.get(dataset.name, 0) + sum(each.shared_bytes for each in streams),
                    waiting=waiting.get(dataset.name, 0),
                )
                for dataset, streams in datasets
            ),
            **self.slab_pool.figures(),
        )


def _lock_for_life(paths: Paths) -> Descriptor:
    """Take the lock that a depot holds as long as it lives; one that ends just now is waited for."""
    end = time.monotonic() + _LIFE_SECONDS
    while (fd := try_lock(paths.life_lock)) is None:
        listens = True
        try:
            dial(paths.control, DEPOT_LIMITS, _LIFE_SECONDS).close()
        except BowstringError:
            listens = False  # as one that ends
        if listens or time.monotonic() >= end:
            raise UsageError("another depot of this version lives here", where=paths.folder)
        time.sleep(_PAUSE)
    return fd
