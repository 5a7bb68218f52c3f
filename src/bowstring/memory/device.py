"""Devices: where memory lives. Code above this layer asks a device for arrays and never what it is."""

from __future__ import annotations

import abc
import contextlib
import fcntl
import functools
import mmap
import os
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from bowstring.errors import InvalidRegion, NotExportable, NotOnDevice, OutOfBudget, Unsupported
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory.slab import (
    LARGE_PAGE,
    SEAL_ALL,
    ask_for_large_pages,
    check_sealed,
    close_descriptor,
    fresh_memfd,
    mapped,
    reopen,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bowstring.memory.cuda.events import RecordedEvent
    from bowstring.memory.cuda.streams import NamedStream

CPU_DEVICE_TYPE: Final = 1  # ARROW_DEVICE_CPU of the C Device interface


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


class Slab:
    """Memory that can be handed to another process."""

    __slots__ = (
        "__weakref__",
        "address",
        "asked",
        "device",
        "events",
        "fd",
        "identity",
        "ipc_handle",
        "memory",
        "nbytes",
        "private",
        "retired",
        "uuid",
        "writable",
    )

    def __init__(
        self,
        device: Device,
        memory: Any,
        address: int,
        nbytes: int,
        uuid: bytes | None = None,
        *,
        writable: bool = False,
        private: bool = False,
        fd: int = -1,
        identity: object = None,
        ipc_handle: object = None,
    ) -> None:
        self.device = device
        self.memory = memory  # keeps it mapped
        self.address = address
        self.nbytes = nbytes
        self.uuid = os.urandom(16) if uuid is None else uuid  # never used again
        self.fd = fd  # read-only, for other processes, and owned; -1 for memory of another process
        # What memory of another process is known by: `identity_of` it, or the driver's handle that opened it.
        self.identity = identity
        self.ipc_handle = ipc_handle  # opens memory that another library allocated in this process
        self.writable = writable  # this process made the memory
        # Behind what another library queued on it before it freed it; memory is unmapped when they are done, too.
        self.events: tuple[RecordedEvent, ...] = ()
        self.private = private  # copy-on-write: nobody else sees what this process writes
        # Bytes, from its beginning, for which the kernel was asked for large pages.
        self.asked = 0
        # A retired slab is never written again: a reader that was lost may still read it.
        self.retired = False

    def prepare(self, nbytes: int) -> int:
        """Get large pages for the first `nbytes` of fresh memory; return for how many bytes that is done.

        Contents stay. It takes memory for all of the bytes, and as long as writing them once.
        """
        most = self.nbytes & -LARGE_PAGE if self.device.is_host else 0
        wanted = min(-(-nbytes // LARGE_PAGE) * LARGE_PAGE, most)
        if self.asked < wanted:
            begin, self.asked = self.asked, wanted
            ask_for_large_pages(self.address + begin, wanted - begin)
        return self.asked if self.asked < most else self.nbytes

    def __del__(self) -> None:
        fd, self.fd = getattr(self, "fd", -1), -1
        if fd >= 0:
            close_descriptor(fd)
        if getattr(self, "events", ()):
            self.device.freed_behind.extend(self.events)

    def __repr__(self) -> str:
        state = " retired" if self.retired else ""
        return f"<Slab {self.uuid.hex()[:8]} {self.device.name} {self.nbytes} bytes{state}>"


def let_go(slabs: list[Slab], seconds: float = DEFAULT_LIMITS.close_timeout) -> None:
    """Empty a list of slabs, and let their devices unmap what nothing uses; never under a lock."""
    devices = {slab.device for slab in slabs}
    slabs.clear()
    for device in devices:
        device.sweep(seconds)


class Interface:
    """Memory as NumPy names it; it keeps alive what it is given."""

    __slots__ = ("__array_interface__", "kept")

    def __init__(
        self,
        kept: object,
        address: int,
        shape: tuple[int, ...],
        typestr: str = "|u1",
        *,
        read_only: bool = False,
    ) -> None:
        self.kept = kept
        self.__array_interface__ = {
            "shape": shape,
            "typestr": typestr,
            "data": (address, read_only),
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
        return True

    def make_slab(self, nbytes: int) -> Slab:
        """Make memory that only this mapping can ever write.

        It is sealed against all changes of size, and no process can map it for writing, not even by reopening it.
        """
        with contextlib.closing(fresh_memfd(nbytes)) as fd:
            try:
                memory, address = mapped(fd, nbytes, mmap.PROT_READ | mmap.PROT_WRITE)
            except OSError as error:
                raise OutOfBudget(
                    "the system has no room to map a region", found=f"{nbytes} bytes"
                ) from error
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEAL_ALL)
            shared = reopen(fd, os.O_RDONLY)
        return Slab(self, memory, address, nbytes, writable=True, fd=shared)

    def map_slab(self, fd: int, nbytes: int, uuid: bytes, *, private: bool = False) -> Slab:
        """Map a sealed memfd of another process: read-only, or `private`.

        Then it is copy-on-write, so that a page that this process writes becomes its own.
        """
        try:
            identity = check_sealed(fd, nbytes)
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if private else 0)
            try:
                memory, address = mapped(fd, nbytes, protection, private=private)
            except (OSError, ValueError) as error:
                raise InvalidRegion("a region cannot be mapped", found=str(error)) from error
        finally:
            close_descriptor(fd)
        return Slab(self, memory, address, nbytes, uuid, private=private, identity=identity)

    def array(
        self, address: int, nbytes: int, owner: object, *, writable: bool = False
    ) -> np.ndarray[Any, Any]:
        """Return a NumPy view, read-only by default."""
        if nbytes == 0:
            return np.empty(0, np.uint8)
        if writable:
            return np.asarray(Interface(owner, address, (nbytes,)))
        return np.frombuffer(pa.foreign_buffer(address, nbytes, base=owner), np.uint8)

    def from_host(self, source: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return source

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
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
