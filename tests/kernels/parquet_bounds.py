"""Wild arguments for the kernels of Parquet files: the bytes are wild; room and results have their sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from bowstring.kernels.parquet import bodies, footer, pages
from bowstring.kernels.signature import Kernel
from bowstring.kernels.types import i64
from tests.kernels.parquet_cases import DEPTH, REST, arguments, chunks, delta_page

WORDS = pa.array([f"{'prefix' * (number % 3)}{number}" for number in range(300)])


def wild_arguments(
    wild: Callable[..., Any], guarded: Callable[..., Any]
) -> dict[Kernel, Callable[[np.random.Generator], tuple[Any, ...]]]:
    def make(rng: np.random.Generator) -> tuple[Any, ...]:
        data, *_, room, facts, counts = arguments(REST)
        if rng.random() < 0.5:
            # A footer with wrong bytes in it, which looks like one for longer than wild ones.
            data = data.copy()
            data[rng.integers(0, len(data), 4)] = rng.integers(0, 256, 4)
            given = guarded(data[: rng.integers(0, len(data))])
        else:
            given = wild(rng, np.uint8, 60)
        facts = facts[: rng.integers(0, len(facts))]
        bounds = i64(rng.integers(0, 4)), i64(rng.integers(0, 1 << 20)), i64(rng.integers(0, DEPTH + 1))
        return given, *bounds, guarded(room), guarded(facts), guarded(counts)

    def headers(rng: np.random.Generator) -> tuple[Any, ...]:
        found, places = chunks()
        data = np.frombuffer(found, np.uint8).copy()
        data[rng.integers(0, len(data), 60)] = rng.integers(0, 256, 60)
        given = guarded(data[: rng.integers(0, len(data))]) if rng.random() < 0.7 else wild(rng, np.uint8, 60)
        facts = np.zeros((len(places), int(pages.FACTS)), np.int64)
        facts[:, [int(pages.AT), int(pages.END)]] = places
        facts[:, int(pages.WANTED)] = rng.integers(0, 1000)
        room = np.zeros(len(places) * int(pages.ROOM), np.int64)
        bounds = [i64(rng.integers(0, 200)) for _ in range(3)]
        most = int(rng.integers(0, 4))
        known = np.concatenate([facts.reshape(-1), np.zeros(most * int(pages.PAGE), np.int64)])
        return given, *bounds, i64(most), guarded(known), guarded(room)

    def runs(rng: np.random.Generator) -> tuple[Any, ...]:
        numbers = i64(rng.integers(0, 33)), i64(rng.integers(0, 1000))
        weights = rng.integers(0, 9, rng.integers(0, 9))
        given = wild(rng, np.uint8, int(rng.integers(0, 60)))
        return given, *numbers, guarded(weights), guarded(np.zeros(1, np.int64))

    def deltas(rng: np.random.Generator) -> tuple[Any, ...]:
        most = int(rng.integers(0, 400))
        encoding = i64(rng.integers(5, 8))
        data = np.frombuffer(delta_page(WORDS, 7), np.uint8).copy()
        data[rng.integers(0, 60, 2)] = rng.integers(0, 256, 2)
        given = guarded(data[: rng.integers(0, len(data))]) if rng.random() < 0.7 else wild(rng, np.uint8, 60)
        lengths, counts = np.zeros(2 * most, np.int32), np.zeros(int(bodies.COUNTS), np.int64)
        return given, encoding, i64(most), guarded(lengths), guarded(counts)

    def dictionary(rng: np.random.Generator) -> tuple[Any, ...]:
        lengths = np.zeros(rng.integers(0, 9), np.int64)
        return wild(rng, np.uint8, 60), guarded(lengths), guarded(np.zeros(2, np.int64))

    return {
        pages.read_pages: headers,
        bodies.weigh_runs: runs,
        bodies.check_deltas: deltas,
        footer.read_footer: make,
        bodies.value_lengths: dictionary,
    }
