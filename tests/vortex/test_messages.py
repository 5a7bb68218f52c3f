"""Framing: messages one behind the other, whatever lies between them, up to an end that is one."""

from __future__ import annotations

import gc
import io
import struct
import weakref

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring import Limits
from bowstring.errors import (
    ClosedError,
    EndOfStream,
    InvalidBody,
    InvalidData,
    InvalidMetadata,
    LimitExceeded,
    Truncated,
    Unsupported,
)
from bowstring.ipc.flatbuf.builder import Builder, Reference, Scalar
from bowstring.ipc.flatbuf.reader import Tables
from bowstring.vortex.dtype import Kind, decode_dtype, encode_dtype, of_schema, primitive
from bowstring.vortex.message import (
    Message,
    MessageKind,
    MessageReader,
    Piece,
    decode_message,
    encode_message,
)
from tests.vortex.streams import decoded, dtype_message, messages_of, numbers, stream_of

I32 = primitive("i4")
STREAM = stream_of(I32, (numbers([1, 2, 3], "<i4"), 3), (numbers([4], "<i4"), 1))


def framed(fields: list[Scalar | Reference | None], builder: Builder) -> bytes:
    """Return a message whose table has these fields."""
    data = builder.finish(builder.table(fields))
    return struct.pack("<I", len(data)) + data


def test_a_stream_ends_where_its_source_does() -> None:
    """Between two messages; then there are no more batches, again and again."""
    with bow.vortex.open_stream(io.BytesIO(STREAM)) as stream:
        assert [batch.num_rows for batch in stream] == [3, 1]
        with pytest.raises(EndOfStream):
            stream.read_next_batch()


@given(st.integers(0, len(STREAM) - 1))
def test_a_stream_that_is_cut_off_is_an_error_and_never_shorter(size: int) -> None:
    """Wherever it is cut, but between two messages."""
    ends = [0]
    for message in messages_of(STREAM):
        ends.append(ends[-1] + len(message))
    for source in (STREAM[:size], io.BytesIO(STREAM[:size])):
        if size in ends[1:]:
            assert bow.vortex.open_stream(source).read_all().num_rows in (0, 3)
        else:
            with pytest.raises(Truncated):
                bow.vortex.open_stream(source).read_all()


def test_a_sentinel_of_the_application_ends_the_stream() -> None:
    """In the place of a length; what follows is not read."""
    data = io.BytesIO(STREAM + b"\xff\xff\xff\xffrest")
    with bow.vortex.open_stream(data, sentinel=b"\xff\xff\xff\xff") as stream:
        assert len(list(stream)) == 2
    assert data.read() == b"rest"


def test_later_versions_and_unknown_messages_are_refused_by_name() -> None:
    """V1 is no V0, and there are three kinds."""
    later = Builder()
    header = Reference(later.table([]))
    with pytest.raises(Unsupported, match="V0; found V1"):
        bow.vortex.open_stream(framed([Scalar("B", 1), Scalar("B", 3), header], later))
    unknown = Builder()
    header = Reference(unknown.table([]))
    with pytest.raises(Unsupported, match="number 9"):
        bow.vortex.open_stream(framed([None, Scalar("B", 9), header], unknown))


def test_a_stream_begins_with_its_type_and_holds_arrays_of_that_type() -> None:
    """Buffers and other types are refused; the same type again is not, as of streams one behind the other."""
    first, array, _ = messages_of(STREAM)
    with pytest.raises(InvalidMetadata, match="begins with its type"):
        bow.vortex.open_stream(array)
    assert bow.vortex.open_stream(STREAM + STREAM).read_all().num_rows == 8
    for other in (encode_message(Message(MessageKind.BUFFER, 1)) + b"a", dtype_message(primitive("u1"))):
        with pytest.raises(InvalidMetadata, match="arrays of one type"):
            bow.vortex.open_stream(first + array + other).read_all()


def shared_type(levels: int, count: int, name: str) -> bytes:
    """Return a stream without arrays whose type refers `count` times to one name and one type, `levels` deep."""
    builder = Builder()
    table = Reference(builder.table([Scalar("B", I32.ptype)]))
    type_ = builder.table([Scalar("B", Kind.PRIMITIVE), table])
    named = builder.string(name)
    for count_here in (count, *[1] * levels):
        types = Reference(builder.references([type_] * count_here))
        names = Reference(builder.references([named] * count_here))
        table = Reference(builder.table([names, types, Scalar("B", 0)]))
        type_ = builder.table([Scalar("B", Kind.STRUCT), table])
    data = builder.finish(type_)
    return encode_message(Message(MessageKind.DTYPE, len(data))) + data


@pytest.mark.parametrize(
    ("levels", "count", "name", "is_kept"),
    [
        (0, 3, "a", True),
        (3, 200, "a", True),
        (0, 200, "a name", True),
        (55, 900, "a", False),
    ],
    ids=["few", "nested", "some", "deep"],
)
def test_a_type_that_unfolds_is_not_kept(levels: int, count: int, name: str, *, is_kept: bool) -> None:
    """A usual type is decoded once; of one whose references share what they refer to nothing stays."""
    data = shared_type(levels, count, name)
    assert len(data) < 1 << 14
    first = bow.vortex.open_stream(data)
    assert len(first.dtype.children) == (count if not levels else 1)
    known = weakref.ref(first.schema)
    if is_kept:
        assert bow.vortex.open_stream(data).schema is first.schema
    del first
    gc.collect()
    assert (known() is not None) == is_kept


class Watched(np.ndarray):
    """Memory whose end can be seen."""


def tables_alive() -> int:
    return sum(isinstance(each, Tables) for each in gc.get_objects())


@pytest.mark.parametrize("compress", [False, True])
def test_what_was_written_is_let_go_of_at_once(*, compress: bool) -> None:
    """Without the garbage collector, as soon as the writer is done; so is the header of what was read."""
    gc.collect()
    gc.disable()
    try:
        memory = np.arange(5000).view(Watched)
        array = pa.Array.from_buffers(pa.int64(), len(memory), [None, pa.py_buffer(memory)])
        known = weakref.ref(memory)
        sink = io.BytesIO()
        with bow.vortex.VortexWriter(sink, pa.schema({"a": pa.int64()}), compress=compress) as writer:
            writer.write_table(pa.table({"a": array}))
        del memory, array, writer
        assert known() is None
        with bow.vortex.open_stream(sink.getvalue()) as stream:
            before = tables_alive()
            assert [batch.to_arrow().num_rows for batch in stream] == [5000]
            assert tables_alive() == before
    finally:
        gc.enable()


def test_buffer_messages_are_read_message_by_message() -> None:
    """With the alignment that they ask for."""
    data = encode_message(Message(MessageKind.BUFFER, 3, alignment=256)) + b"abc"
    found = MessageReader(data).read()
    assert found is not None
    assert (found[0].alignment, bytes(found[1].to_host())) == (256, b"abc")


def test_an_alignment_of_more_than_64_kib_is_refused() -> None:
    """The exponent is 16 at most."""
    most = encode_message(Message(MessageKind.BUFFER, 0, alignment=1 << 16))
    assert decode_message(most[4:]).alignment == 1 << 16
    with pytest.raises(InvalidMetadata, match=r"2\^17"):
        decode_message(encode_message(Message(MessageKind.BUFFER, 0, alignment=1 << 17))[4:])


def test_headers_and_bodies_are_bounded_before_they_are_read() -> None:
    """What a length claims is compared with `Limits`."""
    with pytest.raises(LimitExceeded, match="header"):
        bow.vortex.open_stream(io.BytesIO(b"\xff\xff\xff\x7f"))
    huge = encode_message(Message(MessageKind.DTYPE, 1 << 50))
    with pytest.raises(LimitExceeded, match="body"):
        bow.vortex.open_stream(io.BytesIO(huge))
    with pytest.raises(LimitExceeded, match="body"):
        bow.vortex.open_stream(STREAM, limits=Limits(message_bytes=4))


def test_an_unknown_encoding_is_named_and_the_rest_is_read() -> None:
    """The batch is there, its tree too; decoding it raises, and the next batch is read."""
    data = stream_of(I32, (Piece("acme.secret"), 2), (numbers([4], "<i4"), 1))
    with bow.vortex.open_stream(data) as stream:
        first, second = stream
    assert first.encoding("c").id == "acme.secret"
    with pytest.raises(Unsupported, match=r"'acme\.secret'"):
        first.decode()
    assert second["c"].values.tolist() == [4]


def test_batches_outlive_their_stream() -> None:
    """A closed stream gives no more, and what it gave stays."""
    stream = bow.vortex.open_stream(bytes(STREAM))
    batch = stream.read_next_batch()
    stream.close()
    with pytest.raises(ClosedError):
        stream.read_next_batch()
    assert batch["c"].values.tolist() == [1, 2, 3]


def with_stats(values: bytes, **stats: Scalar | bytes) -> bytes:
    """Return a stream of one array of int32 with statistics, by the names of the format's fields."""
    names = (
        "min",
        "min_precision",
        "max",
        "max_precision",
        "sum",
        "is_sorted",
        "is_strict_sorted",
        "is_constant",
    )
    builder = Builder()
    fields: list[Scalar | Reference | None] = []
    for name in names:
        found = stats.get(name)
        fields.append(Reference(builder.elements(found, 1, 1)) if isinstance(found, bytes) else found)
    hints = Reference(builder.table(fields))
    own = Reference(builder.vector("H", [0]))
    node = Reference(builder.table([Scalar("H", 0), None, None, own, hints]))
    buffers = Reference(builder.structs("HBBI", [(0, 2, 0, len(values))], 4))
    array = builder.finish(builder.table([node, buffers]))
    body = values + array + struct.pack("<I", len(array))
    header = Message(MessageKind.ARRAY, len(body), len(values) // 4, ("vortex.primitive",))
    return dtype_message(I32) + encode_message(header) + body


def test_only_exact_statistics_are_shown_and_no_value_depends_on_them() -> None:
    """Not even where they are wrong. They can be asked for again and again."""
    values = np.array([5, 1, 9], "<i4").tobytes()
    exact, inexact = Scalar("B", 1), Scalar("B", 0)
    data = with_stats(
        values,
        min=b"\x18\x0a",
        min_precision=exact,
        max=b"\x18\x02",
        max_precision=inexact,
        sum=b"\x18\x1e",
        is_sorted=Scalar("B", 1),
        is_constant=Scalar("B", 1),
    )
    [batch] = bow.vortex.open_stream(data)
    for _ in range(1000):
        found = batch.encoding("c").stats
        assert found == {"min": b"\x18\x0a", "sum": b"\x18\x1e", "is_sorted": True, "is_constant": True}
    assert batch["c"].values.tolist() == [5, 1, 9]
    without = with_stats(values, max=b"\x18\x02")
    assert bow.vortex.open_stream(without).read_next_batch().encoding("c").stats == {}


def test_statistics_that_are_malformed_leave_values_readable() -> None:
    """Who asks for them gets an error, and decoding needs none of them."""
    data = bytearray(with_stats(np.array([7], "<i4").tobytes(), sum=b"\x18\x1e"))
    at = data.rindex(struct.pack("<I", 2) + b"\x18\x1e")
    data[at : at + 4] = b"\xff\xff\xff\x7f"
    [batch] = bow.vortex.open_stream(bytes(data))
    with pytest.raises(InvalidMetadata):
        batch.encoding("c")
    assert batch["c"].values.tolist() == [7]


def compressed(data: bytes, piece: Piece, rows: int, flag: int = 1) -> bytes:
    """Return a stream of an array whose only buffer is stored as given, with a compression by its number."""
    stream = bytearray(stream_of(I32, (Piece(piece.encoding, piece.metadata, ((data, 4),)), rows)))
    entry = struct.pack("<HBBI", 0, 2, 0, len(data))
    at = stream.rindex(entry)
    stream[at + 3] = flag
    return bytes(stream)


def test_buffers_compressed_by_lz4_frames_are_read() -> None:
    """Of the size that the rule of the encoding says, and no other."""
    values = np.arange(1000, dtype="<i4")
    frame = pa.Codec("lz4").compress(values.tobytes()).to_pybytes()
    piece = Piece("vortex.primitive")
    found = bow.vortex.open_stream(compressed(frame, piece, 1000)).read_all()
    assert found.column(0).to_pylist() == values.tolist()
    for wrong in (999, 1001):
        with pytest.raises(InvalidBody):
            bow.vortex.open_stream(compressed(frame, piece, wrong)).read_all()
    with pytest.raises(InvalidBody, match="LZ4"):
        bow.vortex.open_stream(compressed(frame[:-9], piece, 1000)).read_all()
    with pytest.raises(Unsupported, match="number 2"):
        bow.vortex.open_stream(compressed(frame, piece, 1000, flag=2)).read_all()


def test_a_frame_that_grows_beyond_the_limits_is_refused() -> None:
    """Before it is decompressed, as far as the rule says its size, and else while it is."""
    frame = pa.Codec("lz4").compress(bytes(1 << 20)).to_pybytes()
    limits = Limits(decompression_floor=1 << 16, decompression_ratio=2.0)
    data = compressed(frame, Piece("vortex.primitive"), 1 << 18)
    with pytest.raises((InvalidData, LimitExceeded)):
        bow.vortex.open_stream(data, limits=limits).read_all()


def test_a_constant_of_too_many_rows_is_refused_by_limits() -> None:
    """Some bytes may not claim gigabytes; and may where the limit is raised."""
    piece = Piece("vortex.constant", buffers=((b"\x18\x02", 1),))
    with pytest.raises(LimitExceeded, match="decompression_ratio"):
        bow.vortex.open_stream(stream_of(I32, (piece, 1 << 28))).read_all()
    assert decoded(I32, piece, 3) == [1, 1, 1]


@pytest.mark.parametrize("kind", [Kind.VARIANT, Kind.UNION, Kind.MAP])
def test_types_that_are_not_known_are_refused_by_name(kind: Kind) -> None:
    """They are previews of Vortex."""
    builder = Builder()
    inner = Reference(builder.table([]))
    data = builder.finish(builder.table([Scalar("B", kind), inner]))
    with pytest.raises(Unsupported, match=kind.name.capitalize()):
        decode_dtype(data)


def test_a_type_that_is_no_struct_is_one_column() -> None:
    """So is a struct that may be null."""
    inner = of_schema(pa.schema({"a": pa.int8()}))
    assert bow.vortex.open_stream(dtype_message(inner)).schema.names == ["a"]
    schema = bow.vortex.open_stream(dtype_message(inner.as_nullable(True))).schema
    assert schema.names == ["c"]
    assert pa.types.is_struct(schema.field("c").type)


def test_types_nest_as_deep_as_the_limit() -> None:
    """And no deeper."""
    type_ = pa.int8()
    for _ in range(70):
        type_ = pa.list_(type_)
    data = encode_dtype(of_schema(pa.schema({"a": type_})))
    with pytest.raises(LimitExceeded):
        decode_dtype(data)
    assert decode_dtype(data, Limits(depth=80)).names == ("a",)
