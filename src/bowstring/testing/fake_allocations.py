"""Memory that other libraries allocate on the fake device: of each kind that a GPU's libraries know."""

from __future__ import annotations

import dataclasses
import itertools
import mmap
import os
import struct
from typing import Final, Literal

from bowstring.testing.fake_memory import libc, map_untouchable, refused, whole_pages

__all__ = ["Allocation", "FakeAllocations", "Kind", "Token"]

Kind = Literal["malloc", "async", "managed", "vmm"]

# number of the exporting process, its descriptor, inode of the memory, bytes; the rest is zeros
_TOKEN: Final = struct.Struct("<4sIIQQ36x")
_MAGIC: Final = b"\0IPC"


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
    """

    fd: int
    nbytes: int
    kind: Kind
    ordinal: int
    buffer_id: int


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """What the 64 bytes of a handle say to the fake driver.

    Attributes
    ----------
    pid, fd
        The exporting process, and its descriptor.
    inode
        Of the memory: another allocation may have the descriptor since.
    nbytes
        Size in bytes.
    """

    pid: int
    fd: int
    inode: int
    nbytes: int

    def pack(self) -> bytes:
        """Return the 64 bytes."""
        return _TOKEN.pack(_MAGIC, self.pid, self.fd, self.inode, self.nbytes)

    @classmethod
    def unpack(cls, data: bytes) -> Token | None:
        """Read 64 bytes; ``None`` where no fake driver made them."""
        if len(data) != _TOKEN.size:
            return None
        magic, *fields = _TOKEN.unpack(data)
        token = cls(*fields)
        return token if magic == _MAGIC and token.pack() == data else None

    def opened(self) -> int:
        """Return a descriptor of the exporter's memory.

        Raises
        ------
        DeviceError
            The exporter is gone, or has freed it.
        """
        try:
            fd = os.open(f"/proc/{self.pid}/fd/{self.fd}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise refused("open_ipc_handle", "CUDA_ERROR_INVALID_HANDLE (400)") from error
        if os.fstat(fd).st_ino != self.inode:
            os.close(fd)
            raise refused("open_ipc_handle", "CUDA_ERROR_MAP_FAILED (205)")
        return fd

    def mapped(self) -> int:
        """Map the exporter's memory, for writing, too, as a GPU does; return the address, as the host has it.

        Raises
        ------
        DeviceError
            The exporter is gone, or has freed it, or it is smaller than the token says.
        """
        fd = self.opened()
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

    def __len__(self) -> int:
        return len(self._known)

    def address_again(self, room: int) -> int | None:
        """Return an address where memory of that many bytes was freed."""
        addresses = self._freed.get(room)
        return addresses.pop() if addresses else None

    def add(self, address: int, fd: int, nbytes: int, kind: Kind, ordinal: int) -> None:
        """Enter an allocation."""
        self._known[address] = Allocation(fd, nbytes, kind, ordinal, next(self._numbers))

    def remove(self, address: int, room: int) -> Allocation | None:
        """Forget an allocation of so much room; its address may be used again."""
        found = self._known.pop(address, None)
        if found is not None:
            self._freed.setdefault(room, []).append(address)
        return found

    def at(self, address: int) -> tuple[int, Allocation] | None:
        """Return start and allocation where an address lies in one."""
        for start, each in list(self._known.items()):
            if start <= address < start + each.nbytes:
                return start, each
        return None
