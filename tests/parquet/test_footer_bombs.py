"""Footers that are small for what pyarrow would make of them are refused before it sees them."""

from __future__ import annotations

import base64
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring as bow
from bowstring.errors import BowstringError, InvalidMetadata, LimitExceeded, Truncated
from bowstring.ipc.flatbuf.builder import Builder, Reference, Scalar
from tests.parquet.footers import MAGIC, footer_bytes, framed, written
from tests.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    encode_integer,
    encode_list,
    struct,
    structs,
)

PROGRAM = """
import resource, sys
from tests.parquet.test_footer_bombs import bomb
import bowstring as bow
bow.parquet.read_schema(bomb("chunks", 2))
data = bomb(sys.argv[1], int(sys.argv[2]))
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + (256 << 20), held + (256 << 20)))
for ask in (bow.parquet.read_schema, bow.parquet.read):
    try:
        print(type(ask(data)).__name__)
    except bow.BowstringError as error:
        print(type(error).__name__)
"""


def metadata(encodings: int = 1, names: int = 1, stats: int = 0) -> bytes:
    """Return the metadata of a column chunk."""
    return struct(
        (1, I32, 1),
        (2, LIST, encode_list(I32, [encode_integer(0)] * encodings)),
        (3, LIST, encode_list(BINARY, [b"\1a"] * names)),
        (4, I32, 0),
        *[(number, I64, 1) for number in (5, 6, 7)],
        (9, I64, 4),
        (13, LIST, structs([struct((1, I32, 0), (2, I32, 0), (3, I32, 0))] * stats)),
    )


def arrow_schema(count: int) -> bytes:
    """Return an Arrow schema of a struct, so many of whose fields are one and the same."""
    builder = Builder()
    number = Reference(builder.table([Scalar("i", 64), Scalar("B", 1)]))
    name = Reference(builder.string("a"))
    child = builder.table([name, None, Scalar("B", 2), number, None, None])
    inside = Reference(builder.references([child] * count))
    struct_type = Reference(builder.table([]))
    field = builder.table([name, None, Scalar("B", 13), struct_type, None, inside])
    schema = Reference(builder.table([None, Reference(builder.references([field]))]))
    data = builder.finish(builder.table([Scalar("h", 4), Scalar("B", 1), schema, None]))
    data += bytes(-len(data) % 8)
    return b"\xff\xff\xff\xff" + len(data).to_bytes(4, "little") + data


def bomb(kind: str, count: int) -> bytes:
    """Return a file that is a footer with so many of one thing."""
    small, whole = struct((2, I64, 4)), struct((2, I64, 4), (3, STRUCT, metadata()))
    pairs = [struct((1, BINARY, b""))] * count if kind == "pairs" else []
    if kind == "arrow schema":
        pairs = [struct((1, BINARY, b"ARROW:schema"), (2, BINARY, base64.b64encode(arrow_schema(count))))]
    columns = count if kind == "chunks" else 1
    chunk = {
        "encodings": lambda: struct((2, I64, 4), (3, STRUCT, metadata(encodings=count))),
        "names": lambda: struct((2, I64, 4), (3, STRUCT, metadata(names=count))),
        "stats": lambda: struct((2, I64, 4), (3, STRUCT, metadata(stats=count))),
        "groups": lambda: small,
    }.get(kind, lambda: whole)()
    sorting = [struct((1, I32, 0), (2, TRUE, True), (3, TRUE, True))] * (count if kind == "sorting" else 0)
    group = struct(
        (1, LIST, structs([small] * count if kind in ("chunks", "false chunks") else [chunk])),
        (2, I64, 10),
        (3, I64, 1),
        (4, LIST, structs(sorting)),
    )
    element = struct((1, I32, 1), (3, I32, 0), (4, BINARY, b"a"))
    schema = [struct((4, BINARY, b"s"), (5, I32, columns)), *[element] * columns]
    footer = struct(
        (1, I32, 1),
        (2, LIST, structs(schema)),
        (3, I64, 1),
        (4, LIST, structs([group] * (count if kind == "groups" else 1))),
        (5, LIST, structs(pairs)),
    )
    return MAGIC + framed(footer)


KINDS = [
    *("chunks", "false chunks", "groups", "pairs"),
    *("encodings", "names", "stats", "sorting", "arrow schema"),
]


def run(kind: str, count: int) -> list[str]:
    """Return what read_schema and read end with, in a process that has 256 MiB for it."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, str(count)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


@pytest.mark.parametrize("kind", ["groups", "false chunks"])
def test_a_footer_takes_bounded_memory(kind: str) -> None:
    """Hundreds of thousands of row groups, or of chunks beyond the columns, are an error in little memory."""
    assert set(run(kind, 900_000)) <= {"LimitExceeded", "InvalidMetadata"}


@pytest.mark.slow
@pytest.mark.parametrize("count", [60_000, 900_000, 3_000_000])
@pytest.mark.parametrize("kind", KINDS)
def test_every_part_of_a_footer_is_bounded(kind: str, count: int) -> None:
    """Whatever there is much of, reading ends in a stream, a schema, or an error of ours."""
    assert len(run(kind, count)) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_footers_within_the_bounds_are_what_pyarrow_makes_of_them(kind: str) -> None:
    """A footer of a few of each thing is read; with tight limits, more of most are refused."""
    if kind != "false chunks":
        assert bow.parquet.read_schema(bomb(kind, 2)).columns
    if kind in ("encodings", "names"):  # of which pyarrow makes little
        return
    tight = bow.DEFAULT_LIMITS.replace(metadata_bytes=400_000, columns=40_000)
    with pytest.raises((LimitExceeded, InvalidMetadata)):
        bow.parquet.read_schema(bomb(kind, 50_000), limits=tight)


def test_arrow_schemas_that_unfold() -> None:
    """A field that is referred to many times counts as often; wide schemas of pyarrow are taken as they are."""
    with pytest.raises(LimitExceeded, match=r"Arrow schema of the footer|too many"):
        bow.parquet.read_schema(bomb("arrow schema", 100_000))
    for text in (b"no base64", b"AAAA" * 20_000):
        pair = struct((1, BINARY, b"ARROW:schema"), (2, BINARY, text + b"?" * 70_000))
        column = struct((1, I32, 1), (3, I32, 0), (4, BINARY, b"a"))
        root = struct((4, BINARY, b"s"), (5, I32, 1))
        footer = struct(
            (1, I32, 1), (2, LIST, structs([root, column])), (3, I64, 0), (5, LIST, structs([pair]))
        )
        with pytest.raises(InvalidMetadata):
            bow.parquet.read_schema(MAGIC + framed(footer))
    columns = {f"{'a long name ' * 9}{number}": pa.array([[number]]) for number in range(400)}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    with bow.parquet.read(sink.getvalue(), columns=[f"{'a long name ' * 9}7"]) as stream:
        assert stream.read_all().to_pydict() == {f"{'a long name ' * 9}7": [[7]]}


def test_wide_files_of_many_row_groups_are_read() -> None:
    """Footers that writers write are far from the bounds: of 500 columns, 40 row groups and long statistics."""
    row = {f"column {number}": pa.array(["x" * number] * 40) for number in range(500)}
    file = written(pa.table(row), row_group_size=1)
    assert len(footer_bytes(file)) > 1 << 20
    with bow.parquet.read(file, columns=["column 499"]) as stream:
        assert sum(batch.num_rows for batch in stream) == 40


def test_footers_that_end_early() -> None:
    """Every footer that is cut short, at any byte, is an error of ours."""
    footer = footer_bytes(bomb("groups", 3))
    for length in range(len(footer)):
        with (
            pytest.raises(BowstringError) as caught,
            bow.parquet.read(MAGIC + framed(footer[:length])) as stream,
        ):
            stream.read_all()
        assert not isinstance(caught.value, LimitExceeded)
    with pytest.raises((Truncated, InvalidMetadata)):
        bow.parquet.read_schema(MAGIC + framed(footer[:5]))
