"""Pages: host memory is mapped at addresses that fit large pages, and the kernel is asked for them.

Pages of 4 KiB cost one fault each, and a TLB holds only some thousands of them; one page of 2 MiB stands for 512.
The system's own setting (``/sys/kernel/mm/transparent_hugepage/shmem_enabled``) is mostly "never", but a process
may ask for its own memory (``MADV_COLLAPSE``, Linux 6.1). If it may not, everything works with small pages.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import time
from typing import Any, Final

import numpy as np

__all__ = ["LARGE_PAGE", "ask_for_large_pages", "mapped"]

LARGE_PAGE: Final = 2 << 20
_MADV_COLLAPSE: Final = 25
_NOTHING: Final = 0  # PROT_NONE
_NO_RESERVE: Final = 0x4000  # MAP_NORESERVE
_FIXED: Final = 0x10  # MAP_FIXED
_FAILED: Final = ctypes.c_void_p(-1).value
# Bytes asked for at a time; no more are if that took longer than small pages take.
_AT_ONCE: Final = 64 << 20
_SECONDS: Final = 0.5


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    size, number = ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, size, number, number, number, ctypes.c_long)
    libc.madvise.argtypes = (ctypes.c_void_p, size, number)
    return libc


def mapped(fd: int, nbytes: int, protection: int, *, filled: bool = False) -> tuple[mmap.mmap, int]:
    """Map the memory of a descriptor; return the object that keeps it mapped, and its address.

    With `filled`, all of its pages are present on return, large ones if the kernel gives them.

    Raises
    ------
    OSError, ValueError
        The system refuses.
    """
    flags = mmap.MAP_SHARED | (mmap.MAP_POPULATE if filled else 0)
    # A large page must begin at a multiple of its size, and `mmap.mmap` takes no address, and keeps a descriptor of
    # its own. So it reserves the address range, and the descriptor is mapped over that; all of it is unmapped with
    # the reservation.
    large = nbytes >= LARGE_PAGE
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    try:
        memory = mmap.mmap(-1, nbytes + LARGE_PAGE * large, private, _NOTHING)
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
    if _libc().mmap(address, nbytes, protection, flags | _FIXED, fd, 0) == _FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _address_of(memory: mmap.mmap) -> int:
    address: int = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    return address


def ask_for_large_pages(address: int, nbytes: int) -> None:
    """Have the kernel back memory that :func:`mapped` mapped for writing by large pages, as far as it can.

    Contents stay; the rest is filled with zeros. Address and size are multiples of `LARGE_PAGE`.
    """
    for start in range(address, address + nbytes, _AT_ONCE):
        size = min(_AT_ONCE, address + nbytes - start)
        begin = time.monotonic()
        # Without any page there is nothing to collapse, so the first small page of each is touched.
        firsts = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start))[::LARGE_PAGE]
        firsts.max()
        if _libc().madvise(start, size, _MADV_COLLAPSE) or time.monotonic() > begin + _SECONDS:
            return
