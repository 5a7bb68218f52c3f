"""The current fake device of each thread: arrays of a GPU are computed with on the current one, theirs or not."""

from __future__ import annotations

import contextlib
import functools
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from bowstring.errors import NotOnDevice
from bowstring.kernels.launch import register_array_type
from bowstring.memory.cuda.array import BINARY, OTHER, View
from bowstring.memory.device import cpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from bowstring.memory.device import Device

_local = threading.local()


@contextlib.contextmanager
def using(device: Any) -> Iterator[None]:
    """Make a device the current one of this thread, for the time of a ``with`` block."""
    before = getattr(_local, "device", None)
    _local.device = device
    try:
        yield
    finally:
        _local.device = before


def current() -> Any:
    """Return the current device of this thread, ``None`` where it has none."""
    return getattr(_local, "device", None)


class OnlyCurrent:
    """A ``with`` block in which arrays of a fake device can be computed with only while it is the current one.

    With CuPy, what is computed while another GPU is current runs there, or fails; so code that works on a device
    has to make it the current one. The block holds for all threads.

    Examples
    --------
    >>> from bowstring.testing import fake_device
    >>> array = fake_device(1).xp.arange(3)
    >>> with OnlyCurrent():
    ...     with fake_device(1).use():
    ...         doubled = array + array
    ...     array + array
    Traceback (most recent call last):
      ...
    bowstring.errors.NotOnDevice: an array is used while another device is the current one; ...
    """

    _wanted = 0

    def __enter__(self) -> None:
        OnlyCurrent._wanted += 1

    def __exit__(self, *_: object) -> None:
        OnlyCurrent._wanted -= 1

    @classmethod
    def is_wanted(cls) -> bool:
        """Whether some block is entered."""
        return cls._wanted > 0


def check_current(device: Any) -> None:
    """Refuse to compute on a device that is not the current one, where somebody wants to know.

    Raises
    ------
    NotOnDevice
        It is not, inside an :class:`OnlyCurrent` block.
    """
    if OnlyCurrent.is_wanted() and current() is not device:
        raise NotOnDevice(
            "an array is used while another device is the current one",
            expected=device.name,
            found=getattr(current(), "name", "none"),
            hint="Work on it inside `with device.use():`.",
        )


# Fake memory has addresses that no host memory has: reading one as if it were on the host ends the process
# at once, where a GPU's would.
ADDRESS_SHIFT = 1 << 60


def check_dtype(dtype: np.dtype[Any]) -> None:
    """Refuse what CuPy 14 refuses: elements with references, texts, times, and big-endian numbers.

    Raises
    ------
    ValueError
        As CuPy's.
    """
    fields = dtype.names is not None and not dtype.hasobject
    if dtype.byteorder == ">" or not (fields or dtype.char in "?bhilqBHILQefdFD" or dtype.name == "bfloat16"):
        raise ValueError(f"Unsupported dtype {dtype}")


class FakeArray(View):
    """An array in the memory of a :class:`~bowstring.testing.FakeDevice`.

    It can be sliced, reshaped, viewed and computed with, together with other arrays of its device, and copied
    to the host by ``device.to_host(array)``; everything that would read it otherwise raises
    :class:`~bowstring.errors.NotOnDevice`.

    Examples
    --------
    >>> from bowstring.testing import fake_device
    >>> array = fake_device().xp.arange(4)
    >>> (array + 1)[1:].shape
    (3,)
    >>> int(array[0])
    Traceback (most recent call last):
      ...
    bowstring.errors.NotOnDevice: an array of a device was read as host memory; found fake:0. Copy it ...
    """

    __slots__ = ()

    def __init__(self, device: Device, array: np.ndarray[Any, Any]) -> None:
        check_dtype(array.dtype)
        super().__init__(device, array)

    @property
    def writeable(self) -> bool:
        """Whether the fake lets it be written; a GPU could not refuse."""
        return bool(self._array.flags.writeable)

    @property
    def data(self) -> Any:
        """Where the array starts in device memory: ``array.data.ptr``, as CuPy's."""
        return SimpleNamespace(ptr=int(self._array.ctypes.data) + ADDRESS_SHIFT)

    def astype(self, dtype: npt.DTypeLike) -> FakeArray:
        """Return the elements converted."""
        return _computed(self, "astype", dtype)

    def copy(self) -> FakeArray:
        """Return a copy on the device."""
        return _computed(self, "copy")

    def sum(self, **options: Any) -> FakeArray:
        """Return the sum, on the device."""
        return _computed(self, "sum", **options)

    def max(self, **options: Any) -> FakeArray:
        """Return the largest element, on the device."""
        return _computed(self, "max", **options)

    def min(self, **options: Any) -> FakeArray:
        """Return the smallest element, on the device."""
        return _computed(self, "min", **options)

    def __getitem__(self, key: Any) -> FakeArray:
        if not isinstance(key, slice | int):  # a view queues no work
            check_current(self.device)
        return FakeArray(self.device, np.asarray(self._array[unwrapped(self.device, key)]))

    def __setitem__(self, key: Any, value: Any) -> None:
        check_current(self.device)
        self._array[unwrapped(self.device, key)] = unwrapped(self.device, value)

    def _refuse(self, *_arguments: Any, **_options: Any) -> NoReturn:
        raise NotOnDevice(
            "an array of a device was read as host memory",
            found=self.device.name,
            hint="Copy it with device.to_host(array) first.",
        )

    __array__ = __buffer__ = __iter__ = __dlpack__ = _refuse
    __bool__ = __int__ = __float__ = __complex__ = __index__ = __contains__ = _refuse
    __bytes__ = __format__ = tolist = item = tobytes = _refuse


def _computed(array: FakeArray, name: str, *others: Any, in_place: bool = False, **options: Any) -> FakeArray:
    """Return what NumPy's method of that name does, on the device; `in_place`: the array itself."""
    check_current(array.device)
    result = getattr(array._array, name)(*unwrapped(array.device, others), **options)
    if result is NotImplemented:
        raise TypeError(f"{name} is not defined for these operands")
    return array if in_place else made(array.device, np.asarray(result))


def _operator(name: str, *, in_place: bool = False) -> Callable[..., FakeArray]:
    def apply(self: FakeArray, *others: Any) -> FakeArray:
        return _computed(self, name, *others, in_place=in_place)

    apply.__name__ = name
    return apply


for _name in OTHER:
    setattr(FakeArray, f"__{_name}__", _operator(f"__{_name}__"))
for _name in BINARY:
    setattr(FakeArray, f"__{_name}__", _operator(f"__{_name}__"))
    setattr(FakeArray, f"__r{_name}__", _operator(f"__r{_name}__"))
    setattr(FakeArray, f"__i{_name}__", _operator(f"__i{_name}__", in_place=True))


def unwrapped(device: Device, value: Any) -> Any:
    """Return a value of the fake namespace as NumPy's: for the device, its namespace and kernels only.

    Raises
    ------
    NotOnDevice
        It is, or holds, an array of another device or of the host.
    """
    if type(value) is FakeArray:
        if value.device is not device:
            raise NotOnDevice("arrays of two devices", expected=device.name, found=value.device.name)
        return value._array
    if isinstance(value, np.ndarray) and value.ndim:
        raise NotOnDevice(
            "a host array was used on a device",
            expected=device.name,
            hint="Copy it with xp.asarray(array) first.",
        )
    if isinstance(value, list | tuple):
        return type(value)(unwrapped(device, each) for each in value)
    return value


def wrapped(device: Device, value: Any) -> Any:
    """Return a result of NumPy's as one of the fake namespace: no number leaves the device unnoticed."""
    if isinstance(value, np.ndarray | np.generic):
        return FakeArray(device, np.asarray(value))
    if isinstance(value, tuple):
        return tuple(wrapped(device, each) for each in value)
    return value


def _unwrap(arguments: tuple[Any, ...]) -> tuple[tuple[Any, ...], Callable[[Any], Any]]:
    device = next(each.device for each in arguments if type(each) is FakeArray)
    device.stats.launches += 1
    return unwrapped(device, arguments), functools.partial(wrapped, device)


register_array_type(FakeArray, _unwrap)


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


class _Memory:
    """Memory that an allocator made, which is freed with the last array over it, as CuPy frees it."""

    def __init__(
        self, malloc: Callable[[int, int], int], free: Callable[[int, int], None], nbytes: int
    ) -> None:
        self._free = free
        self._ordinal: int = getattr(current(), "ordinal", 0)  # of the device that is current, as with CuPy
        self.ptr = malloc(nbytes, self._ordinal)

    def __del__(self) -> None:
        if getattr(self, "ptr", 0):
            self._free(self.ptr, self._ordinal)


@contextlib.contextmanager
def using_allocator(malloc: Callable[[int, int], int], free: Callable[[int, int], None]) -> Iterator[None]:
    """Let new arrays of this thread lie in memory of an allocator, for the time of a ``with`` block."""
    before = getattr(_local, "allocator", None)
    _local.allocator = functools.partial(_Memory, malloc, free)
    try:
        yield
    finally:
        _local.allocator = before


def made(device: Device, array: np.ndarray[Any, Any]) -> FakeArray:
    """Return a new array of a device, in memory of the allocator that this thread uses."""
    allocator = getattr(_local, "allocator", None)
    if allocator is None or not array.nbytes:
        return FakeArray(device, array)
    memory = allocator(array.nbytes)
    place = cpu().array(memory.ptr - ADDRESS_SHIFT, array.nbytes, memory, writable=True)
    place = place.view(array.dtype).reshape(array.shape)
    place[...] = array
    return FakeArray(device, place)


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

    def __init__(self, device: Device) -> None:
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
            result = function(*unwrapped(device, arguments), **plain)
            return made(device, result) if isinstance(result, np.ndarray) else wrapped(device, result)

        on_device.__name__ = name
        setattr(self, name, on_device)
        return on_device

    def asarray(self, source: Any, dtype: Any = None) -> FakeArray:
        """Return a fake array: itself, or host data copied to the device."""
        if isinstance(source, FakeArray):
            plain = FakeArray(self._device, unwrapped(self._device, source))
            return plain if dtype is None else plain.astype(dtype)
        check_current(self._device)
        array: FakeArray = self._device.from_host(np.asarray(source, dtype=dtype))
        return array

    array = asarray

    def asnumpy(self, array: FakeArray) -> np.ndarray[Any, Any]:
        """Copy a fake array to the host."""
        return self._device.to_host(array)
