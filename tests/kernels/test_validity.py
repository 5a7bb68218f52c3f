"""Kernels over bitmaps do what NumPy does with unpacked bits, and what the forms over whole arrays do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.errors import InvalidBody
from bowstring.kernels import bitmap
from bowstring.memory import Device, cpu
from bowstring.testing import fake_device

pytest.importorskip("numba")

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="session", params=["arrays", "kernels"])
def device(request: pytest.FixtureRequest) -> Device:
    """Return the host, where whole arrays are used, then the fake device, where kernels are."""
    return cpu() if request.param == "arrays" else fake_device()


def bits_of(content: Array, start: int, length: int) -> Array:
    return np.unpackbits(content, bitorder="little")[start : start + length]


def at_address(device: Device, content: Array, lead: int) -> Any:
    """Return content on a device, so many bytes behind the beginning of a word."""
    return device.xp.asarray(np.concatenate([np.zeros(lead, content.dtype), content]))[lead:]


leads = st.integers(0, 7)


@st.composite
def pieces(draw: st.DrawFn, length: int | None = None) -> tuple[Array, int, int]:
    """Draw a bitmap that ends with the piece, and the piece: a few words at any bit offset."""
    start = draw(st.integers(0, 130))
    length = draw(st.integers(0, 300)) if length is None else length
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.integers(0, 256, bitmap.bytes_for(start + length), np.uint8), start, length


def same_bits(device: Device, found: Any, expected: Array) -> None:
    """Hold that a bitmap is as long as it must be, and holds these bits and zeros."""
    host = device.to_host(found)
    assert host.dtype == np.uint8
    assert np.array_equal(host, np.packbits(expected, bitorder="little"))


@given(piece=pieces(), lead=leads)
def test_one_bitmap(device: Device, piece: tuple[Array, int, int], lead: int) -> None:
    """Shifting, expanding, packing and counting agree with unpacked bits, up to the last byte, at any address."""
    content, start, length = piece
    expected = bits_of(content, start, length)
    there = at_address(device, content, lead)
    same_bits(device, bitmap.shifted(there, start, length), expected)
    assert device.to_host(bitmap.count_set(there, start, length)).tolist() == [expected.sum()]
    flags = bitmap.expanded(there, start, length)
    assert np.array_equal(device.to_host(flags), expected.astype(np.bool_))
    same_bits(device, bitmap.packed(flags), expected)
    same_bits(device, bitmap.packed(at_address(device, expected.view(np.bool_), lead)), expected)


@given(data=st.data(), length=st.integers(0, 300), lead=leads)
def test_two_bitmaps(device: Device, data: st.DataObject, length: int, lead: int) -> None:
    """Both and either agree with unpacked bits, each bitmap at a bit offset and an address of its own."""
    left, left_start, _ = data.draw(pieces(length))
    right, right_start, _ = data.draw(pieces(length))
    one, other = bits_of(left, left_start, length), bits_of(right, right_start, length)
    arguments = at_address(device, left, lead), left_start, device.xp.asarray(right), right_start, length
    same_bits(device, bitmap.both(*arguments), one & other)
    same_bits(device, bitmap.either(*arguments), one | other)


def test_a_short_bitmap_is_refused(device: Device) -> None:
    """Neither of two bitmaps may end before the piece does."""
    short, long = device.xp.asarray(np.zeros(1, np.uint8)), device.xp.asarray(np.zeros(2, np.uint8))
    for left, right in ((short, long), (long, short)):
        for work in (bitmap.both, bitmap.either):
            with pytest.raises(InvalidBody):
                work(left, 0, right, 0, 9)


def test_many_blocks_are_counted(device: Device) -> None:
    """Counts of many blocks are added up."""
    content = np.full(3_000, 0x0F, np.uint8)
    found = bitmap.count_set(device.xp.asarray(content), 3, 24_000 - 5)
    assert device.to_host(found).tolist() == [12_000 - 3]
