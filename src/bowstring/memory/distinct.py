"""The distinct ones of some numbers, for threads that the end of the interpreter may meet anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["distinct"]


def distinct(numbers: npt.NDArray[Any]) -> list[int]:
    """Return each of some whole numbers once, in order.

    ``numpy.unique`` lets go of the interpreter lock inside C++ that no thread may be ended in, from NumPy 2.3 on: a
    daemon thread that meets the end of the interpreter there takes the process with it.

    Examples
    --------
    >>> distinct(np.array([2, 0, 2]))
    [0, 2]
    """
    ordered = np.sort(numbers, axis=None)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    found: list[int] = ordered[first].tolist()
    return found
