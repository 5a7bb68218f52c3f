"""The status of a row: nine values, one byte each."""

from __future__ import annotations

import enum

__all__ = ["Status"]


class Status(enum.IntEnum):
    """The status of a row of a Variant column.

    SQL NULL, missing and the Variant null are three different things, and none of them is an error.

    Examples
    --------
    >>> Status(2).name, Status.MALFORMED.is_error
    ('MISSING', True)
    """

    OK = 0
    """There is a value."""
    SQL_NULL = 1
    """The row itself is null."""
    MISSING = 2
    """The path leads nowhere: no such field, no such element, or nothing to step into."""
    VARIANT_NULL = 3
    """The path leads to a Variant null."""
    TYPE_MISMATCH = 4
    """The value is of another kind than the type that was asked for."""
    OVERFLOW = 5
    """The value is of the right kind, and the type cannot hold it without loss."""
    MALFORMED = 6
    """The bytes are not what the format says."""
    UNSUPPORTED = 7
    """The value is of a primitive type that the format has no name for yet, or one that the cast cannot do."""
    TOO_DEEP = 8
    """The value is nested deeper than allowed, or shares its children so often that the work has no bound."""

    @property
    def is_error(self) -> bool:
        """Whether ``on_error="raise"`` raises."""
        return self > Status.VARIANT_NULL
