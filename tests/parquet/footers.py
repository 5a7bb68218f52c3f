"""Files whose footers say what pyarrow does not write: the pages are pyarrow's, the schema is changed."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bowstring.parquet.footer import SchemaElement, decode_footer, encode_footer, footer_bytes, framed
from bowstring.parquet.thrift import Field, Reader, encode_list, encode_struct

__all__ = ["annotated", "elements_of", "patched", "rechunked", "written"]

Change = Callable[[list[SchemaElement]], list[SchemaElement]]


def written(table: pa.Table, **options: Any) -> bytes:
    """Return a file of a table that pyarrow writes, without an Arrow schema."""
    file = io.BytesIO()
    pq.write_table(table, file, store_schema=False, **options)
    return file.getvalue()


def patched(table: pa.Table, change: Change, **options: Any) -> bytes:
    """Return a file of a table with another schema in the footer; definition and repetition levels must agree."""
    data = written(table, **options)
    old = footer_bytes(pa.BufferReader(data))
    footer = decode_footer(old)
    schema = tuple(change(list(footer.schema)))
    new = encode_footer(dataclasses.replace(footer, schema=schema))
    return data[: len(data) - len(framed(old))] + framed(new)


def rechunked(
    data: bytes,
    change: Callable[[dict[int, Field]], dict[int, Field]] = lambda facts: facts,
    rows: Callable[[int], int] = lambda count: count,
) -> bytes:
    """Return a file whose column chunks have other metadata, by field number, and whose row groups other rows."""
    old = footer_bytes(pa.BufferReader(data))
    fields = Reader(old, 64).struct()

    def inside(struct: Any, number: int, make: Callable[[Any], bytes]) -> bytes:
        parts = struct if isinstance(struct, list) else Reader(struct, 64).struct()
        return encode_struct(
            [each._replace(value=make(each.value)) if each.id == number else each for each in parts]
        )

    def each_of(elements: Any, make: Callable[[Any], bytes]) -> bytes:
        reader = Reader(elements, 64)
        size, kind = reader.list_header()
        return encode_list(kind, [make(encode_struct(reader.struct())) for _ in range(size)])

    def facts(struct: Any) -> bytes:
        return encode_struct(change({each.id: each for each in Reader(struct, 64).struct()}).values())

    def group(struct: Any) -> bytes:
        parts = Reader(
            inside(struct, 1, lambda chunks: each_of(chunks, lambda chunk: inside(chunk, 3, facts))), 64
        ).struct()
        return encode_struct(
            [each._replace(value=rows(int(each.value))) if each.id == 3 else each for each in parts]
        )

    new = inside(fields, 4, lambda groups: each_of(groups, group))
    return data[: len(data) - len(framed(old))] + framed(new)


def annotated(values: list[Any], type_: pa.DataType, **fields: Any) -> bytes:
    """Return a file of one column, ``a``, whose element has other fields."""

    def change(schema: list[SchemaElement]) -> list[SchemaElement]:
        return [schema[0], schema[1]._replace(**fields)]

    return patched(pa.table({"a": pa.array(values, type_)}), change)


def elements_of(file: bytes) -> dict[tuple[str, ...], SchemaElement]:
    """Return the elements of a file's schema by their paths."""
    footer = decode_footer(footer_bytes(pa.BufferReader(file)))
    return {node.path: node.element for node in footer.nodes()}
