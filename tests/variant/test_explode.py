"""The children of rows as rows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.columnar import Batch
from bowstring.errors import BowstringError
from bowstring.testing import fake_device
from bowstring.variant.codec.primitives import Value
from tests.variant.encoding import array_bytes, column_of, metadata_bytes, variant_array, variant_field
from tests.variant.typed_values import VALUES


def rows_of(batch: Batch) -> list[tuple[Any, ...]]:
    """Return a batch of exploded rows as tuples, checked."""
    batch.to_arrow().validate(full=True)
    columns = [batch[name].to_arrow().to_pylist() for name in ("row", "position", "key")]
    return list(zip(*columns, variant.to_python(batch["value"], typed=True), strict=True))


def expected(rows: list[Value | None], *, outer: bool) -> list[tuple[Any, ...]]:
    """Return what the rows explode to, by their trees."""
    found: list[tuple[Any, ...]] = []
    for number, row in enumerate(rows):
        children: list[tuple[str | None, Value]] = []
        if row is not None and row.type == "object":
            children = sorted(row.value.items())
        elif row is not None and row.type == "array":
            children = [(None, child) for child in row.value]
        found += [(number, position, key, child) for position, (key, child) in enumerate(children)]
        if outer and not children:
            found.append((number, None, None, None))
    return found


@pytest.mark.parametrize("device", ["cpu", "fake"])
@given(rows=st.lists(st.none() | VALUES, max_size=6), outer=st.booleans())
def test_children_become_rows(device: str, rows: list[Value | None], outer: bool) -> None:
    """Each element and each field is a row with its parent, position and key; others give none, or one of nulls."""
    column = variant.from_python(rows)
    if device == "fake":
        column = column.as_batch().to_device(fake_device())[0]
    batch = variant.explode(column, outer=outer)
    assert batch.device.name == column.device.name
    assert rows_of(batch.to_device("cpu")) == expected(rows, outer=outer)


def test_exploding_twice() -> None:
    """What comes out is a Variant column that goes in again."""
    once = variant.explode(variant.from_python([[[1, 2], {"a": 3}]]))
    twice = variant.explode(once["value"])
    assert [row[3].value for row in rows_of(twice)] == [1, 2, 3]


def test_a_child_past_its_container_is_refused() -> None:
    """A child that says it is longer than its container raises, with its row."""
    column = column_of(variant_array([(metadata_bytes([]), array_bytes([b"\x15a"]))]), variant_field("v"))
    with pytest.raises(BowstringError, match="row 0"):
        variant.explode(column)
