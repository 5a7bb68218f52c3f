"""The process of a depot: it becomes one, says that it is ready, serves its clients, and ends in good order."""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import resource
import signal
import time
from typing import TYPE_CHECKING, Final

from bowstring.depot.handlers import Client
from bowstring.depot.launch import READY, Paths, locked, try_lock
from bowstring.depot.options import Options
from bowstring.depot.protocol import DEPOT_LIMITS, Verb
from bowstring.depot.service import Service
from bowstring.errors import BowstringError, UsageError
from bowstring.server import catalogue_of, listen_unnamed
from bowstring.transport import Message, dial

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO

    from bowstring.memory.slab import Descriptor

_TICK: Final = 0.5
_LEAST_TICK: Final = 0.02
_LIFE_SECONDS: Final = 5.0
_DRAIN_SECONDS: Final = 2.0
_PAUSE: Final = 0.01


class DepotProcess(Service):
    """A service that clients find at its path, alone there as long as it lives."""

    def __init__(self, paths: Paths, options: Options, *, kept: bool = False) -> None:
        self.paths = paths
        self._life = _lock_for_life(paths)
        super().__init__(paths, options, kept=kept)
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
    depot = DepotProcess(paths, options, kept=kept)
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
