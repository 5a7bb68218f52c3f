"""Handles: the name of a region for another process, and what that process needs to open it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import struct
from typing import Final

from bowstring.errors import ProtocolError, UsageError
from bowstring.memory.region import Region

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
    *named, kind = _HANDLE.unpack_from(data) if len(data) >= _HANDLE.size else (None,)
    rest = data[_HANDLE.size :]
    if kind == _DESCRIPTOR and not rest:
        return Handle(*named)
    if kind == _KEY and _ADDRESS.size < len(rest) <= _ADDRESS.size + _LONGEST_KEY:
        uuid, device_uuid, nbytes, device_type = named
        (address,) = _ADDRESS.unpack_from(rest)
        return KeyedHandle(uuid, device_uuid, nbytes, device_type, address, rest[_ADDRESS.size :])
    if kind == _CUDA_IPC and len(rest) == _LENT.size + PROCESS_BYTES:
        uuid, *place = named
        token, buffer_id, address = _LENT.unpack_from(rest)
        handle = LentHandle(token, buffer_id, address, Process.unpack(rest[_LENT.size :]), *place)
        if handle.uuid != uuid:
            raise ProtocolError(
                "the name of lent memory is not the hash of what it names",
                expected=handle.uuid.hex(),
                found=uuid.hex(),
            )
        return handle
    if kind in (None, _DESCRIPTOR, _CUDA_IPC, _KEY):
        raise ProtocolError("a region handle has the wrong length", found=f"{len(data)} bytes, kind {kind}")
    raise ProtocolError("a region handle is of an unknown kind", expected="0, 1 or 2", found=kind)


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
    return _of(os.getpid())[1]


def this_process() -> Process:
    """Return the identity of this process."""
    return _of(os.getpid())[0]


@functools.lru_cache(1)
def _of(pid: int) -> tuple[Process, str]:
    # A forked child has another PID, so it is looked up anew.
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot_id = bytes.fromhex(file.read().strip().replace("-", ""))
        process = Process(boot_id, os.stat("/proc/self/ns/pid").st_ino, start_time(pid) or 0, pid)
    except (OSError, ValueError):
        # A sandbox hides it: no other process has a random boot id, so none opens memory of this one by a handle.
        process = Process(os.urandom(16), 0, 0, pid)
    return process, process.place
