"""What sparse tensors are made of: arrays, or what becomes one, in the types and the order that are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.errors import UsageError
from bowstring.ipc.tensor.array import as_array, as_type
from bowstring.ipc.tensor.element_type import element_type, index_type

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["index_array", "index_arrays", "value_array"]


def value_array(data: Any) -> Any:
    """Return the values of a tensor, one-dimensional; booleans become ``uint8``."""
    array = as_array(data)
    if array.dtype.kind == "b":
        array = array.view(np.uint8)
    return _plain(array.reshape(-1), element_type(array.dtype))


def index_array(source: Any, ndim: int = 1) -> Any:
    """Return an array of indices.

    Raises
    ------
    UsageError
        They are no integers, or have another number of dimensions.
    """
    array = as_array(source)
    if array.ndim != ndim:
        raise UsageError("indices of another dimension", expected=ndim, found=array.ndim)
    # An empty list has no integers in it, nor anything else.
    is_anything = not array.size and array.dtype.kind not in "iu"
    return _plain(array, np.dtype(np.int64) if is_anything else index_type(array.dtype))


def index_arrays(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Return index arrays of one type, since a message names one for all."""
    plain = tuple(map(index_array, arrays))
    if len({array.dtype for array in plain}) <= 1:
        return plain
    return tuple(as_type(array, np.int64) for array in plain)


def _plain(array: Any, dtype: np.dtype[Any]) -> Any:
    """Contiguous, row by row, in the type that is written."""
    if isinstance(array, np.ndarray):
        return np.ascontiguousarray(array, dtype)
    return array if array.dtype == dtype else as_type(array, dtype)
