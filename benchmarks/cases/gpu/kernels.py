"""Bitmaps on a GPU: expanded, packed, counted, each beside a copy that moves as many bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.gpu.device import (
    COPY,
    Clock,
    copied,
    line_up,
    made_ready,
    sizes,
    too_large,
    why_not,
)
from bowstring.kernels import bitmap
from bowstring.memory import Device

_FULL: Final = (1 << 30,)
_QUICK: Final = (1 << 28,)
_TRIED: Final = (1 << 14,)
_BOUND: Final = 0.8
_SEED: Final = 7
_MARKS: Final = 1000
_BITS: Final = 8


class _Bits:
    """Two bitmaps on a device, and the same as flags."""

    def __init__(self, device: Device, count: int) -> None:
        rng = np.random.default_rng(_SEED)
        self.device, self.count = device, count
        self.bits, self.flags, self.set = [], [], []
        for _ in range(2):
            packed = rng.integers(0, 256, count // _BITS, np.uint8)
            self.set.append(int(np.bitwise_count(packed).sum()))
            self.bits.append(device.from_host(packed))
            self.flags.append(device.from_host(np.unpackbits(packed, bitorder="little").view(np.bool_)))

    def seen(self, array: Any) -> str:
        """Some elements of all, and the sum: what is compared."""
        xp = self.device.xp
        step = max(1, len(array) // _MARKS)
        some = self.device.to_host(xp.ascontiguousarray(array[::step]))
        return f"{int(self.device.to_host(xp.sum(array, dtype=xp.int64).reshape(1))[0])} {some.tolist()[:_MARKS]}"


def _kernels(bits: _Bits) -> Iterator[tuple[str, int, Callable[[int], tuple[Callable[[], Any], str]]]]:
    """Yield each kernel: bytes read and written, and for a turn what to do, and what should come of it."""
    count, small = bits.count, bits.count // _BITS
    yield (
        "expand",
        small + count,
        lambda turn: (lambda: bitmap.expanded(bits.bits[turn], 0, count), bits.seen(bits.flags[turn])),
    )
    yield (
        "pack",
        small + count,
        lambda turn: (lambda: bitmap.packed(bits.flags[turn]), bits.seen(bits.bits[turn])),
    )
    yield (
        "count",
        small,
        lambda turn: (lambda: bitmap.count_set(bits.bits[turn], 0, count), str(bits.set[turn])),
    )


def _way(bits: _Bits, name: str, nbytes: int, work: Callable[[int], tuple[Callable[[], Any], str]]) -> Way:
    clock, turns = Clock(bits.device), [0]

    def once() -> Measured:
        turns[0] ^= 1
        do, expected = work(turns[0])
        taken, found = clock.time(do)
        if name == "count":
            host = bits.device.to_host(bits.device.xp.asarray(found).reshape(1))
            return Measured(sent=expected, arrived=str(int(host[0])), **taken)
        return Measured(sent=expected, arrived=bits.seen(found), **taken)

    return Way(name, "subject", once, nbytes, floor=COPY)


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    why = why_not(scale)
    if why is not None:
        yield Skipped("bitmaps on a GPU", why)
        return
    device = made_ready(scale.device)
    for count in sizes(scale, _FULL, _QUICK, _TRIED):
        title = f"{count} bits"
        skipped = too_large(title, 10 * count, device)
        if skipped is not None:
            yield skipped
            continue
        bits = _Bits(device, count)
        for name, nbytes, work in _kernels(bits):
            # A copy reads and writes each of its bytes.
            copy = Way(COPY, "floor", copied(device, nbytes // 2), nbytes)
            target = Target(name, "at least", _BOUND, COPY)
            ways = (_way(bits, name, nbytes, work), copy)
            yield line_up(scale, f"{name}, {title}", ways, (target,), (21, 5))


CASE: Final = Case(
    "gpu_kernels",
    "bitmaps expanded, packed and counted on a GPU",
    _line_ups,
    Explanation(
        measured="Bitmaps expanded to bytes, packed and counted, by the events of the device.",
        baseline="",
        floor="A copy that reads and writes as many bytes.",
        reading="Near 100 % of the floor, a kernel is bound by memory, as it should be.",
    ),
)
