"""Bodies of pages that claim more than their headers, or have more rows than the footer, are an error."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring as bow
from bowstring.errors import InvalidData, InvalidMetadata, LimitExceeded
from bowstring.parquet.file import OpenFile
from tests.parquet.footers import CODECS, MAGIC, SchemaElement, file, framed, page, patched, rechunked
from tests.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Field,
    encode_integer,
    encode_list,
    struct,
    structs,
)

NUMBERS_OF, LENGTHS_OF, PREFIXES_OF = 5, 6, 7
MANY = (1 << 31) - 128
FIXED = 7
DELTAS = ["DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def integers(
    count: int, first: int, *, block: int = 128, miniblocks: int = 1, rest: bytes = b"\0\0"
) -> bytes:
    """Return integers in DELTA_BINARY_PACKED that are all the first one, where the rest is a block of no bits."""
    return varint(block) + varint(miniblocks) + varint(count) + varint(2 * first) + rest


CLAIMS: dict[str, tuple[int, bytes]] = {
    "lengths": (LENGTHS_OF, integers(MANY, 0, rest=b"")),
    "lengths of no bits": (LENGTHS_OF, integers(MANY, 0, block=1 << 31)),
    "prefixes": (PREFIXES_OF, integers(MANY, 0, rest=b"")),
    "suffixes": (PREFIXES_OF, integers(6, 0) + integers(MANY, 0, block=1 << 31)),
    "long prefixes": (PREFIXES_OF, integers(6, MANY // 2) + integers(6, 1) + b"abcdef"),
    "miniblocks of lengths": (
        LENGTHS_OF,
        integers(6, 0, block=1 << 31, miniblocks=1 << 26, rest=b""),
    ),
    "miniblocks of suffixes": (
        PREFIXES_OF,
        integers(6, 0) + integers(6, 0, block=1 << 31, miniblocks=1 << 26, rest=b""),
    ),
    "miniblocks": (NUMBERS_OF, integers(6, 0, block=1 << 31, miniblocks=1 << 26, rest=b"")),
}


def claiming(claim: str, codec: str | None = None, **claims: Any) -> bytes:
    """Return a file of six values, the body of whose page claims something else."""
    encoding, body = CLAIMS[claim]
    type_ = 2 if encoding == NUMBERS_OF else 6
    return file([page(body, 6, codec, encoding=encoding)], 6, 6, codec, type=type_, **claims)


def read(data: bytes, columns: list[str] | None = None, **limits: Any) -> pa.Table:
    limited = bow.DEFAULT_LIMITS.replace(**limits)
    with bow.parquet.read(data, columns=columns, limits=limited) as stream:
        return stream.read_all()


@pytest.mark.parametrize("codec", CODECS)
def test_bodies_that_claim_more_than_their_headers(codec: str | None) -> None:
    """Numbers of lengths, lengths of prefixes, and miniblocks that a page does not have are refused by column."""
    for claim in CLAIMS:
        with pytest.raises(InvalidMetadata, match=r"(?s)claims more than it has.*row group 0, column a"):
            read(claiming(claim, codec))
    # As many as there are, and more miniblocks than most writers make.
    body = integers(6, 1) + b"abcdef"
    data = file([page(body, 6, codec, encoding=LENGTHS_OF)], 6, 6, codec, type=6)
    assert read(data)["a"].to_pylist() == [bytes([each]) for each in b"abcdef"]
    wide = integers(6, 7, block=128 * 1024, miniblocks=1024, rest=bytes(1025))
    data = file([page(wide, 6, codec, encoding=NUMBERS_OF)], 6, 6, codec)
    assert read(data)["a"].to_pylist() == [7] * 6


@pytest.mark.parametrize("is_framed", [True, False])
def test_bodies_under_hadoops_lz4(is_framed: bool) -> None:
    """Blocks with their sizes before them, and those without that C++ wrote, are looked at as others are."""

    def under_lz4(body: bytes, encoding: int) -> bytes:
        packed = pa.Codec("lz4_raw").compress(body, asbytes=True)
        sizes = len(body).to_bytes(4, "big") + len(packed).to_bytes(4, "big")
        pages = [page(sizes * is_framed + packed, 6, raw=len(body), encoding=encoding)]
        data = file(pages, 6, 6, type=2 if encoding == NUMBERS_OF else 6)
        return rechunked(data, lambda facts: {**facts, 4: facts[4]._replace(value=5)})

    for encoding, body in CLAIMS.values():
        with pytest.raises(InvalidMetadata, match="claims more than it has"):
            read(under_lz4(body, encoding))
    data = under_lz4(integers(6, 1) + b"abcdef", LENGTHS_OF)
    assert read(data)["a"].to_pylist() == [bytes([each]) for each in b"abcdef"]


def test_lengths_that_take_more_than_the_limits() -> None:
    """A page of many empty values takes memory for the length of each before the first is decoded."""
    count = 1 << 22
    body = integers(count, 0, block=1 << 31)
    data = file([page(body, count, encoding=LENGTHS_OF)], count, count, type=6)
    with pytest.raises(LimitExceeded, match="row group 0, column a"):
        read(data, decompression_floor=1 << 20, decompression_ratio=2)
    assert read(data).num_rows == count


def words(rows: int) -> pa.Array:
    """Return text with prefixes in common, nulls, empty ones and long ones."""
    rng = np.random.default_rng(rows)
    found: list[str | None] = [f"{'common' * int(each)}{each}" for each in rng.integers(0, 40, rows)]
    found[3::7], found[5::11] = [None] * len(found[3::7]), [""] * len(found[5::11])
    return pa.array(found)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("encoding", DELTAS)
def test_delta_encodings_are_read_as_pyarrow_writes_them(encoding: str, version: str) -> None:
    """Flat, nullable, nested and fixed-width columns are the same under every codec, size of pages and window."""
    text = words(3000)
    offsets = pa.array(np.arange(0, 3001, 3), pa.int32())
    columns = {
        "DELTA_BINARY_PACKED": [pa.array(np.arange(3000) * 1_000_003 % 977), pa.array([5, None, 7] * 1000)],
        "DELTA_LENGTH_BYTE_ARRAY": [text, text.fill_null("")],
        "DELTA_BYTE_ARRAY": [
            text,
            text.fill_null(""),
            pa.array([b"12345", None, b"12399"] * 1000, pa.binary(5)),
        ],
    }[encoding]
    for column, codec, size in itertools.product(columns, ("none", "snappy", "gzip", "lz4"), (300, 1 << 20)):
        table = pa.table({"a": column})
        nested = pa.table({"a": pa.ListArray.from_arrays(offsets, column)})
        for each in (table, nested):
            sink = pa.BufferOutputStream()
            name = "a" if each is table else "a.list.element"
            pq.write_table(
                each,
                sink,
                compression=codec,
                use_dictionary=False,
                column_encoding={name: encoding},
                data_page_version=version,
                data_page_size=size,
            )
            for window in (1, 1 << 28):
                assert read(sink.getvalue(), window_bytes=window).equals(each)


def test_prefixes_are_as_long_as_they_are() -> None:
    """Text in DELTA_BYTE_ARRAY that is far larger than the window comes in batches that fill it."""
    column = pa.array([f"{'x' * 500}{number}" for number in range(40_000)])
    sink = pa.BufferOutputStream()
    encoded = {"a": "DELTA_BYTE_ARRAY"}
    pq.write_table(pa.table({"a": column}), sink, use_dictionary=False, column_encoding=encoded)
    limits = bow.DEFAULT_LIMITS.replace(window_bytes=8 << 20)
    with bow.parquet.read(sink.getvalue(), limits=limits) as stream:
        sizes = [batch.to_arrow().nbytes for batch in stream]
    assert sum(sizes) > 20_000_000
    assert max(sizes) < 4 << 20
    assert len(sizes) < 40


def test_prefixes_of_values_of_fixed_width() -> None:
    """Values of fixed width that are longer than that in DELTA_BYTE_ARRAY are refused before they are decoded."""
    text = pa.table({"a": pa.array([f"{'x' * 100_000}{number}" for number in range(5000)])})

    def change(schema: list[SchemaElement]) -> list[SchemaElement]:
        return [
            schema[0],
            schema[1]._replace(physical=FIXED, length=5, logical=None, converted=None, repetition=1),
        ]

    data = patched(text, change, use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"})
    data = rechunked(
        data,
        lambda facts: {
            number: each._replace(value=FIXED) if number == 1 else each
            for number, each in facts.items()
            if number not in (12, 16)
        },
    )
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(InvalidMetadata, match="claims more than it has"):
        read(data)
    assert pa.default_memory_pool().max_memory() <= max(before, 1 << 26)


def lists(rows: int) -> Iterator[pa.Table]:
    """Yield tables with lists: of numbers, of text, of lists, of structs, in structs, maps, and beside others."""
    numbers = pa.array([[1, 2], [], None, [3]] * (rows // 4), pa.list_(pa.int64()))
    text = pa.array([["a", None], [], None, ["ccc"]] * (rows // 4))
    pairs = pa.array([[{"x": 1, "y": "u"}], [], None, [{"x": None, "y": "v"}]] * (rows // 4))
    yield pa.table({"a": numbers})
    yield pa.table({"a": text})
    yield pa.table({"a": pa.array([[each] for each in numbers.to_pylist()], pa.list_(numbers.type))})
    yield pa.table({"a": pairs})
    yield pa.table({"a": pa.StructArray.from_arrays([numbers], ["inside"])})
    yield pa.table(
        {"a": pa.array([[("k", 1)], [], None, [("l", 2)]] * (rows // 4), pa.map_("string", "int64"))}
    )
    yield pa.table({"a": numbers, "b": text})
    yield pa.table({"a": numbers, "n": np.arange(rows)})


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_rows_of_lists_are_those_of_the_footer(codec: str, version: str) -> None:
    """Lists that are more rows than the footer says, or fewer, are an error, read alone or with others."""
    for table in lists(400):
        sink = pa.BufferOutputStream()
        pq.write_table(
            table, sink, compression=codec, data_page_version=version, row_group_size=100, data_page_size=64
        )
        data = sink.getvalue().to_pybytes()
        for window in (1, 1 << 28):
            assert read(data, window_bytes=window).equals(table)
            for columns, more in itertools.product((None, ["a"]), (-99, -1, 1)):
                wrong = rechunked(data, rows=more.__add__)
                with pytest.raises(InvalidData):
                    read(wrong, columns, window_bytes=window)
            if "n" in table.column_names:
                filters = [("n", ">=", 0)]
                limits = bow.DEFAULT_LIMITS.replace(window_bytes=window)
                wrong = rechunked(data, rows=lambda count: count - 1)
                with (
                    pytest.raises(InvalidData),
                    bow.parquet.read(wrong, columns=["a"], filters=filters, limits=limits) as stream,
                ):
                    stream.read_all()


@pytest.mark.parametrize("number", [7, 9, 11])
@pytest.mark.parametrize("value", [1 << 20, (1 << 31) - 1, 1 << 40, (1 << 63) - 1])
def test_chunks_that_lie_beyond_the_file(number: int, value: int) -> None:
    """Sizes and offsets of pages and dictionaries that end after the file are refused, by whoever asks."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": ["x", "y"] * 100}), sink, row_group_size=100)
    data = sink.getvalue().to_pybytes()

    def change(facts: dict[int, Field]) -> dict[int, Field]:
        found = {**facts, number: facts[number]._replace(value=value)}
        # A dictionary that is behind the pages is none.
        both = {**found, 9: facts[9]._replace(value=value), 11: facts[11]._replace(value=value - 1)}
        return both if number == 11 else found

    wrong = rechunked(data, change)
    if number == 9:  # the dictionary comes first
        wrong = rechunked(wrong, lambda facts: {key: each for key, each in facts.items() if key != 11})
    with pytest.raises(InvalidMetadata, match="beyond the end"):
        read(wrong)
    with (
        contextlib.closing(OpenFile(wrong)) as opened,
        pytest.raises(InvalidMetadata, match="beyond the end"),
    ):
        opened.row_group_begin(1)


def sharing(chunk: bytes, columns: int, rows: int, values: int, codec: int = 0, repetition: int = 0) -> bytes:
    """Return a file of columns of int64, all of which are the same bytes."""
    names = [b"c%d" % number for number in range(columns)]
    elements = [struct((1, I32, 2), (3, I32, repetition), (4, BINARY, name)) for name in names]
    chunks = [
        struct(
            (1, I32, 2),
            (2, LIST, encode_list(I32, [encode_integer(0)])),
            (3, LIST, encode_list(BINARY, [bytes([len(name)]) + name])),
            (4, I32, codec),
            (5, I64, values),
            *[(number, I64, len(chunk)) for number in (6, 7)],
            (9, I64, 4),
        )
        for name in names
    ]
    group = struct(
        (1, LIST, structs([struct((2, I64, 4), (3, STRUCT, each)) for each in chunks])),
        (2, I64, len(chunk)),
        (3, I64, rows),
    )
    root = struct((4, BINARY, b"s"), (5, I32, columns))
    footer = struct(
        (1, I32, 1), (2, LIST, structs([root, *elements])), (3, I64, rows), (4, LIST, structs([group]))
    )
    return MAGIC + chunk + framed(footer)


def test_chunks_that_are_the_same_bytes() -> None:
    """Columns that share a chunk are read; what is decoded of them is bounded by the bytes of the file."""
    rows = 1 << 16
    numbers = page(bytes(8 * rows), rows, "zstd")
    assert read(sharing(numbers, 40, rows, rows, CODECS["zstd"])).num_rows == rows
    limits: dict[str, Any] = {
        "decompression_floor": 1 << 20,
        "window_bytes": 1 << 20,
        "decompression_ratio": 40,
    }
    random = np.random.default_rng(1).integers(0, 1 << 62, rows).tobytes()
    once = sharing(page(random, rows), 1, rows, rows)
    assert read(once, **limits).num_rows == rows
    with pytest.raises(LimitExceeded, match="all columns"):
        read(sharing(page(random, rows), 100, rows, rows), **limits)


def one_list(values: int) -> bytes:
    """Return a page of one list of that many zeros, in a few bytes."""
    levels = [varint(2) + b"\0" + varint(values - 1 << 1) + b"\1", varint(values << 1) + b"\1"]
    body = b"".join(len(each).to_bytes(4, "little") + each for each in levels)
    return page(body + integers(values, 0, block=1 << 31), values, encoding=NUMBERS_OF)


def test_rows_of_many_columns_that_are_large_together() -> None:
    """A row of lists is bounded with all its columns, each of which is within the limits."""
    values = 1 << 20
    assert len(read(sharing(one_list(values), 2, 1, values, repetition=2))["c1"][0]) == values
    with pytest.raises(LimitExceeded, match=r"a row of a Parquet file.*all columns"):
        read(sharing(one_list(values), 60, 1, values, repetition=2))


def test_decimals_in_bytes_are_as_long_as_they_are() -> None:
    """Bytes and decimals of bytes come in batches of the window, as large as they are when they are decoded."""
    rows = 20_000
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": pa.array([b"\1" * 3000, b"\2"] * (rows // 2))}), sink, store_schema=False)
    limits = bow.DEFAULT_LIMITS.replace(window_bytes=8 << 20)
    with bow.parquet.read(sink.getvalue(), limits=limits) as stream:
        assert max(batch.to_arrow().nbytes for batch in stream) <= 8 << 20
    small = pa.table({"a": pa.array([Decimal("1.25")] * rows)})
    pq.write_table(small, sink := pa.BufferOutputStream(), store_decimal_as_integer=False)
    assert read(sink.getvalue(), window_bytes=1).equals(small)
