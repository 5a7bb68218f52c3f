"""One pass over a WKB column: extents and types of blocks of rows or of each row, and a status of each."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from bowstring.errors import InvalidBody, LimitExceeded, Unsupported
from bowstring.kernels import bitmap
from bowstring.kernels.geo.wkb import KEYS, MAGNITUDE, scan_wkb
from bowstring.kernels.launch import launch

if TYPE_CHECKING:
    from bowstring.geo.column import WkbColumn
    from bowstring.limits import Limits

# So many work items at most, for each needs scratch of its own.
_ITEMS: Final = 1 << 14
_SMALLEST_BLOCK: Final = 64
_SHOWN: Final = 16


class Status(enum.IntEnum):
    """The status of a row of a WKB column.

    Examples
    --------
    >>> Status(2).name, Status.MALFORMED.is_error, Status.NULL.is_error
    ('MALFORMED', True, False)
    """

    OK = 0
    """A geometry, empty ones included."""
    NULL = 1
    """The row is null."""
    MALFORMED = 2
    """Bytes that end too soon or go on too long, no byte order, or parts of a type that the whole does not have."""
    UNSUPPORTED = 3
    """A code that is none of the seven types of simple features."""
    TOO_DEEP = 4
    """More collections inside each other than ``Limits.depth``."""

    @property
    def is_error(self) -> bool:
        """Whether the row is no geometry that can be read."""
        return self > Status.NULL


class Scanned(NamedTuple):
    """What a pass gives: states, of blocks or of rows (`bowstring.kernels.geo.wkb`), and a status of each row."""

    keys: Any  # array of int64, shape (10, slots)
    masks: Any  # array of uint64, shape (slots,); types and edges
    statuses: Any  # array of uint8, shape (rows,)


def scan(opened: WkbColumn, limits: Limits, *, spread: bool) -> Scanned:
    """Scan a column once; with `spread`, each row has a state of its own. Call it within ``device.use()``."""
    xp, values = opened.column.device.xp, len(opened.starts)
    block = max(_SMALLEST_BLOCK, -(-values // _ITEMS))
    items = -(-values // block)
    slots = values if spread else items
    state, masks = xp.empty(slots * int(KEYS), np.int64), xp.empty(slots, np.uint64)
    statuses = xp.empty(values, np.uint8)
    scratch = xp.empty(items * limits.depth, np.uint64)
    wkb = opened.validity, opened.starts, opened.stops, opened.data
    launch(scan_wkb, items, block, int(spread), *wkb, limits.depth, scratch, state, masks, statuses)
    keys, numbers = state.reshape(int(KEYS), slots), opened.numbers
    if numbers is not None:
        statuses = statuses[numbers]
        if opened.column.validity is not None:
            valid = bitmap.expanded(opened.column.validity, 0, len(opened.column)) != np.uint8(0)
            statuses = xp.where(valid, statuses, np.uint8(Status.NULL))
        if spread:
            keys, masks = keys[:, numbers], masks[numbers]
    return Scanned(keys, masks, statuses)


def doubles(keys: Any) -> Any:
    """Return the doubles of which keys are the order."""
    return (keys ^ ((keys >> np.int64(63)) & np.int64(MAGNITUDE))).view(np.float64)


def check_statuses(opened: WkbColumn, statuses: Any, limits: Limits) -> None:
    """Raise the error of the first row that has one."""
    device = opened.column.device
    bad = device.xp.flatnonzero(statuses > np.uint8(Status.NULL))
    if not len(bad):
        return
    row = int(device.to_host(bad[:1])[0])
    status = Status(int(device.to_host(statuses[row : row + 1])[0]))
    where = f"{opened.column.name}, row {row}"
    if status == Status.TOO_DEEP:
        raise LimitExceeded(
            "collections of geometries are too deep",
            expected=f"at most {limits.depth} inside each other (Limits.depth)",
            where=where,
        )
    number = row if opened.numbers is None else int(device.to_host(opened.numbers[row : row + 1])[0])
    bounds = opened.starts, opened.stops
    start, stop = (int(device.to_host(each[number : number + 1])[0]) for each in bounds)
    found = "bytes outside of the column"
    if 0 <= start <= stop <= len(opened.data):
        first = device.to_host(opened.data[start : min(stop, start + _SHOWN)]).tobytes()
        found = f"{stop - start} bytes, {first.hex(' ')}{' …' * (stop - start > _SHOWN)}"
    if status == Status.UNSUPPORTED:
        raise Unsupported(
            "a geometry has another type code", expected="types 1 to 7 of ISO WKB", found=found, where=where
        )
    raise InvalidBody(
        "a value is not well-known binary",
        expected="one geometry in ISO WKB or EWKB, and nothing behind it",
        found=found,
        where=where,
        hint="geo.validate() has the status of every row.",
    )
