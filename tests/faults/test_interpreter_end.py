"""Scripts that end in the middle: without a word, without a crash, and soon."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.program import Program

# Below the program's close_timeout, which a thread that nobody wakes would cost; with room for a busy machine.
SOON = 20.0
CASES = [
    "views lazy",
    "views resident",
    "views slow",
    "capsules lazy",
    "capsules resident",
    "reader lazy",
    "objects lazy",
    "cycle lazy",
    "cycle resident",
    "reading lazy",
    "reading slow",
    "publishing lazy",
    "dataset slow",
    "starving lazy",
    "alone lazy",
    "exit lazy",
]
SOME = ["views lazy", "capsules lazy", "objects lazy", "reading lazy", "reading slow", "cycle lazy"]


@pytest.fixture
def forked() -> None:
    """Start each Python anew: its end is what is tested."""


def ends(run: Callable[..., Program], case: str, address: str) -> None:
    program = run("ending", case, address)
    assert program.hear() == "end"
    program.end(SOON)


@pytest.mark.parametrize("case", CASES)
def test_the_end(run: Callable[..., Program], case: str) -> None:
    """A script that ends with live streams, views, capsules, servers and threads ends at once, with 0, and mute."""
    ends(run, case, "unix:")


@pytest.mark.parametrize("case", SOME)
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:0", "inproc:"], ids=["tcp", "inproc"])
def test_the_end_elsewhere(run: Callable[..., Program], case: str, address: str) -> None:
    """So it does on the other transports."""
    ends(run, case, address)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("address", ["unix:", "tcp://127.0.0.1:0", "inproc:"], ids=["unix", "tcp", "inproc"])
def test_the_end_many_times(run: Callable[..., Program], case: str, address: str) -> None:
    """And so it does every time."""
    for _ in range(6):
        ends(run, case, address)
