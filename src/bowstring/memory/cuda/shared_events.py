"""Shared events: a process lends memory that its own work still fills, and streams of readers wait for that work.

An event stands for what was queued when it was recorded. It is recorded once for each data set, and not again
before every reader has closed it, so nobody waits for anything that came later.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import TYPE_CHECKING, Final

from bowstring.errors import DeviceError, InvalidRegion, ProtocolError
from bowstring.memory.cuda.driver_device import DriverDevice
from bowstring.memory.device import find_device
from bowstring.memory.handle import check_token
from bowstring.memory.process import PROCESS_BYTES, Process, this_process

if TYPE_CHECKING:
    from bowstring.memory.cuda.deferred import Mapped
    from bowstring.memory.device import Device

__all__ = ["EVENT_BYTES", "EventHandle", "OpenedEvent", "Pending"]

# kind of device, its UUID, the driver's handle
_EVENT: Final = struct.Struct("<I16s64s")
EVENT_BYTES: Final = _EVENT.size + PROCESS_BYTES


@dataclasses.dataclass(frozen=True, slots=True)
class EventHandle:
    """What another process needs to wait for an event of this one.

    Attributes
    ----------
    arrow_device_type, device_uuid
        Whose event it is.
    token
        64 bytes of the driver (``CUipcEventHandle``), any of which may be zero.
    exporter
        Who recorded it, and keeps it.
    """

    arrow_device_type: int
    device_uuid: bytes
    token: bytes
    exporter: Process

    def __post_init__(self) -> None:
        check_token(self.token)

    def pack(self) -> bytes:
        """Return the 124 bytes of the handle."""
        return _EVENT.pack(self.arrow_device_type, self.device_uuid, self.token) + self.exporter.pack()

    @classmethod
    def unpack(cls, data: bytes) -> EventHandle:
        """Read a handle.

        Raises
        ------
        ProtocolError
            The bytes are not one.
        """
        if len(data) != EVENT_BYTES:
            raise ProtocolError(
                "the handle of an event has the wrong length", expected=EVENT_BYTES, found=len(data)
            )
        kind, uuid, token = _EVENT.unpack_from(data)
        return cls(kind, uuid, token, Process.unpack(data[_EVENT.size :]))


class Pending:
    """Work that this process queued on a device, and has not waited for. Keeps its event while it lives.

    Parameters
    ----------
    device
        All that is queued on its current stream now is meant.

    Raises
    ------
    DeviceError
        The driver makes no such event.
    """

    def __init__(self, device: DriverDevice) -> None:
        self._device = device
        self._event = device.record(shared=True)
        token = device.driver.get_ipc_event_handle(device.ordinal, self._event.handle)
        self.handle = EventHandle(device.arrow_device_type, device.uuid, token, this_process())
        self._done = False

    @property
    def done(self) -> bool:
        """Whether the work is done; asks the driver until it is.

        Raises
        ------
        DeviceError
            The work failed.
        """
        if not self._done:
            self._done = self._device.driver.event_done(self._device.ordinal, self._event.handle)
        return self._done


class OpenedEvent:
    """An event of another process, opened here. It is destroyed when nobody has it and its device came to rest.

    Parameters
    ----------
    handle
        What that process says of it.

    Raises
    ------
    InvalidRegion
        Its process is this one, has ended, or is of a place that this one cannot see; or the driver refuses.
    NotOnDevice
        It is of a device that this process does not have.
    """

    def __init__(self, handle: EventHandle) -> None:
        here = this_process()
        if handle.exporter == here:
            # A driver opens no event in the process that made it.
            raise InvalidRegion("the event is of this process itself")
        if handle.exporter.place != here.place or not handle.exporter.alive:
            raise InvalidRegion("the event is of a process that is not here", found=handle.exporter.place)
        device = find_device(handle.arrow_device_type, handle.device_uuid)
        if not isinstance(device, DriverDevice):
            raise InvalidRegion("the device has no events", found=device.name)
        self._device = device
        try:
            self._opened: Mapped = device.open_event(handle.token)
        except DeviceError as error:
            raise InvalidRegion("an event cannot be opened", found=str(error), where=device.name) from error

    @property
    def device(self) -> Device:
        """Whose event it is."""
        return self._device

    def hold_back(self, stream: int) -> None:
        """Let a stream wait for it, by its address; the host does not wait.

        Raises
        ------
        DeviceError
            The driver refuses.
        """
        self._device.wait_event(self._opened.address, stream)

    def wait(self, seconds: float) -> None:
        """Wait for it, and let the current stream do so.

        Raises
        ------
        DeadlineExceeded
            It did not come in time.
        DeviceError
            The device failed.
        """
        self._device.wait_event(self._opened.address)
        self._device.wait_stream(seconds)
