"""What was decoded by rules before is decoded by programs, to the same values and the same errors."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.errors import BowstringError
from bowstring.kernels import host
from bowstring.kernels.vortex.program import evaluate
from bowstring.testing import fake_device
from bowstring.vortex.dtype import DType
from tests.vortex.streams import stream_of
from tests.vortex.test_hostile import LIMITS, damaged, small_streams
from tests.vortex.test_trees import comparable
from tests.vortex.trees import TYPES, Trees

TIMES = 3
"""A shape is decoded by the rules when it is new, recorded when it comes again, and then has a program."""


def outcome(batch: Any, position: int, device: Any = None) -> str:
    """Return the values of a column, or which error says that it has none; on a device only rules decode."""
    try:
        found = batch.decode([position], device=device)
        found.validate(full=True)
        return comparable(found.to_arrow().column(0))
    except BowstringError as error:
        return type(error).__name__


def is_the_same_on_a_device(data: bytes, times: int = 1) -> None:
    """Read a stream some times on the host, and compare each column with that of a device."""
    try:
        batches = list(bow.vortex.open_stream(data, limits=LIMITS))
    except BowstringError:
        return
    for batch in batches:
        for position in range(batch.num_columns):
            expected = outcome(batch, position, fake_device())
            for _ in range(times):
                assert outcome(batch, position) == expected, str(batch.encoding(position))


@functools.cache
def streams(folder: Path) -> list[bytes]:
    """Return the golden streams that are quickly read."""
    return small_streams(folder)


def test_golden_streams_are_the_same_by_rules_and_by_programs(vortex_test_data: Path) -> None:
    """Every encoding that writers use, and those made by hand."""
    for data in streams(vortex_test_data):
        is_the_same_on_a_device(data, TIMES)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seeds=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=2),
    dtype=st.sampled_from(TYPES),
    rows=st.lists(st.sampled_from((1, 3, 70, 1024, 1500)), min_size=4, max_size=6),
    depth=st.integers(0, 2),
)
def test_one_program_serves_messages_of_other_sizes(
    seeds: list[int], dtype: DType, rows: list[int], depth: int
) -> None:
    """Widths, offsets, references, lengths and counts are of each message; a choice that differs is seen."""
    messages = [
        (Trees(np.random.default_rng(seeds[at % len(seeds)])).array(dtype, each, depth), each)
        for at, each in enumerate(rows)
    ]
    is_the_same_on_a_device(stream_of(dtype, *messages), TIMES)


def check_damaged(folder: Path, seed: int) -> None:
    """Damage a stream whose programs are made, in some ways."""
    rng = random.Random(seed)
    data = rng.choice(streams(folder))
    is_the_same_on_a_device(data, TIMES)
    for _ in range(5):
        is_the_same_on_a_device(damaged(data, rng))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32 - 1))
def test_damaged_streams_are_the_same_by_rules_and_by_programs(vortex_test_data: Path, seed: int) -> None:
    """What a message says never makes a program do what the rules would not."""
    check_damaged(vortex_test_data, seed)


@pytest.mark.slow
def test_many_damaged_streams_are_the_same_by_rules_and_by_programs(vortex_test_data: Path) -> None:
    """The same for as long as a fuzzer runs."""
    for seed in range(500):
        check_damaged(vortex_test_data, seed)


def test_a_column_that_is_kept_stays_true(vortex_test_data: Path) -> None:
    """Memory that a program needs for itself is used again; what it returns is not."""
    data = stream_of(TYPES[0], (Trees(np.random.default_rng(5)).array(TYPES[0], 1500, 2), 1500))
    [batch] = bow.vortex.open_stream(data)
    kept = [batch.decode().to_arrow() for _ in range(TIMES + 2)]
    for each in streams(vortex_test_data)[:40]:
        is_the_same_on_a_device(each, TIMES)
    assert {comparable(each.column(0)) for each in kept} == {comparable(kept[0].column(0))}


def test_bytes_that_change_while_a_program_runs_lead_nowhere(
    vortex_test_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer that writes what it published gets an error or other values, and reaches no other memory."""
    rng, targets = random.Random(7), list[Any]()
    bound = host.bound

    def bound_and_changed(function: Any, **options: Any) -> Any:
        found: Any = bound(function, **options)
        if function is not evaluate:
            return found

        def run(*words: Any) -> None:
            found(*words)
            for body in targets:
                body[rng.randrange(max(0, len(body) - 400), len(body))] = rng.choice(
                    (0, 1, 127, rng.randrange(256))
                )

        return run

    monkeypatch.setattr(host, "bound", bound_and_changed)
    for data in streams(vortex_test_data):
        for batch in bow.vortex.open_stream(bytearray(data), limits=LIMITS):
            for position in range(batch.num_columns):
                assert {outcome(batch, position) for _ in range(TIMES)}
                body = np.ctypeslib.as_array(
                    (ctypes.c_uint8 * batch.buffer.nbytes).from_address(batch.buffer.address)
                )
                before = body.copy()
                for _ in range(5):
                    targets[:] = [body]
                    with contextlib.suppress(BowstringError):
                        batch.decode([position]).to_arrow()
                    targets.clear()
                    body[:] = before
