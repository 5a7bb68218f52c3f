"""Where the body of a message lands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from bowstring.errors import LimitExceeded, UsageError
from bowstring.transport.channel import Land, Landing

__all__ = ["landing", "lazy_memory"]

_SMALL: Final = 1 << 16

Prepare = Callable[[int], int]


def lazy_memory(nbytes: int) -> memoryview:
    """Return fresh writable memory that takes pages as it is written: a length is only a claim.

    Raises
    ------
    LimitExceeded
        There is no memory for it.

    Examples
    --------
    >>> lazy_memory(3).nbytes
    3
    """
    try:
        # Memory of a `bytearray` is filled with zeros, and so all there at once.
        fresh: Any = bytearray(nbytes) if nbytes <= _SMALL else np.empty(nbytes, np.uint8)
        return memoryview(fresh)
    except MemoryError as error:
        raise LimitExceeded("no memory for a message", found=f"{nbytes} bytes") from error


def landing(tag: int | None, length: int, land: Land | None) -> tuple[memoryview, Prepare | None]:
    """Return writable bytes for a body, and what to call before they are written, if anything.

    A tagged body lands in what ``land`` gives, any other in fresh memory.

    Raises
    ------
    UsageError
        ``land`` gave memory of another length, read-only, or in strides.
    LimitExceeded
        There is no memory for it.

    Examples
    --------
    >>> place = bytearray(4)
    >>> landing(7, 4, lambda tag, nbytes: place)[0].obj is place
    True
    """
    if tag is None or land is None:
        return lazy_memory(length), None
    place: Any = land(tag, length)
    prepare = None
    if isinstance(place, Landing):
        place, prepare = place.place, place.prepare
    given = memoryview(place)
    if given.readonly or not given.c_contiguous or given.nbytes != length:
        raise UsageError(
            "land() gave memory that does not fit",
            expected=f"{length} contiguous writable bytes",
            found=f"{given.nbytes} bytes, {'read-only' if given.readonly else 'writable'}",
        )
    if given.format == "B" and given.ndim == 1:
        return given, prepare
    # A view with a zero in its shape cannot be cast.
    return given.cast("B") if length else memoryview(bytearray()), prepare
