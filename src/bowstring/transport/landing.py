"""Where the body of a message lands."""

from __future__ import annotations

from typing import Any

from bowstring.errors import LimitExceeded, UsageError
from bowstring.transport.channel import Land

__all__ = ["landing"]


def landing(tag: int | None, length: int, land: Land | None) -> memoryview:
    """Return writable bytes for a body: what ``land`` gives for a tagged one, or fresh memory.

    Raises
    ------
    UsageError
        ``land`` gave memory of another length, read-only, or in strides.
    LimitExceeded
        There is no memory for it.

    Examples
    --------
    >>> place = bytearray(4)
    >>> landing(7, 4, lambda tag, nbytes: place).obj is place
    True
    """
    if tag is None or land is None:
        try:
            return memoryview(bytearray(length))
        except MemoryError as error:
            raise LimitExceeded("no memory for a message", found=f"{length} bytes") from error
    place: Any = land(tag, length)
    given = memoryview(place)
    if given.readonly or not given.c_contiguous or given.nbytes != length:
        raise UsageError(
            "land() gave memory that does not fit",
            expected=f"{length} contiguous writable bytes",
            found=f"{given.nbytes} bytes, {'read-only' if given.readonly else 'writable'}",
        )
    if given.format == "B" and given.ndim == 1:
        return given
    # A view with a zero in its shape cannot be cast.
    return given.cast("B") if length else memoryview(bytearray())
