"""Choosing columns by name."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from bowstring.errors import UnknownColumn

__all__ = ["column_position", "column_positions"]


def column_position(schema: pa.Schema, name: str) -> int:
    """Return the position of a column.

    Raises
    ------
    UnknownColumn
        There is no such column, or several have the name.
    """
    found = schema.get_all_field_indices(name)
    if len(found) == 1:
        return int(found[0])
    what = "several columns have this name" if found else "no such column"
    raise UnknownColumn(what, expected=f"one of {schema.names}"[:500], found=repr(name))


def column_positions(schema: pa.Schema, names: Iterable[str]) -> list[int]:
    """Return the positions of some columns, in the order given.

    Raises
    ------
    UnknownColumn
        There is no such column, or several have the name.

    Examples
    --------
    >>> column_positions(pa.schema({"a": pa.int8(), "b": pa.int8()}), ["b"])
    [1]
    """
    return [column_position(schema, name) for name in names]
