"""zstd and pco: values of any length and frames of any size, and streams that claim more than they may take."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring.errors import InvalidData
from bowstring.testing import fake_device
from bowstring.vortex.dtype import DType, Kind, primitive
from bowstring.vortex.message import Piece
from bowstring.vortex.protobuf import encode
from tests.vortex.streams import decoded, stream_of
from tests.vortex.trees import fields

BINARY = DType(Kind.BINARY, nullable=True)
NUMBERS = primitive("i4", nullable=True)


def zstd(frames: list[bytes], valid: list[bool] | None, sizes: list[int] | None = None) -> Piece:
    """Return values compressed by zstd, in frames, of which metadata say these sizes."""
    sizes = list(map(len, frames)) if sizes is None else sizes
    metadata = encode([(2, 2, fields(f1=size)) for size in sizes])
    codec = pa.Codec("zstd")
    buffers = [np.frombuffer(codec.compress(each, asbytes=True), np.uint8) for each in frames]
    children = () if valid is None else (bits(valid),)
    return Piece("vortex.zstd", metadata, tuple((each, 1) for each in buffers), children)


def bits(flags: list[bool]) -> Piece:
    return Piece("vortex.bool", buffers=((np.packbits(np.array(flags, bool), bitorder="little"), 1),))


def prefixed(values: Sequence[bytes | None]) -> bytes:
    return b"".join(len(each).to_bytes(4, "little") + each for each in values if each is not None)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[first:last] for first, last in itertools.pairwise(bounds)]


@given(st.lists(st.none() | st.binary(max_size=20), max_size=40), st.lists(st.integers(0, 999), max_size=3))
def test_text_in_frames(values: list[bytes | None], places: list[int]) -> None:
    """Values of any length, null or not, come back however their bytes are divided into frames, on any device."""
    piece = zstd(cut(prefixed(values), places), [each is not None for each in values])
    assert decoded(BINARY, piece, len(values)) == values
    [batch] = bow.vortex.open_stream(stream_of(BINARY, (piece, len(values))))
    assert batch.decode(device=fake_device()).to_device("cpu").to_arrow().column(0).to_pylist() == values


@given(st.lists(st.none() | st.integers(-5, 5), max_size=40), st.lists(st.integers(0, 999), max_size=3))
def test_numbers_in_frames(values: list[int | None], places: list[int]) -> None:
    """Numbers, null or not, come back however their bytes are divided into frames."""
    stored = np.array([each for each in values if each is not None], "<i4").tobytes()
    piece = zstd(cut(stored, places), [each is not None for each in values])
    assert decoded(NUMBERS, piece, len(values)) == values


@given(
    st.lists(st.binary(max_size=20), min_size=1, max_size=20),
    st.integers(0, 19),
    st.sampled_from([1, 21, 2**31, 2**32 - 1]),
    st.sampled_from(["prefix", "claim", "rows", "frame"]),
)
def test_lengths_that_do_not_fit_are_errors(values: list[bytes], row: int, more: int, what: str) -> None:
    """A length before a value, the size of a frame, the number of rows, or a frame may lie: an error."""
    data, rows, sizes = bytearray(prefixed(values)), len(values), None
    at = len(prefixed(values[: row % rows]))
    if what == "prefix":
        length = int.from_bytes(data[at : at + 4], "little")
        left = len(data) - at - 4
        data[at : at + 4] = min(max(length + more, left + 1), 2**32 - 1).to_bytes(4, "little")
    elif what == "rows":
        rows += 1 + len(data) // 4
    elif what == "claim":
        sizes = [len(data) + more % 1000 + 1]
    piece = zstd([bytes(data)], None, sizes)
    if what == "frame":
        piece = piece._replace(buffers=((piece.buffers[0][0][:-1], 1),))
    with pytest.raises(InvalidData):
        decoded(DType(Kind.BINARY), piece, rows)


FLOOR = 64 << 20
CHILD = """
import resource, sys
import bowstring as bow
limits = bow.Limits(decompression_floor=%d, decompression_ratio=1)
warm, data = (open(each, "rb").read() for each in sys.argv[1:])
bow.vortex.open_stream(warm).read_all()
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + limits.decompression_floor + %d,) * 2)
try:
    print("rows", sum(batch.decode().num_rows for batch in bow.vortex.open_stream(data, limits=limits)))
except bow.BowstringError as error:
    assert not isinstance(error.__cause__, MemoryError), error
    print(type(error).__name__)
"""
SLACK = 32 << 20


def wide_window(size: int) -> bytes:
    """Return a frame of zeros whose header asks for a window of 128 MiB; it has no size of its content."""
    blocks = [(min(1 << 17, size - at), at + (1 << 17) >= size) for at in range(0, size, 1 << 17)]
    body = b"".join((count << 3 | 1 << 1 | last).to_bytes(3, "little") + b"\0" for count, last in blocks)
    return bytes.fromhex("28b52ffd") + bytes([0, 17 << 3]) + body


def no_rows(rows: int) -> Piece:
    """Return the validity of many rows that are all null, which takes a few bytes."""
    return Piece("vortex.constant", buffers=((np.frombuffer(b"\x10\0", np.uint8), 1),))


def bombs() -> dict[str, tuple[DType, Piece, int, str]]:
    """Return types, arrays, rows, and what becomes of them, within a memory of `FLOOR` and a little."""
    text, few = DType(Kind.BINARY), 12 << 20
    window = np.frombuffer(wide_window(few), np.uint8)
    nothing = Piece("vortex.zstd", encode([]), (), (no_rows(1),))
    return {
        "empty texts that fit": (text, zstd([bytes(few)], None), few // 4, f"rows {few // 4}"),
        "empty texts in frames": (text, zstd([bytes(few // 8)] * 8, None), few // 4, f"rows {few // 4}"),
        "empty texts that do not": (text, zstd([bytes(4 * few)], None), few, "LimitExceeded"),
        "one long text": (text, zstd([prefixed([bytes(few)])], None), 1, "rows 1"),
        "a frame that is too large": (text, zstd([bytes(9 * few)], None), 1, "LimitExceeded"),
        "a claim": (text, zstd([b""], None, [1 << 30]), 1, "LimitExceeded"),
        "a claim of more than there is": (text, zstd([b""], None, [1 << 62]), 1, "LimitExceeded"),
        "more rows than bytes": (text, zstd([bytes(40)], None), (1 << 32) - 1, "InvalidBody"),
        "a window": (
            text,
            Piece("vortex.zstd", encode([(2, 2, fields(f1=few))]), ((window, 1),)),
            few // 4,
            f"rows {few // 4}",
        ),
        "nulls of text": (BINARY, nothing, 1 << 31, "LimitExceeded"),
        "nulls of numbers": (NUMBERS, nothing, 1 << 24, "LimitExceeded"),
        "numbers": (primitive("i4"), zstd([bytes(4 * few)], None), few, f"rows {few}"),
    }


@pytest.mark.parametrize("name", bombs())
def test_bombs_stay_within_the_limits(name: str, tmp_path: Any) -> None:
    """A child with so much memory as the limits allow, and a little, reads a stream or refuses it by the limits."""
    dtype, piece, rows, expected = bombs()[name]
    warm, data = tmp_path / "warm", tmp_path / "data"
    warm.write_bytes(stream_of(BINARY, (zstd([prefixed([b"x", b"y" * 20])], [True, False, True]), 3)))
    data.write_bytes(stream_of(dtype, (piece, rows)))
    program = CHILD % (FLOOR, SLACK)
    done = subprocess.run(
        [sys.executable, "-c", program, warm, data], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == expected, done.stderr[-2000:]


WRITING = """
import resource, sys
import numpy as np, pyarrow as pa
import bowstring as bow
rows, how = 1 << 20, sys.argv[1] == "compress"
text = pa.array(["x" * 40] * 1000).dictionary_encode()
small, large = (
    pa.record_batch(
        {
            "n": np.arange(count) * 7919 % 1000,
            "t": pa.repeat("some text", count),
            "d": pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), text.dictionary),
            "f": np.arange(count) / 8,
            "b": pa.array(np.arange(count) % 3 > 0),
            "r": pa.RunEndEncodedArray.from_arrays(np.array([count], np.int64), pa.array(["a"])),
        }
    )
    for count in (1000, rows)
)
with bow.vortex.new_stream("/dev/null", small.schema, compress=how) as writer:
    writer.write_batch(small)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20),) * 2)
    try:
        writer.write_batch(large)
        writer.write_batch(large.slice(1))
        print("written")
    except bow.BowstringError as error:
        print(type(error).__name__, isinstance(error.__cause__, MemoryError))
"""


@pytest.mark.parametrize(("how", "expected"), [("plain", "written"), ("compress", "LimitExceeded True")])
def test_a_writer_without_memory_raises_an_error_of_its_own(how: str, expected: str) -> None:
    """A batch is written without a copy, and is a LimitExceeded if there is no memory to compress it."""
    command = [sys.executable, "-c", WRITING, how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == expected, done.stderr[-2000:]
