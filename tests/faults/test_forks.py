"""Forks in the middle: what children inherit stays true, and what they may not use says so at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.program import Program


@pytest.fixture
def forked() -> None:
    """Start each Python anew: its forks are what is tested."""


@pytest.mark.parametrize(
    "case",
    [
        "resident_unix",
        "resident_inproc",
        "lazy_unix",
        "lazy_tcp",
        "between_forked_and_fork",
        "every_lock_held unix:",
        "every_lock_held tcp://127.0.0.1:0",
        "every_lock_held inproc:",
        "data_sets",
        "producer_forks",
        "pool_in_the_middle",
        "parent_killed",
        "child_ends_normally",
        "c_fork_of_a_reader unix: resident",
        "c_fork_of_a_reader unix: lazy",
        "c_fork_of_a_reader inproc: resident",
        "c_fork_of_a_reader inproc: lazy",
        "c_fork_of_a_reader tcp://127.0.0.1:0 lazy",
        "c_fork_of_a_producer",
        "c_fork_then_killed",
        "c_fork_then_exit",
    ],
)
def test_forks(run: Callable[..., Program], case: str) -> None:
    """What ``programs/forking.py`` says of the case holds, and parent and child end in peace."""
    program = run("forking", *case.split())
    assert program.hear() == "ok"
    program.end()
