"""Kernels as plain Python: slow, and every step can be looked at. ``BOWSTRING_KERNELS=interpret`` chooses it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from bowstring.errors import UsageError
from bowstring.kernels.signature import Signature
from bowstring.kernels.types import i64

__all__ = ["chosen", "run", "way"]

VARIABLE = "BOWSTRING_KERNELS"


def chosen() -> bool:
    """Whether kernels on the host are interpreted.

    Raises
    ------
    UsageError
        ``BOWSTRING_KERNELS`` is something else.
    """
    return way() == "interpret"


def way() -> str:
    """Return how kernels run on the host: ``compile``, ``interpret``, or ``checked``, with every index checked.

    Raises
    ------
    UsageError
        ``BOWSTRING_KERNELS`` is something else.

    Examples
    --------
    >>> way() in ("compile", "checked", "interpret")
    True
    """
    value = os.environ.get(VARIABLE, "") or "compile"
    if value not in ("compile", "checked", "interpret"):
        raise UsageError(
            "no way to run kernels", expected="compile, checked or interpret", found=value, where=VARIABLE
        )
    return value


def run(signature: Signature, items: int, arguments: tuple[Any, ...]) -> None:
    """Call a kernel for each of its items."""
    with np.errstate(all="ignore"):  # integers wrap, as they do where they are compiled
        for item in range(items):
            signature.kernel(i64(item), *arguments)
