"""Running: a process becomes a depot, says that it is ready, and ends in good order when it is told to."""

from __future__ import annotations

import contextlib
import os
import resource
import signal

from bowstring.depot.options import Options
from bowstring.depot.places import Places
from bowstring.depot.process import Depot
from bowstring.errors import BowstringError

__all__ = ["READY", "run"]

READY = b"ready"


def run(folder: str, options: str, ready: int) -> int:
    """Be a depot.

    Parameters
    ----------
    folder
        Where it listens.
    options
        As JSON.
    ready
        A descriptor that hears ``ready``, or what is in the way; -1 for none.

    Returns
    -------
    int
        The exit code.
    """
    os.umask(0o077)
    _take_all_descriptors()
    try:
        depot = Depot(Places(folder), Options.from_json(options))
    except (BowstringError, OSError) as error:
        _say(ready, str(error).encode())
        return 1
    # A terminal that closes, or an executor that ends, is no reason.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: depot.stop())
    _say(ready, READY)
    depot.run()
    return 0


def _take_all_descriptors() -> None:
    """Each slab takes three descriptors, and the usual limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _say(fd: int, text: bytes) -> None:
    if fd >= 0:
        with contextlib.suppress(OSError):
            os.write(fd, text)
        os.close(fd)
