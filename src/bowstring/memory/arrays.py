"""Arrays of devices: where somebody's array lies."""

from __future__ import annotations

from typing import Any

from bowstring.memory.device import Device

__all__ = ["device_array"]


def device_array(values: Any) -> tuple[Device, Any] | None:
    """Return the device of an array and the array as one of its namespace, not copied; ``None`` for the host's.

    Parameters
    ----------
    values
        A CuPy array, what has ``__cuda_array_interface__`` (numba, PyTorch), or an array of another device that
        Bowstring knows.

    Raises
    ------
    NotOnDevice
        This process cannot use the device.
    MissingDependency
        Arrays on a GPU need CuPy.

    Examples
    --------
    >>> import numpy as np
    >>> device_array(np.arange(3)) is None
    True
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
