"""Sparse tensors and scipy's: over the same memory both ways."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.errors import MissingDependency, Unsupported, UsageError
from bowstring.ipc.tensor.array import device_of, host_array, on_host
from bowstring.ipc.tensor.sparse.index import CsxIndex
from bowstring.ipc.tensor.sparse.order import coordinates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.ipc.tensor.sparse.tensor import SparseTensor

__all__ = ["exported", "imported"]

_MATRIX = 2


def imported(kind: type[SparseTensor], matrix: Any, dim_names: Sequence[str] | None) -> SparseTensor:
    """Return scipy's array or matrix as a tensor."""
    form = getattr(matrix, "format", None)
    if form in ("csr", "csc") and len(matrix.shape) != _MATRIX:
        matrix, form = matrix.tocoo(), "coo"  # of scipy alone, cupyx's are all matrices
    if form == "coo":
        coords = getattr(matrix, "coords", None) or (matrix.row, matrix.col)
        return kind.from_coo(matrix.data, tuple(coords), matrix.shape, dim_names)
    if form not in ("csr", "csc"):
        raise UsageError(
            "not a sparse tensor",
            expected="a SparseTensor, or scipy's or pyarrow's in COO, CSR, CSC or (pyarrow's) CSF form",
            found=form if isinstance(form, str) else type(matrix).__name__,
            hint="scipy's other forms have tocsr().",
        )
    with device_of(matrix.data).use():  # cupyx sorts on the GPU that is the current one
        if not matrix.has_sorted_indices:
            matrix = matrix.sorted_indices()
    # Behind the end of the last range scipy may have room to spare.
    count = int(on_host(matrix.indptr[-1:])[0])
    make = kind.from_csr if form == "csr" else kind.from_csc
    return make(matrix.data[:count], matrix.indptr, matrix.indices[:count], matrix.shape, dim_names)


def exported(tensor: SparseTensor) -> Any:
    """Return a tensor as scipy's array."""
    try:
        sparse = importlib.import_module("scipy.sparse")
    except ImportError as error:
        raise MissingDependency("to_scipy() needs scipy", hint="pip install scipy") from error
    tensor.validate(full=True)
    data = host_array(tensor.data)
    if tensor.dtype.kind == "f" and tensor.dtype.itemsize == 2:  # scipy's compiled loops do not know them
        raise Unsupported("scipy has no sparse arrays of half floats")
    try:
        if isinstance(tensor.index, CsxIndex):
            return _compressed(sparse, tensor, tensor.index)
        return sparse.coo_array((data, coordinates(tensor)), shape=tensor.shape)
    except (OverflowError, TypeError, ValueError) as error:
        raise Unsupported(f"scipy does not take this tensor: {error}") from error


def _compressed(sparse: Any, tensor: SparseTensor, index: CsxIndex) -> Any:
    make = sparse.csr_array if index.axis == 0 else sparse.csc_array
    result = make(tensor.shape, dtype=tensor.dtype)
    # Handed to the constructor, slices of one body are copied, to let go of what else is in it.
    result.data = host_array(tensor.data)
    result.indptr, result.indices = _indices(tensor.shape, index)
    return result


def _indices(shape: tuple[int, ...], index: CsxIndex) -> tuple[Any, Any]:
    """What is compressed, in one of the two types that scipy's loops know."""
    indptr, indices = host_array(index.indptr), host_array(index.indices)
    fits = max(shape) <= np.iinfo(np.int32).max and indptr.dtype == np.int32
    if indptr.dtype == indices.dtype and (fits or indptr.dtype == np.int64):
        return indptr, indices
    return indptr.astype(np.int64), indices.astype(np.int64)
