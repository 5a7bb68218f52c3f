"""Copying from one device to another: directly, or through two pinned buffers of the host in turn."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import os
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from bowstring.errors import DeadlineExceeded, DeviceError, ForkedError, NotOnDevice, OutOfBudget
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory.buffer import Buffer
from bowstring.memory.cuda.driver_device import DriverDevice
from bowstring.memory.region import foreign_region, private_region

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bowstring.memory.cuda.bindings import CudaDriver
    from bowstring.memory.device import Device
    from bowstring.memory.region import Region

_SECONDS: Final = DEFAULT_LIMITS.device_timeout


class Road(NamedTuple):
    """How memory gets from one device to another."""

    name: str
    """``"none"``, ``"copy"``, ``"peer copy"``, ``"staged copy"``, ``"copy to the host"`` or ``"copy from the
    host"``."""
    why: str


class Stretch(NamedTuple):
    """Contiguous memory of the source, and where it goes."""

    start: int
    """Offset in the target, in bytes."""
    nbytes: int
    address: int
    """Address on the source; unused on the host."""
    load: Callable[[int, int, int], None] | None = None
    """On the host, where it may be in several pieces: ``load(first, end, address)`` copies a part of it."""


_paths: dict[tuple[bytes, bytes], Road] = {}


def road_between(source: Device, target: Device) -> Road:
    """Return how memory gets from a device to another one; the driver is asked once for each pair."""
    if source is target:
        return Road("none", f"the data are on {target.name}")
    if target.is_host:
        return Road("copy to the host", "the host was asked for")
    if source.is_host:
        return Road("copy from the host", f"{target.name} was asked for, and the data are on the host")
    # Without a lock, which a fork may leave taken for good: two threads may both ask.
    key = source.uuid, target.uuid
    path = _paths.get(key)
    return path if path is not None else _paths.setdefault(key, _asked(source, target))


def _asked(source: Device, target: Device) -> Road:
    if not isinstance(source, DriverDevice) or not isinstance(target, DriverDevice):
        return Road("staged copy", "they have no driver in common")
    if source.driver is not target.driver:
        return Road("staged copy", f"{source.name} and {target.name} have different drivers")
    try:
        reach = target.driver.can_reach(target.ordinal, source.ordinal)
    except DeviceError as error:
        return Road("staged copy", f"whether {target.name} reaches {source.name} is not known: {error}")
    if reach:
        return Road("peer copy", f"{target.name} reaches the memory of {source.name}")
    return Road("staged copy", f"{target.name} cannot reach the memory of {source.name}")


def carry(
    stretches: Callable[[], Iterable[Stretch]],
    source: Device,
    into: Buffer,
    regions: Sequence[Region] = (),
    seconds: float = _SECONDS,
) -> Road:
    """Copy memory to another device (or to or from the host), wait, and return how it was copied.

    Queued work of the source's stream is done first. After a failure the target lives until no copy can write it.
    """
    target = into.device
    path = road_between(source, target)
    if path.name == "peer copy":
        assert isinstance(source, DriverDevice)
        assert isinstance(target, DriverDevice)
        try:
            try:
                for region in regions:
                    if region.slab is not None:
                        source.let_in(region.slab, target)
                for stretch in stretches():
                    place = into.address + stretch.start
                    source.copy_to_peer(target, place, stretch.address, stretch.nbytes)
            except DeviceError as error:
                # Such as memory that another library mapped for its own device alone.
                path = Road("staged copy", f"the peer copy was refused: {error}")
                source.later([into.region].clear)  # what was queued before may still be written
            else:
                source.wait_stream(seconds)
                return path
        except BaseException:
            # The next user of the target's memory waits for the target device, but the source device writes there.
            source.later([into.region].clear)
            raise
    through = source if target.is_host else target
    if not isinstance(through, DriverDevice):
        raise NotOnDevice("there is no way to copy", expected=target.name, found=source.name)
    try:
        _stage(stretches(), source, into, through, seconds)
    except OutOfBudget as error:
        raise NotOnDevice(
            f"there is no way from {source.name} to {target.name}",
            found=f"{path.why}; no host memory can be pinned: {error}",
        ) from error
    return path


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class DeviceBody:
    """Bytes that lie in pieces on a device, and are put together where they are sent from."""

    device: Device
    nbytes: int
    fill: Callable[[Buffer], object]  # copies them into a buffer of the host, or of the device

    def on_host(self) -> memoryview:
        """Copy them to the host, through two pinned buffers in turn."""
        buffer = Buffer(private_region(self.nbytes), 0, self.nbytes)
        with self.device.aside():
            self.fill(buffer)
        return memoryview(buffer.array())

    def on_device(self) -> Buffer:
        """Copy them to one place of the device, and wait until they are there."""
        with self.device.aside():
            array = self.device.xp.empty(self.nbytes, np.uint8)
            buffer = Buffer(foreign_region(array.data.ptr, self.nbytes, array, self.device), 0, self.nbytes)
            self.fill(buffer)
            self.device.wait_stream(_SECONDS)
        return buffer


CHUNK: Final = 16 << 20
"""Bytes of a pinned buffer: large enough that copies run at their full rate, small enough to be kept for good."""


class _Pinned:
    """Two pinned buffers of one driver. They are pinned when first used, which takes milliseconds, and kept."""

    def __init__(self, driver: CudaDriver, ordinal: int) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self.lock = threading.Lock()
        self.buffers: list[int] = []
        self.pid = os.getpid()

    def unpin(self, buffers: list[int]) -> None:
        """Give back buffers that nothing reads or writes any more."""
        for buffer in buffers:
            with contextlib.suppress(DeviceError):
                self.driver.unpin(self.ordinal, buffer)


_stages: dict[CudaDriver, _Pinned] = {}


def _stage(
    stretches: Iterable[Stretch], source: Device, into: Buffer, through: DriverDevice, seconds: float
) -> None:
    """Move memory chunk by chunk; while one is stored, the next one is loaded. The host waits until all is done.

    One transfer of a driver runs at a time in a process, so that pinned memory is bounded.
    """
    pinned = _stages.setdefault(through.driver, _Pinned(through.driver, through.ordinal))
    if pinned.pid != os.getpid():
        raise ForkedError(
            "pinned memory does not survive a fork", hint="Start processes by spawn or forkserver."
        )
    held: list[bool] = []
    try:
        held += map(pinned.lock.acquire, (True,), (seconds,))  # see `bowstring.locks`
        if True not in held:
            raise DeadlineExceeded(
                "another copy between devices is under way", expected=f"done within {seconds:g} s"
            )
        buffers = pinned.buffers
        while len(buffers) < 2:
            buffers.append(pinned.driver.pin(pinned.ordinal, CHUNK))
        try:
            _pump(stretches, source, into, buffers, seconds)
        except BaseException:
            # Copies may still run on either device: the buffers are given back after them, and the next transfer
            # pins others.
            pinned.buffers = []
            unpin = functools.partial(pinned.unpin, buffers)
            source.later(functools.partial(into.device.later, unpin))
            raise
    finally:
        if True in held:
            pinned.lock.release()


def _pump(
    stretches: Iterable[Stretch], source: Device, into: Buffer, buffers: list[int], seconds: float
) -> None:
    target = into.device
    last: tuple[int, int, int] | None = None

    def store_last() -> None:
        if last is None:
            return
        place, nbytes, buffer = last
        if target.is_host:
            ctypes.memmove(place, buffer, nbytes)
        else:
            target.copy_in(place, buffer, nbytes)

    def load(stretch: Stretch, first: int, end: int, buffer: int) -> None:
        if stretch.load is not None:
            stretch.load(first, end, buffer)
        else:
            source.copy_out(buffer, stretch.address + first, end - first)

    chunks = (
        (stretch, first, min(first + CHUNK, stretch.nbytes))
        for stretch in stretches
        for first in range(0, stretch.nbytes, CHUNK)
    )
    for number, (stretch, first, end) in enumerate(chunks):
        buffer = buffers[number % 2]
        target.wait_stream(seconds)  # what was stored from this buffer has arrived
        # The host copies at once and a device only queues, so the device's part comes first: then they overlap.
        if target.is_host:
            load(stretch, first, end, buffer)
            store_last()
        else:
            store_last()
            load(stretch, first, end, buffer)
        source.wait_stream(seconds)
        last = into.address + stretch.start + first, end - first, buffer
    store_last()
    target.wait_stream(seconds)
