"""Validation: right values pass, each fault has its status, and no value works longer than it is long."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import variant
from bowstring.columnar.batch import Batch
from bowstring.errors import InvalidBody
from bowstring.limits import DEFAULT_LIMITS
from bowstring.variant import Status
from tests.variant.conftest import Move
from tests.variant.encoding import Widths, array_bytes, encode, metadata_bytes, object_bytes
from tests.variant.get_columns import Row, column_of
from tests.variant.typed_values import VALUES

pytestmark = pytest.mark.filterwarnings("ignore:.* became null")  # that values are lost, is no matter here

EMPTY = b"\x01\x00\x00"
AB = metadata_bytes(["a", "b"])
TRUE = b"\x04"


def test_what_we_write_is_valid(on_device: Move) -> None:
    """Objects and arrays of all widths pass."""
    value = variant.Value(
        "object",
        {"a": variant.Value("array", [variant.Value("string", "x")]), "b": variant.Value("null", None)},
    )
    rows: list[Row] = [
        encode(value, Widths(ids, offsets, large))
        for ids in (1, 2, 3, 4)
        for offsets in (1, 2, 3, 4)
        for large in (False, True)
    ]
    assert set(variant.validate(on_device(column_of([*rows, None]))).to_arrow().to_pylist()[:-1]) == {
        Status.OK
    }


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_random_documents_are_valid(values: list[variant.Value]) -> None:
    """Whatever the encoder makes, validation finds right."""
    column = column_of([encode(value) for value in values], "binary")
    assert variant.validate(column).values.tolist() == [Status.OK] * len(values)


def number(kind: int, payload: bytes) -> bytes:
    return bytes([kind << 2]) + payload


DECIMAL_4 = number(8, b"\x00" + struct.pack("<i", 10**9))
FAULTS: dict[str, tuple[bytes, bytes, Status]] = {
    "nothing": (EMPTY, b"", Status.MALFORMED),
    "no metadata": (b"", TRUE, Status.MALFORMED),
    "version 2": (b"\x02\x00\x00", TRUE, Status.MALFORMED),
    "a dictionary too large": (b"\x01\xff\x00", TRUE, Status.MALFORMED),
    "a huge dictionary": (b"\xc1\xff\xff\xff\xff\x00\x00\x00\x00", TRUE, Status.MALFORMED),
    "a name that ends before it begins": (b"\x01\x02\x00\x02\x01ab", TRUE, Status.MALFORMED),
    "a first name that begins late": (b"\x01\x01\x01\x01a", TRUE, Status.MALFORMED),
    "a name that is no text": (b"\x01\x01\x00\x01\xff", TRUE, Status.MALFORMED),
    "a flag that lies": (metadata_bytes(["b", "a"], sorted_flag=True), TRUE, Status.MALFORMED),
    "an unknown type": (EMPTY, bytes([21 << 2]), Status.UNSUPPORTED),
    "an unknown type inside": (EMPTY, array_bytes([bytes([63 << 2])]), Status.UNSUPPORTED),
    "a short string too long": (EMPTY, b"\x0dab", Status.MALFORMED),
    "a short string that is no text": (EMPTY, b"\x05\xff", Status.MALFORMED),
    "a string that is no text": (EMPTY, number(16, b"\x01\x00\x00\x00\xff"), Status.MALFORMED),
    "a string too long": (EMPTY, number(16, b"\xff\xff\xff\xffab"), Status.MALFORMED),
    "a size cut off": (EMPTY, number(15, b"\x01\x00"), Status.MALFORMED),
    "a number cut off": (EMPTY, number(6, b"1234567"), Status.MALFORMED),
    "a scale too large": (EMPTY, number(8, b"\x27" + bytes(4)), Status.MALFORMED),
    "a decimal of 10 digits in 4 bytes": (EMPTY, DECIMAL_4, Status.MALFORMED),
    "a time that is tomorrow": (EMPTY, number(17, struct.pack("<q", 86_400_000_000)), Status.MALFORMED),
    "an id out of range": (AB, object_bytes([(2, TRUE)]), Status.MALFORMED),
    "a name twice": (AB, object_bytes([(0, TRUE), (0, TRUE)]), Status.MALFORMED),
    "a name twice, by two ids": (
        metadata_bytes(["b", "b"], sorted_flag=False),
        object_bytes([(0, TRUE), (1, TRUE)]),
        Status.MALFORMED,
    ),
    "names in no order": (AB, object_bytes([(1, TRUE), (0, TRUE)]), Status.MALFORMED),
    "more elements than bytes": (EMPTY, b"\x13\x33\x33\x33\x33" + TRUE, Status.MALFORMED),
    "counts that overflow 32 bits": (EMPTY, bytes([0x03 | 3 << 2 | 1 << 4]) + b"\x33" * 30, Status.MALFORMED),
    "a child behind the end": (EMPTY, b"\x03\x01\x01\x01" + TRUE, Status.MALFORMED),
    "a child that passes its container": (
        EMPTY,
        array_bytes([b"\x03\x01\x00\x01\x0c", TRUE]),
        Status.MALFORMED,
    ),
    "children that pass the end": (EMPTY, b"\x03\x01\x00\x09" + TRUE, Status.MALFORMED),
    "a fault far below": (
        EMPTY,
        array_bytes([TRUE, array_bytes([array_bytes([b"\x05\xff"])])]),
        Status.MALFORMED,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_has_its_status(name: str, on_device: Move) -> None:
    """A fault is found in its row, and the rows beside it stay right."""
    metadata, value, status = FAULTS[name]
    good = (AB, object_bytes([(0, TRUE), (1, b"\x09ok")]))
    for form in ("binary", "dictionary"):
        column = on_device(column_of([good, (metadata, value), good], form))
        assert variant.validate(column).to_arrow().to_pylist() == [Status.OK, status, Status.OK]
        beside = variant.get(column, "b", pa.string()).to_arrow().to_pylist()
        assert (beside[0], beside[2]) == ("ok", "ok")


def test_three_kinds_of_nothing(on_device: Move) -> None:
    """A Variant null is right like any value; an SQL NULL and a row with nothing in its `value` are told apart."""
    array = pa.StructArray.from_arrays(
        [pa.array([EMPTY] * 3, pa.binary()), pa.array([b"\x00", None, None], pa.binary())],
        names=["metadata", "value"],
        mask=pa.array([False, True, False]),
    )
    column = on_device(Batch.from_arrow(pa.record_batch({"v": array}))["v"])
    for full in (True, False):
        found = variant.validate(column, full=full, plain=True).to_arrow().to_pylist()
        assert found == [Status.OK, Status.SQL_NULL, Status.VARIANT_NULL]


def test_without_full_only_headers_are_seen() -> None:
    """A shallow validation sees the outermost header and the offsets of the metadata, and no more."""
    seen = {"nothing", "no metadata", "version 2", "an unknown type", "a number cut off", "a string too long"}
    hidden = {"a flag that lies", "a name twice", "a fault far below", "a short string that is no text"}
    for name in seen | hidden:
        metadata, value, status = FAULTS[name]
        found = variant.validate(column_of([(metadata, value)]), full=False).values.tolist()
        assert found == [status if name in seen else Status.OK], name


def test_shared_children_are_legal(on_device: Move) -> None:
    """Two fields may share one value."""
    shared = bytes([0x02, 2, 0, 1, 0, 0, 1]) + TRUE
    assert variant.validate(on_device(column_of([(AB, shared)]))).to_arrow().to_pylist() == [Status.OK]


def nested(levels: int) -> bytes:
    value = TRUE
    for _ in range(levels):
        value = array_bytes([value])
    return value


def test_depth_is_bounded(on_device: Move) -> None:
    """Values as deep as the limit pass; one level more, and 500 more, are too deep; a path reaches its end."""
    depth = DEFAULT_LIMITS.depth
    rows: list[Row] = [(EMPTY, nested(levels)) for levels in (depth, depth + 1, depth + 500)]
    column = on_device(column_of(rows))
    assert variant.validate(column).to_arrow().to_pylist() == [Status.OK, Status.TOO_DEEP, Status.TOO_DEEP]
    deeper = DEFAULT_LIMITS.replace(depth=depth + 1)
    assert variant.validate(column, limits=deeper).to_arrow().to_pylist()[:2] == [Status.OK, Status.OK]
    found = variant.get(column, [0] * (depth + 500), pa.bool_()).to_arrow().to_pylist()
    assert found == [None, None, True]


def shared_bomb(levels: int) -> bytes:
    """Return an array of two elements that are one and the same, nested: twice as many leaves each level."""
    value = TRUE
    for _ in range(levels):
        width = 1 if len(value) < 256 else 2
        ends = b"".join(end.to_bytes(width, "little") for end in (0, 0, len(value)))
        value = bytes([0x03 | width - 1 << 2, 2]) + ends + value
    return value


def text_bomb(count: int) -> bytes:
    """Return an array of many elements that are one and the same long string."""
    text = number(16, struct.pack("<I", count) + b"x" * count)
    ends = bytes(4 * count) + struct.pack("<I", len(text))
    return bytes([0x03 | 3 << 2 | 1 << 4]) + struct.pack("<I", count) + ends + text


def test_bombs_end_at_once(on_device: Move) -> None:
    """Children shared on every level, and texts shared by thousands, cost no more than their bytes."""
    rows: list[Row] = [
        (EMPTY, shared_bomb(60)),
        (EMPTY, text_bomb(20_000)),
        (EMPTY, shared_bomb(2)),
        (EMPTY, TRUE),
    ]
    expected = [Status.TOO_DEEP, Status.TOO_DEEP, Status.OK, Status.OK]
    assert variant.validate(on_device(column_of(rows))).to_arrow().to_pylist() == expected


def test_names_that_are_compared_for_ever(on_device: Move) -> None:
    """Many objects whose long names differ in the last letter are given up, not compared to the end."""
    names = ["x" * 5000 + letter for letter in "ba"]  # unsorted: so ids do not tell their order
    one = object_bytes([(1, TRUE), (0, TRUE)])
    rows: list[Row] = [
        (metadata_bytes(names, sorted_flag=False), value) for value in (one, array_bytes([one] * 200))
    ]
    found = variant.validate(on_device(column_of(rows))).to_arrow().to_pylist()
    assert found == [Status.OK, Status.TOO_DEEP]


def test_offsets_that_decrease_are_refused() -> None:
    """Values whose offsets step back belong to several rows; the column is refused."""
    offsets = pa.py_buffer(b"".join(each.to_bytes(4, "little") for each in (0, 1, 0, 1)))
    values = pa.Array.from_buffers(pa.binary(), 3, [None, offsets, pa.py_buffer(TRUE)])
    array = pa.StructArray.from_arrays(
        [pa.array([EMPTY] * 3, pa.binary()), values], names=["metadata", "value"]
    )
    with pytest.raises(InvalidBody, match="decrease"):
        variant.validate(array, plain=True)
