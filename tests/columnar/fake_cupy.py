"""CuPy as far as columns use it: arrays over memory of a fake driver, which the host can see behind its shift."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np

from bowstring.testing.fake_array import ADDRESS_SHIFT
from bowstring.testing.fake_driver import FakeDriver

__all__ = ["STREAM", "Array", "Tensor", "make_cupy"]

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
        self.device = types.SimpleNamespace(id=0)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

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


class Stream:
    """``cupy.cuda.Stream`` and ``ExternalStream``: in a ``with`` block, the current one."""

    current: ClassVar[list[Stream]] = []

    def __init__(self, ptr: int, device_id: int = -1) -> None:
        self.ptr, self.device_id = ptr, device_id

    def __enter__(self) -> Self:
        self.current.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.current.pop()


_FIRST = Stream(STREAM)


class Tensor:
    """``torch.Tensor`` of a GPU, as far as 2.13 hands it out: its array interface is version 2, without a stream.

    Parameters
    ----------
    array
        Where its data are.
    driver
        The fake driver, which queues what torch does.
    stream
        The address of torch's current stream, on which work on the tensor is queued.
    """

    requires_grad = False

    def __init__(self, array: Array, driver: FakeDriver, stream: int) -> None:
        self._array, self._driver, self._stream = array, driver, stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.requires_grad:
            raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad.")
        found = self._array.__cuda_array_interface__
        return {name: found[name] for name in ("typestr", "shape", "strides", "data")} | {"version": 2}

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(
        self, *, stream: Any = -1, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        if stream is not None and type(stream) is not int:
            raise TypeError("stream must be ``int`` or ``none``")
        if stream in (0, 2):
            raise BufferError(f"unsupported stream on CUDA: {stream}")
        if stream not in (-1, self._stream):
            event = self._driver.event_create(0)
            self._driver.event_record(0, event, self._stream)
            self._driver.stream_wait_event(0, stream or 1, event)
            self._driver.event_destroy(0, event)
        return self._array


def current() -> Stream:
    """Return CuPy's current stream."""
    return Stream.current[-1] if Stream.current else _FIRST


def from_dlpack(array: Any, *, device: Any = None, copy: Any = None) -> Array:
    """``cupy.from_dlpack``: the capsule of the fake is the array itself."""
    if array.__dlpack_device__()[0] == 1:
        raise TypeError("CPU arrays cannot be directly imported to CuPy.")
    taken: Array = array.__dlpack__(stream=current().ptr or 1, max_version=(1, 0), copy=copy)
    return taken


def asarray(values: Any) -> Array:
    """``cupy.asarray``: of others it waits for the stream that their interface names, and for none without."""
    if isinstance(values, Array):
        return values
    interface = values.__cuda_array_interface__
    memory = UnownedMemory(interface["data"][0], 0, values)
    return Array(interface["shape"], interface["typestr"], MemoryPointer(memory, 0))


def make_cupy() -> Any:
    """Return a module."""
    cupy: Any = types.ModuleType("cupy")

    @contextlib.contextmanager
    def device(ordinal: int) -> Iterator[None]:
        assert ordinal == 0
        yield

    cupy.ndarray, cupy.from_dlpack, cupy.asarray = Array, from_dlpack, asarray
    cupy.cuda = types.SimpleNamespace(
        ExternalStream=Stream,
        Device=device,
        MemoryPointer=MemoryPointer,
        UnownedMemory=UnownedMemory,
        get_current_stream=current,
    )
    return cupy
