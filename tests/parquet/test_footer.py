"""The codec of footers keeps every byte, and bytes that are no footer cost little and end in a clear error."""

from __future__ import annotations

import io
import time
import tracemalloc
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bowstring import DEFAULT_LIMITS
from bowstring.errors import (
    BowstringError,
    InvalidData,
    InvalidMetadata,
    LimitExceeded,
    Truncated,
    Unsupported,
)
from bowstring.parquet.footer import (
    Footer,
    SchemaElement,
    decode_footer,
    encode_footer,
    footer_bytes,
    framed,
    with_logical_types,
)
from bowstring.parquet.logical import VARIANT, LogicalType
from bowstring.parquet.thrift import BINARY, I8, I32, STRUCT, TRUE, Field, encode_struct

DAMAGED = {"PARQUET-1481.parquet"}
# pyarrow refuses these as they are, or DuckDB does.
REFUSED = {"ARROW-GH-41317.parquet", "ARROW-GH-43605.parquet"}
UNKNOWN = (Field(99, BINARY, b"later"), Field(101, STRUCT, encode_struct([Field(1, TRUE, True)])))


def files(folder: Path) -> list[Path]:
    """Return all Parquet files whose footers are sound."""
    return sorted(path for path in folder.rglob("*.parquet") if path.name not in DAMAGED)


def footer_of(path: Path) -> bytes:
    """Return the footer of a file."""
    return footer_bytes(pa.BufferReader(path.read_bytes()))


def with_footer(path: Path, footer: bytes) -> bytes:
    """Return a file with another footer."""
    data, old = path.read_bytes(), footer_of(path)
    return data[: len(data) - len(framed(old))] + framed(footer)


def written(table: pa.Table) -> bytes:
    """Return the footer of a table that pyarrow writes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return footer_bytes(pa.BufferReader(sink.getvalue()))


def test_footers_of_all_writers_are_encoded_as_they_were(parquet_test_data: Path) -> None:
    """Of 97 files by many writers, every footer is byte for byte what decoding and encoding make of it."""
    found = [footer_of(path) for path in files(parquet_test_data)]
    assert len(found) >= 90
    assert all(encode_footer(decode_footer(footer)) == footer for footer in found)


def _values(data: bytes) -> bytes:
    """Return the values as Arrow IPC, in which a NaN is equal to itself."""
    table = pq.read_table(pa.BufferReader(data))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_pyarrow_reads_footers_with_fields_of_later_versions(parquet_test_data: Path) -> None:
    """Encoded with unknown fields in every element, all footers give pyarrow the same values."""
    for path in files(parquet_test_data):
        if path.name in REFUSED:
            continue
        footer = decode_footer(footer_of(path))
        schema = tuple(_with_unknown(element) for element in footer.schema)
        later = encode_footer(Footer(footer.head, schema, footer.rest))
        assert later != footer_of(path)
        assert decode_footer(later).schema == schema
        assert _values(with_footer(path, later)) == _values(path.read_bytes()), path


def _with_unknown(element: SchemaElement) -> SchemaElement:
    return SchemaElement(
        **{name: getattr(element, name) for name in SchemaElement.__slots__ if name != "unknown"},
        unknown=UNKNOWN,
    )


def test_duckdb_reads_footers_that_were_encoded_again(
    parquet_test_data: Path, tmp_path: Path, duck: Any
) -> None:
    """DuckDB gives the same values, or the same refusal, of every file with unknown fields in its elements."""
    compared = 0
    for path in files(parquet_test_data):
        footer = decode_footer(footer_of(path))
        schema = tuple(_with_unknown(element) for element in footer.schema)
        copy = tmp_path / path.name
        copy.write_bytes(with_footer(path, encode_footer(Footer(footer.head, schema, footer.rest))))
        before, after = (_duck_rows(duck, each) for each in (path, copy))
        assert before == after, path
        compared += not before.startswith("error")
    assert compared >= 75


def _duck_rows(duck: Any, path: Path) -> str:
    try:
        rows = duck.execute("SELECT COLUMNS(*)::VARCHAR FROM read_parquet(?)", [str(path)]).fetchall()
    except duckdb.Error as error:
        return f"error {type(error).__name__}"
    return repr(rows)


def test_seven_bytes_make_a_variant(tmp_path: Path, duck: Any) -> None:
    """A struct that pyarrow wrote is a VARIANT to DuckDB once its group is annotated."""
    rows = [{"metadata": b"\x01\x00\x00", "value": bytes([12, number])} for number in (7, 9)]
    type_ = pa.struct([pa.field("metadata", pa.binary(), nullable=False), ("value", pa.binary())])
    path = tmp_path / "v.parquet"
    pq.write_table(pa.table({"v": pa.array(rows, type_)}), path)
    before = footer_of(path)
    after = encode_footer(with_logical_types(decode_footer(before), {1: VARIANT}))
    assert len(after) == len(before) + 7
    path.write_bytes(with_footer(path, after))
    assert duck.execute(f"SELECT v::INTEGER FROM '{path}'").fetchall() == [(7,), (9,)]


def test_int96_can_be_read_as_bytes(parquet_test_data: Path) -> None:
    """Pages are read by pyarrow by a footer that was changed: INT96 as 12 bytes, the year 9999 among them."""
    path = parquet_test_data / "data" / "int96_from_spark.parquet"
    footer = decode_footer(footer_of(path))
    schema = tuple(
        SchemaElement(element.name, physical=7, length=12, repetition=element.repetition)
        if element.physical_type == "INT96"
        else element
        for element in footer.schema
    )
    changed = with_footer(path, encode_footer(Footer(footer.head, schema, footer.rest)))
    metadata = pq.read_metadata(io.BytesIO(changed))
    [column] = pq.ParquetFile(path, metadata=metadata).read().columns
    days = [int.from_bytes(each[8:], "little") - 2440588 for each in column.to_pylist() if each is not None]
    assert 2932896 in days  # 9999-12-31


NUMBERS = st.integers(-(1 << 31), (1 << 31) - 1)
LOGICALS = st.one_of(
    st.just(VARIANT),
    st.sampled_from([LogicalType(number) for number in (1, 2, 3, 4, 6, 11, 12, 13, 14, 15, 60)]),
    st.builds(lambda p, s: LogicalType(5, (Field(1, I32, s), Field(2, I32, p))), NUMBERS, NUMBERS),
    st.builds(
        lambda w, s: LogicalType(10, (Field(1, I8, w), Field(2, 1 if s else 2, s))),
        st.integers(-128, 127),
        st.booleans(),
    ),
    st.builds(lambda crs: LogicalType(17, (Field(1, BINARY, crs),)), st.binary(max_size=20)),
)
NAMES = st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.just("\udcff"))
LEAVES = st.builds(
    SchemaElement,
    NAMES,
    physical=st.integers(0, 7),
    length=st.none() | NUMBERS,
    repetition=st.none() | st.integers(0, 2),
    converted=st.none() | NUMBERS,
    scale=st.none() | NUMBERS,
    precision=st.none() | NUMBERS,
    field_id=st.none() | NUMBERS,
    logical=st.none() | LOGICALS,
    unknown=st.just(()) | st.just(UNKNOWN),
)


def _group(children: list[list[SchemaElement]], name: str) -> list[SchemaElement]:
    group = SchemaElement(name, repetition=1, children=len(children))
    return [group, *(element for child in children for element in child)]


TREES = st.recursive(
    LEAVES.map(lambda leaf: [leaf]),
    lambda inner: st.builds(_group, st.lists(inner, max_size=4), NAMES),
    max_leaves=8,
)
SCHEMAS = st.builds(_group, st.lists(TREES, max_size=4), NAMES)
HEAD = bytes([0x15, 0x02, 0x19])


@given(SCHEMAS, st.binary(max_size=40))
def test_every_schema_comes_back(schema: list[SchemaElement], rest: bytes) -> None:
    """A footer of any schema is decoded to what it was encoded from; what follows is not looked at."""
    footer = Footer(HEAD, tuple(schema), rest)
    assert decode_footer(encode_footer(footer)) == footer
    leaves = [element for element in schema if element.physical is not None]
    nodes = list(footer.nodes())
    assert [node.element for node in nodes] == schema[1:]
    assert [node.first_leaf for node in nodes if node.element.physical is not None] == list(
        range(len(leaves))
    )


@given(st.binary(max_size=200))
def test_random_bytes_are_no_footer(data: bytes) -> None:
    """Random bytes are a footer by chance only; else the error is one of ours."""
    _decoded_or_refused(data)


SEED = written(
    pa.table({"a": [1], "b": [{"x": "y", "z": [1.5]}], "c": pa.array([1], pa.timestamp("us", "UTC"))})
)


@given(
    st.lists(st.tuples(st.integers(0, len(SEED) - 1), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 20),
)
def test_damaged_footers_are_refused_or_read(changes: list[tuple[int, int]], lost: int) -> None:
    """With some bytes changed and the end cut off, a footer is refused clearly, or is another footer."""
    data = bytearray(SEED)
    for position, byte in changes:
        data[position] = byte
    _decoded_or_refused(bytes(data[: len(data) - lost]))


def _decoded_or_refused(data: bytes) -> None:
    try:
        footer = decode_footer(data)
    except (InvalidData, LimitExceeded):
        return
    assert decode_footer(encode_footer(footer)).schema == footer.schema


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param(b"", Truncated, id="empty"),
        pytest.param(bytes([0]), InvalidMetadata, id="no fields"),
        pytest.param(HEAD + b"\xfc\xff\xff\xff\xff\x0f", Truncated, id="4 billion elements"),
        pytest.param(HEAD + b"\xfc" + b"\xff" * 12, InvalidMetadata, id="an integer of 84 bits"),
        pytest.param(HEAD + b"\xfc\xa0\x8d\x06" + bytes(200_000), LimitExceeded, id="100,000 elements"),
        pytest.param(HEAD + b"\x1c\x48\x01a\x15\x02\x00", Truncated, id="children that are missing"),
        pytest.param(bytes([0x1C]) * 5000, LimitExceeded, id="structs inside each other"),
        pytest.param(bytes([0x19, 0x19]) + bytes([0x19]) * 5000, LimitExceeded, id="lists inside each other"),
        pytest.param(bytes([0x1B, 0x7F, 0xCC]), Truncated, id="a map without its entries"),
        pytest.param(HEAD + b"\x1c\x38\xff\xff\xff\x7fa", Truncated, id="a name of 256 MiB"),
    ],
)
def test_claims_cost_nothing(data: bytes, error: type[BowstringError]) -> None:
    """Claims of sizes, counts and depths beyond the bytes or the limits are refused at once, without memory."""
    tracemalloc.start()
    began = time.monotonic()
    with pytest.raises(error):
        decode_footer(data)
    assert time.monotonic() - began < 2
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_the_limits_bound_a_footer() -> None:
    """The size, the elements and the nesting of a schema are bounded by ``Limits``."""
    for limits in (
        DEFAULT_LIMITS.replace(metadata_bytes=len(SEED) - 1),
        DEFAULT_LIMITS.replace(columns=3),
        DEFAULT_LIMITS.replace(depth=2),
    ):
        with pytest.raises(LimitExceeded):
            decode_footer(SEED, limits)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"PAR1", Truncated),
        (b"PAR1" + bytes(8), InvalidMetadata),
        (b"PAR1" + framed(SEED)[-8:], Truncated),
        (b"PAR1" + bytes(4) + b"PARE", Unsupported),
    ],
    ids=["short", "no mark", "shorter than its footer", "encrypted"],
)
def test_files_that_do_not_end_as_parquet(data: bytes, error: type[BowstringError]) -> None:
    """What is no Parquet file, or an encrypted one, is refused by name."""
    with pytest.raises(error):
        footer_bytes(pa.BufferReader(data))
