"""The structs of Arrow's C data interface, as tables of 64-bit words.

``struct ArrowArray`` is ten words: length, null_count, offset, n_buffers, n_children, buffers, children,
dictionary, release, private_data. Every struct that leaves Bowstring is first made by pyarrow, over memory
that hangs on the batch, and then gets other first eight words: so its release callback is pyarrow's own, and
no Python code runs when a consumer calls it, in whatever thread, even after the interpreter's end.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bowstring.memory import Device
from bowstring.memory.dlpack import address_in

if TYPE_CHECKING:
    from bowstring.memory.cuda.events import RecordedEvent

STRUCT_WORDS: Final = 10
STRUCT_BYTES: Final = 8 * STRUCT_WORDS
# struct ArrowDeviceArray: the ArrowArray, then device_id, device_type (and padding), sync_event, reserved[3]
_DEVICE_WORDS: Final = 6
_DEVICE: Final = struct.Struct("=qi")
_EVENT_AT: Final = 16
_RELEASE: Final = 8  # which word of the struct
_RELEASING: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Anchor:
    """Makes structs of pyarrow's that keep `owner` alive."""

    __slots__ = ("_array",)

    def __init__(self, owner: object) -> None:
        # Any address will do: the structs made of this array get other buffers.
        buffer = pa.foreign_buffer(STRUCT_BYTES, 0, base=owner)
        self._array = pa.Array.from_buffers(pa.int8(), 0, [None, buffer], 0)

    def fill(self, address: int) -> None:
        self._array._export_to_c(address)

    def capsule(self) -> Any:
        return self._array.__arrow_c_array__()[1]

    def device_capsule(self) -> Any:
        return self._array.__arrow_c_device_array__()[1]


def device_in(address: int) -> tuple[int, int]:
    """Return (device type, device id) of the struct ArrowDeviceArray at an address."""
    device_id, device_type = _DEVICE.unpack(ctypes.string_at(address + STRUCT_BYTES, _DEVICE.size))
    return device_type, device_id


def event_in(address: int) -> int | None:
    """Return the handle of the event (``cudaEvent_t``) of the struct at an address, if it has one."""
    at = ctypes.c_void_p.from_address(address + STRUCT_BYTES + _EVENT_AT).value
    return None if at is None else ctypes.c_uint64.from_address(at).value


def write_device(address: int, device: Device, event: RecordedEvent | None = None) -> None:
    """Write a device into the struct ArrowDeviceArray at an address, and an event, which it must keep alive.

    Without an event its data must be ready.
    """
    words = (ctypes.c_int64 * _DEVICE_WORDS).from_address(address + STRUCT_BYTES)
    at = 0 if event is None else event.address
    words[:] = [device.arrow_device_id, device.arrow_device_type, at, 0, 0, 0]


def empty_device_capsule() -> Any:
    """Return a capsule ``arrow_device_array`` with nothing in it: for others to write a struct into.

    What is written is released with the capsule, by pyarrow's code.
    """
    capsule = Anchor(None).device_capsule()
    address = address_in(capsule, b"arrow_device_array")
    release(address)
    return capsule


def release(address: int) -> None:
    """Release the struct at an address, if it holds anything."""
    callback = ctypes.c_void_p.from_address(address + 8 * _RELEASE).value
    if callback is not None:
        _RELEASING(callback)(address)


def is_released(address: int) -> bool:
    """Whether the struct at an address holds nothing, or nothing any more."""
    return ctypes.c_void_p.from_address(address + 8 * _RELEASE).value is None
