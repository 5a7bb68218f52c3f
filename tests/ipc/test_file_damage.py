"""Damaged files: cut anywhere, flipped anywhere, footers that lie, and every input that ever crashed Arrow."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import ipc
from bowstring.errors import (
    BowstringError,
    InvalidData,
    InvalidMetadata,
    LimitExceeded,
    Truncated,
    Unsupported,
)
from bowstring.ipc.flatbuf.footer import Block, encode_footer, read_footer
from bowstring.ipc.flatbuf.reader import Tables
from bowstring.ipc.flatbuf.schema import encode_schema
from bowstring.ipc.source import open_source
from bowstring.limits import DEFAULT_LIMITS
from bowstring.memory import wrap
from tests.ipc.files import SAMPLE, by_bowstring, by_pyarrow, verdict


def test_inputs_that_crashed_arrow_are_read_as_pyarrow_reads_them(arrow_test_data: Path) -> None:
    """Each input of Arrow's fuzzers is refused with one of our errors, or read as pyarrow reads it."""
    inputs = sorted(path for path in (arrow_test_data / "arrow-ipc-file").iterdir() if path.suffix != ".md")
    assert inputs
    for path in inputs:
        data = path.read_bytes()
        found, expected = verdict(data, ipc, "file"), verdict(data, pa.ipc, "file")
        assert found is None or expected is None or found.equals(expected), path.name


def test_inputs_of_the_stream_fuzzer_are_no_files(arrow_test_data: Path) -> None:
    """Streams that crashed Arrow are refused as files."""
    for path in sorted((arrow_test_data / "arrow-ipc-stream").glob("c*-*")):
        with pytest.raises(BowstringError):
            ipc.open_file(path.read_bytes())


@pytest.mark.parametrize("write", [by_pyarrow, by_bowstring])
def test_a_file_cut_anywhere_is_refused(write: Any) -> None:
    """Without its last byte, or without all bytes from anywhere on, a file is none."""
    file = write(SAMPLE)
    for length in range(len(file)):
        with pytest.raises(InvalidData):
            ipc.open_file(file[:length])


def test_a_file_without_its_beginning_is_refused() -> None:
    """What ends like a file and does not begin like one is refused: pyarrow does not look."""
    file = by_pyarrow(SAMPLE)
    with pytest.raises(InvalidMetadata, match="not an Arrow file"):
        ipc.open_file(b"X" + file[1:])
    with pytest.raises(InvalidMetadata, match="too short"):
        ipc.open_file(b"ARROW1")
    with pytest.raises(InvalidMetadata, match="not an Arrow file"):
        ipc.open_file(by_pyarrow(SAMPLE, kind="stream"))


def _flipped(data: bytes, start: int, source: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        damaged = bytearray(data)
        for _ in range(source.randint(1, 3)):
            damaged[source.randrange(start, len(data))] = source.choice((0, 1, 0x7F, 0x80, 0xFF, 0x55))
        yield bytes(damaged)


@pytest.mark.parametrize("write", [by_pyarrow, by_bowstring])
def test_flipped_files_are_read_or_refused(write: Any) -> None:
    """Files damaged anywhere, and their footers above all, are read or refused with one of our errors."""
    file = write(pa.concat_tables([SAMPLE, SAMPLE]), metadata={"k": "v"})
    footer = len(file) - 10 - struct.unpack_from("<i", file, len(file) - 10)[0]
    read = 0
    for start, count in ((0, 400), (footer, 1200)):
        for damaged in _flipped(file, start, random.Random(7), count):
            read += verdict(damaged, ipc, "file") is not None
    assert read > 100


def test_flipped_footers_that_pyarrow_refuses_are_refused() -> None:
    """What pyarrow's verifier says of a damaged footer, we say too."""
    file = by_pyarrow(SAMPLE)
    footer = len(file) - 10 - struct.unpack_from("<i", file, len(file) - 10)[0]
    refused = 0
    for damaged in _flipped(file, footer, random.Random(8), 1500):
        if verdict(damaged, pa.ipc, "file") is None:
            refused += 1
            assert verdict(damaged, ipc, "file") is None
    assert refused > 100


def _with_blocks(file: bytes, batches: list[Block], dictionaries: list[Block] | None = None) -> bytes:
    """Return a file with another footer behind the same messages."""
    source = open_source(file)
    footer = read_footer(source, len(file), DEFAULT_LIMITS)
    kept = [Block(*block) for block in footer.dictionaries.tolist()]
    schema = encode_schema(ipc.open_file(file).schema)
    new = encode_footer(schema, kept if dictionaries is None else dictionaries, batches)
    return file[: footer.start] + new + struct.pack("<i", len(new)) + b"ARROW1"


def _blocks(file: bytes) -> tuple[list[Block], list[Block], int]:
    footer = read_footer(open_source(file), len(file), DEFAULT_LIMITS)
    tables = [[Block(*block) for block in table.tolist()] for table in (footer.dictionaries, footer.batches)]
    return tables[0], tables[1], footer.start


@given(count=st.integers(1, 40), value=st.integers(1, 255))
def test_footers_hold_nothing_of_other_memory(count: int, value: int) -> None:
    """What pads the blocks of a footer is zero, whatever lay there before: a file says nothing of its writer."""
    schema = encode_schema(pa.schema({"n": pa.int8()}))
    before = [np.full(24 * count, value, np.uint8) for _ in range(9)]
    del before  # memory that is free again
    footer = encode_footer(schema, [], [Block(64 * at, 64, 0) for at in range(count)])
    table = Tables(footer)
    root = table.follow(0, "Footer")
    start, _ = table.vector(root, table.slots(root, "Footer")[3], 24, "Footer.recordBatches")
    blocks = np.frombuffer(footer, np.uint8, 24 * count, start).reshape(count, 24)
    assert not blocks[:, 12:16].any()


@pytest.mark.parametrize("write", [by_pyarrow, by_bowstring])
def test_blocks_that_lie_are_refused_and_named(write: Any) -> None:
    """A block outside, misaligned, or unlike its message is refused; other batches are read."""
    file = write(pa.concat_tables([SAMPLE, SAMPLE]))
    dictionaries, (first, second), end = _blocks(file)
    offset, metadata, body = second
    lies: dict[str, list[tuple[int, int, int]]] = {
        "outside": [
            (-8, metadata, body),
            (0, metadata, body),
            (end, metadata, body),
            (offset, metadata, body + 1024),
            (offset, -8, body),
            (offset, 0, body),
            (offset, metadata, -8),
            ((1 << 63) - 8, metadata, body),
            (offset, metadata, (1 << 63) - 8),
            (end - 8, 8, 8),
        ],
        "misaligned": [
            (offset + 4, metadata, body - 8),
            (offset, metadata - 4, body),
            (offset, metadata, body - 1),
        ],
        "length of metadata": [(offset, metadata - 8, body)],
        "length of the body": [(offset, metadata, body - 8)],
        "kind of message": [dictionaries[0]],
    }
    for what, blocks in lies.items():
        for block in blocks:
            reader = ipc.open_file(_with_blocks(file, [first, Block(*block)]))
            assert reader.get_batch(0).num_rows == 3
            with pytest.raises(InvalidMetadata, match=what) as caught:
                reader.get_batch(1)
            assert caught.value.where == "record batch 1"
    with pytest.raises(InvalidData):
        ipc.open_file(_with_blocks(file, [first, Block(offset + 8, metadata, body - 8)])).get_batch(1)


def test_dictionary_blocks_that_lie_are_refused_and_named() -> None:
    """A block of dictionaries that is one of a batch is refused, and one that is missing is missed."""
    file = by_bowstring(SAMPLE)
    _, batches, _ = _blocks(file)
    with pytest.raises(InvalidMetadata, match="kind of message") as caught:
        ipc.open_file(_with_blocks(file, batches, batches)).read_all()
    assert caught.value.where == "dictionary 0"
    with pytest.raises(InvalidMetadata, match="not been sent"):
        ipc.open_file(_with_blocks(file, batches, [])).read_all()


def test_a_block_that_points_to_an_end_marker_is_refused() -> None:
    """Where the footer says that a batch is, the stream may not end."""
    file = by_bowstring([SAMPLE.to_batches()[0]])
    _, _, end = _blocks(file)
    with pytest.raises(InvalidMetadata, match="no message"):
        ipc.open_file(_with_blocks(file, [Block(end - 8, 8, 0)])).get_batch(0)


def test_the_same_bytes_are_not_read_over_and_over() -> None:
    """A block that is listed twice, or lies over another, is refused: a small footer could ask for any amount."""
    file = by_bowstring(pa.concat_tables([SAMPLE, SAMPLE]))
    dictionaries, (first, second), _ = _blocks(file)
    inside = Block(first.offset + 64, first.metadata_length, first.body_length - 64)
    for blocks, bad in (([first, second, first], 2), ([second, first, second], 2), ([inside, first], 0)):
        reader = ipc.open_file(_with_blocks(file, blocks))
        assert reader.get_batch(1).num_rows > 1
        with pytest.raises(InvalidMetadata, match="over another") as caught:
            reader.get_batch(bad)
        assert caught.value.where == f"record batch {bad}"
    reader = ipc.open_file(_with_blocks(file, [first], dictionaries * 2))
    for _ in range(2):
        with pytest.raises(InvalidMetadata, match="over another") as caught:
            reader.get_batch(0)
        assert caught.value.where == "dictionary 1"


def _with_schema(file: bytes, schema: pa.Schema) -> bytes:
    """Return a file whose footer says another schema."""
    _, batches, end = _blocks(file)
    new = encode_footer(encode_schema(schema), [], batches)
    return file[:end] + new + struct.pack("<i", len(new)) + b"ARROW1"


def test_the_footers_schema_is_that_of_the_stream() -> None:
    """A footer that says other columns than the first message is refused; other metadata are not."""
    file = by_bowstring(pa.table({"a": [1, 2], "b": ["x", "y"]}))
    same = pa.schema({"a": pa.int64(), "b": pa.string()}, metadata={"k": "v"})
    assert ipc.open_file(_with_schema(file, same)).schema.metadata == {b"k": b"v"}
    for other in (
        pa.schema({"a": pa.int64(), "c": pa.string()}),
        pa.schema({"a": pa.uint64(), "b": pa.string()}),
        pa.schema({"a": pa.int64()}),
        pa.schema({"a": pa.int64(), "b": pa.string(), "c": pa.int8()}),
    ):
        with pytest.raises(InvalidMetadata, match="another schema"):
            ipc.open_file(_with_schema(file, other))


def test_files_without_a_schema_message_are_read_as_by_pyarrow() -> None:
    """The footer's schema is enough: what stands at the beginning need not be one."""
    table = pa.table({"a": [1, 2]})
    file = bytearray(by_pyarrow(table))
    (block,) = _blocks(bytes(file))[1]
    file[8 : block.offset] = bytes(block.offset - 8)
    for module in (pa.ipc, ipc):
        assert module.open_file(bytes(file)).read_all().equals(table)


def test_footers_keep_to_the_limits() -> None:
    """A footer that is larger than metadata may be, or says more columns, is not read."""
    file = by_bowstring(SAMPLE)
    with pytest.raises(LimitExceeded, match="footer"):
        ipc.open_file(file, limits=DEFAULT_LIMITS.replace(metadata_bytes=64))
    with pytest.raises(LimitExceeded, match="fields"):
        ipc.open_file(file, limits=DEFAULT_LIMITS.replace(columns=3))
    with pytest.raises(Truncated, match="footer"):
        ipc.open_file(file[:-10] + struct.pack("<i", 1 << 30) + b"ARROW1")
    for length in (0, -1):
        with pytest.raises(InvalidMetadata, match="not positive"):
            ipc.open_file(file[:-10] + struct.pack("<i", length) + b"ARROW1")


def test_footers_of_versions_to_come_are_refused_by_name() -> None:
    """V6 is named; a version that was left out is not asked for."""
    file = bytearray(by_bowstring(SAMPLE))
    _, _, start = _blocks(bytes(file))
    table = start + struct.unpack_from("<I", file, start)[0]
    at = table + Tables(bytes(file)).slots(table, "Footer")[0]
    for version in (5, 0x7FFF):
        struct.pack_into("<h", file, at, version)
        with pytest.raises(Unsupported, match=f"V{version + 1}"):
            ipc.open_file(bytes(file))
    struct.pack_into("<h", file, at, 0)
    assert ipc.open_file(bytes(file)).read_all().equals(SAMPLE)


def test_what_a_file_begins_with_may_claim_any_length() -> None:
    """A first message that says to be larger than metadata may be is none: the footer is enough."""
    table = pa.table({"a": [1, 2]})
    file = bytearray(by_pyarrow(table))
    file[12:16] = struct.pack("<i", 1 << 30)
    for module in (pa.ipc, ipc):
        assert module.open_file(bytes(file)).read_all().equals(table)


@pytest.mark.parametrize("codec", [None, "lz4"])
@pytest.mark.parametrize(
    "offset",
    [-(1 << 63), -(1 << 62), -8, -7, 0, 4, 1 << 40, (1 << 62) + 8, (1 << 63) - 8, (1 << 63) - 1, "before"],
)
@pytest.mark.parametrize("index", range(3))
def test_blocks_that_lead_out_of_a_slice(codec: str | None, offset: Any, index: int) -> None:
    """An offset outside of the messages is refused in a slice of memory, too, and nothing before it is read."""
    batches = [pa.record_batch({"a": [number] * 100}) for number in range(3)]
    file = bytearray(by_pyarrow(batches, compression=codec))
    with ipc.open_file(bytes(file)) as reader:
        assert reader.num_record_batches == 3
    blocks = read_footer(open_source(bytes(file)), len(file), DEFAULT_LIMITS).batches
    old = int(blocks[index][0])
    before = bytes(file) + bytes(-len(file) % 64)
    struct.pack_into(
        "<q", file, file.rindex(struct.pack("<q", old)), old - len(before) if offset == "before" else offset
    )
    memory = wrap(before + file).slice(len(before), len(file))
    with ipc.open_file(memory) as reader:
        for number in range(3):
            if number == index:
                with pytest.raises(InvalidMetadata):
                    reader.get_batch(number)
            else:
                assert reader.get_batch(number).to_arrow().equals(batches[number])
