"""Launching: the one place that knows where the arrays of a kernel are, and how it runs there."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any, Final, Literal

import numpy as np

from bowstring.errors import NotOnDevice, Unsupported, UsageError
from bowstring.kernels import host
from bowstring.kernels.signature import Kernel, match

# Takes the arguments of a launch; returns them with plain host arrays, and what makes a result an array again.
Unwrap = Callable[[tuple[Any, ...]], tuple[tuple[Any, ...], Callable[[Any], Any]]]


Place = Literal["host", "cuda"] | Unwrap

# The threads of a warp, as a binary logarithm.
_SHARED_LOG: Final = 5
# Of the types that most arguments have, and of those that are registered.
_PLACES: dict[type, Place | None] = {np.ndarray: "host", **dict.fromkeys((int, bool, float, np.uint64))}
# What takes launches, and bodies over arrays, of arrays that are of these types.
_RECORDERS: dict[type, tuple[Callable[..., None], Callable[..., Any]]] = {}


def register_array_type(array_type: type, unwrap: Unwrap) -> None:
    """Tell how a launch gets at arrays that cannot be read as NumPy's or CuPy's, such as the fake device's."""
    _PLACES[array_type] = unwrap


def register_recorder(array_type: type, launched: Callable[..., None], run: Callable[..., Any]) -> None:
    """Have launches with arrays of a type, exactly, go to a function that runs them on the host and notes them."""
    _PLACES[array_type] = "host"
    _RECORDERS[array_type] = launched, run


def find_place(arguments: tuple[Any, ...]) -> Place:
    """Return where the arrays among the arguments are."""
    found: Place | None = None
    for argument in arguments:
        place = _place(type(argument))
        if place is not None and place != found:
            if found is not None:
                raise NotOnDevice("arrays of two places", found=[type(each).__name__ for each in arguments])
            found = place
    if found is None:
        raise Unsupported("no kernel runs on such arrays", found=[type(each).__name__ for each in arguments])
    return found


def device_of(arguments: tuple[Any, ...]) -> int:
    """Return the number of the GPU that the CuPy arrays among the arguments are on."""
    devices = {int(each.device.id) for each in arguments if _place(type(each)) == "cuda"}
    if len(devices) > 1:
        raise NotOnDevice("arrays of two devices", found=sorted(devices))
    return devices.pop()


def _place(kind: type) -> Place | None:
    if kind in _PLACES:
        return _PLACES[kind]
    return "cuda" if kind.__module__.partition(".")[0] == "cupy" else None


def launch(kernel: Kernel, items: int, *arguments: Any) -> None:
    """Run ``kernel(i, *arguments)`` for every work item `i` of ``range(items)``, where the arrays are.

    On the host a compiled loop runs over ranges of items in this thread, or in several threads for larger
    arrays, and is done on return. On CUDA the work is queued on CuPy's current stream. With
    ``BOWSTRING_KERNELS=interpret`` the host calls the plain function.
    """
    if host.run_at_once(kernel, items, arguments):
        return
    place = find_place(arguments)
    if place == "host" and (recorder := _recorder_of(arguments)) is not None:
        recorder[0](kernel, items, *arguments)
        return
    if callable(place):
        arguments, _ = place(arguments)
    signature, values = match(kernel, arguments)
    if items < 0:
        raise UsageError("a negative number of work items", found=items)
    if items == 0:
        return
    if place == "cuda":
        from bowstring.kernels.cuda import run

        run(signature, items, values, device_of(arguments))
    else:
        host.run(signature, items, values)


def _recorder_of(arguments: tuple[Any, ...]) -> tuple[Callable[..., None], Callable[..., Any]] | None:
    return next((_RECORDERS[type(each)] for each in arguments if type(each) in _RECORDERS), None)


def launch_shared(kernel: Kernel, rows: int, *arguments: Any) -> None:
    """Run a kernel that copies the bytes of each of `rows`, which its work items share on a device.

    Its first argument is the binary logarithm of how many share a row: 32 on a device, so that neighbouring threads
    touch neighbouring bytes, however long a row is; one on the host.
    """
    log = 0 if type(arguments[0]) is np.ndarray or find_place(arguments) == "host" else _SHARED_LOG
    launch(kernel, rows << log, log, *arguments)


def is_installed(package: str) -> bool:
    """Whether a package can be imported, without doing so."""
    if package in sys.modules:
        return sys.modules[package] is not None
    return importlib.util.find_spec(package) is not None


def are_ready() -> bool:
    """Whether kernels run at once on the host: compiled by the build, or by a compiler that is loaded already."""
    return host.is_ready() or sys.modules.get("numba") is not None


def can_launch(array: Any) -> bool:
    """Whether kernels run where an array is: compiled by the build, or by a compiler that is installed."""
    if find_place((array,)) == "cuda":
        from bowstring.kernels import cuda

        return cuda.is_ready(device_of((array,))) or (is_installed("numba") and is_installed("numba_cuda"))
    return host.is_ready() or is_installed("numba")


def run_arrays(body: Callable[..., Any], *arguments: Any) -> Any:
    """Call ``body(xp, *arguments)`` where the arrays are and return its result, an array of the same device.

    This is for work that the array namespace does well enough, and that must run without the extra
    ``kernels``; what it cannot do is a kernel (:func:`~bowstring.kernels.launch.launch`).
    """
    place = find_place(arguments)
    if place == "host":
        recorder = _recorder_of(arguments)
        return body(np, *arguments) if recorder is None else recorder[1](body, *arguments)
    if place == "cuda":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(device_of(arguments)):
            return body(cupy, *arguments)
    plain, wrap = place(arguments)
    return wrap(body(np, *plain))
