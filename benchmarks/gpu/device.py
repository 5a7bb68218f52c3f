"""What the cases of a GPU have in common: the device, its clock, data on it, and sums to check them by.

They run on the fake device too, small, so that what they do is tested where there is no GPU. Their figures are no
GPU's then: they are marked, and held to no target.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from bowstring.benchmarks.case import LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.environment import available_bytes
from bowstring.errors import BowstringError
from bowstring.kernels.launch import can_launch
from bowstring.memory import Device, device_by_name

COPY: Final = "device copy"
"""The floor of all: a plain copy on the device, of as many bytes."""

_MARK: Final = "no GPU: tried only"
_LARGE: Final = 1 << 50


def _is_fake(name: str) -> bool:
    return name.startswith("fake:")


def made_ready(name: str) -> Device:
    """Return a device whose context is made, and whose modules are loaded; it is the current one from now on."""
    if _is_fake(name):
        importlib.import_module("bowstring.testing")  # fake devices have names then; nothing else is for it
    device = device_by_name(name)
    cuda = getattr(device.xp, "cuda", None)
    if cuda is not None:
        cuda.Device(device.arrow_device_id).use()  # for all that this process computes
    device.xp.zeros(1 << 10, device.xp.uint8).sum()
    device.synchronize()
    return device


def why_not(scale: Scale) -> str | None:
    """Return why the cases cannot run here; nothing where they can."""
    try:
        device = made_ready(scale.device)
    except BowstringError as error:
        return str(error).partition("\n")[0]
    # Without it much would be done in another way, and be measured in the kernels' place.
    return None if can_launch(device.xp.zeros(1, np.uint8)) else "no compiler of kernels is installed for it"


def sizes(scale: Scale, full: Sequence[int], quick: Sequence[int], tried: Sequence[int]) -> Sequence[int]:
    """Return the sizes to measure: few for a short run, tiny ones where there is no GPU."""
    if _is_fake(scale.device):
        return tried
    return quick if scale.quick else full


def line_up(
    scale: Scale, name: str, ways: Sequence[Way], targets: Sequence[Target], rounds: tuple[int, int]
) -> LineUp:
    """Return a line-up that is judged by the clock of the device; on the fake one by nothing."""
    full, quick = rounds
    if _is_fake(scale.device):
        return LineUp(f"{name} ({_MARK})", tuple(ways), scale.rounds(2, 2))
    return LineUp(name, tuple(ways), scale.rounds(full, quick), tuple(targets), clock="device")


def free_bytes(device: Device) -> int:
    """Return how many bytes the device has left."""
    cuda = getattr(device.xp, "cuda", None)
    if cuda is None:
        return available_bytes()
    with cuda.Device(device.arrow_device_id):
        return int(cuda.runtime.memGetInfo()[0])


def too_large(name: str, needed: int, device: Device) -> Skipped | None:
    """Return why a line-up of so many bytes is skipped, if it must be."""
    free = free_bytes(device)
    if needed <= free:
        return None
    return Skipped(name, f"needs {needed / 1e9:.1f} GB of the device, {free / 1e9:.1f} are free")


class Clock:
    """Times work on a device by the wall, its end included, and by the device's own events, if it has any."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._cuda = getattr(device.xp, "cuda", None)

    def time(self, work: Callable[[], Any]) -> tuple[dict[str, Any], Any]:
        """Do the work; return ``seconds`` and maybe ``device_seconds``, and what came of it."""
        self._device.synchronize()
        events = [] if self._cuda is None else [self._cuda.Event(), self._cuda.Event()]
        begin = time.perf_counter()
        if events:
            events[0].record()
        result = work()
        if events:
            events[1].record()
        self._device.synchronize()
        taken = {"seconds": time.perf_counter() - begin}
        if self._cuda is not None:
            taken["device_seconds"] = self._cuda.get_elapsed_time(*events) / 1e3
        return taken, result


def columns(device: Device, nbytes: int, count: int, seed: int) -> dict[str, Any]:
    """Return columns of int64 on the device, together of about `nbytes`; others for another seed."""
    xp = device.xp
    rows = max(1, nbytes // count // 8)
    return {
        f"c{index}": xp.arange(rows, dtype=xp.int64) * (2 * seed + 1) + (seed << 40) + index
        for index in range(count)
    }


def sums(device: Device, arrays: Sequence[Any]) -> str:
    """Return the sum of each array of int64 and the bytes of all: what is looked at instead of 8 GiB.

    It is taken on the device, and is the same for the same bytes.
    """
    xp = device.xp
    total = 0
    for array in arrays:
        # As many 64-bit words as there are, wrapping around.
        total = total * 31 + int(device.to_host(xp.sum(array.view(xp.uint64)).reshape(1))[0])
    return f"{total % _LARGE:x} of {sum(array.nbytes for array in arrays)} bytes"


def copied(device: Device, nbytes: int) -> Callable[[], Measured]:
    """Return what copies so many bytes on the device, between two pairs of buffers in turn."""
    xp, clock = device.xp, Clock(device)
    pairs = [(xp.full(nbytes, value, xp.uint8), xp.empty(nbytes, xp.uint8)) for value in (3, 5)]
    turn = 0

    def once() -> Measured:
        nonlocal turn
        turn ^= 1
        source, target = pairs[turn]
        target[-1:] = 0  # so that what is looked at was copied now

        def copy() -> None:
            target[:] = source

        taken, _ = clock.time(copy)
        last = int(device.to_host(target[-1:])[0])
        return Measured(sent=str((3, 5)[turn]), arrived=str(last), **taken)

    return once
