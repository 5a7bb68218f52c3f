"""Allocations: what CuPy and RMM take from a pool, so that their results are lent without a copy.

An allocation of more than half a granule is a region of its own; smaller ones share regions by size class. A free
is noted, in whatever thread or finalizer it comes, and settled later: an event behind the streams of the allocation
says from when on another stream may use the memory. A region that readers have comes back when the last has let go.
"""

from __future__ import annotations

import collections
import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from bowstring.errors import BowstringError, DeviceError, NotExportable, NotOnDevice, UsageError
from bowstring.memory.cuda.streams import NamedStream, named_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from bowstring.memory.cuda.driver_device import DriverDevice
    from bowstring.memory.cuda.events import RecordedEvent
    from bowstring.memory.device import Device
    from bowstring.memory.region import Region

_SMALLEST: Final = 512  # bytes, and the alignment of small allocations
_LEGACY: Final = 1
_PER_THREAD: Final = 2


class _Shared:
    """A region of allocations of one size."""

    __slots__ = ("free", "next", "region", "size", "used")

    def __init__(self, region: Region, size: int) -> None:
        self.region = region
        self.size = size
        self.next = 0  # offset of what was never allocated
        self.used = 0
        self.free: collections.deque[tuple[int, tuple[RecordedEvent, ...]]] = collections.deque()

    @property
    def fresh(self) -> bool:
        return self.next + self.size <= self.region.nbytes

    @property
    def behind(self) -> tuple[RecordedEvent, ...]:
        """What the next allocation comes behind."""
        if self.fresh:
            return self.region.slab.events if self.region.slab is not None else ()
        return self.free[0][1]


class _Allocation(NamedTuple):
    region: Region
    stream: NamedStream  # on which it was allocated
    shared: _Shared | None


class Allocations:
    """What other libraries have allocated from one pool. Frees are noted at any moment, and settled later."""

    def __init__(self, device: Device, region: Callable[..., Region], check: Callable[[], None]) -> None:
        self._region = region
        self._device = cast("DriverDevice", device)  # else `device` refuses it
        self._check = check
        self._pid = os.getpid()
        self.closed = False
        self._lock = threading.RLock()  # the collector may run anything inside it
        self._known: dict[int, _Allocation] = {}
        self._open: dict[int, list[_Shared]] = collections.defaultdict(list)
        self.freed: collections.deque[tuple[int, NamedStream | None]] = collections.deque()

    def device(self) -> Any:
        """Return the pool's device, if libraries can allocate there what readers can map."""
        device = self._device
        if device.is_host:
            raise UsageError(
                "a pool of the host has no memory for CuPy and RMM",
                hint="Make a pool of a GPU: bow.Pool(device), with the device of a batch.",
            )
        if not device.exports:
            raise NotExportable("the driver exports no memory of this GPU", found=device.name)
        return device

    @property
    def nbytes(self) -> int:
        """Bytes of the regions that allocations lie in."""
        with self._lock:
            return sum({id(each.region): each.region.nbytes for each in list(self._known.values())}.values())

    # As CuPy calls them

    def malloc(self, nbytes: int, ordinal: int) -> int:
        """Allocate on CuPy's current stream, which is CuPy's when the memory is freed, too."""
        device = self._device
        if ordinal != device.arrow_device_id:
            raise NotOnDevice(
                "the pool is on another GPU than CuPy's current one", expected=device.name, found=ordinal
            )
        stream = device.current()
        return self._allocate(nbytes, stream or NamedStream(0, None))

    def free(self, address: int, ordinal: int) -> None:  # noqa: ARG002  of the pool's device
        """Note that memory is free behind CuPy's current stream."""
        if sys.is_finalizing() or self._pid != os.getpid():
            return
        stream = None
        with contextlib.suppress(Exception):  # a GPU that failed; where it is raised nobody could catch it
            stream = self._device.current()
        self._note(address, stream)

    # As RMM calls them

    def allocate(self, nbytes: int, stream: Any) -> int:
        """Allocate on a stream."""
        return self._allocate(nbytes, named_streams(stream)[0])

    def deallocate(self, address: int, nbytes: int, stream: Any) -> None:  # noqa: ARG002  it is known
        """Note that memory is free behind a stream."""
        named = None
        with contextlib.suppress(Exception):  # an error would end the process
            named = named_streams(stream)[0]
        self._note(address, named)

    def _note(self, address: int, stream: NamedStream | None) -> None:
        self.freed.append((address, stream))
        if self.closed:  # nobody allocates any more
            self._device.later(self.settle)

    def _allocate(self, nbytes: int, stream: NamedStream) -> int:
        if 2 * nbytes > self._device.smallest_region:
            region = self._region(nbytes, stream=stream.address)
            self._known[region.address] = _Allocation(region, stream, None)
            return region.address
        self._check()
        size = max(_SMALLEST, 1 << (max(1, nbytes) - 1).bit_length())
        with self._lock:
            self.settle()
            shared = self._with_room(size, stream.address)
            if shared.fresh:
                offset = shared.next
                shared.next += size
            else:
                offset, _ = shared.free.popleft()
            shared.used += 1
            address = shared.region.address + offset
            self._known[address] = _Allocation(shared.region, stream, shared)
        return address

    def _with_room(self, size: int, stream: int) -> _Shared:
        """Return a region with room for an allocation, which a stream may use behind its events."""
        rooms = self._open[size]
        while rooms and not (rooms[-1].fresh or rooms[-1].free):
            rooms.pop()
        if rooms and self.in_order(rooms[-1].behind, stream):
            return rooms[-1]
        region = self._region(self._device.smallest_region, stream=stream)
        region.allocation = "shared"
        rooms.append(_Shared(region, size))
        return rooms[-1]

    def in_order(self, events: Iterable[RecordedEvent], stream: int) -> bool:
        """Let a stream wait for what freed memory; whether the driver took that, as it does not in a capture."""
        try:
            for event in events:
                self._device.wait_event(event.handle, stream)
        except DeviceError:
            return False
        return True

    def settle(self) -> None:
        """Let memory that was freed be used again, behind the streams on which it was allocated and freed."""
        if not self.freed or self._pid != os.getpid():
            return
        recorded: dict[int, RecordedEvent | None] = {}  # one event for all that was freed on a stream by now
        with self._lock, contextlib.suppress(IndexError):
            while True:
                address, stream = self.freed.popleft()
                known = self._known.pop(address, None)
                if known is None:
                    continue
                streams = [known.stream] if stream is None else [known.stream, stream]
                behind = {self._event(each, recorded) for each in streams}
                events = {each for each in behind if each is not None}
                self._end(known, address, None if stream is None or None in behind else events)

    def _event(self, stream: NamedStream, recorded: dict[int, RecordedEvent | None]) -> RecordedEvent | None:
        """Return an event behind a stream; without one, what is unmapped waits for the stream by its name."""
        # The default stream of each thread is another one, and the legacy one waits for all of them.
        address = _LEGACY if stream.address == _PER_THREAD else stream.address
        if address not in recorded:
            recorded[address] = None
            with contextlib.suppress(BowstringError):  # a capture, or a device or stream that ended
                [recorded[address]] = self._device.marks((address,))
        if recorded[address] is None:
            self._device.note_stream(*stream)
        return recorded[address]

    def _end(self, known: _Allocation, address: int, events: Collection[RecordedEvent] | None) -> None:
        region, shared = known.region, known.shared
        if events is None and region.slab is not None:  # nothing says when it may be written
            region.slab.retired = True
        if shared is not None:
            shared.used -= 1
            if events is not None:
                shared.free.append((address - region.address, tuple(events)))
            rooms = self._open[shared.size]
            if shared in rooms:
                rooms.remove(shared)
            if shared.used:
                rooms.append(shared)
                return
            events = {one for _, each in shared.free for one in each}
        if region.slab is None:
            return
        lent = region.allocation == "lent"
        if lent:  # readers of this process may read it on other streams
            self._device.freed_behind.extend(events or ())
        region.slab.events = () if lent else tuple(events or ())
