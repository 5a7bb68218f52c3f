"""CuPy as far as columns use it: arrays over memory of a fake driver, which the host can see behind its shift."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from bowstring.testing.fake_array import ADDRESS_SHIFT

__all__ = ["STREAM", "make_cupy"]

STREAM = 77


class UnownedMemory:
    """``cupy.cuda.UnownedMemory``."""

    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
        self.ptr, self.size, self.owner, self.device_id = ptr, size, owner, device_id


class MemoryPointer:
    """``cupy.cuda.MemoryPointer``."""

    def __init__(self, mem: UnownedMemory, offset: int) -> None:
        self.mem = mem
        self.ptr = mem.ptr + offset


class Array:
    """``cupy.ndarray``, contiguous."""

    def __init__(self, shape: tuple[int, ...], dtype: Any = float, memptr: Any = None) -> None:
        self.shape, self.dtype, self.data = shape, np.dtype(dtype), memptr

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "stream": STREAM,
            "version": 3,
            "strides": None,
            "data": (self.data.ptr, False),
        }

    def view(self, dtype: Any) -> Array:
        rows = self.size * self.dtype.itemsize // np.dtype(dtype).itemsize
        return Array((rows,), dtype, self.data)

    def __getitem__(self, key: slice) -> Array:
        start, stop, step = key.indices(self.shape[0])
        assert (start, step) == (0, 1)
        return Array((stop,), self.dtype, self.data)

    def on_host(self) -> np.ndarray[Any, Any]:
        """Return what lies there, as the test sees it."""

        class Named:
            __array_interface__ = {  # noqa: RUF012  one of each
                "shape": self.shape,
                "typestr": self.dtype.str,
                "data": (self.data.ptr - ADDRESS_SHIFT, True),
                "version": 3,
            }

        return np.array(Named())


def make_cupy() -> Any:
    """Return a module."""
    cupy: Any = types.ModuleType("cupy")
    stream = types.SimpleNamespace(ptr=STREAM)

    @contextlib.contextmanager
    def device(ordinal: int) -> Iterator[None]:
        assert ordinal == 0
        yield

    cupy.ndarray = Array
    cupy.cuda = types.SimpleNamespace(
        Device=device,
        MemoryPointer=MemoryPointer,
        UnownedMemory=UnownedMemory,
        get_current_stream=lambda: stream,
    )
    return cupy
