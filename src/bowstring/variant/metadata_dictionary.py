"""The distinct metadata of a column, and how much work on them is allowed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from bowstring.columnar.slots import MOST_READ, are_bounded, check_order, distinct_slots
from bowstring.errors import InvalidBody
from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch
from bowstring.kernels.variant.metadata import inspect_metadata, mark_changes

if TYPE_CHECKING:
    from bowstring.variant.column import VariantColumn


@dataclasses.dataclass(frozen=True, slots=True)
class MetadataDictionary:
    """The distinct metadata of a column."""

    indices: Any  # int32 for each row; a row with an index out of range is malformed
    starts: Any  # int64
    stops: Any
    data: Any
    marks: Any  # uint8 for each metadata, as inspect_metadata writes them


def dictionary_of(opened: VariantColumn, *, full: bool = False) -> MetadataDictionary:
    """Return the distinct metadata of a column, inspected; with `full`, their text too. If each row has its own
    metadata, runs of equal ones become one.
    """
    metadata, xp = opened.metadata, opened.column.device.xp
    with opened.column.device.use():
        check_order(metadata, opened.column.device, opened.column.name)
        if opened.indices is None:
            indices, starts, stops = _distinct(opened)
        else:
            indices = opened.indices
            starts, stops = metadata.starts.astype(np.int64), metadata.stops.astype(np.int64)
            if metadata.shared and not _is_bounded(opened, starts, stops):
                numbers, starts, stops = _distinct_views(opened, starts, stops)
                known = (indices >= np.int32(0)) & (indices < np.int32(len(numbers)))
                indices = xp.where(known, numbers[xp.where(known, indices, np.int32(0))], np.int32(-1))
        marks = xp.empty(len(starts), np.uint8)
        launch(inspect_metadata, len(marks), starts, stops, metadata.data, int(full), marks)
        return MetadataDictionary(indices, starts, stops, metadata.data, marks)


def _distinct(opened: VariantColumn) -> tuple[Any, Any, Any]:
    """Return which metadata is that of each row, and where the distinct ones begin and end."""
    metadata, xp, rows = opened.metadata, opened.column.device.xp, opened.rows
    starts, stops = metadata.starts[:rows], metadata.stops[:rows]
    if not _is_bounded(opened, starts, stops, following=True):
        indices, starts, stops = _distinct_views(opened, starts, stops)
    else:
        changed = xp.empty(rows, np.uint8)
        launch(mark_changes, rows, starts, stops, metadata.data, changed)
        indices = xp.cumsum(changed, dtype=np.int32) - np.int32(1)
        heads = xp.flatnonzero(changed)
        starts, stops = starts[heads].astype(np.int64), stops[heads].astype(np.int64)
    if len(metadata.validity):
        valid = bitmap.expanded(metadata.validity, 0, rows)
        indices = xp.where(valid, indices, np.int32(-1)).astype(np.int32)
    return indices, starts, stops


def check_overlap(opened: VariantColumn) -> None:
    """Check that the work on all distinct metadata is bounded by their bytes, for those that read them one by
    one.
    """
    metadata, following = opened.metadata, opened.indices is None
    check_order(metadata, opened.column.device, opened.column.name)
    count = opened.rows if following else len(metadata.starts)
    starts, stops = metadata.starts[:count], metadata.stops[:count]
    if not _is_bounded(opened, starts, stops, following=following):
        _distinct_views(opened, starts.astype(np.int64), stops.astype(np.int64))


def _is_bounded(opened: VariantColumn, starts: Any, stops: Any, *, following: bool = False) -> bool:
    """Return whether slots have few bytes; where they follow rows, those that differ from the row before."""
    if not opened.metadata.shared:
        return True
    if following:
        changed = (starts[1:] != starts[:-1]) | (stops[1:] != stops[:-1])
        heads = opened.column.device.xp.concatenate([opened.column.device.xp.ones(1, np.bool_), changed])
        starts, stops = starts[heads[: len(starts)]], stops[heads[: len(stops)]]
    return are_bounded(opened.column.device, starts, stops, len(opened.metadata.data))


def _distinct_views(opened: VariantColumn, starts: Any, stops: Any) -> tuple[Any, Any, Any]:
    """Return which of the distinct slots each is, and where these begin and end. Too much overlap is an error:
    the work on them would have no bound.
    """
    found = distinct_slots(opened.column.device, starts, stops, len(opened.metadata.data))
    if found is None:
        raise InvalidBody(
            "the metadata of a Variant column overlap",
            expected=f"views of at most {MOST_READ} times the bytes that there are",
            where=opened.column.name,
        )
    return found
