"""The box and the types of a million points, and of polygons, beside vectorised shapely on one core."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, Final

import numpy as np
import pyarrow as pa

from bowstring import geo
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Skipped, Target, Way
from bowstring.benchmarks.data.payload import read_every_byte
from bowstring.benchmarks.processes import cores
from bowstring.columnar.batch import Batch, Column

_SEED: Final = 23
_POINTS: Final = 1_000_000
_POLYGONS: Final = 50_000
_VERTICES: Final = 64
_QUICK: Final = 20
_SUBJECT: Final = "bowstring, one core"
_TIMES: Final = 10

Found = tuple[float, float, float, float]


def _column(rows: np.ndarray[Any, Any]) -> Column:
    """Return an array of packed records as a column of WKB."""
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(rows.dtype.itemsize)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(rows.tobytes())]
    return Batch.from_arrow({"where": pa.Array.from_buffers(pa.binary(), len(rows), buffers)})[0]


def _points(count: int) -> tuple[Column, Found]:
    places = np.random.default_rng(_SEED).uniform(-180, 180, (count, 2))
    rows = np.zeros(count, [("order", "u1"), ("code", "<u4"), ("place", "<f8", 2)])
    rows["order"], rows["code"], rows["place"] = 1, 1, places
    return _column(rows), _sides(places)


def _polygons(count: int) -> tuple[Column, Found]:
    rng = np.random.default_rng(_SEED)
    turns = np.linspace(0, 2 * np.pi, _VERTICES)
    circle = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    circle[-1] = circle[0]  # rings are closed
    places = rng.uniform(-170, 170, (count, 1, 2)) + circle * rng.uniform(0.1, 5, (count, 1, 1))
    rows = np.zeros(
        count,
        [
            ("order", "u1"),
            ("code", "<u4"),
            ("rings", "<u4"),
            ("size", "<u4"),
            ("ring", "<f8", (_VERTICES, 2)),
        ],
    )
    rows["order"], rows["code"], rows["rings"], rows["size"], rows["ring"] = 1, 3, 1, _VERTICES, places
    return _column(rows), _sides(places.reshape(-1, 2))


def _sides(places: np.ndarray[Any, Any]) -> Found:
    (xmin, ymin), (xmax, ymax) = places.min(axis=0).tolist(), places.max(axis=0).tolist()
    return xmin, ymin, xmax, ymax


def _ours(column: Column, sides: Found, code: int, threads: int | None) -> Measured:
    with cores.threads(threads):
        begin = time.perf_counter()
        found = geo.statistics(column)
        seconds = time.perf_counter() - begin
    box = found.bbox
    sent = f"{sides}, {(code,)}"
    return Measured(seconds, sent, f"{box and (box.xmin, box.ymin, box.xmax, box.ymax)}, {found.types}")


def _bounds(column: Column, sides: Found) -> Measured:
    with cores.threads(1):
        begin = time.perf_counter()
        found = geo.bounds(column)
        seconds = time.perf_counter() - begin
    children = [found.child(name).to_numpy() for name in ("xmin", "ymin", "xmax", "ymax")]
    low, high = [float(each.min()) for each in children[:2]], [float(each.max()) for each in children[2:]]
    return Measured(seconds, f"{sides}", f"{(*low, *high)}")


def _shapely(rows: Any, sides: Found) -> Measured:
    import shapely

    begin = time.perf_counter()
    found = shapely.total_bounds(shapely.from_wkb(rows))
    return Measured(time.perf_counter() - begin, str(sides), str(tuple(found.tolist())))


def _floor(data: np.ndarray[Any, Any]) -> Callable[[], Measured]:
    def once() -> Measured:
        begin = time.perf_counter()
        read_every_byte([data])
        return Measured(time.perf_counter() - begin, "", "")

    return once


def _line_ups(scale: Scale) -> Iterator[LineUp | Skipped]:
    if find_spec("shapely") is None:
        yield Skipped("statistics of WKB", "not installed: shapely")
        return
    share = _QUICK if scale.quick else 1
    for name, code, (column, sides) in (
        ("points", 1, _points(_POINTS // share)),
        (f"polygons of {_VERTICES} vertices", 3, _polygons(_POLYGONS // share)),
    ):
        array = column.to_arrow()
        data = np.frombuffer(array.buffers()[2], np.uint8)
        rows = array.to_numpy(zero_copy_only=False)
        yield LineUp(
            f"statistics of {len(column):,} {name}",
            _ways(column, data, rows, sides, code),
            scale.rounds(11, 3),
            (Target(_SUBJECT, "at least", _TIMES, "shapely"),),
            panel=name,
            at={"rows": len(column)},
        )


def _ways(column: Column, data: np.ndarray[Any, Any], rows: Any, sides: Found, code: int) -> tuple[Way, ...]:
    size, floor = data.nbytes, "every byte read"
    return (
        Way(_SUBJECT, "subject", lambda: _ours(column, sides, code, 1), size, "shapely", floor),
        Way("bowstring, all cores", "beside", lambda: _ours(column, sides, code, None), size),
        Way("bounds of each row, one core", "beside", lambda: _bounds(column, sides), size),
        Way("shapely", "baseline", lambda: _shapely(rows, sides), size),
        Way(floor, "floor", _floor(data), size),
    )


CASE: Final = Case(
    "geo",
    "box and types of WKB columns",
    _line_ups,
    Explanation(
        measured=(
            "geo.statistics() of a column of WKB: the box of all geometries and their types; beside it "
            "geo.bounds(), the box of each. Threads bounded to one core, or not."
        ),
        baseline="shapely.from_wkb and total_bounds, vectorised.",
        floor="Every byte of the WKB read.",
        reading=(
            "shapely makes an object of each geometry first: use it where you go on with objects, and these "
            "statistics where you only need the box."
        ),
    ),
)
