"""Variant columns from Python objects, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bowstring.columnar.column import Column
from bowstring.errors import BowstringError, UsageError
from bowstring.limits import DEFAULT_LIMITS, Limits
from bowstring.variant.build import built
from bowstring.variant.codec.decode import Value
from bowstring.variant.python.rows import in_row, open_on_host, values
from bowstring.variant.python.values import is_missing, python_of, value_of

__all__ = ["from_python", "to_python"]


def from_python(things: Iterable[Any], *, name: str = "variant", limits: Limits = DEFAULT_LIMITS) -> Column:
    """Return Python objects as a Variant column, one row each.

    Parameters
    ----------
    things
        An iterable of objects, one for each row; a dict or a str alone is refused. Objects are None, ``pandas.NA``
        and ``NaT`` (an SQL NULL as a row, a Variant null inside of one), bool, int (the narrowest type that holds
        it; beyond 64 bits a decimal of 38 digits), float, :class:`decimal.Decimal`, str, bytes, :class:`uuid.UUID`,
        date, time, datetime (aware: an instant; naive: a local time), NumPy's and pandas' scalars, mappings
        with text for keys, lists, tuples and NumPy arrays; and :class:`Value`, which says its type itself:
        ``Value("null", None)`` at the top is a Variant null.
    name
        That of the column.
    limits
        ``depth`` bounds the nesting.

    Returns
    -------
    Column
        ``struct<metadata: dictionary<int32, binary>, value: binary>``, marked ``arrow.parquet.variant``. Every
        65,536 rows share one dictionary of names.

    Raises
    ------
    UsageError
        No iterable of rows; an object, or a key, that no Variant can hold.
    LimitExceeded
        Too deep, or more than 2 GiB of values.

    Examples
    --------
    >>> column = from_python([{"id": 1, "tags": ["a", None]}, None])
    >>> column.field.metadata[b"ARROW:extension:name"], to_python(column)
    (b'arrow.parquet.variant', [{'id': 1, 'tags': ['a', None]}, None])
    """
    _refuse_one(things)
    return built(_typed(things, limits), name)


def _refuse_one(things: object) -> None:
    """Refuse what is one row, and what would be iterated by its keys, letters or names of columns."""
    is_table = hasattr(things, "columns")
    is_row = isinstance(things, Mapping | str | bytes | bytearray | memoryview)
    if is_table or is_row or not isinstance(things, Iterable):
        raise UsageError(
            "from_python() takes an iterable of rows",
            expected="a list, or another iterable of objects, one for each row",
            found=f"a {type(things).__name__} alone",
            hint='Give table.to_pylist(), or frame.to_dict("records").'
            if is_table
            else "For one row give [row].",
        )


def _typed(things: Iterable[Any], limits: Limits) -> Iterable[Value | None]:
    for row, thing in enumerate(things):
        try:
            yield None if is_missing(thing) else value_of(thing, limits=limits)
        except BowstringError as error:
            raise in_row(error, row) from error


def to_python(
    column: Any, *, typed: bool = False, plain: bool = False, limits: Limits = DEFAULT_LIMITS
) -> list[Any]:
    """Return a Variant column as Python objects.

    Parameters
    ----------
    column
        A Variant column on the host, or its Arrow array.
    typed
        Give trees of :class:`Value`, which say the type and tell a Variant null, ``Value("null", None)``, from
        an SQL NULL, None. Else both are None, and only what Python has no exact type for stays a Value:
        timestamps of nanoseconds, and dates and timestamps outside of the years 1 to 9999.
    plain
        Take a struct that is not marked as a Variant.
    limits
        ``depth`` bounds the nesting.

    Raises
    ------
    InvalidBody, Truncated, Unsupported, LimitExceeded
        A value is not what the specification says, or too deep; the error says its row and its place.
    NotOnDevice
        The column is not on the host.

    Examples
    --------
    >>> column = from_python([{"id": 1}, 2.5, None])
    >>> to_python(column)
    [{'id': 1}, 2.5, None]
    >>> to_python(column, typed=True)[1]
    Value(type='double', value=2.5)
    """
    rows = values(open_on_host(column, "to_python", plain=plain), limits=limits)
    if typed:
        return list(rows)
    return [None if row is None else python_of(row) for row in rows]
