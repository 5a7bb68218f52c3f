"""What a depot of this process keeps and says, whoever asks: slabs, data sets, its server, and whether it ends."""

from __future__ import annotations

import os
import queue
import secrets
import threading
import time
from typing import Any, Final

from bowstring.depot.launch import Paths
from bowstring.depot.options import DataSetStatus, DepotStatus, Options, check_remote
from bowstring.depot.protocol import DEPOT_LIMITS, VERSION
from bowstring.depot.registry import Registry
from bowstring.depot.slab_pool import SlabPool
from bowstring.limits import DEFAULT_LIMITS
from bowstring.server import Server

_MOST_DATASETS: Final = 1000


class Service:
    """Owns slabs, lends them to tasks, and serves what these committed.

    With `kept` it is never replaced: it was started with `bowstring depot run`.
    """

    def __init__(self, paths: Paths, options: Options, *, kept: bool = False) -> None:
        self.kept = kept
        self.options = options
        self.limits = DEFAULT_LIMITS
        self.token = secrets.token_urlsafe()
        self.slab_pool = SlabPool(options.memory, options.disk, options.warm_seconds)
        self.registry = Registry(options.lease_seconds)
        self.server = Server(paths.new_data(), token=self.token, limits=DEPOT_LIMITS)
        self.clients: set[Any] = set()
        self.stopping = False
        self.draining = False
        self.remote_address: str | None = None
        # No event: a signal handler that interrupts whoever waits for one would wait for its lock.
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

    def drain(self) -> None:
        """Take no more attempts, and end when nothing is held."""
        self.draining = True
        self._wake.put(None)

    def stop(self) -> None:
        """End soon; from a signal handler, too. Readers keep what they have mapped."""
        self.stopping = True
        self._wake.put(None)

    def ends_if_empty(self) -> bool:
        """Take nothing more and return true, unless data are held, written or read, or it stays without any."""
        return not self.kept and self.registry.ends_if_empty(self.slab_pool)

    def status(self) -> DepotStatus:
        """Say what it holds."""
        held, waiting = self.slab_pool.held(), self.slab_pool.waiting()
        applications, datasets = self.registry.overview(_MOST_DATASETS)
        return DepotStatus(
            version=VERSION,
            pid=os.getpid(),
            uptime=time.monotonic() - self._started,
            draining=self.draining,
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
