"""Descriptors: slabs never take the last ones, or nobody could come and read what lies in them."""

from __future__ import annotations

import resource
from typing import Final

from bowstring.errors import LimitExceeded

__all__ = ["check_spare"]

_SPARE: Final = 256


def check_spare(fd: int) -> None:
    """Refuse a slab whose descriptor is one of the last.

    Raises
    ------
    LimitExceeded
        Too few would be left for readers and tasks.

    Examples
    --------
    >>> check_spare(3)
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return
    # The system gives the lowest number that is free.
    kept = min(_SPARE, most // 4)
    if fd >= most - kept:
        raise LimitExceeded(
            "no descriptor is left for a slab",
            expected=f"{kept} of {most} descriptors left for readers",
            hint="Raise the limit of open files (ulimit -n) where the depot starts, or publish fewer partitions.",
        )
