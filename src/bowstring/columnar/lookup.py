"""Choosing columns by name, or by position."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import SupportsIndex

import pyarrow as pa

from bowstring.errors import UnknownColumn, UsageError

__all__ = ["chosen_position", "column_position", "column_positions"]


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


def chosen_position(schema: pa.Schema, key: str | SupportsIndex) -> int:
    """Return the position of a column, chosen by name or by position, from the end if that is negative.

    Raises
    ------
    UnknownColumn
        There is no such column, or several have the name.
    UsageError
        It is neither name nor position.
    """
    if isinstance(key, str):
        return column_position(schema, key)
    try:
        position = operator.index(key)
    except TypeError:
        raise UsageError(
            "this is neither the name nor the position of a column",
            found=repr(key)[:80],
            hint="select() takes several columns, slice() rows.",
        ) from None
    count = len(schema)
    if not -count <= position < count:
        raise UnknownColumn("no such column", expected=f"one of {count}", found=position)
    return position % count


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
