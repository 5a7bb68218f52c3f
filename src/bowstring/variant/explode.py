"""The children of each row as rows of their own, and the keys of each row."""

from __future__ import annotations

from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch, Column
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import Dictionary, make_batch
from bowstring.columnar.spans import buffer_or_none
from bowstring.errors import BowstringError, LimitExceeded
from bowstring.kernels import bitmap
from bowstring.kernels.launch import launch, launch_shared
from bowstring.kernels.variant.encoding import ARRAY, OBJECT
from bowstring.kernels.variant.shredded import place_groups
from bowstring.kernels.variant.slots import (
    ANY_COUNT,
    VALUE,
    copy_bytes,
    count_children,
    measure_bytes,
    note_disorder,
    place_keys,
)
from bowstring.limits import Limits, limits_or_default
from bowstring.variant.codec.decode import children_of, decode_names
from bowstring.variant.codec.rows import in_row, raw_row
from bowstring.variant.column import variant_field
from bowstring.variant.nested import CHILD, Source, check_names, children_at, copied, ends_of, merge
from bowstring.variant.shredded.unshred import open_column
from bowstring.variant.status import Gathered, Status, batch_of, first_error, raise_error
from bowstring.variant.walk import Located, locate_in

_KEY: Final = 4
"""What a key or a row of keys takes besides its text: an offset."""
_LARGEST: Final = (1 << 31) - 1
_ANY_WIDTH: Final = -1


def explode(column: Any, *, outer: bool = False, plain: bool = False, limits: Limits | None = None) -> Batch:
    """Return a row for each element of an array, and for each field of an object.

    Only the outermost level is read; what is inside is copied as it is.

    Parameters
    ----------
    column
        A Variant column, or its Arrow array. It stays where it is, and so does the result.
    outer
        Give rows without children, SQL NULLs among them, one row whose position, key and value are null. Else
        they give none.
    plain
        Take a struct that is not marked as a Variant.
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
        check_names(source, objects, source.dictionary.indices, fields)
        _raise_first(source, objects.statuses, arrays.statuses)
        return _exploded(source, objects, arrays, fields + elements, outer=outer)


def keys(column: Any, *, plain: bool = False, limits: Limits | None = None) -> Column:
    """Return the keys of the object in each row, in the order of their UTF-8.

    Only the outermost object is read: what is inside of its fields may be anything.

    Parameters
    ----------
    column
        A Variant column, or its Arrow array. It stays where it is, and so does the result.
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
        check_names(source, objects, source.dictionary.indices, counts)
        _raise_first(source, objects.statuses)
        xp, device = source.device.xp, source.device
        what = "the keys of a Variant column"
        ends = _ends(source, what, counts, _KEY)
        starts, stops = _keys(source, objects, ends, what, sort=True)
        per_row = _sums(source, stops - starts, ends) + np.int64(_KEY) * (counts + np.int64(1))
        _ends(source, what, per_row)
        valid = bitmap.packed(objects.statuses == np.uint8(Status.OK))
        item = pa.field("item", pa.string(), nullable=False)
        begins, text = copied(source, starts, stops, source.dictionary.data)
        arrays = xp.asarray(valid), ends.astype(np.int32), None, begins.astype(np.int32), text
        made = Gathered(
            pa.field(source.name, pa.list_(item)),
            [(opened.rows, -1), (len(starts), 0)],
            [None if each is None else buffer_or_none(each, device) for each in arrays],
        )
        return batch_of([made], source.opened)[0]


def _counted(source: Source, kind: Any) -> tuple[Located, Any]:
    """Return where rows hold containers of a kind, and of how many children; others are mismatches, or nulls."""
    opened, xp = source.opened, source.device.xp
    [located] = locate_in(source.device, opened.validity, opened.value, source.dictionary, [()])
    statuses = located.statuses
    # A type that has no name yet is no container.
    statuses[statuses == np.uint8(Status.UNSUPPORTED)] = np.uint8(Status.TYPE_MISMATCH)
    counts = xp.empty(opened.rows, np.int64)
    launch(
        count_children, opened.rows, source.data, located.positions, kind, int(ANY_COUNT), statuses, counts
    )
    return located, counts


def _raise_first(source: Source, *statuses: Any) -> None:
    """Raise the error of the first row with one: what is no container of a kind is none of these."""
    rows = []
    for each in statuses:
        bad = source.device.xp.where(each == np.uint8(Status.TYPE_MISMATCH), np.uint8(Status.OK), each)
        row = first_error(bad, source.device)
        if row is not None:
            rows.append((row, each))
    if rows:
        row, bad = min(rows, key=lambda found: found[0])
        _raise(source, row, bad)


def _raise(source: Source, row: int, statuses: Any) -> NoReturn:
    status = int(source.device.to_host(statuses[row : row + 1])[0])
    if status == Status.TOO_DEEP:
        raise LimitExceeded(
            "the children of a Variant share their bytes, and together take more than what holds them",
            where=f"row {row}",
        )
    raw = raw_row(source.opened, row)
    try:
        if raw is not None:
            children_of(decode_names(raw[0]), raw[1])
    except BowstringError as error:
        raise in_row(error, row) from error
    raise_error(source.opened, row, statuses, source.limits)


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
    # What is no object has no keys, and so none that ascend.
    rows = device.to_host(xp.flatnonzero((flags > np.uint8(0)) & (objects.statuses == np.uint8(Status.OK))))
    if not len(rows):
        return starts, stops
    # Old writers sorted by UTF-16.
    data, bounds = device.to_host(distinct.data), device.to_host(ends)
    host_starts, host_stops = (device.to_host(each).copy() for each in (starts, stops))
    for row in rows.tolist():
        inside = slice(int(bounds[row]), int(bounds[row + 1]))
        pairs = zip(host_starts[inside].tolist(), host_stops[inside].tolist(), strict=True)
        found = sorted((data[start:stop].tobytes(), start, stop) for start, stop in pairs)
        if len({key for key, _, _ in found}) < len(found):
            _raise(source, row, xp.full(len(flags), np.uint8(Status.MALFORMED), np.uint8))
        host_starts[inside] = [start for _, start, _ in found]
        host_stops[inside] = [stop for _, _, stop in found]
    return (device.from_host(host_starts), device.from_host(host_stops)) if sort else (starts, stops)


def _exploded(source: Source, objects: Located, arrays: Located, counts: Any, *, outer: bool) -> Batch:
    device, xp, rows = source.device, source.device.xp, source.opened.rows
    are_objects = objects.statuses == np.uint8(Status.OK)
    slots = xp.maximum(counts, np.int64(1)) if outer else counts
    ends = _ends(source, "the children of an exploded Variant column", slots, CHILD)
    total = int(device.to_host(ends[-1:])[0])
    numbers = xp.zeros(total, np.int32)
    launch(place_groups, rows, ends[:-1], ends[1:], xp.arange(rows, dtype=np.int32), numbers)
    both = xp.where(are_objects, objects.statuses, arrays.statuses)
    holders = Located(objects.positions, both.astype(np.uint8))
    inside, groups = children_at(source, holders, source.dictionary.indices, ends, total)
    sizes = xp.empty(total, np.int64)
    launch(measure_bytes, total, source.data, inside.positions, VALUE, _ANY_WIDTH, inside.statuses, sizes)
    merge(holders, ends, inside)
    _raise_first(source, holders.statuses)
    _ends(source, "the values of an exploded Variant column", _sums(source, sizes, ends))
    starts, stops = _keys(source, objects, ends, "the keys of an exploded Variant column", sort=False)
    begins, text = copied(source, starts, stops, source.dictionary.data)
    offsets, nbytes = ends_of(source, sizes)
    data = xp.empty(nbytes, np.uint8)
    launch_shared(copy_bytes, total, source.data, inside.positions, VALUE, inside.statuses, offsets, data)
    valid = inside.statuses == np.uint8(Status.OK)
    present = bitmap.packed(valid) if outer else None
    named = bitmap.packed(valid & are_objects[numbers]) if total else None
    positions = xp.arange(total, dtype=np.int64) - ends[numbers]
    arrays_of = (
        *(None, numbers.astype(np.int64), present, positions.astype(np.int32)),
        *(named, begins.astype(np.int32), text, present),
        *(None, xp.maximum(groups, np.int32(0)), None, offsets.astype(np.int32), data),
    )
    nulls = -1 if outer else 0
    fields = [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("position", pa.int32()),
        pa.field("key", pa.string()),
        variant_field("value"),
    ]
    return make_batch(
        Batch,
        Layout.of(pa.schema(fields)),
        total,
        np.array([(total, 0), (total, nulls), (total, -1), (total, nulls), (total, 0), (total, 0)], np.int64),
        [None if each is None else buffer_or_none(each, device) for each in arrays_of],
        dictionaries={0: Dictionary(0, source.metadata_as(pa.binary()))},
        device=device,
    )
