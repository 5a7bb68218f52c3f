"""Sparse tensors as those of scipy, cupyx and pyarrow, and back: over the same memory, as far as they allow it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import as_strided

from bowstring.columnar.interchange.conversions import needed
from bowstring.errors import NotOnDevice, Unsupported, UsageError
from bowstring.ipc.tensor.array import device_of, host_array, on_host
from bowstring.ipc.tensor.sparse.index import CooIndex, CsxIndex, coordinates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.ipc.tensor.sparse.tensor import SparseTensor

_MATRIX: Final = 2
_MOST_TRIED: Final = 6
_MOST_OF_CUPYX: Final = int(np.iinfo(np.int32).max)


def from_scipy(kind: type[SparseTensor], matrix: Any, dim_names: Sequence[str] | None) -> SparseTensor:
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
    # Behind the end of the last range scipy may have spare memory.
    count = int(on_host(matrix.indptr[-1:])[0])
    make = kind.from_csr if form == "csr" else kind.from_csc
    return make(matrix.data[:count], matrix.indptr, matrix.indices[:count], matrix.shape, dim_names)


def to_scipy(tensor: SparseTensor) -> Any:
    """Return a tensor as scipy's array."""
    sparse = needed("scipy.sparse", "to_scipy", "scipy")
    tensor.validate(full=True)
    data = host_array(tensor.data)
    if tensor.dtype.kind == "f" and tensor.dtype.itemsize == 2:  # scipy's compiled loops do not know them
        raise Unsupported("scipy has no sparse arrays of half floats")
    try:
        if isinstance(tensor.index, CsxIndex):
            make = sparse.csr_array if tensor.index.axis == 0 else sparse.csc_array
            result = make(tensor.shape, dtype=tensor.dtype)
            # Handed to the constructor, slices of one body are copied, to let go of what else is in it.
            result.data = data
            result.indptr, result.indices = _indices_of_scipy(tensor.shape, tensor.index)
            return result
        return sparse.coo_array((data, coordinates(tensor)), shape=tensor.shape)
    except (OverflowError, TypeError, ValueError) as error:
        raise Unsupported(f"scipy does not take this tensor: {error}") from error


def _indices_of_scipy(shape: tuple[int, ...], index: CsxIndex) -> tuple[Any, Any]:
    """What is compressed, in one of the two types that scipy's loops know."""
    indptr, indices = host_array(index.indptr), host_array(index.indices)
    fits = max(shape) <= np.iinfo(np.int32).max and indptr.dtype == np.int32
    if indptr.dtype == indices.dtype and (fits or indptr.dtype == np.int64):
        return indptr, indices
    return indptr.astype(np.int64), indices.astype(np.int64)


def to_cupyx(tensor: SparseTensor) -> Any:
    """Return a tensor as cupyx's matrix."""
    if tensor.device.is_host:
        raise NotOnDevice(
            "the tensor is not on a GPU",
            found=tensor.device.name,
            hint="tensor.to_device(device) copies it; to_scipy() takes it where it is.",
        )
    sparse = needed("cupyx.scipy.sparse", "to_cupyx", "'bowstring[cuda13]', or [cuda12]")
    index = tensor.index
    if tensor.ndim != _MATRIX or not isinstance(index, CooIndex | CsxIndex):
        raise Unsupported(
            "cupyx has matrices only, by coordinates, rows or columns",
            found=f"{tensor.format} of {tensor.ndim} dimensions",
        )
    if max(*tensor.shape, tensor.non_zero_length) > _MOST_OF_CUPYX:
        raise Unsupported(
            "cupyx counts in 32 bits",
            expected=f"at most {_MOST_OF_CUPYX} rows, columns and values",
            found=f"{tensor.shape} with {tensor.non_zero_length}",
        )
    tensor.validate(full=True)
    # What cuSPARSE is given of an array is where it begins: columns of a matrix of coordinates it would misread.
    contiguous = tensor.device.xp.ascontiguousarray
    with tensor.device.use():
        try:
            if isinstance(index, CooIndex):
                coords = tuple(map(contiguous, index.coords))
                return sparse.coo_matrix((tensor.data, coords), shape=tensor.shape)
            make = sparse.csr_matrix if index.axis == 0 else sparse.csc_matrix
            compressed = tensor.data, contiguous(index.indices), contiguous(index.indptr)
            return make(compressed, shape=tensor.shape)
        except (TypeError, ValueError) as error:
            raise Unsupported(f"cupyx does not take this tensor: {error}") from error


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


def to_arrow(tensor: SparseTensor) -> Any:
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
        type_ = pa.SparseCSRMatrix if index.axis == 0 else pa.SparseCSCMatrix
        return type_.from_numpy(*values, shape=shape, dim_names=names)
    order = list(index.axis_order)
    return pa.SparseCSFTensor.from_numpy(*values, shape=shape, axis_order=order, dim_names=names)


def from_arrow(kind: type[SparseTensor], tensor: Any, axis_order: Sequence[int] | None) -> SparseTensor:
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
    axes = range(len(tensor.shape))
    orders: list[Sequence[int]] = [np.argsort(tensor.shape, kind="stable").tolist()]  # where pyarrow chooses
    if len(axes) <= _MOST_TRIED:
        orders += itertools.permutations(axes)
    else:
        orders.append(axes)
    for order in orders:
        candidate = pa.SparseCSFTensor.from_numpy(data, indptr, indices, tensor.shape, axis_order=list(order))
        if candidate.equals(tensor):
            return order
    raise Unsupported(
        "the order of axes of this pyarrow.SparseCSFTensor cannot be found out",
        hint="Use SparseTensor.from_arrow(tensor, axis_order=…).",
    )
