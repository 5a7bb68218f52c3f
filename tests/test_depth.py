"""Calls that move data enter few functions: what ``scripts/depth.py`` counts is no more than what was reached."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

DEPTH = runpy.run_path(f"{Path(__file__).parents[1]}/scripts/depth.py")

# A little more than was counted: a function that is added where it must be fails nobody.
FUNCTIONS = {
    "to_arrow of 8 columns": 25,
    "open a schema of 8 columns": 55,
    "write a batch": 15,
    "write a batch, LZ4": 30,
    "read a batch, LZ4, opening included": 105,
    "variant.get": 110,
    "Vortex stream of 8 columns to Arrow": 145,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_call_enters_few_functions(name: str) -> None:
    """A call, warm, enters at most so many functions of the package in its thread."""
    entered = DEPTH["measured"](name).here
    assert 0 < len(entered) <= FUNCTIONS[name], sorted(code.co_qualname for code in entered)
