"""A slab: physical memory with a name of its own, and the file descriptor by which another process maps it.

A pool keeps slabs warm, and a mapping cache keeps them mapped. While one is in use, a
:class:`~bowstring.memory.region.Region` stands for that use.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import mmap
import os
import stat
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bowstring.errors import InvalidRegion, LimitExceeded, OutOfBudget, Unsupported
from bowstring.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bowstring.memory.cuda.events import RecordedEvent
    from bowstring.memory.device import Device

# Linux 6.3; a system may demand it (vm.memfd_noexec).
_MFD_NOEXEC_SEAL: Final = 0x0008
# Linux 5.1. What is mapped for writing by then stays so; nothing else can be.
_F_SEAL_FUTURE_WRITE: Final = 0x0010
SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_BLOCK: Final = 512  # unit of st_blocks on every file system
NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
_SEAL_NAMES: Final = {
    fcntl.F_SEAL_SHRINK: "SHRINK",
    fcntl.F_SEAL_GROW: "GROW",
    fcntl.F_SEAL_SEAL: "SEAL",
}


on_their_way: Final = set[int]()
"""Descriptors that peers have sent, and whose memory is not mapped yet."""


class Descriptor(int):
    """A file descriptor that is closed with the last reference to it, wherever an interrupt comes."""

    _open = True

    def close(self) -> None:
        """Close it now. Idempotent."""
        if self._open:
            self._open = False
            on_their_way.discard(self)
            os.close(self)

    def detach(self) -> int:
        """Return the number, for an owner of another kind."""
        self._open = False
        on_their_way.discard(self)
        return int(self)

    __del__ = close


def opened(call: Callable[..., int], *arguments: object) -> Descriptor:
    """Return the descriptor that a function of C code opens: no interrupt comes between it and its owner."""
    (fd,) = map(Descriptor, map(call, *zip(arguments)))
    return fd


def _let_go_in_child() -> None:
    """Keep nothing of what has arrived alive in a forked child; the numbers stay those of their objects."""
    if on_their_way:
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        for fd in on_their_way:
            os.dup2(null, fd, inheritable=False)
        os.close(null)
        on_their_way.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


def close_descriptor(fd: int) -> None:
    """Close a descriptor that a call has taken ownership of."""
    if isinstance(fd, Descriptor):
        fd.close()
    else:
        os.close(fd)


class Slab:
    """Memory that can be handed to another process."""

    __slots__ = (
        "__weakref__",
        "address",
        "asked",
        "device",
        "events",
        "fd",
        "identity",
        "ipc_handle",
        "memory",
        "nbytes",
        "private",
        "retired",
        "uuid",
        "writable",
    )

    def __init__(
        self,
        device: Device,
        memory: Any,
        *,
        address: int,
        nbytes: int,
        uuid: bytes,
        writable: bool,
        private: bool = False,
        fd: int = -1,
        identity: object = None,
        ipc_handle: object = None,
    ) -> None:
        self.device = device
        self.memory = memory  # keeps it mapped
        self.address = address
        self.nbytes = nbytes
        self.uuid = uuid  # 16 bytes, never used again
        self.fd = fd  # read-only, for other processes, and owned; -1 for memory of another process
        # What memory of another process is known by: `identity_of` it, or the driver's handle that opened it.
        self.identity = identity
        self.ipc_handle = ipc_handle  # opens memory that another library allocated in this process
        self.writable = writable  # this process made the memory
        # Behind what another library queued on it before it freed it; memory is unmapped when they are done, too.
        self.events: tuple[RecordedEvent, ...] = ()
        self.private = private  # copy-on-write: nobody else sees what this process writes
        # Bytes, from its beginning, for which the kernel was asked for large pages.
        self.asked = 0
        # A retired slab is never written again: a reader that was lost may still read it.
        self.retired = False

    def prepare(self, nbytes: int) -> int:
        """Get large pages for the first `nbytes` of fresh memory; return for how many bytes that is done.

        Contents stay. It takes memory for all of the bytes, and as long as writing them once.
        """
        most = self.nbytes & -LARGE_PAGE if self.device.is_host else 0
        wanted = min(-(-nbytes // LARGE_PAGE) * LARGE_PAGE, most)
        if self.asked < wanted:
            begin, self.asked = self.asked, wanted
            ask_for_large_pages(self.address + begin, wanted - begin)
        return self.asked if self.asked < most else self.nbytes

    def __del__(self) -> None:
        fd, self.fd = getattr(self, "fd", -1), -1
        if fd >= 0:
            close_descriptor(fd)
        if getattr(self, "events", ()):
            self.device.freed_behind.extend(self.events)

    def __repr__(self) -> str:
        state = " retired" if self.retired else ""
        return f"<Slab {self.uuid.hex()[:8]} {self.device.name} {self.nbytes} bytes{state}>"


def let_go(slabs: list[Slab], seconds: float = DEFAULT_LIMITS.close_timeout) -> None:
    """Empty a list of slabs, and let their devices unmap what nothing uses; never under a lock."""
    devices = {slab.device for slab in slabs}
    slabs.clear()
    for device in devices:
        device.sweep(seconds)


def identity_of(fd: int) -> tuple[int, int]:
    """Return (device, inode) of a descriptor: equal only for the same memory while any of it is open."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def needing_descriptor(what: str) -> Iterator[None]:
    """Raise :class:`~bowstring.errors.LimitExceeded` if this process, or the machine, can open no more files."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_DESCRIPTOR:
            raise
        raise no_descriptor(what, error) from error


def no_descriptor(what: str, error: OSError) -> LimitExceeded:
    """Return the error for a call that needs a descriptor, where the system says `NO_DESCRIPTOR`."""
    return LimitExceeded(
        f"no descriptor is left for {what}",
        found=error.strerror,
        hint="Raise the limit of open files (ulimit -n).",
    )


def fresh_memfd(nbytes: int) -> Descriptor:
    """Make a memfd of `nbytes` bytes that can still be sealed."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    with needing_descriptor("a region"):
        try:
            fd = opened(os.memfd_create, "bowstring", flags | _MFD_NOEXEC_SEAL)
        except OSError:
            fd = opened(os.memfd_create, "bowstring", flags)
    try:
        os.ftruncate(fd, nbytes)
    except OSError as error:
        fd.close()
        if error.errno in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG):
            raise OutOfBudget("the system has no room for a region", found=f"{nbytes} bytes") from error
        raise
    return fd


def reopen(fd: int, flags: int) -> Descriptor:
    """Open the memory of a descriptor anew, such as for reading only: no writable descriptor leaves the process."""
    try:
        with needing_descriptor("a region"):
            return opened(os.open, f"/proc/self/fd/{int(fd)}", flags | os.O_CLOEXEC)
    except FileNotFoundError as error:
        os.fstat(fd)  # it is there itself
        raise Unsupported(
            "memory is shared by way of /proc, which is not mounted",
            found=error.strerror,
            where=str(error.filename),
            hint="Mount it: mount -t proc proc /proc.",
        ) from error


def host_slab(device: Device, nbytes: int) -> Slab:
    """Make host memory that only this mapping can ever write.

    It is sealed against all changes of size, and no process can map it for writing, not even by reopening it.
    """
    fd = fresh_memfd(nbytes)
    try:
        try:
            memory, address = mapped(fd, nbytes, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as error:
            raise OutOfBudget("the system has no room to map a region", found=f"{nbytes} bytes") from error
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS | _F_SEAL_FUTURE_WRITE)
        shared = reopen(fd, os.O_RDONLY)
    finally:
        fd.close()
    return Slab(device, memory, address=address, nbytes=nbytes, uuid=os.urandom(16), writable=True, fd=shared)


def map_host_slab(device: Device, fd: int, nbytes: int, uuid: bytes, *, private: bool = False) -> Slab:
    """Map host memory that another process made. Takes ownership of `fd`, whatever happens.

    Read-only, or `private`: copy-on-write, so that a page that this process writes becomes its own.
    """
    try:
        identity = check_sealed(fd, nbytes)
        try:
            protection = mmap.PROT_READ | (mmap.PROT_WRITE if private else 0)
            memory, address = mapped(fd, nbytes, protection, private=private)
        except (OSError, ValueError) as error:
            raise InvalidRegion("a region cannot be mapped", found=str(error)) from error
    finally:
        close_descriptor(fd)
    return Slab(
        device,
        memory,
        address=address,
        nbytes=nbytes,
        uuid=uuid,
        writable=False,
        private=private,
        identity=identity,
    )


def check_sealed(fd: int, nbytes: int) -> tuple[int, int]:
    """Return the identity of a descriptor's memory; raise `InvalidRegion` if it could shrink or has another size.

    A file without a name that has all of its disk space passes: only trusted processes of this user have it open.
    """
    # The seals before the size: a size that was right before it was sealed may have changed.
    refused = _why_not_sealed(fd)
    status = os.fstat(fd)
    if refused is not None and not _is_reserved_file(fd, status):
        raise refused
    if status.st_size != nbytes or nbytes <= 0:
        raise InvalidRegion("a region is not of the announced size", expected=nbytes, found=status.st_size)
    return status.st_dev, status.st_ino


def _why_not_sealed(fd: int) -> InvalidRegion | None:
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        return InvalidRegion(
            "a region must be a sealed memfd, or a file of ours without a name",
            found=f"a descriptor without seals ({error.strerror})",
            hint="Any process could cut a file with a name short under the views of its reader.",
        )
    if seals & SEALS == SEALS:
        return None
    missing = [name for seal, name in _SEAL_NAMES.items() if not seals & seal]
    return InvalidRegion("a region is not sealed", expected="SHRINK, GROW, SEAL", found=f"no {missing}")


def _is_reserved_file(fd: int, found: os.stat_result) -> bool:
    if not stat.S_ISREG(found.st_mode) or found.st_nlink or found.st_uid != os.geteuid():
        return False
    if found.st_blocks * _BLOCK < found.st_size:
        return False
    # A memfd has no name either, but it must be sealed.
    return not os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:")


LARGE_PAGE: Final = 2 << 20
_MADV_COLLAPSE: Final = 25
_NOTHING: Final = 0  # PROT_NONE
_NO_RESERVE: Final = 0x4000  # MAP_NORESERVE
_FIXED: Final = 0x10  # MAP_FIXED
_FAILED: Final = ctypes.c_void_p(-1).value
# Bytes asked for at a time; no more are if that took longer than small pages take.
COLLAPSED_AT_ONCE: Final = 64 << 20
COLLAPSE_SECONDS: Final = 0.5


@functools.cache
def libc() -> Any:
    """Return the C library, with the types of what is called here."""
    library = ctypes.CDLL(None, use_errno=True)
    size, number = ctypes.c_size_t, ctypes.c_int
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (ctypes.c_void_p, size, number, number, number, ctypes.c_long)
    library.madvise.argtypes = (ctypes.c_void_p, size, number)
    library.mincore.argtypes = (ctypes.c_void_p, size, ctypes.c_void_p)
    return library


def mapped(
    fd: int, nbytes: int, protection: int, *, filled: bool = False, private: bool = False
) -> tuple[mmap.mmap, int]:
    """Map the memory of a descriptor; return the object that keeps it mapped, and its address.

    `filled`: all pages are present on return. `private`: copy-on-write.
    """
    flags = (mmap.MAP_PRIVATE if private else mmap.MAP_SHARED) | (mmap.MAP_POPULATE if filled else 0)
    # A large page must begin at a multiple of its size, and `mmap.mmap` takes no address, and keeps a descriptor of
    # its own. So it reserves the address range, and the descriptor is mapped over that; all of it is unmapped with
    # the reservation.
    large = nbytes >= LARGE_PAGE
    reserved = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    try:
        memory = mmap.mmap(-1, nbytes + LARGE_PAGE * large, reserved, _NOTHING)
    except OverflowError as error:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from error
    address = _address_of(memory)
    if large:
        address = -(-address // LARGE_PAGE) * LARGE_PAGE
    if large and filled:
        _map_over(address, nbytes, protection, mmap.MAP_SHARED, fd)
        ask_for_large_pages(address, nbytes & -LARGE_PAGE)
    _map_over(address, nbytes, protection, flags, fd)
    return memory, address


def _map_over(address: int, nbytes: int, protection: int, flags: int, fd: int) -> None:
    if libc().mmap(address, nbytes, protection, flags | _FIXED, fd, 0) == _FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _address_of(memory: mmap.mmap) -> int:
    address: int = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    return address


def ask_for_large_pages(address: int, nbytes: int) -> None:
    """Have the kernel back memory that :func:`mapped` mapped for writing by large pages, as far as it can.

    Contents stay; the rest is filled with zeros. Address and size are multiples of `LARGE_PAGE`.
    """
    for start in range(address, address + nbytes, COLLAPSED_AT_ONCE):
        size = min(COLLAPSED_AT_ONCE, address + nbytes - start)
        begin = time.monotonic()
        # Without any page there is nothing to collapse, so the first small page of each is touched.
        firsts = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start))[::LARGE_PAGE]
        firsts.max()
        if libc().madvise(start, size, _MADV_COLLAPSE) or time.monotonic() > begin + COLLAPSE_SECONDS:
            return


def has_page(address: int) -> bool:
    """Return whether there is a page of memory at an address that this process has mapped."""
    seen = ctypes.c_ubyte()
    result = libc().mincore(address & -mmap.PAGESIZE, 1, ctypes.addressof(seen))
    return result == 0 and bool(seen.value & 1)
