"""What readers and writers are told by their user, checked before anything is opened."""

from __future__ import annotations

import operator
import os
from typing import Any, Literal

import pyarrow as pa

from bowstring.errors import UsageError
from bowstring.limits import Limits
from bowstring.memory import Device, device_by_name

__all__ = ["check_file", "check_reading", "device_meant", "file_path", "footer_end"]

_ASKED = {"readable": "reading", "writable": "writing"}


def check_reading(limits: Any, memory_pool: Any = None) -> None:
    """Refuse bounds and pools that are none.

    Raises
    ------
    UsageError
        One of them is something else.
    """
    if not isinstance(limits, Limits):
        raise UsageError("not limits", expected="a bowstring.Limits", found=repr(limits)[:80])
    if memory_pool is not None and not isinstance(memory_pool, pa.MemoryPool):
        raise UsageError("not a memory pool", expected="a pyarrow.MemoryPool", found=repr(memory_pool)[:80])


def device_meant(device: Any) -> Device | None:
    """Return the device that a user names.

    Raises
    ------
    UsageError
        It is neither a device nor a name.
    NotOnDevice
        This process has no such device.
    """
    if isinstance(device, str):
        return device_by_name(device)
    if not isinstance(device, Device | None):
        raise UsageError("not a device", expected="a Device, or a name such as 'cuda:0'", found=repr(device))
    return device


def footer_end(offset: Any, size: int) -> int:
    """Return where a file ends within a source of some size; the source's end where nothing is said.

    Raises
    ------
    UsageError
        It is no number, or lies outside.
    """
    if offset is None:
        return size
    if isinstance(offset, bool) or not hasattr(offset, "__index__"):
        raise UsageError("footer_offset is a number of bytes", found=repr(offset)[:80])
    end = operator.index(offset)
    if not 0 <= end <= size:
        raise UsageError("footer_offset lies outside the source", expected=f"0 to {size}", found=end)
    return end or size


def file_path(path: Any) -> str:
    """Return what names a file, if it can: it may not be there.

    Raises
    ------
    UsageError
        No file can have that name.

    Examples
    --------
    >>> file_path("trips.arrow")
    'trips.arrow'
    """
    try:
        name = os.fsencode(path)
    except (TypeError, UnicodeEncodeError) as error:
        raise UsageError("this is no path of a file", found=ascii(path)[:80]) from error
    if b"\0" in name:
        raise UsageError("a path holds no zero byte", found=ascii(path)[:80])
    return os.fsdecode(name)


def check_file(file: Any, wanted: Literal["readable", "writable"]) -> None:
    """Refuse a file object that is closed, or says that it was opened for something else.

    Raises
    ------
    UsageError
        It is.
    """
    if getattr(file, "closed", False) is True:
        raise UsageError("the file is closed", found=repr(file)[:120])
    asked = getattr(file, wanted, None)
    if callable(asked) and asked() is False:
        raise UsageError(f"the file was not opened for {_ASKED[wanted]}", found=repr(file)[:120])
