"""Events: marks in the work of a device that others can wait for, handed out by address."""

from __future__ import annotations

import collections
import contextlib
import ctypes
from typing import TYPE_CHECKING

from bowstring.errors import DeviceError
from bowstring.memory.ending import Ending

if TYPE_CHECKING:
    from bowstring.memory.cuda.driver import Driver

__all__ = ["Events", "RecordedEvent"]


class RecordedEvent:
    """An event that was recorded on a stream. When nothing refers to it any more, its handle is noted as idle.

    Parameters
    ----------
    handle
        The driver's handle (``cudaEvent_t``).
    idle
        Where the handle goes then: nobody may call a driver at that moment, which may be any, in any thread.

    Attributes
    ----------
    address : int
        Where the handle is stored, as the C Device interface wants it (``cudaEvent_t*``). True while this lives.
    """

    __slots__ = ("_cell", "_end", "address")

    def __init__(self, handle: int, idle: collections.deque[int]) -> None:
        self._cell = ctypes.c_uint64(handle)
        self.address = ctypes.addressof(self._cell)
        self._end = Ending(idle.append, handle)

    @property
    def handle(self) -> int:
        """The driver's handle."""
        return self._cell.value


class Events:
    """The events of one device. Those that nobody holds any more are used again.

    Parameters
    ----------
    driver
        Makes, records and destroys them.
    ordinal
        The device.
    shared
        Whether other processes can open them. Whoever opened one must have destroyed it before ours is let go.
    """

    def __init__(self, driver: Driver, ordinal: int, *, shared: bool = False) -> None:
        self._driver = driver
        self._ordinal = ordinal
        self._shared = shared
        self._idle: collections.deque[int] = collections.deque()

    def record(self, stream: int) -> RecordedEvent:
        """Return an event after all that is queued on a stream now.

        Raises
        ------
        DeviceError
            The driver refuses.
        """
        try:
            handle = self._idle.popleft()
        except IndexError:
            handle = self._driver.event_create(self._ordinal, shared=self._shared)
        # From here on the handle is idle as soon as nobody has it.
        event = RecordedEvent(handle, self._idle)
        self._driver.event_record(self._ordinal, handle, stream)
        return event

    def drop_idle(self) -> None:
        """Destroy events that nobody holds; a stream that was told to wait for one waits all the same."""
        with contextlib.suppress(IndexError):
            while True:
                handle = self._idle.popleft()
                with contextlib.suppress(DeviceError):
                    self._driver.event_destroy(self._ordinal, handle)
