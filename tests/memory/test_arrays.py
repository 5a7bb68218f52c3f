"""The distinct ones of some numbers, without NumPy's function for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring
from bowstring import variant
from bowstring.memory.arrays import distinct

PACKAGE = Path(bowstring.__file__).parent
# All of them: a generator that a server's thread runs may call anything.
FOLDERS = sorted(each.name for each in PACKAGE.iterdir() if (each / "__init__.py").exists())


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_each_number_once(numbers: list[int]) -> None:
    """Each number is given once, in order."""
    assert distinct(np.array(numbers, np.int64)) == sorted(set(numbers))


def calls_of_unique(source: str) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unique":
            yield node


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_hashes_of_numpy_unique_are_never_used(folder: str) -> None:
    """``numpy.unique`` is called with `return_inverse`, which sorts: hashing may abort the process at its end."""
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        for call in calls_of_unique(path.read_text()):
            given = {each.arg for each in call.keywords}
            assert "return_inverse" in given, f"{path.relative_to(PACKAGE)}:{call.lineno}"


def test_json_is_read_without_numpy_unique(monkeypatch: pytest.MonkeyPatch) -> None:
    """``variant.from_json`` and Spark's times with zones work where ``numpy.unique`` cannot hash."""
    real = np.unique

    def sorting(*arrays: Any, **options: Any) -> Any:
        assert options.get("return_inverse"), "numpy.unique hashes"
        return real(*arrays, **options)

    monkeypatch.setattr(np, "unique", sorting)
    rows = ['{"at": "2024-03-10 09:30:00 Europe/Berlin"}'] * 3
    column = variant.from_json(rows)
    at = variant.get(column, "$.at", pa.timestamp("us", "UTC"), cast="spark").to_arrow()
    assert at.cast(pa.int64()).to_pylist() == [1_710_059_400_000_000] * 3
