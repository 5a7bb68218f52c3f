"""Arrays over memory of a GPU where CuPy is not installed: for torch and others, and not to compute with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from bowstring.errors import MissingDependency
from bowstring.kernels.launch import register_array_type
from bowstring.memory.dlpack import device_pair, dlpack_capsule

if TYPE_CHECKING:
    import numpy.typing as npt

    from bowstring.memory.cuda.driver_device import DriverDevice


def needs_cupy(*_arguments: Any, **_options: Any) -> NoReturn:
    """Raise `MissingDependency`: Bowstring computes on a GPU with CuPy alone."""
    raise MissingDependency(
        "computing on a GPU needs CuPy",
        hint="pip install 'bowstring[cuda13]'; or hand the array to another library: torch.from_dlpack(array).",
    )


class View:
    """Shape and type of an array in memory of a device: those of one of NumPy's, which keeps the memory alive."""

    __slots__ = ("__weakref__", "_array", "device")
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]  # as NumPy's

    def __init__(self, device: Any, array: np.ndarray[Any, Any]) -> None:
        self.device = device
        self._array: np.ndarray[Any, Any] = array

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        dtype: np.dtype[Any] = self._array.dtype
        return dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each dimension."""
        shape: tuple[int, ...] = self._array.shape
        return shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._array.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._array.size

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._array.nbytes

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._array.itemsize

    @property
    def data(self) -> Any:
        """Where the array starts in device memory: ``array.data.ptr``, as CuPy's."""
        return SimpleNamespace(ptr=int(self._array.ctypes.data))

    def view(self, dtype: npt.DTypeLike) -> Self:
        """Return the same bytes as elements of another type."""
        return type(self)(self.device, self._array.view(dtype))

    def reshape(self, *shape: Any) -> Self:
        """Return the same elements in another shape."""
        return type(self)(self.device, self._array.reshape(*shape))

    def __len__(self) -> int:
        return len(self._array)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.dtype} {self.shape} on {self.device.name}>"


class DeviceArray(View):
    """An array over an address of a GPU, which the host never reads: it is sliced, reshaped, and handed on."""

    __slots__ = ()

    def reshape(self, *shape: Any) -> Self:
        """Return the same elements in another shape."""
        self.check_contiguous()
        return super().reshape(*shape)

    def check_contiguous(self) -> None:
        """Raise `MissingDependency` where elements lie apart: NumPy would read them."""
        if not self._array.flags.c_contiguous:
            needs_cupy()

    def __getitem__(self, key: Any) -> DeviceArray:
        if not all(isinstance(each, slice) for each in (key if isinstance(key, tuple) else (key,))):
            needs_cupy()
        return DeviceArray(self.device, self._array[key])

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        array = self._array
        return {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (self.data.ptr if array.size else 0, False),
            "strides": None if array.flags.c_contiguous else array.strides,
            "stream": self.device.current_stream() or 1,  # the default one
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return device_pair(self.device)

    def __dlpack__(self, **options: Any) -> Any:
        self.check_contiguous()
        return dlpack_capsule(self, self.device, lenient=True, **options)

    __array__ = __setitem__ = __iter__ = __contains__ = needs_cupy
    __bool__ = __int__ = __float__ = __complex__ = __index__ = needs_cupy
    astype = copy = sum = max = min = any = all = tolist = item = tobytes = needs_cupy


BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
OTHER = ("eq", "ne", "lt", "le", "gt", "ge", "neg", "invert", "abs")
for _name in (*BINARY, *(f"r{each}" for each in BINARY), *(f"i{each}" for each in BINARY), *OTHER):
    setattr(DeviceArray, f"__{_name}__", needs_cupy)

register_array_type(DeviceArray, needs_cupy)


class Namespace:
    """What ``device.xp`` is without CuPy: it makes arrays of no elements, and raises for all else."""

    def __init__(self, device: DriverDevice) -> None:
        self._device = device

    def empty(self, shape: Any, dtype: npt.DTypeLike = np.float64) -> Any:
        """Return an array of no elements."""
        return DeviceArray(self._device, np.empty(needs_cupy() if np.prod(shape) else shape, dtype))

    def __getattr__(self, name: str) -> Any:
        return needs_cupy()
