"""Events: marks in the work of a device that others can wait for, in this process and in others.

An event stands for what was queued when it was recorded. One that is shared with other processes is recorded once
for each data set, and not again before every reader has closed it, so no reader waits for anything that came later.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
from typing import TYPE_CHECKING

from bowstring.errors import DeviceError
from bowstring.memory.lease import Finalizer

if TYPE_CHECKING:
    from bowstring.memory.cuda.bindings import CudaDriver


class RecordedEvent:
    """An event that was recorded on a stream. When nothing refers to it any more, its handle is noted as idle.

    That may be at any moment, in any thread, so no driver is called then.
    """

    __slots__ = ("_cell", "_end", "address", "handle", "reader")

    def __init__(self, handle: int, idle: collections.deque[int]) -> None:
        self.handle = handle  # of the driver
        self._cell = ctypes.c_uint64(handle)
        self.reader: object = None  # keeps its stream in `SeenStreams` while memory is handed out on it
        self.address = ctypes.addressof(self._cell)  # ``cudaEvent_t*``, as the C Device interface wants it
        self._end = Finalizer(idle.append, handle)


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
