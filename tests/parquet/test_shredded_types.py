"""Every physical and logical type of a ``typed_value`` is read as the specification says, or refused by name
(*Variant Shredding*, "Shredded Value Types").
"""

from __future__ import annotations

import decimal
import io
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bowstring as bow
from bowstring import variant
from bowstring.errors import BowstringError, InvalidBody, Unsupported
from bowstring.variant import Value
from tests.parquet.footers import LogicalType, SchemaElement, with_schema
from tests.parquet.thrift import I8, I32, STRUCT, Field, encode_struct
from tests.variant.encoding import metadata_bytes

D = decimal.Decimal
_TRUE, _FALSE = 1, 2
_VARIANT = LogicalType(16, (Field(1, I8, 1),))


def _decimal(precision: int, scale: int) -> LogicalType:
    return LogicalType(5, (Field(1, I32, scale), Field(2, I32, precision)))


def _of_time(member: int, unit: int, *, utc: bool) -> LogicalType:
    inside = encode_struct([Field(unit, STRUCT, encode_struct([]))])
    return LogicalType(member, (Field(1, _TRUE if utc else _FALSE, utc), Field(2, STRUCT, inside)))


def _integer(bits: int, *, signed: bool) -> LogicalType:
    return LogicalType(10, (Field(1, I8, bits), Field(2, _TRUE if signed else _FALSE, signed)))


def _file(cell: Any, type_: pa.DataType, logical: LogicalType | None) -> bytes:
    """Return a file of one row, whose ``typed_value`` is annotated as something."""
    fields = [
        pa.field("metadata", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("typed_value", type_),
    ]
    row = {"metadata": metadata_bytes(()), "value": None, "typed_value": cell}
    sink = io.BytesIO()
    pq.write_table(pa.table({"v": pa.array([row], pa.struct(fields))}), sink, store_schema=False)
    wanted = {"v": _VARIANT} if logical is None else {"v": _VARIANT, "typed_value": logical}

    def change(schema: list[SchemaElement]) -> list[SchemaElement]:
        return [
            each._replace(logical=wanted[each.name], converted=None) if each.name in wanted else each
            for each in schema
        ]

    return with_schema(sink.getvalue(), change)


def _read(file: bytes) -> Value | None:
    with bow.parquet.read(file) as stream:
        column = variant.unshred(stream.read_next_batch()["v"])
    [found] = variant.to_python(column, typed=True)
    return found


_ID = uuid.UUID("f24f9b64-81fa-49d1-b74e-8c09a6e31c56")


@pytest.mark.parametrize(
    ("cell", "type_", "logical", "expected"),
    [
        (True, pa.bool_(), None, Value("boolean", True)),
        (-128, pa.int32(), _integer(8, signed=True), Value("int8", -128)),
        (300, pa.int32(), _integer(16, signed=True), Value("int16", 300)),
        (300, pa.int32(), None, Value("int32", 300)),
        (300, pa.int32(), _integer(32, signed=True), Value("int32", 300)),
        (300, pa.int64(), None, Value("int64", 300)),
        (300, pa.int64(), _integer(64, signed=True), Value("int64", 300)),
        (1.5, pa.float32(), None, Value("float", 1.5)),
        (1.5, pa.float64(), None, Value("double", 1.5)),
        (-12345, pa.int32(), _decimal(9, 2), Value("decimal4", D("-123.45"))),
        (-12345, pa.int64(), _decimal(18, 2), Value("decimal8", D("-123.45"))),
        (b"\xff" * 4, pa.binary(4), _decimal(9, 2), Value("decimal4", D("-0.01"))),
        (b"\xff" * 8, pa.binary(8), _decimal(18, 0), Value("decimal8", D(-1))),
        (b"\x00" * 15 + b"\x05", pa.binary(16), _decimal(38, 1), Value("decimal16", D("0.5"))),
        (b"\xff", pa.binary(), _decimal(38, 38), Value("decimal16", D("-1e-38"))),
        ((10**38 - 1).to_bytes(16, "big"), pa.binary(), _decimal(38, 0), Value("decimal16", D(10**38 - 1))),
        (-1, pa.int32(), LogicalType(6), Value("date", -1)),
        (86_399_999_999, pa.int64(), _of_time(7, 2, utc=False), Value("time", 86_399_999_999)),
        (-1, pa.int64(), _of_time(8, 2, utc=True), Value("timestamp", -1)),
        (-1, pa.int64(), _of_time(8, 2, utc=False), Value("timestamp_ntz", -1)),
        (-1, pa.int64(), _of_time(8, 3, utc=True), Value("timestamp_ns", -1)),
        (-1, pa.int64(), _of_time(8, 3, utc=False), Value("timestamp_ntz_ns", -1)),
        (b"\x00\xff", pa.binary(), None, Value("binary", b"\x00\xff")),
        ("é" * 32, pa.string(), LogicalType(1), Value("string", "é" * 32)),
        (_ID.bytes, pa.binary(16), LogicalType(14), Value("uuid", _ID)),
    ],
    ids=str,
)
def test_the_types_of_the_table_are_read(
    cell: Any, type_: pa.DataType, logical: LogicalType | None, expected: Value
) -> None:
    assert _read(_file(cell, type_, logical)) == expected
    assert _read(_file(None, type_, logical)) == Value("null", None)


@pytest.mark.parametrize(
    ("type_", "logical"),
    [
        (pa.int32(), _integer(8, signed=False)),
        (pa.int32(), _integer(32, signed=False)),
        (pa.int64(), _integer(64, signed=False)),
        (pa.binary(4), None),
        (pa.binary(17), _decimal(39, 0)),
        (pa.binary(2), LogicalType(15)),
        (pa.int32(), _of_time(7, 1, utc=False)),
        (pa.int64(), _of_time(7, 2, utc=True)),
        (pa.int64(), _of_time(7, 3, utc=False)),
        (pa.int64(), _of_time(8, 1, utc=True)),
        (pa.binary(), LogicalType(4)),
        (pa.binary(), LogicalType(12)),
        (pa.binary(), LogicalType(13)),
        (pa.binary(), LogicalType(17)),
    ],
    ids=str,
)
def test_other_types_are_refused_by_the_name_of_the_rule(
    type_: pa.DataType, logical: LogicalType | None
) -> None:
    with pytest.raises(Unsupported, match="rule for the type of typed_value"):
        _read(_file(None, type_, logical))


@pytest.mark.parametrize(
    ("cell", "type_", "logical"),
    [
        (123456, pa.int32(), _decimal(4, 2)),
        (10**12, pa.int64(), _decimal(11, 2)),
        (b"\x7f" + b"\xff" * 15, pa.binary(16), _decimal(38, 2)),
        (86_400_000_000, pa.int64(), _of_time(7, 2, utc=False)),
        (-1, pa.int64(), _of_time(7, 2, utc=False)),
        (b"\xff", pa.binary(), LogicalType(1)),
    ],
    ids=str,
)
def test_values_beyond_their_type_are_errors_of_unshred(
    cell: Any, type_: pa.DataType, logical: LogicalType | None
) -> None:
    with pytest.raises(InvalidBody, match="rule"):
        _read(_file(cell, type_, logical))


def test_a_decimal_of_too_many_bytes_is_an_error() -> None:
    with pytest.raises(BowstringError):
        _read(_file((1 << 200).to_bytes(32, "big"), pa.binary(), _decimal(38, 2)))


@pytest.mark.parametrize(
    "type_",
    [
        *(
            pa.uint8(),
            pa.uint16(),
            pa.uint32(),
            pa.uint64(),
            pa.int8(),
            pa.float16(),
            pa.float64(),
            pa.date32(),
        ),
        *(
            pa.duration("s"),
            pa.timestamp("s"),
            pa.timestamp("us"),
            pa.time32("ms"),
            pa.time64("us"),
            pa.date64(),
        ),
        *(
            pa.decimal128(9, 2),
            pa.decimal256(50, 2),
            pa.binary(5),
            pa.uuid(),
            pa.string_view(),
            pa.large_string(),
        ),
        *(pa.list_(pa.int64()), pa.struct({"x": pa.int64()}), pa.map_(pa.string(), pa.int64())),
    ],
    ids=str,
)
@pytest.mark.parametrize("nested", [False, True])
def test_what_is_written_of_a_shredded_column_is_read_again(type_: pa.DataType, nested: bool) -> None:
    """A typed column is written as files have it, or refused by name before anything is written."""
    value = pa.field("value", pa.binary())
    typed = pa.field("typed_value", type_)
    if nested:
        typed = pa.field(
            "typed_value", pa.list_(pa.field("element", pa.struct([value, typed]), nullable=False))
        )
    storage = pa.struct([pa.field("metadata", pa.binary(), nullable=False), value, typed])
    marks = {b"ARROW:extension:name": b"arrow.parquet.variant", b"ARROW:extension:metadata": b""}
    inner = None if type_ in (pa.uint64(), pa.float16()) or pa.types.is_nested(type_) else pa.array([1, 0])
    if inner is not None:
        try:
            inner = inner.cast(type_)
        except pa.ArrowException:
            inner = None
    values = pa.nulls(2, type_) if inner is None else inner
    if nested:
        groups = pa.StructArray.from_arrays(
            [pa.nulls(2, pa.binary()), values], fields=list(typed.type.value_type)
        )
        values = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), groups, type=typed.type)
    metadata = pa.array([b"\x01\x00\x00"] * 2)
    array = pa.StructArray.from_arrays([metadata, pa.nulls(2, pa.binary()), values], fields=list(storage))
    batch = bow.Batch.from_arrow(
        pa.RecordBatch.from_arrays([array], schema=pa.schema([pa.field("v", storage, metadata=marks)]))
    )
    file = io.BytesIO()
    try:
        expected = variant.to_json(variant.unshred(batch["v"])).to_arrow().to_pylist()
    except Unsupported:
        with pytest.raises(Unsupported, match="column v"):
            bow.parquet.write(batch, file)
        return
    bow.parquet.write(batch, file)
    [found] = bow.parquet.read(file.getvalue())
    assert variant.to_json(variant.unshred(found["v"])).to_arrow().to_pylist() == expected
