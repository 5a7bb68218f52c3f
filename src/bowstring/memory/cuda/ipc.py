"""CUDA IPC: other processes open memory that was allocated in this one, by a handle of the driver."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import TYPE_CHECKING, Final, cast

from bowstring.errors import InvalidRegion
from bowstring.memory.handle import LentHandle
from bowstring.memory.process import this_process
from bowstring.memory.region import Region
from bowstring.memory.slab import Slab

if TYPE_CHECKING:
    from bowstring.memory.cuda.driver import Driver
    from bowstring.memory.cuda.driver_device import DriverDevice
    from bowstring.memory.device import Device

__all__ = ["OpenHandles", "exported_here", "lend", "lendable", "used_here"]

_DEVICE_MEMORY: Final = 2  # CU_MEMORYTYPE_DEVICE

# What this process lends now, by the UUIDs of the handles.
_exported: weakref.WeakValueDictionary[bytes, Slab] = weakref.WeakValueDictionary()


def lendable(device: Device, address: int) -> LentHandle | str:
    """Return the handle of the allocation that an address lies in, or why it cannot be lent, in words.

    Raises
    ------
    DeviceError
        The driver refuses to say.
    """
    if device.is_host:
        return "memory of the host"
    device = cast("DriverDevice", device)
    if device.is_borrowed(address):
        return "memory of another producer"
    driver = device.driver
    found = driver.pointer_attributes(device.ordinal, address)
    if found.memory_type != _DEVICE_MEMORY:
        return "memory that is not the device's"
    if found.ordinal != device.ordinal:
        return "memory of another device"
    if found.is_managed:
        return "managed memory"
    if found.is_pooled:
        return "stream-ordered memory (cudaMallocAsync)"
    if not found.has_ipc:
        return "memory without a handle (cuMemMap)"
    start, nbytes = driver.address_range(device.ordinal, address)
    return LentHandle(
        driver.get_ipc_handle(device.ordinal, start),
        found.buffer_id,
        start,
        this_process(),
        device.uuid,
        nbytes,
        device.arrow_device_type,
    )


def lend(device: Device, handle: LentHandle, owner: object) -> Region:
    """Return an allocation of this process as a region that others can open, which keeps `owner` alive."""
    slab = Slab(
        device,
        None,
        address=handle.address,
        nbytes=handle.nbytes,
        uuid=handle.uuid,
        writable=False,
        ipc_handle=handle,
    )
    slab = _exported.setdefault(handle.uuid, slab)
    return Region(device, slab.address, slab.nbytes, slab=slab, owner=owner)


def exported_here(handle: LentHandle) -> Slab | None:
    """Return what this process itself lends by a handle."""
    return _exported.get(handle.uuid)


def used_here(slab: Slab) -> Slab:
    """Return lent memory as a reader in the lending process uses it: it lends nothing on.

    The memory is kept alive as for any reader, by the lender.
    """
    return Slab(
        slab.device,
        slab,
        address=slab.address,
        nbytes=slab.nbytes,
        uuid=slab.uuid,
        identity=slab.ipc_handle,
        writable=False,
    )


class OpenHandles:
    """Allocations of other processes that are open on one device; they are counted, as the driver does.

    Parameters
    ----------
    driver
        Opens and closes.
    ordinal
        The device.
    """

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self._driver = driver
        self._ordinal = ordinal
        self._open: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def open(self, handle: LentHandle) -> int:
        """Open all of an allocation; return its address.

        Raises
        ------
        InvalidRegion
            It is smaller than announced; nothing stays open.
        DeviceError
            The driver refuses; nothing stays open.
        """
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

    def close(self, address: int) -> None:
        """Close what was opened, once for each time.

        Raises
        ------
        DeviceError
            The driver refuses.
        """
        with self._lock:
            size, count = self._open.pop(address)
            if count > 1:
                self._open[address] = size, count - 1
        self._driver.close_ipc_handle(self._ordinal, address)

    def holds(self, address: int) -> bool:
        """Return whether an address lies in what is open."""
        with self._lock:
            return any(start <= address < start + size for start, (size, _) in self._open.items())

    def __len__(self) -> int:
        with self._lock:
            return sum(count for _, count in self._open.values())
