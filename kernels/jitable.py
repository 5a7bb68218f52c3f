"""What a kernel calls: plain functions of kernel modules, found by walking its globals."""

from __future__ import annotations

import hashlib
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from bowstring.kernels.signature import Kernel

__all__ = ["called", "fingerprint", "reached"]

_PACKAGE = "bowstring.kernels."


def called(function: Kernel) -> dict[str, types.FunctionType]:
    """Return the plain functions of kernel modules that a function's code names, by these names.

    Examples
    --------
    >>> from bowstring.kernels.validity import shift_bits
    >>> list(called(shift_bits))
    ['word_at']
    """
    return {
        name: value
        for name, value in _named(function).items()
        if isinstance(value, types.FunctionType)
        and (value.__module__ == function.__module__ or value.__module__.startswith(_PACKAGE))
    }


def reached(kernel: Kernel) -> Iterator[Kernel]:
    """Yield a kernel and every function that it reaches, each once.

    Examples
    --------
    >>> from bowstring.kernels.validity import shift_bits
    >>> [function.__name__ for function in reached(shift_bits)]
    ['shift_bits', 'word_at']
    """
    seen: set[Kernel] = set()
    waiting: list[Kernel] = [kernel]
    while waiting:
        function = waiting.pop()
        if function not in seen:
            seen.add(function)
            yield function
            waiting.extend(called(function).values())


def fingerprint(kernel: Kernel) -> str:
    """Return a hash of all that is compiled into a kernel: its code, that of what it reaches, and constants.

    It tells what is loaded, where a hash of files would tell what an editor has written since.

    Examples
    --------
    >>> from bowstring.kernels.validity import and_bits, or_bits
    >>> fingerprint(and_bits) == fingerprint(or_bits)
    False
    """
    total = hashlib.sha256()
    for function in reached(kernel):
        code = function.__code__
        total.update(repr((code.co_code, code.co_consts, code.co_names, code.co_varnames)).encode())
        for name, value in _named(function).items():
            if isinstance(value, np.generic | np.ndarray):
                total.update(repr((name, value.dtype.str, value.tobytes())).encode())
    return total.hexdigest()


def _named(function: Kernel) -> dict[str, Any]:
    return {name: function.__globals__.get(name) for name in function.__code__.co_names}
