"""Claims of compressed bodies: by the kernel and in plain integers, and what both refuse."""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring.columnar.batch import Batch
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import batch_parts
from bowstring.errors import BowstringError, InvalidMetadata
from bowstring.ipc import open_stream
from bowstring.ipc.body.pack import pack, unpack
from bowstring.ipc.compression.body import check_claims, decompressed_body
from bowstring.ipc.compression.codec import PREFIX_BYTES, STORED, Claims
from bowstring.ipc.flatbuf.message import RecordBatchHeader, decode_message, decode_record_batch
from bowstring.ipc.flatbuf.template import Template
from bowstring.ipc.framing import frame
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.memory import Buffer, wrap
from tests import strategies
from tests.ipc.forms import by_kernel, needs_library, without_library

_ODD = (
    -(1 << 63),
    -(1 << 40),
    -9,
    -8,
    -2,
    -1,
    0,
    1,
    7,
    8,
    9,
    16,
    63,
    64,
    1 << 20,
    1 << 31,
    1 << 61,
    (1 << 63) - 1,
)
_NUMBERS = st.one_of(st.sampled_from(_ODD), st.integers(-20, 2000))
_LIMITS = st.sampled_from(
    (
        DEFAULT_LIMITS,
        Limits(decompressed_bytes=100),
        Limits(decompression_floor=1, decompression_ratio=0.5),
        Limits(decompression_floor=64, decompression_ratio=1.5),
    )
)


def message_of(batch: pa.RecordBatch, codec: str) -> tuple[RecordBatchHeader, bytes]:
    """Return a batch as pyarrow compresses it: the header, and the body."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    messages = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))
    message = next(each for each in messages if each.type == "record batch")
    return decode_record_batch(decode_message(message.metadata)), message.body.to_pybytes()


def _stored(batch: pa.RecordBatch) -> tuple[RecordBatchHeader, bytes]:
    """Return a batch whose buffers, but for empty ones, stand behind a -1, as nobody writes all of them."""
    ours = Batch.from_arrow(batch)
    places, body = [], b""
    for buffer in ours.buffers:
        piece = b"" if buffer is None else struct.pack("<q", -1) + buffer.to_host().tobytes()
        places.append((len(body), len(piece)))
        body += piece + bytes(-len(piece) % 8)
    table = np.array(places, np.int64).reshape(-1, 2)
    return RecordBatchHeader(
        ours.num_rows, batch_parts(ours).nodes, table, batch_parts(ours).variadic_counts, "lz4"
    ), body


_BATCHES = st.one_of(
    strategies.record_batches(),
    strategies.record_batches(min_columns=1, max_columns=2, types=st.sampled_from(strategies.LEAF_TYPES)),
)


@needs_library
@given(batch=_BATCHES, codec=st.sampled_from(("lz4", "zstd", "stored")), data=st.data())
def test_both_forms_take_the_same(batch: pa.RecordBatch, codec: str, data: st.DataObject) -> None:
    """Whatever number is changed, claims that the kernel finds right are those of plain integers."""
    header, body = _stored(batch) if codec == "stored" else message_of(batch, codec)
    layout = Layout.of(batch.schema)
    changed, nodes, buffers = bytearray(body), header.nodes.copy(), header.buffers.copy()
    length, limits = header.length, data.draw(_LIMITS)
    for what in data.draw(st.lists(st.sampled_from(("nodes", "buffers", "claim", "length")), max_size=2)):
        number, table = data.draw(_NUMBERS), nodes if what == "nodes" else buffers
        offsets = [offset for offset, size in header.buffers.tolist() if size]
        if what == "length":
            length = number
        elif what == "claim" and offsets:
            struct.pack_into("<q", changed, data.draw(st.sampled_from(offsets)), number)
        elif what != "claim" and len(table):
            table.flat[data.draw(st.integers(0, table.size - 1))] = number
    header = header._replace(length=length, nodes=nodes, buffers=buffers)
    _both_say_the_same(header, layout, bytes(changed), limits)


def _in_kernel(
    header: RecordBatchHeader, layout: Layout, body: bytes, limits: Limits = DEFAULT_LIMITS
) -> Claims | None:
    """Return the claims of a message that the kernel finds right."""
    found = by_kernel(header, layout, _aligned(body), limits)
    if found is None:
        return None
    claims, sizes = found.spans[: len(header.buffers), 0], found.spans[: len(header.buffers), 2]
    lengths = np.where(claims == STORED, sizes - PREFIX_BYTES, claims)
    framed = (claims > 0) | ((claims == 0) & (sizes > PREFIX_BYTES))
    rows = np.flatnonzero(framed).tolist(), np.flatnonzero(claims == STORED).tolist()
    return Claims(lengths.tolist(), *rows, int(lengths.sum()))


def _in_integers(
    header: RecordBatchHeader, layout: Layout, body: bytes, limits: Limits = DEFAULT_LIMITS
) -> Claims:
    """Return the claims of a message, or raise what is wrong with them."""
    return check_claims(header, layout, _aligned(body), limits)


def _aligned(body: bytes) -> Buffer:
    return wrap(np.frombuffer(body + bytes(-len(body) % 8), "<i8").copy()).slice(0, len(body))


def _both_say_the_same(
    header: RecordBatchHeader, layout: Layout, body: bytes, limits: Limits = DEFAULT_LIMITS
) -> bool:
    """Compare the claims of both forms; whether the kernel finds them right."""
    found = _in_kernel(header, layout, body, limits)
    # Readers set these two before plain integers are asked.
    nodes = header.nodes.copy()
    nodes[layout.bitmapless, 1] = 0
    nodes[layout.null_nodes, 1] = nodes[layout.null_nodes, 0]
    try:
        expected = _in_integers(header._replace(nodes=nodes), layout, body, limits)
    except BowstringError:
        assert found is None
        return False
    assert found in (None, expected)
    return found is not None


# A column of 4 numbers, one of them null, and one of text: bitmap, data, no bitmap, offsets, bytes.
_SMALL = pa.record_batch({"n": pa.array([1, None, 3, 4]), "t": ["", "ab", "c", "def"]})
_CHANGES: dict[str, tuple[str, int, int]] = {
    "a batch of a negative length": ("length", 0, -4),
    "a batch of another length than its columns": ("length", 0, 3),
    "a column of another length": ("nodes", 2, 5),
    "more nulls than rows": ("nodes", 1, 5),
    "fewer nulls than none": ("nodes", 1, -2),
    "nulls without a bitmap": ("nodes", 3, 1),
    "an offset that is odd": ("buffers", 2, 17),
    "an offset behind the body": ("buffers", 2, 1 << 40),
    "a negative offset": ("buffers", 2, -8),
    "a length that is negative": ("buffers", 3, -8),
    "a buffer that ends behind the body": ("buffers", 3, 1 << 20),
    "a buffer without room for its length": ("buffers", 3, 7),
    "a bitmap of nothing where there are nulls": ("buffers", 1, 0),
    "numbers of nothing": ("buffers", 3, 0),
    "offsets of nothing": ("buffers", 7, 8),
    "a claim that is negative": ("claim", 1, -2),
    "a claim of fewer numbers": ("claim", 1, 31),
    "a claim of fewer offsets": ("claim", 3, 19),
    "a claim of more than a node needs": ("claim", 1, 64 + (1 << 16) + 1),
    "a claim of more than anybody may": ("claim", 4, 1 << 50),
    "a claim of a bitmap that is too short": ("claim", 0, 0),
}


@needs_library
@pytest.mark.parametrize("name", _CHANGES)
def test_what_is_not_right_is_right_in_neither_form(name: str) -> None:
    """Each wrong number is refused by plain integers, and not taken by the kernel."""
    what, at, number = _CHANGES[name]
    header, stored = _stored(_SMALL)
    layout, body = Layout.of(_SMALL.schema), bytearray(stored)
    assert _both_say_the_same(header, layout, bytes(body))
    nodes, buffers = header.nodes.copy(), header.buffers.copy()
    if what == "claim":
        struct.pack_into("<q", body, int(buffers[at, 0]), number)
    elif what != "length":
        (nodes if what == "nodes" else buffers).flat[at] = number
    length = number if what == "length" else header.length
    changed = header._replace(length=length, nodes=nodes, buffers=buffers)
    assert not _both_say_the_same(changed, layout, bytes(body))
    with pytest.raises(BowstringError):
        _in_integers(changed, layout, bytes(body))


@needs_library
@pytest.mark.parametrize("columns", [1, 300])
def test_any_number_of_buffers_is_read(columns: int) -> None:
    """Batches of few and of many columns are what was written."""
    batch = pa.record_batch({f"column {index}": np.arange(50) + index for index in range(columns)})
    header, body = message_of(batch, "lz4")
    layout = Layout.of(batch.schema)
    assert _both_say_the_same(header, layout, body)
    assert unpack(header, layout, wrap(body)).to_arrow().equals(batch)


def test_stored_buffers_stay_in_the_body() -> None:
    """Of what we compress, frames get memory of their own, and what did not shrink lies where it came."""
    noise = np.random.default_rng(3).integers(0, 1 << 62, 500)
    batch = Batch.from_arrow(pa.record_batch({"zeros": np.zeros(500), "noise": noise}))
    packed = pack(batch, pa.Codec("lz4"))
    body = b"".join(bytes(piece) for piece in packed.pieces)
    header = RecordBatchHeader(500, packed.nodes, packed.buffers, (), "lz4")
    spans, regions = decompressed_body(header, batch.layout, wrap(body), DEFAULT_LIMITS)
    assert len(regions) == 2
    assert spans[:, 2].tolist() == [0, 4000, 0, 4000]


def test_a_negative_length_without_columns_is_refused() -> None:
    """Where no column contradicts it, a negative length is refused all the same."""
    nothing = np.zeros((0, 2), np.int64)
    header = RecordBatchHeader(-1, nothing, nothing, (), "lz4")
    with pytest.raises(InvalidMetadata, match="negative"):
        check_claims(header, Layout.of(pa.schema([])), wrap(b""), DEFAULT_LIMITS)


_AT_ONCE = struct.pack("<q", -1)


@needs_library
@pytest.mark.parametrize(
    ("rows", "places", "body"),
    [
        (2, [(0, 0), (4, 24)], bytes(4) + _AT_ONCE + bytes(20)),
        (20, [(0, 9), (16, 168)], _AT_ONCE + bytes(8) + _AT_ONCE + bytes(160)),
        (0, [(0, 0), (8, 4)], bytes(12)),
    ],
    ids=["a buffer that is misaligned", "a bitmap that is short, of no nulls", "a length that is cut off"],
)
def test_what_looks_right_and_is_not_is_refused(
    rows: int, places: list[tuple[int, int]], body: bytes
) -> None:
    """A column of numbers whose claims fit it is refused where they stand in the wrong place."""
    header = RecordBatchHeader(rows, np.array([[rows, 0]]), np.array(places), (), "lz4")
    layout = Layout.of(pa.schema({"n": pa.int64()}))
    assert _in_kernel(header, layout, body) is None
    with pytest.raises(BowstringError):
        _in_integers(header, layout, body)


@pytest.mark.parametrize("nulls", [0, 1])
def test_a_bitmap_without_nulls_is_left_out(nulls: int) -> None:
    """In both forms a bitmap is kept where there are nulls, and left out where it says nothing."""
    batch = pa.record_batch({"n": [0, None, 2]})
    header, body = _stored(batch)
    nodes = np.array([[3, nulls]])
    metadata = Template(Layout.of(batch.schema)).encode_batch(
        3, nodes, header.buffers, len(body), compression="lz4"
    )
    stream = batch.schema.serialize().to_pybytes() + frame(metadata, alignment=8) + body
    for form in (contextlib.nullcontext(), without_library()):
        with form, open_stream(stream) as reader:
            found = reader.read_next_batch()
        assert batch_parts(found).spans.table[:, 2].tolist() == [nulls, 24]
        assert found["n"].to_arrow().to_pylist() == [0, None if nulls else 0, 2]


@needs_library
def test_lengths_of_nothing_are_taken() -> None:
    """A length of 0 with nothing behind it is an empty buffer, and no frame."""
    header = RecordBatchHeader(0, np.array([[0, 0]]), np.array([[0, 8], [8, 8]]), (), "lz4")
    assert _both_say_the_same(header, Layout.of(pa.schema({"n": pa.int64()})), bytes(16))
