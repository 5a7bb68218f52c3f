"""Compressed bodies that go to a device, by a fake nvCOMP or by the host: the same values, the same errors."""

from __future__ import annotations

import gc
import queue
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bowstring import ipc
from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import batch_parts
from bowstring.errors import BowstringError, DeviceError, InvalidBody, LimitExceeded
from bowstring.ipc.body.pack import unpack
from bowstring.ipc.compression.device import nvcomp
from bowstring.ipc.compression.device.decompress import DeviceBodies
from bowstring.ipc.compression.device.frames import _xxh32, chunks_of
from bowstring.ipc.flatbuf.message import RecordBatchHeader
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.memory import Lease, wrap
from bowstring.testing import OnlyCurrent, fake_device
from bowstring.testing.fake_device import EXT_DEV
from tests import strategies
from tests.ipc.fake_nvcomp import FakeNvComp
from tests.ipc.test_compression import CODECS, TABLE, written_by_pyarrow
from tests.ipc.test_compression_hostile import NUMBERS, framed

DEVICE = fake_device()
BLOCK = 64 << 10


@pytest.fixture
def library() -> Iterator[FakeNvComp]:
    """Return a fake nvCOMP that is found for the fake device."""
    library = FakeNvComp()
    nvcomp.register_decompressor(EXT_DEV, lambda: nvcomp.NvComp(library, lambda: 0))
    yield library
    nvcomp.register_decompressor(EXT_DEV, None)


def lz4_frame(*blocks: bytes, flags: int = 0x60, size: int = 4) -> bytes:
    """Return a frame of independent blocks, as other writers than pyarrow make them."""
    descriptor = bytes((flags, size << 4))
    frame = struct.pack("<I", 0x184D2204) + descriptor + bytes([_xxh32(descriptor) >> 8 & 0xFF])
    for block in blocks:
        packed = pa.Codec("lz4_raw").compress(block, asbytes=True)
        raw = len(packed) >= len(block)
        frame += struct.pack("<I", len(block) | 1 << 31 if raw else len(packed)) + (block if raw else packed)
    return frame + bytes(4)


def on_device(
    layout: Layout,
    rows: int,
    buffers: list[bytes],
    codec: str,
    *,
    trusted: bool = True,
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[Batch, DeviceBodies]:
    """Make a batch of one column on the device of buffers as they stand in the body."""
    table, body = [], b""
    for buffer in buffers:
        table.append((len(body), len(buffer)))
        body += buffer + bytes(-len(buffer) % 8)
    header = RecordBatchHeader(rows, np.array([[rows, 0]]), np.array(table), (), codec)
    bodies = DeviceBodies(DEVICE, trusted=trusted)
    return unpack(header, layout, wrap(body), limits=limits, target=bodies), bodies


def numbers(batch: Batch) -> Any:
    """Return the values of the first column, on the host."""
    assert batch.device is DEVICE
    return batch.to_device("cpu")[0].values


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("installed", [True, False])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(batches=strategies.tables(), codec=st.sampled_from(CODECS))
def test_every_type_comes_to_the_device_as_to_the_host(
    request: pytest.FixtureRequest, installed: bool, trusted: bool, batches: list[pa.RecordBatch], codec: str
) -> None:
    """Streams of all types are the same on the device, whether it decompresses or the host does."""
    if installed:
        request.getfixturevalue("library")
    table = pa.Table.from_batches(batches)
    reader = ipc.open_stream(written_by_pyarrow(table, codec), device="fake:0", trusted=trusted)
    with OnlyCurrent():  # which the device is not, before it is asked
        found = [batch.to_device("cpu").to_arrow() for batch in reader]
    got = pa.Table.from_batches(found, schema=reader.schema)
    got.validate(full=True)
    assert got.equals(pa.ipc.open_stream(written_by_pyarrow(table, codec)).read_all())


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("door", ["stream", "file"])
def test_a_reader_asked_for_a_device_puts_everything_there(
    library: FakeNvComp, codec: str, door: str
) -> None:
    """Batches and their dictionaries are on the device, dictionaries once, and the stats say who decompressed."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with getattr(pa.ipc, f"new_{door}")(sink, TABLE.schema, options=options) as writer:
        writer.write_table(TABLE, max_chunksize=1000)
    with getattr(ipc, f"open_{door}")(sink.getvalue(), device="fake:0", trusted=True) as reader:
        batches = list(reader)
        stats = reader.stats
    assert {batch.device for batch in batches} == {DEVICE}
    assert len({id(batch.dictionaries[0]) for batch in batches}) == 1
    assert batches[0].dictionaries[0].values.device is DEVICE
    assert "buffers by nvCOMP 6.0.0" in stats.decompressed
    # Once for each message. LZ4 leaves the dictionary's few bytes as they are.
    assert library.calls["Decompress"] == len(batches) + (codec == "zstd")
    assert stats.num_record_batches == len(batches)
    found = [batch.to_device("cpu").to_arrow() for batch in batches]
    assert pa.Table.from_batches(found).equals(TABLE)


def test_without_nvcomp_the_stats_say_so() -> None:
    """Where nothing decompresses on the device the host does, uploads once, and the reason is told."""
    table = TABLE.select(["number", "text"])
    reader = ipc.open_stream(written_by_pyarrow(table, "zstd"), device="fake:0")
    DEVICE.stats.reset()
    batch = reader.read_next_batch()
    assert DEVICE.stats.host_writes == 2  # the body, and which ends of the text to look at
    assert DEVICE.stats.host_reads == 2  # a byte, which waits for the upload, and those ends
    assert reader.stats.decompressed == "3 buffers on the host (nothing decompresses on fake:0)"
    assert batch.to_device("cpu").to_arrow().equals(table.to_batches()[0])


def test_readers_without_a_device_say_nothing_of_it() -> None:
    """On the host there is one road; counts are equal to pyarrow's."""
    stream = written_by_pyarrow(TABLE, "lz4")
    ours, theirs = ipc.open_stream(stream, device="cpu"), pa.ipc.open_stream(stream)
    ours.read_all()
    theirs.read_all()
    assert ours.stats == theirs.stats
    assert ours.stats.decompressed == ""


@pytest.mark.parametrize("codec", CODECS)
def test_one_upload_of_the_frames_themselves(library: FakeNvComp, codec: str) -> None:
    """What crosses to the device is as long as the frames, in one copy beside the table of where they are."""
    data = np.zeros(8000, np.int64)
    frame = lz4_frame(data.tobytes()) if codec == "lz4" else framed(data.tobytes(), codec)[8:]
    DEVICE.stats.reset()
    batch, bodies = on_device(NUMBERS, 8000, [b"", struct.pack("<q", data.nbytes) + frame], codec)
    assert DEVICE.stats.host_writes == 2
    assert DEVICE.stats.host_written_bytes < len(frame) + 8 + 4 * 8
    assert (bodies.counts.on_device, bodies.counts.on_host) == (1, 0)
    assert np.array_equal(numbers(batch), data)
    assert library.chunks == 1


def test_frames_of_many_blocks_some_of_them_stored(library: FakeNvComp) -> None:
    """Independent blocks are chunks; what was stored is copied, neighbours together, to where it belongs."""
    rng = np.random.default_rng(3)
    noise = rng.integers(0, 1 << 62, 2 * BLOCK // 8).tobytes()
    blocks = [bytes(BLOCK), noise[:BLOCK], noise[BLOCK:], bytes(BLOCK // 2)]
    data = b"".join(blocks)
    buffer = struct.pack("<q", len(data)) + lz4_frame(*blocks)
    batch, bodies = on_device(NUMBERS, len(data) // 8, [b"", buffer], "lz4", trusted=False)
    assert numbers(batch).tobytes() == data
    assert (bodies.counts.on_device, library.chunks) == (1, 2)


def test_all_blocks_may_be_stored(library: FakeNvComp) -> None:
    """A frame without anything to decompress is only copied."""
    data = np.random.default_rng(4).integers(0, 1 << 62, 100).tobytes()
    batch, _ = on_device(NUMBERS, 100, [b"", struct.pack("<q", 800) + lz4_frame(data)], "lz4")
    assert numbers(batch).tobytes() == data
    assert library.calls["Decompress"] == 0


def test_a_stored_block_that_is_too_short_is_refused(library: FakeNvComp) -> None:
    """A block as it is has as many bytes as it becomes: no byte of a column is made up."""
    data = bytes(range(256)) * 3
    frame = lz4_frame(np.random.default_rng(4).bytes(len(data) - 8))
    buffers = [b"", struct.pack("<q", len(data)) + frame]
    assert isinstance(chunks_of(memoryview(frame), len(data), "lz4"), str)
    with pytest.raises(InvalidBody):
        on_device(NUMBERS, len(data) // 8, buffers, "lz4")


def test_nothing_of_a_message_is_held_once_it_was_decompressed(library: FakeNvComp) -> None:
    """What the device made holds no memory of the message, which goes back to its producer at once."""
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()
    frame = framed(np.arange(100).tobytes(), "lz4")
    header = RecordBatchHeader(100, np.array([[100, 0]]), np.array([[0, 0], [0, len(frame)]]), (), "lz4")
    body = wrap(frame + bytes(-len(frame) % 8))
    lease = Lease((), ended, "message")
    batch = unpack(header, NUMBERS, body, lease=lease, target=DeviceBodies(DEVICE))
    del lease
    gc.collect()
    assert ended.get_nowait() == "message"
    assert numbers(batch).tolist() == list(range(100))


def test_untrusted_zstd_never_reaches_nvcomp(library: FakeNvComp) -> None:
    """As nvCOMP does not find every damaged ZSTD frame, the host decompresses what is not trusted."""
    buffers = [b"", framed(np.arange(100).tobytes(), "zstd")]
    batch, bodies = on_device(NUMBERS, 100, buffers, "zstd", trusted=False)
    assert numbers(batch).tolist() == list(range(100))
    assert (library.calls["Decompress"], bodies.counts.on_host) == (0, 1)
    assert "not trusted" in str(bodies.counts)


def test_linked_blocks_are_for_the_host(library: FakeNvComp) -> None:
    """Long LZ4 frames of pyarrow have linked blocks: those the host decompresses, the others the device."""
    table = pa.table({"long": np.zeros(20_000, np.int64), "short": np.zeros(20_000, np.int8)})
    reader = ipc.open_stream(written_by_pyarrow(table, "lz4"), device="fake:0")
    [batch] = reader
    assert batch.to_device("cpu").to_arrow().equals(table.to_batches()[0])
    assert library.chunks == 1
    said = "1 buffers by nvCOMP 6.0.0, 1 buffers on the host (blocks that need those before them)"
    assert reader.stats.decompressed == said


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("failure", ["short", "failing", "lying", "silent"])
def test_what_nvcomp_reports_is_not_believed(library: FakeNvComp, codec: str, failure: str) -> None:
    """Sound frames that nvCOMP cuts short, refuses, lies or keeps silent about come right, by the host."""
    layout = Layout.of(pa.schema({"numbers": pa.int64()}))
    getattr(library, failure).add(0)
    batch, bodies = on_device(layout, 100, [b"", framed(np.arange(100).tobytes(), codec)], codec)
    if codec == "lz4":
        assert library.chunks == 1
    assert numbers(batch).tolist() == list(range(100))
    assert (bodies.counts.on_device, bodies.counts.on_host) == (0, 1)
    assert bodies.counts.why == "nvCOMP 6.0.0 could not"


@pytest.mark.parametrize("status", [10, 1000])
def test_nvcomp_that_does_not_begin_leaves_it_to_the_host(library: FakeNvComp, status: int) -> None:
    """An error of the call itself is told in the stats, and the host decompresses."""
    library.refuses = status
    buffers = [b"", framed(np.arange(100).tobytes(), "lz4")]
    batch, bodies = on_device(NUMBERS, 100, buffers, "lz4")
    assert numbers(batch).tolist() == list(range(100))
    assert f"nvcompStatus_t {status}" in str(bodies.counts)


def test_other_buffers_of_a_message_keep_what_the_device_made(library: FakeNvComp) -> None:
    """One chunk that fails costs one buffer: those before and behind it stay as they came."""
    names = "abcd"
    table = pa.table({name: np.arange(100) * number for number, name in enumerate(names, 1)})
    library.failing.add(1)
    reader = ipc.open_stream(written_by_pyarrow(table, "lz4"), device="fake:0")
    [batch] = reader
    assert batch.to_device("cpu").to_arrow().equals(table.to_batches()[0])
    assert reader.stats.decompressed.startswith("3 buffers by nvCOMP 6.0.0, 1 buffers on the host")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed", [1, 792, 799, 801, 808, 1600, 60_000])
def test_lies_about_sizes_are_refused_as_on_the_host(library: FakeNvComp, codec: str, claimed: int) -> None:
    """A frame that holds more or less than its length says is refused with the words of the host."""
    buffers = [b"", framed(np.arange(100).tobytes(), codec, claimed)]
    rows = min(claimed // 8, 100)
    with pytest.raises(InvalidBody, match="numbers") as on_the_device:
        on_device(NUMBERS, rows, buffers, codec)
    assert str(on_the_device.value) == str(_error_of_the_host(rows, buffers, codec))
    assert library.calls["Decompress"] <= 1


def _error_of_the_host(rows: int, buffers: list[bytes], codec: str) -> BowstringError | None:
    from tests.ipc.test_compression_hostile import read

    try:
        read(NUMBERS, rows, buffers, codec)
    except BowstringError as error:
        return error
    return None


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), codec=st.just("lz4"))
def test_damaged_frames_end_as_on_the_host(library: FakeNvComp, data: st.DataObject, codec: str) -> None:
    """Whatever bytes of an LZ4 frame are changed or cut off: the same values as on the host, or the same error."""
    whole = bytes(np.arange(3000) % 251)
    frame = bytearray(data.draw(st.sampled_from([framed(whole, codec)[8:], lz4_frame(whole)])))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(frame), len(frame) - 1, len(frame) // 2, 7, 5, 3]))
    buffers = [b"", struct.pack("<q", 3000) + bytes(frame[:cut])]
    expected = _error_of_the_host(375, buffers, codec)
    if expected is None:
        assert numbers(on_device(NUMBERS, 375, buffers, codec, trusted=False)[0]).tobytes() == whole
    else:
        with pytest.raises(type(expected)):
            on_device(NUMBERS, 375, buffers, codec, trusted=False)


@pytest.mark.parametrize("codec", CODECS)
def test_every_limit_holds_before_anything_is_allocated(library: FakeNvComp, codec: str) -> None:
    """What would be too large is refused before the device is asked for memory."""
    DEVICE.stats.reset()
    buffers = [b"", framed(bytes(1 << 16), codec)]
    tight = Limits(decompressed_bytes=(1 << 16) - 1)
    with pytest.raises(LimitExceeded):
        on_device(NUMBERS, 1 << 13, buffers, codec, limits=tight)
    assert (DEVICE.stats.host_writes, library.chunks) == (0, 0)


@pytest.mark.parametrize("blocks", [50, 10_000])
def test_what_is_staged_is_bounded_by_the_claims(library: FakeNvComp, blocks: int) -> None:
    """Buffers that all name one long frame of a byte do not make the host copy it as many times."""
    count, empty = 50, bytes(3)  # a block that is not the last one, and holds nothing
    frame = bytes.fromhex("28b52ffd 20 01") + b"\x08\0\0x" + empty * blocks + b"\1\0\0"
    offsets = framed(np.array([0, 1], np.int32).tobytes(), "zstd")
    start = len(offsets) + -len(offsets) % 8
    buffer = struct.pack("<q", 1) + frame
    body = offsets.ljust(start, b"\0") + buffer + bytes(-len(buffer) % 8)
    layout = Layout.of(pa.schema({str(index): pa.binary() for index in range(count)}))
    table = np.array([[0, 0], [0, len(offsets)], [start, len(buffer)]] * count)
    header = RecordBatchHeader(1, np.array([[1, 0]] * count), table, (), "zstd")
    bodies = DeviceBodies(DEVICE, trusted=True)
    DEVICE.stats.reset()
    batch = unpack(header, layout, wrap(body), target=bodies)
    # Of the long one the host is given the byte, and the device gets that.
    assert bodies.counts.on_host == (0 if blocks == 50 else count)
    assert DEVICE.stats.host_written_bytes < count * (2 * DEVICE.alignment + 1024)
    assert batch.to_device("cpu").to_pylist() == [{str(index): b"x" for index in range(count)}]


@pytest.mark.parametrize("codec", CODECS)
def test_no_byte_of_a_region_is_what_lay_there_before(library: FakeNvComp, codec: str) -> None:
    """Between the buffers of a batch are zeros, in memory that was used before, too."""
    from bowstring.memory import Pool

    pool = Pool(DEVICE, budget=8 << 20)
    used = pool.allocator().allocate(1 << 16)
    with used.writable() as array:
        array[:] = 0xEE
    del array, used
    bodies = DeviceBodies(DEVICE, pool.allocator(), trusted=True)
    data = framed(np.arange(13, dtype=np.int64).tobytes(), codec)
    body = data + bytes(-len(data) % 8)
    header = RecordBatchHeader(13, np.array([[13, 0]]), np.array([[0, 0], [0, len(data)]]), (), codec)
    batch = unpack(header, NUMBERS, wrap(body), target=bodies)
    [region] = batch_parts(batch).spans.regions
    assert pool.stats.reused == 1
    there = DEVICE.to_host(region.array(0, DEVICE.alignment))
    assert not there[13 * 8 :].any()


@pytest.mark.parametrize("failure", ["allocate", "copy"])
def test_a_device_that_fails_raises_and_leaves_nothing(library: FakeNvComp, failure: Any) -> None:
    """When the device has no room, or cannot copy, the error says so; the next batch comes."""
    buffers = [b"", framed(np.arange(100).tobytes(), "lz4")]
    from bowstring.memory import Pool

    bodies = DeviceBodies(DEVICE, Pool(DEVICE, budget=8 << 20).allocator())
    table = np.array([[0, 0], [0, len(buffers[1])]])
    header = RecordBatchHeader(100, np.array([[100, 0]]), table, (), "lz4")
    body = wrap(buffers[1] + bytes(-len(buffers[1]) % 8))
    DEVICE.fail_next(failure)
    with pytest.raises(BowstringError, match="fake device"):
        unpack(header, NUMBERS, body, target=bodies)
    assert unpack(header, NUMBERS, body, target=bodies).num_rows == 100


@pytest.mark.parametrize("version", [4099, 7000])
def test_other_versions_of_nvcomp_are_not_used(version: int) -> None:
    """Their functions have other arguments."""
    with pytest.raises(DeviceError, match="nvCOMP"):
        nvcomp.NvComp(FakeNvComp(version), lambda: 0)


def test_version_5_is_called_by_its_own_names() -> None:
    """Version 5 names one function otherwise, and gives it no stream."""
    library = FakeNvComp(5300)
    nvcomp.register_decompressor(EXT_DEV, lambda: nvcomp.NvComp(library, lambda: 0))
    try:
        _, bodies = on_device(NUMBERS, 100, [b"", framed(np.arange(100).tobytes(), "lz4")], "lz4")
    finally:
        nvcomp.register_decompressor(EXT_DEV, None)
    assert str(bodies.counts) == "1 buffers by nvCOMP 5.3.0"


def test_chunks_that_would_lie_askew_are_for_the_host(library: FakeNvComp) -> None:
    """Where nvCOMP asks for a larger alignment than we have, it is not called."""
    library.alignment = 16
    _, bodies = on_device(NUMBERS, 100, [b"", framed(np.arange(100).tobytes(), "lz4")], "lz4")
    assert (bodies.counts.on_host, bodies.counts.why) == (1, "nothing for nvCOMP 6.0.0")


@pytest.mark.parametrize("codec", CODECS)
def test_frames_of_nothing_are_for_the_host(library: FakeNvComp, codec: str) -> None:
    """A frame that is said to be empty is judged by the host: it is, or it is refused."""
    layout = Layout.of(pa.schema({"text": pa.binary()}))
    offsets = framed(bytes(8), codec)
    header, table, body = framed(b"", codec), [[0, 0]], b""
    for buffer in (offsets, header):
        table.append([len(body), len(buffer)])
        body += buffer + bytes(-len(buffer) % 8)
    parts = RecordBatchHeader(1, np.array([[1, 0]]), np.array(table), (), codec)
    assert unpack(parts, layout, wrap(body), target=DeviceBodies(DEVICE, trusted=True)).num_rows == 1
    lie = bytes(8) + framed(b"something", codec)[8:]
    table[2][1] = len(lie)
    body = body[: table[2][0]] + lie + bytes(-len(lie) % 8)
    parts = RecordBatchHeader(1, np.array([[1, 0]]), np.array(table), (), codec)
    with pytest.raises(InvalidBody):
        unpack(parts, layout, wrap(body), target=DeviceBodies(DEVICE, trusted=True))
    # The offsets of the first one alone: of LZ4 they are a block that is stored.
    assert library.chunks == (codec == "zstd")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "options",
    [
        ipc.IpcReadOptions(included_fields=[1, 6]),
        ipc.IpcReadOptions(ensure_alignment=ipc.Alignment.At64Byte),
        ipc.IpcReadOptions(use_threads=False),
    ],
)
def test_options_of_readers_hold_on_the_device(library: FakeNvComp, codec: str, options: Any) -> None:
    """Chosen columns alone are decompressed, and every other option means the same as on the host."""
    stream = written_by_pyarrow(TABLE, codec)
    expected = ipc.open_stream(stream, options=options).read_all()
    reader = ipc.open_stream(stream, options=options, device="fake:0", trusted=True)
    found = [batch.to_device("cpu").to_arrow() for batch in reader]
    assert pa.Table.from_batches(found, schema=reader.schema).equals(expected)
