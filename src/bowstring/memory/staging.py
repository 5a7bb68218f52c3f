"""Staging: memory that goes between a device and another place through two pinned buffers of the host, in turn."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from bowstring.errors import DeadlineExceeded, DeviceError, ForkedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from bowstring.memory.cuda.driver import Driver
    from bowstring.memory.cuda.driver_device import DriverDevice
    from bowstring.memory.device import Device

__all__ = ["CHUNK", "Chunk", "stage"]

CHUNK: Final = 16 << 20
"""Bytes of a pinned buffer: large enough that copies run at their full rate, small enough to be kept for good."""


class Chunk(NamedTuple):
    """A part of what goes through: at most :data:`CHUNK` bytes."""

    start: int
    """Where it goes, in bytes of the target."""
    nbytes: int
    load: Callable[[int], None]
    """Puts it at an address of the host, or queues that."""


class _Stage:
    """Two pinned buffers of one driver. They are pinned when first used, which takes milliseconds, and kept."""

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self._driver = driver
        self._ordinal = ordinal
        self.lock = threading.Lock()
        self.buffers: list[int] = []
        self.pid = os.getpid()

    def take(self) -> list[int]:
        """Return the addresses of the buffers."""
        while len(self.buffers) < 2:
            self.buffers.append(self._driver.pin(self._ordinal, CHUNK))
        return self.buffers

    def unpin(self, buffers: list[int]) -> None:
        """Give buffers back that nothing reads or writes any more."""
        for buffer in buffers:
            with contextlib.suppress(DeviceError):
                self._driver.unpin(self._ordinal, buffer)


_stages: dict[Driver, _Stage] = {}


def stage(
    chunks: Iterable[Chunk],
    source: Device,
    target: Device,
    address: int,
    through: DriverDevice,
    seconds: float,
) -> None:
    """Move memory chunk by chunk; while one is stored, the next one is loaded.

    The host waits until all is done. One transfer is under way at a time in a process, so that the pinned memory is
    bounded; others wait for it.

    Parameters
    ----------
    chunks
        What goes, in any order.
    source, target
        Where it comes from and where it goes; one of them may be the host.
    address
        Where the target begins.
    through
        One of the two, whose driver pins the buffers.
    seconds
        The most that each wait may take.

    Raises
    ------
    DeadlineExceeded
        A device did not come to a copy, or another transfer did not end, in time.
    OutOfBudget
        No memory can be pinned.
    DeviceError
        A device failed.
    """
    with _taken(through, seconds) as kept:
        buffers = kept.take()
        try:
            _pump(chunks, source, target, address, buffers, seconds)
        except BaseException:
            # Copies may be under way still, on either device: the buffers are given back after them, and the next
            # transfer has others.
            kept.buffers = []
            unpin = functools.partial(kept.unpin, buffers)
            source.later(functools.partial(target.later, unpin))
            raise


@contextlib.contextmanager
def _taken(device: DriverDevice, seconds: float) -> Iterator[_Stage]:
    kept = _stages.setdefault(device.driver, _Stage(device.driver, device.ordinal))
    if kept.pid != os.getpid():
        raise ForkedError(
            "pinned memory does not survive a fork", hint="Start processes by spawn or forkserver."
        )
    if not kept.lock.acquire(timeout=seconds):
        raise DeadlineExceeded(
            "another copy between devices is under way", expected=f"done within {seconds:g} s"
        )
    try:
        yield kept
    finally:
        kept.lock.release()


def _pump(
    chunks: Iterable[Chunk], source: Device, target: Device, address: int, buffers: list[int], seconds: float
) -> None:
    last: tuple[Chunk, int] | None = None

    def store_last() -> None:
        if last is None:
            return
        chunk, buffer = last
        if target.is_host:
            ctypes.memmove(address + chunk.start, buffer, chunk.nbytes)
        else:
            target.copy_in(address + chunk.start, buffer, chunk.nbytes)

    for number, chunk in enumerate(chunks):
        buffer = buffers[number % 2]
        target.wait_stream(seconds)  # what was stored from this buffer has arrived
        # The host does at once what a device only queues, so the device's part comes first: then they overlap.
        if target.is_host:
            chunk.load(buffer)
            store_last()
        else:
            store_last()
            chunk.load(buffer)
        source.wait_stream(seconds)
        last = chunk, buffer
    store_last()
    target.wait_stream(seconds)


def give_up_pinned(driver: Driver) -> None:
    """Give a driver's pinned buffers back; the next transfer pins anew."""
    kept = _stages.get(driver)
    if kept is None or kept.pid != os.getpid():
        return
    with kept.lock:
        buffers, kept.buffers = kept.buffers, []
        kept.unpin(buffers)
