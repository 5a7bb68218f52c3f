"""The keys of objects."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.errors import InvalidBody
from bowstring.testing import fake_device
from bowstring.variant.codec.primitives import Value
from tests.variant.encoding import column_of, metadata_bytes, object_bytes, variant_array, variant_field
from tests.variant.typed_values import VALUES


def keys(column: Any) -> list[list[str] | None]:
    found = variant.keys(column).to_arrow()
    found.validate(full=True)
    rows: list[list[str] | None] = found.to_pylist()
    return rows


@pytest.mark.parametrize("device", ["cpu", "fake"])
@given(rows=st.lists(st.none() | VALUES, max_size=6))
def test_keys_of_any_rows(device: str, rows: list[Value | None]) -> None:
    """Objects give their keys in the order of UTF-8, anything else a null."""
    expected = [
        sorted(row.value, key=str.encode) if row is not None and row.type == "object" else None
        for row in rows
    ]
    column = variant.from_python(rows)
    if device == "fake":
        column = column.as_batch().to_device(fake_device())[0]
    assert keys(column) == expected


def test_containers_without_children() -> None:
    """An empty object has no keys, an empty array is no object."""
    assert keys(variant.from_python([{}, []])) == [[], None]


def test_the_order_of_utf_16_is_read() -> None:
    """An object that an old writer sorted by UTF-16 has the same keys."""
    metadata = metadata_bytes(["\uffe5", "😀"])
    legacy = object_bytes([(1, b"\x00"), (0, b"\x00")])
    column = column_of(variant_array([(metadata, legacy)]), variant_field("v"))
    assert keys(column) == [["\uffe5", "😀"]]
    exploded = variant.explode(column)["key"]
    assert exploded.to_pylist() == ["😀", "\uffe5"]


def test_a_key_twice_is_refused() -> None:
    """Also where another key is between the two."""
    metadata = metadata_bytes(["a", "b"])
    twice = object_bytes([(0, b"\x00"), (1, b"\x00"), (0, b"\x00")])
    column = column_of(variant_array([None, (metadata, twice)]), variant_field("v"))
    for call in (variant.keys, variant.explode):
        with pytest.raises(InvalidBody, match=r"twice.*row 1"):
            call(column)


def test_only_the_outermost_object_is_read() -> None:
    """A field whose inside is broken does no harm; the object's own table does."""
    metadata = metadata_bytes(["a"])
    inside = column_of(
        variant_array([(metadata, object_bytes([(0, b"\x03\x01\x00\x00")]))]), variant_field("v")
    )
    assert keys(inside) == [["a"]]
    broken = column_of(variant_array([(metadata, object_bytes([(1, b"\x00")]))]), variant_field("v"))
    with pytest.raises(InvalidBody, match="row 0"):
        variant.keys(broken)


def test_type_and_name() -> None:
    """The column is a list of strings by the name of the Variant column."""
    found = variant.keys(variant.from_python([{"a": 1}], name="event"))
    assert found.name == "event"
    assert found.type == pa.list_(pa.field("item", pa.string(), nullable=False))
