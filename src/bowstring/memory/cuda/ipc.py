"""CUDA IPC: other processes open memory of this one, and wait for its events, by handles of the driver."""

from __future__ import annotations

import dataclasses
import struct
import weakref
from typing import TYPE_CHECKING, Final, cast

from bowstring.errors import DeviceError, InvalidRegion, ProtocolError
from bowstring.memory.device import Slab
from bowstring.memory.devices import find_device
from bowstring.memory.handle import PROCESS_BYTES, LentHandle, Process, check_token, this_process
from bowstring.memory.region import Region

if TYPE_CHECKING:
    from bowstring.memory.cuda.deferred import Mapped
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
    slab = Slab(device, None, handle.address, handle.nbytes, handle.uuid, ipc_handle=handle)
    slab = _exported.setdefault(slab.uuid, slab)
    return Region(device, slab.address, slab.nbytes, slab=slab, owner=owner)


def opened_here(handle: LentHandle) -> Slab:
    """Return memory that this process exports by a handle, for a reader of its own."""
    slab = _exported.get(handle.uuid)
    if slab is None:
        raise InvalidRegion("this process lends no such memory", found=handle.uuid.hex())
    return used_here(slab)


def used_here(slab: Slab) -> Slab:
    """Return exported memory for a reader in the same process, which cannot export it again.

    The memory is kept alive as for any reader, by the exporter.
    """
    return Slab(slab.device, slab, slab.address, slab.nbytes, slab.uuid, identity=slab.ipc_handle)


# kind of device, its UUID, the driver's handle
_EVENT: Final = struct.Struct("<I16s64s")
EVENT_BYTES: Final = _EVENT.size + PROCESS_BYTES


@dataclasses.dataclass(frozen=True, slots=True)
class EventHandle:
    """What another process needs to wait for an event of this one."""

    arrow_device_type: int
    device_uuid: bytes
    token: bytes  # 64 bytes of the driver (``CUipcEventHandle``), any of which may be zero
    exporter: Process  # the process that recorded it, and keeps it

    def __post_init__(self) -> None:
        check_token(self.token)

    def pack(self) -> bytes:
        """Return the 124 bytes of the handle."""
        return _EVENT.pack(self.arrow_device_type, self.device_uuid, self.token) + self.exporter.pack()

    @classmethod
    def unpack(cls, data: bytes) -> EventHandle:
        """Read a handle."""
        if len(data) != EVENT_BYTES:
            raise ProtocolError(
                "the handle of an event has the wrong length", expected=EVENT_BYTES, found=len(data)
            )
        kind, uuid, token = _EVENT.unpack_from(data)
        return cls(kind, uuid, token, Process.unpack(data[_EVENT.size :]))


class Pending:
    """Work that this process queued on a device, and has not waited for. Keeps its event while it lives."""

    def __init__(self, device: DriverDevice) -> None:
        self._device = device
        self._event = device.record(shared=True)
        token = device.driver.get_ipc_event_handle(device.ordinal, self._event.handle)
        self.handle = EventHandle(device.arrow_device_type, device.uuid, token, this_process())
        self._done = False

    @property
    def done(self) -> bool:
        """Whether the work is done."""
        if not self._done:
            self._done = self._device.driver.event_done(self._device.ordinal, self._event.handle)
        return self._done

    def wait(self, seconds: float) -> None:
        """Wait for it on the host."""
        if not self._done:
            self._device.wait_marks([self._event], seconds)
            self._done = True


class OpenedEvent:
    """An event of another process, opened here; destroyed when unreferenced and its device is done."""

    def __init__(self, handle: EventHandle) -> None:
        here = this_process()
        if handle.exporter == here:
            # A driver opens no event in the process that made it.
            raise InvalidRegion("the event is of this process itself")
        if handle.exporter.place != here.place or not handle.exporter.alive:
            raise InvalidRegion("the event is of a process that is not here", found=handle.exporter.place)
        device = find_device(handle.arrow_device_type, handle.device_uuid)
        if device.is_host:
            raise InvalidRegion("the device has no events", found=device.name)
        self.device = cast("DriverDevice", device)
        try:
            self.opened: Mapped = self.device.open_event(handle.token)
        except DeviceError as error:
            raise InvalidRegion("an event cannot be opened", found=str(error), where=device.name) from error
        self._done = False

    def wait(self, seconds: float) -> None:
        """Wait for it, on the current stream and on the host: once, since what the host has seen is over."""
        if not self._done:
            self.device.wait_event(self.opened.address)
            self.device.wait_stream(seconds)
            self._done = True
