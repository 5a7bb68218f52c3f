"""A process that may open no more files: it is told so, and loses nothing."""

from __future__ import annotations

from collections.abc import Callable

from tests.faults.program import Program


def test_few_descriptors(run: Callable[..., Program], between_processes: str) -> None:
    """Whichever descriptor is one too many, an error names the limit, none leaks, and with enough all is read."""
    program = run("few_descriptors", between_processes)
    assert program.hear() == "ok"
    program.end()


def test_few_descriptors_within_the_process(run: Callable[..., Program]) -> None:
    """The same holds where server and reader are in one process, whose loop waits for both with descriptors."""
    program = run("few_descriptors", "inproc:")
    assert program.hear() == "ok"
    program.end()
