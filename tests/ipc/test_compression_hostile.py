"""Compressed bodies that lie, are damaged, or are bombs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bowstring import ipc
from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import batch_parts
from bowstring.errors import InvalidBody, InvalidData, InvalidMetadata, LimitExceeded
from bowstring.ipc.body.pack import unpack
from bowstring.ipc.compression import body as compressed_body
from bowstring.ipc.compression.codec import all_compressed, decompressed
from bowstring.ipc.flatbuf.message import RecordBatchHeader
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.memory import wrap
from tests.ipc.files import verdict

CODECS = ("lz4", "zstd")
NUMBERS = Layout.of(pa.schema({"numbers": pa.int64()}))
TEXT = Layout.of(pa.schema({"text": pa.string()}))


def framed(data: bytes, codec: str, claimed: int | None = None) -> bytes:
    """Return data as one frame behind a length."""
    length = len(data) if claimed is None else claimed
    return length.to_bytes(8, "little", signed=True) + pa.Codec(codec).compress(data, asbytes=True)


def read(
    layout: Layout, rows: int, buffers: list[bytes], codec: str, limits: Limits = DEFAULT_LIMITS
) -> Batch:
    """Make a batch of one column of these buffers, as they stand in the body."""
    table, body = [], b""
    for buffer in buffers:
        table.append((len(body), len(buffer)))
        body += buffer + bytes(-len(buffer) % 8)
    header = RecordBatchHeader(rows, np.array([[rows, 0]]), np.array(table), (), codec)
    return unpack(header, layout, wrap(body), limits=limits)


@pytest.mark.parametrize("codec", CODECS)
def test_the_frames_of_these_tests_are_read(codec: str) -> None:
    """Without a lie, what the tests below are made of is a batch."""
    data = np.arange(100).tobytes()
    assert read(NUMBERS, 100, [b"", framed(data, codec)], codec)[0].values.tolist() == list(range(100))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed", [-2, -(1 << 63), -(1 << 31)])
def test_lengths_below_minus_one_are_refused(codec: str, claimed: int) -> None:
    """No length is negative but -1, which says that the bytes are stored."""
    with pytest.raises(InvalidBody, match=r"negative.*numbers"):
        read(NUMBERS, 100, [b"", framed(bytes(800), codec, claimed)], codec)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed", [1, 792, 799, 801, 808, 1600, 60_000])
def test_lengths_other_than_the_frames_are_refused(codec: str, claimed: int) -> None:
    """A frame that holds more or less than its length says is refused, and the column named."""
    rows = min(claimed // 8, 100)
    with pytest.raises(InvalidBody, match="numbers"):
        read(NUMBERS, rows, [b"", framed(np.arange(100).tobytes(), codec, claimed)], codec)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed", [1 << 31, 1 << 40, (1 << 63) - 1])
def test_huge_lengths_are_refused(codec: str, claimed: int) -> None:
    """What a small body cannot hold is refused for its size alone."""
    with pytest.raises(LimitExceeded, match="Limits"):
        read(NUMBERS, claimed // 8, [b"", framed(bytes(800), codec, claimed)], codec)


@pytest.mark.parametrize("codec", CODECS)
def test_lengths_that_together_wrap_are_refused(codec: str) -> None:
    """Lengths whose sum is 0 modulo 2⁶⁴ are added up as what they are."""
    layout = Layout.of(pa.schema({name: pa.int64() for name in "abcd"}))
    frame = framed(bytes(8), codec, 1 << 62)
    body = frame + bytes(-len(frame) % 8)
    buffers = np.array([[0, 0], [0, len(frame)]] * 4)
    header = RecordBatchHeader(1, np.array([[1, 0]] * 4), buffers, (), codec)
    with pytest.raises(LimitExceeded):
        unpack(header, layout, wrap(body))


@pytest.mark.parametrize("codec", CODECS)
def test_fixed_width_buffers_are_bounded_by_their_nodes(codec: str) -> None:
    """Within all limits, numbers, offsets and bitmaps still may not be much longer than their rows need."""
    long = framed(bytes(1 << 20), codec)
    with pytest.raises(InvalidBody, match=r"longer than its node needs.*numbers, DATA"):
        read(NUMBERS, 100, [b"", long], codec)
    with pytest.raises(InvalidBody, match=r"longer than its node needs.*numbers, VALIDITY"):
        read(NUMBERS, 100, [long, framed(bytes(800), codec)], codec)
    with pytest.raises(InvalidBody, match=r"longer than its node needs.*text, OFFSETS32"):
        read(TEXT, 100, [b"", long, b""], codec)
    assert read(TEXT, 100, [b"", framed(bytes(404), codec), long], codec).num_rows == 100
    assert read(NUMBERS, 100, [b"", framed(bytes(1600), codec)], codec).num_rows == 100


@pytest.mark.parametrize("codec", CODECS)
def test_buffers_too_short_for_their_nodes_are_refused(codec: str) -> None:
    """Lengths are checked against the rows before anything is decompressed."""
    with pytest.raises(InvalidMetadata, match="too short for its node"):
        read(NUMBERS, 101, [b"", framed(bytes(800), codec)], codec)


@pytest.mark.parametrize("codec", CODECS)
def test_every_limit_holds(codec: str) -> None:
    """The size, the ratio, and the floor of the ratio bound what a body may become."""
    buffers = [b"", framed(bytes(1 << 16), codec)]
    rows = 1 << 13
    tight = {"decompression_floor": 1, "decompression_ratio": 1.0}
    assert read(NUMBERS, rows, buffers, codec).num_rows == rows
    for limits in (Limits(decompressed_bytes=(1 << 16) - 1), Limits(**tight)):  # type: ignore[arg-type]  # mixed
        with pytest.raises(LimitExceeded, match="decompressed"):
            read(NUMBERS, rows, buffers, codec, limits)
    assert read(NUMBERS, rows, buffers, codec, Limits(decompression_ratio=1.0)).num_rows == rows
    wide = Limits(decompression_floor=1, decompression_ratio=1e6)
    assert read(NUMBERS, rows, buffers, codec, wide).num_rows == rows


@pytest.mark.parametrize("codec", CODECS)
def test_a_frame_that_many_buffers_share_counts_each_time(codec: str) -> None:
    """A body whose buffers are all the same small frame is bounded by what they become together."""
    layout = Layout.of(pa.schema({str(index): pa.binary() for index in range(200)}))
    frame = framed(bytes(1 << 20), codec)
    body = frame + bytes(-len(frame) % 8)
    buffers = np.array([[0, 0], [0, 0], [0, len(frame)]] * 200)
    header = RecordBatchHeader(0, np.zeros((200, 2), np.int64), buffers, (), codec)
    with pytest.raises(LimitExceeded):
        unpack(header, layout, wrap(body))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("length", range(1, 8))
def test_buffers_without_room_for_a_length_are_refused(codec: str, length: int) -> None:
    """Each buffer that is there begins with 8 bytes."""
    with pytest.raises(InvalidBody, match="too short for its length"):
        read(NUMBERS, 0, [b"", bytes(length)], codec)


@pytest.mark.parametrize("codec", CODECS)
def test_lengths_with_nothing_behind_them_are_refused(codec: str) -> None:
    """A buffer that ends behind its length holds nothing, whatever the length says."""
    for claimed in (1, 6, 8, 800):
        with pytest.raises(InvalidBody):
            read(NUMBERS, claimed // 8, [b"", claimed.to_bytes(8, "little")], codec)
    assert read(NUMBERS, 0, [b"", bytes(8)], codec).num_rows == 0


@pytest.mark.parametrize("codec", CODECS)
def test_frames_cut_anywhere_are_refused(codec: str) -> None:
    """A frame without its end is no frame, wherever it is cut."""
    whole = framed(np.arange(100).tobytes(), codec)
    for length in range(9, len(whole)):
        with pytest.raises(InvalidBody):
            read(NUMBERS, 100, [b"", whole[:length]], codec)


@pytest.mark.parametrize("codec", CODECS)
def test_frames_of_the_other_codec_are_refused(codec: str) -> None:
    """The header says which codec it is."""
    [other] = set(CODECS) - {codec}
    with pytest.raises(InvalidBody):
        read(NUMBERS, 100, [b"", framed(bytes(800), other)], codec)


@pytest.mark.parametrize("codec", CODECS)
def test_streams_with_any_byte_changed_get_the_verdict_of_pyarrow(codec: str) -> None:
    """Each byte of a small compressed body, flipped: one of our errors, or the table that pyarrow reads."""
    table = pa.table({"a": pa.array([*range(40), None]), "b": ["x" * (row % 5) for row in range(41)]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)
    stream = sink.getvalue().to_pybytes()
    body = pa.ipc.MessageReader.open_stream(stream)
    body.read_next_message()
    start = stream.index(body.read_next_message().body.to_pybytes())
    refused = 0
    for position in range(start, len(stream) - 8):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(stream)
            damaged[position] ^= flip
            found, expected = verdict(bytes(damaged), ipc), verdict(bytes(damaged), pa.ipc)
            refused += found is None
            assert found is None or (expected is not None and found.equals(expected)), position
            assert found is not None or expected is None, position
    assert refused > 100


BOMBS = """
import numpy as np, pyarrow as pa, resource
from bowstring import ipc
from bowstring.columnar.layout import Layout
from bowstring.errors import BowstringError
from bowstring.ipc.flatbuf.message import RecordBatchHeader
from bowstring.ipc.body.pack import unpack
from bowstring.memory import wrap

resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
layout = Layout.of(pa.schema({"a": pa.binary()}))
for codec in ("lz4", "zstd"):
    bomb = pa.Codec(codec).compress(bytes(1 << 20), asbytes=True)
    for claimed in (1 << 28, 1 << 30, 1 << 33, 1 << 45, 1 << 62):
        frame = claimed.to_bytes(8, "little") + bomb + bytes(-len(bomb) % 8)
        buffers = np.array([[0, 0], [0, 0], [0, len(frame)]])
        try:
            unpack(RecordBatchHeader(0, np.array([[0, 0]]), buffers, (), codec), layout, wrap(frame))
        except BowstringError:
            continue
        raise SystemExit(f"{codec} frame that claims {claimed} bytes was read")
print(pa.default_memory_pool().max_memory())
"""


def test_bombs_do_not_get_memory() -> None:
    """Small frames that claim gigabytes are refused before anything is allocated for them."""
    done = subprocess.run(
        [sys.executable, "-c", BOMBS], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < DEFAULT_LIMITS.decompression_floor


@pytest.mark.parametrize("codec", CODECS)
def test_bodies_that_change_while_they_are_read_are_refused(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A length that was checked and is another one afterwards takes nobody out of a buffer."""
    frame = framed(np.arange(100).tobytes(), codec)
    body = np.frombuffer(frame, np.uint8).copy()
    header = RecordBatchHeader(100, np.array([[100, 0]]), np.array([[0, 0], [0, len(frame)]]), (), codec)
    assert unpack(header, NUMBERS, wrap(body)).num_rows == 100

    def changed(*arguments: Any, **options: Any) -> list[pa.Buffer]:
        body[:8] = 255
        return decompressed(*arguments, **options)

    monkeypatch.setattr(compressed_body, "decompressed", changed)
    with pytest.raises(InvalidBody, match="changed"):
        unpack(header, NUMBERS, wrap(body))


def test_damage_in_the_middle_of_many_buffers_is_named() -> None:
    """Of many buffers that are decompressed together, the one that is damaged is named."""
    table = pa.table({f"column {index}": np.arange(5000) for index in range(30)})
    batch = Batch.from_arrow(table.combine_chunks())
    buffers, body, codec = [], b"", pa.Codec("zstd")
    for index, buffer in enumerate(batch.buffers):
        pieces = b"" if buffer is None else b"".join(map(bytes, all_compressed([buffer.to_host()], codec)[0]))
        if index == 2 * 17 + 1:
            pieces = pieces[:8] + bytes(8) + pieces[16:]
        buffers.append((len(body), len(pieces)))
        body += pieces + bytes(-len(pieces) % 8)
    header = RecordBatchHeader(5000, batch_parts(batch).nodes, np.array(buffers), (), "zstd")
    with pytest.raises(InvalidData, match="column 17"):
        unpack(header, batch.layout, wrap(body))
