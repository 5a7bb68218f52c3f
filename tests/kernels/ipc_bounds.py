"""Wild arguments for the kernels of record batches: tables and structs are wild, or nearly right; plans are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.kernels.ipc import batch as kernel
from bowstring.kernels.ipc import read
from bowstring.kernels.signature import Kernel
from bowstring.kernels.types import f64, i64
from tests.kernels.ipc_cases import MIXED, batches, checked, placed, to_import, to_read, to_write

WRITING = [to_write(batch, room=6000, offset=offset) for batch in batches() for offset in (None, 0)]
IMPORTING = [to_import(batch) for batch in batches()]
STREAMS = [to_read([batch] * 3, codec) for batch in (*batches(), MIXED) for codec in (None, "lz4")]
READING = [
    *STREAMS,
    *(placed(each, read.PACKED) for each in STREAMS),
    *(placed(each, read.LISTED) for each in STREAMS),
    *(placed(each, read.POINTED) for each in STREAMS[::2]),
]
CHECKING = [arguments for _, arguments in checked(np.random.default_rng(1))]


def wild_arguments(
    wild: Callable[..., Any], guarded: Callable[..., Any]
) -> dict[Kernel, Callable[[np.random.Generator], tuple[Any, ...]]]:
    def changed(rng: np.random.Generator, table: Any) -> Any:
        """Return a table with wild numbers in a few places, or everywhere."""
        if rng.random() < 0.2:
            return wild(rng, table.dtype.type, len(table)).array
        table = table.copy()
        if not len(table):
            return table
        for at in rng.integers(0, len(table), rng.integers(0, 3)):
            near = table[at] + rng.integers(-2, 9)
            table[at] = rng.choice([near, 0, -1, 1 << 31, 1 << 62, rng.integers(0, 1 << 20)])
        return table

    def write(rng: np.random.Generator) -> tuple[Any, ...]:
        memory, struct, plan, regions, rows, *arguments = WRITING[rng.integers(len(WRITING))]
        nodes, spans, head, places, most, room, out, pieces, state = arguments
        size = len(memory) - max(0, int(rng.integers(-200, 200)))
        regions, nodes, spans = (guarded(changed(rng, table)) for table in (regions, nodes, spans))
        results = [
            guarded(each.copy())
            for each in (room, out[: rng.choice([len(out), int(rng.integers(len(out)))])], pieces, state)
        ]
        most = i64(rng.choice([most, 0]))
        at = i64(struct + rng.choice([0, 0, 0, 0, 0, 8]))
        tables = at, guarded(plan), regions, i64(rows), nodes, spans, guarded(head), guarded(places)
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

    def read_some(rng: np.random.Generator) -> tuple[Any, ...]:
        memory, plan, limits, ratio, regions, places, how, start, most, *results = READING[
            rng.integers(len(READING))
        ]
        size = len(memory) - max(0, int(rng.integers(-500, 100)))
        memory = memory.copy()
        for at in rng.integers(max(64, start), len(memory) - 8, rng.integers(0, 4)):
            memory[at : at + 4] = rng.integers(0, 256, 4) * rng.integers(0, 2)
        if rng.random() < 0.3:
            regions, places = changed(rng, regions), changed(rng, places)
        if how != read.POINTED and rng.random() < 0.3:
            results[0] = results[0][: rng.integers(len(results[0]) + 1)]
        elif rng.random() < 0.3:
            results[0] = changed(rng, results[0]) if len(results[0]) else results[0]
        tables = [guarded(each) for each in (memory[:size], plan, limits)]
        copies = [guarded(each.copy()) for each in results]
        numbers = i64(how), i64(start + rng.choice([0, 0, 0, 8, -8])), i64(most)
        return *tables, f64(ratio), guarded(regions), guarded(places), *numbers, *copies

    def check_one(rng: np.random.Generator) -> tuple[Any, ...]:
        memory, plan, regions, drops, nodes, counts, firsts, spans, state = CHECKING[
            rng.integers(len(CHECKING))
        ]
        size = len(memory) - max(0, int(rng.integers(-500, 100)))
        tables = [
            guarded(changed(rng, each) if len(each) and rng.random() < 0.5 else each.copy())
            for each in (regions, nodes)
        ]
        spans = changed(rng, spans) if len(spans) else spans
        first = (
            guarded(memory[:size]),
            guarded(plan),
            tables[0],
            i64(drops),
            tables[1],
            guarded(counts.copy()),
            guarded(firsts.copy()),
        )
        return *first, guarded(spans), guarded(state.copy())

    return {
        kernel.write_batch: write,
        kernel.import_batch: take,
        read.read_batches: read_some,
        read.check_batches: check_one,
    }
