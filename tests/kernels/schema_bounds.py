"""Wild arguments for the kernel of schemas: messages that are changed, cut off, or anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.kernels.ipc.schema import walk_schema
from bowstring.kernels.signature import Kernel
from bowstring.kernels.types import i64
from tests.kernels.schema_cases import SCHEMAS, to_walk

WALKING = [to_walk(schema) for schema in SCHEMAS]


def wild_arguments(
    guarded: Callable[..., Any],
) -> dict[Kernel, Callable[[np.random.Generator], tuple[Any, ...]]]:
    def walk(rng: np.random.Generator) -> tuple[Any, ...]:
        data, table, *_, room, ids, state = WALKING[rng.integers(len(WALKING))]
        size = len(data) - max(0, int(rng.integers(-200, 200)))
        data = data.copy()
        for at in rng.integers(0, len(data), rng.integers(0, 4)):
            data[at] = rng.choice([data[at] ^ 4, 0, 1, 127, 255])
        if rng.random() < 0.2:
            data = rng.integers(0, 256, len(data), np.uint8)
        at = i64(table if rng.random() < 0.9 else rng.integers(-8, len(data) + 8))
        rooms = [guarded(each[: rng.integers(len(each) + 1)].copy()) for each in (room, ids)]
        most = i64(rng.choice([1 << 16, 3])), i64(rng.choice([64, 3]))
        return guarded(data[: max(size, 0)]), at, *most, *rooms, guarded(state.copy())

    return {walk_schema: walk}
