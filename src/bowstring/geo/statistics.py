"""Geospatial statistics of a column: its box, and its types (*Statistics* in Parquet's ``Geospatial.md``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring.geo.box import Box, is_canonical, narrower
from bowstring.geo.column import open_column
from bowstring.geo.scan import check_statuses, doubles, scan
from bowstring.kernels.geo.wkb import EDGES
from bowstring.limits import Limits, limits_or_default

_TYPES: Final = 7
_DIMENSIONS: Final = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Statistics:
    """Box and types of some geometries.

    Attributes
    ----------
    bbox : Box or None
        What holds every coordinate that is not NaN; ``None`` where there are no x or no y, or no box is known.
    types : tuple of int, or None
        Codes of ISO WKB, ascending: 1 to 7 for points, lines, polygons, several of each, and collections, and 1000
        more with Z, 2000 with M, 3000 with both. ``None`` where they are not known.
    is_bounded : bool
        Whether no x with a y lies outside of `bbox`: where it is None, there are none.
    geography : bool
        Whether the box is that of a GEOGRAPHY.

    Examples
    --------
    >>> one = Statistics(Box(0, 0, 1, 1), (1,))
    >>> one.merge(Statistics(Box(5, 5, 6, 6), (2,))).types, one.may_intersect(Box(3, 3, 4, 4))
    ((1, 2), False)
    """

    bbox: Box | None
    types: tuple[int, ...] | None
    is_bounded: bool = True
    geography: bool = False

    def merge(self, other: Statistics) -> Statistics:
        """Return the statistics of both together; what one of them does not know, is not known."""
        types = None
        if self.types is not None and other.types is not None:
            types = tuple(sorted({*self.types, *other.types}))
        geography = self.geography or other.geography
        bounded = self.is_bounded and other.is_bounded
        bbox = (self.bbox or other.bbox) if bounded else None
        if bounded and self.bbox is not None and other.bbox is not None:
            bbox = self.bbox.merge(other.bbox, geography=geography)
        return Statistics(bbox, types, bounded, geography)

    def may_intersect(self, box: Box) -> bool:
        """Return whether a geometry may have a point in a box: False is sure."""
        return not self.is_bounded if self.bbox is None else self.bbox.intersects(box)


def statistics(column: Any, *, limits: Limits | None = None) -> Statistics:
    """Return the box and the types of all geometries of a WKB column, in one pass where the column is.

    Coordinates that are NaN are skipped, in each dimension by itself. Empty geometries add their type alone, and
    nulls nothing. A GEOGRAPHY has a box only where no geometry has edges, because an arc leads outside of the box
    of its ends, and where all longitudes are in -180 … 180 and latitudes in -90 … 90. It is the narrower one of
    ``[min, max]`` and the one across the antimeridian, from the least x >= 0 to the greatest x < 0.

    Parameters
    ----------
    column
        A Column, a Batch of one column, or Arrow data of one column: binary, large or view; marked
        ``geoarrow.wkb``, or not marked, which is planar. ISO WKB and EWKB, both byte orders.
    limits
        ``depth`` bounds collections inside each other.

    Raises
    ------
    UsageError
        It is no WKB column.
    InvalidBody, Unsupported, LimitExceeded
        A row is no WKB, of another type, or too deep; the error names the first one.

    Examples
    --------
    >>> import struct
    >>> rows = [struct.pack("<bIdd", 1, 1, x, y) for x, y in ((30, 10), (5, 60))]
    >>> found = statistics(pa.array([*rows, None], pa.binary()))
    >>> found.bbox, found.types
    (Box(xmin=5.0, ymin=10.0, xmax=30.0, ymax=60.0, zmin=None, zmax=None, mmin=None, mmax=None), (1,))
    """
    limits = limits_or_default(limits)
    keys, masks, geography = [], [], False
    for each in _pieces(column):
        opened = open_column(each)
        geography = opened.type.is_geography
        device = opened.column.device
        with device.use():
            scanned = scan(opened, limits, spread=False)
            check_statuses(opened, scanned.statuses, limits)
            keys.append(device.to_host(scanned.keys))
            masks.append(device.to_host(scanned.masks))
    # Of x, y, z, m: least and greatest keys; then of eastern and of western x.
    info, every = np.iinfo(np.int64), np.concatenate(keys, axis=1)
    least = every[0::2].min(axis=1, initial=info.max)
    greatest = every[1::2].max(axis=1, initial=info.min)
    mask = int(np.bitwise_or.reduce(np.concatenate(masks), initial=0))
    # Types come as 7 bits for each of XY, XYZ, XYM and XYZM.
    bits = [bit for bit in range(_TYPES * _DIMENSIONS) if mask >> bit & 1]
    types = tuple(bit // _TYPES * 1000 + bit % _TYPES + 1 for bit in bits)
    has_x, has_y, has_z, has_m = (least <= greatest)[:4].tolist()
    if not (has_x and has_y):
        return Statistics(None, types, not (has_x or has_y), geography)
    (xmin, ymin, zmin, mmin, east), (xmax, ymax, zmax, mmax, west) = doubles(least), doubles(greatest)
    if geography:
        if mask & int(EDGES) or not is_canonical(xmin, ymin, xmax, ymax):
            return Statistics(None, types, False, True)
        xmin, xmax = narrower(np, xmin, xmax, east, west)
    z = (float(zmin), float(zmax)) if has_z else (None, None)
    m = (float(mmin), float(mmax)) if has_m else (None, None)
    return Statistics(Box(float(xmin), float(ymin), float(xmax), float(ymax), *z, *m), types, True, geography)


def _pieces(column: Any) -> Iterator[Any]:
    """Yield a column in the chunks that it has: nothing is copied to put them together."""
    if isinstance(column, pa.ChunkedArray) and column.num_chunks > 1:
        yield from column.chunks
    elif isinstance(column, pa.Table) and column.num_columns == 1 and column.num_rows:
        yield from column.to_batches()
    else:
        yield column
