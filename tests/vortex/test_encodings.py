"""Every encoding follows its rule: arrays encoded here, by the tables of the format, decode to their values."""

from __future__ import annotations

import decimal
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.errors import BowstringError, InvalidBody, InvalidMetadata
from bowstring.vortex.dtype import DType, Kind, encode_dtype, of_arrow, of_schema, primitive
from bowstring.vortex.message import Piece
from bowstring.vortex.protobuf import BYTES, VARINT, encode, encode_scalar
from tests.vortex.streams import decoded, numbers, stream_of

ORDER = [0, 4, 2, 6, 1, 5, 3, 7]
UTF8 = DType(Kind.UTF8)
TYPES = {1: 0, 2: 1, 4: 2, 8: 3}


def metadata(**fields: int | bytes) -> bytes:
    """Return a message; `f3=7` is its field 3."""
    items = [(int(name[1:]), value) for name, value in fields.items()]
    return encode([(number, BYTES if isinstance(value, bytes) else VARINT, value) for number, value in items])


def bits(flags: Any) -> Piece:
    """Return Booleans."""
    return Piece("vortex.bool", buffers=((np.packbits(np.array(flags, bool), bitorder="little"), 1),))


def packed_bytes(values: Any, width: int) -> bytes:
    """Pack unsigned integers as FastLanes does, one bit after the other."""
    size = 8 * values.itemsize
    lanes = 1024 // size
    padded = np.zeros(-(-len(values) // 1024) * 1024, values.dtype)
    padded[: len(values)] = values
    out = bytearray()
    for chunk in padded.reshape(-1, 1024):
        words = np.zeros(width * lanes, object)
        for row in range(size):
            for lane in range(lanes):
                value = int(chunk[ORDER[row // 8] * 16 + (row % 8) * 128 + lane]) & ((1 << width) - 1)
                word, shift = divmod(row * width, size)
                if width:
                    words[word * lanes + lane] |= (value << shift) & ((1 << size) - 1)
                if shift + width > size:
                    words[(word + 1) * lanes + lane] |= value >> (size - shift)
        out += b"".join(int(word).to_bytes(values.itemsize, "little") for word in words)
    return bytes(out)


def packed(values: Any, width: int, *, skipped: int = 0, patches: Any = None, valid: Any = None) -> Piece:
    """Return bit-packed integers, of which the first `skipped` come before the first row."""
    children = []
    fields: dict[str, int | bytes] = {"f1": width, "f2": skipped}
    if patches is not None:
        at, found = patches
        fields["f3"] = metadata(f1=len(at), f2=5, f3=1)
        children = [numbers(np.array(at) + 5, "<u2"), numbers(found, values.dtype)]
    children += [] if valid is None else [bits(valid)]
    return Piece(
        "fastlanes.bitpacked",
        metadata(**fields),
        ((packed_bytes(values, width), values.itemsize),),
        tuple(children),
    )


def framed(piece: Piece, reference: int, dtype: DType) -> Piece:
    """Return integers less a reference."""
    return Piece("fastlanes.for", encode_scalar(reference, dtype), children=(piece,))


@settings(max_examples=20, deadline=None)
@given(
    size=st.sampled_from([1, 2, 4, 8]),
    signed=st.booleans(),
    rows=st.integers(1, 2100),
    seed=st.integers(0, 1 << 32),
    data=st.data(),
)
def test_bit_packing_of_every_width(
    size: int, signed: bool, rows: int, seed: int, data: st.DataObject
) -> None:
    """With integers before the first row, patches and nulls; under a reference and zigzag, in any order."""
    width = data.draw(st.integers(0, 8 * size))
    skipped = data.draw(st.integers(0, 1023))
    rng = np.random.default_rng(seed)
    values = (
        rng.integers(0, 1 << width, skipped + rows, dtype=np.uint64, endpoint=False)
        if width < 64
        else (rng.integers(0, (1 << 64) - 1, skipped + rows, dtype=np.uint64, endpoint=True))
    )
    values = values.astype(f"<u{size}")
    at = sorted({int(each) for each in rng.integers(0, rows, 3)})
    patch = rng.integers(0, 1 << (8 * size - 1), len(at), dtype=np.uint64).astype(f"<u{size}")
    valid = rng.random(rows) < 0.7
    expected: Any = values[skipped:].copy()
    expected[at] = patch
    letter = "i" if signed else "u"
    dtype = primitive(f"{letter}{size}", nullable=True)
    piece = packed(values, width, skipped=skipped, patches=(at, patch), valid=valid)
    for step in data.draw(st.lists(st.sampled_from(["for", "zigzag"]), max_size=3)):
        if step == "for":
            expected = expected + np.array(77, expected.dtype)
            piece = framed(piece, 77, dtype)
        elif signed:
            odd: Any = np.negative((expected & 1).astype(np.int64)).astype(expected.dtype)
            expected = (expected >> 1) ^ odd
            piece = Piece("vortex.zigzag", children=(piece,))
    found = [
        value if ok else None for value, ok in zip(expected.view(dtype.numpy).tolist(), valid, strict=True)
    ]
    assert decoded(dtype, piece, rows) == found


@pytest.mark.parametrize("offset", [0, 300])
def test_references_of_each_1024_rows(offset: int) -> None:
    """Counted from the first row, also where packed integers come before it."""
    rows = 2500
    values = np.arange(offset + rows, dtype="<u4") % 100
    piece = Piece(
        "fastlanes.for.v2", children=(packed(values, 7, skipped=offset), numbers([1000, 2000, 3000], "<u4"))
    )
    expected = values[offset:] + np.array([1000, 2000, 3000], "<u4")[np.arange(rows) // 1024]
    assert decoded(primitive("u4"), piece, rows) == expected.tolist()
    plain = Piece(
        "fastlanes.for.v2", children=(numbers(values[offset:], "<u4"), numbers([1000, 2000, 3000], "<u4"))
    )
    assert decoded(primitive("u4"), plain, rows) == expected.tolist()


@pytest.mark.parametrize("size", [4, 8])
def test_alp_is_exact_to_the_bit(size: int) -> None:
    """Multiplied in the precision of the column, also above a frame of reference with patches, and patched."""
    real = np.dtype(f"<f{size}")
    values = (np.arange(1500) * 7 % 500).astype(f"<u{size}")
    inner = packed(values, 9, patches=([3, 9], [100_000, 77]))
    integers = values.astype(np.int64)
    integers[[3, 9]] = [100_000, 77]
    integers -= 250
    signed = primitive(f"i{size}")
    special = np.array([np.nan, -0.0], real)
    piece = Piece(
        "vortex.alp",
        metadata(f1=5, f2=3, f3=metadata(f1=2, f2=0, f3=1)),
        children=(framed(inner, -250, signed), numbers([0, 1499], "<u2"), numbers(special, real)),
    )
    expected = integers.astype(real) * real.type("1e3") * real.type("1e-5")
    expected[[0, 1499]] = special
    table = bow.vortex.open_stream(stream_of(primitive(f"f{size}"), (piece, 1500))).read_all()
    found = table.column(0).to_numpy()
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("size", [4, 8])
def test_alp_for_real_doubles(size: int) -> None:
    """Left parts by code, others by patches; the codes of nulls may be anything."""
    right = 20 if size == 4 else 50
    lefts = [0x3F1, 0x40A, 0x3FF]
    codes = np.array([0, 1, 2, 9, 0], "<u2")
    rights = np.array([1, 2, 3, 4, 5], f"<u{size}")
    valid = [True, True, True, False, True]
    piece = Piece(
        "vortex.alprd",
        metadata(f1=right, f2=3, f4=1, f5=metadata(f1=1, f2=0, f3=0))
        + encode([(3, BYTES, b"\xf1\x07\x8a\x08\xff\x07")]),
        children=(
            Piece("vortex.primitive", buffers=((codes, 2),), children=(bits(valid),)),
            numbers(rights, f"<u{size}"),
            numbers([4], "u1"),
            numbers([0x123], "<u2"),
        ),
    )
    words = [lefts[0] << right | 1, lefts[1] << right | 2, lefts[2] << right | 3, 0, 0x123 << right | 5]
    expected: list[float | None] = np.array(words, f"<u{size}").view(f"<f{size}").tolist()
    expected[3] = None
    assert decoded(primitive(f"f{size}", nullable=True), piece, 5) == expected


def test_runs_of_text_with_rows_before_the_first() -> None:
    """Of values that may be null, too."""
    values = Piece(
        "vortex.varbin",
        metadata(f1=6),
        ((b"onetwothree and a half", 1),),
        (numbers([0, 3, 6, 22], "<i4"), bits([True, False, True])),
    )
    piece = Piece("vortex.runend", metadata(f1=1, f2=3, f3=2), children=(numbers([4, 5, 9], "<u2"), values))
    expected = ["one", "one", None, *["three and a half"] * 3]
    assert decoded(UTF8.as_nullable(True), piece, 6) == expected


def test_run_lengths_in_blocks_with_nulls() -> None:
    """Indices of nulls may be anything, and one behind the values of its block is the last."""
    indices = np.zeros(2048, "<u2")
    indices[:4] = [0, 1, 9, 60_000]
    valid = np.ones(2048, bool)
    valid[3] = False
    children = (
        numbers([10, 20, 30], "<i4"),
        Piece("vortex.primitive", buffers=((indices, 2),), children=(bits(valid),)),
        numbers([7, 9], "u1"),
    )
    piece = Piece("fastlanes.rle", metadata(f1=3, f2=2048, f3=1, f4=2, f5=0, f6=1), children=children)
    found = decoded(primitive("i4", nullable=True), piece, 1500)
    assert found[:4] == [20, 20, None, 10]
    assert found[1022:1025] == [10, 30, 30]


@pytest.mark.parametrize("fill", [None, "most of it, by far"])
def test_sparse_text(fill: str | None) -> None:
    """Patches of text, some of them null, into one text or nulls."""
    values = Piece(
        "vortex.varbin", metadata(f1=6), ((b"ab", 1),), (numbers([0, 1, 1, 2], "<i4"), bits([1, 0, 1]))
    )
    scalar = encode_scalar(None if fill is None else fill.encode(), UTF8)
    piece = Piece(
        "vortex.sparse",
        encode([(1, BYTES, metadata(f1=3, f2=10, f3=0))]),
        ((scalar, 1),),
        (numbers([10, 12, 14], "u1"), values),
    )
    assert decoded(UTF8.as_nullable(True), piece, 5) == ["a", fill, None, fill, "b"]


@pytest.mark.parametrize("fill", [None, 7])
def test_sparse_numbers(fill: int | None) -> None:
    """Null or not, in patches and around them."""
    dtype = primitive("i8", nullable=True)
    values = Piece("vortex.primitive", buffers=((np.array([1, 2], "<i8"), 8),), children=(bits([1, 0]),))
    piece = Piece(
        "vortex.sparse",
        encode([(1, BYTES, metadata(f1=2, f2=0, f3=0))]),
        ((encode_scalar(fill, dtype), 1),),
        (numbers([1, 2], "u1"), values),
    )
    assert decoded(dtype, piece, 4) == [fill, 1, None, fill]
    assert decoded(dtype, piece._replace(children=(numbers([0, 0], "u1"), values)), 1) == [None]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.null(), None),
        (pa.bool_(), True),
        (pa.int8(), -3),
        (pa.uint64(), (1 << 64) - 1),
        (pa.float16(), 1.5),
        (pa.float64(), -0.25),
        (pa.decimal128(9, 2), decimal.Decimal("-1.25")),
        (pa.decimal256(60, 0), decimal.Decimal(10**50)),
        (pa.string(), "a text that is longer than a view holds"),
        (pa.binary(), b"\x00\xff"),
        (pa.list_(pa.int8()), [1, None, 3]),
        (pa.list_(pa.int8(), 2), [1, 2]),
        (pa.struct({"a": pa.int8(), "b": pa.list_(pa.string())}), {"a": 1, "b": ["x", None]}),
        (
            pa.list_(pa.list_(pa.struct({"a": pa.string()}))),
            [[], [{"a": "long enough to be elsewhere"}, None]],
        ),
    ],
)
@pytest.mark.parametrize("is_null", [False, True])
def test_constants_of_every_type(type_: pa.DataType, value: Any, is_null: bool) -> None:
    """One value or null, for no row, one and some."""
    dtype = of_arrow(pa.field("a", type_))

    def scalar(value: Any, dtype: DType) -> Any:
        if isinstance(value, decimal.Decimal):
            return int(value.scaleb(dtype.scale, decimal.Context(prec=80)))
        if isinstance(value, float):
            return int.from_bytes(struct.pack("<e" if dtype.ptype == 8 else "<d", value), "little")
        if isinstance(value, dict):
            return [
                scalar(value[name], inner) for name, inner in zip(dtype.names, dtype.children, strict=True)
            ]
        if isinstance(value, list):
            return [scalar(each, dtype.children[0]) for each in value]
        return value.encode() if isinstance(value, str) else value

    expected = None if is_null else value
    piece = Piece("vortex.constant", buffers=((encode_scalar(scalar(expected, dtype), dtype), 1),))
    for rows in (0, 1, 5):
        assert decoded(dtype, piece, rows) == [expected] * rows


def test_dictionaries_of_booleans_lists_and_structs() -> None:
    """Codes choose rows of anything; codes of nulls may be anything."""
    codes = Piece(
        "vortex.primitive", buffers=((np.array([1, 200, 0, 1], "u1"), 1),), children=(bits([1, 0, 1, 1]),)
    )
    structs = Piece("vortex.struct", children=(numbers([5, 6], "<i2"), bits([True, False])))
    lists = Piece(
        "vortex.list", metadata(f1=3, f2=6), children=(numbers([1, 2, 3], "<i2"), numbers([0, 1, 3], "<i4"))
    )
    fixed = Piece("vortex.fixed_size_list", children=(numbers([1, 2, 3, 4], "<i2"),))
    schema = pa.schema([pa.field("a", pa.int16(), False), pa.field("b", pa.bool_(), False)])
    a_struct = of_schema(schema).as_nullable(True)
    element = (primitive("i2"),)
    for dtype, values, (first, second) in (
        (DType(Kind.BOOL, True), bits([True, False]), (True, False)),
        (a_struct, structs, ({"a": 5, "b": True}, {"a": 6, "b": False})),
        (DType(Kind.LIST, True, children=element), lists, ([1], [2, 3])),
        (DType(Kind.FIXED_SIZE_LIST, True, children=element, size=2), fixed, ([1, 2], [3, 4])),
    ):
        piece = Piece("vortex.dict", metadata(f1=2, f2=0), children=(codes, values))
        assert decoded(dtype, piece, 4) == [second, None, first, second]
        wrong = piece._replace(children=(numbers([1, 2], "u1"), values))
        with pytest.raises(InvalidBody):
            decoded(dtype, wrong, 2)


def test_chunks_of_structs_and_text() -> None:
    """One behind the other; a column of them is decoded alone."""
    text = [
        Piece("vortex.varbin", metadata(f1=6), ((data, 1),), (numbers([0, len(data)], "<i4"),))
        for data in (b"short", b"a text of some length", b"another text of some length")
    ]
    structs = tuple(
        Piece("vortex.struct", children=(numbers([at], "<i4"), each)) for at, each in enumerate(text)
    )
    piece = Piece("vortex.chunked", children=(numbers([0, 1, 2, 3], "<u8"), *structs))
    schema = pa.schema([pa.field("a", pa.int32(), False), pa.field("b", pa.string_view(), False)])
    [batch] = bow.vortex.open_stream(stream_of(of_schema(schema), (piece, 3)))
    expected = ["short", "a text of some length", "another text of some length"]
    assert batch["b"].to_arrow().to_pylist() == expected
    assert batch.to_arrow().to_pydict() == {"a": [0, 1, 2], "b": expected}
    wrong = piece._replace(children=(numbers([0, 2, 1, 3], "<u8"), *structs))
    with pytest.raises(InvalidBody, match="chunks"):
        decoded(of_schema(schema), wrong, 3)


def test_chunks_of_lists_with_elements_between_them() -> None:
    """Lists that do not begin with their first element, or end before the last."""

    def lists(offsets: list[int]) -> Piece:
        children = numbers([1, 2, 3, 4], "u1"), numbers(offsets, "<i4")
        return Piece("vortex.list", metadata(f1=4, f2=6), children=children)

    piece = Piece("vortex.chunked", children=(numbers([0, 2, 3], "<u8"), lists([1, 1, 3]), lists([0, 2])))
    assert decoded(DType(Kind.LIST, children=(primitive("u1"),)), piece, 3) == [[], [2, 3], [1, 2]]


def test_fsst_as_older_writers_had_it() -> None:
    """Codes as a child of text, with the validity there."""
    symbols = b"abc\0\0\0\0\0" + "wörld".encode() + bytes(2)
    codes = Piece(
        "vortex.varbin",
        metadata(f1=6),
        ((b"\x00\xff!\x01", 1),),
        (numbers([0, 3, 3, 4], "<i4"), bits([True, False, True])),
    )
    piece = Piece(
        "vortex.fsst",
        metadata(f1=6),
        ((symbols, 1), (b"\x03\x06", 1)),
        (codes, numbers([4, 0, 6], "<i4")),
    )
    assert decoded(UTF8.as_nullable(True), piece, 3) == ["abc!", None, "wörld"]


def test_decimals_in_several_parts() -> None:
    """The most significant is signed, the others are windows of 64 bits."""
    values = [-1, 5, -(1 << 100), (1 << 120) + 3]
    low = numbers([each & ((1 << 64) - 1) for each in values], "<u8")
    high = numbers([each >> 64 for each in values], "<i8")
    piece = Piece("vortex.decimal_byte_parts.v2", metadata(f1=7, f2=3), children=(high, low))
    for precision in (38, 50):
        dtype = DType(Kind.DECIMAL, precision=precision, scale=0)
        assert [int(each) for each in decoded(dtype, piece, 4)] == values


@pytest.mark.parametrize("width", range(6))
def test_decimals_of_every_width(width: int) -> None:
    """Narrower or wider than Arrow has them; what does not fit is an error."""
    size = 1 << width
    values = [-3, 0, 100]
    data = b"".join(each.to_bytes(size, "little", signed=True) for each in values)
    piece = Piece("vortex.decimal", metadata(f1=width), ((data, size),))
    for precision in (20, 50):
        dtype = DType(Kind.DECIMAL, precision=precision, scale=1)
        assert [int(each * 10) for each in decoded(dtype, piece, 3)] == values
    if size == 32:
        huge = (1 << 200).to_bytes(32, "little")
        with pytest.raises(InvalidBody, match="digits"):
            decoded(
                DType(Kind.DECIMAL, precision=20), Piece("vortex.decimal", metadata(f1=5), ((huge, 32),)), 1
            )


def test_sequences_wrap_and_step_down() -> None:
    """The step of unsigned ones may be stored as a signed integer."""
    down = encode([(3, VARINT, 5)])  # sint64 -3
    piece = Piece("vortex.sequence", metadata(f1=encode_scalar(4, primitive("u1")), f2=down))
    assert decoded(primitive("u1"), piece, 3) == [4, 1, 254]


def test_differences_with_a_last_chunk_that_is_not_whole() -> None:
    """Older writers keep it in plain order, with one value that it begins with."""
    piece = Piece(
        "fastlanes.delta",
        metadata(f1=1024 + 3, f2=1022),
        children=(numbers([*[0] * 32, 100], "<u4"), numbers([*[0] * 1024, 1, 2, 3], "<u4")),
    )
    assert decoded(primitive("u4"), piece, 5) == [0, 0, 101, 103, 106]


def test_padding_between_buffers_is_skipped() -> None:
    """As the table of buffers says it."""
    rows = 3
    piece = Piece(
        "vortex.primitive", buffers=((np.array([1, 2, 3], "<i4"), 4),), children=(bits([True, False, True]),)
    )
    [batch] = bow.vortex.open_stream(stream_of(primitive("i4", nullable=True), (piece, rows)))
    assert [each.offset for each in batch._body().stored] == [0, 64]
    assert batch["c"].to_arrow().to_pylist() == [1, None, 3]


def test_what_points_outside_is_an_error() -> None:
    """Patches, codes, ends of runs, offsets, lengths: of each one that is out of range."""
    i32, u32 = primitive("i4"), primitive("u4")
    text = Piece("vortex.varbin", metadata(f1=6), ((b"abc", 1),), (numbers([0, 2, 9], "<i4"),))
    cases: list[tuple[DType, Piece, int]] = [
        (u32, packed(np.zeros(10, "<u4"), 3, patches=([10], [1])), 10),
        (u32, packed(np.zeros(10, "<u4"), 3), 2000),
        (u32, packed(np.zeros(10, "<u4"), 3)._replace(metadata=metadata(f1=40)), 10),
        (
            i32,
            Piece("vortex.dict", metadata(f1=2, f2=0), (), (numbers([2], "u1"), numbers([1, 2], "<i4"))),
            1,
        ),
        (i32, Piece("vortex.runend", metadata(f1=0, f2=1), (), (numbers([2], "u1"), numbers([1], "<i4"))), 3),
        (
            i32,
            Piece("vortex.runend", metadata(f1=0, f2=2), (), (numbers([3, 2], "u1"), numbers([1, 2], "<i4"))),
            5,
        ),
        (UTF8, text, 2),
        (i32, numbers([1], "<i4"), 2),
        (i32, Piece("vortex.bool"), 1),
        (i32, Piece("fastlanes.rle"), 1),
        (i32, Piece("fastlanes.for", b"\x18\x02"), 1),
        (i32, Piece("vortex.alp"), 1),
        (primitive("f8"), Piece("vortex.alp", metadata(f1=99), (), (numbers([1], "<i8"),)), 1),
        (
            DType(Kind.LIST, children=(i32,)),
            Piece("vortex.list", metadata(f1=1, f2=0), (), (numbers([1], "<i4"), numbers([0, 2], "u1"))),
            1,
        ),
        (
            DType(Kind.LIST, children=(i32,)),
            Piece("vortex.list", metadata(f1=1, f2=0), (), (numbers([1], "<i4"), numbers([1, 0], "u1"))),
            1,
        ),
        (i32, Piece("vortex.chunked"), 1),
        (i32, Piece("vortex.sparse"), 1),
    ]
    for dtype, piece, rows in cases:
        with pytest.raises((InvalidBody, InvalidMetadata)):
            decoded(dtype, piece, rows)


def test_nodes_nest_as_deep_as_the_limit() -> None:
    """And no deeper, whatever the encodings are."""
    piece = numbers([1], "<i4")
    for _ in range(100):
        piece = framed(piece, 1, primitive("i4"))
    with pytest.raises(BowstringError, match="nest"):
        decoded(primitive("i4"), piece, 1)


def test_a_type_that_has_no_bytes_is_an_error() -> None:
    """An empty flatbuffer, and one of zeros."""
    for data in (b"", bytes(64)):
        from bowstring.vortex.dtype import decode_dtype

        with pytest.raises(BowstringError):
            decode_dtype(data)
    assert encode_dtype(UTF8)
