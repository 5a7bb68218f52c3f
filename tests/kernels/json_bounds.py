"""Wild text for the kernels of JSON: what is no JSON, what nearly is, and what has changed since it was read."""

from __future__ import annotations

import marshal
from collections.abc import Callable
from typing import Any

import numpy as np

from bowstring.kernels.json import order as ordering
from bowstring.kernels.json import read as reading
from bowstring.kernels.json import write as writing
from bowstring.kernels.json.keys import NAME, PLAN, STATE
from bowstring.kernels.json.tree import NODE
from bowstring.kernels.types import i64, u64
from bowstring.kernels.variant import read_objects

Rng = np.random.Generator
Make = Callable[[Rng], tuple[Any, ...]]

_TEXT = r'{"a": {"bcdefghij": [ ] } , " \u00e9 \n 1 -2.5 1e9 null'
PIECES = _TEXT.encode().split(b" ")
ROWS, PARTS, NODES, SLOTS, POOL = 4, 2, 5, 4, 20
RANKS = 8
_LISTS = [[1, "a"], {"a": 1.5, "b": (2,)}]
OBJECTS = [_LISTS, {"a": _LISTS, "é": None}, -(1 << 40), b"\x00"]
CODES = np.frombuffer(b"\xdb[{(r0s)z", np.uint8)


def arguments(wild: Callable[..., Any], guarded: Callable[..., Any]) -> dict[Callable[..., None], Make]:
    def zeros(size: int, dtype: Any = np.uint64) -> Any:
        return guarded(np.zeros(size, dtype))

    def text(rng: Rng) -> Any:
        if rng.random() < 0.2:
            return wild(rng, np.uint8, int(rng.integers(0, 60)))
        pieces = [PIECES[k] for k in rng.integers(0, len(PIECES), int(rng.integers(1, 20)))]
        return guarded(np.frombuffer(b"".join(pieces), np.uint8))

    def slots(rng: Rng, data: Any) -> tuple[Any, Any]:
        bounds = np.sort(rng.integers(0, len(data) + 1, 2 * ROWS)).reshape(ROWS, 2)
        if rng.random() < 0.2:
            bounds[rng.integers(0, ROWS), rng.integers(0, 2)] = rng.choice([-1, 2**62])
        return guarded(bounds[:, 0].copy()), guarded(bounds[:, 1].copy())

    def plan() -> Any:
        made = np.zeros((PARTS, int(PLAN)), np.uint64)
        for part in range(PARTS):
            made[part, :2] = 2 * part, 2 * part + 2
            made[part, 2:] = part * NODES, NODES, part * SLOTS, SLOTS, part * POOL, POOL
        return guarded(made.reshape(-1))

    def counting(rng: Rng) -> tuple[Any, ...]:
        data = text(rng)
        return data, *slots(rng, data), zeros(ROWS, np.int64), zeros(ROWS, np.int64)

    def read(rng: Rng) -> tuple[Any, ...]:
        data = text(rng)
        words = (NODES * PARTS * int(NODE), NODES * PARTS, SLOTS * PARTS, SLOTS * int(NAME))
        return (
            *(data, *slots(rng, data), plan(), i64(rng.integers(0, 4)), i64(3), u64(7)),
            *(zeros(ROWS, np.uint8), zeros(ROWS, np.int64), zeros(ROWS), zeros(ROWS)),
            *(*map(zeros, words), zeros(POOL * PARTS, np.uint8), zeros(PARTS * int(STATE))),
        )

    def objects(rng: Rng) -> tuple[Any, ...]:
        data = np.frombuffer(marshal.dumps(OBJECTS, 4), np.uint8).copy()
        for _ in range(int(rng.integers(0, 4))):
            data[rng.integers(0, len(data))] = (
                rng.choice(CODES) if rng.random() < 0.7 else rng.integers(0, 256)
            )
        if rng.random() < 0.3:
            data = data[: int(rng.integers(0, len(data)))]
        words = (
            int(rng.integers(0, 2)) * len(data),
            NODES * PARTS * int(NODE),
            SLOTS * PARTS,
            SLOTS * int(NAME),
        )
        return (
            *(guarded(data), plan(), i64(rng.integers(0, 2)), i64(3), u64(7), zeros(ROWS), zeros(ROWS)),
            *(*map(zeros, words), zeros(POOL * PARTS, np.uint8), zeros(PARTS * int(STATE))),
        )

    def was_read(rng: Rng) -> tuple[Any, ...]:
        made = read(rng)
        with np.errstate(all="ignore"):
            for part in range(PARTS):
                reading.read_rows(i64(part), *made)
        return made

    def measure(made: tuple[Any, ...]) -> tuple[Any, ...]:
        _, firsts, counts, nodes, children = made[8:13]
        ranks = guarded(np.arange(RANKS, dtype=np.uint32))
        return firsts, counts, zeros(ROWS), ranks, nodes, children, zeros(ROWS, np.int64)

    def write(rng: Rng) -> tuple[Any, ...]:
        made = was_read(rng)
        measured = measure(made)
        with np.errstate(all="ignore"):
            for row in range(ROWS):
                writing.measure_rows(i64(row), *measured)
        firsts, counts, _bases, _ranks, nodes, children, found = measured
        offsets = np.concatenate([[0], np.cumsum(found.array)])
        changed = wild(rng, np.uint8, len(made[0]))
        out = zeros(int(offsets[-1]), np.uint8)
        return changed, made[2], firsts, counts, guarded(offsets), nodes, children, out

    def order(rng: Rng) -> tuple[Any, ...]:
        lengths = rng.integers(0, 12, RANKS).astype(np.uint64)
        ends = lengths.cumsum()
        data = wild(rng, np.uint8, int(ends[-1]))
        bounds = np.array([0, 3, 3, RANKS], np.int64)
        scratch = zeros(RANKS), zeros(2 * RANKS, np.uint32), zeros(RANKS, np.uint32)
        keys = guarded(bounds), guarded(ends - lengths), guarded(lengths), data
        return *keys, *scratch, zeros(3, np.int64), zeros(3, np.int64)

    def write_keys(rng: Rng) -> tuple[Any, ...]:
        made = order(rng)
        with np.errstate(all="ignore"):
            for dictionary in range(3):
                ordering.order_keys(i64(dictionary), *made)
        bounds, starts, lengths, _data, _words, ordered, _ranks, counts, sizes = made
        offsets = np.concatenate([[0], np.cumsum(sizes.array)])
        changed = wild(rng, np.uint8, len(made[3]))
        out = zeros(int(offsets[-1]), np.uint8)
        return bounds, starts, lengths, changed, ordered, counts, guarded(offsets), out

    return {
        ordering.order_keys: order,
        ordering.write_keys: write_keys,
        read_objects.read_objects: objects,
        reading.count_nodes: counting,
        reading.read_rows: read,
        writing.measure_rows: lambda rng: measure(was_read(rng)),
        writing.write_rows: write,
    }
