"""Sparse tensors on a GPU as matrices of cupyx: the values stay where they are."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.errors import MissingDependency, NotOnDevice, Unsupported
from bowstring.ipc.tensor.sparse.index import CooIndex, CsxIndex

if TYPE_CHECKING:
    from bowstring.ipc.tensor.sparse.tensor import SparseTensor

__all__ = ["exported"]

_MATRIX: Final = 2
_MOST: Final = int(np.iinfo(np.int32).max)


def exported(tensor: SparseTensor) -> Any:
    """Return a tensor as cupyx's matrix; see :meth:`~bowstring.ipc.tensor.sparse.tensor.SparseTensor.to_cupyx`."""
    if tensor.device.is_host:
        raise NotOnDevice(
            "the tensor is not on a GPU",
            found=tensor.device.name,
            hint="tensor.to_device(device) copies it; to_scipy() takes it where it is.",
        )
    try:
        sparse = importlib.import_module("cupyx.scipy.sparse")
    except ImportError as error:
        raise MissingDependency(
            "to_cupyx() needs CuPy", hint="pip install 'bowstring[cuda13]', or [cuda12]"
        ) from error
    index = tensor.index
    if tensor.ndim != _MATRIX or not isinstance(index, CooIndex | CsxIndex):
        raise Unsupported(
            "cupyx has matrices only, by coordinates, rows or columns",
            found=f"{tensor.format} of {tensor.ndim} dimensions",
        )
    if max(*tensor.shape, tensor.non_zero_length) > _MOST:
        raise Unsupported(
            "cupyx counts in 32 bits",
            expected=f"at most {_MOST} rows, columns and values",
            found=f"{tensor.shape} with {tensor.non_zero_length}",
        )
    tensor.validate(full=True)
    with tensor.device.use():
        try:
            return _matrix(sparse, tensor, index)
        except (TypeError, ValueError) as error:
            raise Unsupported(f"cupyx does not take this tensor: {error}") from error


def _matrix(sparse: Any, tensor: SparseTensor, index: CooIndex | CsxIndex) -> Any:
    # What cuSPARSE is given of an array is where it begins: columns of a matrix of coordinates it would misread.
    contiguous = tensor.device.xp.ascontiguousarray
    if isinstance(index, CsxIndex):
        make = sparse.csr_matrix if index.axis == 0 else sparse.csc_matrix
        return make((tensor.data, contiguous(index.indices), contiguous(index.indptr)), shape=tensor.shape)
    return sparse.coo_matrix((tensor.data, tuple(map(contiguous, index.coords))), shape=tensor.shape)
