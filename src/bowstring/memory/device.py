"""Devices: where memory lives. Code above this layer asks a device for arrays and never what it is."""

from __future__ import annotations

import abc
import contextlib
import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from bowstring.errors import NotExportable, NotOnDevice, Unsupported
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory.slab import Slab, host_slab, map_host_slab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bowstring.memory.cuda.events import RecordedEvent
    from bowstring.memory.cuda.streams import NamedStream

CPU_DEVICE_TYPE: Final = 1  # ARROW_DEVICE_CPU of the C Device interface
# CU_STREAM_LEGACY, CU_STREAM_PER_THREAD
_LEGACY: Final = 1
_PER_THREAD: Final = 2
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class Device(abc.ABC):
    """One processor with memory of its own.

    Attributes
    ----------
    name
        For people: ``"cpu"``, ``"cuda:0"``.
    uuid
        16 bytes that name the device in every process.
    arrow_device_type, arrow_device_id
        As in the Arrow C Device interface.
    alignment
        Buffers are placed at multiples of this many bytes.
    xp
        The array namespace of the device: NumPy, CuPy, or the fake's own.
    maps_by_default
        Whether readers get views of a producer's memory unless they ask for copies.
    smallest_region
        Bytes of a pool's smallest region, of which others are multiples: at least what the driver allocates at
        once.
    exports
        Whether other processes can map its memory.
    computes
        Whether `xp` and kernels work here. Without CuPy a GPU has views and copies only.
    """

    name: str
    uuid: bytes
    arrow_device_type: int
    arrow_device_id: int
    alignment: int = 64
    xp: Any
    maps_by_default: bool = True
    smallest_region: int = 1 << 20
    exports: bool = True
    computes: bool = True
    freed_behind: list[RecordedEvent]

    @property
    def is_host(self) -> bool:
        """Whether the host can read the memory of this device at its addresses."""
        return False

    @abc.abstractmethod
    def make_slab(self, nbytes: int) -> Slab:
        """Allocate memory that other processes can map."""

    @abc.abstractmethod
    def map_slab(self, fd: int, nbytes: int, uuid: bytes) -> Slab:
        """Map memory that another process made, for reading. Takes ownership of `fd`, for `close_descriptor`."""

    @abc.abstractmethod
    def array(self, address: int, nbytes: int, owner: object, *, writable: bool = False) -> Any:
        """Return a ``uint8`` array of the device's namespace over memory that `owner` keeps alive."""

    @abc.abstractmethod
    def from_host(self, source: np.ndarray[Any, Any]) -> Any:
        """Copy a host array to this device, into an array of the device's namespace."""

    @abc.abstractmethod
    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return a host array with the bytes of an array of this device: a copy, except on the host."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait until all work of this process on this device is done, however long that takes.

        Not while a graph is captured in any thread, nor while work waits for another process: Bowstring itself
        waits for streams, and never for a whole device.
        """

    def aside(self) -> contextlib.AbstractContextManager[None]:
        """As :meth:`use`, for data that are ready: reads in the block do not wait for what is queued elsewhere."""
        return self.use()

    def use(self) -> contextlib.AbstractContextManager[None]:
        """Return a ``with`` block in which the device is the current one of this thread.

        Work on arrays of a GPU runs on the current GPU, which need not be theirs. Every public function that works
        on a batch enters its device, so nothing below has to.
        """
        return contextlib.nullcontext()

    def on(self, streams: Sequence[NamedStream]) -> contextlib.AbstractContextManager[None]:
        """Return a ``with`` block whose work is queued on the first of some streams, behind the others."""
        raise NotOnDevice("the host has no streams", found=[hex(each.address) for each in streams])

    def rest(self, seconds: float) -> None:  # noqa: B027  the host has nothing queued
        """Wait until memory that nobody refers to any more is not read either, by any stream that was used with it.

        Raises
        ------
        DeadlineExceeded
            It is read still after `seconds`.
        """

    def copy_in(self, address: int, host: int, nbytes: int) -> None:  # noqa: ARG002  overridden
        """Queue a copy of host memory to an address of this device, on its current stream."""
        raise Unsupported("nothing copies to this device", found=self.name)

    def copy_out(self, host: int, address: int, nbytes: int) -> None:  # noqa: ARG002  overridden
        """Queue a copy to host memory from an address of this device, on its current stream."""
        raise Unsupported("nothing copies from this device", found=self.name)

    def wait_stream(self, seconds: float) -> None:  # noqa: B027  the host has no streams
        """Wait until what is queued on the current stream of this device now is done.

        Raises
        ------
        DeadlineExceeded
            It is not after `seconds`.
        """

    def memory_info(self) -> tuple[int, int]:
        """Return the bytes of its memory that are free, and of all of it."""
        raise Unsupported("this device does not say how much memory it has", found=self.name)

    def sweep(self, seconds: float = DEFAULT_LIMITS.close_timeout) -> None:  # noqa: B027  most have nothing to sweep
        """Give back what nothing refers to any more, on devices that do not do so at once.

        What cannot be given back in `seconds`, because queued work may still read it, is given back later.
        """

    def later(self, call: Callable[[], object]) -> None:
        """Call a function as soon as all streams that were used have done what is queued: at once on the host."""
        call()

    def __repr__(self) -> str:
        return f"<Device {self.name}>"

    # The order of work, where there are streams

    def current(self) -> NamedStream | None:
        """Return the stream that work of this thread is queued on; ``None`` on the host."""
        return None

    def record(self) -> RecordedEvent | None:
        """Return an event after all that is queued on the current stream; ``None`` on the host."""
        return None

    def wait_event(self, handle: int) -> None:
        """Let the current stream wait for an event, by the driver's handle; the host does not wait.

        Raises
        ------
        NotOnDevice
            The device has no events.
        """
        raise NotOnDevice("the device has no events", found=f"{self.name}, event {handle:#x}")

    def handed_out(self) -> tuple[object, object] | None:
        """Return a name of the current stream, and what keeps it one that may read memory; the host has none."""
        return None

    def order_for(self, stream: int | None) -> object:
        """Let another stream, by its number in DLPack, wait for what is queued on the current one.

        Returns
        -------
        What keeps it one that may read memory.

        Raises
        ------
        NotExportable
            The device has no such stream.
        """
        if stream is not None:
            raise NotExportable("the device has no streams", found=stream, where=self.name)
        return None


class _Writable:
    """Memory as NumPy sees it, keeping its owner alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


class CpuDevice(Device):
    """The host. There is one, :func:`cpu`."""

    name = "cpu"
    uuid = bytes(16)
    arrow_device_type = CPU_DEVICE_TYPE
    arrow_device_id = -1
    xp: Any = np

    @property
    def is_host(self) -> bool:
        """Always true."""
        return True

    def make_slab(self, nbytes: int) -> Slab:
        """Allocate a sealed memfd."""
        return host_slab(self, nbytes)

    def map_slab(self, fd: int, nbytes: int, uuid: bytes) -> Slab:
        """Map a sealed memfd of another process, read-only."""
        return map_host_slab(self, fd, nbytes, uuid)

    def array(
        self, address: int, nbytes: int, owner: object, *, writable: bool = False
    ) -> np.ndarray[Any, Any]:
        """Return a NumPy view, read-only by default."""
        if nbytes == 0:
            return np.empty(0, np.uint8)
        if writable:
            return np.asarray(_Writable(address, nbytes, owner))
        return np.frombuffer(pa.foreign_buffer(address, nbytes, base=owner), np.uint8)

    def from_host(self, source: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the array itself: it is there already."""
        return source

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """Return the array itself: it is there already."""
        return np.asarray(array)

    def synchronize(self) -> None:
        """Do nothing: nothing is queued on the host."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (cpu, ())


@functools.cache
def cpu() -> CpuDevice:
    """Return the host as a device.

    Examples
    --------
    >>> cpu().xp.__name__
    'numpy'
    """
    return CpuDevice()


def settle_devices(devices: Iterable[Device], seconds: float = DEFAULT_LIMITS.device_timeout) -> None:
    """Wait until what is queued on the current streams of some devices is done."""
    for device in {each for each in devices if not each.is_host}:
        device.wait_stream(seconds)


class _Kind(NamedTuple):
    """How devices of one kind are found in this process."""

    by_uuid: Callable[[bytes], Device]
    by_number: Callable[[int], Device]
    in_use: Callable[[], Iterable[Device]]


_KINDS: dict[str, _Kind] = {}
_NAMES: dict[int, str] = {2: "cuda"}
# Modules that are imported on first use.
_MODULES: Final = {"cuda": "bowstring.memory.cuda.device"}


def register_devices(
    arrow_device_type: int,
    kind: str,
    by_uuid: Callable[[bytes], Device],
    by_number: Callable[[int], Device],
    in_use: Callable[[], Iterable[Device]] = tuple,
) -> None:
    """Register how devices of an Arrow device type are found: by UUID, by number (``"cuda:1"``), those in use."""
    _KINDS[kind] = _Kind(by_uuid, by_number, in_use)
    _NAMES[arrow_device_type] = kind


def _kind(name: str | None) -> _Kind | None:
    if name in _MODULES:
        importlib.import_module(_MODULES[name])
    return None if name is None else _KINDS.get(name)


def devices_in_use() -> list[Device]:
    """Return the devices on which this thread may have work, the host aside."""
    if "cupy" in sys.modules:
        _kind("cuda")
    return [device for kind in list(_KINDS.values()) for device in kind.in_use()]


def current_streams() -> dict[Device, NamedStream]:
    """Return the streams on which this thread queues work now, for another thread that works on its behalf."""
    streams: dict[Device, NamedStream] = {}
    for device in devices_in_use():
        with contextlib.suppress(Exception):  # a GPU that failed, which data on the host need not care about
            stream = device.current()
            if stream is not None:
                # The default stream of each thread is another one, and the legacy one waits for all of them.
                legacy = stream.address == _PER_THREAD
                streams[device] = stream._replace(address=_LEGACY) if legacy else stream
    return streams


def with_current_streams(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Return a function for another thread, whose work goes to the streams current in this one now."""
    streams = current_streams()

    def call(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        with contextlib.ExitStack() as blocks:
            for device, stream in streams.items():
                if stream.address:  # the default one is current there, too
                    blocks.enter_context(device.on([stream]))
            return function(*arguments, **options)

    return call


def device_by_id(arrow_device_type: int, device_id: int) -> Device:
    """Return a device of this process by its type and number in the Arrow C Device interface.

    Raises
    ------
    NotOnDevice
        This process knows no such device.

    Examples
    --------
    >>> device_by_id(1, -1)
    <Device cpu>
    """
    if arrow_device_type == CPU_DEVICE_TYPE:
        return cpu()
    kind = _NAMES.get(arrow_device_type)
    if kind is None:
        raise NotOnDevice(
            "the data are on a device of an unknown type",
            expected="the host (1) or CUDA (2)",
            found=arrow_device_type,
            hint="Copy them to the host first.",
        )
    return device_by_name(f"{kind}:{device_id}")


def device_by_name(name: str) -> Device:
    """Return a device of this process.

    Parameters
    ----------
    name
        ``"cpu"``; ``"cuda:1"``, or ``"cuda"`` for the first.

    Raises
    ------
    NotOnDevice
        This process has no such device.

    Examples
    --------
    >>> device_by_name("cpu")
    <Device cpu>
    """
    if name == cpu().name:
        return cpu()
    word, _, number = str(name).partition(":")
    kind = _kind(word)
    if kind is None or not (number.isdecimal() or name == word):
        raise NotOnDevice("this process has no such device", expected="cpu, or cuda:N", found=repr(name))
    return kind.by_number(int(number or 0))


def find_device(arrow_device_type: int, uuid: bytes) -> Device:
    """Return the device of this process with that type and UUID."""
    if arrow_device_type == CPU_DEVICE_TYPE:
        return cpu()
    kind = _kind(_NAMES.get(arrow_device_type))
    if kind is None:
        raise NotOnDevice(
            "the memory is on a device that this process cannot reach",
            found=f"Arrow device type {arrow_device_type}, UUID {uuid.hex()}",
            hint='The producer can publish it from the host: to_device("cpu").',
        )
    return kind.by_uuid(uuid)
