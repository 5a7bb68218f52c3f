"""Variant columns keep their meaning in files: annotated for others, found by their annotation or their mark."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring import variant
from bowstring.columnar.marks import is_variant
from bowstring.parquet.columns import variants_of
from bowstring.parquet.footer import decode_footer, encode_footer, footer_bytes, framed
from bowstring.parquet.schema import read_schema

NAME = {b"ARROW:extension:name": b"arrow.parquet.variant"}
DOCUMENTS = [
    None
    if row % 9 == 0
    else json.dumps({"a": row, "b": f"x{row}", "é": [row, None, {"c": True}]}, ensure_ascii=False)
    for row in range(500)
]
COMPACT = [
    None if each is None else json.dumps(json.loads(each), separators=(",", ":"), ensure_ascii=False)
    for each in DOCUMENTS
]


def documents() -> pa.Array:
    """Return a Variant column as a plain struct."""
    return variant.from_json(DOCUMENTS).to_arrow().storage


def marked(name: str, type_: pa.DataType) -> pa.Field:
    """Return a field that is marked as a Variant."""
    return pa.field(name, type_, metadata=NAME)


def nested() -> pa.Table:
    """Return a table with Variants at the top, in a struct, a list, a map and a list of a fixed size."""
    rows = documents()
    n, kind = len(rows), rows.type
    offsets = pa.array(range(n + 1), pa.int32())
    struct = pa.StructArray.from_arrays(
        [rows, pa.array(range(n))],
        fields=[marked("inner", kind), pa.field("n", pa.int64())],
        mask=pa.array([row % 7 == 0 for row in range(n)]),
    )
    alone = pa.StructArray.from_arrays([rows], fields=[marked("inner", kind)])
    lists = pa.ListArray.from_arrays(
        offsets,
        rows,
        type=pa.list_(marked("element", kind)),
        mask=pa.array([row % 5 == 0 for row in range(n)]),
    )
    keys = pa.array([f"k{row}" for row in range(n)])
    maps = pa.MapArray.from_arrays(offsets, keys, rows, type=pa.map_(pa.string(), marked("value", kind)))
    columns = {"struct": struct, "alone": alone, "list": lists, "map": maps}
    table = pa.table({"id": range(n), **columns})
    return table.append_column(marked("v", kind), rows)


def rows_of(table: pa.Table) -> Any:
    """Return the values of a table with nested Variants, whatever their metadata are encoded as."""
    return table.to_pylist()


def test_variants_come_back_at_any_depth(tmp_path: Path) -> None:
    """Variants inside structs, lists and maps are written and read with their marks, row group by row group."""
    table = nested()
    path = tmp_path / "v.parquet"
    bow.parquet.write((table.slice(row, 100) for row in range(0, 500, 100)), path, row_group_size=150)
    with bow.parquet.read(path) as stream:
        fields = list(variants_of(stream.schema))
        assert [each.field.name for each in fields] == ["inner", "inner", "element", "value", "v"]
        assert all(pa.types.is_dictionary(each.field.type.field("metadata").type) for each in fields)
        found = stream.read_all()
    assert rows_of(found) == rows_of(table)
    again = tmp_path / "again.parquet"
    bow.parquet.write(bow.parquet.read(path), again)
    assert rows_of(bow.parquet.read(again).read_all()) == rows_of(table)


def test_duckdb_reads_them_as_variants(tmp_path: Path, duck: Any) -> None:
    """To DuckDB every one of them is a VARIANT, of equal values."""
    path = tmp_path / "v.parquet"
    bow.parquet.write(nested(), path)
    types = dict(
        duck.execute(f"SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM '{path}')").fetchall()
    )
    assert types == {
        "id": "BIGINT",
        "struct": 'STRUCT("inner" VARIANT, n BIGINT)',
        "alone": 'STRUCT("inner" VARIANT)',
        "list": "VARIANT[]",
        "map": "MAP(VARCHAR, VARIANT)",
        "v": "VARIANT",
    }
    rows = duck.execute(
        f"SELECT v::JSON::VARCHAR, list[1]::JSON::VARCHAR, map['k' || id]::JSON::VARCHAR, "
        f"alone.\"inner\"::JSON::VARCHAR FROM '{path}' ORDER BY id"
    ).fetchall()
    for row, (top, first, value, alone) in enumerate(rows):
        assert top == value == alone == COMPACT[row]
        assert first == (None if row % 5 == 0 else COMPACT[row])


def test_variants_of_duckdb_are_read(tmp_path: Path, duck: Any) -> None:
    """Unshredded Variants that DuckDB wrote are Variant columns, of equal values, and go back to it."""
    path = tmp_path / "duck.parquet"
    duck.execute("CREATE TABLE t AS SELECT i AS id, NULL::VARIANT AS v FROM range(0) r(i)")
    for row, document in enumerate(DOCUMENTS):
        duck.execute("INSERT INTO t VALUES (?, ?::JSON::VARIANT)", [row, document])
    duck.execute("SET variant_minimum_shredding_size = -1")
    duck.execute(f"COPY t TO '{path}' (FORMAT parquet)")
    with bow.parquet.read(path) as stream:
        assert is_variant(stream.schema.field("v"))
        table = stream.read_all()
    back = tmp_path / "back.parquet"
    bow.parquet.write(table, back)
    rows = duck.execute(f"SELECT v::JSON::VARCHAR FROM '{back}' ORDER BY id").fetchall()
    assert [row for [row] in rows] == COMPACT


@settings(max_examples=25)
@given(
    st.lists(
        st.none()
        | st.recursive(
            st.none() | st.booleans() | st.integers(-(1 << 60), 1 << 60) | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
            ),
            max_leaves=12,
        ).map(lambda value: json.dumps(value, ensure_ascii=False)),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 40),
)
def test_documents_come_back(texts: list[str | None], rows: int) -> None:
    """Documents of any shape, and SQL NULLs among them, are the same values after a file."""
    try:
        column = variant.from_json(texts)
    except bow.errors.BowstringError:
        return
    sink = pa.BufferOutputStream()
    bow.parquet.write({"v": column}, sink, row_group_size=rows)
    with bow.parquet.read(sink.getvalue()) as stream:
        found = [text for batch in stream for text in variant.to_json(batch["v"]).to_arrow().to_pylist()]
    assert found == variant.to_json(column).to_arrow().to_pylist()


@pytest.mark.parametrize("binary", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
@pytest.mark.parametrize("form", ["plain", "dictionary", "runs"])
def test_every_form_of_a_variant_is_written(
    binary: pa.DataType, form: str, duck: Any, tmp_path: Path
) -> None:
    """Children in any order, of any kind of binary, with dictionary- or run-end encoded metadata, are written."""
    rows = documents()
    metadata, value = rows.field("metadata").cast(pa.binary()), rows.field("value")
    if form == "dictionary":
        metadata = metadata.dictionary_encode()
    elif form == "runs":
        metadata = pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(rows) + 1), pa.int32()), metadata)
    else:
        metadata = metadata.cast(binary)
    fields = [pa.field("value", binary), pa.field("metadata", metadata.type)]
    array = pa.StructArray.from_arrays([value.cast(binary), metadata], fields=fields, mask=rows.is_null())
    path = tmp_path / "v.parquet"
    bow.parquet.write(pa.table([array], schema=pa.schema([marked("v", array.type)])), path)
    assert [row for [row] in duck.execute(f"SELECT v::JSON::VARCHAR FROM '{path}'").fetchall()] == COMPACT
    leaves = [each.path for each in read_schema(path).columns]
    assert leaves == [("v",), ("v", "metadata"), ("v", "value")]


def test_a_value_that_is_null_is_a_variant_null(tmp_path: Path, duck: Any) -> None:
    """A row that is there and whose value is null is written as a Variant null, not as SQL NULL."""
    type_ = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
    array = pa.array(
        [{"metadata": b"\x01\x00\x00", "value": None}, None, {"metadata": None, "value": b"\x0c\x05"}], type_
    )
    path = tmp_path / "v.parquet"
    bow.parquet.write(pa.table([array], schema=pa.schema([marked("v", type_)])), path)
    rows = duck.execute(f"SELECT v IS NULL, v::JSON::VARCHAR FROM '{path}'").fetchall()
    # To DuckDB a Variant null is NULL.
    assert rows == [(True, None), (True, None), (False, "5")]
    with bow.parquet.read(path) as stream:
        assert variant.to_json(stream.read_next_batch()["v"]).to_arrow().to_pylist() == ["null", None, "5"]


def test_files_without_the_annotation_are_known_by_their_mark(tmp_path: Path) -> None:
    """A file that pyarrow wrote of a marked column is a Variant to us; without a mark it is a struct."""
    array = documents()
    path = tmp_path / "v.parquet"
    pq.write_table(pa.table([array], schema=pa.schema([marked("v", array.type)])), path)
    with bow.parquet.read(path) as stream:
        assert variant.to_json(stream.read_next_batch()["v"]).to_arrow().to_pylist() == COMPACT
    pq.write_table(pa.table({"v": array}), path)
    with bow.parquet.read(path) as stream:
        assert not is_variant(stream.schema.field("v"))
        assert stream.read_all().column("v").to_pylist() == array.to_pylist()


def test_metadata_that_differ_in_every_row(tmp_path: Path) -> None:
    """Dictionaries of metadata that outgrow a page of the file come back whole."""
    column = variant.from_json([json.dumps({f"key{row}": row}) for row in range(3000)])
    path = tmp_path / "v.parquet"
    bow.parquet.write({"v": column}, path, dictionary_pagesize_limit=1000, row_group_size=1000)
    with bow.parquet.read(path) as stream:
        found = [text for batch in stream for text in variant.to_json(batch["v"]).to_arrow().to_pylist()]
    assert found == [f'{{"key{row}":{row}}}' for row in range(3000)]
    limits = bow.DEFAULT_LIMITS.replace(window_bytes=10)
    with bow.parquet.read(path, limits=limits) as stream:
        pieces = [text for batch in stream for text in variant.to_json(batch["v"]).to_arrow().to_pylist()]
    assert pieces == found


def test_a_part_of_a_variant_is_a_struct(tmp_path: Path) -> None:
    """Leaves of a Variant can be read alone; only a whole one is a Variant."""
    path = tmp_path / "v.parquet"
    bow.parquet.write(nested(), path)
    with bow.parquet.read(path, columns=["v.value", "struct.inner", "id"]) as stream:
        top, struct, _ = stream.schema
        assert not is_variant(top)
        assert is_variant(struct.type.field("inner"))
        found = stream.read_all()
    assert [row and row["value"] for row in found["v"].to_pylist()] == [
        row and row["value"] for row in documents().to_pylist()
    ]


def test_names_with_dots(tmp_path: Path) -> None:
    """Variants whose names hold dots, and look like others' paths, keep their values."""
    array = documents()
    table = pa.table(
        [array, pa.array([{"v": row} for row in array.to_pylist()], pa.struct([("v", array.type)])), array],
        schema=pa.schema(
            [
                marked("a.v", array.type),
                pa.field("a", pa.struct([marked("v", array.type)])),
                marked("é", array.type),
            ]
        ),
    )
    path = tmp_path / "v.parquet"
    bow.parquet.write(table, path)
    with bow.parquet.read(path) as stream:
        batch = stream.read_next_batch()
    assert [each.field.name for each in variants_of(batch.schema)] == ["a.v", "v", "é"]
    assert variant.to_json(batch["a.v"]).to_arrow().to_pylist() == COMPACT
    assert batch.to_arrow().to_pylist() == table.to_pylist()


def test_the_shredded_files_are_variants(parquet_test_data: Path) -> None:
    """Every file of the shredded corpus has a column that is marked, with the nulls that pyarrow reads."""
    paths = sorted((parquet_test_data / "shredded_variant").glob("*.parquet"))
    assert len(paths) > 60
    for path in paths:
        with bow.parquet.read(path) as stream:
            assert is_variant(stream.schema.field("var"))
            found = stream.read_all()
        expected = pq.read_table(path).cast(found.schema)
        assert found.column("id").equals(expected.column("id"))
        assert (
            found.column("var")
            .combine_chunks()
            .is_valid()
            .equals(expected.column("var").combine_chunks().is_valid())
        )
        [group] = [each for each in read_schema(path).columns if each.physical is None]
        assert group.logical == "VARIANT(1)"


def test_footers_that_contradict_themselves(tmp_path: Path) -> None:
    """A Variant annotation on a group of one column, or on none that a Variant has, is read as a struct."""
    from bowstring.parquet.logical import VARIANT

    path = tmp_path / "v.parquet"
    pq.write_table(pa.table({"a": [{"x": {"y": 1}}], "b": [2]}), path)
    data = path.read_bytes()
    old = footer_bytes(pa.BufferReader(data))
    footer = decode_footer(old)
    schema = [
        each._replace(logical=VARIANT) if index in (1, 2) else each
        for index, each in enumerate(footer.schema)
    ]
    new = encode_footer(dataclasses.replace(footer, schema=tuple(schema)))
    path.write_bytes(data[: len(data) - len(framed(old))] + framed(new))
    with bow.parquet.read(path) as stream:
        assert stream.read_all().to_pydict() == {"a": [{"x": {"y": 1}}], "b": [2]}
