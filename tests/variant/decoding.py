"""Typed trees of single Variants, as `variant.to_python` gives them."""

from __future__ import annotations

from collections.abc import Sequence

from bowstring import Limits, variant
from bowstring.variant import Value
from tests.variant.get_columns import Row, column_of

__all__ = ["decode", "decode_all"]


def decode(metadata: bytes, value: bytes, *, limits: Limits | None = None) -> Value:
    """Return the tree of one value; it raises what is wrong with it."""
    [tree] = variant.to_python(column_of([(metadata, value)]), typed=True, limits=limits)
    assert isinstance(tree, Value)
    return tree


def decode_all(rows: Sequence[Row]) -> list[Value | None]:
    """Return the tree of each row, none of which is wrong, and nothing for an SQL NULL."""
    return variant.to_python(column_of(rows), typed=True)
