"""The fake device: host memory behind the manners of a GPU."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.errors import BowstringError, InvalidRegion, NotOnDevice, OutOfBudget
from bowstring.memory.cuda.driver_device import DriverDevice
from bowstring.memory.device import Device, cpu
from bowstring.memory.devices import register_devices
from bowstring.testing.fake_array import ADDRESS_SHIFT, FakeArray, FakeNamespace, made, using, using_allocator
from bowstring.testing.fake_driver import FakeDriver
from bowstring.testing.fake_objects import Kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from bowstring.memory.device import Slab

EXT_DEV: Final = 12  # ARROW_DEVICE_EXT_DEV of the C Device interface


class FakeDriverError(BowstringError):
    """A call of the fake device failed because the test asked for it."""


@dataclasses.dataclass(slots=True)
class FakeStatistics:
    """What has been done on a fake device since `reset`.

    Attributes
    ----------
    host_reads, host_read_bytes
        Copies from the device to the host; each makes the host wait.
    host_writes, host_written_bytes
        Copies from the host to the device.
    peer_copies, peer_copied_bytes
        Copies from this device to another one.
    launches
        Kernels launched.
    synchronizations
        Times the host waited for the device.
    allocations, mappings
        Slabs made, and slabs of peers mapped.
    """

    host_reads: int = 0
    host_read_bytes: int = 0
    host_writes: int = 0
    host_written_bytes: int = 0
    peer_copies: int = 0
    peer_copied_bytes: int = 0
    launches: int = 0
    synchronizations: int = 0
    allocations: int = 0
    mappings: int = 0

    def reset(self) -> None:
        """Count from zero again."""
        for field in dataclasses.fields(self):
            setattr(self, field.name, 0)


class _Allocated:
    """Memory of another library, which frees it in a finalizer, as they do."""

    address = 0  # also where an interrupt comes first

    def __init__(self, driver: FakeDriver, ordinal: int, nbytes: int, kind: Kind) -> None:
        self._driver = driver
        self.address = driver.allocate(ordinal, nbytes, kind)

    def __del__(self) -> None:
        if self.address and not sys.is_finalizing():
            self._driver.free(self.address)


class _CallbackMemoryResource:
    """RMM's of that name: both functions get a stream, and errors of the first are a ``MemoryError``."""

    def __init__(
        self, allocate: Callable[[int, Any], int], deallocate: Callable[[int, int, Any], None]
    ) -> None:
        self._allocate, self._deallocate = allocate, deallocate

    def allocate(self, nbytes: int, stream: Any = 0) -> int:
        """Return the address of fresh memory."""
        try:
            return self._allocate(nbytes, stream)
        except Exception as error:  # noqa: BLE001  as RMM's
            raise MemoryError(f"std::bad_alloc: out_of_memory: {error}") from None

    def deallocate(self, address: int, nbytes: int, stream: Any = 0) -> None:
        """Give it back."""
        self._deallocate(address, nbytes, stream)


class FakeDevice(DriverDevice):
    """A device whose memory is on the host, and which behaves as if it were not. See :func:`fake_device`."""

    arrow_device_type = EXT_DEV
    driver: FakeDriver

    def __init__(self, number: int, driver: FakeDriver) -> None:
        super().__init__(driver, number)
        self.name = f"fake:{number}"
        self.xp: Any = FakeNamespace(self)
        self.stats = FakeStatistics()
        self._failures: dict[str, BowstringError] = {}

    def fail_next(
        self, call: Literal["allocate", "map", "copy"], error: BowstringError | None = None
    ) -> None:
        """Make the next allocation, mapping or copy fail, as a driver's might.

        Without `error`, an allocation raises :class:`~bowstring.errors.OutOfBudget`, a mapping
        :class:`~bowstring.errors.InvalidRegion` and a copy :class:`FakeDriverError`.
        """
        errors: dict[str, BowstringError] = {
            "allocate": OutOfBudget("the fake device has no room"),
            "map": InvalidRegion("the fake device cannot map a region"),
            "copy": FakeDriverError("the fake device cannot copy"),
        }
        self._failures[call] = error or errors[call]

    def _fail(self, call: str) -> None:
        error = self._failures.pop(call, None)
        if error is not None:
            raise error

    def _count_copy(self, copies: str, copied: str, nbytes: int) -> None:
        self._fail("copy")
        setattr(self.stats, copies, getattr(self.stats, copies) + 1)
        setattr(self.stats, copied, getattr(self.stats, copied) + nbytes)

    def make_slab(self, nbytes: int) -> Slab:
        """Allocate memory under an address that the host cannot read."""
        self._fail("allocate")
        self.stats.allocations += 1
        return super().make_slab(nbytes)

    def map_slab(self, fd: int, nbytes: int, uuid: bytes) -> Slab:
        """Map memory of another process, read-only, under an address that the host cannot read."""
        slab = super().map_slab(fd, nbytes, uuid)
        self._fail("map")
        self.stats.mappings += 1
        return slab

    def array(self, address: int, nbytes: int, owner: object, *, writable: bool = False) -> FakeArray:
        """Return a fake array over device memory."""
        if address < ADDRESS_SHIFT:
            raise NotOnDevice("host memory was used as device memory", expected=self.name)
        return FakeArray(
            self, cpu().array(address - ADDRESS_SHIFT, nbytes, self.lend(owner), writable=writable)
        )

    def using_allocator(
        self, malloc: Callable[[int, int], int], free: Callable[[int, int], None]
    ) -> contextlib.AbstractContextManager[None]:
        """Return a block in which arrays of this thread are allocated and freed by two functions, as CuPy's are."""
        return using_allocator(malloc, free)

    def memory_resource(
        self, allocate: Callable[[int, Any], int], deallocate: Callable[[int, int, Any], None]
    ) -> Any:
        """Return RMM's resource where that is installed, since this one needs no driver; else a stand-in."""
        try:
            import rmm.mr
        except ImportError:
            return _CallbackMemoryResource(allocate, deallocate)
        return rmm.mr.CallbackMemoryResource(allocate, deallocate)

    def allocate(self, nbytes: int, kind: Kind = "malloc") -> FakeArray:
        """Return bytes that another library allocated, as CuPy does: freed with the last array over them.

        Parameters
        ----------
        nbytes
            How many.
        kind
            As :meth:`FakeDriver.allocate`.

        Examples
        --------
        >>> fake_device().allocate(100).shape
        (100,)
        """
        memory = _Allocated(self.driver, self.ordinal, nbytes, kind)
        return self.array(memory.address, nbytes, memory, writable=True)

    def from_host(self, source: np.ndarray[Any, Any]) -> FakeArray:
        """Copy a host array to the device. Counted."""
        self._count_copy("host_writes", "host_written_bytes", source.nbytes)
        return made(self, np.array(source))

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """Copy a fake array to the host. Counted."""
        if type(array) is not FakeArray or array.device is not self:
            raise NotOnDevice("not an array of this device", expected=self.name, found=repr(array))
        self._count_copy("host_reads", "host_read_bytes", array.nbytes)
        return array._array.copy()

    def use(self) -> contextlib.AbstractContextManager[None]:
        """Make this the current device: :class:`~bowstring.testing.fake_array.OnlyCurrent` holds code to it."""
        return using(self)

    def copy_in(self, address: int, host: int, nbytes: int) -> None:
        """Copy host memory to the device. Counted."""
        self._count_copy("host_writes", "host_written_bytes", nbytes)
        super().copy_in(address, host, nbytes)

    def copy_out(self, host: int, address: int, nbytes: int) -> None:
        """Copy memory of the device to the host. Counted."""
        self._count_copy("host_reads", "host_read_bytes", nbytes)
        super().copy_out(host, address, nbytes)

    def copy_to_peer(self, peer: DriverDevice, target: int, address: int, nbytes: int) -> None:
        """Copy memory to another fake device. Counted."""
        self._count_copy("peer_copies", "peer_copied_bytes", nbytes)
        super().copy_to_peer(peer, target, address, nbytes)

    def synchronize(self) -> None:
        """Count that the host waited."""
        self.stats.synchronizations += 1
        super().synchronize()

    def __reduce__(self) -> tuple[Any, ...]:
        return (fake_device, (self.arrow_device_id,))


_DRIVER: Final = FakeDriver()
_DEVICES: Final = (FakeDevice(0, _DRIVER), FakeDevice(1, _DRIVER))


def fake_device(number: int = 0) -> FakeDevice:
    """Return the fake device of that number; it is the same device, by its UUID, in every process.

    Examples
    --------
    >>> fake_device().name, fake_device(1).arrow_device_type
    ('fake:0', 12)
    """
    if not 0 <= number < len(_DEVICES):
        raise NotOnDevice("no such fake device", expected=f"0 to {len(_DEVICES) - 1}", found=number)
    return _DEVICES[number]


def _find(uuid: bytes) -> Device:
    for device in _DEVICES:
        if device.uuid == uuid:
            return device
    raise NotOnDevice("no fake device has this UUID", found=uuid.hex())


register_devices(EXT_DEV, "fake", _find, fake_device, lambda: _DEVICES)
