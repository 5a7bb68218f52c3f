"""Whatever stands in the bytes of a WKB column, each row ends in the status that a slow reader gives it."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring import geo
from tests.geo.geometries import ANY, Geometry, Style, box, decode, encode, geometries, ranges, styles

Move = Callable[[Any], bow.Column]
Status = geo.Status

POINT = encode(Geometry(1, 0, ((1.0, 2.0),)))


def statuses(rows: list[bytes]) -> list[int]:
    return geo.validate(pa.array(rows, pa.binary())).to_arrow().to_pylist()


def expected(row: bytes) -> int:
    found = decode(row)
    return int(Status.OK if isinstance(found, Geometry) else found)


def nested(levels: int, inside: bytes = b"") -> bytes:
    """Return collections inside each other."""
    head = struct.pack("<BII", 1, 7, 1)
    return head * (levels - 1) + (head + inside if inside else struct.pack("<BII", 1, 7, 0))


@given(geometries(ANY), styles())
def test_every_prefix_ends_in_a_status(geometry: Geometry, style: Style) -> None:
    """A geometry that is cut off anywhere is malformed, and so is one with a byte behind it."""
    whole = encode(geometry, style)
    rows = [whole[:k] for k in range(len(whole))] + [whole + b"\0"]
    assert statuses([*rows, whole]) == [Status.MALFORMED] * len(rows) + [Status.OK]


@given(geometries(ANY), styles(), st.integers(0, 2**32 - 1))
def test_changed_bytes_are_read_as_a_slow_reader_reads_them(
    geometry: Geometry, style: Style, seed: int
) -> None:
    """With bytes flipped in headers and counts, status and box are those of a reader in plain Python."""
    rng, whole = random.Random(seed), encode(geometry, style)
    rows = []
    for _ in range(20):
        changed = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(changed))] = rng.choice(
                [0, 1, 2, 3, 7, 8, 0x40, 0x80, 0xFF, rng.randrange(256)]
            )
        rows.append(bytes(changed))
    assert statuses(rows) == list(map(expected, rows))
    found = geo.bounds(pa.array(rows), dimensions="xyzm", on_error="null").to_arrow().to_pylist()
    for row, each in zip(rows, found, strict=True):
        read = decode(row)
        wanted = box(ranges([read])) if isinstance(read, Geometry) else None
        assert (each is None) == (wanted is None)
        assert wanted is None or each == {name: getattr(wanted, name) for name in each}


@given(st.lists(st.binary(max_size=60), max_size=20))
def test_random_bytes_end_in_a_status(rows: list[bytes]) -> None:
    """Bytes without meaning, behind a header that has one or not, have the status of the slow reader."""
    headed = [struct.pack("<BI", 1, 1 + k % 7) + row for k, row in enumerate(rows)]
    assert statuses(rows + headed) == [*map(expected, rows), *map(expected, headed)]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", range(2, 8))
def test_counts_beyond_the_bytes(kind: int, order: str, on_device: Move) -> None:
    """A count of four billion is found out at once, with and without bytes for some of it."""
    head = struct.pack(f"{order}BII", order == "<", kind, 2**32 - 1)
    one = struct.pack(f"{order}BII", order == "<", max(kind - 3, 1), 0)
    rows = [head, head + bytes(64), head + one * 3]
    assert geo.validate(on_device(pa.array(rows))).to_arrow().to_pylist() == list(map(expected, rows))


def test_rings_without_vertices_are_bounded_by_their_counts(on_device: Move) -> None:
    """Each ring has a count of four bytes: a million empty rings need as many."""
    rings = struct.pack("<BII", 1, 3, 1_000_000)
    rows = [rings + bytes(4_000_000), rings + bytes(3_999_999)]
    assert geo.validate(on_device(pa.array(rows))).to_arrow().to_pylist() == [Status.OK, Status.MALFORMED]


def test_nesting_bombs(on_device: Move) -> None:
    """Collections inside each other are read as deep as ``Limits.depth`` says, and no deeper."""
    depth = bow.DEFAULT_LIMITS.depth
    rows = [nested(depth), nested(depth, POINT), nested(depth + 1), nested(depth + 1, POINT), nested(100_000)]
    # An empty collection opens nothing.
    wanted = [Status.OK, Status.OK, Status.OK, Status.TOO_DEEP, Status.TOO_DEEP]
    column = on_device(pa.array(rows))
    assert geo.validate(column).to_arrow().to_pylist() == wanted
    with pytest.raises(bow.LimitExceeded, match=r"Limits\.depth.*row 3"):
        geo.statistics(column)
    wide = bow.Limits(depth=depth + 1)
    assert geo.validate(column, limits=wide).to_arrow().to_pylist()[3] == Status.OK


@pytest.mark.parametrize("code", [0, 8, 15, 17, 1000, 1008, 3008, 4001, 0x1FFFFFFF, 0x90000000 + 1])
def test_unknown_codes(code: int, on_device: Move) -> None:
    """Codes beyond the seven types are unsupported, at the top and inside; the error says so."""
    odd = struct.pack("<BI", 1, code) + bytes(16)
    column = on_device(pa.array([odd, struct.pack("<BII", 1, 7, 1) + odd, POINT]))
    assert geo.validate(column).to_arrow().to_pylist() == [Status.UNSUPPORTED, Status.UNSUPPORTED, Status.OK]
    with pytest.raises(bow.Unsupported, match="type code"):
        geo.bounds(column)


def test_parts_of_another_type(on_device: Move) -> None:
    """Several points hold points only, several lines lines, several polygons polygons."""
    line, ring = encode(Geometry(2, 0, ())), encode(Geometry(3, 0, ()))
    rows = [struct.pack("<BII", 1, kind, 1) + part for kind in (4, 5, 6) for part in (POINT, line, ring)]
    found = geo.validate(on_device(pa.array(rows))).to_arrow().to_pylist()
    assert found == [0, 2, 2, 2, 0, 2, 2, 2, 0]


def test_byte_orders_other_than_two(on_device: Move) -> None:
    """A byte order is 0 or 1."""
    rows = [bytes([order]) + POINT[1:] for order in (1, 2, 3, 128, 255)]
    assert geo.validate(on_device(pa.array(rows))).to_arrow().to_pylist() == [0, 2, 2, 2, 2]


def test_offsets_that_decrease_are_refused() -> None:
    """Offsets that go back, or beyond the bytes and back, are refused before anything is read."""
    for row_ends in ([21, 5, 21], [2**31 - 1, 21, 21]):
        offsets = pa.py_buffer(np.array([0, *row_ends], np.int32))
        array = pa.Array.from_buffers(pa.binary(), 3, [None, offsets, pa.py_buffer(POINT)])
        with pytest.raises(bow.InvalidBody, match="decrease"):
            geo.statistics(array)


def views(starts: list[int], size: int, data: bytes) -> pa.Array:
    prefixes = [int.from_bytes(data[at : at + 4], "little") for at in starts]
    rows = np.array([[size, prefix, 0, at] for at, prefix in zip(starts, prefixes, strict=True)], np.uint32)
    buffers = [None, pa.py_buffer(rows), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(starts), buffers)


def test_views_that_share_a_value_are_read_once(on_device: Move) -> None:
    """A thousand views of a long line, and nulls among them, have its box in each row."""
    line = Geometry(2, 0, tuple((float(k), -float(k)) for k in range(200)))
    shared = views([0] * 1000, len(encode(line)), encode(line))
    data = pa.table({"g": shared})
    column = on_device(data)
    assert geo.statistics(column).bbox == geo.Box(0, -199, 199, 0)
    found = geo.bounds(column).to_arrow().to_pylist()
    assert found == [{"xmin": 0.0, "ymin": -199.0, "xmax": 199.0, "ymax": 0.0}] * 1000
    some = pa.py_buffer(bytes([0b11111110]) + b"\xff" * 124)
    with_null = pa.Array.from_buffers(pa.binary_view(), 1000, [some, *shared.buffers()[1:]])
    assert geo.validate(on_device(with_null)).to_arrow().to_pylist() == [1, *[0] * 999]
    assert geo.bounds(on_device(with_null)).null_count == 1


def test_views_that_overlap_without_bound_are_refused() -> None:
    """Views that begin at each byte of a long value would be read as often: they are refused."""
    data = encode(Geometry(2, 0, ((0.0, 0.0),) * 2000))
    with pytest.raises(bow.InvalidBody, match="overlap"):
        geo.validate(views(list(range(1000)), len(data) - 1000, data))
