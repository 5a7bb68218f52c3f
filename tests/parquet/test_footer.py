"""The codec of footers keeps every byte, and bytes that are no footer cost little and end in a clear error."""

from __future__ import annotations

import dataclasses
import io
import os
import subprocess
import sys
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

import bowstring as bow
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
        **{name: getattr(element, name) for name in SchemaElement._fields if name != "unknown"},
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
    footer = decode_footer(before)
    root, group, *columns = footer.schema
    schema = (root, group._replace(logical=VARIANT), *columns)
    after = encode_footer(dataclasses.replace(footer, schema=schema))
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
NAMES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["\udcff", "a", "b" * 127, "c" * 300])
)
LEAVES = st.builds(
    SchemaElement,
    NAMES,
    physical=st.integers(0, 7),
    length=st.none() | NUMBERS,
    repetition=st.none() | st.integers(0, 2),
    children=st.none(),
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


@given(SCHEMAS)
def test_ends_of_groups_are_those_of_their_children(schema: list[SchemaElement]) -> None:
    """The leaves of a group are those of its children, one after the other; a column has itself."""
    nodes = list(Footer(HEAD, tuple(schema), b"").nodes())

    def check(at: int) -> tuple[int, int]:
        node = nodes[at]
        after, leaf = at + 1, node.first_leaf
        for _ in range(node.element.children or 0):
            assert nodes[after].first_leaf == leaf
            assert nodes[after].path[:-1] == node.path
            after, leaf = check(after)
        assert node.end_leaf == leaf + (node.element.children is None)
        return after, node.end_leaf

    at = 0
    for _ in range(schema[0].children or 0):
        at, _ = check(at)
    assert at == len(nodes)


@given(LEAVES, st.lists(NAMES, min_size=1, max_size=6), st.integers(1, 3))
def test_elements_of_one_shape_are_read_as_each_alone(
    element: SchemaElement, names: list[str], padding: int
) -> None:
    """Elements that differ in the name only keep their names, also where a length has more bytes than it needs."""
    schema = (
        SchemaElement("root", children=len(names)),
        *(element._replace(name=name) for name in names),
    )
    data = encode_footer(Footer(HEAD, schema, b""))
    assert decode_footer(data).schema == schema
    # The same with every length below 128 padded: 0x05 becomes 0x85 0x00.
    padded = b"".join(
        _padded(encode_footer(Footer(HEAD, (each,), b""))[len(HEAD) + 1 :], each, padding) for each in schema
    )
    size = len(schema)
    header = encode_footer(Footer(HEAD, schema, b""))[len(HEAD) : len(HEAD) + (1 if size < 15 else 2)]
    assert decode_footer(HEAD + header + padded).schema == schema


def _padded(encoded: bytes, element: SchemaElement, padding: int) -> bytes:
    name = os.fsencode(element.name)
    length = encode_struct([Field(1, BINARY, name)])[1 : -1 - len(name)]
    begin = encoded.find(length + name, 1)
    if len(name) > 127 or encoded[begin - 1] & 15 != BINARY:
        return encoded
    long = bytes([length[0] | 128, *[128] * (padding - 1), 0])
    return encoded[:begin] + long + encoded[begin + 1 :]


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
    began = time.thread_time()
    with pytest.raises(error):
        decode_footer(data)
    assert time.thread_time() - began < 2
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


_ROOT_AND_COLUMN = bytes.fromhex("192c4801721502001502250018016100")
_HOSTILE = {
    "elements": (b"\x19", b"\x48\x00\x00", b"\x16\x00\x19\x0c\x00"),
    "row groups": (_ROOT_AND_COLUMN + b"\x16\x00\x19", b"\x19\x0c\x16\x00\x16\x00\x00", b"\x00"),
    "pairs": (_ROOT_AND_COLUMN + b"\x16\x00\x19\x0c\x19", b"\x18\x00\x00", b"\x00"),
    "column chunks": (
        _ROOT_AND_COLUMN + b"\x16\x00\x19\x1c\x19",
        b"\x26\x00\x00",
        b"\x16\x00\x16\x00\x00\x00",
    ),
}
_OPEN = """
import resource, sys, time
import bowstring as bow
from bowstring.errors import BowstringError
data = sys.stdin.buffer.read()
before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
try:
    bow.parquet.read(data).close()
except BowstringError:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, time.process_time() - begin)
"""


@pytest.mark.parametrize("kind", _HOSTILE)
def test_memory_and_time_of_hostile_footers_are_bounded_by_their_size(kind: str) -> None:
    """A footer of 500 kB costs at most 400 bytes for each of its, and few seconds, whatever it counts."""
    front, element, back = _HOSTILE[kind]
    count = 500_000 // len(element)
    length = encode_struct([Field(1, BINARY, b"x" * count)])[1 : -1 - count]
    footer = b"\x15\x02" + front + b"\xfc" + length + element * count + back
    data = b"PAR1" + framed(footer)
    done = subprocess.run([sys.executable, "-c", _OPEN], input=data, capture_output=True, check=True)
    kilobytes, seconds = map(float, done.stdout.split())
    assert kilobytes * 1024 < 400 * len(footer) + (8 << 20)
    assert seconds < 5


def test_the_size_of_a_footer_is_bounded_before_pyarrow_reads_it() -> None:
    """A footer of plain columns that is larger than the bound, or has too many of them, is refused by `read`."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({f"c{number}": [1] for number in range(30)}), sink)
    data = sink.getvalue()
    size = len(footer_bytes(pa.BufferReader(data)))
    bow.parquet.read(data, limits=DEFAULT_LIMITS.replace(metadata_bytes=size, columns=30)).close()
    for limits in (DEFAULT_LIMITS.replace(metadata_bytes=size - 1), DEFAULT_LIMITS.replace(columns=29)):
        with pytest.raises(LimitExceeded):
            bow.parquet.read(data, limits=limits)
