"""Boxes: an interval of each of x, y, z and m, where that of x may lead across the antimeridian."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from bowstring.errors import UsageError

LONGITUDES: Final = (-180.0, 180.0)
"""The canonical range of x of a GEOGRAPHY."""
LATITUDES: Final = (-90.0, 90.0)
"""The canonical range of y of a GEOGRAPHY."""
_TURN: Final = 360.0


@dataclasses.dataclass(frozen=True, slots=True)
class Box:
    """The bounding box of geometries (*Bounding Box* in Parquet's ``Geospatial.md``).

    Where `xmin` is greater than `xmax`, the box leads across the antimeridian: it holds each x that is at least
    `xmin` *or* at most `xmax`. Only x does so.

    Attributes
    ----------
    xmin, ymin, xmax, ymax : float
        In units of the coordinate system. The order is that of ``shapely.bounds``: ``Box(*polygon.bounds)``.
    zmin, zmax, mmin, mmax : float or None
        ``None`` where there is no Z, or no M.

    Raises
    ------
    UsageError
        A number is NaN or none, a minimum is greater than its maximum, or one of a pair is missing.

    Examples
    --------
    >>> fiji = Box(177.0, -20.0, -178.0, -12.0)
    >>> (
    ...     fiji.wraps,
    ...     fiji.intersects(Box(-179.0, -15.0, -150.0, 0.0)),
    ...     fiji.intersects(Box(0.0, -15.0, 9.0, 0.0)),
    ... )
    (True, True, False)
    """

    xmin: float
    ymin: float
    xmax: float
    ymax: float
    zmin: float | None = None
    zmax: float | None = None
    mmin: float | None = None
    mmax: float | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is None and name[0] in "zm":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
                raise UsageError("a side of a box is no number", found=repr(value)[:80], where=name)
            object.__setattr__(self, name, float(value))
        for axis in "yzm":
            least, greatest = getattr(self, f"{axis}min"), getattr(self, f"{axis}max")
            if (least is None) != (greatest is None) or (least is not None and least > greatest):
                raise UsageError(
                    f"a box has no such range of {axis}",
                    expected=f"{axis}min <= {axis}max, or neither",
                    found=(least, greatest),
                    hint="Only x may lead across the antimeridian.",
                )

    @property
    def wraps(self) -> bool:
        """Whether the box leads across the antimeridian."""
        return self.xmin > self.xmax

    def intersects(self, other: Box) -> bool:
        """Return whether two boxes have a point in common; a Z or M that one of them lacks does not count.

        Examples
        --------
        >>> (
        ...     Box(0, 0, 2, 2).intersects(Box(2, 2, 3, 3)),
        ...     Box(0, 0, 2, 2, 5, 6).intersects(Box(0, 0, 2, 2, 7, 8)),
        ... )
        (True, False)
        """
        pairs = zip(self._ranges(), other._ranges(), strict=True)
        return bool(meet(self.xmin, self.xmax, other.xmin, other.xmax)) and all(
            None in (*one, *another) or (one[0] <= another[1] and another[0] <= one[1])
            for one, another in pairs
        )

    def merge(self, other: Box, *, geography: bool = False) -> Box:
        """Return a box that holds both; it has a Z or M only where both do.

        Parameters
        ----------
        other
            The other box.
        geography
            Whether x are longitudes on a circle: then the narrower of the boxes that hold both is returned, which
            may lead across the antimeridian; and where they hold every longitude, x is -180 … 180. Otherwise a
            box leads across it only if one of them does, and where they hold every x, it is -inf … inf.

        Examples
        --------
        >>> merged = Box(170, 0, 179, 1).merge(Box(-179, 0, -175, 1), geography=True)
        >>> merged.xmin, merged.xmax
        (170.0, -175.0)
        """
        xmin, xmax = _joined((self.xmin, self.xmax), (other.xmin, other.xmax), geography=geography)
        pairs = zip(self._ranges(), other._ranges(), strict=True)
        y: Any
        y, z, m = ((None, None) if None in (*a, *b) else (min(a[0], b[0]), max(a[1], b[1])) for a, b in pairs)
        return Box(xmin, y[0], xmax, y[1], *z, *m)

    def _ranges(self) -> tuple[Any, Any, Any]:
        return (self.ymin, self.ymax), (self.zmin, self.zmax), (self.mmin, self.mmax)


def as_box(given: Any) -> Box:
    """Return a box, or one of the four numbers ``xmin, ymin, xmax, ymax``."""
    if isinstance(given, Box):
        return given
    if not isinstance(given, Sequence) or isinstance(given, str | bytes) or len(given) != 4:
        raise UsageError(
            "this is no box", expected="a geo.Box, or (xmin, ymin, xmax, ymax)", found=repr(given)[:80]
        )
    return Box(*given)


def meet(amin: Any, amax: Any, bmin: Any, bmax: Any) -> Any:
    """Return whether two ranges of x have one in common: of numbers, or of arrays of them."""
    below, above = amin <= bmax, amax >= bmin
    one, other = amin > amax, bmin > bmax
    # A range across the antimeridian leaves a gap, and another has to be inside of it to miss it.
    return (below & above) | ((one | other) & (below | above)) | (one & other)


def is_canonical(xmin: Any, ymin: Any, xmax: Any, ymax: Any) -> Any:
    """Return whether longitudes and latitudes are in their canonical ranges: numbers, or arrays of them."""
    east_west = (xmin >= LONGITUDES[0]) & (xmax <= LONGITUDES[1])
    return east_west & (ymin >= LATITUDES[0]) & (ymax <= LATITUDES[1])


def narrower(xp: Any, least: Any, greatest: Any, east: Any, west: Any) -> tuple[Any, Any]:
    """Return, of longitudes, the narrower of two ranges: the least to the greatest, or across the antimeridian.
    The latter runs from `east`, the least not negative, to `west`, the greatest negative; NaN where there is none.
    """
    with np.errstate(all="ignore"):
        across = (_TURN - east) + west < greatest - least
    return xp.where(across, east, least), xp.where(across, west, greatest)


_Interval = tuple[float, float]


def _joined(a: _Interval, b: _Interval, *, geography: bool) -> _Interval:
    """Return the narrowest range of x that holds two."""
    if a[0] <= a[1] and b[0] <= b[1]:
        (least, low), (high, most) = sorted((a, b))
        most = max(low, most)
        # Where there is a gap between them, the way around it may be the narrower one.
        is_around = geography and low < high and _TURN - (high - low) < most - least
        return (high, low) if is_around else (least, most)
    # A range across the antimeridian leaves a gap. What both leave of it lies between the end of one and the
    # beginning of one.
    gaps = [(high, low) for low in (a[1], b[1]) for high in (a[0], b[0]) if low < high]
    # Of those in which neither range has a point; the ends of a gap do not belong to it.
    gaps = [
        (high, low)
        for high, low in gaps
        if not any(
            (least < high and most > low) if least <= most else (least < high or most > low)
            for least, most in (a, b)
        )
    ]
    whole = LONGITUDES if geography else (-math.inf, math.inf)
    return max(gaps, key=lambda gap: gap[0] - gap[1], default=whole)
