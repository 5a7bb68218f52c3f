"""What cannot be taken as a column is named."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bowstring.columnar import Batch, batches
from bowstring.errors import BowstringError, LimitExceeded, UsageError


class Broken:
    """Says that it is Arrow data, and fails."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        raise ValueError("broken inside")


def _differing() -> pa.ChunkedArray:
    """Return chunks whose dictionaries pyarrow does not join."""
    return pa.chunked_array([pa.DictionaryArray.from_arrays([0], pa.array([[word]])) for word in ("a", "b")])


BAD: dict[str, Any] = {
    "unequal": np.arange(3),
    "two dimensions": np.zeros((4, 4)),
    "no dimension": np.array(4),
    "a number": 4,
    "swapped bytes": np.zeros(4, ">i4"),
    "complex": np.zeros(4, complex),
    "mixed": np.array([1, "x", 2, 3], object),
    "too large": [2**70] * 4,
    "objects": [object()] * 4,
    "a wrong mask": np.ma.MaskedArray(np.zeros((2, 2)), np.ones((2, 2), bool)),
    "a failing producer": Broken(),
    "chunks": _differing(),
    "nested": pa.nulls(4, reduce(lambda inner, _: pa.list_(inner), range(80), pa.int8())),
}


@pytest.mark.parametrize("kind", BAD)
def test_columns_are_named(kind: str) -> None:
    """Of several columns the one that cannot be taken is named, whatever is wrong with it."""
    with pytest.raises(BowstringError, match="at column 'wrong'") as caught:
        Batch.from_arrow({"a": np.arange(4), "b": np.arange(4), "wrong": BAD[kind], "z": [1, 2, 3, 4]})
    assert type(caught.value) is (LimitExceeded if kind == "nested" else UsageError)


def test_columns_of_later_batches_are_named() -> None:
    """So is one of a batch that is taken from an iterable."""
    _, taken = batches([{"a": [1], "b": [2]}, {"a": [1], "b": [2, 3]}])
    with pytest.raises(UsageError, match="found 2; at column 'b'"):
        list(taken)


def test_chunks_of_tables_are_named() -> None:
    """Where the chunks of a table cannot be joined the error says of which column."""
    with pytest.raises(UsageError, match=r"cannot be joined.* at column 'wrong'"):
        Batch.from_arrow(pa.table({"a": [1, 2], "wrong": _differing()}))


@pytest.mark.parametrize("name", [None, 1, b"x", "\ud800"], ids=repr)
def test_names_are_text(name: Any) -> None:
    """What is no Unicode text names no column."""
    with pytest.raises(UsageError, match="name of a column"):
        Batch.from_arrow({name: [1]})


def test_values_that_are_no_column_are_named() -> None:
    """The error for values that pyarrow refuses names their column."""
    with pytest.raises(UsageError, match=r"the values are no column; .* at column 'fare'"):
        Batch.from_arrow({"fare": [1, "x"]})
