"""The keys of objects."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from bowstring.columnar.column import Column
from bowstring.errors import BowstringError
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.variant.build import Room, column_of
from bowstring.variant.codec.decode import children_of
from bowstring.variant.python.rows import Names, in_row, open_on_host, raw_rows

__all__ = ["keys"]

# Rows and keys take an offset each.
_ROW = _KEY = 4


def keys(column: Any, *, plain: bool = False, limits: Limits = DEFAULT_LIMITS) -> Column:
    """Return the keys of the object in each row, in the order of their UTF-8.

    Only the outermost object is read: what is inside of its fields may be anything.

    Parameters
    ----------
    column
        A Variant column on the host, or its Arrow array.
    plain
        Take a struct that is not marked as a Variant.
    limits
        ``extracted_bytes`` bounds the keys.

    Returns
    -------
    Column
        ``list<string>``; null where the row is an SQL NULL or no object.

    Raises
    ------
    InvalidBody, Truncated, Unsupported
        An object is not what the specification says; the error names its row.
    LimitExceeded
        The keys take more than the limits, or than 2 GiB.
    NotOnDevice
        The column is not on the host.

    Examples
    --------
    >>> from bowstring.variant.python.convert import from_python
    >>> keys(from_python([{"b": {"c": 1}, "a": 2}, [1], None])).to_arrow().to_pylist()
    [['a', 'b'], None, None]
    """
    opened = open_on_host(column, "keys", plain=plain)
    names = Names()
    room = Room("the keys of a Variant column", limits)
    rows: list[list[str] | None] = []
    for row, raw in enumerate(raw_rows(opened)):
        try:
            found = None if raw is None else _keys(names[raw[0]], raw[1])
            room.take(_ROW + sum(_KEY + len(key.encode()) for key in found or ()))
            rows.append(found)
        except BowstringError as error:
            raise in_row(error, row) from error
    type_ = pa.list_(pa.field("item", pa.string(), nullable=False))
    return column_of(pa.array(rows, type_), pa.field(opened.column.name, type_))


def _keys(names: tuple[str, ...], value: bytes) -> list[str] | None:
    children = children_of(names, value)
    if children is None or (not children and value[0] & 1):
        return None
    found = [step for step, _, _ in children if isinstance(step, str)]
    # Old writers sorted by UTF-16.
    return sorted(found) if len(found) == len(children) else None
