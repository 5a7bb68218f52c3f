"""CUDA devices: arrays are CuPy's or views, memory is the driver's, all in the device's primary context."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.errors import DeviceError, ForkedError, MissingDependency, NotOnDevice
from bowstring.kernels.launch import is_installed
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory.cuda.array import DeviceArray, Namespace
from bowstring.memory.cuda.bindings import cuda_driver
from bowstring.memory.cuda.driver import hidden_gpu, no_gpu, uuid_text
from bowstring.memory.cuda.driver_device import DriverDevice
from bowstring.memory.cuda.streams import NamedStream
from bowstring.memory.device import cpu
from bowstring.memory.devices import register_devices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bowstring.memory.cuda.bindings import CudaDriver
    from bowstring.memory.device import Device

CUDA_DEVICE_TYPE: Final = 2  # ARROW_DEVICE_CUDA of the C Device interface


class CudaDevice(DriverDevice):
    """One GPU, from :func:`cuda_device`. Processes may number GPUs differently, so a UUID identifies each."""

    arrow_device_type = CUDA_DEVICE_TYPE
    # Not shown on a GPU yet: that mapped memory outlives its producer, and is never reused: tests/gpu/probe.
    maps_by_default = False

    def __init__(self, driver: CudaDriver, ordinal: int) -> None:
        super().__init__(driver, ordinal)
        self.name = f"cuda:{ordinal}"

    @functools.cached_property
    def xp(self) -> Any:
        """CuPy."""
        return load_cupy()

    def using_allocator(
        self, malloc: Callable[[int, int], int], free: Callable[[int, int], None]
    ) -> contextlib.AbstractContextManager[None]:
        """Return a block in which CuPy calls two functions to allocate and free, in this thread."""
        cuda = self.xp.cuda
        context: contextlib.AbstractContextManager[None] = cuda.using_allocator(
            cuda.PythonFunctionAllocator(malloc, free).malloc
        )
        return context

    def memory_resource(
        self, allocate: Callable[[int, Any], int], deallocate: Callable[[int, int, Any], None]
    ) -> Any:
        """Return a resource of RMM that calls two functions to allocate and free."""
        try:
            import rmm.mr
        except ImportError as error:
            raise MissingDependency(
                "a memory resource needs RMM", hint="pip install rmm-cu13, or rmm-cu12"
            ) from error
        return rmm.mr.CallbackMemoryResource(allocate, deallocate)

    def array(self, address: int, nbytes: int, owner: object, *, writable: bool = False) -> Any:  # noqa: ARG002  CuPy's arrays are all writable
        """Return a CuPy array over device memory; what peers made is mapped read-only, if the driver can."""
        cupy = self.xp
        with cupy.cuda.Device(self.ordinal):
            if not nbytes:
                return cupy.empty(0, np.uint8)
            memory = cupy.cuda.UnownedMemory(address, nbytes, self.lend(owner), self.ordinal)
            return cupy.ndarray((nbytes,), np.uint8, cupy.cuda.MemoryPointer(memory, 0))

    @functools.cached_property
    def _aside(self) -> Any:
        return self.xp.cuda.Stream(non_blocking=True)

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        with self.driver.beside_captures(), self.xp.cuda.Device(self.ordinal):
            yield

    def current(self) -> NamedStream:
        with self.use():
            stream = self.xp.cuda.get_current_stream()
        return NamedStream(int(stream.ptr), stream)

    @contextlib.contextmanager
    def on(self, streams: Sequence[NamedStream]) -> Iterator[None]:
        """Make the first of some streams CuPy's current one, which waits for the others."""
        external = self.xp.cuda.ExternalStream(streams[0].address, self.ordinal)
        external.named = streams[0]  # which owns the stream, and lives as long as what is handed out on it
        with self.use(), external:
            self.follow(streams)
            yield

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Work of the block has a stream of its own: CuPy's default one waits for the work on all others."""
        with self.use(), self._aside:
            yield

    def from_host(self, source: np.ndarray[Any, Any]) -> Any:
        with self.use():
            return self.xp.asarray(source)

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        if not isinstance(array, self.xp.ndarray) or array.device.id != self.ordinal:
            raise NotOnDevice("not an array of this device", expected=self.name, found=type(array).__name__)
        with self.use():
            copied: np.ndarray[Any, Any] = self.xp.asnumpy(array)
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        # By its UUID: the number may be that of another GPU in the other process.
        return (find_cuda_device, (self.uuid,))


class BareCudaDevice(CudaDevice):
    """A GPU without CuPy: its arrays are views for torch and others, and Bowstring queues nothing but copies."""

    computes = False

    @functools.cached_property
    def xp(self) -> Any:
        """What makes arrays of no elements, and says for all else that CuPy is missing."""
        return Namespace(self)

    def array(self, address: int, nbytes: int, owner: object, *, writable: bool = False) -> DeviceArray:  # noqa: ARG002  as CuPy's
        """Return a view of device memory."""
        return DeviceArray(self, cpu().array(address, nbytes, self.lend(owner), writable=True))

    @functools.cached_property
    def _aside(self) -> NamedStream:
        return NamedStream(self.driver.stream_create(self.ordinal), self)

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        with self.driver.beside_captures():
            yield

    on = DriverDevice.on

    def current(self) -> NamedStream:
        stream, torch = DriverDevice.current(self), sys.modules.get("torch.cuda")
        # None while another thread imports torch: then nothing is initialized.
        is_initialized = getattr(torch, "is_initialized", None)
        if stream == (0, self) and torch is not None and is_initialized is not None and is_initialized():
            current = torch.current_stream(self.ordinal)
            return NamedStream(int(current.cuda_stream), current)
        return stream

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Work of the block has a stream of its own."""
        with self.on([self._aside]):
            yield

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        if type(array) is not DeviceArray or array.device is not self:
            raise NotOnDevice("not an array of this device", expected=self.name, found=type(array).__name__)
        array.check_contiguous()
        copied: np.ndarray[Any, Any] = np.empty(array.shape, array.dtype)
        if copied.nbytes:
            # To pageable memory the driver copies before it returns: no copy writes there after an error.
            self.copy_out(copied.ctypes.data, array.data.ptr, copied.nbytes)
            self.wait_stream(DEFAULT_LIMITS.device_timeout)
        return copied


_devices: dict[int, CudaDevice] = {}


def load_cupy() -> Any:
    """Return the module ``cupy``."""
    try:
        import cupy
    except ImportError as error:
        raise MissingDependency(
            "arrays on a GPU need CuPy", hint="pip install 'bowstring[cuda13]'"
        ) from error
    return cupy


def cuda_device(ordinal: int) -> CudaDevice:
    """Return a GPU of this process by its number."""
    known = _devices.get(ordinal)
    if known is not None and _first_process() == os.getpid():
        return known
    try:
        driver = _driver()
    except DeviceError as error:
        raise NotOnDevice("this process can use no GPU", found=str(error), hint=no_gpu(error)) from error
    count = driver.device_count()
    if not 0 <= ordinal < count:
        raise NotOnDevice(
            "no such GPU",
            expected=f"cuda:0 to cuda:{count - 1}" if count else "no GPU: this process sees none",
            found=f"cuda:{ordinal}",
            hint=hidden_gpu(_names(driver)),
        )
    kind = CudaDevice if is_installed("cupy") else BareCudaDevice
    # Threads that get here at one time get the same object.
    return _devices.setdefault(ordinal, kind(driver, ordinal))


def find_cuda_device(uuid: bytes) -> Device:
    """Return a GPU of this process by its UUID."""
    names: list[str] = []
    try:
        driver = _driver()
        for ordinal in range(driver.device_count()):
            if driver.device_uuid(ordinal) == uuid:
                return cuda_device(ordinal)
        names = _names(driver)
    except (DeviceError, MissingDependency) as error:
        raise NotOnDevice(
            "the memory is on a GPU, and this process cannot use any", found=error.what, hint=no_gpu(error)
        ) from error
    raise NotOnDevice(
        "this process does not see the GPU that the memory is on",
        expected=f"one of {', '.join(names)}" if names else "no GPU: this process sees none",
        found=f"UUID {uuid_text(uuid)}",
        hint=hidden_gpu(names),
    )


def _driver() -> CudaDriver:
    driver = cuda_driver()
    if _first_process() != os.getpid():
        raise ForkedError(
            "CUDA cannot be used in a child that was forked after it came into use",
            hint="A driver does not survive a fork: start processes by spawn or forkserver.",
        )
    return driver


@functools.cache
def _first_process() -> int:
    """Return the process that used the driver first: this one, or the parent that it was forked from."""
    return os.getpid()


def _names(driver: CudaDriver) -> list[str]:
    return [
        f"{driver.device_name(ordinal)} (UUID {uuid_text(driver.device_uuid(ordinal))})"
        for ordinal in range(driver.device_count())
    ]


def _in_use() -> list[CudaDevice]:
    """Return the GPUs that this process has used, and CuPy's current one."""
    if (cupy := sys.modules.get("cupy")) is not None:
        with contextlib.suppress(Exception):  # no GPU, or one that failed
            from cuda.bindings import driver

            if not int(driver.cuCtxGetCurrent()[0]):  # else nobody uses CUDA, and this must not begin it
                cuda_device(cupy.cuda.Device().id)
    known = list(_devices.values()) if _devices and _first_process() == os.getpid() else []
    return [each for each in known if cupy is not None or not each.computes]


register_devices(CUDA_DEVICE_TYPE, "cuda", find_cuda_device, cuda_device, _in_use)
