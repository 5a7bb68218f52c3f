"""Which compilers of kernels are installed; nothing is imported to tell."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from bowstring.kernels.array_device import find_place

__all__ = ["can_compile", "is_installed"]


def is_installed(package: str) -> bool:
    """Whether a package can be imported, without doing so.

    Examples
    --------
    >>> is_installed("numpy"), is_installed("no_such_package")
    (True, False)
    """
    if package in sys.modules:
        return sys.modules[package] is not None
    return importlib.util.find_spec(package) is not None


def can_compile(array: Any) -> bool:
    """Whether a compiler is installed for kernels that run where an array is.

    Raises
    ------
    Unsupported
        It is no array of a known device.

    Examples
    --------
    >>> import numpy as np
    >>> can_compile(np.arange(3)) == is_installed("numba")
    True
    """
    return is_installed("numba") and (find_place((array,)) != "cuda" or is_installed("numba_cuda"))
