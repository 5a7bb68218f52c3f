"""Every type goes through a file and back, the footer is what the specification asks for, and others read it."""

from __future__ import annotations

import io
import struct
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.errors import Unsupported
from bowstring.parquet.columns import children_of, with_children
from bowstring.parquet.logical import CONVERTED
from bowstring.parquet.types import LOGICAL_TYPES
from tests import strategies
from tests.parquet.elements import elements_of, has_order
from tests.parquet.logical_types import (
    COLUMNS,
    INTERVAL,
    INTERVALS,
    NOT_IN_DUCKDB,
    TABLE,
    D,
    assert_same,
    file_of,
    marked,
    read,
)


def test_a_table_of_all_types_comes_back() -> None:
    """Schema, metadata and values of a table with every type are the same after a file."""
    assert_same(read(file_of(TABLE)), TABLE)
    assert_same(read(file_of(TABLE, row_group_size=1)), TABLE)
    again = read(file_of(read(file_of(TABLE))))
    assert_same(again, TABLE)
    sliced = TABLE.slice(1, 2)
    assert_same(read(file_of(sliced)), sliced)
    assert_same(read(file_of(TABLE.slice(0, 0))), TABLE.slice(0, 0))


def test_columns_come_back_alone() -> None:
    """Each column that is read alone, and each leaf of it, is what it is among the others."""
    file = file_of(TABLE)
    for name in TABLE.schema.names:
        assert_same(read(file, columns=[name]), TABLE.select([name]))
    [found] = read(file, columns=["struct.i"]).columns
    assert found.to_pylist() == [{"i": INTERVALS[0]}, None, {"i": None}]


def test_footers_are_what_the_specification_asks_for() -> None:
    """Each column has the logical type of the table, on a physical type of it, with its old spelling."""
    rows = {(row.logical, row.physical): row for row in LOGICAL_TYPES}
    seen = set()
    for path, element in elements_of(file_of(TABLE, store_decimal_as_integer=True)).items():
        if element.logical is None:
            if element.converted is not None:
                assert (element.converted, element.logical_type) == (
                    CONVERTED.index("INTERVAL"),
                    "INTERVAL",
                ), path
                seen.add("INTERVAL")
            continue
        name = str(element.logical) if element.logical.name == "INT" else element.logical.name
        if name.startswith("TIME"):
            name = f"{name}({element.logical.unit})"
        physical = element.physical_type or "group"
        found = rows.get((name, physical)) or rows.get((name, "any")) or rows[name, "FIXED_LEN_BYTE_ARRAY(n)"]
        old = None if element.converted is None else CONVERTED[element.converted]
        assert (old or "") == found.converted, path
        seen.add(name if name != "DECIMAL" else f"{name} in {physical.partition('(')[0]}")
    assert {row.logical for row in LOGICAL_TYPES} - seen == {
        *("", "DECIMAL", "VARIANT"),
        # They are the physical types without an annotation.
        *("INT(32, signed)", "INT(64, signed)"),
    }
    assert {f"DECIMAL in {name}" for name in ("INT32", "INT64", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")} <= seen


def test_columns_without_an_order_have_no_bounds() -> None:
    """INTERVAL, GEOMETRY and GEOGRAPHY have neither bounds nor a column index, at any depth; all others have."""
    for wanted in (True, ["interval", "geometry", "string"]):
        file = file_of(TABLE, write_page_index=True, write_statistics=wanted)
        footer = pq.read_metadata(io.BytesIO(file))
        elements = elements_of(file)
        for index in range(footer.num_columns):
            chunk = footer.row_group(0).column(index)
            name = chunk.path_in_schema
            element = elements[tuple(name.split("."))]
            ordered = has_order(element) and name not in ("decimal in bytes", "null", "struct.t")
            ordered = ordered and (wanted is True or name == "string")
            bounded = chunk.statistics is not None and chunk.statistics.has_min_max
            assert bounded == ordered, name
            assert chunk.has_column_index == (ordered or (name == "struct.t" and wanted is True)), name
    none = pq.read_metadata(io.BytesIO(file_of(TABLE, write_statistics=False)))
    assert none.row_group(0).column(0).statistics is None


def test_deprecated_bounds_are_of_signed_orders_only() -> None:
    """The old fields for bounds are there where values are signed, and nowhere else; INT96 has no bounds at all."""
    table = pa.table(
        {
            "signed": pa.array([-1, 1]),
            "unsigned": pa.array([1, 2], pa.uint32()),
            "text": ["a", "b"],
            "decimal": pa.array([D("-1"), D("1")], pa.decimal128(5, 0)),
            "old": pa.array([1, 2], pa.timestamp("ns")),
        }
    )
    file = file_of(table, use_deprecated_int96_timestamps=True)
    assert _old_bounds(file) == [True, False, False, True, False]
    assert pq.read_metadata(io.BytesIO(file)).row_group(0).column(4).statistics is None


def _old_bounds(file: bytes) -> list[bool]:
    """Return whether each column of the first row group has the fields ``max`` (1) and ``min`` (2) of old."""
    from bowstring.parquet.footer import decode_footer, footer_bytes
    from bowstring.parquet.thrift import LIST, Reader

    reader = Reader(decode_footer(footer_bytes(pa.BufferReader(file))).rest, 64)
    last = 2
    while True:
        header = reader.header(last)
        assert header is not None
        last, kind = header
        if last == 4 and kind == LIST:
            break
        reader.skip(kind)
    reader.list_header()
    [columns] = [each.value for each in reader.struct() if each.id == 1]
    assert isinstance(columns, bytes)
    inner = Reader(columns, 64)
    size, _ = inner.list_header()
    found = []
    for _ in range(size):
        [chunk] = [each.value for each in inner.struct() if each.id == 3]
        assert isinstance(chunk, bytes)
        statistics = [each.value for each in Reader(chunk, 64).struct() if each.id == 12]
        fields = [
            each.id for value in statistics if isinstance(value, bytes) for each in Reader(value, 8).struct()
        ]
        found.append({1, 2} <= set(fields))
    return found


ORDERED = {
    "uint32": st.integers(0, (1 << 32) - 1),
    "uint64": st.integers(0, (1 << 64) - 1),
    "decimal128(20, 2)": st.integers(-(10**18), 10**18).map(lambda each: D(each).scaleb(-2)),
    "float": st.floats(width=32),
    "date32[day]": st.integers(-(1 << 18), 1 << 18),
    "string": st.text(max_size=3),
}
TYPES = {
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "decimal128(20, 2)": pa.decimal128(20, 2),
    "float": pa.float32(),
    "date32[day]": pa.date32(),
    "string": pa.string(),
}


@settings(max_examples=200)
@given(st.data(), st.sampled_from(sorted(ORDERED)), st.sampled_from(["==", "<", "<=", ">", ">="]))
def test_row_groups_are_skipped_by_the_right_order(data: st.DataObject, name: str, operator: str) -> None:
    """Filters give the rows that comparing each row gives: unsigned, decimal and float bounds, NaN and zeros."""
    type_ = TYPES[name]
    values = data.draw(st.lists(st.none() | ORDERED[name], min_size=1, max_size=8))
    wanted = data.draw(ORDERED[name])
    table = pa.table({"a": pa.array(values, type_)})
    scalar = pa.scalar(wanted, type_)
    file = file_of(table, row_group_size=2)
    compare = {"==": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
    expected = table.filter(compare[operator](table["a"], scalar))
    found = read(file, filters=[("a", operator, scalar)])
    assert repr(found.to_pydict()) == repr(expected.to_pydict())


@given(st.lists(st.none() | st.floats(width=16), min_size=1, max_size=6))
def test_bounds_of_float16(values: list[float | None]) -> None:
    """Bounds of FLOAT16 leave out NaN, are those of numbers, not of bytes, and zeros have the sign that is safe."""
    table = pa.table(
        {"a": pa.array([None if each is None else np.float16(each) for each in values], pa.float16())}
    )
    found = pq.read_metadata(io.BytesIO(file_of(table))).row_group(0).column(0).statistics
    numbers = [each for each in values if each is not None and not np.isnan(each)]
    assert found.has_min_max == bool(numbers)
    if numbers:
        least, most = (np.frombuffer(raw, np.float16)[0] for raw in (found.min_raw, found.max_raw))
        assert (least, most) == (np.float16(min(numbers)), np.float16(max(numbers)))
        assert least != 0 or np.signbit(least)
        assert most != 0 or not np.signbit(most)


def test_pyarrow_reads_all_of_it() -> None:
    """Every value is read by pyarrow, INTERVAL as the 12 bytes that it is stored in; no mark is lost."""
    file = file_of(TABLE)
    theirs = pq.read_table(io.BytesIO(file))
    inside = {"interval", "list", "large list", "pairs", "struct", "map"}
    for name in TABLE.schema.names:
        if "enum" in name:
            assert theirs[name].cast(TABLE[name].type).to_pylist() == TABLE[name].to_pylist()
        elif name not in inside:
            assert repr(theirs[name].to_pylist()) == repr(TABLE[name].to_pylist()), name
        assert (theirs.schema.field(name).metadata or {}) == (TABLE.schema.field(name).metadata or {})
    assert theirs["interval"][0].as_py() == struct.pack("<III", 1, 2, 3)


def test_duckdb_reads_what_it_can(tmp_path: Path, duck: Any) -> None:
    """DuckDB has the same values in types of its own, INTERVAL and GEOMETRY among them."""
    path = tmp_path / "all.parquet"
    bow.parquet.write(TABLE.drop_columns([*NOT_IN_DUCKDB, "pairs"]), path)
    types = dict(row[:2] for row in duck.execute(f"DESCRIBE SELECT * FROM '{path}'").fetchall())
    for name, type_ in {
        "enum": "VARCHAR",
        "json": "JSON",
        "uuid": "UUID",
        "uint8": "UTINYINT",
        "decimal in bytes": "DECIMAL(20,2)",
        "time64[us]": "TIME",
        "timestamp ms UTC": "TIMESTAMP WITH TIME ZONE",
        "timestamp us None": "TIMESTAMP",
        "interval": "INTERVAL",
        "list": "INTERVAL[]",
        "map": "MAP(VARCHAR, VARCHAR)",
    }.items():
        assert types[name] == type_, name
    assert types["geometry"].startswith("GEOMETRY")

    def text(name: str) -> list[Any]:
        return [row[0] for row in duck.execute(f"SELECT \"{name}\"::VARCHAR FROM '{path}'").fetchall()]

    assert text("interval")[:2] == ["1 month 2 days 00:00:00.003", None]
    assert text("decimal in bytes") == ["-1.28", None, "123456789.28"]
    assert text("geometry") == ["POINT (30 10)", None, "POINT (-5 60)"]
    assert text("map") == ["{a=b, a=c}", None, "{}"]
    assert text("uuid")[0] == str(uuid.UUID(int=5))
    for name in ("enum", "json", "string", "uint64", "int8", "double"):
        ours = [None if each is None else str(each) for each in TABLE[name].to_pylist()]
        assert text(name) == ours, name


def test_what_duckdb_writes_is_read(tmp_path: Path, duck: Any) -> None:
    """Types of DuckDB come back from its files: ENUM, UUID, JSON, INTERVAL, TIME, unsigned integers."""
    path = tmp_path / "duck.parquet"
    duck.execute(
        "COPY (SELECT 'a'::ENUM('a', 'b') AS e, '00000000-0000-0000-0000-000000000005'::UUID AS u, "
        "'[1]'::JSON AS j, INTERVAL '1 month 2 days 3 ms' AS i, '01:02:03'::TIME AS t, 7::UTINYINT AS n, "
        f"1.5::DECIMAL(38, 2) AS d, [INTERVAL '1 day'] AS l) TO '{path}' (FORMAT parquet)"
    )
    found = read(path.read_bytes())
    assert found.schema.field("e").metadata is None or found.schema.field("e").type == pa.string()
    assert found.schema.types[1:4] == [pa.uuid(), pa.json_(), INTERVAL]
    assert found["u"].to_pylist() == [uuid.UUID(int=5)]
    assert found["i"].to_pylist() == [(1, 2, 3_000_000)]
    assert found["l"].to_pylist() == [[(0, 1, 0)]]
    assert found["n"].type == pa.uint8()
    assert found["d"].to_pylist() == [D("1.50")]


@pytest.mark.parametrize(
    "value", [(-1, 0, 0), (0, -1, 0), (0, 0, -1_000_000), (0, 0, 1), (0, 0, 1_000_000 << 32)]
)
def test_intervals_that_parquet_has_not(value: tuple[int, int, int]) -> None:
    """A part that is negative, no whole milliseconds, or beyond 32 bits cannot be written; nulls hide nothing."""
    for values in ([None, value], [[None, value]]):
        type_ = INTERVAL if isinstance(values[1:] and values[1], tuple) else pa.list_(INTERVAL)
        with pytest.raises(Unsupported, match=r"column i, row 1"):
            file_of(pa.table({"i": pa.array(values, type_)}))


@given(st.lists(st.none() | st.integers(-(10**38) + 1, 10**38 - 1), max_size=20), st.integers(0, 5))
def test_decimals_in_bytes_are_minimal(numbers: list[int | None], skip: int) -> None:
    """Each decimal in BYTE_ARRAY is the shortest two's complement of its unscaled number, sliced or not."""
    field = pa.field("d", pa.decimal128(38, 0), metadata={"PARQUET:physical_type": "BYTE_ARRAY"})
    array = pa.array([None if each is None else D(each) for each in numbers], field.type)[skip:]
    file = file_of(pa.table([array], schema=pa.schema([field])))
    assert elements_of(file)["d",].physical_type == "BYTE_ARRAY"
    assert read(file)["d"].to_pylist() == array.to_pylist()
    from bowstring.parquet.physical import decimal_bytes

    for number, stored in zip(array.to_pylist(), decimal_bytes(array).to_pylist(), strict=True):
        if number is not None:
            shortest = ((int(number) if number >= 0 else ~int(number)).bit_length() + 8) // 8
            assert stored == int(number).to_bytes(shortest, "big", signed=True)


def test_marks_that_do_not_fit_say_nothing() -> None:
    """A mark of a type that the field is not of is metadata like others."""
    for type_, mark in (
        (pa.int64(), "ENUM"),
        (pa.string(), "BSON"),
        (pa.string(), "DECIMAL"),
        (pa.string(), "?"),
    ):
        table = pa.table([pa.nulls(1, type_)], schema=pa.schema([marked("a", type_, mark)]))
        file = file_of(table)
        assert elements_of(file)["a",].logical_type in (None, "STRING")
        assert_same(read(file), table)


LEAVES = st.sampled_from([field for field, values in COLUMNS if not pa.types.is_nested(field.type)])


def _nested(inner: st.SearchStrategy[pa.Field]) -> st.SearchStrategy[pa.Field]:
    def named(field: pa.Field, name: str) -> pa.Field:
        return field.with_name(name)

    lists = inner.map(lambda field: pa.field("l", pa.list_(named(field, "element"))))
    structs = st.lists(inner, min_size=1, max_size=3).map(
        lambda fields: pa.field(
            "s", pa.struct([named(each, f"f{number}") for number, each in enumerate(fields)])
        )
    )
    maps = inner.map(lambda field: pa.field("m", pa.map_(pa.string(), named(field, "value"))))
    return lists | structs | maps


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.recursive(LEAVES, _nested, max_leaves=4), min_size=1, max_size=3),
    st.data(),
    st.integers(1, 4),
)
def test_all_types_in_all_nesting_come_back(fields: list[pa.Field], data: st.DataObject, rows: int) -> None:
    """Whatever types are inside each other, schema and values are the same after a file."""
    schema = pa.schema([field.with_name(f"c{number}") for number, field in enumerate(fields)])
    columns = [_drawn(data, field.type, 4) for field in schema]
    table = pa.table(columns, schema=schema)
    assert_same(read(file_of(table, row_group_size=rows)), table)


def test_lists_that_are_all_empty_come_back() -> None:
    """Lists without any element come back, whatever is inside of them: an extension type beside an interval."""
    inner = pa.struct([("j", pa.json_()), ("i", pa.month_day_nano_interval())])
    lists = pa.list_(pa.field("element", inner))
    table = pa.table({"c": pa.ListArray.from_arrays([0, 0, 0], pa.nulls(0, inner), type=lists)})
    assert_same(read(file_of(table)), table)


@pytest.mark.parametrize("kind", [pa.ListViewArray, pa.LargeListViewArray], ids=["32", "64"])
@pytest.mark.parametrize("type_", [pa.null(), pa.month_day_nano_interval(), pa.json_()], ids=str)
def test_list_views_come_back(type_: pa.DataType, kind: Any) -> None:
    """List views, with nulls, overlaps and in any order, come back with what is inside of them."""
    interval = pa.array([None, pa.MonthDayNano([1, 2, 3_000_000]), None], pa.month_day_nano_interval())
    texts = pa.array(["1", None, "[]"]).cast(pa.json_())
    [inner] = [each for each in (interval, texts, pa.nulls(3)) if each.type == type_]
    view = pa.list_view if kind is pa.ListViewArray else pa.large_list_view
    numbers = pa.int32() if kind is pa.ListViewArray else pa.int64()
    starts, sizes = pa.array([1, 0, 0, 2], numbers), pa.array([2, 3, 1, 0], numbers)
    mask = pa.array([False, False, True, False])
    column = kind.from_arrays(starts, sizes, inner, type=view(pa.field("element", type_)), mask=mask)
    table = pa.table({"c": column})
    found = read(file_of(table))
    assert found.schema.equals(table.schema)
    assert found.to_pylist() == table.to_pylist()
    found.validate(full=True)


def _drawn(data: st.DataObject, type_: pa.DataType, rows: int) -> pa.Array:
    """Return values of a type, from those of the table of all types."""
    # pyarrow makes no extension arrays inside of others: they are made of their storage.
    plain = _without_extensions(type_)
    return pa.array([_value(data, plain) for _ in range(rows)], plain).cast(type_)


def _without_extensions(type_: pa.DataType) -> pa.DataType:
    if isinstance(type_, pa.BaseExtensionType):
        return type_.storage_type
    inner = [each.with_type(_without_extensions(each.type)) for each in children_of(type_)]
    return (with_children(type_, inner) if inner else None) or type_


def _value(data: st.DataObject, type_: pa.DataType) -> Any:
    if data.draw(st.booleans()):
        return None
    if pa.types.is_struct(type_):
        return {each.name: _value(data, each.type) for each in type_}
    if pa.types.is_map(type_):
        return [
            (data.draw(st.text(max_size=2)), _value(data, type_.item_type))
            for _ in range(data.draw(st.integers(0, 2)))
        ]
    if pa.types.is_nested(type_):
        return [_value(data, type_.value_type) for _ in range(data.draw(st.integers(0, 2)))]
    for field, values in COLUMNS:
        storage = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        if storage == type_:
            plain = values.storage.to_pylist() if isinstance(values, pa.ExtensionArray) else values
            return data.draw(st.sampled_from(plain))
    raise AssertionError(type_)


@settings(max_examples=30)
@given(strategies.tables())
def test_tables_of_any_type_come_back_where_they_can_be_written(batches: list[pa.RecordBatch]) -> None:
    """What is written, with INTERVAL for intervals, is read with the same values."""
    table = pa.Table.from_batches(batches)
    try:
        file = file_of(table)
    except Unsupported:
        return
    theirs = pq.ParquetFile(io.BytesIO(file)).read()
    found = read(file)
    for name, ours in zip(found.schema.names, found.columns, strict=True):
        if found.schema.names.count(name) == 1 and "interval" not in str(ours.type):
            assert repr(ours.to_pylist()) == repr(theirs[name].to_pylist())
