"""Full validation of a column of text on a GPU, beside a copy that moves as many bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

import bowstring as bow
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.data.tables import size_name
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
from bowstring.memory import Device

_FULL: Final = (1 << 30,)
_QUICK: Final = (64 << 20,)
_TRIED: Final = (1 << 16,)
_BOUND: Final = 0.5
_SEED: Final = 11
_LETTERS: Final = 32
_WRONG: Final = 0xFF


def _texts(nbytes: int, *, spoiled: bool) -> pa.RecordBatch:
    """Return a column of ASCII texts; `spoiled` has a wrong byte near its end."""
    rng = np.random.default_rng(_SEED)
    rows = max(1, nbytes // _LETTERS)
    offsets = np.zeros(rows + 1, np.int32 if nbytes < 1 << 31 else np.int64)
    np.cumsum(rng.integers(0, 2 * _LETTERS - 8 + 1, rows), out=offsets[1:])
    text = rng.integers(ord("a"), ord("z") + 1, int(offsets[-1]), np.uint8)
    if spoiled:
        text[-3] = _WRONG
    kind = pa.string() if offsets.dtype == np.int32 else pa.large_string()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.record_batch({"text": pa.Array.from_buffers(kind, rows, buffers)})


def _validated(device: Device, nbytes: int) -> tuple[Way, int]:
    pool = bow.Pool(device, budget=4 * nbytes + (1 << 28))
    sound, spoiled = (
        bow.Batch.from_arrow(_texts(nbytes, spoiled=spoiled)).to_device(device, pool)
        for spoiled in (False, True)
    )
    clock = Clock(device)

    def refuses() -> bool:
        try:
            spoiled.validate(full=True)
        except bow.InvalidData:
            return True
        return False

    def once() -> Measured:
        taken, _ = clock.time(lambda: sound.validate(full=True))
        return Measured(
            sent="a wrong byte is found: True", arrived=f"a wrong byte is found: {refuses()}", **taken
        )

    return Way("validate", "subject", once, sound.nbytes, floor=COPY), sound.nbytes


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    why: Any = why_not(scale)
    if why is not None:
        yield Skipped("validation on a GPU", why)
        return
    device = made_ready(scale.device)
    for size in sizes(scale, _FULL, _QUICK, _TRIED):
        name = f"text, {size_name(size)}"
        skipped = too_large(name, 6 * size, device)
        if skipped is not None:
            yield skipped
            continue
        way, nbytes = _validated(device, size)
        # A copy reads and writes each of its bytes.
        copy = Way(COPY, "floor", copied(device, nbytes // 2), nbytes)
        target = Target("validate", "at least", _BOUND, COPY)
        yield line_up(scale, name, (way, copy), (target,), (21, 5))


CASE: Final = Case(
    "gpu_validation",
    "every element of a column of text looked at on a GPU",
    _line_ups,
    Explanation(
        measured="Full validation of a column of text on the GPU.",
        baseline="",
        floor="A copy that reads and writes as many bytes.",
        reading="Below the floor by what deciding about each element costs.",
    ),
)
