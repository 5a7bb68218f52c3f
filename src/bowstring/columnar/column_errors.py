"""Errors that say which column they are about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from bowstring.errors import BowstringError, UsageError

__all__ = ["ColumnNamed", "name_of_column", "one_length"]

_FOREIGN = (pa.ArrowException, TypeError, ValueError, OverflowError)


class ColumnNamed:
    """Within it, errors of the tree name a column, and those of pyarrow and Python become ones that do.

    Parameters
    ----------
    name
        Of the column.
    what
        What cannot be done, where the error is not of the tree.

    Examples
    --------
    >>> with ColumnNamed("fare"):
    ...     pa.array([1, "x"])
    Traceback (most recent call last):
      ...
    bowstring.errors.UsageError: the values are no column; found ... at column 'fare'
    """

    __slots__ = ("_name", "_what")

    def __init__(self, name: str, what: str = "the values are no column") -> None:
        self._name = name
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            return
        where = f"column {self._name!r}"
        if isinstance(error, BowstringError):
            if error.where is None:
                error.where = where
        elif isinstance(error, _FOREIGN):
            raise UsageError(self._what, found=f"{type(error).__name__}: {error}", where=where) from error


def name_of_column(name: Any) -> str:
    """Return what names a column, if it can.

    Raises
    ------
    UsageError
        It is no text, or text that UTF-8 cannot spell.
    """
    if not isinstance(name, str):
        raise UsageError("the name of a column is text", found=repr(name))
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise UsageError("the name of a column is no Unicode text", found=repr(name)) from error
    return name


def one_length(lengths: Mapping[str, int]) -> None:
    """Refuse columns that have not one length.

    Raises
    ------
    UsageError
        It names a column whose length fewer have.
    """
    counts = Counter(lengths.values())
    if len(counts) <= 1:
        return
    (usual, _), *_ = counts.most_common()
    model = next(name for name, length in lengths.items() if length == usual)
    odd, found = next((name, length) for name, length in lengths.items() if length != usual)
    raise UsageError(
        "the columns have not one length",
        expected=f"{usual} rows, as column {model!r} has",
        found=found,
        where=f"column {odd!r}",
    )
