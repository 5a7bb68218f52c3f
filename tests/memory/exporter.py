"""A process that allocates memory on the fake device, and says by which handles it can be opened."""

from __future__ import annotations

from typing import Any

import numpy as np

from bowstring.memory import LentHandle, lendable
from bowstring.testing import fake_device

__all__ = ["Exporter"]


class Exporter:
    """Has allocations by their addresses."""

    def __init__(self) -> None:
        self._device = fake_device()
        self._arrays: dict[int, Any] = {}

    def allocate(self, value: int, nbytes: int = 1000) -> list[Any]:
        """Allocate bytes of one value; return address and handle, in hexadecimal digits."""
        array = self._device.allocate(nbytes)
        array[:] = self._device.from_host(np.full(nbytes, value, np.uint8))
        self._arrays[array.data.ptr] = array
        handle = lendable(self._device, array.data.ptr + nbytes // 2)
        assert isinstance(handle, LentHandle)
        return [array.data.ptr, handle.pack().hex()]

    def small(self, sizes: list[int]) -> list[str]:
        """Allocate blocks of one granule, each of its number; return the driver's handles, as digits."""
        found: list[str] = []
        for number, address in enumerate(self._device.driver.allocate_together(0, sizes)):
            array = self._device.array(address, sizes[number], None, writable=True)
            array[:] = self._device.from_host(np.full(sizes[number], number, np.uint8))
            found.append(self._device.driver.get_ipc_handle(0, address).hex())
        return found

    def event(self) -> str:
        """Record an event; return the driver's handle of it, in hexadecimal digits."""
        self._recorded = self._device.record(shared=True)
        return self._device.driver.get_ipc_event_handle(0, self._recorded.handle).hex()

    def free(self, address: int) -> None:
        """Free an allocation."""
        del self._arrays[address]
