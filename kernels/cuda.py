"""Kernels on CUDA: which code runs them, and how CuPy loads and launches it.

The build compiled them, so CuPy is all that a GPU needs; without code for the GPU and its driver, numba-cuda
compiles a kernel at its first use. ``BOWSTRING_KERNELS`` chooses as on the host; with ``checked`` and
``interpret``, the kernel runs on the host, on copies. Only CuPy talks to the driver: one current device for all.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, Final

import numpy as np

from bowstring.errors import MissingDependency
from bowstring.kernels import archive, host
from bowstring.kernels.library import NotUsable
from bowstring.kernels.signature import Signature

_THREADS_PER_BLOCK: Final = 128

_loading = threading.Lock()


def run(signature: Signature, items: int, arguments: tuple[Any, ...], device: int) -> None:
    """Queue a kernel on CuPy's current stream of a GPU, one thread for each item."""
    import cupy

    chosen = host.way()
    with cupy.cuda.Device(device):
        if chosen in ("checked", "interpret"):
            _run_on_host(signature, items, arguments)
            return
        with _loading:
            function = _function(chosen, signature, device)
        blocks = -(-items // _THREADS_PER_BLOCK)
        function((blocks,), (_THREADS_PER_BLOCK,), parameter_words(items, arguments))


def parameter_words(items: int, arguments: tuple[Any, ...]) -> tuple[np.generic, ...]:
    """Return the parameters of a launch as numba-cuda's kernels take them.

    An array of one dimension is: owner, parent, elements, bytes of an element, address, extent, stride.
    """
    words: list[np.generic] = [np.int64(items)]
    for argument in arguments:
        if isinstance(argument, np.generic):
            words.append(argument)
        else:
            size, itemsize = argument.size, argument.itemsize
            words.extend(map(np.int64, (0, 0, size, itemsize, argument.data.ptr, size, itemsize)))
    return tuple(words)


def is_ready(device: int) -> bool:
    """Whether a GPU and its driver take the code that the build made, and it may be used."""
    loaded = archive.load()
    if host.way() not in ("", "library") or isinstance(loaded, NotUsable):
        return False
    return isinstance(loaded.choose(_capability(device), _driver()), str)


@functools.cache
def _function(chosen: str, signature: Signature, device: int) -> Any:
    import cupy

    module = cupy.cuda.function.Module()
    module.load(_code(chosen, signature, _capability(device)))
    return module.get_function(signature.name)


def _capability(device: int) -> archive.Capability:
    import cupy

    major, minor = divmod(int(cupy.cuda.Device(device).compute_capability), 10)
    return major, minor


def _driver() -> tuple[int, int]:
    """Return the newest version of CUDA that the driver supports."""
    import cupy

    version = int(cupy.cuda.runtime.driverGetVersion())
    return version // 1000, version % 1000 // 10


def _code(chosen: str, signature: Signature, capability: archive.Capability) -> bytes:
    """Return machine code or text that the driver loads, chosen by a way that :func:`host.way` returns."""
    from bowstring.kernels.cubin import load_cubin

    if chosen == "jit":
        return load_cubin(signature, capability)
    found = archive.find(signature, capability, _driver())
    if isinstance(found, bytes):
        return found
    if chosen:
        raise MissingDependency(
            "the code for GPUs that the build compiled was chosen and cannot be used",
            found=found.reason,
            where=host.VARIABLE,
            hint="`bowstring doctor` names the command that compiles it.",
        )
    ours = signature.kernel.__module__.startswith("bowstring.")
    return load_cubin(signature, capability, why=found.reason if ours else "")


def _run_on_host(signature: Signature, items: int, arguments: tuple[Any, ...]) -> None:
    """Run a kernel over copies of its arrays, and copy back what it wrote."""
    copies = tuple(
        each.get() if kind.array else each for kind, each in zip(signature.parameters, arguments, strict=True)
    )
    host.run(signature, items, copies)
    for kind, copy, there in zip(signature.parameters, copies, arguments, strict=True):
        if kind.written:
            there.set(copy)
