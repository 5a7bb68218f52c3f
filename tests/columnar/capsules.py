"""What lies in the capsules of Arrow's C interfaces and of DLPack."""

from __future__ import annotations

import ctypes
from typing import Any, Final

__all__ = ["STRUCT_BYTES", "address_in", "event_in"]

STRUCT_BYTES: Final = 80
"""Size of the struct ArrowArray, with which ArrowDeviceArray begins."""
_EVENT_AT: Final = STRUCT_BYTES + 16

_POINTER = ctypes.pythonapi.PyCapsule_GetPointer
_POINTER.restype, _POINTER.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def address_in(capsule: Any, name: bytes) -> int:
    """Return the address that a capsule of that name holds."""
    return int(_POINTER(capsule, name))


def event_in(address: int) -> int | None:
    """Return the handle of the event of the struct ArrowDeviceArray at an address, if it has one."""
    at = ctypes.c_void_p.from_address(address + _EVENT_AT).value
    return None if at is None else ctypes.c_uint64.from_address(at).value
