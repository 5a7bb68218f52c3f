"""The array namespace of the fake device: NumPy's functions as far as CuPy has them, over fake arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.testing.fake_array import FakeArray, unwrapped, wrapped
from bowstring.testing.fake_current import check_current

if TYPE_CHECKING:
    from bowstring.testing.fake_device import FakeDevice

__all__ = ["FakeNamespace"]

# fmt: off
_FUNCTIONS = frozenset(
    (
        "abs", "add", "all", "any", "arange", "argsort", "ascontiguousarray", "bincount", "bitwise_and",
        "bitwise_count", "bitwise_not", "bitwise_or", "bitwise_xor", "concatenate", "copyto", "count_nonzero",
        "cumsum", "diff", "divide", "empty", "empty_like", "equal", "flatnonzero", "full", "greater",
        "greater_equal", "invert", "isnan", "left_shift", "less", "less_equal", "logical_and", "logical_not",
        "logical_or", "max", "maximum", "min", "minimum", "multiply", "nonzero", "not_equal", "ones", "packbits",
        "repeat", "right_shift", "searchsorted", "sort", "stack", "subtract", "sum", "take", "unique",
        "unpackbits", "where", "zeros", "zeros_like",
    )
)
_NAMES = frozenset(
    (
        "bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
        "float32", "float64", "dtype", "iinfo", "newaxis",
    )
)
# fmt: on


class FakeNamespace:
    """What ``device.xp`` is on a fake device.

    Functions take arrays of the device (and plain numbers) and return arrays of the device, never numbers;
    host arrays come in by `asarray` and go out by `asnumpy`, and both are counted.

    Examples
    --------
    >>> from bowstring.testing import fake_device
    >>> xp = fake_device().xp
    >>> xp.asnumpy(xp.cumsum(xp.asarray(np.array([1, 2, 3])))).tolist()
    [1, 3, 6]
    """

    def __init__(self, device: FakeDevice) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        if name in _NAMES:
            return getattr(np, name)
        if name not in _FUNCTIONS:
            raise AttributeError(f"the fake device has no xp.{name}")
        function = getattr(np, name)
        device = self._device

        def on_device(*arguments: Any, **options: Any) -> Any:
            check_current(device)
            plain = {key: unwrapped(device, value) for key, value in options.items()}
            return wrapped(device, function(*unwrapped(device, arguments), **plain))

        on_device.__name__ = name
        setattr(self, name, on_device)
        return on_device

    def asarray(self, source: Any, dtype: Any = None) -> FakeArray:
        """Return a fake array: itself, or host data copied to the device."""
        if isinstance(source, FakeArray):
            plain = FakeArray(self._device, unwrapped(self._device, source))
            return plain if dtype is None else plain.astype(dtype)
        check_current(self._device)
        return self._device.from_host(np.asarray(source, dtype=dtype))

    array = asarray

    def asnumpy(self, array: FakeArray) -> np.ndarray[Any, Any]:
        """Copy a fake array to the host."""
        return self._device.to_host(array)
