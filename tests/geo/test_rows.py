"""``geo.bounds``, ``geo.intersects_box`` and ``geo.validate``: what is said of each row by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
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
from tests.geo.geometries import ANY, Geometry, Style, box, encode, geometries, ranges, styles

Move = Callable[[Any], bow.Column]

POINT = encode(Geometry(1, 0, ((1.0, 2.0),)))
SIDES = ("xmin", "ymin", "xmax", "ymax")


def columns(rows: list[bytes | None], field: pa.Field | None = None) -> list[bow.Column]:
    """Return the rows as a column of the host, and as one of the fake device."""
    field = field or pa.field("where", pa.binary())
    batch = bow.Batch.from_arrow(pa.table([pa.array(rows, field.type)], schema=pa.schema([field])))
    return [batch[0], batch.to_device(fake_device())[0]]


def values(column: bow.Column) -> list[Any]:
    return column.to_arrow().to_pylist()


@given(
    st.lists(st.tuples(geometries(ANY), styles()) | st.none(), max_size=6),
    st.sampled_from(["xy", "xyz", "xym", "xyzm"]),
)
def test_bounds_are_those_of_each_row(
    given_rows: list[tuple[Geometry, Style] | None], dimensions: Any
) -> None:
    """Each row has the box of its own coordinates; null rows, and those without x or y, are null."""
    wanted = []
    for each in given_rows:
        found = None if each is None else box(ranges([each[0]]))
        names = [f"{axis}{side}" for side in ("min", "max") for axis in dimensions]
        wanted.append(None if found is None else {name: getattr(found, name) for name in names})
    for column in columns([None if each is None else encode(*each) for each in given_rows]):
        assert values(geo.bounds(column, dimensions=dimensions)) == wanted


def test_bounds_are_those_of_shapely() -> None:
    """Over many blocks of rows, the bounds are those of ``shapely.bounds``."""
    rng = np.random.default_rng(5)
    centres = shapely.points(rng.normal(0, 50, (5000, 2)))
    shapes = np.where(rng.random(5000) < 0.5, shapely.buffer(centres, rng.random(5000)), centres)
    wanted = shapely.bounds(shapes)
    for column in columns(shapely.to_wkb(shapes).tolist()):
        found = geo.bounds(column).to_arrow()
        assert np.array_equal(np.stack([found.field(side) for side in SIDES], axis=1), wanted)


@given(
    st.lists(geometries(st.integers(-4, 4).map(float)) | st.none(), max_size=8),
    st.tuples(*[st.integers(-5, 5).map(float)] * 4),
)
def test_rows_in_a_box_are_those_whose_bounds_meet_it(
    given_rows: list[Geometry | None], sides: tuple[float, float, float, float]
) -> None:
    """True where the box of a row has a point in common with the box; false for empty rows, null for null ones."""
    xmin, y0, xmax, y1 = sides
    asked = geo.Box(xmin, min(y0, y1), xmax, max(y0, y1))
    wanted = []
    for each in given_rows:
        found = None if each is None else box(ranges([each]))
        wanted.append(None if each is None else found is not None and found.intersects(asked))
    for column in columns([None if each is None else encode(each) for each in given_rows]):
        assert values(geo.intersects_box(column, asked)) == wanted
        assert values(geo.intersects_box(column, (asked.xmin, asked.ymin, asked.xmax, asked.ymax))) == wanted


def test_a_box_of_z_and_m_counts_for_rows_that_have_them(on_device: Move) -> None:
    """Rows without Z are not left out by a box with Z; rows with another Z are."""
    rows = [
        encode(Geometry(1, 0, ((0.0, 0.0),))),
        encode(Geometry(1, 1, ((0.0, 0.0, 5.0),))),
        encode(Geometry(1, 1, ((0.0, 0.0, 9.0),))),
        encode(Geometry(1, 3, ((0.0, 0.0, 5.0, 1.0),))),
    ]
    asked = geo.Box(-1, -1, 1, 1, 4, 6, 2, 3)
    assert values(geo.intersects_box(on_device(pa.array(rows)), asked)) == [True, True, False, False]


def test_a_box_across_the_antimeridian(on_device: Move) -> None:
    """With xmin > xmax, rows match by x >= xmin or x <= xmax."""
    rows = [encode(Geometry(1, 0, ((x, 0.0),))) for x in (175.0, 170.0, 169.0, 0.0, -169.0, -170.0, -175.0)]
    wide = encode(Geometry(2, 0, ((-100.0, 0.0), (172.0, 0.0))))
    found = geo.intersects_box(on_device(pa.array([*rows, wide])), (170, -1, -170, 1))
    assert values(found) == [True, True, False, False, False, True, True, True]


def test_rows_of_a_geography() -> None:
    """Rows with points alone have bounds, the narrower ones; those with arcs have none, and may be anywhere."""
    points = Geometry(4, 0, tuple(Geometry(1, 0, ((x, 10.0),)) for x in (-178.0, 177.0)))
    line = Geometry(2, 0, ((0.0, 0.0), (1.0, 1.0)))
    outside = Geometry(1, 0, ((0.0, 99.0),))
    empty = Geometry(2, 0, ())
    rows = [*map(encode, (points, line, outside, empty)), None]
    for column in columns(rows, geo.field("where", edges="karney")):
        assert values(geo.bounds(column)) == [
            {"xmin": 177.0, "ymin": 10.0, "xmax": -178.0, "ymax": 10.0},
            None,
            None,
            None,
            None,
        ]
        assert values(geo.intersects_box(column, (100, 0, 120, 20))) == [False, True, True, False, None]
        assert values(geo.intersects_box(column, (179, 0, 180, 20))) == [True, True, True, False, None]


def test_wrong_rows_raise_or_are_null(on_device: Move) -> None:
    """The first wrong row is named; with ``on_error="null"`` it is null, and the others are what they are."""
    column = on_device(pa.array([POINT, b"\x01\x02", None, POINT[:-1]]))
    for call in (geo.bounds, lambda each, **options: geo.intersects_box(each, (0, 0, 9, 9), **options)):
        with pytest.raises(bow.InvalidBody, match=r"row 1") as caught:
            call(column)
        assert "01 02" in str(caught.value)
        assert [each is None for each in values(call(column, on_error="null"))] == [False, True, True, True]
    with pytest.raises(bow.InvalidBody, match=r"where, row 1"):
        geo.statistics(column)
    assert values(geo.validate(column)) == [0, 2, 1, 2]


def test_no_rows_give_no_rows(on_device: Move) -> None:
    """A column without rows has no bounds, no statuses, and nothing in a box."""
    column = on_device(pa.array([], pa.binary()))
    assert len(geo.bounds(column)) == len(geo.validate(column)) == 0
    assert len(geo.intersects_box(column, (0, 0, 1, 1))) == 0


def test_results_are_sound_columns(on_device: Move) -> None:
    """The columns that come out pass full validation, where they are and as part of a batch of the host."""
    column = on_device(pa.array([POINT, None, encode(Geometry(4, 3, ()))]))
    for found in (
        geo.bounds(column, dimensions="xyzm"),
        geo.intersects_box(column, (0, 0, 9, 9)),
        geo.validate(column),
    ):
        assert found.device is column.device
        found.batch.validate(full=True)
        found.batch.to_device("cpu").to_arrow().validate(full=True)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: geo.bounds(pa.array([POINT]), dimensions="yx"), "no such dimensions"),  # type: ignore[arg-type]  # meant
        (lambda: geo.bounds(pa.array([POINT]), on_error="skip"), "no way to take errors"),  # type: ignore[arg-type]  # meant
        (lambda: geo.intersects_box(pa.array([POINT]), (0, 0, 1)), "this is no box"),
        (lambda: geo.intersects_box(pa.array([POINT]), "0, 0, 1, 1"), "this is no box"),
        (lambda: geo.intersects_box(pa.array([POINT]), (0, 2, 1, 1)), "no such range of y"),
        (lambda: geo.intersects_box(pa.array([POINT]), (0, 0, math.nan, 1)), "no number"),
        (lambda: geo.bounds(pa.array([1, 2])), "no WKB"),
    ],
)
def test_wrong_arguments(call: Callable[[], object], what: str) -> None:
    """What is no box, no dimension or no column of WKB is refused."""
    with pytest.raises(bow.UsageError, match=what):
        call()
