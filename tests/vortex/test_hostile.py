"""Streams that are damaged give a clear error or values, within the limits, and never touch other memory."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring import Limits
from bowstring.errors import BowstringError
from bowstring.testing import fake_device
from bowstring.vortex.dtype import DType, Kind, decode_dtype, primitive
from bowstring.vortex.protobuf import Message, decode_scalar

LARGEST = 40_000
LIMITS = Limits(decompression_floor=1 << 24)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return a stream that is cut, or of which some bytes are others: anywhere, in headers, or in metadata."""
    changed = bytearray(data)
    how = rng.random()
    if how < 0.15:
        return data[: rng.randrange(len(data))]
    most = {0: 300, 1: 400, 2: len(data)}[rng.randrange(3)]
    first = max(0, len(data) - most) if rng.random() < 0.6 else 0
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = min(first + rng.randrange(most), len(data) - 1)
        changed[at] = rng.choice([0, 255, rng.randrange(256), changed[at] ^ 1 << rng.randrange(8)])
    return bytes(changed)


def read(data: bytes, device: object = None) -> None:
    """Read a stream, each column and its encoding by itself; only errors of Bowstring may come."""
    try:
        for batch in bow.vortex.open_stream(data, limits=LIMITS):
            for position in range(batch.num_columns):
                with contextlib.suppress(BowstringError):
                    batch.encoding(position)
                try:
                    batch.decode([position], device=device)  # type: ignore[arg-type]  # a device, or none
                except BowstringError:
                    continue
    except BowstringError:
        return


def small_streams(folder: Path) -> list[bytes]:
    """Return the golden streams that are quickly read."""
    found = [path.read_bytes() for path in sorted(folder.glob("*/*.vxipc"))]
    return [data for data in found if len(data) <= LARGEST]


@pytest.mark.parametrize("seed", range(4))
def test_damaged_streams_give_errors_or_values(vortex_test_data: Path, seed: int) -> None:
    """Golden streams of all encodings, each damaged in several ways."""
    rng = random.Random(seed)
    for data in small_streams(vortex_test_data):
        for _ in range(3):
            read(damaged(data, rng))


def test_damaged_streams_give_errors_or_values_on_a_device(vortex_test_data: Path) -> None:
    """The same there."""
    rng = random.Random(99)
    for data in small_streams(vortex_test_data):
        read(damaged(data, rng), fake_device())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_damaged_streams_for_long(vortex_test_data: Path, seed: int) -> None:
    """The same with many seeds."""
    test_damaged_streams_give_errors_or_values(vortex_test_data, seed)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=80))
def test_any_bytes_are_a_message_of_protocol_buffers_or_an_error(data: bytes) -> None:
    """And a scalar of any type, or an error."""
    with contextlib.suppress(BowstringError):
        Message(data, "a test")
    for dtype in (primitive("f4"), DType(Kind.UTF8), DType(Kind.LIST, children=(primitive("i8"),))):
        try:
            decode_scalar(data, dtype)
        except BowstringError:
            continue


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_type_or_an_error(data: bytes) -> None:
    """No other exception comes."""
    try:
        decode_dtype(data)
    except BowstringError:
        return


def test_scalars_nest_no_deeper_than_the_limit() -> None:
    """Lists in lists, of which each takes a few bytes."""
    dtype, data = primitive("i4"), b"\x18\x02"
    for _ in range(200):
        dtype = DType(Kind.LIST, children=(dtype,))
        inner = b"\x0a" + _length(data) + data
        data = b"\x4a" + _length(inner) + inner
    with pytest.raises(BowstringError, match="nests"):
        decode_scalar(data, dtype)


def _length(data: bytes) -> bytes:
    size, out = len(data), bytearray()
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes([*out, size])
