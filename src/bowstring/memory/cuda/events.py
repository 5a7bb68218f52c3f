"""Events: marks in the work of a device that others can wait for, in this process and in others.

An event stands for what was queued when it was recorded. One that is shared with other processes is recorded once
for each data set, and not again before every reader has closed it, so no reader waits for anything that came later.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import struct
from typing import TYPE_CHECKING, Final, cast

from bowstring.errors import DeviceError, InvalidRegion, ProtocolError
from bowstring.memory.device import find_device
from bowstring.memory.handle import PROCESS_BYTES, Process, check_token, this_process
from bowstring.memory.lease import Finalizer

if TYPE_CHECKING:
    from bowstring.memory.cuda.bindings import CudaDriver
    from bowstring.memory.cuda.deferred import Mapped
    from bowstring.memory.cuda.driver_device import DriverDevice
    from bowstring.memory.device import Device

# kind of device, its UUID, the driver's handle
_EVENT: Final = struct.Struct("<I16s64s")
EVENT_BYTES: Final = _EVENT.size + PROCESS_BYTES


class RecordedEvent:
    """An event that was recorded on a stream. When nothing refers to it any more, its handle is noted as idle.

    That may be at any moment, in any thread, so no driver is called then.
    """

    __slots__ = ("_cell", "_end", "address", "reader")

    def __init__(self, handle: int, idle: collections.deque[int]) -> None:
        self._cell = ctypes.c_uint64(handle)
        self.reader: object = None  # keeps its stream in `SeenStreams` while memory is handed out on it
        self.address = ctypes.addressof(self._cell)  # ``cudaEvent_t*``, as the C Device interface wants it
        self._end = Finalizer(idle.append, handle)

    @property
    def handle(self) -> int:
        """The driver's handle."""
        return self._cell.value


class Events:
    """The events of one device; unreferenced ones are used again.

    A `shared` event may be opened by other processes, which must have destroyed theirs before ours is let go.
    """

    def __init__(self, driver: CudaDriver, ordinal: int, *, shared: bool = False) -> None:
        self._driver = driver
        self._ordinal = ordinal
        self._shared = shared
        self._idle: collections.deque[int] = collections.deque()

    def record(self, stream: int) -> RecordedEvent:
        """Return an event after all that is queued on a stream now."""
        try:
            handle = self._idle.popleft()
        except IndexError:
            handle = self._driver.event_create(self._ordinal, shared=self._shared)
        # From here on the handle is idle as soon as nothing refers to it.
        event = RecordedEvent(handle, self._idle)
        self._driver.event_record(self._ordinal, handle, stream)
        return event

    def drop_idle(self) -> None:
        """Destroy events that nothing refers to; streams that wait for one go on waiting."""
        with contextlib.suppress(IndexError):
            while True:
                handle = self._idle.popleft()
                with contextlib.suppress(DeviceError):
                    self._driver.event_destroy(self._ordinal, handle)


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
        self._device = cast("DriverDevice", device)
        try:
            self._opened: Mapped = self._device.open_event(handle.token)
        except DeviceError as error:
            raise InvalidRegion("an event cannot be opened", found=str(error), where=device.name) from error

    @property
    def device(self) -> Device:
        """The device of the event."""
        return self._device

    def current_stream(self) -> int:
        """Return the address of its device's current stream."""
        return self._device.current_stream()

    def hold_back(self, stream: int) -> None:
        """Let a stream wait for it, by its address; the host does not wait."""
        self._device.wait_event(self._opened.address, stream)

    def wait(self, seconds: float) -> None:
        """Wait for it, on the current stream and on the host."""
        self._device.wait_event(self._opened.address)
        self._device.wait_stream(seconds)
