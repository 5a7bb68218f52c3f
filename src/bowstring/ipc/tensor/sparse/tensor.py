"""Sparse tensors: values, an index that says where they are, and the message that carries them. SparseTensor.fbs.

Arrow C++ reads and writes such messages, and no other Python library does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bowstring.errors import InvalidBody, UsageError
from bowstring.ipc.tensor.array import device_of, on_host
from bowstring.ipc.tensor.sparse import convert
from bowstring.ipc.tensor.sparse.index import (
    CooIndex,
    CsfIndex,
    CsxIndex,
    SparseIndex,
    columns_of,
    coordinates,
    dense,
    index_array,
    index_arrays,
    is_in_order,
    value_array,
)
from bowstring.ipc.tensor.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.memory import Device


class SparseTensor:
    """Values of a tensor that is mostly zeros, and where they are.

    Made by `from_coo`, `from_csr`, `from_csc`, `from_csf`, `from_scipy`, `from_arrow` or
    :func:`bowstring.ipc.read_sparse_tensor`; the arrays are not copied, unless their elements stand in the other
    byte order or apart from each other.

    Attributes
    ----------
    data
        The values, one-dimensional, on their device.
    index : CooIndex, CsxIndex or CsfIndex
        Where they are.
    shape : tuple of int
    dim_names : tuple of str
        One per dimension, or none at all.

    Examples
    --------
    >>> tensor = SparseTensor.from_csr([1.0, 2.0], [0, 1, 2], [3, 0], shape=(2, 4))
    >>> tensor
    <SparseTensor csr float64 (2, 4) with 2 values on cpu>
    >>> tensor.to_tensor().to_numpy()
    array([[0., 0., 0., 1.],
           [2., 0., 0., 0.]])
    """

    def __init__(
        self, data: Any, index: SparseIndex, shape: Sequence[int], dim_names: Sequence[str] | None = None
    ) -> None:
        self.data = data
        self.index = index
        self.shape = tuple(int(size) for size in shape)
        self.dim_names = tuple(dim_names or ())
        self._is_checked = False
        self.validate()

    @classmethod
    def from_coo(
        cls,
        data: Any,
        coords: Any,
        shape: Sequence[int],
        dim_names: Sequence[str] | None = None,
        *,
        is_canonical: bool | None = None,
    ) -> SparseTensor:
        """Make a tensor from coordinates.

        Parameters
        ----------
        data
            The values.
        coords
            Integers: a matrix with one row per value, as pyarrow has them, or a tuple with one array per
            dimension, as scipy has them.
        shape
            Extents of the tensor.
        dim_names
            Names of its dimensions.
        is_canonical
            Whether the coordinates are sorted, the last dimension fastest, and unique. Looked up where they
            are on the host; on a device they are taken as not.

        Examples
        --------
        >>> SparseTensor.from_coo([1, 2], [[0, 1], [1, 0]], (2, 2)).index.is_canonical
        True
        """
        elements = value_array(data)
        matrix = None
        if not isinstance(coords, tuple):
            matrix = index_array(coords, ndim=2)
            coords = columns_of(matrix)
        else:
            coords = index_arrays(coords)
        if is_canonical is None:
            same_size = len({positions.size for positions in coords}) == 1
            is_canonical = device_of(elements).is_host and same_size and is_in_order(coords)
        return cls(elements, CooIndex(coords, is_canonical, matrix), shape, dim_names)

    @classmethod
    def from_csr(
        cls,
        data: Any,
        indptr: Any,
        indices: Any,
        shape: Sequence[int],
        dim_names: Sequence[str] | None = None,
    ) -> SparseTensor:
        """Make a matrix from compressed rows; see ``pyarrow.SparseCSRMatrix.from_numpy``.

        Examples
        --------
        >>> SparseTensor.from_csr([5], [0, 0, 1], [2], (2, 3)).to_tensor().to_numpy()
        array([[0, 0, 0],
               [0, 0, 5]])
        """
        index = CsxIndex(0, index_array(indptr), index_array(indices))
        return cls(value_array(data), index, shape, dim_names)

    @classmethod
    def from_csc(
        cls,
        data: Any,
        indptr: Any,
        indices: Any,
        shape: Sequence[int],
        dim_names: Sequence[str] | None = None,
    ) -> SparseTensor:
        """Make a matrix from compressed columns; see ``pyarrow.SparseCSCMatrix.from_numpy``.

        Examples
        --------
        >>> SparseTensor.from_csc([5], [0, 0, 0, 1], [1], (2, 3)).to_tensor().to_numpy()
        array([[0, 0, 0],
               [0, 0, 5]])
        """
        index = CsxIndex(1, index_array(indptr), index_array(indices))
        return cls(value_array(data), index, shape, dim_names)

    @classmethod
    def from_csf(
        cls,
        data: Any,
        indptr: Sequence[Any],
        indices: Sequence[Any],
        shape: Sequence[int],
        axis_order: Sequence[int] | None = None,
        dim_names: Sequence[str] | None = None,
    ) -> SparseTensor:
        """Make a tensor from compressed fibers; see ``pyarrow.SparseCSFTensor.from_numpy``.

        Examples
        --------
        >>> SparseTensor.from_csf([7], [[0, 1]], [[1], [0]], (2, 2)).to_tensor().to_numpy()
        array([[0, 0],
               [7, 0]])
        """
        order = tuple(range(len(shape)) if axis_order is None else map(int, axis_order))
        index = CsfIndex(order, index_arrays(indptr), index_arrays(indices))
        return cls(value_array(data), index, shape, dim_names)

    @classmethod
    def from_scipy(cls, matrix: Any, dim_names: Sequence[str] | None = None) -> SparseTensor:
        """Make a tensor from a ``scipy.sparse`` array or matrix in COO, CSR or CSC form, over its memory.

        Rows (columns) whose indices are not sorted are sorted in a copy, since Arrow's are sorted.

        Examples
        --------
        >>> import scipy.sparse
        >>> SparseTensor.from_scipy(scipy.sparse.eye_array(3, format="csc"))
        <SparseTensor csc float64 (3, 3) with 3 values on cpu>
        """
        return convert.from_scipy(cls, matrix, dim_names)

    @classmethod
    def from_arrow(cls, tensor: Any, axis_order: Sequence[int] | None = None) -> SparseTensor:
        """Make a tensor from pyarrow's ``SparseCOOTensor``, ``SparseCSRMatrix``, ``SparseCSCMatrix`` or
        ``SparseCSFTensor``, over its memory.

        Parameters
        ----------
        tensor
            pyarrow's.
        axis_order
            Of a ``SparseCSFTensor``, which does not say; tried out where it is not given.

        Raises
        ------
        Unsupported
            The order of axes cannot be found out.

        Examples
        --------
        >>> SparseTensor.from_arrow(pa.SparseCSRMatrix.from_dense_numpy(np.eye(2)))
        <SparseTensor csr float64 (2, 2) with 2 values on cpu>
        """
        return convert.from_arrow(cls, tensor, axis_order)

    @property
    def format(self) -> str:
        """``"coo"``, ``"csr"``, ``"csc"`` or ``"csf"``."""
        return self.index.format

    @property
    def device(self) -> Device:
        """Where the arrays are."""
        return device_of(self.data)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values, NumPy's."""
        dtype: np.dtype[Any] = np.dtype(self.data.dtype)
        return dtype

    @property
    def type(self) -> pa.DataType:
        """Type of the values, Arrow's."""
        return pa.from_numpy_dtype(self.dtype)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def non_zero_length(self) -> int:
        """Number of values."""
        return int(self.data.size)

    def validate(self, *, full: bool = False) -> None:
        """Check that the arrays belong together.

        Parameters
        ----------
        full
            Also look at every index, where it is: in range, ranges that follow each other, coordinates in the order
            that they claim. Done once, and before scipy, cupyx or pyarrow get what they would believe.

        Raises
        ------
        InvalidBody
            They do not.

        Examples
        --------
        >>> SparseTensor.from_csr([5], [0, 1], [7], (1, 3)).validate(full=True)
        Traceback (most recent call last):
          ...
        bowstring.errors.InvalidBody: an index lies outside the tensor; expected 0 to 2; at indices
        """
        if any(size < 0 for size in self.shape) or not self.shape:
            raise InvalidBody("not a shape of a sparse tensor", found=self.shape)
        if self.dim_names and len(self.dim_names) != self.ndim:
            raise UsageError(
                "a tensor has one name per dimension, or none", expected=self.ndim, found=len(self.dim_names)
            )
        self.index.check(self.shape, self.non_zero_length)
        if full and not self._is_checked:
            with self.device.use():
                self.index.check_elements(self.shape, self.non_zero_length)
            self._is_checked = True

    def to_numpy(self) -> tuple[Any, ...]:
        """Return the values and the index as NumPy arrays in pyarrow's form, without a copy.

        Returns
        -------
        data, coords
            … of COO; data, indptr, indices of CSR and CSC, and of CSF, where the latter two are lists. `data` is
            a matrix of one column, as pyarrow's.

        Raises
        ------
        NotOnDevice
            The arrays are not on the host; ``tensor.to_device(cpu())`` copies them.

        Examples
        --------
        >>> SparseTensor.from_coo([5], [[1, 1]], (2, 2)).to_numpy()
        (array([[5]]), array([[1, 1]]))
        """
        return convert.arrays(self)

    def to_scipy(self) -> Any:
        """Return a ``scipy.sparse`` array: ``csr_array``, ``csc_array``, or ``coo_array`` for COO and CSF.

        Over the same memory, read-only if it was read, where the indices are int32 or int64; scipy converts others.

        Raises
        ------
        InvalidBody
            An index is out of range, or the like: scipy would read or write outside the arrays.
        Unsupported
            scipy has no such arrays: of half floats, or of more than 2 dimensions in old versions.
        MissingDependency
            scipy is not installed.

        Examples
        --------
        >>> SparseTensor.from_csr([1.0], [0, 0, 1], [2], shape=(2, 3)).to_scipy().toarray()
        array([[0., 0., 0.],
               [0., 0., 1.]])
        """
        return convert.to_scipy(self)

    def to_cupyx(self) -> Any:
        """Return a matrix of ``cupyx.scipy.sparse``: ``csr_matrix``, ``csc_matrix`` or ``coo_matrix``.

        Over the same values on their GPU, and over indices of type int32 in one piece; cupyx converts the others.

        Raises
        ------
        InvalidBody
            An index is out of range, or the like.
        NotOnDevice
            The tensor is on the host.
        Unsupported
            cupyx has no such matrices: of integers, of half floats, of more than 2 dimensions, or of fibers.
        MissingDependency
            CuPy is not installed.
        """
        return convert.to_cupyx(self)

    def to_arrow(self) -> Any:
        """Return pyarrow's ``SparseCOOTensor``, ``SparseCSRMatrix``, ``SparseCSCMatrix`` or ``SparseCSFTensor``.

        Over the same memory where the indices are int64 (and coordinates a matrix); pyarrow converts the others.

        Raises
        ------
        InvalidBody
            An index is out of range, or the like: pyarrow would read or write outside the arrays.

        Examples
        --------
        >>> SparseTensor.from_csr([1.0], [0, 0, 1], [2], shape=(2, 3)).to_arrow().shape
        (2, 3)
        """
        return convert.to_arrow(self)

    def to_coo(self) -> SparseTensor:
        """Return the same tensor by coordinates, over the same values; the arrays must be on the host.

        Examples
        --------
        >>> SparseTensor.from_csr([5, 6], [0, 0, 2], [0, 2], (2, 3)).to_coo().index.coords
        (array([1, 1]), array([0, 2]))
        """
        if isinstance(self.index, CooIndex):
            return self
        self.validate(full=True)
        return SparseTensor.from_coo(self.data, coordinates(self), self.shape, self.dim_names)

    def to_tensor(self) -> Tensor:
        """Return the tensor with its zeros, in new memory on the host. Values of one place are added up.

        Raises
        ------
        LimitExceeded
            There is no memory for it.

        Examples
        --------
        >>> SparseTensor.from_coo([5, 2], [[1], [1]], (3,)).to_tensor().to_numpy()
        array([0, 7, 0])
        """
        self.validate(full=True)
        return Tensor(dense(self), self.dim_names)

    def to_device(self, device: Device) -> SparseTensor:
        """Return the tensor on a device: itself where it is there, otherwise a copy.

        Examples
        --------
        >>> from bowstring.testing import fake_device
        >>> SparseTensor.from_coo([5], [[1]], (3,)).to_device(fake_device())
        <SparseTensor coo int64 (3,) with 1 values on fake:0>
        """
        if device is self.device:
            return self
        data = device.from_host(on_host(self.data))
        return SparseTensor(data, self.index.on(device), self.shape, self.dim_names)

    def __repr__(self) -> str:
        return (
            f"<SparseTensor {self.format} {self.dtype} {self.shape} "
            f"with {self.non_zero_length} values on {self.device.name}>"
        )
