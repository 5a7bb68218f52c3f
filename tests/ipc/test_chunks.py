"""Frames that are taken apart for a device, and those that are not."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.ipc.compression.device.frames import chunks_of
from tests.ipc.test_compression import CODECS
from tests.ipc.test_compression_device import lz4_frame

SOUND = pa.Codec("zstd").compress(bytes(1000), asbytes=True)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda frame: frame[:3],
        lambda frame: b"\0" + frame[1:],
        lambda frame: frame + b"\0",
        lambda frame: frame[:4] + bytes([frame[4] | 4]) + frame[5:],
        lambda frame: frame[:4] + bytes([frame[4] | 1]) + frame[5:],
        lambda frame: frame[:4] + bytes([frame[4] | 8]) + frame[5:],
        lambda frame: frame[:-1],
        lambda frame: frame[:7] + b"\xff\xff\xff" + frame[10:],
        lambda frame: b"\x28\xb5\x2f\xfd\x00\x58" + b"\x01\x00\x00"[::-1] * 400,
    ],
)
def test_odd_zstd_frames_are_not_for_a_device(spoil: Callable[[bytes], bytes]) -> None:
    """A magic number, a header, blocks or an end that are not as usual: a reason, and never an exception."""
    assert not isinstance(chunks_of(memoryview(SOUND), 1000, "zstd"), str)
    assert isinstance(chunks_of(memoryview(spoil(SOUND)), 1000, "zstd"), str)
    assert isinstance(chunks_of(memoryview(SOUND), 999, "zstd"), str)


@pytest.mark.parametrize("end", [b"", b"\0", b"\x01\0\0\0", bytes(8)])
def test_lz4_frames_end_with_their_buffer(end: bytes) -> None:
    """An end mark that is not there, or is not the last word, leaves a frame to the host."""
    frame = lz4_frame(bytes(1000))
    assert not isinstance(chunks_of(memoryview(frame), 1000, "lz4"), str)
    assert isinstance(chunks_of(memoryview(frame[:-4] + end), 1000, "lz4"), str)


@given(frame=st.binary(max_size=64), claimed=st.integers(0, 1 << 40), codec=st.sampled_from(CODECS))
def test_any_bytes_are_taken_apart_or_not(frame: bytes, claimed: int, codec: str) -> None:
    """No bytes raise, or take long."""
    magic = {"lz4": b"\x04\x22\x4d\x18\x60\x40\x82", "zstd": b"\x28\xb5\x2f\xfd"}[codec]
    for each in (frame, magic + frame):
        chunks_of(memoryview(each), claimed, codec)
