"""Bodies over whole arrays: written with ``xp``, they run where their arrays are and need no compiler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.kernels.array_device import device_of, find_place

__all__ = ["run_arrays"]


def run_arrays(body: Callable[..., Any], *arguments: Any) -> Any:
    """Call ``body(xp, *arguments)`` where the arrays are and return its result, an array of the same device.

    This is for work that the array namespace does well enough, and that must run without the extra
    ``kernels``; what it cannot do is a kernel (:func:`~bowstring.kernels.launch.launch`).

    Raises
    ------
    NotOnDevice
        Arrays of two devices.
    Unsupported
        No argument is an array of a known device.

    Examples
    --------
    >>> run_arrays(lambda xp, bits: xp.invert(bits), np.array([0, 255], np.uint8)).tolist()
    [255, 0]
    """
    place = find_place(arguments)
    if place == "host":
        return body(np, *arguments)
    if place == "cuda":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(device_of(arguments)):
            return body(cupy, *arguments)
    plain, wrap = place(arguments)
    return wrap(body(np, *plain))
