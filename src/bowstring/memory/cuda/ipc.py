"""Lending: memory that others allocated in this process is opened by other processes, where it lies."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from bowstring.memory.cuda.driver_device import DriverDevice
from bowstring.memory.handle import LentHandle
from bowstring.memory.process import this_process
from bowstring.memory.region import Region
from bowstring.memory.slab import Slab

if TYPE_CHECKING:
    from bowstring.memory.device import Device

__all__ = ["lend", "lendable", "lent_here", "used_here"]

_DEVICE_MEMORY = 2  # CU_MEMORYTYPE_DEVICE

# What this process lends now, by the UUIDs of the handles.
_lent: weakref.WeakValueDictionary[bytes, Slab] = weakref.WeakValueDictionary()


def lendable(device: Device, address: int) -> LentHandle | str:
    """Return the handle of the allocation that an address lies in, or why it cannot be lent, in words.

    Raises
    ------
    DeviceError
        The driver refuses to say.
    """
    if not isinstance(device, DriverDevice):
        return "memory of the host"
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
        lent=handle,
    )
    slab = _lent.setdefault(handle.uuid, slab)
    return Region(device, slab.address, slab.nbytes, slab=slab, owner=owner)


def lent_here(handle: LentHandle) -> Slab | None:
    """Return what this process itself lends by a handle."""
    return _lent.get(handle.uuid)


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
        identity=slab.lent,
        writable=False,
    )
