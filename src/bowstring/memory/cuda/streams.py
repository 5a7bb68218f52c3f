"""CUDA streams as callers name them: by objects of CuPy, torch, cuda.core and Numba, or by their addresses."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, TypeVar

from bowstring.errors import UsageError
from bowstring.memory.device import device_by_name, devices_in_use

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bowstring.memory.device import Device

__all__ = ["NamedStream", "current_streams", "named_streams", "on_streams", "with_current_streams"]

# CU_STREAM_LEGACY, CU_STREAM_PER_THREAD
_LEGACY: Final = 1
_PER_THREAD: Final = 2
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


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


def current_streams() -> dict[Device, NamedStream]:
    """Return the streams on which this thread queues work now, for another thread that works on its behalf."""
    found: dict[Device, NamedStream] = {}
    for device in devices_in_use():
        with contextlib.suppress(Exception):  # a GPU that failed, which data on the host need not care about
            stream = device.current()
            if stream is not None:
                # The default stream of each thread is another one, and the legacy one waits for all of them.
                legacy = stream.address == _PER_THREAD
                found[device] = stream._replace(address=_LEGACY) if legacy else stream
    return found


def with_current_streams(
    function: Callable[_Arguments, _Result],
) -> Callable[_Arguments, _Result]:
    """Return a function for another thread, whose work goes to the streams current in this one now."""
    streams = current_streams()

    @functools.wraps(function)
    def call(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        with contextlib.ExitStack() as blocks:
            for device, stream in streams.items():
                if stream.address:  # the default one is current there, too
                    blocks.enter_context(device.on([stream]))
            return function(*arguments, **options)

    return call
