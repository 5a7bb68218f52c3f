"""Geometries as text that people read: what shapely reads of it is the geometry."""

from __future__ import annotations

import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from bowstring.errors import InvalidBody
from bowstring.geo.wkt import to_wkt
from tests.geo.geometries import FINITE, Geometry, Style, encode, geometries, styles


@given(geometries(FINITE), styles())
def test_text_is_the_geometry(geometry: Geometry, style: Style) -> None:
    """Of all types, dimensions, byte orders and flavors, with every bit of each coordinate."""
    wkb = encode(geometry, style)
    text = to_wkt(wkb)
    found, wanted = shapely.from_wkt(text), shapely.from_wkb(wkb)
    assert found.equals(wanted) or shapely.to_wkb(found) == shapely.to_wkb(wanted)
    assert shapely.get_coordinates(found, include_z=True).tobytes().replace(NAN, b"") == (
        shapely.get_coordinates(wanted, include_z=True).tobytes().replace(NAN, b"")
    )
    if len(wkb) > 9:
        with pytest.raises(InvalidBody):
            to_wkt(wkb[:-1])
    with pytest.raises(InvalidBody):
        to_wkt(wkb + b"\0")


NAN = bytes.fromhex("000000000000f87f")


@given(st.binary(max_size=64))
def test_anything_else_is_refused(data: bytes) -> None:
    """Bytes that are no geometry are an error of ours, however they are wrong."""
    try:
        text = to_wkt(data)
    except InvalidBody:
        return
    assert text
    assert len(data) >= 9


def test_nesting_is_bounded() -> None:
    """Collections in collections are text up to a depth, and an error beyond it."""
    empty = bytes.fromhex("010700000000000000")
    inside = bytes.fromhex("010700000001000000")
    assert to_wkt(inside * 20 + empty).count("GEOMETRYCOLLECTION") == 21
    with pytest.raises(InvalidBody, match="too deep"):
        to_wkt(inside * 5000 + empty)
