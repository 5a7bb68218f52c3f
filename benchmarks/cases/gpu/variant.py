"""One whole number out of Variant objects that lie on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

import bowstring as bow
from bowstring import variant
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Skipped, Way
from bowstring.benchmarks.data.variant_rows import objects
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
from bowstring.columnar.batch import Column
from bowstring.memory import Device

_FIELDS: Final = {10: 1, 100: 8}
_FULL: Final = (8_000_000,)
_QUICK: Final = (400_000,)
_TRIED: Final = (800,)
_ROW: Final = 200


def _way(device: Device, column: Column, name: str, total: int, nbytes: int) -> Way:
    clock = Clock(device)

    def once() -> Measured:
        taken, got = clock.time(lambda: variant.get(column, f"$.{name}", pa.int32()))
        xp = device.xp
        found = device.to_host(xp.sum(got.values, dtype=xp.int64).reshape(1))
        return Measured(sent=str(total), arrived=str(int(found[0])), **taken)

    return Way("variant.get", "subject", once, nbytes, floor=COPY)


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    why: Any = why_not(scale)
    if why is not None:
        yield Skipped("Variant on a GPU", why)
        return
    device = made_ready(scale.device)
    for fields, share in _FIELDS.items():
        for most in sizes(scale, _FULL, _QUICK, _TRIED):
            rows = most // share
            name = f"{rows} objects of {fields} fields"
            skipped = too_large(name, rows * fields * _ROW, device)
            if skipped is not None:
                yield skipped
                continue
            made = objects(rows, fields)
            field = f"field_{fields // 2}"
            total = int(made.values[field].sum(dtype=np.int64))
            pool = bow.Pool(device, budget=rows * fields * _ROW + (1 << 28))
            for kind, column in (("one metadata", made.shared), ("a metadata each", made.plain)):
                nbytes = column.as_batch().nbytes
                there = column.as_batch().to_device(device, pool)[0]
                copy = Way(COPY, "floor", copied(device, max(1, nbytes // 2)), nbytes)
                ways = (_way(device, there, field, total, nbytes), copy)
                yield line_up(scale, f"{name}, {kind}", ways, (), (21, 5))


CASE: Final = Case(
    "gpu_variant",
    "an integer out of Variant objects on a GPU",
    _line_ups,
    Explanation(
        measured="variant.get() of one integer on the GPU, by the events of the device.",
        baseline="",
        floor="A copy that reads and writes as many bytes.",
        reading="Rows of different shapes take different branches, which a GPU runs one after the other.",
    ),
)
