"""Null slots of views and indices in what is exported: replaced where they lead outside, and only then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow

_BITS = pa.py_buffer(bytes([0b101]))
_TEXT = b"thirteen bytes and more"


def _views(null: list[int]) -> pa.Array:
    prefix = int.from_bytes(_TEXT[:4], "little")
    slots = np.array([[20, prefix, 0, 0], null, [2, 0x6261, 0, 0]], np.uint32)
    return pa.Array.from_buffers(
        pa.string_view(), 3, [_BITS, pa.py_buffer(slots.tobytes()), pa.py_buffer(_TEXT)]
    )


def _indices(null: int, type_: pa.DataType, words: int = 2) -> pa.Array:
    """Return an array whose null index has the bits of a number."""
    width = type_.bit_width // 8
    slots = b"".join((each % (1 << 8 * width)).to_bytes(width, "little") for each in (1, null, 0))
    dictionary = pa.array([f"word {number}" for number in range(words)])
    return pa.DictionaryArray.from_buffers(
        pa.dictionary(type_, pa.string()), 3, [_BITS, pa.py_buffer(slots)], dictionary
    )


@given(st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=4))
def test_null_views_lead_nowhere(null: list[int]) -> None:
    """Whatever a null view holds, pyarrow casts what is exported to what the valid rows hold."""
    batch = bow.Batch.from_arrow({"s": _views(null)})
    expected = [_TEXT[:20].decode(), None, "ab"]
    for exported in (batch.to_arrow().column(0), batch["s"].to_arrow(), pa.record_batch(batch).column(0)):
        assert exported.cast(pa.large_string()).to_pylist() == expected
        exported.validate(full=True)


@pytest.mark.parametrize("offset", [-1, 1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("type_", [pa.string(), pa.list_(pa.int64())], ids=str)
def test_an_offset_without_slots_leads_nowhere(type_: pa.DataType, offset: int) -> None:
    """The only offset of a column, or child, without slots may be anything, too."""
    offsets = pa.py_buffer(np.array([offset], "i4").tobytes())
    if type_ == pa.string():
        empty = pa.Array.from_buffers(type_, 0, [None, offsets, pa.py_buffer(b"abc")])
    else:
        empty = pa.Array.from_buffers(type_, 0, [None, offsets], children=[pa.array([1, 2])])
    nested = pa.Array.from_buffers(pa.list_(type_), 2, [None, pa.py_buffer(bytes(12))], children=[empty])
    cases: list[tuple[pa.Array, list[Any]]] = [(empty, []), (nested, [[], []])]
    for array, expected in cases:
        exported = bow.Batch.from_arrow({"c": array}).to_arrow().column(0)
        exported.validate(full=True)
        assert exported.to_pylist() == expected
        assert pa.concat_arrays([exported, exported]).to_pylist() == [*expected, *expected]


@pytest.mark.parametrize(
    ("array", "is_copied"),
    [
        (_views([0, 0, 0, 0]), False),
        (_views([12, 1, 2, 3]), False),
        (_views([23, 7, 0, 0]), False),
        (_views([24, 7, 0, 0]), True),
        (_views([13, 7, 0, 11]), True),
        (_views([13, 7, 1, 0]), True),
        (_views([13, 7, 0, 2**32 - 1]), True),
        (_views([2**31, 0, 0, 0]), True),
        (_indices(1, pa.int32()), False),
        (_indices(-1, pa.int8()), False),
        (_indices(2, pa.int16()), True),
        (_indices(-2, pa.int64()), True),
        (_indices(-1, pa.uint32()), True),
        *[
            (_indices(null, type_, words), is_copied)
            for words in (2, 127, 128, 254, 255, 256, 300)
            for bits, signed, unsigned in (
                (8, pa.int8(), pa.uint8()),
                (16, pa.int16(), pa.uint16()),
                (64, pa.int64(), pa.uint64()),
            )
            for null in {0, words - 1, words, 127, 128, 254, -1, -2, -128}
            for type_, is_copied in (
                (signed, not -1 <= (null + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1) < words),
                (unsigned, null % (1 << bits) >= words),
            )
        ],
    ],
)
def test_only_strays_are_copied(array: pa.Array, *, is_copied: bool) -> None:
    """Slots are copied where a null one leads outside its buffers or its dictionary; all else stays where it is."""
    exported = bow.Batch.from_arrow({"c": array}).to_arrow().column(0)
    before, after = array.buffers(), exported.buffers()
    assert (after[1].address != before[1].address) is is_copied
    assert [each.address for each in (after[0], *after[2:])] == [
        each.address for each in (before[0], *before[2:])
    ]
    assert exported.equals(array)
