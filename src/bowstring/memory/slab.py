"""What slabs of the host are made of: descriptors, sealed memfds, and mappings of them."""

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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Linux 6.3; a system may demand it (vm.memfd_noexec).
_MFD_NOEXEC_SEAL: Final = 0x0008
SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
# F_SEAL_FUTURE_WRITE of Linux 5.1: what is mapped for writing by then stays so; nothing else can be.
SEAL_ALL: Final = SEALS | 0x0010
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


def check_sealed(fd: int, nbytes: int) -> tuple[int, int]:
    """Return the identity of a descriptor's memory; raise `InvalidRegion` if it could shrink or has another size.

    A file without a name that has all of its disk space passes: only trusted processes of this user have it open.
    """
    # The seals before the size: a size that was right before it was sealed may have changed.
    refused: InvalidRegion | None = None
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        refused = InvalidRegion(
            "a region must be a sealed memfd, or a file of ours without a name",
            found=f"a descriptor without seals ({error.strerror})",
            hint="Any process could cut a file with a name short under the views of its reader.",
        )
    else:
        if seals & SEALS != SEALS:
            missing = [name for seal, name in _SEAL_NAMES.items() if not seals & seal]
            refused = InvalidRegion(
                "a region is not sealed", expected="SHRINK, GROW, SEAL", found=f"no {missing}"
            )
    status = os.fstat(fd)
    if refused is not None and not _is_reserved_file(fd, status):
        raise refused
    if status.st_size != nbytes or nbytes <= 0:
        raise InvalidRegion("a region is not of the announced size", expected=nbytes, found=status.st_size)
    return status.st_dev, status.st_ino


def _is_reserved_file(fd: int, status: os.stat_result) -> bool:
    is_own = stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_uid == os.geteuid()
    is_reserved = is_own and status.st_blocks * _BLOCK >= status.st_size
    # A memfd has no name either, but it must be sealed.
    return is_reserved and not os.readlink(f"/proc/self/fd/{fd}").startswith("/memfd:")


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
    address: int = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
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
