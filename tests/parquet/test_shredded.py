"""Variant columns are written shredded, and read by path, skipped by statistics and brought under one schema."""

from __future__ import annotations

import decimal
import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring import variant
from bowstring.columnar.marks import marked_field
from bowstring.errors import InvalidData, LimitExceeded, UnknownColumn, Unsupported, UsageError
from bowstring.parquet.columns import variants_of
from bowstring.parquet.file import OpenFile
from bowstring.parquet.filters import RowFilter
from bowstring.variant import Value, from_python
from tests.variant.shredded_columns import DECIMALS, LEAVES, TREES, TYPES, shredded_rows
from tests.variant.typed_values import PRIMITIVE_VALUES

# Paths and types are combined at random, so whole columns may not fit.
pytestmark = pytest.mark.filterwarnings("ignore:.* became null")

path = variant.path
DOCUMENTS = [
    {
        "a": i,
        "b": f"x{i:03d}",
        "mixed": i if i % 3 else "s",
        "list": [i, {"n": i}],
        "o": {"p": i / 2, "q": None},
    }
    for i in range(200)
]


def _written(data: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    bow.parquet.write(data, sink, **options)
    return sink.getvalue()


def _documents(file: Any, **options: Any) -> list[Any]:
    with bow.parquet.read(file, **options) as stream:
        return [row for batch in stream for row in variant.to_python(batch["v"])]


def _typed(file: bytes) -> pa.DataType:
    return bow.parquet.read(file).schema.field("v").type.field("typed_value").type


SHREDDED = _written({"v": variant.from_python(DOCUMENTS)}, shred="infer", row_group_size=50)


def test_a_shredded_file_has_the_documents_and_the_annotation() -> None:
    assert _documents(SHREDDED) == DOCUMENTS
    field = bow.parquet.read(SHREDDED).schema.field("v")
    assert field.metadata[b"ARROW:extension:name"] == b"arrow.parquet.variant"
    assert field.type.names == ["metadata", "value", "typed_value"]
    assert not field.type.field("metadata").nullable
    assert field.type.field("value").nullable


@given(st.lists(st.none() | TREES, min_size=1, max_size=6), TYPES | st.just("infer") | st.integers(1, 3))
@settings(max_examples=50)
def test_what_was_written_shredded_is_read(trees: list[Value | None], schema: Any) -> None:
    column = from_python(trees, name="v")
    with bow.parquet.read(_written({"v": column}, shred={"v": schema})) as stream:
        found = [variant.equals(batch["v"], column).to_arrow().to_pylist() for batch in stream]
    assert all(each is not False for batch in found for each in batch)


@pytest.mark.parametrize("type_", [*LEAVES, *DECIMALS], ids=str)
def test_every_type_is_written_as_the_specification_says(type_: pa.DataType) -> None:
    trees = [Value("object", {"a": leaf}) for leaf in PRIMITIVE_VALUES if len(str(leaf.value)) < 1000]
    file = _written({"v": from_python(trees, name="v")}, shred={"v": pa.struct({"a": type_})})
    wanted = pa.uuid() if type_ == pa.binary(16) else type_
    with bow.parquet.read(file, columns=[path("v", ["a"], wanted)]) as stream:
        found = stream.read_all().column(0).combine_chunks()
    twin = variant.get(from_python(trees, name="v"), ["a"], wanted).to_arrow()
    stored = [
        each.storage if type_ == pa.binary(16) and hasattr(each, "storage") else each
        for each in (found, twin)
    ]
    assert str(stored[0]) == str(stored[1])
    if pa.types.is_decimal(type_):
        physical = {9: "INT32", 18: "INT64"}.get(type_.precision, "FIXED_LEN_BYTE_ARRAY")
        assert pq.ParquetFile(io.BytesIO(file)).schema.column(3).physical_type == physical


def test_schemas_are_inferred_from_the_first_batches_of_a_stream() -> None:
    batches = [
        pa.record_batch({"v": variant.from_python([each])}) for each in (DOCUMENTS[:1], DOCUMENTS[1:2])
    ]
    del batches
    made = ({"v": variant.from_python(DOCUMENTS[k : k + 10])} for k in range(0, 200, 10))
    file = _written(made, shred=2, row_group_size=30)
    assert _documents(file) == DOCUMENTS
    assert len(_typed(file).names) == 2


def test_columns_that_are_shredded_are_written_as_they_are() -> None:
    column = variant.shred(variant.from_python(DOCUMENTS), pa.struct({"a": pa.decimal128(18, 1)}))
    file = _written({"v": column})
    assert (
        bow.parquet.read(file).schema.field("v").type.field("typed_value").type
        == column.type.field("typed_value").type
    )
    assert pq.ParquetFile(io.BytesIO(file)).schema.column(3).physical_type == "INT64"
    again = _written({"v": column}, shred={"v": pa.int64()})
    assert _typed(again) == pa.int64()
    assert _documents(again) == DOCUMENTS


@pytest.mark.parametrize("shred", [{"w": "infer"}, {"id": "infer"}])
def test_only_variant_columns_are_shredded(shred: Any) -> None:
    with pytest.raises(UnknownColumn, match="Variant column"):
        _written({"v": variant.from_python([1]), "id": pa.array([1])}, shred=shred)


@pytest.mark.parametrize("shred", ["all", 0, True, {"v": 1.5}])
def test_what_is_no_way_to_shred_is_refused(shred: Any) -> None:
    with pytest.raises(UsageError, match="no way to shred"):
        _written({"v": variant.from_python([1])}, shred=shred)
    with pytest.raises(Unsupported, match="not shredded as this type"):
        _written({"v": variant.from_python([1])}, shred=pa.uint8())


PATHS: list[tuple[Any, Any]] = [
    ("$.a", pa.int64()),
    ("$.a", pa.int16()),
    ("$.a", pa.decimal128(9, 2)),
    ("$.a", pa.string()),
    ("$.mixed", pa.int64()),
    ("$.mixed", pa.string()),
    ("$.list[0]", pa.int8()),
    ("$.list[1].n", pa.int64()),
    ("$.list", variant.type()),
    ("$.o.p", pa.decimal128(18, 1)),
    ("$.o.q", pa.int8()),
    ("$.o", pa.struct({"p": pa.decimal128(9, 1)})),
    ("$.nowhere", pa.int8()),
    ("$.a.b", pa.int8()),
    ("$", variant.type()),
    ("$", pa.map_(pa.string(), variant.type())),
]


@pytest.mark.parametrize(
    "schema", ["infer", pa.struct({"o": pa.struct({"p": pa.float64()}), "mixed": pa.string()}), None]
)
@pytest.mark.parametrize(("where", "type_"), PATHS, ids=str)
def test_a_path_is_read_as_get_reads_the_column(where: str, type_: Any, schema: Any) -> None:
    column = variant.from_python([*DOCUMENTS, None, 5, {}])
    file = _written(
        {"v": column, "id": pa.array(range(203))}, shred=schema and {"v": schema}, row_group_size=64
    )
    limits = bow.Limits(window_bytes=1)
    for each in (bow.Limits(), limits):
        with bow.parquet.read(file, columns=["id", path("v", where, type_)], limits=each) as stream:
            batches = list(stream)
            assert stream.schema.names == ["id", where]
        assert [row for batch in batches for row in batch["id"].to_arrow().to_pylist()] == list(range(203))
        found = [each for batch in batches for each in _shown(batch[where])]
        assert found == _shown(variant.get(column, where, type_))


def _shown(column: Any) -> list[Any]:
    if column.type.id == pa.lib.Type_STRUCT and "metadata" in column.type.names:
        return list(variant.to_python(column, plain=True))
    rows = column.to_arrow().to_pylist()
    if pa.types.is_map(column.type):
        return [row and [key for key, _ in row] for row in rows]
    return list(rows)


@given(st.lists(st.none() | TREES, min_size=1, max_size=6), TYPES, st.randoms(), st.data())
@settings(max_examples=60)
def test_paths_of_random_columns_are_read_as_get_reads_them(
    trees: list[Value | None], schema: pa.DataType, drawn: random.Random, data: st.DataObject
) -> None:
    column = shredded_rows(trees, schema, drawn)
    file = _written({"v": column})
    where: list[str | int] = data.draw(st.lists(st.sampled_from(["a", "b", "é", "", 0, 1]), max_size=3))
    type_ = data.draw(st.sampled_from([pa.int64(), pa.string(), pa.list_(pa.int64()), pa.float64()]))
    with bow.parquet.read(file, columns=[path("v", where, type_)]) as stream:
        [batch] = list(stream)
    assert repr(_shown(batch[0])) == repr(_shown(variant.get(column, where, type_)))


def test_columns_by_path_and_others_come_in_their_order() -> None:
    file = _written(
        {"x": pa.array([1]), "v": variant.from_python([{"a": 1, "b": 2}]), "y": pa.array([2])}, shred="infer"
    )
    columns = [path("v", "$.b", pa.int8()), "y", path("v", "$.a", pa.int8()), "v", "x"]
    with bow.parquet.read(file, columns=columns) as stream:
        assert stream.schema.names == ["$.b", "y", "$.a", "v", "x"]
        assert stream.read_all().select([0, 1, 2, 4]).to_pydict() == {
            "$.b": [2],
            "y": [2],
            "$.a": [1],
            "x": [1],
        }


def test_paths_of_what_is_no_column_are_errors() -> None:
    with pytest.raises(UnknownColumn):
        bow.parquet.read(SHREDDED, columns=[path("w", "$.b", pa.int8())])
    with pytest.raises(UsageError, match="no expression"):
        bow.parquet.read(SHREDDED, columns=[path("v", "$.b", pa.int8()) > 3])


def test_the_limits_of_a_read_bound_the_values_of_its_paths() -> None:
    limits = bow.Limits(extracted_bytes=20)
    plain = _written({"v": variant.from_python(DOCUMENTS)})
    for options in (
        {"columns": [path("v", "$.b", pa.string())]},
        {"columns": [path("v", "$.o", variant.type())]},
        {"filters": path("v", "$.b", pa.string()) == "x"},
    ):
        with (
            bow.parquet.read(plain, limits=limits, **options) as stream,
            pytest.raises(LimitExceeded, match="extracted_bytes"),
        ):
            stream.read_all()


def test_only_the_leaf_of_a_typed_column_is_read_where_all_values_are_typed() -> None:
    """The pages of all other columns are damaged."""
    metadata = pq.ParquetFile(io.BytesIO(SHREDDED)).metadata
    damaged = bytearray(SHREDDED)
    for group in range(metadata.num_row_groups):
        for leaf in range(metadata.num_columns):
            column = metadata.row_group(group).column(leaf)
            if column.path_in_schema != "v.typed_value.a.typed_value":
                first = column.dictionary_page_offset or column.data_page_offset
                damaged[first : first + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    with bow.parquet.read(bytes(damaged), columns=[path("v", "$.a", pa.int64())]) as stream:
        assert stream.read_all().column(0).to_pylist() == list(range(200))
    with pytest.raises(InvalidData):
        bow.parquet.read(bytes(damaged), columns=[path("v", "$.mixed", pa.int64())]).read_all()


A, B, P = (
    path("v", where, type_)
    for where, type_ in (("$.a", pa.int64()), ("$.b", pa.string()), ("$.o.p", pa.float64()))
)
NAN = path("v", "$.f", pa.float64())


@pytest.mark.parametrize(
    ("wanted", "groups"),
    [
        (A > 120, [2, 3]),
        (A == 7, [0]),
        ((A < 60) & (B >= "x055"), [1]),
        ((A < 60) | (B > "x150"), [0, 1, 3]),
        (A > 1000, []),
        (A.is_null(), []),
        (A.is_valid(), [0, 1, 2, 3]),
        (decimal.Decimal("80.0") < P, [3]),
        (path("v", "$.a", pa.int32()) > 1000, []),
        (path("v", "$.a", pa.decimal128(18, 0)) > decimal.Decimal("149.5"), [3]),
        (path("v", "$.a", pa.float64()) < 49.5, [0]),
        (path("v", "$.a", pa.string()) > "x", [0, 1, 2, 3]),
        (path("v", "$.mixed", pa.int64()) > 1000, [0, 1, 2, 3]),
        (path("v", "$.list[0]", pa.int64()) > 1000, [0, 1, 2, 3]),
        (path("v", "$.nowhere", pa.int64()) > 1000, [0, 1, 2, 3]),
        (path("v", "$.o.q", pa.int64()).is_valid(), [0, 1, 2, 3]),
    ],
    ids=str,
)
def test_row_groups_are_skipped_only_where_all_values_are_of_the_type(wanted: Any, groups: list[int]) -> None:
    assert RowFilter(wanted).row_groups(OpenFile(SHREDDED)) == groups


def test_nan_is_never_skipped() -> None:
    nan = float("nan")
    column = variant.from_python([{"f": 1.0}, {"f": nan}, {"f": 3.0}])
    file = _written({"v": column}, shred={"v": pa.struct({"f": pa.float64()})})
    plain = _written({"v": column})
    for wanted in (~(NAN <= 9.0), NAN != 1.0, NAN.is_nan(), NAN.is_null(nan_is_null=True), NAN.isin([nan])):
        rows, twin = (
            bow.parquet.read(each, filters=wanted, columns=[NAN]).read_all().column(0).to_pylist()
            for each in (file, plain)
        )
        assert repr(rows) == repr(twin)
        assert "nan" in repr(rows)
    assert RowFilter(NAN > 9.0).row_groups(OpenFile(file)) == []


@pytest.mark.filterwarnings("ignore:.* are not numbers:UserWarning")
@given(
    st.lists(
        st.none()
        | st.fixed_dictionaries({}, optional={"a": st.integers(-5, 5) | st.none() | st.text(max_size=1)})
    ),
    st.sampled_from(["==", "!=", "<", ">", "<=", ">="]),
    st.integers(-6, 6),
    st.sampled_from([pa.int64(), pa.int32(), pa.decimal128(18, 0)]),
)
@settings(max_examples=60)
def test_filters_give_the_rows_that_they_give_without_statistics(
    documents: list[Any], operator: str, number: int, type_: pa.DataType
) -> None:
    value = decimal.Decimal(number) if pa.types.is_decimal(type_) else number
    filters = [(path("v", "$.a", type_), operator, value)]
    found = []
    for options in (
        {"shred": {"v": pa.struct({"a": pa.int64()})}},
        {"shred": {"v": pa.struct({"a": type_})}},
        {},
    ):
        data = {"v": variant.from_python(documents), "id": pa.array(range(len(documents)))}
        file = _written(data, row_group_size=2, **options)
        with bow.parquet.read(file, columns=["id"], filters=filters) as stream:
            found.append([row for batch in stream for row in batch["id"].to_arrow().to_pylist()])
    assert found[0] == found[1] == found[2]


def _files(*schemas: Any) -> list[bytes]:
    return [
        _written({"v": variant.from_python(DOCUMENTS[k * 10 : k * 10 + 10])}, shred=schema and {"v": schema})
        for k, schema in enumerate(schemas)
    ]


@pytest.mark.parametrize(
    ("schemas", "typed"),
    [
        ([pa.struct({"a": pa.int64()}), pa.struct({"b": pa.string()})], {"a": "int64", "b": "string"}),
        ([pa.struct({"a": pa.int8()}), None, pa.struct({"a": pa.int32()})], {"a": "int32"}),
        (
            [None, pa.struct({"a": pa.int64(), "o": pa.struct({"p": pa.float64()})})],
            {"a": "int64", "o": None},
        ),
        ([pa.struct({"a": pa.int64()}), pa.struct({"a": pa.string()})], None),
        ([pa.struct({"a": pa.int64()}), pa.int64()], None),
    ],
    ids=str,
)
def test_files_that_are_shredded_in_different_ways_are_one_stream(
    schemas: list[Any], typed: dict[str, str | None] | None, tmp_path: Path
) -> None:
    files = _files(*schemas)
    for position, file in enumerate(files):
        (tmp_path / f"{position}.parquet").write_bytes(file)
    for sources in (
        files,
        [tmp_path / f"{k}.parquet" for k in range(len(files))],
        [io.BytesIO(each) for each in files],
    ):
        with bow.parquet.read(sources) as stream:
            batches = list(stream)
            assert all(batch.schema.equals(stream.schema) for batch in batches)
            type_ = stream.schema.field("v").type
        assert [row for batch in batches for row in variant.to_python(batch["v"])] == DOCUMENTS[
            : 10 * len(files)
        ]
        if typed is None:
            assert type_.names == ["metadata", "value"]
        else:
            fields = {
                each.name: each.type.field("typed_value").type for each in type_.field("typed_value").type
            }
            assert set(fields) == set(typed)
            assert all(str(fields[name]) == each for name, each in typed.items() if each)


def _inside(column: Any, kind: str) -> pa.Table:
    """Return a Variant column inside a column of another kind, with a null."""
    storage = column.to_arrow().storage
    field = marked_field(pa.field("w", storage.type))
    mask = pa.array([row == 3 for row in range(len(storage))])
    if kind == "struct":
        ids = pa.array(range(len(storage)))
        array = pa.StructArray.from_arrays(
            [ids, storage], fields=[pa.field("i", pa.int64()), field], mask=mask
        )
    elif kind == "list":
        offsets = pa.array([*range(len(storage)), len(storage)], pa.int32())
        array = pa.ListArray.from_arrays(offsets, storage, type=pa.list_(field), mask=mask)
    else:
        offsets = pa.array([*range(len(storage)), len(storage)], pa.int32())
        keys = pa.array([f"k{row}" for row in range(len(storage))])
        type_ = pa.map_(pa.field("key", pa.string(), nullable=False), field)
        array = pa.MapArray.from_arrays(offsets, keys, storage, type=type_, mask=mask)
    return pa.table([array], schema=pa.schema([pa.field("outer", array.type)]))


def _rows_inside(batch: Any, kind: str) -> list[Any]:
    outer = batch["outer"]
    held = {"struct": lambda: outer.child("w"), "list": lambda: outer.children[0]}.get(
        kind, lambda: outer.children[0].children[1]
    )()
    return list(variant.to_python(held))


@pytest.mark.parametrize("kind", ["struct", "list", "map"])
@pytest.mark.parametrize(
    ("schemas", "typed"),
    [
        ([pa.struct({"a": pa.int8()}), None, pa.struct({"a": pa.int32(), "b": pa.string()})], ["a", "b"]),
        ([pa.struct({"a": pa.int64()}), pa.struct({"a": pa.string()})], None),
    ],
    ids=str,
)
def test_variants_inside_other_columns_come_under_one_schema(
    kind: str, schemas: list[Any], typed: list[str] | None
) -> None:
    files, expected = [], []
    for number, schema in enumerate(schemas):
        documents = DOCUMENTS[number * 10 : number * 10 + 10]
        column = variant.from_python(documents)
        files.append(_written(_inside(column if schema is None else variant.shred(column, schema), kind)))
        alone = bow.parquet.read(files[-1]).read_next_batch()
        expected.append(_rows_inside(alone, kind))
        assert documents[4] in expected[-1]
    with bow.parquet.read(files) as stream:
        batches = list(stream)
        assert all(batch.schema.equals(stream.schema) for batch in batches)
        found = variants_of(stream.schema)[0].field.type
    assert [_rows_inside(batch, kind) for batch in batches] == expected
    names = [each.name for each in found.field("typed_value").type] if "typed_value" in found.names else None
    assert names == typed


def test_paths_and_filters_go_through_files_that_are_shredded_in_different_ways() -> None:
    files = _files(
        pa.struct({"a": pa.int64()}), None, pa.struct({"b": pa.string()}), pa.struct({"a": pa.string()})
    )
    with bow.parquet.read(files, columns=[A, "v"], filters=A >= 15) as stream:
        batches = list(stream)
    assert [row for batch in batches for row in batch["$.a"].to_arrow().to_pylist()] == list(range(15, 40))
    assert [row["a"] for batch in batches for row in variant.to_python(batch["v"])] == list(range(15, 40))


def test_files_whose_other_columns_differ_are_an_error() -> None:
    files = [
        _written({"v": variant.from_python([1]), "x": pa.array([each])}, shred=pa.int64())
        for each in (1, "a")
    ]
    with bow.parquet.read(files) as stream, pytest.raises(InvalidData, match="different schemas"):
        list(stream)
