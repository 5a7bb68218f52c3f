"""What ``variant.from_python`` takes for null, and what it refuses to take for rows."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bowstring import variant
from bowstring.errors import UsageError
from bowstring.variant import Value

NULL = Value("null", None)
WITHOUT_PANDAS = """
import sys

class WithoutPandas:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, WithoutPandas())
from bowstring import variant

assert variant.from_python([None, 1, 1.5, b"x", [None]]).null_count == 1
assert "pandas" not in sys.modules
"""
NULLS = [None, pd.NA, pd.NaT, np.datetime64("NaT")]


@pytest.mark.parametrize("null", NULLS, ids=repr)
def test_nulls_of_pandas_and_numpy(null: Any) -> None:
    """A row that is ``pandas.NA`` or ``NaT`` is an SQL NULL, and a Variant null inside of a row, as None is."""
    column = variant.from_python([null, [null], {"a": null}, 1])
    assert variant.to_python(column, typed=True) == [
        None,
        Value("array", [NULL]),
        Value("object", {"a": NULL}),
        Value("int8", 1),
    ]


def test_columns_of_pandas() -> None:
    """A Series with missing values becomes a column with nulls at the same rows."""
    for series in (pd.Series([1, None], dtype="Int64"), pd.Series(pd.to_datetime(["2024-01-01", None]))):
        assert variant.from_python(series).null_count == 1


def test_pandas_is_not_needed() -> None:
    """Nulls are found where pandas cannot be imported."""
    subprocess.run([sys.executable, "-c", WITHOUT_PANDAS], check=True, timeout=120)


@pytest.mark.parametrize(
    "alone",
    [{"a": 1}, "text", b"bytes", bytearray(b"x"), memoryview(b"x"), 5, None, Value("int8", 1)],
    ids=lambda alone: type(alone).__name__,
)
def test_one_thing_alone_is_refused(alone: Any) -> None:
    """A dict or a text alone is not taken for rows of its keys or letters; the message says what to write."""
    with pytest.raises(UsageError, match=rf"found a {type(alone).__name__} alone.*\[row\]"):
        variant.from_python(alone)


@pytest.mark.parametrize("table", [pd.DataFrame({"a": [1]}), pa.table({"a": [1]})], ids=["pandas", "pyarrow"])
def test_tables_are_refused(table: Any) -> None:
    """A table, which is iterated by its columns, is not taken for rows."""
    with pytest.raises(UsageError, match=r"to_pylist\(\)"):
        variant.from_python(table)
