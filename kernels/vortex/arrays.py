"""Arrays for launches: new ones, numbers on a device, and the same elements as other types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from bowstring.kernels.launch import find_place, run_arrays

_STEP_ON_HOST: Final = 1024
_LARGE: Final = 1 << 16


_allocate: Callable[[int], Any] = functools.partial(np.empty, dtype=np.uint8)


def allocate_by(allocate: Callable[[int], Any]) -> None:
    """Have large arrays on the host lie in what a function of their size in bytes returns: writable memory."""
    global _allocate  # noqa: PLW0603  an allocator is the process's
    _allocate = allocate


def empty(beside: Any, size: int, dtype: Any) -> Any:
    """Return a new array on the device of another, whose elements may be anything."""
    if type(beside) is not np.ndarray:
        return run_arrays(lambda xp, _: xp.empty(size, dtype), beside)
    dtype = np.dtype(dtype)
    if size * dtype.itemsize < _LARGE:
        return np.empty(size, dtype)
    return np.frombuffer(_allocate(size * dtype.itemsize), dtype)


def put(beside: Any, values: list[int], dtype: Any) -> Any:
    """Return numbers of the host as an array on the device of another."""
    return run_arrays(lambda xp, _: xp.asarray(values, dtype), beside)


def words_of(data: Any) -> Any:
    """Return bytes as words of 64 bits, copied where they do not begin at a multiple of 8."""
    whole = data[: data.size & ~7]
    on_host = isinstance(whole, np.ndarray)
    address = whole.__array_interface__["data"][0] if on_host else whole.data.ptr
    return (whole if address & 7 == 0 else whole.copy()).view(np.uint64)


def unsigned(array: Any) -> Any:
    """Return the bits of elements as unsigned integers of their width."""
    return array if array.dtype.kind == "u" else array.view(f"u{array.dtype.itemsize}")


def as_int64(array: Any) -> Any:
    """Return numbers as int64, converted where they are others."""
    return array if array.dtype == np.int64 else array.astype(np.int64)


def codes_of(codes: Any) -> Any:
    """Return codes as unsigned integers of at most 32 bits, which is more than any of them may be."""
    codes = unsigned(codes)
    if codes.dtype.itemsize < 8:
        return codes
    return run_arrays(lambda xp, each: xp.minimum(each, np.uint64(2**32 - 1)).astype(np.uint32), codes)


def step_of(beside: Any) -> int:
    """Return how many rows one work item takes where a row alone would be too little for the host."""
    return _STEP_ON_HOST if find_place((beside,)) == "host" else 1
