"""Compressed streams on a device, by nvCOMP: a fake library in every run, the real one where there is a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bowstring import ipc
from bowstring.columnar.parts import batch_parts
from bowstring.errors import InvalidBody
from bowstring.ipc.compression.device import nvcomp
from bowstring.memory import device_by_name
from bowstring.testing.fake_device import EXT_DEV
from tests.ipc.fake_nvcomp import FakeNvComp
from tests.ipc.test_compression import CODECS, TABLE, written_by_pyarrow
from tests.ipc.test_compression_device import lz4_frame

BLOCK = 64 << 10
DAMAGED = 200


@pytest.fixture
def nvcomp_on(device: str) -> Iterator[str]:
    """Return a device on which nvCOMP decompresses."""
    if device.startswith("fake:"):
        nvcomp.register_decompressor(EXT_DEV, lambda: nvcomp.NvComp(FakeNvComp(), lambda: 0))
        yield device
        nvcomp.register_decompressor(EXT_DEV, None)
        return
    found = nvcomp.decompressor_of(device_by_name(device))
    if isinstance(found, str):
        pytest.skip(found)
    yield device


def read(device: str, stream: bytes) -> tuple[pa.Table, str]:
    """Return what a reader asked for a device gives, on the host, and who decompressed it."""
    reader = ipc.open_stream(stream, device=device, trusted=True)
    batches = [batch.to_device("cpu").to_arrow() for batch in reader]
    return pa.Table.from_batches(batches, schema=reader.schema), reader.stats.decompressed


@pytest.mark.parametrize("codec", CODECS)
def test_every_column_is_decompressed_on_the_device(nvcomp_on: str, codec: str) -> None:
    """Numbers, text, views, lists, dictionaries and nulls are what pyarrow reads."""
    found, by = read(nvcomp_on, written_by_pyarrow(TABLE, codec))
    found.validate(full=True)
    assert found.equals(TABLE)
    assert "by nvCOMP" in by


def with_frame(numbers: Any, frame: bytes) -> bytes:
    """Return a stream of one column of int64 without nulls whose values are this LZ4 frame."""
    from bowstring.columnar.batch import Batch
    from bowstring.ipc.flatbuf.schema import encode_schema
    from bowstring.ipc.flatbuf.template import Template
    from bowstring.ipc.framing import frame as framed_message

    batch = Batch.from_arrow({"n": numbers})
    buffer = numbers.nbytes.to_bytes(8, "little") + frame
    body = buffer + bytes(-len(buffer) % 64)
    places = np.array([[0, 0], [0, len(buffer)]])
    metadata = Template(batch.layout).encode_batch(
        batch.num_rows, batch_parts(batch).nodes, places, len(body), (), compression="lz4"
    )
    schema = framed_message(encode_schema(batch.schema), alignment=8)
    return b"".join((schema, framed_message(metadata, alignment=8), body))


def test_many_blocks_of_one_frame(nvcomp_on: str) -> None:
    """Independent blocks, some of them stored, are put where they belong."""
    rng = np.random.default_rng(8)
    numbers = np.concatenate([np.arange(20 * BLOCK // 8), rng.integers(0, 1 << 62, 4 * BLOCK // 8)])
    raw = numbers.tobytes()
    frame = lz4_frame(*(raw[start : start + BLOCK] for start in range(0, len(raw), BLOCK)))
    found, by = read(nvcomp_on, with_frame(numbers, frame))
    assert np.array_equal(found["n"].to_numpy(), numbers)
    assert by.startswith("1 buffers by nvCOMP")
    assert "host" not in by


def test_damaged_blocks_are_refused_and_the_device_goes_on(nvcomp_on: str) -> None:
    """Blocks with changed bytes give the values of the host or its error, and sound ones are read behind them."""
    rng = np.random.default_rng(9)
    numbers = np.arange(1000) % 251
    sound = lz4_frame(numbers.tobytes())
    for _ in range(DAMAGED):
        frame = bytearray(sound)
        frame[rng.integers(11, len(frame) - 4)] = rng.integers(0, 256)
        stream = with_frame(numbers, bytes(frame))
        try:
            expected = ipc.open_stream(stream).read_all()
        except InvalidBody:
            with pytest.raises(InvalidBody):
                read(nvcomp_on, stream)
        else:
            assert read(nvcomp_on, stream)[0].equals(expected)
    assert np.array_equal(read(nvcomp_on, with_frame(numbers, sound))[0]["n"].to_numpy(), numbers)


def test_the_library_itself_takes_our_structures() -> None:
    """What needs no GPU is asked of the real library, where it is installed: structures go as it expects them."""
    pytest.importorskip("nvidia.libnvcomp", reason="nvCOMP is not installed")
    found = nvcomp.NvComp(nvcomp._library(), lambda: 0)
    for codec in CODECS:
        assert found.takes(codec, BLOCK, 8)
        work = nvcomp.Work(codec, 0, 0, np.array([[0, 10, 0, BLOCK]] * 10))
        # ZSTD needs room of its own, LZ4 on CUDA cores none; garbage in the options would be refused.
        assert (found._temp_bytes(work, 0) > 0) == (codec == "zstd")
