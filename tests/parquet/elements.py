"""The elements of a file's schema as the product reads them."""

from __future__ import annotations

import pyarrow as pa

from bowstring.parquet.footer import SchemaElement, decode_footer, footer_bytes

__all__ = ["elements_of"]


def elements_of(file: bytes) -> dict[tuple[str, ...], SchemaElement]:
    """Return the elements of a file's schema by their paths."""
    footer = decode_footer(footer_bytes(pa.BufferReader(file)))
    return {node.path: node.element for node in footer.nodes()}
