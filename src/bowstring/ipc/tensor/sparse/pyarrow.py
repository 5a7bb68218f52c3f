"""Sparse tensors and pyarrow's: over the same memory both ways, as far as pyarrow leaves it where it is."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import as_strided

from bowstring.errors import Unsupported, UsageError
from bowstring.ipc.tensor.array import host_array
from bowstring.ipc.tensor.sparse.index import CooIndex, CsxIndex

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bowstring.ipc.tensor.sparse.tensor import SparseTensor

__all__ = ["arrays", "exported", "imported"]

_MOST_TRIED = 6


def arrays(tensor: SparseTensor) -> tuple[Any, ...]:
    """Return values and index as ``to_numpy`` of pyarrow's classes does."""
    data = host_array(tensor.data).reshape(-1, 1)
    index = tensor.index
    if isinstance(index, CooIndex):
        if index.matrix is not None:
            return data, host_array(index.matrix)
        return data, np.stack([host_array(positions) for positions in index.coords], axis=1)
    if isinstance(index, CsxIndex):
        return data, host_array(index.indptr), host_array(index.indices)
    return data, list(map(host_array, index.indptr)), list(map(host_array, index.indices))


def exported(tensor: SparseTensor) -> Any:
    """Return a tensor as pyarrow's."""
    tensor.validate(full=True)
    index, shape, names = tensor.index, tensor.shape, list(tensor.dim_names) or None
    values = arrays(tensor)
    if isinstance(index, CooIndex):
        data, matrix = values
        if not matrix.size:  # of no elements pyarrow takes these strides only
            matrix = as_strided(np.empty(0, np.int64), matrix.shape, (8, 8))
        return pa.SparseCOOTensor.from_numpy(data, matrix, shape=shape, dim_names=names)
    if isinstance(index, CsxIndex):
        made = pa.SparseCSRMatrix if index.axis == 0 else pa.SparseCSCMatrix
        return made.from_numpy(*values, shape=shape, dim_names=names)
    order = list(index.axis_order)
    return pa.SparseCSFTensor.from_numpy(*values, shape=shape, axis_order=order, dim_names=names)


def imported(kind: type[SparseTensor], tensor: Any, axis_order: Sequence[int] | None) -> SparseTensor:
    """Return pyarrow's tensor as ours."""
    if isinstance(tensor, pa.SparseCOOTensor):
        data, coords = tensor.to_numpy()
        canonical = tensor.has_canonical_format
        return kind.from_coo(data, coords, tensor.shape, tensor.dim_names, is_canonical=canonical)
    if isinstance(tensor, pa.SparseCSFTensor):
        data, indptr, indices = tensor.to_numpy()
        order = _axis_order(tensor) if axis_order is None else axis_order
        return kind.from_csf(data, indptr, indices, tensor.shape, order, tensor.dim_names)
    if isinstance(tensor, pa.SparseCSRMatrix | pa.SparseCSCMatrix):
        make = kind.from_csr if isinstance(tensor, pa.SparseCSRMatrix) else kind.from_csc
        data, indptr, indices = tensor.to_numpy()
        return make(data, indptr, indices, tensor.shape, tensor.dim_names)
    raise UsageError("not a sparse tensor of pyarrow's", found=type(tensor).__name__)


def _axis_order(tensor: Any) -> Sequence[int]:
    """The order that makes an equal tensor: pyarrow keeps it to itself."""
    data, indptr, indices = tensor.to_numpy()
    for order in _orders(tensor.shape):
        made = pa.SparseCSFTensor.from_numpy(data, indptr, indices, tensor.shape, axis_order=list(order))
        if made.equals(tensor):
            return order
    raise Unsupported(
        "the order of axes of this pyarrow.SparseCSFTensor cannot be found out",
        hint="Use SparseTensor.from_arrow(tensor, axis_order=…).",
    )


def _orders(shape: Sequence[int]) -> Iterator[Sequence[int]]:
    yield np.argsort(shape, kind="stable").tolist()  # what pyarrow takes where it chooses
    if len(shape) <= _MOST_TRIED:
        yield from itertools.permutations(range(len(shape)))
    else:
        yield range(len(shape))
