"""CUDA IPC: other processes open memory that was allocated in this one, by a handle of the driver."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import TYPE_CHECKING, Final, cast

from bowstring.errors import InvalidRegion
from bowstring.memory.handle import LentHandle, this_process
from bowstring.memory.region import Region
from bowstring.memory.slab import Slab

if TYPE_CHECKING:
    from bowstring.memory.cuda.bindings import CudaDriver
    from bowstring.memory.cuda.driver_device import DriverDevice
    from bowstring.memory.device import Device

_DEVICE_MEMORY: Final = 2  # CU_MEMORYTYPE_DEVICE

# Memory that this process exports now, by the UUIDs of the handles.
_exported: weakref.WeakValueDictionary[bytes, Slab] = weakref.WeakValueDictionary()


def lendable(device: Device, address: int) -> LentHandle | str:
    """Return the handle of the allocation that an address lies in, or the reason why it has none."""
    if device.is_host:
        return "memory of the host"
    device = cast("DriverDevice", device)
    if device.is_borrowed(address):
        return "memory of another producer"
    driver = device.driver
    attributes = driver.pointer_attributes(device.ordinal, address)
    if attributes.memory_type != _DEVICE_MEMORY:
        return "memory that is not the device's"
    if attributes.ordinal != device.ordinal:
        return "memory of another device"
    if attributes.is_managed:
        return "managed memory"
    if attributes.is_pooled:
        return "stream-ordered memory (cudaMallocAsync)"
    if not attributes.has_ipc:
        return "memory without a handle (cuMemMap)"
    start, nbytes = driver.address_range(device.ordinal, address)
    return LentHandle(
        driver.get_ipc_handle(device.ordinal, start),
        attributes.buffer_id,
        start,
        this_process(),
        device.uuid,
        nbytes,
        device.arrow_device_type,
    )


def lend(device: Device, handle: LentHandle, owner: object) -> Region:
    """Return an allocation of this process as a region that other processes can open; it keeps `owner` alive."""
    nbytes, uuid = handle.nbytes, handle.uuid
    slab = Slab(
        device, None, address=handle.address, nbytes=nbytes, uuid=uuid, writable=False, ipc_handle=handle
    )
    slab = _exported.setdefault(uuid, slab)
    return Region(device, slab.address, slab.nbytes, slab=slab, owner=owner)


def exported_here(handle: LentHandle) -> Slab | None:
    """Return the memory that this process itself exports by a handle."""
    return _exported.get(handle.uuid)


def used_here(slab: Slab) -> Slab:
    """Return exported memory for a reader in the same process, which cannot export it again.

    The memory is kept alive as for any reader, by the exporter.
    """
    nbytes, uuid, handle = slab.nbytes, slab.uuid, slab.ipc_handle
    return Slab(
        slab.device, slab, address=slab.address, nbytes=nbytes, uuid=uuid, writable=False, identity=handle
    )


class OpenHandles:
    """Allocations of other processes that are open on one device; they are counted, as the driver does."""

    def __init__(self, driver: CudaDriver, ordinal: int) -> None:
        self._driver = driver
        self._ordinal = ordinal
        self._open: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def open(self, handle: LentHandle) -> int:
        """Open all of an allocation; return its address. On an error nothing stays open."""
        driver = self._driver
        with contextlib.ExitStack() as undo:
            address = driver.open_ipc_handle(self._ordinal, handle.token)
            undo.callback(driver.close_ipc_handle, self._ordinal, address)
            start, nbytes = driver.address_range(self._ordinal, address)
            if start > address or address + handle.nbytes > start + nbytes:
                raise InvalidRegion(
                    "lent memory is smaller than announced", expected=handle.nbytes, found=nbytes
                )
            undo.pop_all()
        with self._lock:
            size, count = self._open.get(address, (0, 0))
            self._open[address] = max(size, handle.nbytes), count + 1
        return address

    def size_of(self, token: bytes) -> int:
        """Return how much there is from where a handle opens to its allocation's end, or raise `DeviceError`."""
        address = self._driver.open_ipc_handle(self._ordinal, token)
        try:
            start, nbytes = self._driver.address_range(self._ordinal, address)
            return nbytes - (address - start)
        finally:
            self._driver.close_ipc_handle(self._ordinal, address)

    def close(self, address: int) -> None:
        """Close an allocation, once for each time it was opened, or raise `DeviceError`."""
        with self._lock:
            size, count = self._open.pop(address)
            if count > 1:
                self._open[address] = size, count - 1
        self._driver.close_ipc_handle(self._ordinal, address)

    def holds(self, address: int) -> bool:
        """Whether an address lies in an open allocation."""
        with self._lock:
            return any(start <= address < start + size for start, (size, _) in self._open.items())

    def __len__(self) -> int:
        with self._lock:
            return sum(count for _, count in self._open.values())
