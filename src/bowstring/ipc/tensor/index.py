"""Where the values of a sparse tensor are: coordinates, compressed rows or columns, compressed fibers.

The checks run where the arrays are. Those of the structure cost nothing; the full ones look at every index.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from bowstring.errors import InvalidBody, UsageError
from bowstring.ipc.tensor.array import any_is_true, as_array, as_type, device_of, host_array, on_host
from bowstring.ipc.tensor.metadata import element_type, little_endian
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
class SparseIndex:
    """A tree of prefixes. Coordinates are levels without ranges; compressed lines lack the first positions."""

    format: str  # "coo", "csr", "csc" or "csf"
    indptr: tuple[Array, ...]  # for each level but the last: first child of each node, and the last end
    indices: tuple[Array, ...]  # the positions of each level's nodes
    axes: tuple[int, ...]  # the dimension of each level
    is_canonical: bool = False  # of coordinates: sorted, the last dimension fastest, and unique
    # the contiguous (values, dimensions) matrix that coordinates are columns of, if any
    matrix: Array | None = None

    @classmethod
    def of_coordinates(cls, coords: tuple[Array, ...], is_canonical: bool) -> SparseIndex:
        return cls("coo", (), coords, tuple(range(len(coords))), is_canonical)

    @classmethod
    def of_matrix(cls, matrix: Array, is_canonical: bool) -> SparseIndex:
        """Return the index whose coordinates are the columns of a matrix, without a copy."""
        with device_of(matrix).use():
            coords = tuple(matrix[:, axis] for axis in range(matrix.shape[1]))
        return dataclasses.replace(cls.of_coordinates(coords, is_canonical), matrix=matrix)

    @property
    def parts(self) -> list[Array]:
        """What is written; of coordinates a matrix of one row per value.

        The format has strides, but Arrow C++ ignores them when it makes a dense tensor (tried with 26.0.1).
        """
        if self.format != "coo":
            return [*self.indptr, *self.indices]
        if self.matrix is not None:
            return [self.matrix]
        device = device_of(self.indices[0])
        with device.use():
            return [device.xp.stack(self.indices, axis=1)]

    def on(self, device: Device) -> SparseIndex:
        indptr, indices = (
            tuple(device.from_host(on_host(array)) for array in arrays)
            for arrays in (self.indptr, self.indices)
        )
        return dataclasses.replace(self, indptr=indptr, indices=indices, matrix=None)

    def check(self, shape: Shape, count: int, *, full: bool) -> None:
        """Raise InvalidBody where sizes do not fit; with `full` where an index, a range or the order is wrong."""
        depth, lines = len(shape), len(self.axes) - len(self.indices)
        if self.format == "csf" and depth < _LEAST_LEVELS:
            # Arrow C++ knows no such trees, and pyarrow ends the process over them.
            raise InvalidBody("fibers of one dimension", expected="2 or more", found=depth)
        if sorted(self.axes) != list(range(depth)):
            raise InvalidBody(
                "the axes of an index do not name each dimension once",
                expected=f"0 to {depth - 1}",
                found=self.axes,
            )
        nodes = [*shape[self.axes[0] :][:lines], *(positions.size for positions in self.indices)]
        ranges = len(self.indptr)
        _count("levels of indices", len(self.indices), depth - (self.format in ("csr", "csc")))
        _count("levels of ranges", ranges, 0 if self.format == "coo" else depth - 1)
        for level, size in enumerate(nodes):
            if level < ranges:
                _count(f"indptr of level {level}", self.indptr[level].size, size + 1)
            elif size != count:
                _count(f"indices of level {level}", size, count)
        if not full:
            return
        for level, indptr in enumerate(self.indptr):
            _ranges(indptr, nodes[level + 1], f"indptr of level {level}")
        for axis, positions in zip(self.axes[lines:], self.indices, strict=True):
            _range(positions, shape[axis], f"indices of dimension {axis}")
        if self.is_canonical and not is_in_order(self.indices):
            raise InvalidBody("coordinates that claim to be sorted and unique are not", where="coordinates")

    def coordinates(self, shape: Shape) -> tuple[HostArray, ...]:
        lines = len(self.axes) - len(self.indices)
        levels = [np.arange(shape[axis]) for axis in self.axes[:lines]]
        levels += map(host_array, self.indices)
        for level, indptr in enumerate(self.indptr, 1):
            lengths = np.diff(host_array(indptr).astype(np.int64, copy=False))
            levels[:level] = [np.repeat(positions, lengths) for positions in levels[:level]]
        return tuple(levels[self.axes.index(axis)] for axis in range(len(shape)))


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
