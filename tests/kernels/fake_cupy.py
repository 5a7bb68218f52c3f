"""As much of CuPy as a launch uses, with arrays that are NumPy's."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import numpy as np


class OnDevice:
    """What the parameters of a launch are made of."""

    def __init__(self, array: np.ndarray) -> None:
        self.size, self.itemsize, self.data = array.size, array.itemsize, self
        self.ptr = array.ctypes.data


class CupyArray(OnDevice):
    """As much of a CuPy array as a launch looks at."""

    __module__ = "cupy"

    def __init__(self, array: np.ndarray, device: int = 1) -> None:
        super().__init__(array)
        self.array = array
        self.dtype, self.ndim, self.flags = array.dtype, array.ndim, types.SimpleNamespace(c_contiguous=True)
        self.device = types.SimpleNamespace(id=device)

    def get(self) -> np.ndarray:
        return self.array.copy()

    def set(self, array: np.ndarray) -> None:
        self.array[:] = array


class FakeCupy(types.ModuleType):
    """As much of CuPy as a launch uses; it notes what is loaded and launched."""

    def __init__(self, capability: str = "90", driver: int = 13000) -> None:
        super().__init__("cupy")
        self.cuda = self.function = self.runtime = self
        self.capability, self.driver = capability, driver
        self.loaded: list[bytes] = []
        self.launched: list[tuple[Any, ...]] = []
        self.on: list[int] = []

    @contextlib.contextmanager
    def using(self, number: int) -> Iterator[None]:
        self.on.append(number)
        yield
        self.on.pop()

    def Device(self, number: int) -> Any:  # noqa: N802  CuPy's name
        device = self.using(number)
        device.compute_capability = self.capability  # type: ignore[attr-defined]  # a device is a context that has one
        return device

    def driverGetVersion(self) -> int:  # noqa: N802  CuPy's name
        return self.driver

    def Module(self) -> FakeCupy:  # noqa: N802  CuPy's name
        return self

    def load(self, code: bytes) -> None:
        assert type(code) is bytes
        self.loaded.append(code)

    def get_function(self, name: str) -> Any:
        return lambda grid, block, words: self.launched.append((name, grid, block, words, *self.on))
