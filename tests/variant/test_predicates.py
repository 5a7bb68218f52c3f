"""Questions about the values at a path, and columns one behind the other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.errors import NotOnDevice, UsageError
from bowstring.testing import fake_device
from bowstring.variant import Value
from tests.variant.typed_values import VALUES

ROWS: list[str | None] = ['{"a": null}', '{"a": [1, []]}', '{"a": {}}', "{}", "[5]", "null", None]


@pytest.mark.parametrize("device", ["cpu", "fake"])
@pytest.mark.parametrize("shredded", [False, True])
def test_answers(device: str, shredded: bool) -> None:
    """Null, missing and SQL NULL are three things, in plain and in shredded columns, on any device."""
    column = variant.from_json(ROWS)
    if device == "fake":
        column = column.as_batch().to_device(fake_device())[0]
    if shredded:
        column = variant.shred(column)
    assert variant.exists(column, "$.a").to_pylist() == [True, True, True, False, False, False, None]
    assert variant.is_null(column, "$.a").to_pylist() == [True, False, False, None, None, None, None]
    assert variant.is_null(column).to_pylist() == [False] * 5 + [True, None]
    assert variant.array_length(column, "$.a").to_pylist() == [None, 2, *[None] * 5]
    assert variant.array_length(column, ["a", -1]).to_pylist() == [None, 0, *[None] * 5]
    assert variant.array_length(column).to_pylist() == [*[None] * 4, 1, None, None]


@pytest.mark.parametrize("call", [variant.exists, variant.is_null, variant.array_length])
def test_one_value_is_asked_for(call: Any) -> None:
    """There is one answer for each row."""
    with pytest.raises(UsageError, match="one value"):
        call(variant.from_json(["[]"]), "$[*]")


@pytest.mark.parametrize("device", ["cpu", "fake"])
@given(parts=st.lists(st.lists(st.none() | VALUES, max_size=3), min_size=1, max_size=3))
def test_columns_one_behind_the_other(device: str, parts: list[list[Value | None]]) -> None:
    """The rows of all columns are there in their order, with their types."""
    columns = [variant.from_python(part) for part in parts]
    if device == "fake":
        columns = [each.as_batch().to_device(fake_device())[0] for each in columns]
    made = variant.concat(columns).as_batch().to_device("cpu")[0]
    made.to_arrow().validate(full=True)
    assert variant.to_python(made, typed=True) == [row for part in parts for row in part]


def test_slices_and_shredded_columns_are_joined() -> None:
    """A part of a column, and one whose values are in typed columns."""
    rows = [json.dumps({"a": number}) for number in range(9)]
    column = variant.from_json(rows)
    made = variant.concat([column.batch.slice(7)[0], variant.shred(column.batch.slice(0, 2)[0])], name="x")
    assert made.name == "x"
    assert variant.to_json(made).to_pylist() == ['{"a":7}', '{"a":8}', '{"a":0}', '{"a":1}']


def test_what_cannot_be_joined() -> None:
    """No columns, and columns of two devices."""
    column = variant.from_json(["1"])
    with pytest.raises(UsageError, match="one or more"):
        variant.concat([])
    with pytest.raises(NotOnDevice):
        variant.concat([column, column.as_batch().to_device(fake_device())[0]])
