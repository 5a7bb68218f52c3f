"""Columns by name or position, and errors that name a column."""

from __future__ import annotations

import contextlib
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, SupportsIndex

import pyarrow as pa

from bowstring.errors import BowstringError, UnknownColumn, UsageError, did_you_mean

_FOREIGN = (pa.ArrowException, TypeError, ValueError, OverflowError)


def _position_of(schema: pa.Schema, name: str) -> int:
    positions = schema.get_all_field_indices(name)
    if len(positions) == 1:
        return int(positions[0])
    what = "several columns have this name" if positions else "no such column"
    hint = "" if positions else did_you_mean(name, schema.names)
    raise UnknownColumn(what, expected=f"one of {schema.names}"[:500], found=repr(name), hint=hint)


def column_index(schema: pa.Schema, key: str | SupportsIndex) -> int:
    """Return the position of a column, chosen by name or by position, from the end if that is negative."""
    if isinstance(key, str):
        return _position_of(schema, key)
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
    """Return the positions of some columns, in the order given."""
    return [_position_of(schema, name) for name in names]


@contextlib.contextmanager
def column_errors(name: str) -> Iterator[None]:
    """Add the column's name to Bowstring's errors; make those of pyarrow and Python `UsageError`."""
    where = f"column {name!r}"
    try:
        yield
    except BowstringError as error:
        if error.where is None:
            error.where = where
        raise
    except _FOREIGN as error:
        found = f"{type(error).__name__}: {error}"
        raise UsageError("the values are no column", found=found, where=where) from error


def checked_name(name: Any) -> str:
    """Return the name of a column; raise `UsageError` if it is no text, or not valid Unicode."""
    if not isinstance(name, str):
        raise UsageError("the name of a column is text", found=repr(name))
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise UsageError("the name of a column is no Unicode text", found=repr(name)) from error
    return name


def check_equal_lengths(lengths: Mapping[str, int]) -> None:
    """Raise `UsageError` if columns differ in length; it names one whose length fewer have."""
    counts = Counter(lengths.values())
    if len(counts) <= 1:
        return
    (usual, _), *_ = counts.most_common()
    model = next(name for name, length in lengths.items() if length == usual)
    odd = next(name for name, length in lengths.items() if length != usual)
    raise UsageError(
        "the columns have not one length",
        expected=f"{usual} rows, as column {model!r} has",
        found=lengths[odd],
        where=f"column {odd!r}",
    )
