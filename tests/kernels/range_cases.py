"""Example arguments for the kernels that walk down the nodes of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bowstring.kernels import ranges
from bowstring.kernels.signature import Kernel

Case = tuple[int, tuple[Any, ...]]

PARENT, ENDS, OFFSETS, RUNS = ranges.OF_PARENT, ranges.OF_ENDS, ranges.OFFSETS, ranges.RUNS


def memory(rng: np.random.Generator) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Return words with offsets of 32 bits, some of 64 bits and run ends of 16 bits, none of them aligned."""
    small = np.cumsum(rng.integers(0, 4, 41), dtype=np.int32)
    large = np.cumsum(rng.integers(0, 3, 201), dtype=np.int64)
    ends = np.cumsum(rng.integers(1, 9, 30), dtype=np.int16)
    pieces = [b"abc", small.tobytes(), b"d", large.tobytes(), b"e", ends.tobytes()]
    at = np.cumsum([len(each) for each in pieces])
    whole = b"".join(pieces)
    return np.frombuffer(whole + b"\xff" * (-len(whole) % 8), np.uint64), at[[0, 2, 4]].tolist()


def walks(rng: np.random.Generator) -> Iterator[Case]:
    words, (small, large, ends) = memory(rng)
    wide = (41 * 4, 201 * 8, 30 * 2)
    rows = [
        # A list of large lists of fixed-size lists; a struct of runs; and what cannot be.
        [0, -1, 30, 40, OFFSETS, small, wide[0], 4],
        [ENDS, 0, 0, 200, OFFSETS, large, wide[1], 8],
        [ENDS, 1, 0, 500, 0, 0, 0, 0],
        [PARENT, 2, 3, 1500, 0, 0, 0, 0],
        [0, -1, 17, 17, 0, 0, 0, 0],
        [PARENT, 4, 1, 17, RUNS, ends, wide[2], 2],
        [ENDS, 5, 0, 30, 0, 0, 0, 0],
        [ENDS, 5, 0, 2, 0, 0, 0, 0],
        [PARENT, 7, 1, 2, OFFSETS, small, wide[0], 4],
        [PARENT, 4, 1, 17, OFFSETS, small, 17 * 4, 4],
        [PARENT, 99, 1, 17, RUNS, ends, wide[2], 2],
        [0, 0, 0, 0, RUNS, ends, wide[2], 2],
        [0, 0, 5, 5, RUNS, ends, 0, 2],
        [0, 0, 5, 5, OFFSETS, len(words) * 8 - 4, 4000, 4],
        [ENDS, 13, 0, 5, OFFSETS, -90, 4000, 8],
    ]
    table = np.array([0, 4, len(rows), *np.concatenate(rows)], np.int64)
    size = len(rows) * ranges.RESULTS
    yield 2, (words, table, 2, np.full(size, -7, np.int64))
    for columns in (0, -1, 1 << 40):
        yield 2, (words, table, columns, np.zeros(size, np.int64))
    yield 2, (words, table[:50], 2, np.zeros(12, np.int64))
    yield 2, (words[:3], table, 2, np.zeros(size, np.int64))


def counts(rng: np.random.Generator) -> Iterator[Case]:
    words = rng.integers(0, 1 << 63, 40, np.uint64)
    found = np.zeros((5, ranges.RESULTS), np.int64)
    found[:, :2] = [(3, 1000), (0, 64), (64, 0), (-1, 0), (70, 5)]
    table = [[0, 5, 200, -1], [1, 8, 8, 64], [1, 8, 8, -1], [2, 0, 99, -1], [3, 0, 99, -1], [4, 31, 10, 75]]
    table += [[0, 5, 20, -1], [9, 0, 99, -1], [0, -3, 200, -1], [0, 310, 200, -1]]
    flat = np.concatenate(table).astype(np.int64)
    for lanes in (1, 3, 20):
        yield lanes * 11, (words, flat, found.reshape(-1), lanes, np.full(lanes * 11, -7, np.int64))
    yield 3, (words, flat, found.reshape(-1), 0, np.zeros(3, np.int64))


CASES: dict[Kernel, Callable[[np.random.Generator], Iterator[Case]]] = {
    ranges.find_ranges: walks,
    ranges.count_in_ranges: counts,
}
