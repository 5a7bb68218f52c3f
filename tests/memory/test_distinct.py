"""The distinct ones of some numbers, without NumPy's function for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring
from bowstring.memory.distinct import distinct

# What threads of ours run; the rest is called by threads of the user's.
ROOMS = ["memory", "columnar", "ipc", "dissociated", "transport", "reading", "serving", "depot"]


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_each_number_once(numbers: list[int]) -> None:
    """Each number is given once, in order."""
    assert distinct(np.array(numbers, np.int64)) == sorted(set(numbers))


def calls_of_unique(source: str) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unique":
            yield node


@pytest.mark.parametrize("room", ROOMS)
def test_no_thread_of_ours_asks_numpy(room: str) -> None:
    """``numpy.unique`` is called for places, too, or not at all: else its C++ lets go of the interpreter lock."""
    for path in sorted((Path(bowstring.__file__).parent / room).rglob("*.py")):
        for call in calls_of_unique(path.read_text()):
            assert any(each.arg == "return_inverse" for each in call.keywords), f"{path.name}:{call.lineno}"
