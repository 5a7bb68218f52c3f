"""Arrays: the device that an array lies on, its last element, and the distinct values of one."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bowstring.errors import NotExportable
from bowstring.memory.device import Device

_CUDA: Final = (2, 13)  # kDLCUDA, kDLCUDAManaged


def device_array(values: Any) -> tuple[Device, Any] | None:
    """Return an array's device, and the array in that device's namespace, not copied; ``None`` for the host.

    The current stream waits for the producer's: DLPack's current one, or that named by the CUDA array interface.
    """
    device = getattr(values, "device", None)
    if isinstance(device, Device):
        return None if device.is_host else (device, values)
    ask = getattr(values, "__dlpack_device__", None)
    kind = int(ask()[0]) if callable(ask) else None
    # Not asked of those that say they are on the host: torch raises where a tensor needs a gradient.
    if kind not in _CUDA and (kind is not None or not hasattr(values, "__cuda_array_interface__")):
        return None
    # Loaded on first use, as all of CUDA is.
    from bowstring.memory.cuda.device import cuda_device, load_cupy

    cupy = load_cupy()
    if kind is None or isinstance(values, cupy.ndarray):
        array = cupy.asarray(values)
    else:  # torch's interface names no stream, and its work on a stream of its own would not be waited for
        try:
            array = cupy.from_dlpack(values)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise NotExportable("an array is not handed over by its library", found=str(error)) from error
    return cuda_device(int(array.device.id)), array


def last_of(integers: Any) -> int:
    """Return the last of some integers, on whatever device they are: one read by the host."""
    last = integers[-1:]
    on_device = device_array(last)
    return int((last if on_device is None else on_device[0].to_host(on_device[1]))[0])


def distinct(numbers: npt.NDArray[Any]) -> list[int]:
    """Return the distinct values of an integer array, sorted.

    `numpy.unique` releases the GIL inside C++ (NumPy 2.3 on): a daemon thread in it at exit crashes the process.
    """
    ordered = np.sort(numbers, axis=None)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    values: list[int] = ordered[first].tolist()
    return values
