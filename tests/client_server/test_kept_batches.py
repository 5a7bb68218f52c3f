"""Small batches that come as bytes land together: what a few of them hold that are kept stays within bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

import bowstring as bow

ROWS = 8192  # of int64: 64 KiB a batch
COUNT = 4096
EVERY = 64
MIB = 1 << 20


@pytest.fixture
def endpoint() -> Iterator[bow.Endpoint]:
    batches = [pa.record_batch({"a": np.arange(ROWS) + number}) for number in range(COUNT)]
    with bow.Server("tcp://") as server:
        yield server.publish("t", pa.Table.from_batches(batches))


def read(
    endpoint: bow.Endpoint, is_kept: Callable[[int], bool], pool: bow.Pool
) -> tuple[list[bow.Batch], str]:
    """Return the batches that are kept, and why any was copied."""
    kept = []
    with bow.connect(endpoint, options=bow.ConnectOptions(pool=pool)) as stream:
        for number, batch in enumerate(stream):
            if is_kept(number):
                kept.append(batch)
            del batch
        return kept, stream.stats.copied_why


def test_a_few_small_batches_that_are_kept_do_not_hold_all_that_came(endpoint: bow.Endpoint) -> None:
    """Of 256 MiB every 64th batch of 64 KiB is kept: their memory and 16 MiB are, in a pool of 64 MiB."""
    pool = bow.Pool(budget=64 * MIB)
    kept, why = read(endpoint, lambda number: number % EVERY == 0, pool)
    assert pool.stats.in_use <= 16 * MIB
    assert "held far more memory than they use" in why
    numbers = [number for number in range(COUNT) if number % EVERY == 0]
    for number, batch in zip(numbers, kept, strict=True):
        assert batch["a"].to_numpy().tolist() == list(range(number, number + ROWS))


@pytest.mark.parametrize("kept", [0, 1])
def test_batches_that_are_all_kept_or_all_dropped_stay_where_they_came(
    endpoint: bow.Endpoint, kept: int
) -> None:
    """Nothing is copied where the memory of batches is used, or goes back."""
    assert read(endpoint, lambda _: bool(kept), bow.Pool(budget=1024 * MIB))[1] == ""
