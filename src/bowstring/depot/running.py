"""Running: a process becomes a depot, says that it is ready, and ends in good order when it is told to."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from typing import TYPE_CHECKING, Final

from bowstring.depot.options import Options
from bowstring.depot.places import Places
from bowstring.depot.process import Depot
from bowstring.errors import BowstringError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run", "serve"]

_READY: Final = b"ready"


def run(folder: str, options: str, ready: int) -> int:
    """Be a depot.

    Parameters
    ----------
    folder
        Where it listens.
    options
        As JSON.
    ready
        A descriptor that hears ``ready``, or what is in the way.

    Returns
    -------
    int
        The exit code.
    """
    try:
        serve(Places(folder), Options.from_json(options), ready=lambda _: _say(ready, _READY))
    except (BowstringError, OSError) as error:
        _say(ready, str(error).encode())
        return 1
    return 0


def serve(
    places: Places, options: Options, *, ready: Callable[[str | None], object], tcp: str | None = None
) -> None:
    """Be a depot until it is stopped, by a request or by SIGTERM or SIGINT, or has nothing more to do.

    Parameters
    ----------
    places, options
        Where it listens, and what it may use.
    ready
        Called with the address for other hosts when clients may come.
    tcp
        Where other hosts reach it.
    """
    os.umask(0o077)
    _take_all_allowed()
    depot = Depot(places, options)
    try:
        # A terminal that closes, or an executor that ends, is no reason.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: depot.stop())
        # Whoever started it may have kept them from himself.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
        ready(None if tcp is None else depot.listen_too(tcp))
    except BaseException:
        depot.stop()
        raise
    finally:
        depot.run()


def _take_all_allowed() -> None:
    """Each slab takes two descriptors, of usually 1024, and is mapped: whoever started us may have had less."""
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS):
        _, hard = resource.getrlimit(limit)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (hard, hard))
    # Spark's `spark.executor.pyspark.memory` lowers the hard one, too, which only root may raise.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _say(fd: int, text: bytes) -> None:
    with contextlib.suppress(OSError):
        os.write(fd, text)
        os.close(fd)
