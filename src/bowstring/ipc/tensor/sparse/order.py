"""From one order of values to another: compressed indices as coordinates, and all values in their places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.errors import LimitExceeded
from bowstring.ipc.tensor.array import host_array
from bowstring.ipc.tensor.sparse.index import CooIndex, CsxIndex

if TYPE_CHECKING:
    from bowstring.ipc.tensor.sparse.tensor import SparseTensor

__all__ = ["coordinates", "dense"]

Array = np.ndarray[Any, Any]


def coordinates(tensor: SparseTensor) -> tuple[Array, ...]:
    """Return one array of positions per dimension, of a tensor whose indices have been checked."""
    index = tensor.index
    if isinstance(index, CooIndex):
        return tuple(map(host_array, index.coords))
    if isinstance(index, CsxIndex):
        lines = np.repeat(np.arange(tensor.shape[index.axis]), _lengths(index.indptr))
        others = host_array(index.indices)
        return (lines, others) if index.axis == 0 else (others, lines)
    levels = [host_array(index.indices[0])]
    for indptr, nodes in zip(index.indptr, index.indices[1:], strict=True):
        levels = [np.repeat(level, _lengths(indptr)) for level in levels]
        levels.append(host_array(nodes))
    return tuple(levels[index.axis_order.index(axis)] for axis in range(tensor.ndim))


def dense(tensor: SparseTensor) -> Array:
    """Return a new array with all zeros in it, of a tensor whose indices have been checked."""
    places = coordinates(tensor)
    try:
        result = np.zeros(tensor.shape, tensor.dtype)
    except (MemoryError, ValueError) as error:
        raise LimitExceeded(
            "there is no memory for a sparse tensor with all its zeros", found=f"shape {tensor.shape}"
        ) from error
    np.add.at(result, places, host_array(tensor.data))
    return result


def _lengths(indptr: Any) -> Array:
    return np.diff(host_array(indptr).astype(np.int64, copy=False))
