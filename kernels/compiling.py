"""One compilation at a time, for whatever device, and none while the process forks.

The compilers hold locks of their own. Whoever forks waits for ours first, so no child inherits theirs locked.

What is registered last is called first at a fork. Compilers log, and `logging` locks itself at a fork: it must be
imported before this registers, or the fork would hold its lock while it waits for a compiler that needs it.
"""

from __future__ import annotations

import contextlib
import logging  # noqa: F401  see above
import os
import threading
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from bowstring.kernels.checker import typed
from bowstring.kernels.signature import Kernel, Parameter
from bowstring.kernels.types import SCALARS

# What compilers call types.
_SPELLINGS: Final = {np.dtype(scalar).name: name for name, scalar in SCALARS.items()} | {"bool": "bool"}

_lock = threading.RLock()
# A fork that waits takes its turn before the next kernel.
_turn = threading.Lock()


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Compile within this: nobody else does."""
    with _turn:
        pass
    with _lock:
        yield


# Before a fork the turn is taken first: what is registered last is called first.
for _each in (_lock, _turn):
    os.register_at_fork(before=_each.acquire, after_in_parent=_each.release, after_in_child=_each.release)


def make_jitable(extending: Any, function: Kernel, **options: Any) -> None:
    """Have a compiler, by its module ``extending``, compile a function where another calls it.

    It asks for the function by the types of its arguments, and gets the copy whose literals have their types.
    """

    def copy_for(*arguments: Any) -> Any:
        return typed(function, tuple(map(_spelled, arguments)))

    extending.overload(function, jit_options=options, strict=False)(copy_for)


def compiler_type(types: Any, parameter: Parameter) -> Any:
    """Return a parameter's type as a compiler has it in its module ``types``."""
    scalar = getattr(types, parameter.dtype.name)
    return types.Array(scalar, 1, "C", readonly=not parameter.written) if parameter.array else scalar


def _spelled(kind: Any) -> str:
    """Return a compiler's type as signatures spell it."""
    if hasattr(kind, "dtype"):
        return f"{_spelled(kind.dtype)}[]{'!' * kind.mutable}"
    return _SPELLINGS[str(kind)]
