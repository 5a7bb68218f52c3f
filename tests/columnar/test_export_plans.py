"""Batches of one schema are exported alike, whatever numbers of variadic buffers they have in turn."""

from __future__ import annotations

import sys
import tracemalloc
from types import FrameType

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring.columnar.parts import batch_parts

COLUMNS = 20


def batch_of(extra: int) -> bow.Batch:
    """Return columns of views, the first of which has so many data buffers."""
    long = pa.array(["a text that is too long to be inline", None, "short"], pa.string_view())
    many = pa.concat_arrays([long] * extra).slice(0, 3)
    columns = {f"c{number}": long for number in range(COLUMNS)}
    return bow.Batch.from_arrow(pa.record_batch({"first": many, **columns}))


def calls_of(batches: list[bow.Batch]) -> int:
    """Return how many functions are entered to export batches in turn, when all were before."""
    for batch in batches:
        batch.to_arrow()
    count = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and "bowstring" in frame.f_code.co_filename

    sys.setprofile(note)
    try:
        for batch in batches:
            batch.to_arrow()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("kinds", [2, 3, 8])
def test_batches_that_differ_in_turn_cost_as_much_as_equal_ones(kinds: int) -> None:
    """What is worked out for some numbers of buffers is kept while others come between."""
    batches = [batch_of(extra) for extra in range(1, kinds + 1)]
    counts = {batch_parts(batch).variadic_counts for batch in batches}
    assert len(counts) == kinds
    assert calls_of(batches * 2) == 2 * sum(calls_of([batch, batch]) // 2 for batch in batches)
    for batch in batches:
        batch.to_arrow().validate(full=True)
        assert batch.to_arrow().column("c0").to_pylist()[1:] == [None, "short"]


def test_what_is_kept_is_bounded() -> None:
    """Of very many numbers of buffers a few are kept."""
    batches = [batch_of(extra) for extra in range(1, 200)]
    batches[0].to_arrow()
    tracemalloc.start()
    try:
        for batch in batches:
            batch.to_arrow()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 << 20
