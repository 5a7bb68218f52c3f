"""Handles: the name of a region for another process, and what that process needs to open it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import struct
import threading
from typing import TYPE_CHECKING, Final

from bowstring.errors import InvalidRegion, ProtocolError, UsageError
from bowstring.memory.region import Region

if TYPE_CHECKING:
    from bowstring.memory.cuda.bindings import CudaDriver

# uuid of the memory, uuid of its device, size, Arrow device type, kind of handle
_HANDLE: Final = struct.Struct("<16s16sQII")
# the driver's own handle, buffer id, address in the exporting process; that process follows
_LENT: Final = struct.Struct("<64sQQ")

_DESCRIPTOR: Final = 0
_CUDA_IPC: Final = 1
_KEY: Final = 2

_ADDRESS: Final = struct.Struct("<Q")
_LONGEST_KEY: Final = 4096

IPC_TOKEN_BYTES: Final = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Handle:
    """The name of a region of Bowstring's own; the memory itself travels beside it as a file descriptor."""

    uuid: bytes  # 16 bytes naming the memory
    device_uuid: bytes  # 16 bytes naming the device
    nbytes: int
    arrow_device_type: int

    @classmethod
    def of(cls, region: Region) -> Handle:
        """Return the handle of a region that goes as a file descriptor, or raise `UsageError`."""
        if region.slab is None or region.slab.fd < 0:
            raise UsageError("the region cannot be shared with another process", found=repr(region))
        return cls(region.uuid, region.device.uuid, region.slab.nbytes, region.device.arrow_device_type)

    def pack(self) -> bytes:
        """Return the 48 bytes of the handle."""
        return _HANDLE.pack(self.uuid, self.device_uuid, self.nbytes, self.arrow_device_type, _DESCRIPTOR)

    @classmethod
    def unpack(cls, data: bytes) -> Handle:
        """Read a handle."""
        return cls(*_head(data, _HANDLE.size, _DESCRIPTOR))


@dataclasses.dataclass(frozen=True, slots=True)
class LentHandle:
    """The name of memory that another library allocated: one allocation, whole, into which buffers are offsets.

    Its UUID is a hash of the rest: memory allocated there again has another one, and no peer can forge one.
    """

    token: bytes  # 64 bytes of the driver (``CUipcMemHandle``), any of which may be zero
    buffer_id: int  # the driver's number of the allocation; never used again in the process that made it
    address: int  # in the process that made it
    exporter: Process  # the process that allocated it, and keeps it alive
    device_uuid: bytes
    nbytes: int
    arrow_device_type: int

    def __post_init__(self) -> None:
        check_token(self.token)

    @property
    def uuid(self) -> bytes:
        """16 bytes naming the memory: the beginning of the SHA-256 of all that follows them."""
        return hashlib.sha256(self._named()).digest()[:16]

    def _named(self) -> bytes:
        head = _HANDLE.pack(bytes(16), self.device_uuid, self.nbytes, self.arrow_device_type, _CUDA_IPC)
        return head[16:] + _LENT.pack(self.token, self.buffer_id, self.address) + self.exporter.pack()

    def pack(self) -> bytes:
        """Return the 168 bytes of the handle."""
        return self.uuid + self._named()

    @classmethod
    def unpack(cls, data: bytes) -> LentHandle:
        """Read a handle."""
        size = _HANDLE.size + _LENT.size + PROCESS_BYTES
        uuid, device_uuid, nbytes, arrow_device_type = _head(data, size, _CUDA_IPC)
        token, buffer_id, address = _LENT.unpack_from(data, _HANDLE.size)
        exporter = Process.unpack(data[_HANDLE.size + _LENT.size :])
        handle = cls(token, buffer_id, address, exporter, device_uuid, nbytes, arrow_device_type)
        if handle.uuid != uuid:
            raise ProtocolError(
                "the name of lent memory is not the hash of what it names",
                expected=handle.uuid.hex(),
                found=uuid.hex(),
            )
        return handle


@dataclasses.dataclass(frozen=True, slots=True)
class KeyedHandle:
    """Where memory lies in the process that owns it, and the rkey of UCX that its connections read it with."""

    uuid: bytes
    device_uuid: bytes
    nbytes: int
    arrow_device_type: int
    address: int  # in the owner
    key: bytes  # an rkey of UCX, for connections to the worker that made it

    def pack(self) -> bytes:
        """Return the 56 bytes of the handle, and the key behind them."""
        head = _HANDLE.pack(self.uuid, self.device_uuid, self.nbytes, self.arrow_device_type, _KEY)
        return head + _ADDRESS.pack(self.address) + self.key

    @classmethod
    def unpack(cls, data: bytes) -> KeyedHandle:
        """Read a handle."""
        behind = _HANDLE.size + _ADDRESS.size
        if not behind < len(data) <= behind + _LONGEST_KEY:
            raise ProtocolError(
                "a handle with a key has the wrong length",
                expected=f"{behind + 1} to {behind + _LONGEST_KEY} bytes",
                found=len(data),
            )
        head = _head(data[: _HANDLE.size], _HANDLE.size, _KEY)
        return cls(*head, _ADDRESS.unpack_from(data, _HANDLE.size)[0], data[behind:])


def _head(data: bytes, size: int, kind: int) -> tuple[bytes, bytes, int, int]:
    """Return UUID, device UUID, size and device type of a handle of a certain size and kind."""
    if len(data) != size:
        raise ProtocolError("a region handle has the wrong length", expected=size, found=len(data))
    *named, found = _HANDLE.unpack_from(data)
    if found != kind:
        raise ProtocolError("a region handle is of another kind", expected=kind, found=found)
    return tuple(named)


def check_token(token: bytes) -> None:
    """Raise `UsageError` if a driver's handle has the wrong length."""
    if len(token) != IPC_TOKEN_BYTES:
        raise UsageError(
            "a handle of the driver has the wrong length", expected=IPC_TOKEN_BYTES, found=len(token)
        )


def handle_of(region: Region) -> Handle | LentHandle:
    """Return the handle of a region, of the kind that it has."""
    handle = region.slab.ipc_handle if region.slab is not None else None
    return handle if isinstance(handle, LentHandle) else Handle.of(region)


def unpack_handle(data: bytes) -> Handle | LentHandle | KeyedHandle:
    """Read a handle of any kind."""
    if len(data) < _HANDLE.size:
        raise ProtocolError(
            "a region handle has the wrong length", expected=f"{_HANDLE.size} or more", found=len(data)
        )
    *named, kind = _HANDLE.unpack_from(data)
    if kind == _DESCRIPTOR and len(data) == _HANDLE.size:
        return Handle(*named)
    if kind not in (_DESCRIPTOR, _CUDA_IPC, _KEY):
        raise ProtocolError("a region handle is of an unknown kind", expected="0, 1 or 2", found=kind)
    if kind == _KEY:
        return KeyedHandle.unpack(data)
    return Handle.unpack(data) if kind == _DESCRIPTOR else LentHandle.unpack(data)


# boot id, pid namespace, start time, pid, reserved
_PROCESS: Final = struct.Struct("<16sQQII")
PROCESS_BYTES: Final = _PROCESS.size
_START_FIELD: Final = 18  # starttime, counted from what is behind the state
_OVER: Final = (b"Z", b"X")  # has ended, but its parent has not collected its status


@dataclasses.dataclass(frozen=True, slots=True)
class Process:
    """One process of one machine; no two are equal."""

    boot_id: bytes  # 16 bytes, made when the machine started
    namespace: int  # inode of its PID namespace
    started: int  # in clock ticks since the machine started
    pid: int  # in that namespace

    def pack(self) -> bytes:
        """Return the 40 bytes of the name."""
        return _PROCESS.pack(self.boot_id, self.namespace, self.started, self.pid, 0)

    @classmethod
    def unpack(cls, data: bytes) -> Process:
        """Read a name."""
        if len(data) != PROCESS_BYTES:
            raise ProtocolError(
                "the name of a process has the wrong length", expected=PROCESS_BYTES, found=len(data)
            )
        *fields, reserved = _PROCESS.unpack(data)
        if reserved:
            raise ProtocolError("reserved bits of a process are set", expected=0, found=reserved)
        return cls(*fields)

    @property
    def place(self) -> str:
        """Where its number means something: the machine since it started, and the PID namespace."""
        return f"{self.boot_id.hex()}:{self.namespace}"

    @property
    def alive(self) -> bool:
        """Whether it still runs; false for a process of another place, of which nothing is known."""
        return self.place == this_process().place and start_time(self.pid) == self.started


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since the machine did; ``None`` where none runs."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the program stands in brackets and may hold blanks and brackets itself.
            state, *fields = file.read().rpartition(b")")[2].split()
        return None if state in _OVER else int(fields[_START_FIELD])
    except (OSError, IndexError, ValueError):
        return None


def this_place() -> str:
    """Return where the number of this process means something (:attr:`Process.place`)."""
    return _place_of(os.getpid())


@functools.lru_cache(1)
def _place_of(pid: int) -> str:
    return _of(pid).place


def this_process() -> Process:
    """Return the identity of this process."""
    return _of(os.getpid())


@functools.lru_cache(1)
def _of(pid: int) -> Process:
    # A forked child has another PID, so it is looked up anew.
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot_id = bytes.fromhex(file.read().strip().replace("-", ""))
        return Process(boot_id, os.stat("/proc/self/ns/pid").st_ino, start_time(pid) or 0, pid)
    except (OSError, ValueError):
        # A sandbox hides it: no other process has a random boot id, so none opens memory of this one by a handle.
        return Process(os.urandom(16), 0, 0, pid)


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
