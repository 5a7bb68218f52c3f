"""Calls that move data enter few functions: what ``scripts/depth.py`` counts is no more than what was reached."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DEPTH = runpy.run_path(f"{Path(__file__).parents[1]}/scripts/depth.py")

# A little more than was counted: a function that is added where it must be fails nobody. Wanted are 110 for
# connect, and 70 for a server; what is left of a reader's are dialling, receiving and mapping, and of a server's
# the loop, which wakes a worker and keeps its jobs.
FUNCTIONS = {
    "publish": 60,
    "connect and read_next_batch": 127,
    "connect, read_next_batch and close": 145,
    "a server, while one connects and reads": 74,
    "to_arrow of 8 columns": 20,
    "open a schema of 8 columns": 74,
    "write a batch": 12,
    "write a batch, LZ4": 26,
    "read a batch, LZ4, opening included": 72,
    "variant.get": 80,
    "Vortex stream of 8 columns to Arrow": 107,
    "a partition of a data set: worker": 102,
    "a partition of a data set: depot": 150,
}


def test_all_rows_are_held() -> None:
    """Each call that the script counts has a bound."""
    assert set(FUNCTIONS) == set(DEPTH["NAMES"])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_call_enters_few_functions(name: str) -> None:
    """A call, warm, enters at most so many functions of the package in its thread."""
    entered = DEPTH["measured"](name).here
    assert 0 < len(entered) <= FUNCTIONS[name], sorted(function.name for function in entered)
