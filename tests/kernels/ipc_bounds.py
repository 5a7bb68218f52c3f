"""Wild arguments for the kernels of record batches: tables and structs are wild, or nearly right; plans are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.kernels.ipc import batch as kernel
from bowstring.kernels.signature import Kernel
from bowstring.kernels.types import i64
from tests.kernels.ipc_cases import batches, to_import, to_write

WRITING = [to_write(batch, room=6000) for batch in batches()]
IMPORTING = [to_import(batch) for batch in batches()]


def wild_arguments(
    wild: Callable[..., Any], guarded: Callable[..., Any]
) -> dict[Kernel, Callable[[np.random.Generator], tuple[Any, ...]]]:
    def changed(rng: np.random.Generator, table: Any) -> Any:
        """Return a table with wild numbers in a few places, or everywhere."""
        if rng.random() < 0.2:
            return wild(rng, table.dtype.type, len(table)).array
        table = table.copy()
        for at in rng.integers(0, len(table), rng.integers(0, 3)):
            near = table[at] + rng.integers(-2, 9)
            table[at] = rng.choice([near, 0, -1, 1 << 31, 1 << 62, rng.integers(0, 1 << 20)])
        return table

    def write(rng: np.random.Generator) -> tuple[Any, ...]:
        memory, plan, regions, rows, nodes, spans, head, places, most, room, out, pieces, state = WRITING[
            rng.integers(len(WRITING))
        ]
        size = len(memory) - max(0, int(rng.integers(-200, 200)))
        regions, nodes, spans = (guarded(changed(rng, table)) for table in (regions, nodes, spans))
        results = [
            guarded(each.copy())
            for each in (room, out[: rng.choice([len(out), int(rng.integers(len(out)))])], pieces, state)
        ]
        most = i64(rng.choice([most, 0]))
        tables = guarded(plan), regions, i64(rows), nodes, spans, guarded(head), guarded(places)
        if rng.random() < 0.5:
            memory = changed(rng, memory[: len(memory) // 8 * 8].view(np.int64)).view(np.uint8)
        return guarded(memory[:size]), *tables, most, *results

    def take(rng: np.random.Generator) -> tuple[Any, ...]:
        memory, address, plan, rows, *results = IMPORTING[rng.integers(len(IMPORTING))]
        words = changed(rng, memory[: len(memory) // 8 * 8].view(np.int64))
        size = len(memory) - max(0, int(rng.integers(-500, 100)))
        copies = [guarded(each.copy()) for each in results]
        at = i64(address + rng.choice([0, 0, 0, 0, 0, 8]))
        return guarded(words.view(np.uint8)[:size]), at, guarded(plan), i64(rows), *copies

    return {kernel.write_batch: write, kernel.import_batch: take}
