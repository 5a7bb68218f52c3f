"""Framing: prefixes of today and of old, end markers, streams that are cut, versions to come."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import ipc
from bowstring.errors import InvalidMetadata, LimitExceeded, Truncated, Unsupported, UsageError
from bowstring.ipc.flatbuf.message import decode_message
from bowstring.ipc.framing import end_of_stream, frame, read_metadata
from bowstring.ipc.source import open_source
from bowstring.limits import DEFAULT_LIMITS
from tests.ipc.files import SAMPLE, by_bowstring, by_pyarrow, growing

LEGACY = {"use_legacy_format": True, "metadata_version": ipc.MetadataVersion.V4}
WRITTEN = {
    "today's": by_bowstring(pa.concat_tables([SAMPLE, SAMPLE]), kind="stream"),
    "of old": by_bowstring(pa.concat_tables([SAMPLE, SAMPLE]), kind="stream", **LEGACY),
    "pyarrow's of old": by_pyarrow(pa.concat_tables([SAMPLE, SAMPLE]), kind="stream", **LEGACY),
    "deltas": by_bowstring(growing(["a"], ["a", "b"]), kind="stream", emit_dictionary_deltas=True),
}


@given(
    metadata=st.binary(min_size=1, max_size=200),
    position=st.integers(0, 50).map(lambda count: 8 * count),
    alignment=st.sampled_from((8, 64)),
    is_legacy=st.booleans(),
)
def test_what_is_framed_is_read(metadata: bytes, position: int, alignment: int, is_legacy: bool) -> None:
    """Framed metadata come back, padded, and the body behind them is aligned from the stream's beginning."""
    framed = frame(metadata, position, alignment, is_legacy=is_legacy)
    source = open_source(framed + b"body")
    found = read_metadata(source, DEFAULT_LIMITS)
    assert found is not None
    assert found[: len(metadata)] == metadata
    assert not any(found[len(metadata) :])
    assert len(found) < len(metadata) + alignment
    assert (position + source.position) % alignment == 0
    assert source.body(4).to_arrow().to_pybytes() == b"body"


@pytest.mark.parametrize("name", list(WRITTEN))
def test_streams_end_with_a_marker_of_either_kind_or_without(name: str) -> None:
    """A stream ends with today's marker, with that of old, or where the source ends; what follows is not read."""
    stream = WRITTEN[name]
    marker = end_of_stream(is_legacy="old" in name)
    assert stream.endswith(marker)
    body = stream[: -len(marker)]
    expected = pa.ipc.open_stream(stream).read_all()
    for end in (b"", end_of_stream(), end_of_stream(is_legacy=True), end_of_stream() + b"\x01" * 100):
        for source in (body + end, io.BytesIO(body + end)):
            assert ipc.open_stream(source).read_all().equals(expected)


class _Slow:
    """A source that gives one byte a call, as a socket may."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self, nbytes: int) -> bytes:
        return self._file.read(min(nbytes, 1))


@pytest.mark.parametrize("name", list(WRITTEN))
def test_a_stream_cut_within_a_message_is_truncated(name: str) -> None:
    """Cut at every byte, a stream says so, but between its messages: there it has its first batches."""
    stream = WRITTEN[name]
    source = open_source(stream)
    between = set()
    while (metadata := read_metadata(source, DEFAULT_LIMITS)) is not None:
        source.body(decode_message(metadata).body_length)
        between.add(source.position)
    assert len(between) == 5 if name == "deltas" else 4
    for length in range(len(stream)):
        for opened in (bytes, io.BytesIO) if length % 7 == 0 else (bytes,):
            try:
                list(ipc.open_stream(opened(stream[:length])))
                clean = True
            except Truncated:
                clean = False
            assert clean is (length in between)
    for length in (3, 6, 40, len(stream) - 9):
        with pytest.raises(Truncated):
            list(ipc.open_stream(_Slow(stream[:length])))


def _of_version(message: bytes, version: int) -> bytes:
    """Return a message, with today's prefix, that says another metadata version."""
    data = bytearray(message)
    table = 8 + struct.unpack_from("<I", data, 8)[0]
    vtable = table - struct.unpack_from("<i", data, table)[0]
    struct.pack_into("<h", data, table + struct.unpack_from("<H", data, vtable + 4)[0], version)
    return bytes(data)


@pytest.mark.parametrize(("version", "name"), [(5, "V6"), (6, "V7"), (2, "V3"), (0, "V1")])
def test_versions_that_are_not_read_are_named(version: int, name: str) -> None:
    """V6 and later, and V1 to V3, are refused by name, in the schema and in a batch."""
    schema = SAMPLE.schema.serialize().to_pybytes()
    with pytest.raises(Unsupported, match=f"{name}\\b"):
        ipc.open_stream(_of_version(schema, version))
    table = pa.table({"a": [1]})
    start, batch = table.schema.serialize().to_pybytes(), table.to_batches()[0].serialize().to_pybytes()
    assert ipc.open_stream(start + batch).read_all().equals(table)
    with pytest.raises(Unsupported, match=f"{name}\\b"):
        ipc.open_stream(start + _of_version(batch, version)).read_all()


def test_the_future_is_refused(arrow_test_data: Path) -> None:
    """Arrow's own example of metadata of a version to come is refused by name."""
    path = arrow_test_data / "forward-compatibility" / "schema_v6.arrow"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with pytest.raises(Unsupported, match="V6"):
        ipc.open_stream(path)


def test_prefixes_that_are_none() -> None:
    """Negative lengths, lengths beyond the limits and Arrow files are told apart."""
    for prefix in (b"\xff\xff\xff\xff\xff\xff\xff\xff", b"\x00\x00\x00\x80"):
        with pytest.raises(InvalidMetadata, match="negative"):
            ipc.open_stream(prefix + bytes(64))
    with pytest.raises(LimitExceeded, match="metadata"):
        ipc.open_stream(struct.pack("<i", DEFAULT_LIMITS.metadata_bytes + 1))
    with pytest.raises(InvalidMetadata, match="Arrow file"):
        ipc.open_stream(by_bowstring(SAMPLE))


def test_bodies_that_claim_to_be_huge_cost_nothing() -> None:
    """A body that says that it is as large as the limits allow is cut off, whatever it is read from."""
    message = bytearray(pa.record_batch({"a": [1]}).serialize().to_pybytes())
    at = message.index(struct.pack("<q", 8))
    struct.pack_into("<q", message, at, DEFAULT_LIMITS.message_bytes)
    stream = pa.schema({"a": pa.int64()}).serialize().to_pybytes() + bytes(message)
    for source in (stream, io.BytesIO(stream), pa.BufferReader(stream)):
        with pytest.raises((Truncated, LimitExceeded)):
            ipc.open_stream(source).read_all()


def test_sources_that_are_none() -> None:
    """Numbers and other objects that cannot be read from are refused by name."""
    sources: list[Any] = [3, None, object(), io.StringIO("text")]
    for source in sources:
        with pytest.raises(UsageError, match="cannot be read"):
            ipc.open_stream(source)


def test_sinks_that_are_none() -> None:
    """What cannot be written to, and what is no schema, are refused by name."""
    sinks: list[Any] = [3, None, io.StringIO()]
    for new in (ipc.new_stream, ipc.new_file):
        for sink in sinks:
            with pytest.raises(UsageError, match="cannot be written"):
                new(sink, pa.schema([]))
        with pytest.raises(UsageError, match="schema"):
            new(io.BytesIO(), {"a": pa.int8()})
