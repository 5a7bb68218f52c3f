"""Streams of GPUs as their users have them, of whichever library: who waits for one, and where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["addresses_of"]


def addresses_of(streams: Iterable[Any]) -> tuple[int, ...] | None:
    """Return the addresses (``CUstream``) of some streams; ``None`` where one does not tell it.

    They are asked by the protocol of ``cuda.core`` (``__cuda_stream__``), or for CuPy's ``ptr``.

    Examples
    --------
    >>> import types
    >>> addresses_of([types.SimpleNamespace(ptr=4096)]), addresses_of([object()])
    ((4096,), None)
    """
    found: list[int] = []
    for stream in streams:
        told = getattr(stream, "__cuda_stream__", None)
        address = told()[1] if callable(told) else getattr(stream, "ptr", None)
        if not isinstance(address, int):
            return None
        found.append(address)
    return tuple(found)
