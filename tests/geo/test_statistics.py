"""``geo.statistics``: the box and the types of a column are those of its geometries, however they are written."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

import bowstring as bow
from bowstring import geo
from bowstring.testing import fake_device
from tests.geo.geometries import ANY, FINITE, Geometry, Style, box, encode, geometries, ranges, styles

Move = Callable[[Any], bow.Column]
LAYOUTS = (pa.binary(), pa.large_binary(), pa.binary_view())


def columns(rows: Sequence[bytes | None], storage: pa.DataType = LAYOUTS[0]) -> list[bow.Column]:
    """Return the rows as a column of the host, and as one of the fake device."""
    batch = bow.Batch.from_arrow({"where": pa.array(rows, storage)})
    return [batch[0], batch.to_device(fake_device())[0]]


@given(
    st.lists(st.tuples(geometries(FINITE), styles()) | st.none(), max_size=8),
    st.sampled_from(LAYOUTS),
)
def test_box_and_types_are_those_of_shapely(
    given_rows: list[tuple[Geometry, Style] | None], storage: pa.DataType
) -> None:
    """Boxes, types and emptiness are what shapely finds in the same bytes: all types, dimensions and orders."""
    rows = [None if each is None else encode(*each) for each in given_rows]
    shapes = np.array([each for each in shapely.from_wkb(rows) if each is not None], object)
    # GEOS numbers rings between lines and polygons.
    codes = np.array([1, 2, 0, 3, 4, 5, 6, 7])[shapely.get_type_id(shapes)]
    codes = codes + 1000 * shapely.has_z(shapes) + 2000 * shapely.has_m(shapes)
    full = ~shapely.is_empty(shapes)
    # By coordinates: GEOS takes the outer ring for the box of a polygon, whether or not the others lie inside.
    places = shapely.get_coordinates(shapes, include_z=True, include_m=True)
    for column in columns(rows, storage):
        found = geo.statistics(column)
        wanted = {geometry.code for geometry, _ in filter(None, given_rows)}
        assert set(found.types or ()) == wanted
        # GEOS says of no empty geometry whether it has Z or M.
        assert set(codes[full].astype(int).tolist()) <= wanted
        assert found.is_bounded
        assert (found.bbox is None) == (not full.any())
        if found.bbox is None:
            continue
        for k, axis in enumerate("xyzm"):
            values = places[:, k][~np.isnan(places[:, k])]
            wanted_range = (values.min(), values.max()) if len(values) else (None, None)
            assert (getattr(found.bbox, f"{axis}min"), getattr(found.bbox, f"{axis}max")) == wanted_range


@given(st.lists(st.tuples(geometries(ANY), styles()), max_size=5))
def test_each_dimension_skips_nan_by_itself(given_rows: list[tuple[Geometry, Style]]) -> None:
    """With NaN and infinities, the box holds what is no NaN, of each coordinate; without x or y there is none."""
    wanted = ranges([geometry for geometry, _ in given_rows])
    for column in columns([encode(*each) for each in given_rows]):
        found = geo.statistics(column)
        assert found.bbox == box(wanted)
        assert found.is_bounded == (("x" in wanted) == ("y" in wanted))


@pytest.mark.parametrize("dimensions", range(4))
@pytest.mark.parametrize("kind", range(1, 8))
def test_every_code_is_found(kind: int, dimensions: int, on_device: Move) -> None:
    """An empty geometry of each of the 28 codes has its type, and no box."""
    for style in (Style("<"), Style(">"), Style("<", True), Style(">", True, 4326)):
        found = geo.statistics(on_device(pa.array([encode(Geometry(kind, dimensions, ()), style)])))
        assert (found.bbox, found.types, found.is_bounded) == (None, (dimensions * 1000 + kind,), True)


def test_nothing_has_nothing(on_device: Move) -> None:
    """No rows, and rows that are null, have neither box nor types."""
    for rows in ([], [None, None]):
        assert geo.statistics(on_device(pa.array(rows, pa.binary()))) == geo.Statistics(None, ())


def test_bytes_of_null_rows_do_not_count(on_device: Move) -> None:
    """A null row is null, whatever its bytes are."""
    rows = [encode(Geometry(1, 0, ((each, each),))) for each in (1.0, 2.0, 3.0)]
    array = pa.array(rows)
    validity = pa.py_buffer(bytes([0b011]))
    hidden = pa.Array.from_buffers(pa.binary(), 3, [validity, *array.buffers()[1:]])
    assert geo.statistics(on_device(hidden)).bbox == geo.Box(1, 1, 2, 2)


def test_slices_and_chunks_are_the_rows_that_they_hold() -> None:
    """Slices count their own rows; chunks and batches of a table are merged."""
    rows = [
        encode(Geometry(1, k % 4, (tuple(float(k + j) for j in range(2 + (k % 4 > 0) + (k % 4 > 2))),)))
        for k in range(40)
    ]
    array = pa.array(rows)
    assert geo.statistics(array.slice(5, 3)).bbox == geo.statistics(pa.array(rows[5:8])).bbox
    whole = geo.statistics(array)
    chunks = pa.chunked_array([array.slice(0, 7), array.slice(7, 0), array.slice(7)])
    assert geo.statistics(chunks) == geo.statistics(pa.table({"g": chunks})) == whole
    assert whole.types == (1, 1001, 2001, 3001)


def test_many_rows_are_the_same_as_few() -> None:
    """Over many blocks of rows, points among other types, the box is that of NumPy."""
    rng = np.random.default_rng(3)
    places = rng.normal(0, 100, (30_000, 2))
    lines = rng.random(len(places)) < 0.1
    rows = [
        encode(Geometry(2, 0, ((x, y), (y, x)))) if line else encode(Geometry(1, 0, ((x, y),)))
        for (x, y), line in zip(places.tolist(), lines, strict=True)
    ]
    both = np.concatenate([places, places[lines][:, ::-1]])
    wanted = geo.Box(*both.min(axis=0).tolist(), *both.max(axis=0).tolist())
    for column in columns(rows):
        assert geo.statistics(column).bbox == wanted


def geography(rows: list[bytes]) -> pa.Table:
    return pa.table([pa.array(rows, pa.binary())], schema=pa.schema([geo.field("where", edges="spherical")]))


@given(
    st.lists(
        st.lists(st.tuples(st.floats(-180, 180), st.floats(-90, 90)), min_size=1, max_size=4),
        min_size=1,
        max_size=5,
    )
)
def test_a_geography_has_the_narrower_box(given_rows: list[list[tuple[float, float]]]) -> None:
    """Points have the narrower of [min, max] and [min of x >= 0, max of x < 0]; either holds all of them."""
    rows = [
        encode(Geometry(1, 0, tuple(each)))
        if len(each) == 1
        else encode(Geometry(4, 0, tuple(Geometry(1, 0, (point,)) for point in each)))
        for each in given_rows
    ]
    points = list(itertools.chain.from_iterable(given_rows))
    x = [each for each, _ in points]
    wanted = min(x), max(x)
    east, west = [each for each in x if each >= 0], [each for each in x if each < 0]
    if east and west and 360 - min(east) + max(west) < max(x) - min(x):
        wanted = min(east), max(west)
    batch = bow.Batch.from_arrow(geography(rows))
    for found in (geo.statistics(batch), geo.statistics(batch.to_device(fake_device()))):
        assert found.bbox is not None
        assert (found.bbox.xmin, found.bbox.xmax) == wanted
        assert all(found.bbox.intersects(geo.Box(*point, *point)) for point in points)


def test_a_geography_with_edges_has_no_box() -> None:
    """Arcs lead outside of the box of their ends: lines and rings have types only, alone and in collections."""
    line = Geometry(2, 0, ((0.0, 50.0), (90.0, 50.0)))
    ring = Geometry(3, 0, (((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)),))
    point = Geometry(1, 0, ((3.0, 4.0),))
    for shape in (line, ring, Geometry(5, 0, (line,)), Geometry(7, 0, (point, Geometry(7, 0, (ring,))))):
        found = geo.statistics(geography([encode(point), encode(shape)]))
        assert (found.bbox, found.types, found.is_bounded) == (None, (1, shape.code), False)
        assert found.may_intersect(geo.Box(100, -50, 110, -40))
    without = [Geometry(7, 0, (point,)), Geometry(2, 0, ()), Geometry(5, 0, (Geometry(2, 0, ()),))]
    assert geo.statistics(geography(list(map(encode, without)))).bbox == geo.Box(3, 4, 3, 4)


@pytest.mark.parametrize("place", [(180.5, 0.0), (-181.0, 0.0), (0.0, 90.5), (0.0, -91.0), (math.inf, 0.0)])
def test_a_geography_outside_of_its_ranges_has_no_box(place: tuple[float, float]) -> None:
    """Longitudes beyond 180 and latitudes beyond 90 degrees have no canonical box."""
    found = geo.statistics(
        geography([encode(Geometry(1, 0, (place,))), encode(Geometry(1, 0, ((1.0, 2.0),)))])
    )
    assert (found.bbox, found.types, found.is_bounded) == (None, (1,), False)
    assert geo.statistics(geography([encode(Geometry(1, 0, ((180.0, -90.0),)))])).bbox == geo.Box(
        180, -90, 180, -90
    )


@given(st.lists(st.lists(geometries(FINITE), max_size=3), min_size=1, max_size=3))
def test_merged_statistics_are_those_of_all_rows(parts: list[list[Geometry]]) -> None:
    """Statistics of parts, merged in any order, are those of the whole, for a GEOMETRY."""
    found = [geo.statistics(pa.array(list(map(encode, part)), pa.binary())) for part in parts]
    whole = geo.statistics(pa.array([encode(each) for part in parts for each in part], pa.binary()))
    for order in itertools.permutations(found):
        merged = order[0]
        for each in order[1:]:
            merged = merged.merge(each)
        # A Z that only some rows have is not that of all of them: the merged box leaves it out.
        sides = ("xmin", "ymin", "xmax", "ymax")
        assert merged.types == whole.types
        assert [getattr(merged.bbox, side, None) for side in sides] == [
            getattr(whole.bbox, side, None) for side in sides
        ]


def test_what_one_does_not_know_is_not_known_of_both() -> None:
    """A part without a box, or without types, leaves the whole without; a part without coordinates does not."""
    known = geo.Statistics(geo.Box(0, 0, 1, 1), (1,))
    unknown = geo.Statistics(None, None, is_bounded=False)
    assert known.merge(unknown) == unknown.merge(known) == unknown
    assert known.merge(geo.Statistics(None, (2,))) == geo.Statistics(geo.Box(0, 0, 1, 1), (1, 2))
    assert unknown.may_intersect(geo.Box(5, 5, 6, 6))
    assert not geo.Statistics(None, (2,)).may_intersect(geo.Box(5, 5, 6, 6))
