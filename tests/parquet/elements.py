"""The elements of a file's schema as the product reads them."""

from __future__ import annotations

import pyarrow as pa

from bowstring.parquet.footer import SchemaElement, decode_footer, footer_bytes
from bowstring.parquet.types import INT96, INTERVAL, LOGICAL_TYPES, logical_of

__all__ = ["elements_of"]


def elements_of(file: bytes) -> dict[tuple[str, ...], SchemaElement]:
    """Return the elements of a file's schema by their paths."""
    footer = decode_footer(footer_bytes(pa.BufferReader(file)))
    return {node.path: node.element for node in footer.nodes()}


def has_order(element: SchemaElement) -> bool:
    """Return whether the values of a column have an order, so that statistics may bound them."""
    if element.physical == INT96 or (element.declared is None and element.converted == INTERVAL):
        return False
    logical = logical_of(element)
    return logical is None or logical.name not in {row.logical for row in LOGICAL_TYPES if not row.order}
