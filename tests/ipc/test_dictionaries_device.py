"""Compressed dictionaries that go to a device: by nvCOMP (a fake) as batches do, with deltas and replacements."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from bowstring import ipc
from bowstring.ipc.compression.device import nvcomp
from bowstring.testing import OnlyCurrent, fake_device
from bowstring.testing.fake_device import EXT_DEV
from tests.ipc.fake_nvcomp import FakeNvComp
from tests.ipc.files import by_pyarrow, messages

DEVICE: Final = fake_device()
WORDS: Final = [f"street {number}" for number in range(500)]
KINDS: Final[dict[str, Any]] = {
    "text": pa.array(WORDS),
    "numbers": pa.array(range(500), pa.int64()),
    "views": pa.array(WORDS, pa.string_view()),
    "lists": pa.array([[number, number + 1] for number in range(500)]),
    "dictionaries": pa.ListArray.from_arrays(
        np.arange(501, dtype=np.int32), pa.array(WORDS).dictionary_encode()
    ),
}


@pytest.fixture(params=[True, False])
def library(request: pytest.FixtureRequest) -> Iterator[FakeNvComp | None]:
    """Return a fake nvCOMP that is found for the fake device, or nothing."""
    made = FakeNvComp() if request.param else None
    if made is not None:
        nvcomp.register_decompressor(EXT_DEV, lambda: nvcomp.NvComp(made, lambda: 0))
    yield made
    nvcomp.register_decompressor(EXT_DEV, None)


def table_of(values: pa.Array, *sizes: int) -> pa.Table:
    """Return a table of one chunk for each size, whose dictionary is so many of the values."""
    chunks = [
        pa.DictionaryArray.from_arrays(np.arange(size, dtype=np.int32), values[:size]) for size in sizes
    ]
    return pa.table({"d": pa.chunked_array(chunks), "n": np.arange(sum(sizes))})


def read(data: bytes, kind: str = "stream", **options: Any) -> tuple[pa.Table, list[Any], str]:
    """Return what a device reads, on the host and there, and by which road it came."""
    reader = getattr(ipc, f"open_{kind}")(data, device="fake:0", **options)
    with OnlyCurrent():
        batches = list(reader)
        found = [batch.to_device("cpu").to_arrow() for batch in batches]
    return pa.Table.from_batches(found, schema=reader.schema), batches, reader.stats.decompressed


@pytest.mark.parametrize("deltas", [True, False])
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("name", [name for name in KINDS if name != "dictionaries"])
def test_dictionaries_come_to_the_device_as_to_the_host(
    library: FakeNvComp | None, name: str, codec: str, *, deltas: bool
) -> None:
    """Dictionaries that grow, or are replaced, are those of the host for each batch, whoever decompresses them."""
    table = table_of(KINDS[name], 100, 100, 300, 500)
    data = by_pyarrow(table, kind="stream", compression=codec, emit_dictionary_deltas=deltas)
    found, batches, _ = read(data, trusted=True)
    assert found.equals(table)
    assert [len(batch.dictionaries[0].values[0]) for batch in batches] == [100, 100, 300, 500]
    assert {batch.dictionaries[0].values.device for batch in batches} == {DEVICE}
    assert library is None or library.calls["Decompress"] > len(batches)


@pytest.mark.parametrize("kind", ["stream", "file"])
def test_no_frame_of_a_dictionary_is_left_to_the_host(kind: str) -> None:
    """What nvCOMP can decompress, it does: of dictionaries as of batches."""
    library = FakeNvComp()
    nvcomp.register_decompressor(EXT_DEV, lambda: nvcomp.NvComp(library, lambda: 0))
    try:
        table = table_of(KINDS["text"], 500)
        _, _, decompressor = read(by_pyarrow(table, kind=kind, compression="zstd"), kind, trusted=True)
    finally:
        nvcomp.register_decompressor(EXT_DEV, None)
    assert decompressor == "4 buffers by nvCOMP 6.0.0"


def test_dictionaries_with_dictionaries_are_put_together_on_the_host(library: FakeNvComp | None) -> None:
    """Values that use a dictionary themselves come to the device with the batch that uses them."""
    values = KINDS["dictionaries"]
    table = table_of(values, 500)
    found, batches, _ = read(by_pyarrow(table, kind="stream", compression="lz4"))
    assert found.equals(table)
    assert {batch.dictionaries[0].values.device for batch in batches} == {DEVICE}
    assert library is None or library.calls


@pytest.mark.parametrize("compressed", range(8))
def test_messages_need_not_agree_whether_they_are_compressed(
    library: FakeNvComp | None, compressed: int
) -> None:
    """A dictionary, its delta and the batches behind them may each be compressed or not."""
    table = table_of(KINDS["text"], 100, 500)
    plain, packed = (
        messages(by_pyarrow(table, kind="stream", compression=codec, emit_dictionary_deltas=True))
        for codec in (None, "lz4")
    )
    schema, *rest = range(len(plain))
    chosen = [plain[schema], *((packed if compressed >> (each % 3) & 1 else plain)[each] for each in rest)]
    found, batches, _ = read(b"".join(chosen))
    assert found.equals(table)
    assert {batch.dictionaries[0].values.device for batch in batches} == {DEVICE}
    assert library is None or bool(library.calls["Decompress"]) == any(
        compressed >> (each % 3) & 1 for each in rest
    )


def test_what_was_read_on_a_device_is_written_again(library: FakeNvComp | None) -> None:
    """Dictionaries that a device decompressed are written like any others."""
    table = table_of(KINDS["text"], 100, 500)
    _, batches, _ = read(by_pyarrow(table, kind="stream", compression="lz4", emit_dictionary_deltas=True))
    sink = io.BytesIO()
    with ipc.new_stream(sink, table.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    assert pa.ipc.open_stream(sink.getvalue()).read_all().equals(table)
    assert library is None or library.calls
