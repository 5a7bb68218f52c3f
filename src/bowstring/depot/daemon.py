"""The process of a depot: it becomes one, says that it is ready, serves its clients, and ends in good order."""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import resource
import secrets
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

from bowstring.depot.handlers import Client
from bowstring.depot.launch import READY, Paths, locked, try_lock
from bowstring.depot.options import DataSetStatus, DepotStatus, Options, check_remote
from bowstring.depot.protocol import DEPOT_LIMITS, VERSION, Verb
from bowstring.depot.registry import Registry
from bowstring.depot.slab_pool import SlabPool
from bowstring.errors import BowstringError, UsageError
from bowstring.limits import DEFAULT_LIMITS
from bowstring.server import Server, catalogue_of, listen_unnamed
from bowstring.transport import Message, dial

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO

    from bowstring.memory.slab import Descriptor

_TICK: Final = 0.5
_LEAST_TICK: Final = 0.02
_LIFE_SECONDS: Final = 5.0
_DRAIN_SECONDS: Final = 2.0
_MOST_DATASETS: Final = 1000
_PAUSE: Final = 0.01


class Depot:
    """Owns slabs, lends them to tasks, and serves what these committed.

    With `kept` it is never replaced: it was started with `bowstring depot run`.
    """

    def __init__(self, paths: Paths, options: Options, *, kept: bool = False) -> None:
        self.paths = paths
        self.kept = kept
        self.options = options
        self.limits = DEFAULT_LIMITS
        self._life = _lock_for_life(paths)
        self.token = secrets.token_urlsafe()
        self.slab_pool = SlabPool(options.memory, options.disk, options.warm_seconds)
        self.registry = Registry(options.lease_seconds)
        self.server = Server(paths.new_data(), token=self.token, limits=DEPOT_LIMITS)
        self.clients: set[Client] = set()
        self.stopping = False
        self.draining = False
        self.remote_address: str | None = None
        # No event: a signal handler that interrupts whoever waits for one would wait for its lock.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._started = self.asked = time.monotonic()
        self._lock = threading.Lock()
        catalogue = catalogue_of(self.server)
        catalogue.joined, catalogue.client_of = self.registry.joined, functools.partial(Client, self)
        listen_unnamed(self.server, paths.control)

    def run(self) -> None:
        """Do what there is to do until it is stopped, or holds nothing and is asked for nothing for long."""
        self._drain_older()
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

    def _is_idle(self) -> bool:
        if not self.registry.empty or self.slab_pool.in_use:
            return False
        return self.draining or time.monotonic() - self.asked >= self.options.idle_seconds

    def _drain_older(self) -> None:
        for address in self.paths.older():
            with contextlib.suppress(BowstringError), dial(address, DEPOT_LIMITS, _DRAIN_SECONDS) as channel:
                channel.send([Message(Verb.DRAIN, [b"{}"])], _DRAIN_SECONDS)  # JSON, up to version 3
                channel.receive(_DRAIN_SECONDS)


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


def run(folder: str, options: str, ready: int) -> int:
    """Run a depot; `ready` is a descriptor that gets ``ready``, or the error. Return the exit code."""
    pipe = os.fdopen(ready, "wb", 0)
    try:
        serve(Paths(folder), Options.from_json(options), ready=lambda _: _say(pipe, READY))
    except (BowstringError, OSError) as error:
        if pipe.closed:  # nobody hears of it; its number may be that of a slab by now
            raise
        _say(pipe, str(error).encode())
        return 1
    return 0


def serve(
    paths: Paths,
    options: Options,
    *,
    ready: Callable[[str | None], object],
    tcp: str | None = None,
    kept: bool = False,
) -> None:
    """Run a depot until it is stopped, by a request or by SIGTERM or SIGINT, or has nothing more to do.

    `ready` is called with the address for other hosts when clients may connect.
    """
    os.umask(0o077)
    _take_all_allowed()
    depot = Depot(paths, options, kept=kept)
    try:
        # A terminal that closes, or an executor that ends, is no reason.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: depot.stop())
        # The process that started it may have blocked them.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
        ready(None if tcp is None else depot.listen_too(tcp))
    except BaseException:
        depot.stop()
        raise
    finally:
        depot.run()


def _take_all_allowed() -> None:
    """Raise limits of the process that started this one: a slab takes two descriptors, of usually 1024."""
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS):
        _, hard = resource.getrlimit(limit)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (hard, hard))
    # Spark's `spark.executor.pyspark.memory` lowers the hard one, too, which only root may raise.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _say(pipe: FileIO, text: bytes) -> None:
    with contextlib.suppress(OSError), pipe:
        pipe.write(text)
