"""Values as Python objects to be printed, whatever they are: what Python has no object for becomes text."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

__all__ = ["python_values"]

_MOST: Final = 1000
"""Values of one list that are shown; more are counted."""
_LISTS: Final = (
    pa.ListScalar,
    pa.LargeListScalar,
    pa.FixedSizeListScalar,
    pa.ListViewScalar,
    pa.LargeListViewScalar,
)
_WRAPPED: Final = (pa.DictionaryScalar, pa.ExtensionScalar, pa.UnionScalar, pa.RunEndEncodedScalar)


def python_values(batch: pa.RecordBatch, index: int) -> list[Any]:
    """Return the values of a column of a valid batch.

    Examples
    --------
    >>> python_values(pa.record_batch({"a": [[1, None], [None] * 5000]}), 0)
    [[1, None], '5000 values']
    """
    try:
        return [_value(scalar) for scalar in batch.column(index)]
    except KeyError:  # Pyarrow has no class for it: intervals of months, and of days.
        return [f"({batch.schema.field(index).type})"] * batch.num_rows


def _value(scalar: pa.Scalar) -> Any:
    if not scalar.is_valid:
        return None
    if isinstance(scalar, _WRAPPED) and not isinstance(scalar, pa.UuidScalar):
        return _value(scalar.value)
    if isinstance(scalar, _LISTS):  # maps are lists of structs
        count = len(scalar.values)
        if count > _MOST:
            return f"{count} values"
        found = [_value(each) for each in scalar.values]
        return [tuple(each.values()) for each in found] if isinstance(scalar, pa.MapScalar) else found
    if isinstance(scalar, pa.StructScalar):
        return {name: _value(each) for name, each in scalar.items()}
    return _plain(scalar)


def _plain(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, LookupError, pa.ArrowException):
        pass
    try:
        # Python has no nanoseconds, and no years beyond 9999.
        return str(scalar.cast(pa.string()))
    except pa.ArrowException:
        return _without_zone(scalar)


def _without_zone(scalar: pa.Scalar) -> str:
    """Return a time in a zone that nobody knows here as one of UTC, with the zone's name."""
    type_ = scalar.type
    if not pa.types.is_timestamp(type_):
        return f"({type_})"
    try:
        return f"{pa.scalar(scalar.value, pa.timestamp(type_.unit)).cast(pa.string())}Z in {type_.tz}"
    except pa.ArrowException:
        return f"{scalar.value} {type_.unit} in {type_.tz}"
