"""Column chunks of hostile footers end in an error, where pyarrow alone would end the process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import bowstring as bow
from bowstring import variant
from bowstring.errors import BowstringError, InvalidMetadata, Unsupported
from bowstring.parquet.chunks import group_reader
from bowstring.parquet.file import OpenFile
from bowstring.parquet.filters import RowFilter
from bowstring.parquet.footer import decode_footer, encode_footer, footer_bytes, framed
from bowstring.parquet.thrift import (
    BINARY,
    LIST,
    STRUCT,
    Field,
    Reader,
    encode_integer,
    encode_list,
    encode_struct,
)

META_DATA, SIZES = 3, 16
PROGRAM = """
import random, sys
from tests.parquet.test_chunks import ask, damaged
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    print(seed, flush=True)
    ask(damaged(random.Random(seed)))
"""


def file() -> bytes:
    """Return a file of numbers, text, lists, and a shredded Variant, in two row groups."""
    documents = variant.from_json(pa.array(['{"a": 1, "b": "x"}', '{"a": 2}', None, '{"a": "y"}']))
    sink = pa.BufferOutputStream()
    table = {
        "n": pa.array([1, 2, None, 4]),
        "t": ["a", "b", "c", None],
        "l": [[1], [], None, [2, 3]],
        "v": documents,
    }
    bow.parquet.write(table, sink, shred={"v": pa.struct({"a": pa.int64()})}, row_group_size=2)
    return sink.getvalue().to_pybytes()


FILE = file()
OLD = footer_bytes(pa.BufferReader(FILE))


def with_footer(footer: bytes) -> bytes:
    """Return the file with another footer."""
    return FILE[: len(FILE) - len(framed(OLD))] + framed(footer)


def damaged(random: Any) -> bytes:
    """Return the file with one to three bytes of its footer changed."""
    footer = bytearray(OLD)
    for _ in range(random.randint(1, 3)):
        footer[random.randrange(len(footer))] = random.choice([0, 1, 255, random.randrange(256)])
    return with_footer(bytes(footer))


def ask(data: bytes) -> None:
    """Ask for rows by every kind of statistics; errors of ours are an answer."""
    path = variant.path("v", "$.a", pa.int64())
    for filters in ([("n", ">", 1)], [("t", "=", "a")], [(path, ">", 1)]):
        try:
            with bow.parquet.read(data, filters=filters) as stream:
                stream.read_all()
        except BowstringError:
            pass
    try:
        opened = OpenFile(data)
        opened.check_chunks(range(opened.metadata.num_columns))
        for group in range(opened.num_row_groups):
            for leaf in range(opened.metadata.num_columns):
                opened.statistics(group, leaf)
    except BowstringError:
        pass


def changed(leaf: int, change: Callable[[list[Field]], list[Field]]) -> bytes:
    """Return the file with other fields in the chunks of a column."""
    footer = decode_footer(OLD)
    reader = group_reader(footer)
    assert reader is not None
    begin = reader.position
    size, _ = reader.list_header()
    groups = []
    for _ in range(size):
        fields = []
        for field in reader.struct():
            if field.id == 1 and isinstance(field.value, bytes):
                chunks = Reader(field.value, 64)
                count, _ = chunks.list_header()
                each = [chunks.struct() for _ in range(count)]
                each[leaf] = change(each[leaf])
                field = field._replace(value=encode_list(STRUCT, list(map(encode_struct, each))))  # noqa: PLW2901
            fields.append(field)
        groups.append(encode_struct(fields))
    rest = footer.rest[:begin] + encode_list(STRUCT, groups) + footer.rest[reader.position :]
    return with_footer(encode_footer(type(footer)(footer.head, footer.schema, rest)))


def with_sizes(fields: list[Field]) -> Callable[[list[Field]], list[Field]]:
    """Return a change that gives a chunk other size statistics."""

    def change(chunk: list[Field]) -> list[Field]:
        [metadata] = [each.value for each in chunk if each.id == META_DATA]
        assert isinstance(metadata, bytes)
        data = [each for each in Reader(metadata, 64).struct() if each.id != SIZES]
        data.append(Field(SIZES, STRUCT, encode_struct(fields)))
        data.sort(key=lambda each: each.id)
        return [each._replace(value=encode_struct(data)) if each.id == META_DATA else each for each in chunk]

    return change


def levels(count: int) -> bytes:
    """Return a histogram of so many levels."""
    return encode_list(6, [encode_integer(1)] * count)


def test_row_groups_that_were_taken_apart_are_the_same() -> None:
    """A change of nothing gives the bytes of the file."""
    assert changed(0, lambda chunk: chunk) == FILE


@pytest.mark.parametrize(
    "sizes",
    [[Field(1, 6, 5)], [Field(2, LIST, levels(2))], [Field(3, LIST, levels(3))]],
    ids=["text", "repetitions", "definitions"],
)
def test_size_statistics_that_contradict_the_schema(sizes: list[Field]) -> None:
    """A filter of the column, and what pyarrow says about it, is an error; other columns can be compared."""
    data = changed(0, with_sizes(sizes))
    with pytest.raises(InvalidMetadata, match="row group 0, column n"):
        bow.parquet.read(data, filters=[("n", ">", 1)])
    with pytest.raises(InvalidMetadata, match="row group 0, column n"):
        OpenFile(data).column_chunk(1, 0)
    with bow.parquet.read(data, filters=[("t", "=", "a")], columns=["t"]) as stream:
        assert stream.read_all().num_rows == 1


def test_size_statistics_that_fit_are_no_error() -> None:
    """Histograms of the levels that the column has, or none, are what pyarrow writes."""
    data = changed(0, with_sizes([Field(2, LIST, levels(0)), Field(3, LIST, levels(2))]))
    with bow.parquet.read(data, filters=[("n", ">", 1)], columns=["n"]) as stream:
        assert stream.read_all().num_rows == 2


def test_encrypted_columns() -> None:
    """A column with a key of its own is refused by name."""
    data = changed(1, lambda chunk: [*chunk, Field(8, STRUCT, encode_struct([Field(1, STRUCT, b"\0")]))])
    with pytest.raises(Unsupported, match="encrypted"):
        bow.parquet.read(data, filters=[("t", "=", "a")])


def run(first: int, last: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(first), str(last)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))},
    )
    assert done.returncode == 0, (done.stdout.split()[-1:], done.stderr[-3000:])


def test_damaged_footers_never_end_the_process() -> None:
    """Filters of numbers, text and paths of a footer with some bytes changed end in rows or an error of ours."""
    run(0, 250)


@pytest.mark.slow
def test_many_damaged_footers_never_end_the_process() -> None:
    """The same, for more of them."""
    run(1000, 6000)


def elements(data: bytes) -> tuple[int, list[bytes]]:
    """Return the type of the elements of a list, and their bytes."""
    reader = Reader(data, 64)
    size, kind = reader.list_header()
    found = []
    for _ in range(size):
        begin = reader.position
        reader.skip(kind)
        found.append(data[begin : reader.position])
    return kind, found


Edit = Callable[[list[Field]], Iterator[tuple[str, list[Field]]]]


def edited(edit: Edit, column: int = -1) -> Iterator[tuple[str, bytes]]:
    """Yield the file with what `edit` makes of the fields of each known struct, one at a time, and what that is."""

    def of_struct(name: str, data: bytes, inner: dict[int, str]) -> Iterator[tuple[str, bytes]]:
        fields = Reader(data, 64).struct()
        for what, each in edit(fields):
            yield f"{name}.{what}", encode_struct(each)
        for place, field in enumerate(fields):
            value = field.value
            if field.id not in inner or not isinstance(value, bytes):
                continue
            known = NESTED[inner[field.id]]
            results: Iterator[tuple[str, bytes]]
            if field.kind == LIST:
                kind, parts = elements(value)
                at = column % len(parts)
                results = (
                    (what, encode_list(kind, [*parts[:at], part, *parts[at + 1 :]]))
                    for what, part in of_struct(inner[field.id], parts[at], known)
                )
            else:
                results = of_struct(inner[field.id], value, known)
            for what, other in results:
                yield (
                    what,
                    encode_struct([*fields[:place], field._replace(value=other), *fields[place + 1 :]]),
                )

    for what, data in of_struct("footer", OLD, NESTED["footer"]):
        yield what, with_footer(data)


NESTED: dict[str, dict[int, str]] = {
    "footer": {4: "group"},
    "group": {1: "chunk"},
    "chunk": {3: "metadata"},
    "metadata": {12: "statistics", 16: "sizes"},
    "statistics": {},
    "sizes": {},
}


def repeated(fields: list[Field]) -> Iterator[tuple[str, list[Field]]]:
    """Yield fields with one of them twice, in each order: the same, others, and its number + 2^16."""
    for place, field in enumerate(fields):
        others = {
            "the same": field,
            "a struct": Field(field.id, STRUCT, encode_struct([])),
            "an empty list": Field(field.id, LIST, encode_list(STRUCT, [])),
            "a long list": Field(field.id, LIST, encode_list(6, [encode_integer(9)] * 40)),
            "an I32": Field(field.id, 5, 7),
            "an I64": Field(field.id, 6, 7),
        }
        for name, other in others.items():
            yield f"{field.id} before {name}", [*fields[: place + 1], other, *fields[place + 1 :]]
            yield f"{field.id} after {name}", [*fields[:place], other, *fields[place:]]
        yield f"{field.id} with 17 bits", [*fields, field._replace(id=field.id + (1 << 16))]


def moved(fields: list[Field]) -> Iterator[tuple[str, list[Field]]]:
    """Yield fields with one of them before another that it should follow."""
    for place, field in enumerate(fields):
        rest = [*fields[:place], *fields[place + 1 :]]
        for other in range(place):
            yield f"{field.id} before {fields[other].id}", [*rest[:other], field, *rest[other:]]


def retyped(fields: list[Field]) -> Iterator[tuple[str, list[Field]]]:
    """Yield fields with one list whose elements are said to be of another type, where pyarrow does not look."""
    for place, field in enumerate(fields):
        if field.kind == LIST and isinstance(field.value, bytes) and field.value[0] >> 4:
            for kind in range(1, 14):
                if kind != field.value[0] & 15:
                    other = field._replace(value=bytes([field.value[0] & 0xF0 | kind]) + field.value[1:])
                    yield (
                        f"{field.id} of {kind}",
                        [*fields[:place], other, *fields[place + 1 :]],
                    )


def cut(fields: list[Field]) -> Iterator[tuple[str, list[Field]]]:
    """Yield fields with the bytes of one of them, and of all, shorter by one and left out."""
    for most in (-1, 0):
        short = [
            each._replace(value=each.value[:most])
            if isinstance(each.value, bytes) and each.kind == BINARY
            else each
            for each in fields
        ]
        yield f"all to {most}", short
        for place, field in enumerate(short):
            if field != fields[place]:
                yield f"{field.id} to {most}", [*fields[:place], field, *fields[place + 1 :]]


def ask_all(edit: Edit, column: int = -1) -> None:
    """Print what is asked next, and the error of what is."""
    for what, data in edited(edit, column):
        print(what, flush=True, end=": ")
        try:
            with bow.parquet.read(data) as stream:
                print("rows" if stream.read_all().num_rows else "no row groups")
        except BowstringError as error:
            print(type(error).__name__)
        ask(data)


@pytest.mark.parametrize("edit", ["repeated", "moved", "retyped"])
def test_footers_that_pyarrow_reads_otherwise_are_refused(edit: str) -> None:
    """In every known struct, a field twice or too early and a list of another type end in an error."""
    done = subprocess.run(
        [sys.executable, "-c", f"from tests.parquet import test_chunks as t; t.ask_all(t.{edit})"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))},
    )
    assert done.returncode == 0, (done.stdout[-200:], done.stderr[-3000:])
    results = dict(line.split(": ") for line in done.stdout.splitlines())
    assert {name.split(".")[0] for name in results} >= NESTED.keys() - {"chunk", "statistics"}
    assert not [name for name, end in results.items() if end == "rows"]


def test_bounds_that_are_cut_off_never_end_the_process() -> None:
    """Filters of columns whose statistics have fewer bytes than a value end in rows or an error of ours."""
    done = subprocess.run(
        [sys.executable, "-c", "from tests.parquet import test_chunks as t; t.ask_all(t.cut, 0)"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))},
    )
    assert done.returncode == 0, (done.stdout[-200:], done.stderr[-3000:])
    assert "statistics.5 to 0" in done.stdout


def test_bounds_that_are_cut_off_rule_out_no_rows() -> None:
    """Statistics whose bounds have fewer bytes than a value are as if there were none, and nothing is refused."""
    files = [(what, data) for what, data in edited(cut, 0) if what.startswith("statistics")]
    assert len(files) > 4
    with contextlib.closing(OpenFile(FILE)) as whole:
        begins = [whole.row_group_begin(group) for group in range(2)]
    for what, data in files:
        with contextlib.closing(OpenFile(data)) as opened:
            assert [opened.row_group_begin(group) for group in range(2)] == begins, what
            assert opened.column_chunk(0, 0).num_values == 2
            assert [opened.statistics(group, 0) is None for group in range(2)] == [True, False], what
            assert RowFilter([("n", "==", 1)]).row_groups(opened) == [0]
            assert RowFilter([("n", "==", 4)]).row_groups(opened) == [0, 1]
            assert RowFilter([("n", "==", 9)]).row_groups(opened) == [0]
        if not what.startswith(("statistics.1", "statistics.2")):
            continue  # pyarrow does not read integers alone in a row group whose newer bounds are cut off
        for number in (1, 2, 4, 9):
            with bow.parquet.read(data, columns=["n"], filters=[("n", "==", number)]) as stream:
                assert stream.read_all().column("n").to_pylist() == [number] * (number != 9), what
