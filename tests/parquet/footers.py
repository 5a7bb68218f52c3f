"""Files whose footers say what pyarrow does not write: the pages are pyarrow's, the schema is changed."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bowstring.parquet.footer import SchemaElement, decode_footer, encode_footer, footer_bytes, framed

__all__ = ["annotated", "elements_of", "patched", "written"]

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


def annotated(values: list[Any], type_: pa.DataType, **fields: Any) -> bytes:
    """Return a file of one column, ``a``, whose element has other fields."""

    def change(schema: list[SchemaElement]) -> list[SchemaElement]:
        return [schema[0], schema[1]._replace(**fields)]

    return patched(pa.table({"a": pa.array(values, type_)}), change)


def elements_of(file: bytes) -> dict[tuple[str, ...], SchemaElement]:
    """Return the elements of a file's schema by their paths."""
    footer = decode_footer(footer_bytes(pa.BufferReader(file)))
    return {node.path: node.element for node in footer.nodes()}
