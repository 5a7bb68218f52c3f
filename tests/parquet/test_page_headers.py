"""Pages that contradict their footer, or claim sizes that they do not have, are an error and take no memory."""

from __future__ import annotations

import itertools
import struct as binary
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring as bow
from bowstring.errors import InvalidData, LimitExceeded
from tests.parquet.footers import CODECS, MOST, NUMBERS, file, page
from tests.parquet.thrift import BINARY, I32, struct

WRONG = r"another number|a page without|may be too large"
# Two lists of three: the levels of each are a run, or runs of one and of two.
LISTS = b"".join(len(levels).to_bytes(4, "little") + levels for levels in (b"\x02\0\x04\1" * 2, b"\x0c\1"))


def rows_of(data: bytes, **limits: Any) -> list[Any]:
    with bow.parquet.read(data, limits=bow.DEFAULT_LIMITS.replace(**limits)) as stream:
        column: list[Any] = stream.read_all().column("a").to_pylist()
        return column


@pytest.mark.parametrize("codec", CODECS)
def test_numbers_of_values_that_contradict_each_other_change_no_rows(codec: str | None) -> None:
    """Whatever a footer and pages claim of six values: all of them are read, or it is an error."""
    flat, lists = page(NUMBERS, 6, codec), page(LISTS + NUMBERS, 6, codec)
    assert rows_of(file([flat], 6, 6, codec)) == list(range(6))
    assert rows_of(file([lists], 6, 2, codec, repetition=2)) == [[0, 1, 2], [3, 4, 5]]
    # Early writers of C++ did not count nulls.
    assert rows_of(file([flat], 5, 6, codec)) == list(range(6))
    halves = [page(NUMBERS[:24], 3, codec), page(NUMBERS[24:], 3, codec)]
    for pages, claimed, rows in itertools.product(
        ([flat], halves), (3, 5, 6, 7, 1 << 40), (3, 5, 6, 7, 1 << 40)
    ):
        for window in (1, 1 << 20):
            if (rows, claimed) in ((6, 6), (6, 5)) or (rows, claimed, len(pages)) == (6, 3, 1):
                assert rows_of(file(pages, claimed, rows, codec), window_bytes=window) == list(range(6))
                continue
            with pytest.raises((InvalidData, LimitExceeded), match=WRONG):
                rows_of(file(pages, claimed, rows, codec), window_bytes=window)
    for claimed in (1, 5):
        assert rows_of(file([lists], claimed, 2, codec, repetition=2)) == [[0, 1, 2], [3, 4, 5]]
    for claimed, rows in ((1, 1), (5, 1), (5, 3), (0, 2), (7, 2), (1 << 40, 2), (6, 3), (6, 7)):
        with pytest.raises((InvalidData, LimitExceeded), match=WRONG):
            rows_of(file([lists], claimed, rows, codec, repetition=2))
    # The second list goes on in the second page, which pyarrow leaves out where the footer counts fewer values.
    runs = (b"\x02\0\x04\1", b"\x06\1"), (b"\x02\0\x04\1", b"\x06\1"), (b"\x06\1", b"\x06\1")
    first, second, rest = (
        page(b"".join(len(each).to_bytes(4, "little") + each for each in levels) + NUMBERS[:24], 3, codec)
        for levels in runs
    )
    whole = [[0, 1, 2], [0, 1, 2, 0, 1, 2]]
    for claimed in (7, 8, 9):
        assert rows_of(file([first, second, rest], claimed, 2, codec, repetition=2)) == whole
    for claimed in (1, 3, 4, 6, 10):
        with pytest.raises(InvalidData, match=WRONG):
            rows_of(file([first, second, rest], claimed, 2, codec, repetition=2))
    for wrong in (0, 5, 7, MOST):
        with pytest.raises((InvalidData, LimitExceeded), match=WRONG):
            rows_of(file([page(NUMBERS, wrong, codec)], 6, 6, codec))
    # What the file says beside its row groups is no more than that.
    assert rows_of(file([flat], 6, 6, codec, file_rows=7)) == list(range(6))
    with bow.parquet.read(file([flat], 6, 6, codec, file_rows=7)) as stream:
        assert stream.num_rows == 6


@pytest.mark.parametrize("codec", CODECS)
def test_sizes_that_no_page_has_take_no_memory(codec: str | None) -> None:
    """Pages that claim 2 GiB, dictionaries of more values than bytes, and what a footer does not list."""
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(LimitExceeded, match="row group 0, column a"):
        rows_of(file([page(NUMBERS, 6, codec, raw=MOST)], 6, 6, codec))
    levels = b"\1\x0c\0"  # six times the first value of the dictionary
    for type_, body in ((2, NUMBERS), (6, b"\1\0\0\0x")):
        values = page(levels, 6, codec, encoding=8)
        for wrong in (7, 1 << 20, MOST):
            dictionary = page(body, wrong, codec, kind=2)
            with pytest.raises(InvalidData, match="more values than bytes"):
                rows_of(file([dictionary, values], 6, 6, codec, type=type_, dictionary=True))
        first = page(body, 6 if type_ == 2 else 1, codec, kind=2)
        data = file([first, values], 6, 6, codec, type=type_, dictionary=True)
        assert rows_of(data) == [0 if type_ == 2 else b"x"] * 6
    assert pa.default_memory_pool().max_memory() <= max(before, 1 << 28)


def test_dictionaries_that_a_footer_does_not_list_are_bounded() -> None:
    """A dictionary that neither encodings nor offsets of the footer mention is looked at as any other."""
    rows = 4000
    first = page((100_000).to_bytes(4, "little") + b"x" * 100_000, 1, "zstd", kind=2)
    indices = page(b"\1" + bytes([rows << 1 & 127 | 128, rows >> 6, 0]), rows, "zstd", encoding=8)
    data = file([first, indices], rows, rows, "zstd", type=6)
    limits = bow.DEFAULT_LIMITS.replace(window_bytes=16 << 20)
    with bow.parquet.read(data, limits=limits) as stream:
        sizes = [batch.to_arrow().nbytes for batch in stream]
    assert sum(sizes) > rows * 100_000
    assert max(sizes) < 16 << 20


def test_all_headers_of_many_pages_are_looked_at() -> None:
    """The last of hundreds of pages counts as the first, however far it is, and however long its header."""
    pages = [page(bytes(8 * 4000), 4000) for _ in range(100)]
    assert len(rows_of(file(pages, 400_000, 400_000))) == 400_000
    for wrong in (page(bytes(8), 2), page(bytes(8), 1, raw=MOST)):
        with pytest.raises((InvalidData, LimitExceeded)):
            rows_of(file([*pages, wrong], 400_001, 400_001))
    long = b"\x18" + b"\xc0\x9a\x0c" + b"x" * 200_000 + b"\0"  # a binary of 200,000 bytes
    header = (
        struct((1, I32, 0), (2, I32, 48), (3, I32, 48))[:-1]
        + b"\x2c"
        + struct((1, I32, 6), (2, I32, 0), (3, I32, 3), (4, I32, 3))[:-1]
        + b"\x1c"
        + long
        + b"\0\0"
    )
    assert rows_of(file([header + NUMBERS], 6, 6)) == list(range(6))
    assert len(rows_of(file([*pages, header + NUMBERS], 400_006, 400_006))) == 400_006


def test_lists_that_claim_to_be_many_rows_are_bounded() -> None:
    """One null list of 256 Mi values, in a few bytes, is as large as if it were not said to be as many rows."""
    run = b"".join(binary.pack("<I", 6) + b"\xfe\xff\xff\xff\x01" + bytes([level]) for level in (1, 0))
    data = file([page(run, 1 << 28)], 1 << 28, 1 << 28, repetition=2)
    with pytest.raises(LimitExceeded, match="row group 0, column a"):
        rows_of(data)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_lists_that_pyarrow_writes_are_read_whatever_the_limits(version: str) -> None:
    """Nulls, empty lists and short ones are read under limits that all of their values in one row would exceed."""
    rng, rows = np.random.default_rng(4), 30_000
    sizes = rng.choice([0, 1, 1, 2], rows, p=[0.3, 0.3, 0.3, 0.1])
    numbers = pa.array(rng.integers(0, 1000, sizes.sum()))
    text = pa.array(["x" * 20, "y", None]).take(pa.array(rng.integers(0, 3, sizes.sum())))
    nulls = pa.array(rng.random(rows) < 0.2)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    outer = pa.array(np.arange(rows + 1), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, numbers, mask=nulls)
    table = pa.table(
        {
            "nulls": pa.nulls(rows, pa.list_(pa.decimal128(38, 2))),
            "empty": pa.array([[]] * rows, pa.list_(pa.int64())),
            "ones": pa.ListArray.from_arrays(outer, pa.array(np.zeros(rows, np.int64))),
            "numbers": lists,
            "text": pa.ListArray.from_arrays(offsets, text, mask=nulls),
            "nested": pa.ListArray.from_arrays(outer, lists),
            "struct": pa.StructArray.from_arrays([lists, pa.array(np.arange(rows) % 9)], ["l", "n"]),
        }
    )
    for codec, encoded in itertools.product(("none", "zstd"), (True, False)):
        sink = pa.BufferOutputStream()
        pq.write_table(
            table,
            sink,
            compression=codec,
            use_dictionary=encoded,
            data_page_size=1 << 12,
            data_page_version=version,
        )
        for window in (1, 1 << 28):
            bounds = {"decompression_floor": 160_000, "decompression_ratio": 1, "window_bytes": window}
            limits = bow.DEFAULT_LIMITS.replace(**bounds)
            for name in table.column_names:
                with bow.parquet.read(sink.getvalue(), columns=[name], limits=limits) as stream:
                    assert stream.read_all().equals(table.select([name])), (name, codec, encoded)


@pytest.mark.parametrize(
    "rest", [b"\x18\xff\xff\x7f" + b"a" * 20, b"\0" * 40, b"\xff" * 40, b"\x15", b"\x2c\x15\x0c"], ids=str
)
def test_what_comes_after_the_last_value_is_not_read(rest: bytes) -> None:
    """Bytes of a chunk after its pages that are no page, or only the beginning of one, change nothing."""
    assert rows_of(file([page(NUMBERS, 6) + rest], 6, 6)) == list(range(6))
    assert rows_of(file([page(LISTS + NUMBERS, 6) + rest], 6, 2, repetition=2)) == [[0, 1, 2], [3, 4, 5]]


def test_rows_that_are_missing_are_counted_from_the_beginning() -> None:
    """An error says how many rows the footer and the columns have, also where they were read for a second time."""
    long = b"".join((40).to_bytes(4, "little") + value.to_bytes(40, "big") for value in range(3))
    data = file([page(long, 3), page(long, 3)], 3, 6, type=6, decimal=True)
    for window in (1, 1 << 20):
        with pytest.raises(InvalidData, match=r"(?s)6 rows.*3 rows"):
            rows_of(data, window_bytes=window)
    whole = file([page(long, 3), page(long, 3)], 6, 6, type=6, decimal=True)
    assert list(map(int, rows_of(whole, window_bytes=1))) == [0, 1, 2, 0, 1, 2]


def test_truncated_bounds_of_binary_rule_out_no_rows() -> None:
    """Bounds of fixed-width values that are cut off, as the format allows, are as if there were none."""
    values = [bytes([value]) * 128 for value in b"abc"]
    for numbers, size in itertools.product(((1, 2), (5, 6), (1, 2, 5, 6)), (0, 1, 64, 127)):
        bounds = struct(*[(number, BINARY, b"a" * size) for number in numbers])
        data = file([page(b"".join(values), 3)], 3, 3, type=7, width=128, statistics=bounds)
        assert rows_of(data) == values
        for value in values:
            with bow.parquet.read(data, filters=[("a", "==", value)]) as stream:
                assert stream.read_all().column("a").to_pylist() == [value]
