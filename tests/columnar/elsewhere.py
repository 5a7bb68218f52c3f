"""What another library has on a device."""

from __future__ import annotations

from typing import Any

from bowstring.columnar.batch import Batch
from bowstring.memory import Buffer, Device, foreign_region

__all__ = ["Elsewhere", "buffer_of"]


def buffer_of(array: Any, device: Device) -> Buffer:
    """Return the memory of a contiguous array of a device as a buffer, without a copy."""
    address = array.ctypes.data if device.is_host else array.data.ptr
    return Buffer(foreign_region(address, array.nbytes, array, device), 0, array.nbytes)


class Elsewhere:
    """It knows this one method, and is no batch of ours."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def __arrow_c_device_array__(self, requested_schema: Any = None, **_: Any) -> Any:
        return self.batch.__arrow_c_device_array__(requested_schema)
