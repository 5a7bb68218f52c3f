"""Launching: the one place that knows where the arrays of a kernel are.

A kernel body is a function ``body(xp, *arguments)`` over plain arrays of the namespace `xp`. :func:`launch` runs
it where its arrays are. This is the seam for compiled kernels: callers will not notice them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.errors import Unsupported

__all__ = ["launch", "register_array_type"]

Body = Callable[..., Any]
Runner = Callable[[Body, tuple[Any, ...]], Any]

_RUNNERS: dict[type, Runner] = {}


def register_array_type(array_type: type, runner: Runner) -> None:
    """Tell how a kernel runs when one of its arguments is an array of `array_type`.

    Parameters
    ----------
    array_type
        Arrays that cannot be read as NumPy's or CuPy's, such as the fake device's.
    runner
        Called as ``runner(body, arguments)``; it unwraps the arrays, runs ``body(xp, *plain)`` and wraps the
        result. Nothing else may unwrap them.
    """
    _RUNNERS[array_type] = runner


def launch(body: Body, *arguments: Any) -> Any:
    """Run a kernel body on arrays of one device and return its result, an array of the same device.

    Raises
    ------
    Unsupported
        No argument is an array of a known device.

    Examples
    --------
    >>> launch(lambda xp, bits: xp.invert(bits), np.array([0, 255], np.uint8)).tolist()
    [255, 0]
    """
    for argument in arguments:
        kind = type(argument)
        if kind is np.ndarray:
            return body(np, *arguments)
        runner = _RUNNERS.get(kind)
        if runner is not None:
            return runner(body, arguments)
        package = kind.__module__.partition(".")[0]
        if package == "cupy":
            return body(sys.modules[package], *arguments)
    raise Unsupported("no kernel runs on such arrays", found=[type(each).__name__ for each in arguments])
