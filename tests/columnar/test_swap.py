"""The other byte order: kernels and NumPy agree, element by element."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from bowstring.columnar.batch import Batch
from bowstring.columnar.interchange.swap import swapped
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import make_batch
from bowstring.memory import wrap
from bowstring.testing import fake_device
from tests import strategies


def _bytes(batch: Batch) -> list[bytes]:
    return [b"" if buffer is None else buffer.to_host().tobytes() for buffer in batch.buffers]


@given(record_batch=strategies.record_batches())
@settings(max_examples=25)
def test_devices_and_the_host_swap_alike(record_batch: pa.RecordBatch) -> None:
    """Every buffer of any type is the same, swapped by a kernel of a device and by NumPy on the host."""
    pytest.importorskip("numba")
    batch = Batch.from_arrow(record_batch).to_device(fake_device()).to_device("cpu")
    assert _bytes(swapped(batch.to_device(fake_device()))) == _bytes(swapped(batch))


@given(record_batch=strategies.record_batches())
def test_swapping_twice_changes_nothing(record_batch: pa.RecordBatch) -> None:
    """But for views, whose long ones can be told from short ones in one order only."""
    batch = Batch.from_arrow(record_batch)
    if not batch.layout.variadic_nodes:
        assert _bytes(swapped(swapped(batch))) == _bytes(batch)


@pytest.mark.parametrize(
    ("array", "width"),
    [
        (pa.array([1, 2, 3], pa.int16()), 2),
        (pa.array([1.5, 2.5], pa.float32()), 4),
        (pa.array([1, 2], pa.timestamp("us")), 8),
        (pa.array([1, -2], pa.decimal128(30)), 16),
        (pa.array([1, -2], pa.decimal256(60)), 32),
    ],
)
def test_numbers_are_reversed_whole(array: pa.Array, width: int) -> None:
    """An element of any width is its own bytes from the last to the first."""
    batch = Batch.from_arrow({"a": array})
    before, after = (
        np.frombuffer(_bytes(each)[1], np.uint8).reshape(-1, width) for each in (batch, swapped(batch))
    )
    assert np.array_equal(after, before[:, ::-1])


def test_intervals_are_reversed_part_by_part() -> None:
    """Months, days and nanoseconds are three numbers in one slot."""
    batch = Batch.from_arrow({"a": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})
    expected = b"\0\0\0\1\0\0\0\2\0\0\0\0\0\0\0\3"
    assert _bytes(swapped(batch))[1] == expected


def test_views_keep_their_text() -> None:
    """Of a short view only the size is turned round, of a long one its buffer and offset too."""
    short, long = struct.Struct("i5s7x"), struct.Struct("i4sii")
    layout = Layout.of(pa.schema({"a": pa.string_view()}))
    views = struct.pack(">i5s7x", 5, b"short") + struct.pack(">i4sii", 18, b"long", 0, 300)
    big = make_batch(Batch, layout, 2, np.array([[2, 0]]), [None, wrap(views), wrap(bytes(400))], (1,))
    for batch in (swapped(big), swapped(big.to_device(fake_device()))):
        found = _bytes(batch)[1]
        assert short.unpack(found[:16]) == (5, b"short")
        assert long.unpack(found[16:]) == (18, b"long", 0, 300)


def test_bytes_and_bits_are_not_copied() -> None:
    """What is made of single bytes stays where it is."""
    batch = Batch.from_arrow(
        {
            "a": pa.array([b"ab", b"cd"], pa.binary(2)),
            "b": pa.array([True, None]),
            "c": pa.array([1, 2], pa.int8()),
        }
    )
    assert swapped(batch) is batch
