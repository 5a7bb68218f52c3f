"""``geo.Box``: intersections and unions are those of the x that boxes hold, across the antimeridian too."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring import geo

# Whole degrees and what lies between two: a box of whole sides holds all of a step or nothing of it.
STEPS = [k / 2 for k in range(-12, 13)]
SIDES = [float(k) for k in range(-6, 7)]


def holds(box: geo.Box, x: float) -> bool:
    """The words of the specification."""
    return x >= box.xmin or x <= box.xmax if box.xmin > box.xmax else box.xmin <= x <= box.xmax


def boxes() -> list[geo.Box]:
    return [geo.Box(a, 0, b, 1) for a, b in itertools.product(SIDES, SIDES)]


def test_boxes_intersect_where_they_hold_the_same_x() -> None:
    """For every pair of ranges of x, across the antimeridian or not: they intersect if some x is in both."""
    held = {box: {x for x in [-1000.0, *STEPS, 1000.0] if holds(box, x)} for box in boxes()}
    for a, b in itertools.product(held, held):
        assert a.intersects(b) == bool(held[a] & held[b]), (a, b)


def test_a_union_holds_both() -> None:
    """For every pair, in either order, the merged box holds every x of both, with and without a circle."""
    held = {box: {x for x in [-1000.0, *STEPS, 1000.0] if holds(box, x)} for box in boxes()}
    for a, b in itertools.product(held, held):
        merged = a.merge(b)
        assert {x for x in [-1000.0, *STEPS, 1000.0] if holds(merged, x)} >= held[a] | held[b], (a, b)
        assert merged.wraps <= (a.wraps or b.wraps), (a, b)
        for one, other in ((a, b), (b, a)):
            joined = one.merge(other, geography=True)
            assert all(holds(joined, x) for x in held[a] | held[b] if abs(x) <= 180), (a, b)


# A circle of few places, so that the narrowest box can be looked for.
PLACES = [float(k) for k in range(-180, 181, 30)]


def width(box: geo.Box) -> float:
    return box.xmax - box.xmin + 360 * box.wraps


def test_a_union_on_the_circle_is_the_narrowest() -> None:
    """For every pair of ranges of longitudes, no range of the same sides that holds both is narrower."""
    ranges = [geo.Box(a, 0, b, 1) for a, b in itertools.product(PLACES, PLACES)]
    fine = [k * 15.0 for k in range(-12, 13)]
    held = {box: frozenset(x for x in fine if holds(box, x)) for box in ranges}
    for a, b in itertools.combinations_with_replacement(ranges[::2], 2):
        found = a.merge(b, geography=True)
        wanted = held[a] | held[b]
        assert wanted <= held[found]
        assert width(found) == min(width(each) for each in ranges if held[each] >= wanted), (a, b)


@given(st.lists(st.tuples(*[st.integers(-9, 9).map(float)] * 2), min_size=1, max_size=5))
def test_a_union_in_the_plane_is_minima_and_maxima(points: list[tuple[float, float]]) -> None:
    """Boxes of points, merged one by one, are the box of the points."""
    merged = geo.Box(*points[0], *points[0])
    for each in points[1:]:
        merged = merged.merge(geo.Box(*each, *each))
    x, y = zip(*points, strict=True)
    assert merged == geo.Box(min(x), min(y), max(x), max(y))


def test_all_around() -> None:
    """Two boxes that hold every longitude make -180 … 180, and in the plane all of it."""
    a, b = geo.Box(100, 0, -100, 1), geo.Box(-120, 0, 120, 1)
    assert (a.merge(b, geography=True).xmin, a.merge(b, geography=True).xmax) == (-180, 180)
    assert (a.merge(b).xmin, a.merge(b).xmax) == (-math.inf, math.inf)


def test_z_and_m() -> None:
    """A Z or an M that one box lacks rules nothing out, and is not known of both."""
    flat, low, high = geo.Box(0, 0, 1, 1), geo.Box(0, 0, 1, 1, 0, 1), geo.Box(0, 0, 1, 1, 2, 3, 4, 5)
    assert flat.intersects(low)
    assert flat.intersects(high)
    assert not low.intersects(high)
    assert low.merge(high) == geo.Box(0, 0, 1, 1, 0, 3)
    assert low.merge(flat) == flat


@pytest.mark.parametrize(
    "sides",
    [
        {"ymin": 2},
        {"zmin": 1},
        {"mmin": 2, "mmax": 1},
        {"xmin": math.nan},
        {"xmin": None},
        {"xmax": True},
        {"ymax": "9"},
    ],
)
def test_no_boxes(sides: dict[str, Any]) -> None:
    """A box has numbers for its sides, and minima that are no greater than maxima, but for x."""
    with pytest.raises(bow.UsageError, match=r"no number|no such range"):
        geo.Box(**{"xmin": 0, "ymin": 0, "xmax": 1, "ymax": 1, **sides})
