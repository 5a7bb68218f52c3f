"""A process whose CUDA driver is ``stub_cuda.c``: it calls ours through the installed bindings."""

from __future__ import annotations

import ctypes
import gc
import os
from typing import Any

from bowstring.errors import DeviceError
from bowstring.memory.cuda.bindings import cuda_driver
from bowstring.memory.cuda.device import cuda_device

__all__ = ["OverStub"]

_ROOM = 4096
_BUSY = 2  # a stream
_CAPTURED, _LEGACY = 7, 1  # streams: one that is captured, and the one that waits for it


class OverStub:
    """Uses the driver, and says what came of it."""

    def __init__(self) -> None:
        self._stub = ctypes.CDLL("libcuda.so.1")
        self._driver = cuda_driver()

    def devices(self) -> list[list[Any]]:
        """Return name here, name over there, UUID, and whether memory can be exported, of each device."""
        driver = self._driver
        return [
            [
                cuda_device(each).name,
                driver.device_name(each),
                driver.device_uuid(each).hex(),
                driver.can_export(each),
            ]
            for each in range(driver.device_count())
        ]

    def hand_over(self, nbytes: int, value: int) -> dict[str, Any]:
        """Make memory, write it, map it anew from its descriptor, and give all back; return what was seen."""
        device = cuda_device(1)
        slab = device.make_slab(nbytes)
        ctypes.memset(slab.address, value, nbytes)
        mapped = device.map_slab(os.dup(slab.fd), nbytes, slab.uuid)
        found = {
            "seen": ctypes.string_at(mapped.address, nbytes)[-1],
            "inherited": os.get_inheritable(slab.fd),
            "read_only": device.maps_read_only,
            "rdma": self._driver.direct_rdma,
        }
        del slab, mapped
        gc.collect()
        device.sweep()
        return found

    def held(self) -> list[int]:
        """Return what was not given back, and how many contexts are on this thread's stack."""
        return [self._stub.stub_held(), self._stub.stub_depth()]

    def attributes(self, forget: int) -> list[Any]:
        """Return the attributes of an address that the driver knows, does not, or takes for a pool's."""
        self._stub.stub_forget_addresses(forget)
        return list(self._driver.pointer_attributes(1, _ROOM))

    def memory_handle(self, address: int) -> int:
        """Return where the handle of an allocation is opened."""
        start, _ = self._driver.address_range(0, address + 5)
        opened = self._driver.open_ipc_handle(0, self._driver.get_ipc_handle(0, start))
        self._driver.close_ipc_handle(0, opened)
        return opened

    def event_handle(self) -> int:
        """Record an event, and return the one that its handle opens."""
        driver = self._driver
        mine = driver.event_create(0, shared=True)
        driver.event_record(0, mine, _BUSY)
        assert not driver.event_done(0, mine)
        theirs = driver.open_ipc_event_handle(0, driver.get_ipc_event_handle(0, mine))
        driver.stream_wait_event(0, 1, theirs)
        for each in (mine, theirs):
            driver.event_destroy(0, each)
        return theirs

    def copies(self, value: int) -> list[Any]:
        """Copy bytes to one device, to the other, and back; return them and what streams and devices say."""
        driver, slabs = self._driver, [cuda_device(each).make_slab(_ROOM) for each in (0, 1)]
        here, there = (each.address for each in slabs)
        pinned = driver.pin(0, _ROOM)
        ctypes.memset(pinned, value, _ROOM)
        driver.copy_in(0, here, pinned, _ROOM, 3)
        cuda_device(0).let_in(slabs[0], cuda_device(1))
        driver.copy_peer(there, 1, here, 0, _ROOM, 3)
        ctypes.memset(pinned, 0, _ROOM)
        driver.copy_out(1, pinned, there, _ROOM, 0)
        found = ctypes.string_at(pinned, _ROOM)[-1]
        driver.unpin(0, pinned)
        self._stub.stub_capture(1)
        said = [
            driver.stream_capturing(0, 0),
            driver.stream_capturing(0, _CAPTURED),
            driver.stream_capturing(0, _LEGACY),
            driver.event_done(0, self._event()),
        ]
        self._stub.stub_capture(0)
        del slabs
        gc.collect()
        for each in (0, 1):
            driver.synchronize(each)
            cuda_device(each).sweep()
        return [found, *said, list(driver.memory_info(0))]

    def _event(self) -> int:
        event = self._driver.event_create(0)
        self._driver.event_record(0, event, _BUSY)
        return event

    def private(self, nbytes: int, value: int) -> int:
        """Allocate memory that cannot be exported, write it, give it back; return what was seen."""
        address = self._driver.allocate_private(0, nbytes)
        ctypes.memset(address, value, nbytes)
        seen = ctypes.string_at(address, nbytes)[-1]
        self._driver.free_private(0, address)
        return seen

    def refused(self) -> str:
        """Return what is found where a device is asked for that is not there."""
        try:
            self._driver.device_uuid(5)
        except DeviceError as error:
            return str(error.found)
        return "nothing"
