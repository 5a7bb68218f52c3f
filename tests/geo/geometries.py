"""Geometries as Python values: how they are written as WKB, read by the letter of the standard, and generated."""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

import bowstring as bow

POINT, LINE, POLYGON, COLLECTION = 1, 2, 3, 7
AXES = {0: "xy", 1: "xyz", 2: "xym", 3: "xyzm"}
DEEPEST = 64
Status = bow.geo.Status


@dataclasses.dataclass(frozen=True)
class Geometry:
    """A type of 1 to 7, its dimensions, and what is in it: vertices, rings of vertices, or geometries."""

    kind: int
    dimensions: int
    inside: tuple[Any, ...]

    @property
    def code(self) -> int:
        return self.dimensions * 1000 + self.kind

    def vertices(self) -> Iterator[tuple[float, ...]]:
        if self.kind in (POINT, LINE):
            yield from self.inside
        elif self.kind == POLYGON:
            for ring in self.inside:
                yield from ring
        else:
            for part in self.inside:
                yield from part.vertices()

    def has_edges(self) -> bool:
        if self.kind == LINE:
            return len(self.inside) > 1
        if self.kind == POLYGON:
            return any(len(ring) > 1 for ring in self.inside)
        return self.kind != POINT and any(part.has_edges() for part in self.inside)


@dataclasses.dataclass(frozen=True)
class Style:
    """How a geometry is written: the byte order, and the codes of ISO or of EWKB, perhaps with an SRID."""

    order: str = "<"
    is_extended: bool = False
    srid: int | None = None


def encode(geometry: Geometry, style: Style = Style()) -> bytes:
    order, code, srid = style.order, geometry.code, b""
    if style.is_extended:
        code = geometry.kind | (geometry.dimensions & 1) << 31 | (geometry.dimensions >> 1) << 30
        if style.srid is not None:
            code |= 0x20000000
            srid = struct.pack(f"{order}I", style.srid)
    head = struct.pack(f"{order}BI", order == "<", code) + srid
    number = struct.Struct(f"{order}I").pack
    below = dataclasses.replace(style, srid=None)
    if geometry.kind == POINT:
        return head + _vertices(geometry.inside or ((math.nan,) * len(AXES[geometry.dimensions]),), order)
    body = number(len(geometry.inside))
    if geometry.kind == LINE:
        body += _vertices(geometry.inside, order)
    elif geometry.kind == POLYGON:
        body += b"".join(number(len(ring)) + _vertices(ring, order) for ring in geometry.inside)
    else:
        # Every geometry has its own byte order.
        styles = (below, dataclasses.replace(below, order="<" if order == ">" else ">"))
        body += b"".join(encode(part, styles[k % 2]) for k, part in enumerate(geometry.inside))
    return head + body


def _vertices(vertices: Any, order: str) -> bytes:
    return b"".join(struct.pack(f"{order}{len(each)}d", *each) for each in vertices)


class _Wrong(Exception):
    def __init__(self, status: bow.geo.Status) -> None:
        self.status = status


def decode(data: bytes) -> Geometry | bow.geo.Status:
    """Read WKB as the standard says, slowly; return the status of what it is not."""
    try:
        found, end = _decode(data, 0, 0)
    except _Wrong as wrong:
        return wrong.status
    return found if end == len(data) else Status.MALFORMED


def _take(data: bytes, at: int, form: str) -> tuple[tuple[Any, ...], int]:
    end = at + struct.calcsize(form)
    if end > len(data):
        raise _Wrong(Status.MALFORMED)
    return struct.unpack(form, data[at:end]), end


def _decode(data: bytes, at: int, depth: int, whole: int = 0) -> tuple[Geometry, int]:
    if len(data) - at < 5 or data[at] > 1:
        raise _Wrong(Status.MALFORMED)
    order = "><"[data[at]]
    (code,), at = _take(data, at + 1, f"{order}I")
    plain = code & 0x1FFFFFFF
    if plain % 1000 not in range(1, 8) or plain // 1000 > 3:
        raise _Wrong(Status.UNSUPPORTED)
    dimensions = plain // 1000 | (code >> 31 & 1) | (code >> 30 & 1) << 1
    if code & 0x20000000:
        _, at = _take(data, at, "4x")
    kind = plain % 1000
    if whole and kind != whole - 3:
        raise _Wrong(Status.MALFORMED)
    vertex = f"{order}{len(AXES[dimensions])}d"

    def run(count: int, begin: int) -> tuple[tuple[Any, ...], int]:
        if count * struct.calcsize(vertex) > len(data) - begin:
            raise _Wrong(Status.MALFORMED)
        found = []
        for _ in range(count):
            each, begin = _take(data, begin, vertex)
            found.append(each)
        return tuple(found), begin

    inside: list[Any] = []
    if kind == POINT:
        vertices, at = run(1, at)
        return Geometry(kind, dimensions, vertices), at
    (count,), at = _take(data, at, f"{order}I")
    if kind == LINE:
        vertices, at = run(count, at)
        return Geometry(kind, dimensions, vertices), at
    if kind == COLLECTION and count and depth == DEEPEST:
        raise _Wrong(Status.TOO_DEEP)
    for _ in range(count):
        if kind == POLYGON:
            (size,), at = _take(data, at, f"{order}I")
            ring, at = run(size, at)
            inside.append(ring)
        else:
            part, at = _decode(data, at, depth + 1, 0 if kind == COLLECTION else kind)
            inside.append(part)
    return Geometry(kind, dimensions, tuple(inside)), at


Ranges = dict[str, tuple[float, float]]


def ranges(geometries: list[Geometry]) -> Ranges:
    """Return the least and the greatest of each coordinate, NaN skipped."""
    found: dict[str, list[float]] = {}
    for geometry in geometries:
        for axes, vertex in _named(geometry):
            for axis, value in zip(axes, vertex, strict=True):
                if not math.isnan(value):
                    found.setdefault(axis, []).append(value)
    return {axis: (min(values), max(values)) for axis, values in found.items()}


def _named(geometry: Geometry) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield vertices with the names of their coordinates: parts may have other dimensions than the whole."""
    if geometry.kind > POLYGON:
        for part in geometry.inside:
            yield from _named(part)
    else:
        for vertex in geometry.vertices():
            yield AXES[geometry.dimensions], vertex


def box(found: Ranges) -> bow.geo.Box | None:
    """Return the box that the specification wants."""
    if "x" not in found or "y" not in found:
        return None
    return bow.geo.Box(
        **{f"{axis}{side}": pair[k] for axis, pair in found.items() for k, side in enumerate(("min", "max"))}
    )


# Strategies.

FINITE = st.floats(-1e6, 1e6) | st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1.7e308, -1.7e308])
ANY = FINITE | st.sampled_from([math.nan, math.inf, -math.inf, -math.nan])


def styles() -> st.SearchStrategy[Style]:
    return st.builds(Style, st.sampled_from("<>"), st.booleans(), st.none() | st.integers(0, 2**32 - 1))


@st.composite
def geometries(draw: Any, numbers: Any = FINITE, kinds: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7)) -> Geometry:
    """Geometries that GEOS reads: lines have no or two vertices, rings are closed."""
    return _drawn(draw, draw(st.sampled_from(kinds)), draw(st.integers(0, 3)), numbers, 3)


def _drawn(draw: Any, kind: int, dimensions: int, numbers: Any, depth: int) -> Geometry:
    vertex = st.tuples(*(numbers for _ in AXES[dimensions]))
    if kind == POINT:
        return Geometry(kind, dimensions, (draw(vertex),) if draw(st.integers(0, 4)) else ())
    if kind == LINE:
        return Geometry(kind, dimensions, tuple(draw(st.just([]) | st.lists(vertex, min_size=2, max_size=5))))
    if kind == POLYGON:
        rings = draw(st.lists(st.lists(vertex, min_size=3, max_size=5), max_size=2))
        return Geometry(kind, dimensions, tuple((*ring, ring[0]) for ring in rings))
    parts = range(draw(st.integers(0, 3)))
    kinds = [kind - 3 if kind < COLLECTION else draw(st.integers(1, 7 if depth else 6)) for _ in parts]
    return Geometry(
        kind, dimensions, tuple(_drawn(draw, each, dimensions, numbers, depth - 1) for each in kinds)
    )
