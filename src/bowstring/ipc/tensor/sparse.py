"""Sparse tensors: values, an index that says where they are, and the message that carries them. SparseTensor.fbs.

Arrow C++ reads and writes such messages, and no other Python library does.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import as_strided

from bowstring.columnar.interchange.conversions import needed
from bowstring.errors import InvalidBody, LimitExceeded, NotOnDevice, Unsupported, UsageError
from bowstring.ipc.tensor.array import device_of, host_array, on_host
from bowstring.ipc.tensor.index import SparseIndex, index_array, index_arrays, is_in_order, value_array
from bowstring.ipc.tensor.tensor import Tensor
from bowstring.memory import Device

_MATRIX: Final = 2
_BY_LINES: Final = ("csr", "csc")
_CLASSES: Final = {
    "coo": pa.SparseCOOTensor,
    "csr": pa.SparseCSRMatrix,
    "csc": pa.SparseCSCMatrix,
    "csf": pa.SparseCSFTensor,
}
_MOST_TRIED: Final = 6
_MOST_OF_CUPYX: Final = int(np.iinfo(np.int32).max)


class SparseTensor:
    """Values of a tensor that is mostly zeros, and where they are.

    Made by `from_coo`, `from_csr`, `from_csc`, `from_csf`, `from_scipy`, `from_arrow` or
    :func:`bowstring.ipc.read_sparse_tensor`; the arrays are not copied, unless their elements stand in the other
    byte order or apart from each other.

    Attributes
    ----------
    data
        The values, one-dimensional, on their device.
    index : SparseIndex
        Where they are: `indptr`, `indices`.
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
        if isinstance(coords, tuple):
            index = SparseIndex.of_coordinates(index_arrays(coords), bool(is_canonical))
        else:
            index = SparseIndex.of_matrix(index_array(coords, ndim=2), bool(is_canonical))
        if is_canonical is None and device_of(elements).is_host:
            same_size = len({positions.size for positions in index.indices}) == 1
            index = dataclasses.replace(index, is_canonical=same_size and is_in_order(index.indices))
        return cls(elements, index, shape, dim_names)

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
        index = SparseIndex("csr", (index_array(indptr),), (index_array(indices),), (0, 1))
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
        index = SparseIndex("csc", (index_array(indptr),), (index_array(indices),), (1, 0))
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
        index = SparseIndex("csf", index_arrays(indptr), index_arrays(indices), order)
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
        form = getattr(matrix, "format", None)
        if form in _BY_LINES and len(matrix.shape) != _MATRIX:
            matrix, form = matrix.tocoo(), "coo"  # of scipy alone, cupyx's are all matrices
        if form == "coo":
            coords = getattr(matrix, "coords", None) or (matrix.row, matrix.col)
            return cls.from_coo(matrix.data, tuple(coords), matrix.shape, dim_names)
        if form not in _BY_LINES:
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
        make = cls.from_csr if form == "csr" else cls.from_csc
        return make(matrix.data[:count], matrix.indptr, matrix.indices[:count], matrix.shape, dim_names)

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
        options: dict[str, Any] = {}
        form = next((form for form, kind in _CLASSES.items() if type(tensor) is kind), None)
        if form is None:
            raise UsageError("not a sparse tensor of pyarrow's", found=type(tensor).__name__)
        if form == "coo":
            options["is_canonical"] = tensor.has_canonical_format
        elif form == "csf":
            options["axis_order"] = _axis_order(tensor) if axis_order is None else axis_order
        make: Any = getattr(cls, f"from_{form}")
        result: SparseTensor = make(
            *tensor.to_numpy(), shape=tensor.shape, dim_names=tensor.dim_names, **options
        )
        return result

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
        bowstring.errors.InvalidBody: an index lies outside the tensor; expected 0 to 2; at indices of dimension 1
        """
        if any(size < 0 for size in self.shape) or not self.shape:
            raise InvalidBody("not a shape of a sparse tensor", found=self.shape)
        if self.dim_names and len(self.dim_names) != self.ndim:
            raise UsageError(
                "a tensor has one name per dimension, or none", expected=self.ndim, found=len(self.dim_names)
            )
        full = full and not self._is_checked
        with self.device.use():
            self.index.check(self.shape, self.non_zero_length, full=full)
        self._is_checked = self._is_checked or full

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
        data, parts = host_array(self.data).reshape(-1, 1), [host_array(part) for part in self.index.parts]
        return (
            (data, parts[: self.ndim - 1], parts[self.ndim - 1 :]) if self.format == "csf" else (data, *parts)
        )

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
        sparse, index = needed("scipy.sparse", "to_scipy", "scipy"), self.index
        self.validate(full=True)
        data = host_array(self.data)
        if self.dtype.kind == "f" and self.dtype.itemsize == 2:  # scipy's compiled loops do not know them
            raise Unsupported("scipy has no sparse arrays of half floats")
        try:
            if index.format not in _BY_LINES:
                return sparse.coo_array((data, index.coordinates(self.shape)), shape=self.shape)
            make = getattr(sparse, f"{index.format}_array")
            result = make(self.shape, dtype=self.dtype)
            # Its loops know two types of indices.
            indptr, indices = map(host_array, index.parts)
            fits = max(self.shape) <= np.iinfo(np.int32).max and indptr.dtype == np.int32
            if indptr.dtype != indices.dtype or not (fits or indptr.dtype == np.int64):
                indptr, indices = indptr.astype(np.int64), indices.astype(np.int64)
            # Handed to the constructor, slices of one body are copied, to let go of what else is in it.
            result.data, result.indptr, result.indices = data, indptr, indices
        except (OverflowError, TypeError, ValueError) as error:
            raise Unsupported(f"scipy does not take this tensor: {error}") from error
        return result

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
        if self.device.is_host:
            raise NotOnDevice(
                "the tensor is not on a GPU",
                found=self.device.name,
                hint="tensor.to_device(device) copies it; to_scipy() takes it where it is.",
            )
        sparse = needed("cupyx.scipy.sparse", "to_cupyx", "'bowstring[cuda13]', or [cuda12]")
        index = self.index
        if self.ndim != _MATRIX or index.format == "csf":
            raise Unsupported(
                "cupyx has matrices only, by coordinates, rows or columns",
                found=f"{self.format} of {self.ndim} dimensions",
            )
        if max(*self.shape, self.non_zero_length) > _MOST_OF_CUPYX:
            raise Unsupported(
                "cupyx counts in 32 bits",
                expected=f"at most {_MOST_OF_CUPYX} rows, columns and values",
                found=f"{self.shape} with {self.non_zero_length}",
            )
        self.validate(full=True)
        # cuSPARSE gets only where an array begins: it would misread the columns of a matrix of coordinates.
        contiguous = self.device.xp.ascontiguousarray
        with self.device.use():
            try:
                arrays = tuple(map(contiguous, (*index.indices, *index.indptr)))
                parts = (self.data, arrays) if index.format == "coo" else (self.data, *arrays)
                return getattr(sparse, f"{index.format}_matrix")(parts, shape=self.shape)
            except (TypeError, ValueError) as error:
                raise Unsupported(f"cupyx does not take this tensor: {error}") from error

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
        self.validate(full=True)
        data, *parts = self.to_numpy()
        options: dict[str, Any] = {"shape": self.shape, "dim_names": list(self.dim_names) or None}
        if self.format == "csf":
            options["axis_order"] = list(self.index.axes)
        elif self.format == "coo" and not parts[0].size:  # of no elements pyarrow takes these strides only
            parts = [as_strided(np.empty(0, np.int64), parts[0].shape, (8, 8))]
        return _CLASSES[self.format].from_numpy(data, *parts, **options)

    def to_coo(self) -> SparseTensor:
        """Return the same tensor by coordinates, over the same values; the arrays must be on the host.

        Examples
        --------
        >>> SparseTensor.from_csr([5, 6], [0, 0, 2], [0, 2], (2, 3)).to_coo().index.indices
        (array([1, 1]), array([0, 2]))
        """
        if self.format == "coo":
            return self
        self.validate(full=True)
        return SparseTensor.from_coo(
            self.data, self.index.coordinates(self.shape), self.shape, self.dim_names
        )

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
        places = self.index.coordinates(self.shape)
        try:
            result = np.zeros(self.shape, self.dtype)
        except (MemoryError, ValueError) as error:
            raise LimitExceeded(
                "there is no memory for a sparse tensor with all its zeros", found=f"shape {self.shape}"
            ) from error
        np.add.at(result, places, host_array(self.data))
        return Tensor(result, self.dim_names)

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
