"""Python objects from Variant columns.

Rows are validated by a kernel; those that are right are written by another as what ``marshal`` reads.
"""

from __future__ import annotations

import decimal
import marshal
import struct
from typing import Any, Final

import numpy as np

from bowstring.errors import InvalidBody, NotOnDevice
from bowstring.kernels.launch import launch
from bowstring.kernels.variant import write_objects as kernels
from bowstring.limits import Limits, limits_or_default
from bowstring.variant.codec.primitives import Budget, Value, primitive
from bowstring.variant.codec.rows import values
from bowstring.variant.column import MetadataDictionary, VariantColumn, dictionary_of
from bowstring.variant.python_values import python_leaf
from bowstring.variant.shredded.unshred import open_column
from bowstring.variant.status import Status
from bowstring.variant.validate import statuses_of

# What kernels write at once: what fits the caches.
_ROOM: Final = 1 << 20
_MOST_DEPTH: Final = 1000  # that ``marshal`` reads wherever Python runs
_ODDS: Final = 1 << 15
_DECIMALS: Final = {8: struct.Struct("<Bi").unpack_from, 9: struct.Struct("<Bq").unpack_from}
_EXACT: Final = decimal.Context(prec=64)
# Offsets that decrease, or bytes that a producer changed between two looks: rows are looked at one by one.
_ONE_BY_ONE: Final = (InvalidBody, EOFError, LookupError, TypeError, ValueError, struct.error)
_NO_BUDGET: Final = Budget(nodes=1 << 62, bytes=1 << 62)


def to_python(
    column: Any, *, typed: bool = False, plain: bool = False, limits: Limits | None = None
) -> list[Any]:
    """Return a Variant column as Python objects.

    Parameters
    ----------
    column, plain
        As for :func:`bowstring.variant.get`; the column is on the host.
    typed
        Give trees of :class:`Value`, which say the type and tell a Variant null, ``Value("null", None)``, from
        an SQL NULL, None. Else both are None, and only what Python has no exact type for stays a Value:
        timestamps of nanoseconds, and dates and timestamps outside of the years 1 to 9999.
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
    >>> from bowstring.variant.builder import from_python
    >>> column = from_python([{"id": 1}, 2.5, None])
    >>> to_python(column)
    [{'id': 1}, 2.5, None]
    >>> to_python(column, typed=True)[1]
    Value(type='double', value=2.5)
    """
    limits = limits_or_default(limits)
    opened = open_column(column, plain=plain)
    device = opened.column.device
    if not device.is_host:
        raise NotOnDevice(
            "variant.to_python works on the host",
            found=device.name,
            where=opened.column.name,
            hint='Use column.as_batch().to_device("cpu")[0] first.',
        )
    dictionary = dictionary_of(opened, full=True)  # metadata that overlap are an error
    if typed:
        return list(values(opened, limits=limits))
    try:
        rows, left = _read(opened, dictionary, limits)
    except _ONE_BY_ONE:
        rows, left = [None] * opened.rows, list(range(opened.rows))
    # Also what is read for all that: an old order of fields.
    for row, value in zip(left, values(opened, limits=limits, chosen=left), strict=True):
        rows[row] = None if value is None else _python_of(value)
    return rows


def _read(
    opened: VariantColumn, dictionary: MetadataDictionary, limits: Limits
) -> tuple[list[Any], list[int]]:
    """Return the rows, and which of them are not read, as they are not what the specification says."""
    statuses = statuses_of(opened, dictionary, limits=limits)
    value, depth = opened.value, min(limits.depth, _MOST_DEPTH)
    longest = int((dictionary.stops - dictionary.starts).max(initial=0))
    room, named = (
        np.empty(depth * int(kernels.LEVEL), np.uint64),
        np.zeros(longest * int(kernels.NAMED), np.uint64),
    )
    odd, out = np.empty(_ODDS * int(kernels.ODD), np.uint64), np.empty(_ROOM, np.uint8)
    states = np.zeros(int(kernels.STATES), np.uint64)
    rows: list[Any] = []
    # Its bytes are sliced, and not copied as a whole.
    data: Any = memoryview(value.data)
    while len(rows) < opened.rows:
        states[kernels.CALL] += np.uint64(1)
        slots = value.starts, value.stops, value.data, dictionary.indices
        names = dictionary.starts, dictionary.stops, dictionary.data
        launch(kernels.write_objects, 1, statuses, *slots, *names, depth, room, named, odd, out, states)
        if not states[kernels.BYTES]:  # no room for a single row
            odd, out = np.empty(2 * len(odd), np.uint64), np.empty(2 * len(out), np.uint8)
            continue
        objects, holders = marshal.loads(out[: int(states[kernels.BYTES])].data)  # noqa: S302  a kernel wrote it
        places = odd[
            int(kernels.ODD) - 1 : int(states[kernels.ODDS]) * int(kernels.ODD) : int(kernels.ODD)
        ].tolist()
        for holder, step, place in zip(holders[::2], holders[1::2], places, strict=True):
            kind = data[place] >> 2
            if kind in _DECIMALS:
                scale, unscaled = _DECIMALS[kind](data, place + 1)
                holder[step] = decimal.Decimal(unscaled).scaleb(-scale, _EXACT)
            else:
                holder[step] = python_leaf(primitive(data, place, len(data), _NO_BUDGET, None))
        rows += objects
    return rows, np.flatnonzero((statuses != Status.OK) & (statuses != Status.SQL_NULL)).tolist()


def _python_of(value: Value) -> Any:
    """Return a typed tree as plain Python objects."""
    root: list[Any] = []
    work: list[tuple[Value, str | None, Any]] = [(value, None, root)]
    while work:
        value, key, target = work.pop()
        thing: Any
        if value.type == "object":
            thing = {}
            work.extend((child, name, thing) for name, child in reversed(value.value.items()))
        elif value.type == "array":
            thing = []
            work.extend((child, None, thing) for child in reversed(value.value))
        else:
            thing = python_leaf(value)
        if key is None:
            target.append(thing)
        else:
            target[key] = thing
    return root[0]
