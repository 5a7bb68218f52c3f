"""Values that share their bytes: ``variant.explode`` and ``keys`` refuse too large a result before they copy it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pyarrow as pa
import pytest

from bowstring import variant
from bowstring.columnar.batch import Column
from bowstring.errors import InvalidBody, LimitExceeded
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.variant import Value
from tests.variant.encoding import array_bytes, column_of, encode, metadata_bytes, variant_field

MIB = 1 << 20


def refused(
    column: Column,
    most: int,
    match: str,
    limits: Limits = DEFAULT_LIMITS,
    call: Callable[..., object] = variant.explode,
) -> None:
    """Check that a column is refused, and that no more than `most` bytes were allocated for that."""
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded, match=match):
            call(column, limits=limits)
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def marked(array: pa.StructArray) -> Column:
    return column_of(array, variant_field("v").with_type(array.type))


def views(metadata: bytes, value: bytes, rows: int) -> Column:
    """Return a Variant column whose rows are views of the same value."""
    one = pa.array([value], pa.binary_view())
    bytes_of_one = one.buffers()[1].to_pybytes()
    slots = pa.Array.from_buffers(
        pa.binary_view(), rows, [None, pa.py_buffer(bytes_of_one * rows), *one.buffers()[2:]]
    )
    names = pa.DictionaryArray.from_arrays(
        pa.array([0] * rows, pa.int32()), pa.array([metadata], pa.binary())
    )
    return marked(pa.StructArray.from_arrays([names, slots], ["metadata", "value"]))


def sharing(count: int, child: bytes) -> bytes:
    """Return an array of one child `count` times."""
    size = len(child).to_bytes(3, "little")
    header = bytes([3 | 2 << 2 | 1 << 4]) + count.to_bytes(4, "little")
    return header + bytes(3 * count) + size + child


def test_children_that_share_their_bytes_are_refused() -> None:
    """An array whose elements together take more bytes than itself is refused, as by ``get`` of a list."""
    text = encode(Value("string", "x" * 60_000))[1]
    bomb = sharing(20_000, text)
    assert len(bomb) < 130_000
    good = encode(Value("array", [Value("int8", 1)]))
    column = marked(
        pa.StructArray.from_arrays(
            [pa.array([good[0]] * 2, pa.binary()), pa.array([good[1], bomb], pa.binary())],
            ["metadata", "value"],
        )
    )
    refused(column, 16 * MIB, "share their bytes.*row 1")
    with pytest.raises(LimitExceeded):
        variant.get(column, "$", pa.list_(variant.type()), on_error="raise")


def test_few_small_children_may_share_their_bytes() -> None:
    """Children that share their bytes, and together take no more than what holds them, become rows."""
    column = marked(
        pa.StructArray.from_arrays(
            [pa.array([metadata_bytes([])], pa.binary()), pa.array([sharing(3, b"\x0c\x07")], pa.binary())],
            ["metadata", "value"],
        )
    )
    assert variant.to_python(variant.explode(column)["value"]) == [7, 7, 7]


def test_rows_that_share_their_bytes_are_refused() -> None:
    """Rows that are views of one value are refused before more than 2 GiB, and before any of it is copied."""
    text = encode(Value("string", "x" * 2 * MIB))[1]
    column = views(metadata_bytes([]), array_bytes([text]), 1100)
    refused(column, 16 * MIB, "the values of an exploded Variant column.*2147483647")


def test_keys_that_rows_share_are_refused() -> None:
    """A long key that rows share through their metadata is refused before 2 GiB of it are copied."""
    one = Value("object", {"k" * 2 * MIB: Value("int8", 1)})
    column = views(*encode(one), 1100)
    refused(column, 32 * MIB, "the keys of an exploded Variant column.*2147483647")
    refused(column, 32 * MIB, "the keys of a Variant column.*2147483647.*row 1023", call=variant.keys)


@pytest.mark.parametrize(
    ("rows", "what"),
    [([[None] * 100], "children"), ([["x" * 300] * 3], "values"), ([{"k" * 300: 1, "l" * 300: 2}], "keys")],
)
def test_limits(rows: list[object], what: str) -> None:
    """``Limits.extracted_bytes`` bounds each column of the result."""
    column = variant.from_python(rows)
    refused(column, MIB, f"the {what} of an exploded.*at most 500 bytes.*row 0", Limits(extracted_bytes=500))
    assert len(variant.explode(column)) == len(rows[0])  # type: ignore[arg-type]


def test_metadata_that_overlap_are_refused() -> None:
    """Metadata that are many views of the same bytes are refused, as by ``get``."""
    names = metadata_bytes(["k" * MIB])
    whole = pa.array([names], pa.binary_view())
    first = whole.buffers()[1].to_pybytes()
    rows = 100
    slots = b"".join((len(names) - row).to_bytes(4, "little") + first[4:] for row in range(rows))
    blobs = pa.Array.from_buffers(pa.binary_view(), rows, [None, pa.py_buffer(slots), *whole.buffers()[2:]])
    values = pa.array([array_bytes([b"\0"])] * rows, pa.binary())
    column = marked(pa.StructArray.from_arrays([blobs, values], ["metadata", "value"]))
    for call in (variant.explode, variant.keys, variant.to_python):
        with pytest.raises(InvalidBody, match="overlap"):
            call(column)
