"""A table with a column of every type that a Parquet file has, and what of it comes back."""

from __future__ import annotations

import decimal
import io
import struct
import uuid
from typing import Any

import pyarrow as pa

import bowstring as bow
from bowstring import geo

D = decimal.Decimal
POINTS = [struct.pack("<bIdd", 1, 1, 30, 10), None, struct.pack("<bIdd", 1, 1, -5, 60)]
LINES = [struct.pack("<bII4d", 1, 2, 2, 30, 10, 10, 30), None, b"\x01\x07" + bytes(7)]
INTERVALS = [(1, 2, 3_000_000), None, ((1 << 31) - 1, 0, ((1 << 32) - 1) * 1_000_000)]
INTERVAL = pa.month_day_nano_interval()


def marked(name: str, type_: pa.DataType, mark: str) -> pa.Field:
    """Return a field of a logical type that Arrow has no type for."""
    return pa.field(name, type_, metadata={"PARQUET:logical_type": mark})


def extension(type_: pa.BaseExtensionType, values: list[Any]) -> pa.Array:
    """Return an array of an extension type."""
    return pa.ExtensionArray.from_storage(type_, pa.array(values, type_.storage_type))


COLUMNS: list[tuple[pa.Field, Any]] = [
    (pa.field("bool", pa.bool_()), [True, None, False]),
    *(
        (pa.field(str(type_), type_), [1, None, 100])
        for type_ in (
            *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
            *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
            *(pa.float16(), pa.float32(), pa.float64()),
        )
    ),
    (pa.field("string", pa.string()), ["a", None, "é"]),
    (marked("enum", pa.string(), "ENUM"), ["RED", None, "BLUE"]),
    (marked("enum in dictionary", pa.dictionary(pa.int32(), pa.string()), "ENUM"), ["RED", None, "BLUE"]),
    (marked("large enum", pa.large_string(), "ENUM"), ["RED", None, "BLUE"]),
    (marked("bson", pa.binary(), "BSON"), [b"\5\0\0\0\0", None, b"\5\0\0\0\0"]),
    (pa.field("json", pa.json_()), extension(pa.json_(), ["{}", None, "[1]"])),
    (pa.field("uuid", pa.uuid()), extension(pa.uuid(), [uuid.UUID(int=5).bytes, None, bytes([255] * 16)])),
    *(
        (pa.field(f"decimal {type_.precision}", type_), [D("-1.28"), None, D("1.28")])
        for type_ in (pa.decimal128(5, 2), pa.decimal128(12, 2), pa.decimal128(30, 2), pa.decimal256(76, 2))
    ),
    (
        pa.field("decimal in bytes", pa.decimal128(20, 2), metadata={"PARQUET:physical_type": "BYTE_ARRAY"}),
        [D("-1.28"), None, D("123456789.28")],
    ),
    (pa.field("date", pa.date32()), [1, None, -5]),
    *(
        (pa.field(str(each), each), [1, None, 5])
        for each in (pa.time32("ms"), pa.time64("us"), pa.time64("ns"))
    ),
    (marked("time utc", pa.time64("us"), "TIME(MICROS, UTC)"), [1, None, 5]),
    *(
        (pa.field(f"timestamp {unit} {zone}", pa.timestamp(unit, zone)), [1, None, -5])
        for unit in ("ms", "us", "ns")
        for zone in (None, "UTC", "Europe/Berlin")
    ),
    (pa.field("interval", INTERVAL), INTERVALS),
    (geo.field("geometry", crs="5070", crs_type="srid"), POINTS),
    (geo.field("geography", edges="spherical"), POINTS),
    (geo.field("lines", edges="karney", storage=pa.large_binary()), LINES),
    (pa.field("null", pa.null()), [None] * 3),
    (pa.field("list", pa.list_(pa.field("element", INTERVAL))), [[INTERVALS[0], None], None, []]),
    (pa.field("large list", pa.large_list(pa.field("element", INTERVAL))), [[INTERVALS[0], None], None, []]),
    (pa.field("pairs", pa.list_(pa.field("element", INTERVAL), 2)), [INTERVALS[:2], None, INTERVALS[1:]]),
    (pa.field("points", pa.list_(geo.field("element"))), [POINTS[:2], None, POINTS[2:]]),
    (
        pa.field("map", pa.map_(pa.string(), marked("value", pa.string(), "ENUM"))),
        [[("a", "b"), ("a", "c")], None, []],
    ),
    (
        pa.field(
            "struct",
            pa.struct(
                [marked("e", pa.string(), "ENUM"), pa.field("t", pa.time64("us")), pa.field("i", INTERVAL)]
            ),
        ),
        [{"e": "x", "t": None, "i": INTERVALS[0]}, None, {"e": None, "t": None, "i": None}],
    ),
]
TABLE = pa.table(
    [values if isinstance(values, pa.Array) else pa.array(values, field.type) for field, values in COLUMNS],
    schema=pa.schema([field for field, _ in COLUMNS]),
)
# DuckDB 2.0.0 refuses a file that has one of these.
NOT_IN_DUCKDB = ["bson", "time utc"]


def file_of(table: pa.Table, **options: Any) -> bytes:
    """Return the file of a table."""
    file = io.BytesIO()
    bow.parquet.write(table, file, **options)
    return file.getvalue()


def read(file: bytes, **options: Any) -> pa.Table:
    """Return all of a file."""
    with bow.parquet.read(file, **options) as stream:
        return stream.read_all()


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """Raise an error unless schemas with all metadata, and values, are the same; dictionaries may differ."""
    assert list(map(described, found.schema)) == list(map(described, expected.schema))
    assert repr(found.to_pydict()) == repr(expected.to_pydict())


def described(field: pa.Field) -> Any:
    """Return what a field is; pyarrow names the entries of a map as the map."""
    type_ = field.type
    children = [type_.key_field, type_.item_field] if pa.types.is_map(type_) else []
    if pa.types.is_nested(type_) and not children:
        children = [type_.field(index) for index in range(type_.num_fields)]
    kind = type_.id if children else type_
    size = type_.list_size if pa.types.is_fixed_size_list(type_) else None
    ordered = pa.types.is_map(type_) and type_.keys_sorted
    return (
        field.name,
        field.nullable,
        field.metadata or {},
        kind,
        size,
        ordered,
        list(map(described, children)),
    )
