"""Choosing columns by name."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from bowstring.errors import UnknownColumn

__all__ = ["column_positions"]


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
    positions = []
    for name in names:
        found = schema.get_all_field_indices(name)
        if len(found) != 1:
            raise UnknownColumn(
                "a column cannot be chosen",
                expected=f"one of {schema.names}"[:500],
                found=f"{name!r}, {len(found)} columns of that name",
            )
        positions.append(found[0])
    return positions
