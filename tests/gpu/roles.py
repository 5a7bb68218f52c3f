"""Roles of processes for tests on a device: tables of any size, private streams, and what a driver still holds."""

from __future__ import annotations

import gc
import os
import threading
from typing import Any

import numpy as np

import bowstring as bow
from bowstring.memory import Device, device_by_name, mappings, named_streams
from tests.gpu.processes import Consumer, Producer

__all__ = ["HeldStream", "PrivateReader", "SizedConsumer", "SizedProducer", "free_bytes"]

_HELD = 91  # the address of a stream of the fake device
_ENDS = 64


def free_bytes(device: Device) -> int | None:
    """Return the bytes that the driver has left; nothing on the fake device."""
    cuda = getattr(device.xp, "cuda", None)
    if cuda is None:
        return None
    with cuda.Device(device.arrow_device_id):
        cuda.get_current_stream().synchronize()
        return int(cuda.runtime.memGetInfo()[0])


def held(device: Device) -> dict[str, Any]:
    """Return what this process holds of a device: with the fake driver's own counts, or the driver's free bytes."""
    gc.collect()
    mappings().trim()
    mappings().clear()
    device.sweep()
    counted = getattr(getattr(device, "driver", None), "held", None)
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "driver": None if counted is None else list(counted),
        "free": free_bytes(device),
        # Those that wait for work go by themselves, and are as many as were busy at once.
        "threads": sum(not each.name.startswith("idle") for each in threading.enumerate()),
    }


def column(device: Device, nbytes: int, seed: int) -> Any:
    """Return so many bytes on a device, others for another seed."""
    xp = device.xp
    words = xp.arange(nbytes // 8 + 1, dtype=xp.int64) * (2 * seed + 1) + seed
    return words.view(xp.uint8)[:nbytes]


def seen(device: Device, array: Any) -> list[Any]:
    """Return what is compared of bytes on a device: their sum, their number, and both ends."""
    xp = device.xp
    total = device.to_host(xp.sum(array, dtype=xp.uint64).reshape(1))
    ends = [device.to_host(xp.ascontiguousarray(part)).tolist() for part in (array[:_ENDS], array[-_ENDS:])]
    return [int(total[0]), array.nbytes, *ends]


def only_column(batch: bow.Batch) -> Any:
    """Return the bytes of a batch of one column."""
    buffer = batch.buffers[1]
    assert buffer is not None
    return buffer.array()


class SizedProducer(Producer):
    """Publishes columns of any number of bytes from a device."""

    def publish_bytes(self, nbytes: int, seed: int = 1) -> list[Any]:
        """Return the URI, and what a reader should see."""
        data = column(self._device, nbytes, seed)
        expected = seen(self._device, data)
        self._count += 1
        return [str(self._server.publish(f"t{self._count}", {"bytes": data}, readers=1)), expected]

    def held(self) -> dict[str, Any]:
        """Return what this process holds of the device."""
        return held(self._device)

    def trim(self) -> None:
        """Give idle memory back to the driver."""
        self._pool.trim()

    def free(self) -> int | None:
        """Return the bytes that the driver has left."""
        return free_bytes(self._device)


class SizedConsumer(Consumer):
    """Takes columns of any number of bytes."""

    def take_bytes(self, endpoint: str, mode: Any = "map", device: str | None = None) -> dict[str, Any]:
        """Return what is seen of the only column, where it lies, and by which path it came."""
        with bow.connect(endpoint, mode=mode, device=device) as stream:
            [batch] = stream
            path = stream.stats.path
        array = only_column(batch)
        return {"seen": seen(batch.device, array), "device": batch.device.name, "path": path}

    def held(self) -> dict[str, Any]:
        """Return what this process holds of the device."""
        return held(self._device)


class HeldStream:
    """A stream of its own on which nothing is done before the test says so.

    On a GPU it waits for a word of memory (``cuStreamWaitValue32``), which is written on another stream.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        cuda = getattr(device.xp, "cuda", None)
        if cuda is None:
            self.stream: Any = _HELD
            device.driver.begin_work(_HELD)
            return
        from cuda.bindings import driver

        self._word = device.xp.zeros(1, np.uint32)
        self._other, self.stream = cuda.Stream(non_blocking=True), cuda.Stream(non_blocking=True)
        cuda.get_current_stream().synchronize()
        at_least = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        (status,) = driver.cuStreamWaitValue32(self.stream.ptr, self._word.data.ptr, 1, at_least)
        assert int(status) == 0, status

    @property
    def done(self) -> bool:
        """Whether all that is queued on it is done."""
        found = self._device.driver.is_idle(_HELD) if self.stream == _HELD else self.stream.done
        return bool(found)

    def release(self) -> None:
        """Let it go on, and wait until all is done."""
        if self.stream == _HELD:
            self._device.driver.end_work(_HELD)
            return
        with self._other:
            self._word.fill(1)
        self.stream.synchronize()


class PrivateReader:
    """Reads a table on a stream of its own, which nobody else waits for, and lets the table go at once."""

    def __init__(self, device: str) -> None:
        self._device: Any = device_by_name(device)
        # What compiles, and what a first use makes, waits for nothing that is held.
        warm = self._device.xp.empty(8, np.uint8)
        warm[:] = self._device.xp.zeros(8, np.uint8)
        seen(self._device, warm)
        self._held = HeldStream(self._device)
        self._result: Any = None

    def begin(self, endpoint: str) -> None:
        """Queue a read into a result behind what holds the stream, and drop the batch."""
        xp = self._device.xp
        with bow.connect(endpoint, mode="map", cuda_stream=self._held.stream) as stream:
            [batch] = stream
        array = only_column(batch)
        self._result = xp.empty(array.nbytes, xp.uint8)
        with self._device.on(named_streams(self._held.stream)):
            self._result[:] = array
        del array, batch, stream
        gc.collect()

    def is_reading(self) -> bool:
        """Whether what was queued is not done yet."""
        return not self._held.done

    def finish(self) -> list[Any]:
        """Return what was read, when all is done."""
        self._held.release()
        return seen(self._device, self._result)
