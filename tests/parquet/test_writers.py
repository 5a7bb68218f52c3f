"""A pairwise table: files of each two options of a writer are read as pyarrow and DuckDB read them, or refused."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import itertools
import pathlib
import random
import uuid
from collections.abc import Iterator
from typing import Any

import arro3.io
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring as bow
from bowstring.errors import BowstringError
from tests.spark.live import live_session

DAY = dt.datetime(2024, 2, 29, 12, 30, 15, 123000, tzinfo=dt.UTC)
PLAIN = DAY.replace(tzinfo=None)
WORDS = ["", "a", "prefix one", "prefix two", "prefix two and more", "grüße", "x" * 300]
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, True]),
    "int8": (pa.int8(), [-128, 0, 127]),
    "uint16": (pa.uint16(), [0, 1, 65535]),
    "int32": (pa.int32(), [-(2**31), 0, 7, 2**31 - 1]),
    "uint32": (pa.uint32(), [0, 2**32 - 1]),
    "int64": (pa.int64(), [-(2**63), 0, 7, 2**63 - 1]),
    "uint64": (pa.uint64(), [0, 2**64 - 1]),
    "float16": (pa.float16(), [0.0, -1.5, 65504.0]),
    "float": (pa.float32(), [0.0, -1.5, 3.0e38]),
    "double": (pa.float64(), [0.0, -1.5, 1e300]),
    "decimal 9": (pa.decimal128(9, 2), list(map(decimal.Decimal, ("0.01", "-1234567.89")))),
    "decimal 18": (pa.decimal128(18, 3), list(map(decimal.Decimal, ("0.001", "-123456789012345.678")))),
    "decimal 38": (pa.decimal128(38, 4), [decimal.Decimal("0.0001"), decimal.Decimal(-(10**33))]),
    "date": (pa.date32(), [DAY.date(), dt.date(1582, 10, 4)]),
    "time ms": (pa.time32("ms"), [DAY.time(), dt.time(0)]),
    "time us": (pa.time64("us"), [DAY.time(), dt.time(23, 59, 59, 999999)]),
    "timestamp ms": (pa.timestamp("ms", "UTC"), [DAY]),
    "timestamp us": (pa.timestamp("us"), [PLAIN, PLAIN.replace(1, 1, 1)]),
    "timestamp ns": (pa.timestamp("ns"), [PLAIN, PLAIN.replace(1904)]),
    "text": (pa.string(), WORDS),
    "large text": (pa.large_string(), WORDS),
    "bytes": (pa.binary(), [b"", b"\xff\0", b"prefix", b"prefix more"]),
    "fixed bytes": (pa.binary(5), [b"abcde", b"abcdf"]),
    "uuid": (pa.uuid(), [uuid.UUID(int=each).bytes for each in (0, 2**127 + 1)]),
    "categories": (pa.dictionary(pa.int32(), pa.string()), ["a", "b", "a"]),
    "list": (pa.list_(pa.int64()), [[], [1, None, 3], list(range(20))]),
    "list of text": (pa.list_(pa.string()), [[], ["a", None], WORDS]),
    "struct": (pa.struct({"x": pa.int32(), "y": pa.string()}), [{"x": 1, "y": None}, {"x": None, "y": "b"}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[], [("a", 1), ("b", None)]]),
    "lists in lists": (pa.list_(pa.list_(pa.int16())), [[], [[], [1]], [None, [2, None]]]),
    "structs in lists": (pa.list_(pa.struct({"x": pa.float64()})), [[], [{"x": 1.5}, None]]),
}
SIZES = {"none": 0, "few": 7, "pages": 3000}
CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4_raw"]
BYTES = ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]
ENCODINGS = ["dictionary", "PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "RLE", *BYTES]
OPTIONS: dict[str, list[list[Any]]] = {
    "pyarrow": [CODECS, ENCODINGS, ["1.0", "2.4", "2.6"], ["1.0", "2.0"]],
    "arro3": [CODECS, ENCODINGS, ["parquet_1_0", "parquet_2_0"]],
    "polars": [["uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4"], [None, 500]],
    "duckdb": [["uncompressed", *CODECS[1:]], ["V1", "V2"]],
}


def table_of(kind: str, size: int, nulls: bool) -> pa.Table:
    """Return a table of one column, ``a``."""
    type_, values = TYPES[kind]
    of = [*values, None] if nulls else values
    rows = [of[number * number % len(of)] for number in range(size)]
    return pa.table({"a": pa.array(rows, type_)})


def pairs_of(axes: list[list[Any]]) -> Iterator[tuple[Any, ...]]:
    """Yield combinations, each with a pair that none before it has; those with many new pairs come first."""
    every = list(itertools.product(*axes))
    random.Random(1).shuffle(every)
    places = list(itertools.combinations(range(len(axes)), 2))
    seen: set[tuple[Any, ...]] = set()
    for least in (len(places) * 3 // 4, len(places) // 2, 1):
        for each in every:
            new = {(place, each[place[0]], each[place[1]]) for place in places} - seen
            if len(new) >= least:
                seen |= new
                yield each


def written(writer: str, table: pa.Table, options: tuple[Any, ...], path: pathlib.Path, duck: Any) -> bool:
    """Write a file; return whether the writer has such a type in such an encoding."""
    codec, *others = options
    try:
        if writer == "pyarrow":
            encoding, version, page = others
            how = {} if encoding == "dictionary" else {"column_encoding": encoding}
            pq.write_table(
                table, path, compression="lz4" if codec == "lz4_raw" else codec, version=version,
                data_page_version=page, use_dictionary=not how, row_group_size=2000, data_page_size=2000, **how,
            )  # fmt: skip
        elif writer == "arro3":
            encoding, version = others
            levels = {"none": "uncompressed", "gzip": "gzip(6)", "brotli": "brotli(1)", "zstd": "zstd(1)"}
            how = {} if encoding == "dictionary" else {"encoding": encoding.lower()}
            sink = io.BytesIO()
            arro3.io.write_parquet(
                table, sink, compression=levels.get(codec, codec), writer_version=version,
                dictionary_enabled=not how, max_row_group_size=2000, data_page_size_limit=2000, **how,
            )  # fmt: skip
            path.write_bytes(sink.getvalue())
        elif writer == "polars":
            frame = pl.from_arrow(table)
            assert isinstance(frame, pl.DataFrame)
            frame.write_parquet(path, compression=codec, data_page_size=others[0], row_group_size=2000)
        else:
            duck.register("given", table)
            duck.sql(
                f"copy given to '{path}' (format parquet, compression {codec}, parquet_version {others[0]})"
            )
    except BaseException as error:
        # Types and encodings that the writer has not; what Rust calls a panic is no Exception.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            return False
        raise
    return True


def texts(duck: Any, relation: str) -> list[Any] | None:
    """Return the values as DuckDB writes them, ``None`` where it cannot read them."""
    try:
        found: list[Any] = duck.sql(f"select a::varchar from {relation}").fetchall()
    except duckdb.Error:
        return None
    return found


def check(path: pathlib.Path, duck: Any) -> None:
    """Compare what is read of a file with what pyarrow and DuckDB read."""
    try:
        expected = pq.read_table(path)
    except (pa.ArrowException, OSError):
        with pytest.raises(BowstringError, match="column a"), bow.parquet.read(path) as stream:
            stream.read_all()
        return
    for window in (1, 1 << 28) if len(expected) > 7 else (1 << 28,):
        with bow.parquet.read(path, limits=bow.DEFAULT_LIMITS.replace(window_bytes=window)) as stream:
            ours = stream.read_all()
        assert ours.schema.field("a").type.equals(expected.schema.field("a").type)
        assert ours.column("a").equals(expected.column("a"))
    type_ = ours.schema.field("a").type
    if ours.num_rows and type_ not in (pa.float16(), pa.uuid()):
        duck.register("ours", ours)
        assert texts(duck, f"read_parquet('{path}')") in (None, texts(duck, "ours"))


@pytest.mark.parametrize("writer", OPTIONS)
def test_every_pair_of_options_is_read(writer: str, tmp_path: pathlib.Path, duck: Any) -> None:
    """Types, sizes, nulls, codecs, encodings and versions of a writer, in pairs."""
    duck.sql("set timezone='UTC'")
    done = 0
    for kind, size, nulls, *options in pairs_of([list(TYPES), list(SIZES), [False, True], *OPTIONS[writer]]):
        path = tmp_path / f"{done}.parquet"
        if written(writer, table_of(kind, SIZES[size], nulls), tuple(options), path, duck):
            try:
                check(path, duck)
            except Exception as error:
                error.add_note(f"{writer} {kind} {size} {nulls} {options}")
                raise
            path.unlink()
            done += 1
    assert done > 80


SPARK = """
id, id % 2 = 0 as b, cast(id % 100 as tinyint) as i8, cast(id as int) as i32, cast(id / 7 as float) as f,
cast(id as double) as d, cast(id as decimal(9, 2)) as d9, cast(id as decimal(18, 3)) as d18,
cast(id as decimal(38, 4)) as d38, date_add(date'2024-02-29', cast(id as int)) as day,
timestamp'2024-02-29 12:30:15.123456' + make_dt_interval(cast(id as int)) as t,
cast(timestamp'2024-02-29 12:30:15' as timestamp_ntz) as ntz,
if(id % 3 = 0, null, concat('text ', id % 50)) as s, cast(concat('bytes ', id) as binary) as bin,
array(id, null, id + 1) as l, if(id % 5 = 0, null, array(array('a'), null)) as ll, map(concat('k', id), id) as m,
named_struct('x', id, 'y', if(id % 2 = 0, null, array(1.5D))) as st
"""
TIMESTAMPS = "spark.sql.parquet.outputTimestampType"


@pytest.mark.peers
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_every_pair_of_options_of_spark_is_read(tmp_path: pathlib.Path, duck: Any) -> None:
    """Codecs, versions, dictionaries, sizes of pages and types of timestamps, for all types at once."""
    spark = live_session()
    duck.sql("set timezone='UTC'")
    frame = spark.sql(f"select {SPARK} from range(3000)").coalesce(1)
    codecs, versions = ["uncompressed", "snappy", "gzip", "zstd", "lz4_raw"], ["PARQUET_1_0", "PARQUET_2_0"]
    axes = [codecs, versions, ["true", "false"], ["500", "1048576"], ["INT96", "TIMESTAMP_MICROS"]]
    before = spark.conf.get(TIMESTAMPS)
    try:
        for codec, version, dictionary, page, stamp in pairs_of(axes):
            spark.conf.set(TIMESTAMPS, stamp)
            named = {"parquet.writer.version": version, "parquet.enable.dictionary": dictionary}
            options = {"compression": codec, "parquet.page.size": page, **named}
            folder = tmp_path / f"{codec}-{version}-{dictionary}-{page}-{stamp}"
            frame.write.options(**options).parquet(str(folder))
            [path] = folder.glob("*.parquet")
            expected = pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read()
            with bow.parquet.read(path) as stream:
                ours = stream.read_all()
            assert ours.num_rows == 3000
            duck.register("ours", ours)
            for name in expected.column_names:
                assert ours.column(name).to_pylist() == expected.column(name).to_pylist(), (folder.name, name)
                theirs = duck.sql(f"select {name}::varchar from read_parquet('{path}')").fetchall()
                assert theirs == duck.sql(f"select {name}::varchar from ours").fetchall(), (folder.name, name)
    finally:
        spark.conf.set(TIMESTAMPS, before)
