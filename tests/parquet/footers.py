"""Files whose footers say what pyarrow does not write: the pages are pyarrow's, the schema is changed."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tests.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Field,
    encode_integer,
    encode_list,
    encode_struct,
    list_of,
    struct,
    struct_of,
    structs,
)

MAGIC: Final = b"PAR1"
CONVERTED: Final = (
    *("UTF8", "MAP", "MAP_KEY_VALUE", "LIST", "ENUM", "DECIMAL", "DATE", "TIME_MILLIS", "TIME_MICROS"),
    *("TIMESTAMP_MILLIS", "TIMESTAMP_MICROS", "UINT_8", "UINT_16", "UINT_32", "UINT_64"),
    *("INT_8", "INT_16", "INT_32", "INT_64", "JSON", "BSON", "INTERVAL"),
)
"""Names of converted types, by their numbers."""
_LOGICAL: Final = {
    "STRING": 1,
    "MAP": 2,
    "LIST": 3,
    "ENUM": 4,
    "DECIMAL": 5,
    "DATE": 6,
    "UNKNOWN": 11,
    "JSON": 12,
    "BSON": 13,
    "UUID": 14,
    "FLOAT16": 15,
    "VARIANT": 16,
    "GEOMETRY": 17,
    "GEOGRAPHY": 18,
}
_SCHEMA: Final = 2  # of FileMetaData
_LOGICAL_TYPE: Final = 10  # of SchemaElement
_ROW_GROUPS: Final = 4  # of FileMetaData
_COLUMNS, _NUM_ROWS = 1, 3  # of RowGroup
_METADATA: Final = 3  # of ColumnChunk


class LogicalType(NamedTuple):
    """A logical type: a member of the union, and its parameters."""

    id: int
    fields: tuple[Field, ...] = ()


class SchemaElement(NamedTuple):
    """A node of the schema as the footer has it; `logical` is anything with an id and fields."""

    name: str
    physical: int | None = None
    length: int | None = None
    repetition: int | None = None
    children: int | None = None
    converted: int | None = None
    scale: int | None = None
    precision: int | None = None
    field_id: int | None = None
    logical: Any = None


_NUMBERS: Final = {
    "physical": 1,
    "length": 2,
    "repetition": 3,
    "children": 5,
    "converted": 6,
    "scale": 7,
    "precision": 8,
    "field_id": 9,
}
Change = Callable[[list[SchemaElement]], list[SchemaElement]]


def simple_type(name: str) -> LogicalType:
    """Return a logical type without parameters."""
    return LogicalType(_LOGICAL[name])


def decimal_type(precision: int, scale: int) -> LogicalType:
    """Return the type of decimals."""
    return LogicalType(_LOGICAL["DECIMAL"], (Field(1, I32, scale), Field(2, I32, precision)))


def framed(footer: bytes) -> bytes:
    """Return a footer as it stands at the end of a file."""
    return footer + len(footer).to_bytes(4, "little") + MAGIC


def footer_bytes(file: bytes) -> bytes:
    """Return the footer of a file."""
    length = int.from_bytes(file[-8:-4], "little")
    return file[-8 - length : -8]


def written(table: pa.Table, **options: Any) -> bytes:
    """Return a file of a table that pyarrow writes, without an Arrow schema."""
    file = io.BytesIO()
    pq.write_table(table, file, store_schema=False, **options)
    return file.getvalue()


def with_schema(file: bytes, change: Change) -> bytes:
    """Return a file with another schema in the footer; definition and repetition levels must agree."""
    old = footer_bytes(file)
    fields = []
    for field in struct_of(old):
        if field.id == _SCHEMA:
            assert isinstance(field.value, bytes)
            schema = change([_element(each) for each in list_of(field.value)])
            fields.append(Field(_SCHEMA, LIST, encode_list(STRUCT, list(map(_encoded, schema)))))
        else:
            fields.append(field)
    return file[: len(file) - len(framed(old))] + framed(encode_struct(fields))


def patched(table: pa.Table, change: Change, **options: Any) -> bytes:
    """Return a file of a table with another schema in the footer; definition and repetition levels must agree."""
    return with_schema(written(table, **options), change)


def rechunked(
    file: bytes,
    change: Callable[[dict[int, Field]], dict[int, Field]] = lambda facts: facts,
    rows: Callable[[int], int] = lambda count: count,
) -> bytes:
    """Return a file whose column chunks have other metadata, by field number, and whose row groups other rows."""

    def facts(struct: Any) -> bytes:
        return encode_struct(change({each.id: each for each in struct_of(struct)}).values())

    def group(struct: Any) -> bytes:
        chunked = _inside(struct, _COLUMNS, lambda chunks: _each(chunks, chunk))
        return _inside(chunked, _NUM_ROWS, lambda count: rows(int(count)))

    def chunk(struct: Any) -> bytes:
        return _inside(struct, _METADATA, facts)

    old = footer_bytes(file)
    new = _inside(old, _ROW_GROUPS, lambda groups: _each(groups, group))
    return file[: len(file) - len(framed(old))] + framed(new)


def _inside(struct: bytes, number: int, make: Callable[[Any], Any]) -> bytes:
    return encode_struct(
        each._replace(value=make(each.value)) if each.id == number else each for each in struct_of(struct)
    )


def _each(elements: bytes, make: Callable[[bytes], bytes]) -> bytes:
    return encode_list(STRUCT, list(map(make, list_of(elements))))


def annotated(values: list[Any], type_: pa.DataType, **fields: Any) -> bytes:
    """Return a file of one column, ``a``, whose element has other fields."""

    def change(schema: list[SchemaElement]) -> list[SchemaElement]:
        return [schema[0], schema[1]._replace(**fields)]

    return patched(pa.table({"a": pa.array(values, type_)}), change)


def _element(data: bytes) -> SchemaElement:
    fields = {field.id: field.value for field in struct_of(data)}
    name, logical = fields[4], fields.get(_LOGICAL_TYPE)
    assert isinstance(name, bytes)
    known: dict[str, Any] = {each: fields.get(number) for each, number in _NUMBERS.items()}
    if isinstance(logical, bytes):
        [member] = struct_of(logical)
        assert isinstance(member.value, bytes)
        known["logical"] = LogicalType(member.id, tuple(struct_of(member.value)))
    return SchemaElement(name.decode(), **known)


def _encoded(element: SchemaElement) -> bytes:
    fields = [Field(4, BINARY, element.name.encode())]
    for name, number in _NUMBERS.items():
        if (value := getattr(element, name)) is not None:
            fields.append(Field(number, I32, value))
    if element.logical is not None:
        inside = encode_struct(Field(*each) for each in element.logical.fields)
        fields.append(
            Field(_LOGICAL_TYPE, STRUCT, encode_struct([Field(element.logical.id, STRUCT, inside)]))
        )
    return encode_struct(sorted(fields))


MOST = (1 << 31) - 1
NUMBERS = b"".join(number.to_bytes(8, "little") for number in range(6))
CODECS = {None: 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4_raw": 7}


def page(body: bytes, values: int, codec: str | None = None, **claims: Any) -> bytes:
    """Return a page; `claims` are its kind, its encoding, and its size `raw` where that is another one."""
    packed = body if codec is None else pa.Codec(codec).compress(body).to_pybytes()
    kind, encoding = claims.get("kind", 0), claims.get("encoding", 0)
    if kind == 0:
        inner = (5, STRUCT, struct((1, I32, values), (2, I32, encoding), (3, I32, 3), (4, I32, 3)))
    else:
        inner = (7, STRUCT, struct((1, I32, values), (2, I32, encoding)))
    sizes = (2, I32, claims.get("raw", len(body))), (3, I32, claims.get("packed", len(packed)))
    return struct((1, I32, kind), *sizes, inner) + packed


def file(pages: list[bytes], values: int, rows: int, codec: str | None = None, **claims: Any) -> bytes:
    """Return a file of one column, ``a``; `claims` are its type, its repetition, and the rows of the file."""
    body = b"".join(pages)
    type_, begin = claims.get("type", 2), 4 + (len(pages[0]) if claims.get("dictionary") else 0)
    chunk = struct(
        (1, I32, type_),
        (2, LIST, encode_list(I32, [encode_integer(0)])),
        (3, LIST, encode_list(BINARY, [b"\1a"])),
        (4, I32, CODECS[codec]),
        (5, I64, values),
        *[(number, I64, len(body)) for number in (6, 7)],
        (9, I64, begin),
        *([(11, I64, 4)] if claims.get("dictionary") else []),
        *([(12, STRUCT, claims["statistics"])] if "statistics" in claims else []),
    )
    group = struct(
        (1, LIST, structs([struct((2, I64, 4), (3, STRUCT, chunk))])), (2, I64, len(body)), (3, I64, rows)
    )
    decimal = ((6, I32, 5), (7, I32, 0), (8, I32, 9)) if claims.get("decimal") else ()
    width = ((2, I32, claims["width"]),) if "width" in claims else ()
    column = struct(
        (1, I32, type_), *width, (3, I32, claims.get("repetition", 0)), (4, BINARY, b"a"), *decimal
    )
    footer = struct(
        (1, I32, 1),
        (2, LIST, structs([struct((4, BINARY, b"s"), (5, I32, 1)), column])),
        (3, I64, claims.get("file_rows", rows)),
        (4, LIST, structs([group])),
    )
    return MAGIC + body + framed(footer)
