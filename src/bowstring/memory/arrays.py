"""Arrays: the device that an array lies on, its last element, and the distinct values of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from bowstring.memory.device import Device

__all__ = ["device_array", "distinct", "last_of"]


def device_array(values: Any) -> tuple[Device, Any] | None:
    """Return an array's device, and the array in that device's namespace, not copied; ``None`` for the host.

    Parameters
    ----------
    values
        A CuPy array, any object with ``__cuda_array_interface__`` (numba, PyTorch), or an array of another device
        that Bowstring knows.

    Raises
    ------
    NotOnDevice
        This process cannot use the device.
    MissingDependency
        Arrays on a GPU need CuPy.
    """
    device = getattr(values, "device", None)
    if isinstance(device, Device):
        return None if device.is_host else (device, values)
    if not hasattr(values, "__cuda_array_interface__"):
        return None
    # Loaded on first use, as all of CUDA is.
    from bowstring.memory.cuda.device import cuda_device, load_cupy

    array = load_cupy().asarray(values)
    return cuda_device(int(array.device.id)), array


def last_of(integers: Any) -> int:
    """Return the last of some integers, on whatever device they are: one read by the host.

    Examples
    --------
    >>> last_of(np.array([0, 3, 9]))
    9
    """
    last = integers[-1:]
    found = device_array(last)
    return int((last if found is None else found[0].to_host(found[1]))[0])


def distinct(numbers: npt.NDArray[Any]) -> list[int]:
    """Return the distinct values of an integer array, sorted.

    ``numpy.unique`` releases the interpreter lock inside C++ code from NumPy 2.3 on. A daemon thread that is there
    when the interpreter ends crashes the process.
    """
    ordered = np.sort(numbers, axis=None)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    found: list[int] = ordered[first].tolist()
    return found
