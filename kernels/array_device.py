"""Where arrays are: the host, CUDA, or a kind of device that registered its arrays here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from bowstring.errors import NotOnDevice, Unsupported

__all__ = ["Place", "Unwrap", "device_of", "find_place", "register_array_type"]

# Takes the arguments of a launch; returns them with plain host arrays, and what makes a result an array again.
Unwrap = Callable[[tuple[Any, ...]], tuple[tuple[Any, ...], Callable[[Any], Any]]]


Place = Literal["host", "cuda"] | Unwrap

_UNWRAP: dict[type, Unwrap] = {}


def register_array_type(array_type: type, unwrap: Unwrap) -> None:
    """Tell how a launch gets at arrays that cannot be read as NumPy's or CuPy's, such as the fake device's.

    Parameters
    ----------
    array_type
        The type of these arrays, exactly.
    unwrap
        Called with the arguments of a launch, it returns them with NumPy arrays over the same memory, and a
        function that makes a NumPy result one of these arrays. Nothing else may unwrap them.

    Examples
    --------
    >>> register_array_type(FakeArray, unwrap)  # doctest: +SKIP
    """
    _UNWRAP[array_type] = unwrap


def find_place(arguments: tuple[Any, ...]) -> Place:
    """Return where the arrays among the arguments are.

    Raises
    ------
    NotOnDevice
        They are in two places.
    Unsupported
        No argument is an array of a known place.

    Examples
    --------
    >>> find_place((1, np.arange(3)))
    'host'
    """
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
    """Return the number of the GPU that the CuPy arrays among the arguments are on.

    Raises
    ------
    NotOnDevice
        They are on two.
    """
    devices = {int(each.device.id) for each in arguments if _place(type(each)) == "cuda"}
    if len(devices) > 1:
        raise NotOnDevice("arrays of two devices", found=sorted(devices))
    return devices.pop()


def _place(kind: type) -> Place | None:
    if kind is np.ndarray:
        return "host"
    if kind.__module__.partition(".")[0] == "cupy":
        return "cuda"
    return _UNWRAP.get(kind)
