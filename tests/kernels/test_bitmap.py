"""Bitmaps at any bit offset, against NumPy's unpacked bits, on the host and on the fake device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.errors import InvalidBody
from bowstring.kernels import bitmap
from bowstring.memory import Device, cpu
from bowstring.testing import FakeArray, fake_device


@pytest.fixture(scope="session", params=["cpu", "fake"])
def device(request: pytest.FixtureRequest) -> Device:
    """Return the host, then the fake device."""
    return cpu() if request.param == "cpu" else fake_device()


@st.composite
def pieces(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], int, int]:
    """Draw a bitmap and a piece of it."""
    content = np.frombuffer(draw(st.binary(max_size=40)), np.uint8)
    start = draw(st.integers(0, 8 * len(content)))
    return content, start, draw(st.integers(0, 8 * len(content) - start))


def host(device: Device, array: Any) -> np.ndarray[Any, Any]:
    """Return an array of the device on the host."""
    assert isinstance(array, np.ndarray if device.is_host else FakeArray)
    return device.to_host(array)


@given(piece=pieces())
def test_shifted_bits_are_the_same_bits(device: Device, piece: tuple[np.ndarray[Any, Any], int, int]) -> None:
    """A shifted bitmap holds the piece from bit 0, and zeros behind it, in no more bytes than needed."""
    content, start, length = piece
    bits = np.unpackbits(content, bitorder="little")[start : start + length]
    result = host(device, bitmap.shifted(device.xp.asarray(content), start, length))
    assert len(result) == bitmap.bytes_for(length)
    assert np.array_equal(result, np.packbits(bits, bitorder="little"))


@given(piece=pieces())
def test_set_bits_are_counted(device: Device, piece: tuple[np.ndarray[Any, Any], int, int]) -> None:
    """The count is that of the unpacked bits, and stays on the device."""
    content, start, length = piece
    expected = int(np.unpackbits(content, bitorder="little")[start : start + length].sum())
    result = host(device, bitmap.count_set(device.xp.asarray(content), start, length))
    assert (result.dtype, result.tolist()) == (np.int64, [expected])


@given(piece=pieces())
def test_packing_undoes_expanding(device: Device, piece: tuple[np.ndarray[Any, Any], int, int]) -> None:
    """Expanding gives one bool a bit, and packing them the shifted bitmap."""
    content, start, length = piece
    flags = bitmap.expanded(device.xp.asarray(content), start, length)
    bits = np.unpackbits(content, bitorder="little")[start : start + length]
    assert np.array_equal(host(device, flags), bits.astype(np.bool_))
    assert np.array_equal(host(device, bitmap.packed(flags)), np.packbits(bits, bitorder="little"))


@given(piece=pieces(), beyond=st.integers(1, 100))
def test_bits_outside_are_refused(piece: tuple[np.ndarray[Any, Any], int, int], beyond: int) -> None:
    """A piece that ends beyond the bitmap, or begins before it, raises InvalidBody."""
    content, start, _ = piece
    for bad in ((start, 8 * len(content) - start + beyond), (-beyond, beyond), (start, -beyond)):
        for work in (bitmap.shifted, bitmap.count_set, bitmap.expanded):
            with pytest.raises(InvalidBody):
                work(content, *bad)


def test_the_result_is_a_copy() -> None:
    """A bitmap that starts at a whole byte is copied too: the result can be written."""
    content = np.array([255, 255], np.uint8)
    result = bitmap.shifted(content, 8, 3)
    result[:] = 0
    assert content.tolist() == [255, 255]
