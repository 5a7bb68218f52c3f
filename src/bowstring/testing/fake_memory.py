"""Memory of fake devices: mappings that nobody may touch, as the host may not touch that of a GPU."""

from __future__ import annotations

import ctypes
import functools
import mmap
from typing import Any, Final

from bowstring.errors import DeviceError, OutOfBudget

__all__ = ["FIXED", "libc", "map_untouchable", "refused", "whole_pages"]

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
    """Map memory that nobody may touch yet: whoever does gets what a GPU gives."""
    found = libc().mmap(address or None, nbytes, _NOTHING, flags, fd, 0)
    if found in (None, _FAILED):
        raise OutOfBudget("the system has no room to map memory", found=f"{nbytes} bytes")
    return int(found)


def refused(call: str, found: str) -> DeviceError:
    """Return the error of a call, as a driver's."""
    return DeviceError(f"{call} failed", found=found)
