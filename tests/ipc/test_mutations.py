"""Damaged streams: cut anywhere, flipped anywhere, and every input that ever crashed Arrow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from bowstring import ipc
from bowstring.columnar.layout import Layout
from bowstring.errors import BowstringError
from bowstring.ipc.body.check import check
from bowstring.ipc.flatbuf.message import MessageKind, decode_dictionary, decode_message, decode_record_batch
from bowstring.ipc.flatbuf.schema import decode_schema, encode_schema
from tests.ipc.files import verdict

TABLE = pa.table(
    {
        "number": pa.array([1, None, 3], pa.int64()),
        "text": ["x", None, "yz"],
        "zone": pa.array([1, 2, 3], pa.timestamp("us", "Europe/Berlin")),
        "tags": [["a"], None, ["b", "c"]],
        "word": pa.array(["p", "q", "p"]).dictionary_encode(),
        "view": pa.array(["x" * 20, "y", None], pa.string_view()),
        "union": pa.UnionArray.from_dense(
            pa.array([0, 1, 0], pa.int8()),
            pa.array([0, 0, 1], pa.int32()),
            [pa.array([1, 2]), pa.array(["z"])],
        ),
        "map": pa.array([[("k", 1)], [], [("l", 2)]], pa.map_(pa.string(), pa.int8())),
    }
)


def _stream() -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, TABLE.schema.with_metadata({"k": "v"})) as writer:
        writer.write_batch(TABLE.to_batches()[0], custom_metadata={"key": "value"})
    return sink.getvalue().to_pybytes()


def _metadata() -> list[bytes]:
    reader = pa.ipc.MessageReader.open_stream(_stream())
    return [reader.read_next_message().metadata.to_pybytes() for _ in range(3)]


def _decode(data: bytes, layout: Layout) -> None:
    message = decode_message(data)
    if message.kind is MessageKind.SCHEMA:
        decode_schema(message)
    elif message.kind is MessageKind.DICTIONARY_BATCH:
        id_, _, header = decode_dictionary(message)
        if id_ in layout.dictionaries:
            check(header, layout.dictionaries[id_], message.body_length)
    elif message.kind is MessageKind.RECORD_BATCH:
        check(decode_record_batch(message), layout, message.body_length)


def _refusal(data: bytes, layout: Layout) -> BowstringError | None:
    """Return why metadata are refused; anything but an error of the tree fails the test."""
    try:
        _decode(data, layout)
    except BowstringError as error:
        return error
    return None


def _verifier_refuses(data: bytes) -> bool:
    """Whether pyarrow's flatbuffers verifier says that these are no metadata at all."""
    framed = b"\xff\xff\xff\xff" + len(data).to_bytes(4, "little") + data
    try:
        pa.ipc.read_message(framed)
    except (OSError, pa.ArrowException) as error:
        return "Invalid flatbuffers" in str(error)
    return False


def test_metadata_cut_at_every_length_are_refused() -> None:
    """A message's metadata without its end are an error of the tree, but for padding."""
    layout = Layout.of(TABLE.schema)
    for data in _metadata():
        for length in range(len(data) - 8):
            assert _refusal(data[:length], layout) is not None


def _flipped(data: bytes, source: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        damaged = bytearray(data)
        for _ in range(source.randint(1, 4)):
            position = source.randrange(len(data))
            damaged[position] = source.choice((0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)))
        yield bytes(damaged)


def test_flipped_metadata_raise_errors_of_the_tree_only() -> None:
    """Thousands of damaged messages are decoded and checked, or refused with one of our errors."""
    layout = Layout.of(TABLE.schema)
    source = random.Random(2)
    refused = 0
    for data in _metadata():
        for damaged in _flipped(data, source, 3000):
            refused += _refusal(damaged, layout) is not None
    assert refused > 3000


def test_flipped_batches_that_the_verifier_refuses_are_refused() -> None:
    """Where pyarrow's verifier finds a record batch's metadata malformed, so do we."""
    layout = Layout.of(TABLE.schema)
    for damaged in _flipped(_metadata()[2], random.Random(3), 3000):
        if _verifier_refuses(damaged):
            assert _refusal(damaged, layout) is not None


def test_every_single_byte_of_a_batchs_metadata() -> None:
    """Each byte set to its extremes: no error but ours, and no array beyond the metadata."""
    layout = Layout.of(TABLE.schema)
    data = _metadata()[2]
    for position in range(len(data)):
        for value in (0, 0x7F, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] = value
            _refusal(bytes(damaged), layout)


def test_flipped_streams_are_read_or_refused() -> None:
    """Whole streams damaged anywhere are read to the end, or refused with one of our errors."""
    stream = _stream()
    for damaged in _flipped(stream, random.Random(4), 1500):
        try:
            for batch in ipc.open_stream(damaged):
                batch.validate(full=True)
        except BowstringError:
            pass


def test_random_schemas_cut_and_flipped() -> None:
    """Wide schemas, too: a hundred fields with nested types, damaged."""
    fields = [pa.field(f"f{index}", TABLE.schema.field(index % 8).type) for index in range(100)]
    data = encode_schema(pa.schema(fields, metadata={"k": "v" * 50}))
    layout = Layout.of(pa.schema(fields))
    for damaged in _flipped(data, random.Random(5), 300):
        _refusal(damaged, layout)


def _crash_inputs(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and path.suffix != ".md")


def test_inputs_that_crashed_arrow_are_read_as_pyarrow_reads_them(arrow_test_data: Path) -> None:
    """Each input of Arrow's fuzzers is refused with one of our errors, or read as pyarrow reads it."""
    inputs = _crash_inputs(arrow_test_data / "arrow-ipc-stream")
    assert inputs
    for path in inputs:
        data = path.read_bytes()
        found, expected = verdict(data, ipc), verdict(data, pa.ipc)
        assert found is None or expected is None or found.equals(expected), path.name


@pytest.mark.parametrize("room", ["arrow-ipc-file", "arrow-ipc-tensor-stream"])
def test_files_and_tensors_are_no_streams(arrow_test_data: Path, room: str) -> None:
    """Inputs of other readers' fuzzers are refused by the stream reader, never anything worse."""
    for path in _crash_inputs(arrow_test_data / room):
        with pytest.raises(BowstringError):
            ipc.open_stream(path.read_bytes()).read_all()
