"""Launching: the one place that knows where the arrays of a kernel are, and how it runs there."""

from __future__ import annotations

from typing import Any

from bowstring.errors import UsageError
from bowstring.kernels import host, interpret
from bowstring.kernels.array_device import find_place
from bowstring.kernels.signature import Kernel, match

__all__ = ["launch"]


def launch(kernel: Kernel, items: int, *arguments: Any) -> None:
    """Run ``kernel(i, *arguments)`` for every work item `i` of ``range(items)``, where the arrays are.

    On the host a compiled loop runs over ranges of items in this thread, or in several threads for larger
    arrays, and is done on return. On CUDA the work is queued on CuPy's current stream. With
    ``BOWSTRING_KERNELS=interpret`` the host calls the plain function.

    Parameters
    ----------
    kernel
        A function that its module's ``SIGNATURES`` list.
    items
        How many work items there are; none is fine.
    arguments
        Contiguous arrays of one dimension, all on one device, and numbers, as one of the signatures says. Numbers
        are converted to its types.

    Raises
    ------
    UsageError
        No signature takes these arguments: the message names the first that does not fit.
    NotOnDevice
        Arrays of two devices.
    Unsupported
        No argument is an array of a known device.
    MissingDependency
        The package that compiles for this device is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from bowstring.kernels.validity import pack_flags
    >>> words = np.zeros(1, np.uint64)
    >>> launch(pack_flags, 1, np.array([1, 0, 1], np.uint8), words)
    >>> words.tolist()
    [5]
    """
    place = find_place(arguments)
    if callable(place):
        arguments, _ = place(arguments)
    signature, values = match(kernel, arguments)
    if items < 0:
        raise UsageError("a negative number of work items", found=items)
    if items == 0:
        return
    if place == "cuda":
        from bowstring.kernels.cuda import run

        run(signature, items, values)
    elif interpret.chosen():
        interpret.run(signature, items, values)
    else:
        host.run(signature, items, values)
