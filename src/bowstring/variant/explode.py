"""The children of each row as rows of their own, and the keys of each row."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch, Column
from bowstring.errors import LimitExceeded
from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch
from bowstring.kernels.variant.encoding import ARRAY, OBJECT
from bowstring.kernels.variant.shredded import place_groups
from bowstring.kernels.variant.slots import VALUE, note_disorder, place_keys
from bowstring.limits import Limits, limits_or_default
from bowstring.variant import nested
from bowstring.variant.column import Gathered, batch_of, variant_field
from bowstring.variant.nested import Source
from bowstring.variant.shredded.unshred import open_column
from bowstring.variant.status import Status, first_error, raise_error, validity_of
from bowstring.variant.walk import Located, locate

_KEY: Final = 4
"""What a key or a row of keys takes besides its text: an offset."""
_LARGEST: Final = (1 << 31) - 1


def explode(column: Any, *, outer: bool = False, plain: bool = False, limits: Limits | None = None) -> Batch:
    """Return a row for each element of an array, and for each field of an object.

    Only the outermost level is read; what is inside is copied as it is.

    Parameters
    ----------
    column, plain
        As for :func:`bowstring.variant.get`.
    outer
        Give rows without children, SQL NULLs among them, one row whose position, key and value are null. Else
        they give none.
    limits
        ``extracted_bytes`` bounds each column of the result.

    Returns
    -------
    Batch
        ``row``: int64, the row of `column`; ``position``: int32, from 0; ``key``: string, null for elements of
        arrays; ``value``: Variant, over the metadata of its row.

    Raises
    ------
    InvalidBody, Truncated, Unsupported
        A container is not what the specification says; the error names its row. Or the metadata of many rows
        overlap.
    LimitExceeded
        The children of a row share their bytes, and together take more than the row; or a column of the result
        takes more than the limits, or than 2 GiB. The error names the row. It is raised before values are copied.

    Examples
    --------
    >>> from bowstring.variant.builder import from_python
    >>> from bowstring.variant.python_objects import to_python
    >>> batch = explode(from_python([{"a": 1, "b": [2]}, 5, [6]]))
    >>> batch["row"].to_arrow().to_pylist(), batch["key"].to_arrow().to_pylist(), to_python(batch["value"])
    ([0, 0, 2], ['a', 'b', None], [1, [2], 6])
    """
    limits = limits_or_default(limits)
    opened = open_column(column, plain=plain)
    source = Source(opened, limits, opened.column.name)
    with source.device.use():
        objects, fields = _counted(source, OBJECT)
        arrays, elements = _counted(source, ARRAY)
        nested.check_names(source, objects, source.dictionary.indices, fields)
        _raise_first(source, objects.statuses, arrays.statuses)
        return _exploded(source, objects, arrays, fields + elements, outer=outer)


def keys(column: Any, *, plain: bool = False, limits: Limits | None = None) -> Column:
    """Return the keys of the object in each row, in the order of their UTF-8.

    Only the outermost object is read: what is inside of its fields may be anything.

    Parameters
    ----------
    column, plain
        As for :func:`bowstring.variant.get`.
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

    Examples
    --------
    >>> from bowstring.variant.builder import from_python
    >>> keys(from_python([{"b": {"c": 1}, "a": 2}, [1], None])).to_arrow().to_pylist()
    [['a', 'b'], None, None]
    """
    limits = limits_or_default(limits)
    opened = open_column(column, plain=plain)
    source = Source(opened, limits, opened.column.name)
    with source.device.use():
        objects, counts = _counted(source, OBJECT)
        nested.check_names(source, objects, source.dictionary.indices, counts)
        _raise_first(source, objects.statuses)
        what = "the keys of a Variant column"
        ends = _ends(source, what, counts, _KEY)
        starts, stops = _keys(source, objects, ends, what, sort=True)
        per_row = _sums(source, stops - starts, ends) + np.int64(_KEY) * (counts + np.int64(1))
        _ends(source, what, per_row)
        begins, text = nested.copied(source, starts, stops, source.dictionary.data)
        field = pa.field(source.name, pa.list_(pa.field("item", pa.string(), nullable=False)))
        arrays = [validity_of(objects.statuses), ends.astype(np.int32), None, begins.astype(np.int32), text]
        found = Gathered(field, [(opened.rows, -1), (len(starts), 0)], arrays)
        return batch_of([found], opened.column)[0]


def _counted(source: Source, kind: Any) -> tuple[Located, Any]:
    """Return where rows hold containers of a kind, and of how many children; others are mismatches, or nulls."""
    [located] = locate(source.opened, source.dictionary, [()])
    statuses = located.statuses
    # A type without a name yet holds nothing.
    statuses[statuses == np.uint8(Status.UNSUPPORTED)] = np.uint8(Status.TYPE_MISMATCH)
    return located, nested.child_counts(source, located, kind)


def _raise_first(source: Source, *statuses: Any) -> None:
    """Raise the error of the first row with one; a value of another kind is no error."""
    errors = []
    for each in statuses:
        bad = source.device.xp.where(each == np.uint8(Status.TYPE_MISMATCH), np.uint8(Status.OK), each)
        errors.append(first_error(bad, source.device))
    row, status = min((error for error in errors if error is not None), default=(-1, Status.OK))
    if status == Status.TOO_DEEP:
        raise LimitExceeded(
            "the children of a Variant share their bytes, and together take more than what holds them",
            where=f"row {row}",
        )
    if row >= 0:
        raise_error(source.opened, row, status, source.limits)


def _ends(source: Source, what: str, sizes: Any, width: int = 1) -> Any:
    """Return where slots of these sizes begin and the last ends, within the limits: checked before anything is
    copied.
    """
    xp, device = source.device.xp, source.device
    ends = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(sizes, dtype=np.int64)])
    most = min(source.limits.extracted_bytes, _LARGEST)
    total = int(device.to_host(ends[-1:])[0]) * width
    if total > most:
        row = int(np.searchsorted(device.to_host(ends), most // width, side="right")) - 1
        raise LimitExceeded(
            f"{what} take too many bytes",
            expected=f"at most {most} bytes",
            found=total,
            where=f"row {row}",
            hint="Make several columns of fewer rows."
            if most == _LARGEST
            else "Take fewer rows, or raise Limits.extracted_bytes.",
        )
    return ends


def _sums(source: Source, sizes: Any, ends: Any) -> Any:
    """Return the sums of the sizes of the slots of each row."""
    xp = source.device.xp
    sums = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(sizes, dtype=np.int64)])
    return sums[ends[1:]] - sums[ends[:-1]]


def _keys(source: Source, objects: Located, ends: Any, what: str, *, sort: bool) -> tuple[Any, Any]:
    """Return where the keys of objects lie in the metadata, in the order of their UTF-8 if `sort`. A key that
    is there twice is an error.
    """
    xp, device, distinct = source.device.xp, source.device, source.dictionary
    total = int(device.to_host(ends[-1:])[0])
    starts, stops = xp.zeros(total, np.int64), xp.zeros(total, np.int64)
    names = distinct.starts, distinct.stops, distinct.data
    slots = source.data, objects.positions, distinct.indices, *names
    launch(place_keys, source.opened.rows, *slots, objects.statuses, ends, starts, stops)
    _ends(source, what, _sums(source, stops - starts, ends))
    flags = xp.zeros(source.opened.rows, np.uint8)
    launch(note_disorder, len(flags), ends, starts, stops, distinct.data, flags)
    # Only objects have keys.
    rows = device.to_host(xp.flatnonzero((flags > np.uint8(0)) & (objects.statuses == np.uint8(Status.OK))))
    if not len(rows):
        return starts, stops
    # Old writers sorted by UTF-16.
    data, bounds = device.to_host(distinct.data), device.to_host(ends)
    host_starts, host_stops = (device.to_host(each).copy() for each in (starts, stops))
    for row in rows.tolist():
        inside = slice(int(bounds[row]), int(bounds[row + 1]))
        pairs = zip(host_starts[inside].tolist(), host_stops[inside].tolist(), strict=True)
        ordered = sorted((data[start:stop].tobytes(), start, stop) for start, stop in pairs)
        if len({key for key, _, _ in ordered}) < len(ordered):
            raise_error(source.opened, row, Status.MALFORMED, source.limits)
        host_starts[inside] = [start for _, start, _ in ordered]
        host_stops[inside] = [stop for _, _, stop in ordered]
    return (device.from_host(host_starts), device.from_host(host_stops)) if sort else (starts, stops)


def _exploded(source: Source, objects: Located, arrays: Located, counts: Any, *, outer: bool) -> Batch:
    device, xp, rows = source.device, source.device.xp, source.opened.rows
    are_objects = objects.statuses == np.uint8(Status.OK)
    slots = xp.maximum(counts, np.int64(1)) if outer else counts
    ends = _ends(source, "the children of an exploded Variant column", slots, nested.CHILD)
    total = int(device.to_host(ends[-1:])[0])
    numbers = xp.zeros(total, np.int32)
    launch(place_groups, rows, ends[:-1], ends[1:], xp.arange(rows, dtype=np.int32), numbers)
    both = xp.where(are_objects, objects.statuses, arrays.statuses)
    holders = Located(objects.positions, both.astype(np.uint8))
    inside, groups = nested.children_at(source, holders, source.dictionary.indices, ends, total)
    sizes = nested.sizes_at(source, inside)
    nested.merge(holders, ends, inside)
    _raise_first(source, holders.statuses)
    _ends(source, "the values of an exploded Variant column", _sums(source, sizes, ends))
    starts, stops = _keys(source, objects, ends, "the keys of an exploded Variant column", sort=False)
    begins, text = nested.copied(source, starts, stops, source.dictionary.data)
    offsets, data = nested.bytes_at(source, inside, sizes, int(VALUE), large=True)
    valid = inside.statuses == np.uint8(Status.OK)
    present, nulls = (bitmap.packed(valid), -1) if outer else (None, 0)
    named = bitmap.packed(valid & are_objects[numbers]) if total else None
    positions = (xp.arange(total, dtype=np.int64) - ends[numbers]).astype(np.int32)
    row = pa.field("row", pa.int64(), nullable=False)
    children = [present, None, xp.maximum(groups, np.int32(0)), None, offsets.astype(np.int32), data]
    metadata = source.metadata_as(pa.binary())
    columns = [
        Gathered(row, [(total, 0)], [None, numbers.astype(np.int64)]),
        Gathered(pa.field("position", pa.int32()), [(total, nulls)], [present, positions]),
        Gathered(pa.field("key", pa.string()), [(total, -1)], [named, begins.astype(np.int32), text]),
        Gathered(
            variant_field("value"),
            [(total, nulls), (total, 0), (total, 0)],
            children,
            dictionaries=(metadata,),
        ),
    ]
    return batch_of(columns, source.opened.column, total)
