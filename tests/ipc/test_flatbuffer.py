"""Tables of a flatbuffer, walked with what their vtables said before."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.errors import InvalidMetadata
from bowstring.ipc.flatbuf.reader import Slots, Tables, slots_of
from bowstring.ipc.flatbuf.schema import encode_schema

SCHEMA = encode_schema(
    pa.schema({"a": pa.int8(), "b": pa.struct({"c": pa.string(), "d": pa.int8()}), "e": pa.int16()})
)


def said(tables: Tables, table: int) -> Slots | str:
    """Return what a walk says of the table at a place."""
    try:
        return tables.slots(table, "here")
    except InvalidMetadata as error:
        return str(error)


def expected(data: bytes, table: int) -> Slots | str:
    """Return what is so of the table at a place, whatever was walked before."""
    try:
        return slots_of(data, len(data), table, "here")
    except InvalidMetadata as error:
        return str(error)


@given(
    changes=st.lists(st.tuples(st.integers(0, len(SCHEMA) - 1), st.integers(0, 255)), max_size=8),
    places=st.lists(st.integers(-8, len(SCHEMA) + 8), max_size=40),
)
def test_what_was_walked_before_changes_nothing(changes: list[tuple[int, int]], places: list[int]) -> None:
    """Every place says of its table the same, right or wrong, in whatever order tables are walked."""
    data = bytearray(SCHEMA)
    for at, byte in changes:
        data[at] = byte
    tables = Tables(bytes(data))
    for place in (*places, *range(0, len(data), 4), *places):
        assert said(tables, place) == expected(bytes(data), place)


def test_tables_that_share_a_vtable() -> None:
    """Two tables of one vtable have the same slots; one that says it has it, and lies outside, is refused."""
    vtable = struct.pack("<4H", 8, 8, 4, 0)
    data = vtable + struct.pack("<iI", 8, 7) + struct.pack("<iI", 16, 9)
    tables = Tables(data)
    assert [tables.slots(table, "here")[:2] for table in (8, 16)] == [(4, 0), (4, 0)]
    with pytest.raises(InvalidMetadata, match="a table is out of bounds"):
        tables.slots(len(data), "here")


def test_no_number_of_vtables_is_kept() -> None:
    """Of metadata with a vtable for each of many tables, few are remembered."""
    count = 1000
    data = struct.pack("<2H", 4, 4) * count
    data += b"".join(struct.pack("<i", len(data)) for _ in range(count))
    tables = Tables(data)
    for table in range(4 * count, 8 * count, 4):
        assert said(tables, table) == expected(data, table)
    assert len(tables._vtables) <= 64
