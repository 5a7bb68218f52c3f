"""All kernels: those in the ``SIGNATURES`` of the modules of this package and of its sub-packages."""

from __future__ import annotations

import importlib
import pkgutil

import bowstring.kernels
from bowstring.kernels.signature import Kernel, Signature, signatures_of

__all__ = ["kernels", "signatures"]


def kernels() -> list[Kernel]:
    """Return every kernel, module by module.

    Examples
    --------
    >>> "count_bits" in [kernel.__name__ for kernel in kernels()]
    True
    """
    package = bowstring.kernels
    found: list[Kernel] = []
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        found.extend(getattr(importlib.import_module(module.name), "SIGNATURES", ()))
    return found


def signatures() -> list[Signature]:
    """Return every signature of every kernel: all that is ever compiled.

    Examples
    --------
    >>> "pack_flags(u8[], u64[]!)" in [str(signature) for signature in signatures()]
    True
    """
    return [signature for kernel in kernels() for signature in signatures_of(kernel)]
