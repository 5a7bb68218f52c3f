"""Arrays of tensors, on the host and on devices: where they are, and how they get into a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bowstring.errors import MissingDependency, NotOnDevice
from bowstring.memory import Device, cpu
from bowstring.memory.arrays import device_array

_ALIGNMENT = 8


def as_array(values: Any) -> Any:
    """Return an array of a device as one of its namespace, and anything else as NumPy's."""
    on_device = _on_device(values)
    if on_device is not None:
        return on_device[1]
    return values if hasattr(values, "__cuda_array_interface__") else np.asarray(values)


def device_of(array: Any) -> Device:
    """Return the device whose array it is; the host for all others, and for GPUs that this process cannot name."""
    on_device = None if isinstance(array, np.ndarray) else _on_device(array)
    return cpu() if on_device is None else on_device[0]


def as_type(array: Any, dtype: npt.DTypeLike) -> Any:
    """Return the elements in another type, made on their device."""
    with device_of(array).use():
        return array.astype(dtype)


def on_host(array: Any) -> np.ndarray[Any, Any]:
    """Return an array's elements in host memory: itself there, a copy from anywhere else."""
    device = device_of(array)
    if not device.is_host:
        return device.to_host(array)
    if hasattr(array, "__cuda_array_interface__"):
        return np.asarray(array.get())
    return np.asarray(array)


def host_array(array: Any) -> np.ndarray[Any, Any]:
    """Return an array that is on the host; a copy must be asked for."""
    if isinstance(array, np.ndarray):
        return array
    raise NotOnDevice(
        "the tensor is not in host memory",
        found=device_of(array).name,
        hint="tensor.to_device(cpu()) copies it.",
    )


def readable(raw: Any, dtype: np.dtype[Any]) -> Any:
    """Return bytes where elements of a type can be read from them: themselves, or on the host a copy."""
    if not isinstance(raw, np.ndarray) or raw.ctypes.data % dtype.itemsize == 0:
        return raw
    copy = raw.copy()
    copy.flags.writeable = False
    return copy


def any_is_true(array: Any) -> bool:
    """Whether any element is true; one number is copied to the host."""
    device = device_of(array)
    if device.is_host:
        return bool(array.any())
    with device.use():
        return bool(device.to_host(device.xp.any(array)))


def body_of(arrays: Sequence[Any]) -> tuple[list[int], int, list[Any]]:
    """Lay out contiguous arrays of one device as a body, each at a multiple of 8 bytes.

    Return where each begins, the length, and bytes to write: host arrays' own memory, or one copy from the device.
    """
    device = device_of(arrays[0])
    with device.use():
        starts, length = [], 0
        pieces: list[Any] = []
        for array in arrays:
            starts.append(length)
            pieces.append((on_host(array) if device.is_host else array).reshape(-1).view(np.uint8))
            padding = -array.nbytes % _ALIGNMENT
            if padding:
                pieces.append(device.xp.zeros(padding, np.uint8))
            length += array.nbytes + padding
        if not device.is_host:
            pieces = [device.to_host(device.xp.concatenate(pieces))]
        return starts, length, pieces


def _on_device(values: Any) -> tuple[Device, Any] | None:
    try:
        return device_array(values)
    except (MissingDependency, NotOnDevice):
        return None
