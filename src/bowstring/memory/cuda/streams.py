"""CUDA streams as callers name them: by objects of CuPy, torch, cuda.core and Numba, or by their addresses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from bowstring.errors import UsageError
from bowstring.memory.device import device_by_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.memory.device import Device

__all__ = ["NamedStream", "named_streams", "on_streams"]


class NamedStream(NamedTuple):
    """A stream that a caller named: its address (``CUstream``), and the object that keeps it alive."""

    address: int
    owner: object


def named_streams(given: Any) -> tuple[NamedStream, ...]:
    """Return the streams that a caller names, one or several; none for ``None``.

    Raises
    ------
    UsageError
        Something is no stream.

    Examples
    --------
    >>> import types
    >>> [each.address for each in named_streams([types.SimpleNamespace(ptr=4096), 7])]
    [4096, 7]
    """
    if given is None:
        return ()
    alone = _address(given) is not None or not isinstance(given, Iterable)
    found = [(_address(each), each) for each in ([given] if alone else given)]
    if not found or any(address is None for address, _ in found):
        raise UsageError(
            "not a CUDA stream",
            expected="a stream of CuPy, torch, cuda.core or Numba, its address, or several",
            found=repr(given)[:80],
            where="cuda_stream",
        )
    return tuple(NamedStream(address, owner) for address, owner in found if address is not None)


def _address(stream: Any) -> int | None:
    """Return the address of a stream, by the protocol of cuda.core or by the names that libraries have for it."""
    protocol = getattr(stream, "__cuda_stream__", None)
    if callable(protocol):
        stream = protocol()[1]
    for name in ("ptr", "cuda_stream", "handle", "value"):
        stream = getattr(stream, name, stream)
    is_address = isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0
    return int(stream) if is_address else None


def on_streams(device: Device, streams: Sequence[NamedStream]) -> contextlib.AbstractContextManager[None]:
    """Return a block whose work on data of a GPU is queued behind that of some streams, on the first one.

    Parameters
    ----------
    device
        The device of streams that do not say theirs; of the host, the first GPU.
    streams
        Without any, the block changes nothing.
    """
    if not streams:
        return contextlib.nullcontext()
    owner = streams[0].owner
    numbers = (getattr(owner, name, None) for name in ("device_id", "device_index"))  # of CuPy, of torch
    ordinal = next((each for each in numbers if isinstance(each, int) and each >= 0), None)
    if ordinal is not None or device.is_host:
        device = device_by_name(f"cuda:{ordinal or 0}")
    return device.on(streams)
