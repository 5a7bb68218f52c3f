"""Memory and events of a fake driver, which other processes can open; the host may not touch the memory."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import functools
import itertools
import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any, Final, Literal, NoReturn

from bowstring.errors import DeviceError, OutOfBudget
from bowstring.memory.cuda.driver import Capturing
from bowstring.memory.handle import start_time
from bowstring.memory.slab import fresh_memfd

FIXED: Final = 0x10  # MAP_FIXED
_NOTHING: Final = 0  # PROT_NONE
_FAILED: Final = ctypes.c_void_p(-1).value


def whole_pages(nbytes: int) -> int:
    """Return how many bytes the pages have that so many bytes need, at least one."""
    return max(1, -(-nbytes // mmap.PAGESIZE)) * mmap.PAGESIZE


@functools.cache
def libc() -> Any:
    """Return the C library with what is called of it declared."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    )
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return libc


def map_untouchable(address: int, nbytes: int, flags: int, fd: int) -> int:
    """Map memory that may not be touched yet: access fails as on a GPU."""
    mapped = libc().mmap(address or None, nbytes, _NOTHING, flags, fd, 0)
    if mapped in (None, _FAILED):
        raise OutOfBudget("the system has no room to map memory", found=f"{nbytes} bytes")
    return int(mapped)


def refused(call: str, found: str) -> DeviceError:
    """Return the error of a call, as a driver's."""
    return DeviceError(f"{call} failed", found=found)


Kind = Literal["malloc", "async", "managed", "vmm"]

# number of the exporting process, its descriptor, inode of the memory, bytes, offset; the rest is zeros
_TOKEN: Final = struct.Struct("<4sIIQQQ28x")
_MEMORY: Final = b"\0IPC"
_EVENT: Final = b"\0EVT"


@dataclasses.dataclass(frozen=True, slots=True)
class Allocation:
    """One allocation.

    Attributes
    ----------
    fd
        Of its memory.
    nbytes, kind, ordinal
        Its size in bytes, how it was allocated, and on which device.
    buffer_id
        Never used again in this process.
    offset
        Where it begins in that memory, which it may share with others.
    """

    fd: int
    nbytes: int
    kind: Kind
    ordinal: int
    buffer_id: int
    offset: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """What the 64 bytes of a handle say to the fake driver.

    Attributes
    ----------
    pid, fd
        The exporting process, and its descriptor.
    inode
        Of the memory: another allocation may have the descriptor since.
    nbytes, offset
        Size in bytes of all of the memory, and where the allocation begins in it.
    """

    pid: int
    fd: int
    inode: int
    nbytes: int
    offset: int = 0

    def pack(self, magic: bytes = _MEMORY) -> bytes:
        """Return the 64 bytes."""
        return _TOKEN.pack(magic, self.pid, self.fd, self.inode, self.nbytes, self.offset)

    @classmethod
    def unpack(cls, data: bytes, expected: bytes = _MEMORY) -> Token | None:
        """Read 64 bytes; ``None`` where no fake driver made them."""
        if len(data) != _TOKEN.size:
            return None
        magic, *fields = _TOKEN.unpack(data)
        token = cls(*fields)
        return token if magic == expected and token.pack(magic) == data else None

    def opened(self, call: str) -> int:
        """Return a descriptor of the exporter's memory.

        Raises
        ------
        DeviceError
            The exporter is gone, or has freed it.
        """
        try:
            fd = os.open(f"/proc/{self.pid}/fd/{self.fd}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise refused(call, "CUDA_ERROR_INVALID_HANDLE (400)") from error
        if os.fstat(fd).st_ino != self.inode:
            os.close(fd)
            raise refused(call, "CUDA_ERROR_MAP_FAILED (205)")
        return fd

    def mapped(self) -> int:
        """Map the exporter's memory, for writing, too, as a GPU does; return the address, as the host has it.

        Raises
        ------
        DeviceError
            The exporter is gone, or has freed it, or it is smaller than the token says.
        """
        fd = self.opened("open_ipc_handle")
        try:
            if not 0 < self.nbytes <= os.fstat(fd).st_size:
                raise refused("open_ipc_handle", "CUDA_ERROR_INVALID_VALUE (1)")
            room = whole_pages(self.nbytes)
            address = map_untouchable(0, room, mmap.MAP_SHARED, fd)
            libc().mprotect(address, room, mmap.PROT_READ | mmap.PROT_WRITE)
        finally:
            os.close(fd)
        return address


class FakeAllocations:
    """The allocations of one process by address. An address that was freed is the next to be used again."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._known: dict[int, Allocation] = {}
        self._freed: dict[int, list[int]] = {}
        self._together: set[int] = set()

    def __len__(self) -> int:
        return len(self._known)

    def address_again(self, room: int) -> int | None:
        """Return an address where memory of that many bytes was freed."""
        addresses = self._freed.get(room)
        return addresses.pop() if addresses else None

    def add(
        self, address: int, fd: int, nbytes: int, kind: Kind, ordinal: int, offset: int | None = None
    ) -> None:
        """Enter an allocation; one with an `offset` shares its memory with others."""
        number = next(self._numbers)
        self._known[address] = Allocation(fd, nbytes, kind, ordinal, number, offset or 0)
        if offset is not None:
            self._together.add(number)

    def remove(self, address: int, room: int) -> Allocation | None:
        """Forget an allocation of so much room; its address may be used again."""
        allocation = self._known.pop(address, None)
        if allocation is not None and allocation.buffer_id not in self._together:
            self._freed.setdefault(room, []).append(address)
        return allocation

    def is_alone(self, allocation: Allocation) -> bool:
        """Whether its memory is its own."""
        return allocation.buffer_id not in self._together

    def at(self, address: int) -> tuple[int, Allocation] | None:
        """Return start and allocation where an address lies in one."""
        for start, each in list(self._known.items()):
            if start <= address < start + each.nbytes:
                return start, each
        return None


_FIRST_EVENT: Final = 1 << 40  # no number of anything else
# An event's memory: whether what was recorded is done, then the numbers of the processes that have it open.
_DONE: Final = slice(0, 4)
_SLOT: Final = 4
_LONGEST: Final = 30.0
_PAUSE: Final = 0.002


@dataclasses.dataclass(slots=True)
class _Work:
    """Work of one stream, until it is done."""

    place: tuple[int, int]
    done: bool = False


@dataclasses.dataclass(slots=True)
class _Event:
    """One event, in memory that all processes share which have it open."""

    memory: mmap.mmap
    fd: int = -1
    """To hand out, where other processes can open it."""
    is_ours: bool = True
    behind: list[_Event | _Work] | None = None
    """What it was recorded behind, until that is done."""

    @property
    def done(self) -> bool:
        return any(self.memory[_DONE])

    def set(self, *, done: bool) -> None:
        self.memory[_DONE] = int(done).to_bytes(_SLOT, "little")

    @property
    def openers(self) -> list[int]:
        """Processes that have it open and live."""
        return [pid for pid in self._slots if pid and start_time(pid) is not None]

    @property
    def _slots(self) -> list[int]:
        return [pid for (pid,) in struct.iter_unpack("<I", self.memory[_SLOT:])]

    def replace(self, old: int, new: int) -> None:
        """Put a process's number in the place of another one, or of nobody's, 0."""
        slot = _SLOT * (1 + self._slots.index(old))
        self.memory[slot : slot + _SLOT] = new.to_bytes(_SLOT, "little")


class FakeEvents:
    """The part of a fake driver that has events and streams. Nothing is queued but what `begin_work` says.

    All streams are blocking ones: the default stream waits for them. A capture of a graph is ended by what would be
    lost in it, in whatever thread: waiting for the device, and recording on a stream that is captured, or waits.

    Attributes
    ----------
    waits : collections.deque of (int, int)
        Which stream waits for which event: the last hundred.
    misused : list of str
        What a driver leaves undefined and was done: an event recorded anew, or destroyed, that others have open;
        and captures that were ended.
    stream_devices : dict of int to int
        The devices of streams; of others, whichever is asked.
    default_streams : tuple of int
        Names of the stream that waits for all others.
    """

    def __init__(self) -> None:
        self.waits: collections.deque[tuple[int, int]] = collections.deque(maxlen=100)
        self.misused: list[str] = []
        self.stream_devices: dict[int, int] = {}
        self.default_streams: tuple[int, ...] = (0, 1)
        self._lock = threading.RLock()
        self._event_numbers = itertools.count(_FIRST_EVENT)
        self._events: dict[int, _Event] = {}
        self._queued: dict[tuple[int, int], list[_Event | _Work]] = {}
        self._capturing: dict[tuple[int, int], bool] = {}

    def begin_work(self, stream: int = 0, ordinal: int = 0) -> object:
        """Let a stream have work that is not done before `end_work`; return it, for `is_behind`."""
        work = _Work((ordinal, stream))
        with self._lock:
            self._queued.setdefault((ordinal, stream), []).append(work)
        return work

    def is_behind(self, stream: int, work: object, ordinal: int = 0) -> bool:
        """Whether what is queued on a stream from now on begins when some work is done."""
        with self._lock:
            pending = self._pending(ordinal, stream)
        return (isinstance(work, _Work) and work.done) or any(each is work for each in pending)

    def end_work(self, stream: int = 0, ordinal: int = 0) -> None:
        """Let the work of a stream be done, and what was recorded behind it."""
        with self._lock:
            for each in self._queued.get((ordinal, stream), ()):
                if isinstance(each, _Work) and each.place == (ordinal, stream):
                    each.done = True
            self._look()

    def is_idle(self, stream: int, ordinal: int = 0) -> bool:
        """Whether a stream has done all that was queued."""
        with self._lock:
            return not self._pending(ordinal, stream)

    def begin_capture(self, stream: int, ordinal: int = 0, *, blocking: bool = False) -> None:
        """Begin to capture a graph on a stream; beside a blocking one the default stream cannot be used."""
        with self._lock:
            self._capturing[ordinal, stream] = blocking

    def end_capture(self, stream: int, ordinal: int = 0) -> bool:
        """End a capture; return whether it was not ended before."""
        with self._lock:
            return self._capturing.pop((ordinal, stream), None) is not None

    def _break_captures(self, call: str, found: str) -> NoReturn:
        self.misused.append(f"{call} ended a capture")
        self._capturing.clear()
        raise Capturing(f"{call} failed", found=found)

    @contextlib.contextmanager
    def beside_captures(self) -> Iterator[None]:
        yield  # this driver has no modes of threads

    def stream_device(self, ordinal: int, stream: int) -> int:
        return self.stream_devices.get(stream, ordinal)

    def stream_create(self, ordinal: int) -> int:  # noqa: ARG002  of all the same
        return next(self._event_numbers)

    def stream_capturing(self, ordinal: int, stream: int) -> bool:
        with self._lock:
            return self._is_captured(ordinal, stream)

    def _is_captured(self, ordinal: int, stream: int) -> bool:
        captured = {each: blocks for (device, each), blocks in self._capturing.items() if device == ordinal}
        return any(captured.values()) if stream in self.default_streams else stream in captured

    def _pending(self, ordinal: int, stream: int) -> list[_Event | _Work]:
        """Return what is queued on a stream and not done, on the default stream that of all of the device."""
        pending: list[_Event | _Work] = []
        for (device, each), queued in self._queued.items():
            queued[:] = [one for one in queued if not one.done]
            if device == ordinal and (each == stream or stream in self.default_streams):
                pending += queued
        return pending

    def _look(self) -> None:
        """Set the events whose streams have come to them."""
        for event in self._events.values():
            if event.behind is not None and all(each.done for each in event.behind):
                event.behind = None
                event.set(done=True)

    def synchronize(self, ordinal: int) -> None:
        if self._capturing:  # whatever the mode of the thread is
            self._break_captures("synchronize", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)")
        end = time.monotonic() + _LONGEST
        while True:
            with self._lock:
                if not self._pending(ordinal, 0):
                    return
            if time.monotonic() > end:
                raise refused("synchronize", "CUDA_ERROR_LAUNCH_TIMEOUT (702)")
            time.sleep(_PAUSE)

    @property
    def held_events(self) -> set[int]:
        """Events that were not destroyed, those of other processes included."""
        with self._lock:
            return set(self._events)

    def event_create(self, ordinal: int, *, shared: bool = False) -> int:  # noqa: ARG002  of all the same
        if not shared:
            return self._enter(_Event(mmap.mmap(-1, mmap.PAGESIZE)))
        fd = fresh_memfd(mmap.PAGESIZE).detach()
        return self._enter(_Event(mmap.mmap(fd, mmap.PAGESIZE), fd))

    def _enter(self, event: _Event) -> int:
        with self._lock:
            number = next(self._event_numbers)
            self._events[number] = event
        return number

    def event_destroy(self, ordinal: int, event: int) -> None:  # noqa: ARG002
        with self._lock:
            known = self._known_event("event_destroy", event)
            del self._events[event]
            if not known.is_ours:
                known.replace(os.getpid(), 0)
                return
            self._note_misuse("destroyed", known)
            if known.fd >= 0:
                os.close(known.fd)

    def _note_misuse(self, what: str, event: _Event) -> None:
        if event.openers:
            self.misused.append(f"{what} while open in {event.openers}")

    def event_record(self, ordinal: int, event: int, stream: int) -> None:
        with self._lock:
            known = self._known_event("event_record", event)
            self._note_misuse("recorded", known)
            if self._is_captured(ordinal, stream):
                self._break_captures("event_record", "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT (906)")
            known.behind = self._pending(ordinal, stream)
            known.set(done=False)
            self._look()

    def event_done(self, ordinal: int, event: int) -> bool:  # noqa: ARG002
        with self._lock:
            self._look()
            return self._known_event("event_done", event).done

    def get_ipc_event_handle(self, ordinal: int, event: int) -> bytes:  # noqa: ARG002
        with self._lock:
            known = self._known_event("get_ipc_event_handle", event)
            if known.fd < 0:
                raise refused("get_ipc_event_handle", "CUDA_ERROR_INVALID_VALUE (1)")
            return Token(os.getpid(), known.fd, os.fstat(known.fd).st_ino, mmap.PAGESIZE).pack(_EVENT)

    def open_ipc_event_handle(self, ordinal: int, token: bytes) -> int:  # noqa: ARG002
        exported = Token.unpack(token, _EVENT)
        if exported is None:
            raise refused("open_ipc_event_handle", "CUDA_ERROR_INVALID_VALUE (1)")
        if exported.pid == os.getpid():
            raise refused("open_ipc_event_handle", "CUDA_ERROR_INVALID_CONTEXT (201)")
        fd = exported.opened("open_ipc_event_handle")
        try:
            event = _Event(mmap.mmap(fd, mmap.PAGESIZE), is_ours=False)
        finally:
            os.close(fd)
        event.replace(0, os.getpid())
        return self._enter(event)

    def stream_wait_event(self, ordinal: int, stream: int, event: int) -> None:
        with self._lock:
            known = self._known_event("stream_wait_event", event)
            behind = [_Event(known.memory)] if not known.is_ours else known.behind or []
            self._queued.setdefault((ordinal, stream), []).extend(behind)
        self.waits.append((stream, event))

    def _known_event(self, call: str, event: int) -> _Event:
        if event not in self._events:
            raise refused(call, "CUDA_ERROR_INVALID_HANDLE (400)")
        return self._events[event]
