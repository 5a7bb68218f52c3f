"""What is asked of each row of a WKB column: its bounds, whether it may be in a box, its status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from bowstring.columnar.batch import Batch, Column
from bowstring.columnar.layout import Layout
from bowstring.columnar.parts import make_batch
from bowstring.columnar.spans import buffer_or_none
from bowstring.errors import UsageError
from bowstring.geo.box import as_box, is_canonical, meet, narrower
from bowstring.geo.column import open_column
from bowstring.geo.scan import Status, check_statuses, doubles, scan
from bowstring.kernels import bitmap
from bowstring.kernels.geo.wkb import EDGES
from bowstring.limits import Limits, limits_or_default

if TYPE_CHECKING:
    from bowstring.geo.box import Box
    from bowstring.geo.column import WkbColumn
    from bowstring.memory import Device

Dimensions = Literal["xy", "xyz", "xym", "xyzm"]
OnError = Literal["raise", "null"]

_DIMENSIONS: Final = ("xy", "xyz", "xym", "xyzm")


class _Extents(NamedTuple):
    """Doubles of each row by axis (`least`, `greatest`), and flags of each row."""

    least: dict[str, Any]
    greatest: dict[str, Any]
    has: dict[str, Any]  # whether it has such coordinates
    known: Any  # whether it has a box
    unbounded: Any  # whether it has coordinates, and no box holds it
    valid: Any  # whether it is neither null nor wrong


def bounds(
    column: Any,
    *,
    dimensions: Dimensions = "xy",
    on_error: OnError = "raise",
    limits: Limits | None = None,
) -> Column:
    """Return the bounds of each row of a WKB column, by the rules of :func:`bowstring.geo.statistics`.

    Parameters
    ----------
    column, limits
        As for :func:`bowstring.geo.statistics`.
    dimensions
        Which coordinates: ``"xy"``, ``"xyz"``, ``"xym"`` or ``"xyzm"``.
    on_error
        ``"raise"`` for rows that are no WKB; with ``"null"`` they are null.

    Returns
    -------
    Column
        Named ``bounds``, on the device of the column: a struct of float64 with ``xmin``, ``ymin``, ``xmax`` and
        ``ymax``, as GeoParquet's bounding boxes; with ``zmin`` and ``mmin`` behind the minima, and ``zmax`` and
        ``mmax`` behind the maxima, null where a row has no such coordinates. Null where a row is null, or has no
        box: an empty geometry, or one of a GEOGRAPHY that has edges or lies outside of the canonical ranges. Where
        x of a GEOGRAPHY leads across the antimeridian, ``xmin`` is greater than ``xmax``.

    Raises
    ------
    UsageError
        It is no WKB column, or there are no such dimensions.
    InvalidBody, Unsupported, LimitExceeded
        A row is no WKB, of another type, or too deep.

    Examples
    --------
    >>> import struct
    >>> line = struct.pack("<bII4d", 1, 2, 2, 30, 10, 10, 30)
    >>> bounds(pa.array([line, None])).to_arrow().to_pylist()
    [{'xmin': 10.0, 'ymin': 10.0, 'xmax': 30.0, 'ymax': 30.0}, None]
    """
    limits = limits_or_default(limits)
    if dimensions not in _DIMENSIONS:
        raise UsageError("no such dimensions", expected=f"one of {_DIMENSIONS}", found=repr(dimensions)[:80])
    opened = open_column(column)
    device, rows = opened.column.device, len(opened.column)
    with device.use():
        boxes = _extents(opened, limits, on_error)
        arrays, fields = [bitmap.packed(boxes.known)], []
        for side, values in (("min", boxes.least), ("max", boxes.greatest)):
            for axis in dimensions:
                optional = axis in "zm"
                arrays += bitmap.packed(boxes.has[axis]) if optional else None, values[axis]
                fields.append(pa.field(f"{axis}{side}", pa.float64(), optional))
        nodes = [(rows, -1), *((rows, -1 if each.nullable else 0) for each in fields)]
        return _column(pa.field("bounds", pa.struct(fields)), nodes, arrays, device)


def intersects_box(
    column: Any, bbox: Box | Any, *, on_error: OnError = "raise", limits: Limits | None = None
) -> Column:
    """Return whether the bounds of each row have a point in a box.

    Parameters
    ----------
    column, limits
        As for :func:`bowstring.geo.statistics`.
    bbox : Box or sequence of 4 numbers
        A :class:`~bowstring.geo.Box`, or ``xmin, ymin, xmax, ymax``; where ``xmin > xmax`` it leads across the
        antimeridian. Sides count as inside. Its Z and M count for rows that have them.
    on_error
        As for :func:`bounds`.

    Returns
    -------
    Column
        Named ``intersects``, Boolean, on the device of the column; null where the row is. False for empty
        geometries. Rows of a GEOGRAPHY without a box that have coordinates, such as lines, may be anywhere: True.

    Raises
    ------
    UsageError
        It is no WKB column, or no box.
    InvalidBody, Unsupported, LimitExceeded
        A row is no WKB, of another type, or too deep.

    Examples
    --------
    >>> import struct
    >>> rows = [struct.pack("<bIdd", 1, 1, x, y) for x, y in ((179, 0), (-179, 0), (0, 0))]
    >>> intersects_box(pa.array(rows), (170, -10, -170, 10)).to_arrow().to_pylist()
    [True, True, False]
    """
    limits = limits_or_default(limits)
    box = as_box(bbox)
    opened = open_column(column)
    device, rows = opened.column.device, len(opened.column)
    with device.use():
        boxes = _extents(opened, limits, on_error)
        inside = boxes.known & meet(boxes.least["x"], boxes.greatest["x"], box.xmin, box.xmax)
        sides = zip("yzm", (box.ymin, box.zmin, box.mmin), (box.ymax, box.zmax, box.mmax), strict=True)
        for axis, least, greatest in sides:
            if least is not None and greatest is not None:
                meets = (boxes.least[axis] <= greatest) & (boxes.greatest[axis] >= least)
                inside = inside & (meets | ~boxes.has[axis])
        inside = inside | boxes.unbounded
        arrays = [bitmap.packed(boxes.valid), bitmap.packed(inside)]
        return _column(pa.field("intersects", pa.bool_()), [(rows, -1)], arrays, device)


def validate(column: Any, *, limits: Limits | None = None) -> Column:
    r"""Return the status of every row of a WKB column, whatever stands in its bytes.

    Parameters
    ----------
    column, limits
        As for :func:`bowstring.geo.statistics`.

    Returns
    -------
    Column
        Named ``status``: uint8, as :class:`~bowstring.geo.Status` numbers them.

    Raises
    ------
    UsageError
        It is no WKB column.
    InvalidBody
        The offsets of the column decrease, or its views overlap without bound.

    Examples
    --------
    >>> validate(pa.array([b"\x01\x02\x00\x00\x00\x00\x00\x00\x00", b"\x01\x02", None])).values.tolist()
    [0, 2, 1]
    """
    limits = limits_or_default(limits)
    opened = open_column(column)
    device, rows = opened.column.device, len(opened.column)
    with device.use():
        statuses = scan(opened, limits, spread=False).statuses
        field = pa.field("status", pa.uint8(), nullable=False)
        return _column(field, [(rows, 0)], [None, statuses], device)


def _extents(opened: WkbColumn, limits: Limits, on_error: OnError) -> _Extents:
    if on_error not in ("raise", "null"):
        raise UsageError("no way to take errors", expected="raise or null", found=repr(on_error)[:80])
    xp = opened.column.device.xp
    scanned = scan(opened, limits, spread=True)
    if on_error == "raise":
        check_statuses(opened, scanned.statuses, limits)
    valid = scanned.statuses == np.uint8(Status.OK)
    keys = scanned.keys
    has = {axis: keys[2 * k] <= keys[2 * k + 1] for k, axis in enumerate("xyzm")}
    least = {axis: doubles(keys[2 * k]) for k, axis in enumerate("xyzm")}
    greatest = {axis: doubles(keys[2 * k + 1]) for k, axis in enumerate("xyzm")}
    known = valid & has["x"] & has["y"]
    unbounded = known & ~known
    if opened.type.is_geography:
        inside = is_canonical(least["x"], least["y"], greatest["x"], greatest["y"])
        inside = inside & ((scanned.masks & np.uint64(EDGES)) == np.uint64(0))
        unbounded = known & ~inside
        known = known & inside
        halves = doubles(keys[8]), doubles(keys[9])
        least["x"], greatest["x"] = narrower(xp, least["x"], greatest["x"], *halves)
    return _Extents(least, greatest, has, known, unbounded, valid)


def _column(field: pa.Field, nodes: list[tuple[int, int]], arrays: list[Any], device: Device) -> Column:
    layout, table = Layout.of(pa.schema([field])), np.array(nodes, np.int64)
    buffers = [None if each is None else buffer_or_none(each, device) for each in arrays]
    return make_batch(Batch, layout, nodes[0][0], table, buffers, device=device)[0]
