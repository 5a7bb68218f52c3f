"""Where the values of a sparse tensor are: coordinates, compressed rows or columns, compressed fibers.

The checks run where the arrays are. Those of the structure cost nothing; the full ones look at every index.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bowstring.errors import InvalidBody, UsageError
from bowstring.ipc.tensor.array import any_is_true, as_array, as_type, device_of, host_array, on_host
from bowstring.ipc.tensor.metadata import element_type, little_endian

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bowstring.memory import Device

Array = Any
HostArray = np.ndarray[Any, Any]
Shape = tuple[int, ...]
_LEAST_LEVELS = 2


def value_array(data: Any) -> Any:
    """Return the values of a tensor, one-dimensional; booleans become ``uint8``."""
    array = as_array(data)
    if array.dtype.kind == "b":
        array = array.view(np.uint8)
    return _plain(array.reshape(-1), element_type(array.dtype))


def index_array(source: Any, ndim: int = 1) -> Any:
    """Return an array of indices, or raise `UsageError`."""
    array = as_array(source)
    if array.ndim != ndim:
        raise UsageError("indices of another dimension", expected=ndim, found=array.ndim)
    dtype = array.dtype
    if dtype.kind not in "iu":
        if array.size:
            raise UsageError("indices must be integers", found=dtype)
        dtype = np.dtype(np.int64)  # an empty list has no integers in it, nor anything else
    return _plain(array, little_endian(dtype))


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


@dataclasses.dataclass(frozen=True, slots=True)
class CooIndex:
    """Coordinates (``SparseTensorIndexCOO``)."""

    format: ClassVar[str] = "coo"
    coords: tuple[Array, ...]  # positions, one array per dimension
    is_canonical: bool  # sorted, the last dimension fastest, and unique
    # the contiguous (values, dimensions) matrix that `coords` are columns of, if any
    matrix: Array | None = None

    @classmethod
    def of_matrix(cls, matrix: Array, is_canonical: bool) -> CooIndex:
        """Return the index whose coordinates are the columns of a matrix, without a copy."""
        with device_of(matrix).use():
            coords = tuple(matrix[:, axis] for axis in range(matrix.shape[1]))
        return cls(coords, is_canonical, matrix)

    @property
    def parts(self) -> list[Array]:
        """What is written: a matrix of one row per value.

        The format has strides, but Arrow C++ ignores them when it makes a dense tensor (tried with 26.0.1).
        """
        if self.matrix is not None:
            return [self.matrix]
        device = device_of(self.coords[0])
        with device.use():
            return [device.xp.stack(self.coords, axis=1)]

    def on(self, device: Device) -> CooIndex:
        """Return a copy of the index on a device."""
        return CooIndex(_all_on(device, self.coords), self.is_canonical)

    def check(self, shape: Shape, count: int, *, full: bool) -> None:
        """Raise InvalidBody where sizes do not fit; with `full` where an index or the order is wrong."""
        _count("dimensions of coordinates", len(self.coords), len(shape))
        for axis, positions in enumerate(self.coords):
            _count(f"coordinates of dimension {axis}", positions.size, count)
            if full:
                _range(positions, shape[axis], f"coordinates of dimension {axis}")
        if full and self.is_canonical and not is_in_order(self.coords):
            raise InvalidBody("coordinates that claim to be sorted and unique are not", where="coordinates")

    def coordinates(self, _shape: Shape) -> tuple[HostArray, ...]:
        """Return one array of positions per dimension, of an index that has been checked."""
        return tuple(map(host_array, self.coords))


@dataclasses.dataclass(frozen=True, slots=True)
class CsxIndex:
    """A matrix by rows or by columns (``SparseMatrixIndexCSX``)."""

    axis: int  # 0: rows are compressed (CSR); 1: columns (CSC)
    indptr: Array  # where each row (column) begins, and the last end
    indices: Array  # the column (row) of each value

    @property
    def format(self) -> str:
        """``"csr"`` or ``"csc"``."""
        return ("csr", "csc")[self.axis]

    @property
    def parts(self) -> list[Array]:
        """What is written."""
        return [self.indptr, self.indices]

    def on(self, device: Device) -> CsxIndex:
        """Return a copy of the index on a device."""
        return CsxIndex(self.axis, *_all_on(device, self.parts))

    def check(self, shape: Shape, count: int, *, full: bool) -> None:
        """Raise InvalidBody where sizes do not fit; with `full` where an index is wrong or `indptr` goes back."""
        _count("dimensions of a matrix", len(shape), 2)
        _count("indptr", self.indptr.size, shape[self.axis] + 1)
        _count("indices", self.indices.size, count)
        if full:
            _ranges(self.indptr, count, "indptr")
            _range(self.indices, shape[1 - self.axis], "indices")

    def coordinates(self, shape: Shape) -> tuple[HostArray, ...]:
        """Return one array of positions per dimension, of an index that has been checked."""
        lines = np.repeat(np.arange(shape[self.axis]), _lengths(self.indptr))
        others = host_array(self.indices)
        return (lines, others) if self.axis == 0 else (others, lines)


@dataclasses.dataclass(frozen=True, slots=True)
class CsfIndex:
    """A tree of prefixes, one level per dimension (``SparseTensorIndexCSF``)."""

    format: ClassVar[str] = "csf"
    axis_order: tuple[int, ...]  # the dimension of each level
    indptr: tuple[Array, ...]  # for each level but the last: first child of each node, and the last end
    indices: tuple[Array, ...]  # the positions of each level's nodes

    @property
    def parts(self) -> list[Array]:
        """What is written."""
        return [*self.indptr, *self.indices]

    def on(self, device: Device) -> CsfIndex:
        """Return a copy of the index on a device."""
        return CsfIndex(self.axis_order, _all_on(device, self.indptr), _all_on(device, self.indices))

    def check(self, shape: Shape, count: int, *, full: bool) -> None:
        """Raise InvalidBody where sizes do not fit; with `full` where indices are wrong or `indptr` goes back."""
        if (
            len(shape) < _LEAST_LEVELS
        ):  # Arrow C++ knows no such trees, and pyarrow ends the process over them
            raise InvalidBody("fibers of one dimension", expected="2 or more", found=len(shape))
        if sorted(self.axis_order) != list(range(len(shape))):
            raise InvalidBody(
                "the order of axes does not name each dimension once",
                expected=f"0 to {len(shape) - 1}",
                found=self.axis_order,
            )
        _count("levels of indices", len(self.indices), len(shape))
        _count("levels of indptr", len(self.indptr), len(shape) - 1)
        for level, indptr in enumerate(self.indptr):
            _count(f"indptr of level {level}", indptr.size, self.indices[level].size + 1)
        _count("indices of the last level", self.indices[-1].size, count)
        if full:
            for level, indptr in enumerate(self.indptr):
                _ranges(indptr, self.indices[level + 1].size, f"indptr of level {level}")
            for level, indices in enumerate(self.indices):
                _range(indices, shape[self.axis_order[level]], f"indices of level {level}")

    def coordinates(self, shape: Shape) -> tuple[HostArray, ...]:
        """Return one array of positions per dimension, of an index that has been checked."""
        levels = [host_array(self.indices[0])]
        for indptr, nodes in zip(self.indptr, self.indices[1:], strict=True):
            levels = [np.repeat(level, _lengths(indptr)) for level in levels]
            levels.append(host_array(nodes))
        return tuple(levels[self.axis_order.index(axis)] for axis in range(len(shape)))


SparseIndex = CooIndex | CsxIndex | CsfIndex


def is_in_order(coords: tuple[Array, ...]) -> bool:
    """Whether each row of coordinates comes behind the one before, the last dimension fastest."""
    if not coords:
        return True
    rises: Array | None = None
    with device_of(coords[0]).use():
        for positions in reversed(coords):
            before, after = positions[:-1], positions[1:]
            rises = before < after if rises is None else (before < after) | ((before == after) & rises)
        return not any_is_true(rises == False)  # noqa: E712  `not` cannot look into an array


def _range(indices: Array, extent: int, where: str) -> None:
    is_outside = indices.size and (
        (indices.dtype.kind == "i" and any_is_true(indices < 0))
        or (extent <= np.iinfo(indices.dtype).max and any_is_true(indices >= extent))
    )
    if is_outside:
        raise InvalidBody("an index lies outside the tensor", expected=f"0 to {extent - 1}", where=where)


def _ranges(indptr: Array, count: int, where: str) -> None:
    first, last = int(on_host(indptr[:1])[0]), int(on_host(indptr[-1:])[0])
    if first != 0 or last != count:
        raise InvalidBody(
            "ranges do not begin at 0 and end behind the last value",
            expected=f"0 and {count}",
            found=f"{first} and {last}",
            where=where,
        )
    if any_is_true(indptr[1:] < indptr[:-1]):
        raise InvalidBody("a range ends before it begins", where=where)


def _count(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise InvalidBody(f"wrong number of {what}", expected=expected, found=found)


def _all_on(device: Device, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return tuple(device.from_host(on_host(array)) for array in arrays)


def _lengths(indptr: Any) -> HostArray:
    return np.diff(host_array(indptr).astype(np.int64, copy=False))
