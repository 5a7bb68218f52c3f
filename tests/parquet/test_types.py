"""Every logical type is read with its meaning, in either spelling, and nothing is read as what it is not."""

from __future__ import annotations

import contextlib
import decimal
import json
import struct
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bowstring as bow
from bowstring.errors import BowstringError, InvalidBody, InvalidData, InvalidMetadata, Unsupported
from bowstring.parquet.footer import (
    SchemaElement,
    footer_bytes,
    framed,
)
from bowstring.parquet.logical import CONVERTED, PHYSICAL, LogicalType
from bowstring.parquet.thrift import BINARY, FALSE, I8, I32, STRUCT, TRUE, Field, encode_struct
from bowstring.parquet.types import (
    LOGICAL_TYPES,
    converted_of,
    decimal_type,
    logical_of,
    meaning_of,
    simple_type,
    time_type,
)
from tests.parquet.footers import SchemaElement as Element
from tests.parquet.footers import annotated, patched

D = decimal.Decimal
DOCS = Path(__file__).parents[2] / "docs" / "parquet.md"
NEXT_UNIT = encode_struct([Field(4, STRUCT, encode_struct([]))])
MARK = b"PARQUET:logical_type"


def read(file: Any, **options: Any) -> pa.Table:
    """Return all of a file."""
    with bow.parquet.read(file, **options) as stream:
        return stream.read_all()


def integer(width: int, *, signed: bool) -> LogicalType:
    """Return the type of integers of a width."""
    return LogicalType(10, (Field(1, I8, width), Field(2, TRUE if signed else FALSE, value=signed)))


def test_the_guide_has_the_table() -> None:
    """The table of logical types in the guide is the one that the code has."""
    lines = [f"| {' | '.join(cell or '–' for cell in row)} |" for row in LOGICAL_TYPES]
    text = DOCS.read_text()
    assert "\n".join(lines) + "\n\n" in text
    text = text.split("\n## Logical types")[1].split("\n## ")[0]
    assert text.count("\n| ") == len(lines) + 1


FIXED = PHYSICAL.index("FIXED_LEN_BYTE_ARRAY")
UUIDS = [uuid.UUID(int=5), uuid.UUID(int=1 << 127)]
INTERVALS = [struct.pack("<III", 1, 2, 3), struct.pack("<III", 0, 0, 0)]
CASES: dict[str, tuple[list[Any], pa.DataType, LogicalType | None, str, pa.DataType, list[Any]]] = {
    # pages, their type, the logical type, the converted type, what they are read as, the values
    "STRING": (["a"], pa.string(), simple_type("STRING"), "UTF8", pa.string(), ["a"]),
    "ENUM": ([b"RED"], pa.binary(), simple_type("ENUM"), "ENUM", pa.string(), ["RED"]),
    "JSON": ([b"[]"], pa.binary(), simple_type("JSON"), "JSON", pa.json_(), ["[]"]),
    "BSON": ([b"\x05"], pa.binary(), simple_type("BSON"), "BSON", pa.binary(), [b"\x05"]),
    "UUID": ([each.bytes for each in UUIDS], pa.binary(16), simple_type("UUID"), "", pa.uuid(), UUIDS),
    "FLOAT16": (
        [np.float16(1.5).tobytes()],
        pa.binary(2),
        simple_type("FLOAT16"),
        "",
        pa.float16(),
        [np.float16(1.5)],
    ),
    "DATE": ([3], pa.int32(), simple_type("DATE"), "DATE", pa.date32(), [3]),
    "INTERVAL": (
        INTERVALS,
        pa.binary(12),
        None,
        "INTERVAL",
        pa.month_day_nano_interval(),
        [pa.MonthDayNano([1, 2, 3_000_000]), pa.MonthDayNano([0, 0, 0])],
    ),
    **{
        f"INT({width}, {'signed' if signed else 'unsigned'})": (
            [1, -1],
            pa.int64() if width == 64 else pa.int32(),
            integer(width, signed=signed),
            f"{'' if signed else 'U'}INT_{width}",
            getattr(pa, f"{'' if signed else 'u'}int{width}")(),
            [1, -1 if signed else (1 << width) - 1],
        )
        for width in (8, 16, 32, 64)
        for signed in (True, False)
    },
    **{
        f"DECIMAL in {type_}": (
            values,
            type_,
            decimal_type(9, 2),
            "DECIMAL",
            pa.decimal128(9, 2),
            [D("-1.28"), D("0.01")],
        )
        for values, type_ in (
            ([-128, 1], pa.int32()),
            ([b"\x80", b"\x00\x01"], pa.binary()),
            ([b"\xff\xff\xff\x80", b"\0\0\0\1"], pa.binary(4)),
        )
    },
    "DECIMAL in int64": (
        [-128, 1],
        pa.int64(),
        decimal_type(18, 2),
        "DECIMAL",
        pa.decimal128(18, 2),
        [D("-1.28"), D("0.01")],
    ),
    "DECIMAL of 76 digits": (
        [(10**76 - 1).to_bytes(32, "big")],
        pa.binary(32),
        decimal_type(76, 0),
        "DECIMAL",
        pa.decimal256(76, 0),
        [D(10**76 - 1)],
    ),
    **{
        f"{name}({unit})": (
            [7],
            pa.int32() if (name, unit) == ("TIME", "MILLIS") else pa.int64(),
            time_type(name, unit, utc=True),
            "" if unit == "NANOS" else f"{name}_{unit}",
            type_,
            [7],
        )
        for name, unit, type_ in (
            ("TIME", "MILLIS", pa.time32("ms")),
            ("TIME", "MICROS", pa.time64("us")),
            ("TIME", "NANOS", pa.time64("ns")),
            ("TIMESTAMP", "MILLIS", pa.timestamp("ms", "UTC")),
            ("TIMESTAMP", "MICROS", pa.timestamp("us", "UTC")),
            ("TIMESTAMP", "NANOS", pa.timestamp("ns", "UTC")),
        )
    },
}


@pytest.mark.parametrize("spelling", ["logical", "converted", "both"])
@pytest.mark.parametrize("name", CASES)
def test_each_spelling_is_read(name: str, spelling: str) -> None:
    """A logical type and its old spelling are the same type with the same values; nulls stay null."""
    pages, stored, logical, converted, type_, values = CASES[name]
    fields: dict[str, Any] = {"logical": None, "converted": None}
    if spelling != "converted":
        fields["logical"] = logical
    if spelling != "logical":
        fields["converted"] = CONVERTED.index(converted) if converted else None
    if fields == {"logical": None, "converted": None}:
        pytest.skip("there is no such spelling")
    if converted == "DECIMAL" and logical is not None:
        fields |= {"precision": logical.parameter(2), "scale": logical.parameter(1)}
    file = annotated([*pages, None], stored, **fields)
    found = read(file)
    assert found.schema.field("a").type == type_
    expected = (
        pa.array(values, type_).to_pylist() if all(isinstance(each, int) for each in values) else values
    )
    assert found["a"].to_pylist() == [*expected, None]
    [column] = bow.parquet.read_schema(file).columns
    assert column.arrow == type_


def test_the_table_says_what_annotates_what() -> None:
    """Each logical type is taken on the physical types of its row, in both spellings, and on no other."""
    units = {row.logical for row in LOGICAL_TYPES if row.logical.startswith("TIME")}
    of_cases = [each[2] for each in CASES.values() if each[2] is not None and each[2].name != "DECIMAL"]
    for logical in [*of_cases, decimal_type(1, 0), simple_type("UNKNOWN")]:
        name = str(logical) if logical.name == "INT" else logical.name
        if logical.name.startswith("TIME"):
            name = f"{logical.name}({logical.unit})"
            units.discard(name)
        rows = [row for row in LOGICAL_TYPES if row.logical == name]
        assert rows, name
        for physical in range(len(PHYSICAL)):
            length = {"UUID": 16, "FLOAT16": 2}.get(logical.name, 5) if physical == FIXED else None
            text = f"{PHYSICAL[physical]}({length})" if length else PHYSICAL[physical]
            fits = any(row.physical in (text, "any", f"{PHYSICAL[physical]}(n)") for row in rows)
            element = SchemaElement("a", physical=physical, length=length, logical=logical)
            if fits:
                meaning_of(element)
            else:
                with pytest.raises(InvalidMetadata, match="may not"):
                    meaning_of(element)
        converted = converted_of(logical)
        assert (CONVERTED[converted] if converted is not None else "") == rows[0].converted
    assert not units


def test_old_spellings_have_a_logical_type_each() -> None:
    """All converted types but INTERVAL are spellings of a logical type, and of the one that has them."""
    for number, name in enumerate(CONVERTED):
        logical = logical_of(SchemaElement("a", physical=1, converted=number, precision=3, scale=1))
        if name == "INTERVAL":
            assert logical is None
        else:
            assert logical is not None
            assert converted_of(logical) == (CONVERTED.index("MAP") if name == "MAP_KEY_VALUE" else number)
    assert logical_of(SchemaElement("a", physical=1, converted=99)) is None


def test_marks_are_of_fields() -> None:
    """What Arrow has no type for is in the metadata of the field."""
    for name, mark in (
        ("ENUM", b"ENUM"),
        ("BSON", b"BSON"),
        ("TIME(MICROS)", b"TIME(MICROS, UTC)"),
        ("TIMESTAMP(MICROS)", None),
    ):
        pages, stored, logical, *_ = CASES[name]
        metadata = read(annotated(pages, stored, logical=logical)).schema.field("a").metadata or {}
        assert metadata.get(MARK) == mark
    local = annotated([1], pa.int64(), logical=time_type("TIME", "MICROS", utc=False))
    assert read(local).schema.field("a").metadata is None


def test_what_pyarrow_reads_of_parquet_testing_is_the_same(parquet_test_data: Path) -> None:
    """The values of all files that are no special case here are those of pyarrow."""
    special = {"int96_from_spark.parquet", "unknown-logical-type.parquet"}
    found = [
        path for path in sorted((parquet_test_data / "data").glob("*.parquet")) if path.name not in special
    ]
    assert len(found) >= 10
    for path in found:
        theirs = pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read()
        ours = read(path)
        assert ours.schema.equals(theirs.schema), path.name
        # Extremes of dates are no Python objects, and a NaN is not equal to itself.
        assert [
            column.cast(pa.string()) if column.type == pa.float16() else column for column in ours.columns
        ] == [
            column.cast(pa.string()) if column.type == pa.float16() else column for column in theirs.columns
        ], path.name


def test_typed_expectations_of_parquet_testing(parquet_test_data: Path) -> None:
    """Values that the texts beside the files have, with their types."""
    folder = parquet_test_data / "data"
    for name, type_ in (
        ("int32_decimal", pa.decimal128(4, 2)),
        ("int64_decimal", pa.decimal128(10, 2)),
        ("byte_array_decimal", pa.decimal128(4, 2)),
        ("fixed_length_decimal", pa.decimal128(25, 2)),
        ("fixed_length_decimal_legacy", pa.decimal128(13, 2)),
    ):
        found = read(folder / f"{name}.parquet")["value"]
        assert found.type == type_
        assert found.to_pylist() == [D(number).quantize(D("0.01")) for number in range(1, 25)]
    halves = read(folder / "float16_nonzeros_and_nans.parquet")["x"]
    assert halves.type == pa.float16()
    assert repr(halves.to_pylist()) == "[None, 1.0, -2.0, nan, 0.0, -1.0, -0.0, 2.0]"
    maps = read(folder / "map_no_value.parquet")
    assert maps["my_map_no_v"].to_pylist() == maps["my_list"].to_pylist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert maps["my_map"].to_pylist()[0] == [(1, None), (2, None), (3, None)]
    assert read(folder / "old_list_structure.parquet")["a"].to_pylist() == [[[1, 2], [3, 4]]]
    days = read(folder / "int96_from_spark.parquet")["a"].cast(pa.int64()).to_pylist()
    assert days == [
        1704141296123456,
        1704070800000000,
        253402225200000000,
        1735599600000000,
        None,
        9089380393200000000,
    ]


def test_an_unknown_logical_type_passes_through(parquet_test_data: Path) -> None:
    """It is read as its physical type with one warning that names it, and not where it is left out."""
    path = parquet_test_data / "data" / "unknown-logical-type.parquet"
    with pytest.warns(
        UserWarning, match="column with unknown type has the unknown logical type 2555"
    ) as caught:
        found = read(path)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert found["column with unknown type"].to_pylist() == [
        f"unknown string {number}".encode() for number in (1, 2, 3)
    ]
    assert read(path, columns=["column with known type"])["column with known type"].type == pa.string()
    group = patched(
        pa.table({"a": [{"x": 1}]}),
        lambda schema: [schema[0], schema[1]._replace(logical=LogicalType(42)), *schema[2:]],
    )
    with pytest.warns(UserWarning, match="unknown logical type 42"):
        assert read(group)["a"].to_pylist() == [{"x": 1}]
    with pytest.warns(UserWarning, match="unknown converted type 77"):
        assert read(annotated([b"a"], pa.binary(), converted=77))["a"].to_pylist() == [b"a"]
    edges = LogicalType(18, (Field(2, I32, 9),))
    with pytest.warns(UserWarning, match="unknown edges 9"):
        assert read(annotated([b"a"], pa.binary(), logical=edges)).schema.field("a").metadata is None


@pytest.mark.parametrize(
    ("stored", "values", "logical", "name"),
    [
        (
            pa.int64(),
            [1],
            LogicalType(8, (Field(1, TRUE, value=True), Field(2, STRUCT, NEXT_UNIT))),
            "unknown unit 4",
        ),
        (
            pa.int32(),
            [1],
            LogicalType(7, (Field(1, TRUE, value=True), Field(2, STRUCT, NEXT_UNIT))),
            "unknown unit 4",
        ),
        (pa.binary(), [b"\1"], decimal_type(77, 0), "precision=77"),
        (pa.binary(40), [bytes(40)], decimal_type(90, 3), "precision=90"),
    ],
    ids=["TIMESTAMP", "TIME", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"],
)
def test_what_arrow_has_no_type_for_is_unsupported_alone(
    stored: pa.DataType, values: list[Any], logical: LogicalType, name: str
) -> None:
    """A column of such a type is refused by its name; the others of the file are read, also by filters."""
    table = pa.table({"a": pa.array(values * 3, stored), "b": [1, 2, 3]})
    file = patched(
        table,
        lambda schema: [schema[0], schema[1]._replace(logical=logical, converted=None), schema[2]],
        row_group_size=1,
    )
    with pytest.raises(Unsupported, match=f"{name}.*found a.*columns"):
        bow.parquet.read(file)
    with pytest.raises(Unsupported, match=name):
        bow.parquet.read(file, columns=["b"], filters=[("a", "==", 1)])
    assert read(file, columns=["b"]).to_pydict() == {"b": [1, 2, 3]}
    with bow.parquet.read(file, columns=["b"], filters=[("b", ">", 1)]) as stream:
        assert [batch["b"].to_pylist() for batch in stream] == [[2], [3]]
    found = bow.parquet.read_schema(file)
    assert [column.arrow for column in found.columns] == [None, pa.int64()]
    assert "not read" in str(found)


WRONG: dict[str, tuple[pa.DataType, dict[str, Any]]] = {
    "STRING on INT64": (pa.int64(), {"logical": simple_type("STRING")}),
    "UTF8 on INT64": (pa.int64(), {"converted": CONVERTED.index("UTF8")}),
    "UUID of 12 bytes": (pa.binary(12), {"logical": simple_type("UUID")}),
    "INTERVAL of 16 bytes": (pa.binary(16), {"converted": CONVERTED.index("INTERVAL")}),
    "INT(24)": (pa.int32(), {"logical": integer(24, signed=True)}),
    "INT(64) on INT32": (pa.int32(), {"logical": integer(64, signed=True)}),
    "LIST on INT64": (pa.int64(), {"logical": simple_type("LIST")}),
    "VARIANT on a column": (pa.binary(), {"logical": simple_type("VARIANT")}),
    "GEOMETRY of fixed length": (pa.binary(12), {"logical": simple_type("GEOMETRY")}),
    "TIME without a unit": (pa.int64(), {"logical": LogicalType(7, (Field(1, TRUE, value=True),))}),
    "TIME(MILLIS) on INT64": (pa.int64(), {"logical": time_type("TIME", "MILLIS", utc=True)}),
    "10 digits in INT32": (pa.int32(), {"logical": decimal_type(10, 0)}),
    "19 digits in INT64": (pa.int64(), {"logical": decimal_type(19, 0)}),
    "3 digits in a byte": (pa.binary(1), {"logical": decimal_type(3, 0)}),
    "no digits": (pa.int32(), {"logical": decimal_type(0, 0)}),
    "a negative scale": (pa.int32(), {"logical": decimal_type(5, -1)}),
    "a scale beyond the precision": (pa.int32(), {"logical": decimal_type(5, 6)}),
    "DECIMAL without precision": (pa.int32(), {"converted": CONVERTED.index("DECIMAL")}),
    "DECIMAL on DOUBLE": (pa.float64(), {"logical": decimal_type(5, 2)}),
}


@pytest.mark.parametrize("name", WRONG)
def test_annotations_that_contradict_their_column(name: str) -> None:
    """A logical type where it may not be, or with parameters that are none, is an error that names the column."""
    type_, fields = WRONG[name]
    with pytest.raises(InvalidMetadata, match="column a"):
        bow.parquet.read(annotated([None], type_, **fields))


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8, 9, 16, 17, 32])
def test_digits_of_a_fixed_length(length: int) -> None:
    """A decimal of n bytes has as many digits as fit in all its values, and no more."""
    most = len(str(2 ** (8 * length - 1) - 1)) - 1
    element = SchemaElement("a", physical=FIXED, length=length, logical=decimal_type(most, 0))
    meaning_of(element)
    with pytest.raises(InvalidMetadata):
        meaning_of(element._replace(logical=decimal_type(most + 1, 0)))


def test_a_decimal_that_is_too_wide_is_warned_of() -> None:
    """Fewer than ten digits in INT64 are read with a warning, as the specification asks."""
    file = annotated([128], pa.int64(), logical=decimal_type(5, 2))
    with pytest.warns(UserWarning, match="INT32 is enough"):
        assert read(file)["a"].to_pylist() == [D("1.28")]


def test_intervals_beyond_arrow() -> None:
    """Months or days beyond 31 bits are an error that names the row; milliseconds never are."""
    for months, days in ((1 << 31, 0), (0, (1 << 32) - 1)):
        rows = [struct.pack("<III", 1, 1, 1), None, struct.pack("<III", months, days, 0)]
        with pytest.raises(InvalidBody, match="column a, row 2"):
            read(annotated(rows, pa.binary(12), converted=CONVERTED.index("INTERVAL")))
    most = struct.pack("<III", (1 << 31) - 1, (1 << 31) - 1, (1 << 32) - 1)
    [found] = read(annotated([most], pa.binary(12), converted=CONVERTED.index("INTERVAL")))["a"].to_pylist()
    assert found == ((1 << 31) - 1, (1 << 31) - 1, ((1 << 32) - 1) * 1_000_000)


def test_unknown_columns_are_null() -> None:
    """A column that is UNKNOWN is null; values that are there after all are an error."""
    found = read(annotated([None, None], pa.int64(), logical=simple_type("UNKNOWN")))
    assert found.schema.field("a").type == pa.null()
    assert len(found) == 2
    with pytest.raises(InvalidBody, match="UNKNOWN"):
        read(annotated([None, 3], pa.int64(), logical=simple_type("UNKNOWN")))


JULIAN = 2440588
DAY_NANOS = 86_400 * 10**9


def int96(values: list[tuple[int, int] | None]) -> bytes:
    """Return a file of a day and nanoseconds each."""
    rows = [None if each is None else struct.pack("<qi", each[1], each[0]) for each in values]
    return annotated(rows, pa.binary(12), physical=PHYSICAL.index("INT96"), length=None)


@settings(max_examples=200)
@given(
    st.tuples(
        st.integers(-(1 << 31), (1 << 31) - 1)
        | st.integers(JULIAN - 107_000, JULIAN + 107_000)
        | st.sampled_from([JULIAN - 106_752, JULIAN + 106_751, JULIAN - 106_751_992, JULIAN + 106_751_991]),
        st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, DAY_NANOS - 1),
    ),
    st.sampled_from(["us", "ns"]),
)
def test_int96_is_exact_or_an_error(value: tuple[int, int], unit: str) -> None:
    """Every INT96 is the timestamp that it says, rounded down; or, beyond 64 bits of the unit, an error."""
    day, nanos = value
    per = 1000 if unit == "us" else 1
    exact = ((day - JULIAN) * DAY_NANOS + nanos) // per
    fits = -(1 << 63) <= exact < 1 << 63
    # Years that Spark wraps around when it writes them.
    wraps = unit == "us" and not fits and -(1 << 63) <= (day * DAY_NANOS + nanos) // per < 1 << 63
    if not fits and not wraps:
        with pytest.raises(InvalidBody, match="column a, row 0"):
            read(int96([value]), int96=unit)
        return
    [found] = read(int96([value]), int96=unit)["a"].cast(pa.int64()).to_pylist()
    assert (found - exact) % (1 << 64) == 0
    assert wraps or found == exact


def test_int96_inside_lists_and_beside_nulls() -> None:
    """INT96 of any place in a schema is read, and what is hidden by nulls is not looked at."""
    assert read(int96([None, (JULIAN, 1000), None]))["a"].cast(pa.int64()).to_pylist() == [None, 1, None]
    values = [[struct.pack("<qi", 2000, JULIAN), None], None, []]
    table = pa.table({"a": pa.array(values, pa.list_(pa.binary(12)))})
    file = patched(
        table,
        lambda schema: [*schema[:3], schema[3]._replace(physical=PHYSICAL.index("INT96"), length=None)],
    )
    found = read(file)["a"]
    assert found.type.value_type == pa.timestamp("us")
    assert found.cast(pa.list_(pa.int64())).to_pylist() == [[2, None], None, []]
    with bow.parquet.read(file, columns=["a.list.element"]) as stream:
        assert stream.schema.field("a").type.value_type == pa.timestamp("us")


INTS = pa.list_(pa.field("element", pa.int32(), nullable=False))
ONE = pa.list_(pa.field("element", pa.struct([pa.field("x", pa.int32())]), nullable=False))
TWO = pa.list_(
    pa.field(
        "element",
        pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.int32())]),
        nullable=False,
    )
)
DEEP = pa.list_(pa.field("element", INTS, nullable=False))


def repeated(element: Element, name: str = "array") -> Element:
    """Return an element that repeats."""
    return element._replace(repetition=2, name=name)


@pytest.mark.parametrize(
    ("type_", "value", "change", "expected"),
    [
        (INTS, [1, 2], lambda s: [s[0], s[1], repeated(s[3], "element")], pa.list_(pa.int32())),
        (TWO, [{"x": 1, "y": 2}], lambda s: [s[0], s[1], repeated(s[3]), *s[4:]], pa.list_(TWO.value_type)),
        (DEEP, [[1, 2], [3]], lambda s: [s[0], s[1], repeated(s[3]), repeated(s[5])], pa.list_(INTS)),
        (ONE, [{"x": 1}], lambda s: [s[0], s[1], repeated(s[3]), *s[4:]], pa.list_(ONE.value_type)),
        (
            ONE,
            [{"x": 1}],
            lambda s: [s[0], s[1], repeated(s[3], "a_tuple"), *s[4:]],
            pa.list_(ONE.value_type),
        ),
        (ONE, [{"x": 1}], lambda s: [s[0], s[1], repeated(s[3], "element"), *s[4:]], pa.list_(pa.int32())),
    ],
    ids=["1", "2", "3", "4: array", "4: name_tuple", "5"],
)
def test_the_five_rules_for_lists(
    type_: pa.DataType, value: list[Any], change: Any, expected: pa.DataType
) -> None:
    """Lists of two levels are read by the backward-compatibility rules, whatever their names are."""
    file = patched(pa.table({"a": pa.array([value, None, []], type_)}), change)
    found = read(file)["a"]
    names = ("array", "a_tuple", "element", "item", "x")
    assert _nameless(found.type, names) == _nameless(expected, names)
    inside = pa.types.is_struct(expected.value_type) or pa.types.is_list(expected.value_type)
    plain = value if inside or type_ is INTS else [each["x"] for each in value]
    assert found.to_pylist() == [plain, None, []]


def _nameless(type_: pa.DataType, names: tuple[str, ...]) -> str:
    text = str(type_)
    for name in names:
        text = text.replace(f"<{name}: ", "<")
    return text.replace(" not null", "")


def test_repeated_without_annotation(parquet_test_data: Path) -> None:
    """A repeated column without annotation is a list that is there, of values that are there."""
    schema = pa.schema([pa.field("a", INTS, nullable=False)])
    table = pa.table([pa.array([[1, 2], []], INTS)], schema=schema)
    found = read(patched(table, lambda s: [s[0], repeated(s[3], "a")]))
    assert found["a"].to_pylist() == [[1, 2], []]
    assert not found.schema.field("a").nullable
    assert not found.schema.field("a").type.value_field.nullable
    phones = read(parquet_test_data / "data" / "repeated_no_annotation.parquet")["phoneNumbers"].to_pylist()
    assert phones[:3] == [None, None, {"phone": []}]
    assert {"phone": [{"number": 5555555555, "kind": None}]} in phones


@pytest.mark.parametrize("outer", ["MAP", "MAP_KEY_VALUE"])
@pytest.mark.parametrize("inner", [None, "MAP_KEY_VALUE"])
def test_old_maps(outer: str, inner: str | None) -> None:
    """Maps by their old spellings have keys and values by position, and keep pairs of equal keys in order."""
    pairs = [("a", 1), ("a", 2), ("b", None)]

    def change(schema: list[Element]) -> list[Element]:
        root, group, repeats, key, value = schema
        return [
            root,
            group._replace(logical=None, converted=CONVERTED.index(outer)),
            repeats._replace(name="map", converted=CONVERTED.index(inner) if inner else None),
            key._replace(name="str"),
            value._replace(name="num"),
        ]

    file = patched(pa.table({"m": pa.array([pairs, None, []], pa.map_(pa.string(), pa.int32()))}), change)
    found = read(file)["m"]
    assert pa.types.is_map(found.type)
    assert found.to_pylist() == [pairs, None, []]
    assert dict(found[0].as_py()) == {"a": 2, "b": None}


def test_a_schema_of_all_types_in_text() -> None:
    """The text of a schema has the physical, the logical and the Arrow type of each column, and its mark."""
    file = annotated([b"RED"], pa.binary(), logical=simple_type("ENUM"))
    found = bow.parquet.read_schema(file)
    assert str(found).splitlines()[1].split("  ")[2:] == ["BYTE_ARRAY", "ENUM", "string, marked ENUM"] or str(
        found
    ).endswith("string, marked ENUM")
    assert found.columns[0].mark == "ENUM"
    geometry = annotated([b""], pa.binary(), logical=LogicalType(17, (Field(1, BINARY, b"EPSG:5070"),)))
    assert bow.parquet.read_schema(geometry).columns[0].mark == "geoarrow.wkb"


FILES = [
    annotated(pages, stored, logical=logical) for pages, stored, logical, *_ in CASES.values() if logical
]


@settings(max_examples=300)
@given(st.sampled_from(FILES), st.data())
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damaged_footers_end_in_an_error_or_a_table(file: bytes, data: st.DataObject) -> None:
    """A footer with other bytes gives rows of its columns, or one of our errors; never another one."""
    footer = bytearray(footer_bytes(pa.BufferReader(file)))
    for _ in range(data.draw(st.integers(1, 3))):
        footer[data.draw(st.integers(0, len(footer) - 1))] = data.draw(st.integers(0, 255))
    damaged = file[: len(file) - len(footer) - 8] + framed(bytes(footer))
    try:
        with bow.parquet.read(damaged) as stream:
            for batch in stream:
                batch.to_arrow()
    except BowstringError:
        pass


@settings(max_examples=200)
@given(
    st.builds(
        SchemaElement,
        name=st.just("a"),
        physical=st.integers(0, 7),
        length=st.none() | st.integers(-1, 40),
        repetition=st.integers(0, 2),
        converted=st.none() | st.integers(-1, 30),
        scale=st.none() | st.integers(-2, 90),
        precision=st.none() | st.integers(-2, 90),
        logical=st.none()
        | st.builds(
            LogicalType,
            st.integers(1, 25),
            st.just(())
            | st.tuples(st.builds(Field, st.just(1), st.just(I32), st.integers(-2, 90)))
            | st.tuples(
                st.builds(Field, st.just(1), st.just(TRUE), st.booleans()),
                st.just(Field(2, STRUCT, encode_struct([Field(2, STRUCT, encode_struct([]))]))),
            ),
        ),
    )
)
def test_any_element_has_a_meaning_or_an_error(element: SchemaElement) -> None:
    """Whatever an element says, it means something, or is an error of ours."""
    with contextlib.suppress(InvalidData):
        meaning_of(element)
    assert json.dumps(element.logical_type) is not None
