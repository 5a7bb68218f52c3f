"""The process of a depot: it becomes one, says that it is ready, serves its clients, and ends in good order."""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import signal
from typing import TYPE_CHECKING

from bowstring.depot.handlers import Client
from bowstring.depot.launch import READY, Paths
from bowstring.depot.options import Options
from bowstring.depot.service import DepotProcess
from bowstring.errors import BowstringError
from bowstring.server import catalogue_of, listen_unnamed

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO


def new_depot(paths: Paths, options: Options, *, kept: bool = False) -> DepotProcess:
    """Return a depot that clients find at its path."""
    depot = DepotProcess(paths, options, kept=kept)
    catalogue_of(depot.server).client_of = functools.partial(Client, depot)
    listen_unnamed(depot.server, paths.control)
    return depot


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
    depot = new_depot(paths, options, kept=kept)
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
