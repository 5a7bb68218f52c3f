"""Kernels on CUDA: machine code of :mod:`bowstring.kernels.cubin`, loaded and launched by CuPy.

CuPy alone talks to the driver, so work is queued on its current stream and there is one idea of the current
device. Arguments are laid out as numba-cuda 0.30 compiles them: an array is seven 64-bit words.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, Final

import numpy as np

from bowstring.kernels.array_device import device_of
from bowstring.kernels.cubin import load_cubin
from bowstring.kernels.signature import Signature

__all__ = ["parameter_words", "run"]

_THREADS_PER_BLOCK: Final = 128

_loading = threading.Lock()


def run(signature: Signature, items: int, arguments: tuple[Any, ...]) -> None:
    """Queue a kernel on CuPy's current stream, one thread for each item.

    Raises
    ------
    NotOnDevice
        Arrays of two GPUs.
    MissingDependency
        numba-cuda is not installed.
    """
    import cupy

    device = device_of(arguments)
    blocks = -(-items // _THREADS_PER_BLOCK)
    with cupy.cuda.Device(device):
        with _loading:
            function = _function(signature, device)
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


@functools.cache
def _function(signature: Signature, device: int) -> Any:
    import cupy

    major, minor = divmod(int(cupy.cuda.Device(device).compute_capability), 10)
    code, entry = load_cubin(signature, (major, minor))
    module = cupy.cuda.function.Module()
    module.load(code)
    return module.get_function(entry)
