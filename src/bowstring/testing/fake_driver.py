"""A driver without a device: what CUDA's does with memory, done with memfds, and counted."""

from __future__ import annotations

import collections
import ctypes
import fcntl
import functools
import hashlib
import itertools
import mmap
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from bowstring.errors import BowstringError, DeviceError, OutOfBudget
from bowstring.memory.cuda.bindings import CudaDriver
from bowstring.memory.cuda.driver import PointerAttributes
from bowstring.memory.slab import SEALS, fresh_memfd
from bowstring.testing.fake_array import ADDRESS_SHIFT
from bowstring.testing.fake_objects import (
    FIXED,
    FakeAllocations,
    FakeEvents,
    Kind,
    Token,
    libc,
    map_untouchable,
    refused,
    whole_pages,
)

_GRANULARITY: Final = 1 << 21


class FakeDriver(FakeEvents, CudaDriver):
    """Answers all calls of :class:`~bowstring.memory.cuda.bindings.CudaDriver`; its memory is on the host.

    Memory is counted as CUDA counts it: it lives as long as a mapping, a handle or a descriptor of it does. Wrong
    calls (what is not mapped, released twice, smaller than asked for) raise, as a driver's do at best.

    Attributes
    ----------
    calls : collections.Counter of str
        How often each method was called.
    memory : int
        Bytes that each device says it has.
    peers : bool
        Whether the devices reach each other's memory. The answer is kept for each pair.
    exports, shares_events, gives_read_only : bool
        Whether memory can be exported, events can be opened by other processes, and memory mapped read-only: WSL2
        and virtual GPUs lack some of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: collections.Counter[str] = collections.Counter()
        self._handles: dict[int, int] = {}
        self._reserved: dict[int, int] = {}
        self._mapped: dict[int, int] = {}
        self._numbers = itertools.count(1)
        self._allocations = FakeAllocations()
        self._opened: dict[bytes, tuple[int, int, int]] = {}
        self._failures: dict[str, BowstringError] = {}
        self._gone = False
        self.memory = 8 << 30
        self.peers = self.exports = self.shares_events = self.gives_read_only = True
        self._readers: dict[int, dict[int, bool]] = {}
        self._pinned: dict[int, int] = {}

    def fail_next(self, call: str, error: BowstringError | None = None) -> None:
        """Make the next call of a method fail."""
        refusal: BowstringError = DeviceError(f"{call} failed", found="CUDA_ERROR_UNKNOWN (999)")
        if call == "create":
            refusal = OutOfBudget("cuMemCreate failed", found="CUDA_ERROR_OUT_OF_MEMORY (2)")
        self._failures[call] = error or refusal

    def disappear(self) -> None:
        """Let every call fail from now on, as when a GPU fell off the bus."""
        self._gone = True

    def come_back(self) -> None:
        """End what `disappear` began."""
        self._gone = False

    @property
    def held(self) -> tuple[int, int, int]:
        """Handles, mappings (and openings of lent memory), and reserved ranges that were not given back."""
        with self._lock:
            opened = sum(count for _, _, count in self._opened.values())
            return len(self._handles), len(self._mapped) + opened, len(self._reserved)

    @property
    def allocated(self) -> int:
        """How many allocations of `allocate` were not freed."""
        with self._lock:
            return len(self._allocations)

    def allocate(self, ordinal: int, nbytes: int, kind: Kind = "malloc") -> int:
        """Allocate memory as another library of this process does; return its address.

        Parameters
        ----------
        ordinal, nbytes
            On which device, and how much.
        kind
            ``"malloc"``, which other processes can open by a handle; ``"async"``, ``"managed"`` or ``"vmm"``.
        """
        room = whole_pages(nbytes)
        with self._lock:
            address = self._allocations.address_again(room)
            if address is None:
                address = map_untouchable(0, room, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1) + ADDRESS_SHIFT
            fd = fresh_memfd(room).detach()
            map_untouchable(address - ADDRESS_SHIFT, room, mmap.MAP_SHARED | FIXED, fd)
            libc().mprotect(address - ADDRESS_SHIFT, room, mmap.PROT_READ | mmap.PROT_WRITE)
            self._allocations.add(address, fd, nbytes, kind, ordinal)
        return address

    def allocate_together(self, ordinal: int, sizes: Sequence[int]) -> list[int]:
        """Allocate small blocks of one granule, as ``cudaMalloc`` does; who opens one sees the granule."""
        offsets = [0, *itertools.accumulate(-(-size // 512) * 512 for size in sizes)]
        room = whole_pages(offsets.pop())
        fd = fresh_memfd(room)
        with self._lock:
            start = map_untouchable(0, room, mmap.MAP_SHARED, fd)
            libc().mprotect(start, room, mmap.PROT_READ | mmap.PROT_WRITE)
            addresses = [start + ADDRESS_SHIFT + offset for offset in offsets]
            for address, size, offset in zip(addresses, sizes, offsets, strict=True):
                self._allocations.add(address, os.dup(fd), size, "malloc", ordinal, offset)
        return addresses

    def free(self, address: int) -> None:
        """Free what `allocate` made; the same address is given out next."""
        with self._lock:
            allocation = self._allocations.at(address)
            if allocation is None or allocation[0] != address:
                raise refused("free", "CUDA_ERROR_INVALID_VALUE (1)")
            room = whole_pages(allocation[1].nbytes)
            self._allocations.remove(address, room)
            os.close(allocation[1].fd)
            if not self._allocations.is_alone(allocation[1]):
                return
            map_untouchable(address - ADDRESS_SHIFT, room, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | FIXED, -1)

    @property
    def held_ranges(self) -> set[int]:
        """Addresses of the reserved ranges that were not given back."""
        with self._lock:
            return set(self._reserved)

    def _begin(self, name: str) -> None:
        self.calls[name] += 1
        if name in self._failures:
            # Not by a name of this frame, which the error would hold, and it the error.
            raise self._failures.pop(name)
        if self._gone:
            raise DeviceError(f"{name} failed", found="CUDA_ERROR_DEVICE_UNAVAILABLE (46)")

    def device_count(self) -> int:
        return 2

    def device_uuid(self, ordinal: int) -> bytes:
        return hashlib.md5(f"fake:{ordinal}".encode(), usedforsecurity=False).digest()

    def device_name(self, ordinal: int) -> str:
        return f"Fake {ordinal}"

    def can_export(self, ordinal: int) -> bool:  # noqa: ARG002  of all the same
        return self.exports

    def has_shared_events(self, ordinal: int) -> bool:  # noqa: ARG002  of all the same
        return self.shares_events

    def allocate_private(self, ordinal: int, nbytes: int) -> int:
        return self.allocate(ordinal, nbytes, "async")

    def free_private(self, ordinal: int, address: int) -> None:  # noqa: ARG002
        self.free(address)

    def granularity(self, ordinal: int) -> int:  # noqa: ARG002  of all the same
        return _GRANULARITY

    def create(self, ordinal: int, nbytes: int) -> int:  # noqa: ARG002  all memory is the host's
        if nbytes <= 0 or nbytes % _GRANULARITY:
            raise refused("create", "CUDA_ERROR_INVALID_VALUE (1)")
        fd = fresh_memfd(nbytes).detach()
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        return self._handle(fd)

    def _handle(self, fd: int) -> int:
        with self._lock:
            handle = next(self._numbers)
            self._handles[handle] = fd
        return handle

    def export(self, handle: int) -> int:
        with self._lock:
            return fcntl.fcntl(self._known(handle), fcntl.F_DUPFD_CLOEXEC, 0)

    def import_(self, fd: int) -> int:
        try:
            ours = fcntl.fcntl(fd, fcntl.F_GET_SEALS) & SEALS == SEALS
        except OSError:
            ours = False
        if not ours:
            raise refused("import_", "CUDA_ERROR_INVALID_VALUE (1)")
        return self._handle(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 0))

    def _known(self, handle: int) -> int:
        if handle not in self._handles:
            raise refused("handle", "CUDA_ERROR_INVALID_HANDLE (400)")
        return self._handles[handle]

    def reserve(self, nbytes: int) -> int:
        address = map_untouchable(0, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1) + ADDRESS_SHIFT
        with self._lock:
            self._reserved[address] = nbytes
        return address

    def map(self, address: int, nbytes: int, handle: int) -> None:
        with self._lock:
            fd = self._known(handle)
            fits = self._reserved.get(address) == nbytes and os.fstat(fd).st_size >= nbytes
            if not fits or address in self._mapped:
                raise refused("map", "CUDA_ERROR_INVALID_VALUE (1)")
            map_untouchable(address - ADDRESS_SHIFT, nbytes, mmap.MAP_SHARED | FIXED, fd)
            self._mapped[address] = nbytes

    def set_access(self, address: int, nbytes: int, ordinal: int, *, writable: bool) -> None:
        self._check_mapped(address, nbytes)
        if not writable and not self.gives_read_only:
            raise refused("set_access", "CUDA_ERROR_NOT_SUPPORTED (801)")
        readers = self._readers.setdefault(address, {})
        readers[ordinal] = writable
        if next(iter(readers)) != ordinal:  # a peer: what the first one may do stays as it is
            return
        allowed = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        if libc().mprotect(address - ADDRESS_SHIFT, nbytes, allowed):
            raise refused("set_access", os.strerror(ctypes.get_errno()))

    def unmap(self, address: int, nbytes: int) -> None:
        with self._lock:
            self._check_mapped(address, nbytes)
            map_untouchable(
                address - ADDRESS_SHIFT, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | FIXED, -1
            )
            del self._mapped[address]
            self._readers.pop(address, None)

    def _check_mapped(self, address: int, nbytes: int) -> None:
        if self._mapped.get(address) != nbytes:
            raise refused("unmap", "CUDA_ERROR_INVALID_VALUE (1)")

    def free_address(self, address: int, nbytes: int) -> None:
        with self._lock:
            if self._reserved.get(address) != nbytes or address in self._mapped:
                raise refused("free_address", "CUDA_ERROR_INVALID_VALUE (1)")
            del self._reserved[address]
            libc().munmap(address - ADDRESS_SHIFT, nbytes)

    def release(self, handle: int) -> None:
        with self._lock:
            os.close(self._known(handle))
            del self._handles[handle]

    def pointer_attributes(self, ordinal: int, address: int) -> PointerAttributes:  # noqa: ARG002
        with self._lock:
            allocation = self._allocations.at(address)
            if allocation is not None:
                kind = allocation[1].kind
                return PointerAttributes(
                    2,
                    allocation[1].ordinal,
                    allocation[1].buffer_id,
                    kind == "managed",
                    kind == "async",
                    kind == "malloc",
                )
            on_device = any(start <= address < start + size for start, size in self._mapped.items())
        return PointerAttributes(
            2 if on_device else 0, 0, 0, is_managed=False, is_pooled=False, has_ipc=False
        )

    def address_range(self, ordinal: int, address: int) -> tuple[int, int]:  # noqa: ARG002
        with self._lock:
            allocation = self._allocations.at(address)
            if allocation is not None:
                return allocation[0], allocation[1].nbytes
            for start, nbytes, _ in self._opened.values():
                if start <= address < start + nbytes:
                    return start, nbytes
        raise refused("address_range", "CUDA_ERROR_NOT_FOUND (500)")

    def get_ipc_handle(self, ordinal: int, address: int) -> bytes:  # noqa: ARG002
        with self._lock:
            allocation = self._allocations.at(address)
            if allocation is None or allocation[1].kind != "malloc":
                raise refused("get_ipc_handle", "CUDA_ERROR_INVALID_VALUE (1)")
            fd, alone = allocation[1].fd, self._allocations.is_alone(allocation[1])
            status = os.fstat(fd)
            nbytes = allocation[1].nbytes if alone else status.st_size
            return Token(os.getpid(), fd, status.st_ino, nbytes, allocation[1].offset).pack()

    def open_ipc_handle(self, ordinal: int, token: bytes) -> int:  # noqa: ARG002
        said = Token.unpack(token)
        if said is None:
            raise refused("open_ipc_handle", "CUDA_ERROR_INVALID_VALUE (1)")
        if said.pid == os.getpid():
            raise refused("open_ipc_handle", "CUDA_ERROR_INVALID_CONTEXT (201)")
        with self._lock:
            address, nbytes, count = self._opened.get(token, (0, said.nbytes, 0))
            if not count:
                address = said.mapped() + ADDRESS_SHIFT
            self._opened[token] = address, nbytes, count + 1
        return address + said.offset

    def close_ipc_handle(self, ordinal: int, address: int) -> None:  # noqa: ARG002
        with self._lock:
            offsets = {token: unpacked.offset for token in self._opened if (unpacked := Token.unpack(token))}
            tokens = {self._opened[token][0] + offset: token for token, offset in offsets.items()}
            if address not in tokens:
                raise refused("close_ipc_handle", "CUDA_ERROR_INVALID_VALUE (1)")
            token = tokens[address]
            start, nbytes, count = self._opened[token]
            if count > 1:
                self._opened[token] = start, nbytes, count - 1
            else:
                del self._opened[token]
                libc().munmap(start - ADDRESS_SHIFT, whole_pages(nbytes))

    def memory_info(self, ordinal: int) -> tuple[int, int]:  # noqa: ARG002  of all the same
        return max(0, self.memory - sum(self._mapped.values())), self.memory

    def can_reach(self, ordinal: int, peer: int) -> bool:
        return ordinal == peer or self.peers

    def pin(self, ordinal: int, nbytes: int) -> int:  # noqa: ARG002  of all the same
        address = map_untouchable(0, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
        libc().mprotect(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE)
        with self._lock:
            self._pinned[address] = nbytes
        return address

    def unpin(self, ordinal: int, address: int) -> None:  # noqa: ARG002
        with self._lock:
            if address not in self._pinned:
                raise refused("unpin", "CUDA_ERROR_INVALID_VALUE (1)")
            libc().munmap(address, self._pinned.pop(address))

    def copy_in(self, ordinal: int, target: int, host: int, nbytes: int, stream: int) -> None:  # noqa: ARG002  it is done at once
        ctypes.memmove(target - ADDRESS_SHIFT, host, nbytes)

    def copy_out(self, ordinal: int, host: int, source: int, nbytes: int, stream: int) -> None:  # noqa: ARG002  it is done at once
        ctypes.memmove(host, source - ADDRESS_SHIFT, nbytes)

    def copy_peer(
        self, target: int, target_ordinal: int, source: int, source_ordinal: int, nbytes: int, stream: int
    ) -> None:
        del stream  # it is done at once
        if not self.can_reach(target_ordinal, source_ordinal) or not self._may_read(source, target_ordinal):
            raise refused("copy_peer", "CUDA_ERROR_ILLEGAL_ADDRESS (700)")
        ctypes.memmove(target - ADDRESS_SHIFT, source - ADDRESS_SHIFT, nbytes)

    def _may_read(self, address: int, ordinal: int) -> bool:
        """Whether a device was let into the mapping that an address lies in, if it lies in one."""
        with self._lock:
            mapped = [at for at, size in self._mapped.items() if at <= address < at + size]
            return all(ordinal in self._readers.get(at, ()) for at in mapped)


def _counted(name: str) -> Callable[..., Any]:
    """Return a method that is counted, and fails where that was asked for."""
    method = getattr(FakeDriver, name)

    @functools.wraps(method)
    def call(self: FakeDriver, *arguments: Any, **options: Any) -> Any:
        self._begin(name)
        return method(self, *arguments, **options)

    return call


for _name in vars(CudaDriver):
    if not _name.startswith("_") and _name != "beside_captures":
        setattr(FakeDriver, _name, _counted(_name))
