"""Wild arguments for the kernel of WKB: offsets and bytes are wild; room and results have the sizes of the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.kernels.geo import wkb
from bowstring.kernels.signature import Kernel
from bowstring.kernels.types import i64
from tests.kernels.geo_cases import BLOCK, DEPTH, arguments, rows


def wild_arguments(
    wild: Callable[..., Any], guarded: Callable[..., Any]
) -> dict[Kernel, Callable[[np.random.Generator], tuple[Any, ...]]]:
    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        spread = int(rng.integers(0, 2))
        given = arguments(rows()[: 2 * BLOCK], np.int64, spread)
        validity, starts, stops, data = (each.copy() for each in given[2:6])
        if rng.random() < 0.5:
            # Geometries with wrong bytes in them, which look like geometries for longer than wild ones.
            data[rng.integers(0, len(data), 8)] = rng.integers(0, 256, 8)
            starts[rng.integers(len(starts))] = rng.integers(-(2**63), 2**63 - 1)
            slots = guarded(starts), guarded(stops), guarded(data[: rng.integers(0, len(data))])
        else:
            held = int(rng.integers(0, 2 * BLOCK))
            slots = wild(rng, np.int64, held), wild(rng, np.int64, held), wild(rng, np.uint8, 60)
        return (
            *(i64(BLOCK), i64(spread), guarded(validity), *slots, i64(DEPTH)),
            *map(guarded, given[7:]),
        )

    return {wkb.scan_wkb: make}
