"""The processes of the probe: one that makes memory, one that only keeps its descriptor, one that maps it."""

from __future__ import annotations

import os
import socket
import statistics
import threading
import time
from typing import Any

import numpy as np

from bowstring.kernels.bitmap import with_words
from bowstring.kernels.launch import launch
from bowstring.kernels.validity import pack_flags
from bowstring.memory import Device, Handle, Region, Slab, device_by_name, unpack_handle
from bowstring.testing import FakeDevice

__all__ = ["Exporter", "Importer", "Keeper"]

_SECONDS = 30.0


def send(path: str, fd: int) -> None:
    """Hand a descriptor to whoever listens at a path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(_SECONDS)
        peer.connect(path)
        socket.send_fds(peer, [b"m"], [fd])
        peer.recv(1)


def listening(path: str) -> socket.socket:
    """Listen at a path."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.settimeout(_SECONDS)
    listener.bind(path)
    listener.listen()
    return listener


def received(listener: socket.socket) -> int:
    """Return the descriptor that comes."""
    peer, _ = listener.accept()
    with peer:
        peer.settimeout(_SECONDS)
        _, fds, _, _ = socket.recv_fds(peer, 1, 1)
        peer.sendall(b"k")
    [fd] = fds
    return fd


def contexts(device: Any, array: Any) -> dict[str, int]:
    """Return the current context of each library that works on an array, by its address."""
    from cuda.bindings import driver

    from bowstring.kernels.cubin import numba_cuda

    numba = numba_cuda()
    ours = device.driver._context(device.ordinal)
    with device.xp.cuda.Device(device.ordinal):
        array.sum()
        _, cupys = driver.cuCtxGetCurrent()
    with numba.gpus[device.ordinal]:
        assert numba.as_cuda_array(array).copy_to_host().any()
        _, numbas = driver.cuCtxGetCurrent()
    return {"ours": int(ours), "CuPy's": int(cupys), "numba-cuda's": int(numbas)}


def free(device: Device) -> int:
    """Return how many bytes of a device nobody uses; of a fake one, less by what this process has mapped."""
    if isinstance(device, FakeDevice):
        return -sum(device.driver._mapped.values())
    with device.xp.cuda.Device(device.arrow_device_id):
        return int(device.xp.cuda.runtime.memGetInfo()[0])


class Exporter:
    """Makes memory, fills it, and hands it out."""

    def __init__(self, device: str) -> None:
        self._device = device_by_name(device)
        self._slab: Slab | None = None

    def make(self, nbytes: int, value: int) -> dict[str, Any]:
        """Make memory full of one value; return its handle, and how long making took, in seconds."""
        begin = time.perf_counter()
        self._slab = self._device.make_slab(nbytes)
        seconds = time.perf_counter() - begin
        self.fill(value)
        return {"handle": Handle.of(Region.of_slab(self._slab)).pack().hex(), "seconds": seconds}

    def fill(self, value: int) -> None:
        """Write the value to all bytes, and wait for it."""
        slab = self._made()
        array = self._device.array(slab.address, slab.nbytes, slab, writable=True)
        array[:] = np.uint8(value)
        self._device.synchronize()

    def _made(self) -> Slab:
        assert self._slab is not None
        return self._slab

    def send(self, path: str) -> None:
        """Hand the descriptor to a process."""
        send(path, self._made().fd)

    def drop(self) -> None:
        """Let everything go: mapping, handle, descriptor."""
        self._slab = None
        self._device.sweep()

    def free(self) -> int:
        """Return the free bytes of the device."""
        return free(self._device)


class Keeper:
    """Keeps a descriptor, and never starts the driver."""

    def __init__(self, path: str) -> None:
        self._listener = listening(path)
        self._fd = -1

    def take(self) -> None:
        """Take the descriptor that comes."""
        self._fd = received(self._listener)

    def identity(self) -> dict[str, int]:
        """Return what the kernel says of the descriptor that came last; those before it stay open."""
        status = os.fstat(self._fd)
        return {"device": status.st_dev, "inode": status.st_ino, "special": status.st_rdev}

    def send(self, path: str) -> None:
        """Hand it on, and keep it no longer."""
        send(path, self._fd)
        os.close(self._fd)


class Importer:
    """Maps memory of another process, and reads it."""

    def __init__(self, device: str, path: str) -> None:
        self._device = device_by_name(device)
        self._listener = listening(path)
        self._fd = -1
        self._slab: Slab | None = None
        self._wrong = 0
        self._rounds = 0
        self._stop = threading.Event()
        self._worker: threading.Thread | None = None

    def take(self) -> None:
        """Take the descriptor that comes."""
        self._fd = received(self._listener)

    def map(self, handle: str) -> dict[str, Any]:
        """Map what was taken; return how long that took, and whether it cannot be written."""
        known = unpack_handle(bytes.fromhex(handle))
        begin = time.perf_counter()
        self._slab = self._device.map_slab(os.dup(self._fd), known.nbytes, known.uuid)
        return {
            "seconds": time.perf_counter() - begin,
            "read_only": getattr(self._device, "maps_read_only", None),
        }

    def unmap(self) -> float:
        """Unmap it; return the seconds."""
        begin = time.perf_counter()
        self._slab = None
        self._device.sweep()
        return time.perf_counter() - begin

    def forget(self) -> None:
        """Unmap, and close the descriptor too."""
        self.unmap()
        os.close(self._fd)
        self._fd = -1

    def free(self) -> int:
        """Return the free bytes of the device."""
        return free(self._device)

    def _array(self) -> Any:
        slab = self._slab
        assert slab is not None
        return self._device.array(slab.address, slab.nbytes, slab)

    def values(self) -> list[int]:
        """Return the smallest and the largest byte."""
        array = self._array()
        both = self._device.xp.stack([array.min(), array.max()])
        return [int(each) for each in self._device.to_host(both)]

    def one_context(self) -> dict[str, Any]:
        """Run a kernel that numba-cuda compiles and CuPy launches; return what it found, and the contexts."""
        array, xp = self._array(), self._device.xp
        with self._device.use():
            packed = xp.zeros(array.nbytes // 32, np.uint32)
            launch(pack_flags, len(packed), *with_words(array), packed)
        found = set(self._device.to_host(packed).tolist())
        fake = isinstance(self._device, FakeDevice)
        return {"found": sorted(found), "contexts": {} if fake else contexts(self._device, array)}

    def begin_reading(self, value: int) -> None:
        """Read all bytes over and over in a thread, and count how often they are not all `value`."""

        def read() -> None:
            while not self._stop.is_set():
                self._wrong += self.values() != [value, value]
                self._rounds += 1

        self._worker = threading.Thread(target=read)
        self._worker.start()

    def end_reading(self) -> list[int]:
        """Return how often all bytes were read since this was called, and how often they were ever wrong."""
        assert self._worker is not None
        before = self._rounds
        end = time.monotonic() + _SECONDS
        while self._rounds < before + 2 and self._worker.is_alive() and time.monotonic() < end:
            time.sleep(0.01)
        self._stop.set()
        self._worker.join(_SECONDS)
        return [self._rounds - before, self._wrong]

    def write(self) -> None:
        """Write where it may be forbidden: what comes of it may end this process, or its context."""
        self._array()[:1] = np.uint8(99)
        self._device.synchronize()

    def times(self, handle: str, rounds: int) -> dict[str, float]:
        """Return the medians of mapping and unmapping, in seconds."""
        mapped, unmapped = [], []
        for _ in range(rounds):
            mapped.append(self.map(handle)["seconds"])
            self.values()
            unmapped.append(self.unmap())
        return {"map": statistics.median(mapped), "unmap": statistics.median(unmapped)}
