"""Small files of large values are read within a bound of memory; rows that may be beyond it are an error."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring as bow
from bowstring.errors import LimitExceeded
from tests.parquet.footers import rechunked
from tests.parquet.thrift import STRUCT, Field, encode_struct

PROGRAM = """
import resource, sys
from tests.parquet.test_bombs import bomb
import bowstring as bow
file, filters = bomb(sys.argv[1]), [("n", ">=", 0)] if sys.argv[2] == "filtered" else None
limits = bow.DEFAULT_LIMITS.replace(window_bytes=64 << 20)
with bow.parquet.read(bomb("small"), limits=limits, filters=filters) as stream:
    stream.read_all()
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + (512 << 20), held + (512 << 20)))
rows = 0
with bow.parquet.read(file, limits=limits, filters=filters) as stream:
    try:
        for batch in stream:
            rows += batch.num_rows
        print(rows, len(file))
    except bow.LimitExceeded as error:
        print("LimitExceeded", len(file))
"""
ROWS = 1 << 20
KINDS = {
    **dict.fromkeys(("text", "skewed", "wide", "dense"), str(ROWS)),
    "prefixes": str(1 << 15),
    **dict.fromkeys(("lists", "claimed text", "skewed list", "one row"), "LimitExceeded"),
}


def encoded(values: list[Any], indices: Any, type_: pa.DataType) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(values, type_))


def bomb(kind: str) -> bytes:
    """Return a file whose rows are GiB when they are decoded, and its column ``n``."""
    rows = 10 if kind == "small" else ROWS
    ones = np.zeros(rows, np.int32)
    options: dict[str, Any] = {}
    match kind:
        case "skewed":  # short values in most of the dictionary, one long one in most of the rows
            column = encoded([*map(str, range(50_000)), "x" * 4096], np.full(rows, 50_000), pa.string())
        case "wide":
            column = encoded([b"x" * 4096], ones, pa.binary(4096))
        case "lists":
            rows = 1 << 14
            values = encoded(["x" * 4096], np.zeros(rows * 64, np.int32), pa.string())
            column = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1) * 64, pa.int32()), values)
        case "skewed list" | "claimed text":  # as "skewed", in one row
            rows = 1
            values = encoded([*map(str, range(50_000)), "x" * 4096], np.full(ROWS, 50_000), pa.string())
            column = pa.ListArray.from_arrays(pa.array([0, ROWS], pa.int32()), values)
        case "dense":  # most rows are empty, those that are not are next to each other
            lengths = np.zeros(ROWS, np.int32)
            lengths[: 1 << 16] = 1 << 14
            offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
            text = pa.py_buffer(np.full(offsets[-1], 120, np.uint8))
            column = pa.LargeStringArray.from_buffers(ROWS, pa.py_buffer(offsets), text)
            options = {"use_dictionary": ["n"]}
        case "one row":
            rows = 1
            values = pa.nulls(100_000_000 // 2, pa.int64())
            column = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        case "prefixes":
            rows = 1 << 15
            column = pa.array(["x" * 65_536] * rows)
            options = {"use_dictionary": ["n"], "column_encoding": {"v": "DELTA_BYTE_ARRAY"}}
        case _:
            column = encoded(["x" * 4096], ones, pa.string())
    sink = pa.BufferOutputStream()
    table = pa.table({"v": column, "n": np.zeros(rows, np.int8)})
    with pq.ParquetWriter(sink, table.schema, store_schema=False, compression="zstd", **options) as writer:
        writer.write_table(table, row_group_size=rows)
    data = sink.getvalue().to_pybytes()
    return rechunked(data, without_text) if kind == "claimed text" else data


def without_text(facts: dict[int, Field]) -> dict[int, Field]:
    """Return the metadata of a column chunk that claims to have no bytes of text."""
    return {**facts, 16: Field(16, STRUCT, encode_struct([Field(1, 6, 0)]))} if facts[1].value == 6 else facts


def run(kind: str, how: str) -> tuple[str, int]:
    """Return the rows that a child read in 512 MiB, and the size of the file."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, how],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows, nbytes = done.stdout.split()
    return rows, int(nbytes)


def test_repeated_text_takes_bounded_memory() -> None:
    """4 GiB of rows that are one value of a dictionary are read in pieces."""
    rows, nbytes = run("text", "all")
    assert (rows, nbytes < 1 << 20) == (str(ROWS), True)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["all", "filtered"])
@pytest.mark.parametrize("kind", [*KINDS])
def test_every_bomb_takes_bounded_memory(kind: str, how: str) -> None:
    """Whatever repeats, all rows come, or one of them is beyond the limits."""
    rows, nbytes = run(kind, how)
    assert nbytes < 8 << 20
    # All values of lists may be in one of them.
    assert rows == KINDS[kind]


def tables() -> dict[str, pa.Table]:
    """Return tables whose values are estimated in each way."""
    rng = np.random.default_rng(1)
    picks = rng.integers(0, 300, 3000)
    text = pa.array([f"{number} {'x' * number}" for number in range(300)])
    lists = pa.ListArray.from_arrays(pa.array(np.arange(0, 3001, 3), pa.int32()), text.take(pa.array(picks)))
    return {
        "text": pa.table({"t": text.take(pa.array(picks)), "n": np.arange(3000)}),
        "one long": pa.table({"t": ["a", "b", "c" * 40_000] * 1000, "n": np.arange(3000)}),
        "nulls": pa.table({"t": pa.array(["abc" * 100, None] * 1500), "n": np.arange(3000)}),
        "lists": pa.table({"l": lists, "n": np.arange(1000)}),
        "fixed": pa.table({"f": pa.array([b"x" * 500] * 3000, pa.binary(500)), "n": np.arange(3000)}),
    }


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("kind", ["text", "one long", "nulls", "lists", "fixed"])
def test_rows_are_the_same_in_pieces(kind: str, codec: str) -> None:
    """Whatever window decides how row groups are read, also with filters, the rows are the same."""
    table = tables()[kind]
    for version in ("1.0", "2.0"):
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression=codec, data_page_version=version, row_group_size=2000)
        for window in (1, 1 << 18, 1 << 20, 1 << 22):
            limits = bow.DEFAULT_LIMITS.replace(window_bytes=window)
            with bow.parquet.read(sink.getvalue(), limits=limits) as stream:
                assert stream.read_all().equals(table)
            with bow.parquet.read(sink.getvalue(), limits=limits, filters=[("n", "<", 700)]) as stream:
                assert stream.read_all().equals(table.slice(0, 700))


def test_a_row_group_that_is_larger_than_is_likely_is_read_in_pieces() -> None:
    """A dictionary of short values and one long one, which most rows have, comes in batches that are bounded."""
    rows = 20_000
    column = encoded([*map(str, range(3000)), "x" * 4096], np.full(rows, 3000), pa.string())
    sink = pa.BufferOutputStream()
    schema = pa.schema({"v": pa.string()})
    with pq.ParquetWriter(sink, schema, store_schema=False, write_statistics=False) as writer:
        writer.write_table(pa.table({"v": column}).cast(schema), row_group_size=rows)
    limits = bow.DEFAULT_LIMITS.replace(window_bytes=8 << 20)
    with bow.parquet.read(sink.getvalue(), limits=limits) as stream:
        batches = [batch.to_arrow() for batch in stream]
    assert sum(batch.num_rows for batch in batches) == rows
    assert max(batch.nbytes for batch in batches) <= 8 << 20


def test_a_row_beyond_the_limits_is_an_error_that_names_its_column() -> None:
    """A list of more bytes than the bounds on what is decompressed is refused; other columns are read."""
    values = pa.nulls(1_000_000, pa.int64())
    lists = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"v": lists, "n": [1]}), sink)
    limits = bow.DEFAULT_LIMITS.replace(decompression_floor=1 << 20)
    with (
        pytest.raises(LimitExceeded, match=r"row group 0, column v\.list\.element"),
        bow.parquet.read(sink.getvalue(), limits=limits) as stream,
    ):
        stream.read_all()
    with bow.parquet.read(sink.getvalue(), columns=["n"], limits=limits) as stream:
        assert stream.read_all().num_rows == 1


def test_no_columns_of_many_rows() -> None:
    """Rows without columns take no memory."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"v": pa.nulls(50_000_000, pa.int8())}), sink, row_group_size=50_000_000)
    with bow.parquet.read(sink.getvalue(), columns=[]) as stream:
        assert [batch.num_rows for batch in stream] == [50_000_000]
