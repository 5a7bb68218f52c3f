"""What a report draws, out of the document: lines over an axis, ratios, percentiles, memory over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

_AXES: Final = ("bytes", "columns", "rows", "batches", "cores", "readers")
_ENOUGH: Final = 10
"""Samples below which percentiles say nothing."""

Document = Mapping[str, Any]


class Point(NamedTuple):
    """One way at one place: the ends of the spread and the median, of what the plot shows."""

    at: float
    low: float
    median: float
    high: float


class Series(NamedTuple):
    """One line."""

    name: str
    role: str
    points: Sequence[Point]


class LinePlot(NamedTuple):
    """Lines over one axis."""

    panel: str  # what all lines have in common
    axis: str  # what they go over; one of the axes that a case may name
    unit: str  # ``"bytes/second"``, ``"1/second"`` or ``"seconds"``
    series: Sequence[Series]


class Bar(NamedTuple):
    """How many times as fast as its baseline a way is, and what that shows."""

    line_up: str
    way: str
    baseline: str
    speed: float
    verdict: str


class Quantiles(NamedTuple):
    """The samples of one way in short, in seconds."""

    line_up: str
    way: str
    role: str
    p5: float
    low: float
    median: float
    high: float
    p95: float
    p99: float


class Trace(NamedTuple):
    """Bytes that one way held over time: ``(seconds, bytes)``."""

    line_up: str
    way: str
    role: str
    points: Sequence[tuple[float, int]]


def _measured(case: Document) -> Iterator[tuple[Document, Document]]:
    """Yield the line-ups of a case that were measured, with each of their ways."""
    for line_up in case["line_ups"]:
        for way in line_up.get("ways", ()):
            yield line_up, way


def line_plots(case: Document) -> Iterator[LinePlot]:
    """Yield the plots of a case, one for each panel and axis on which two places or more were measured.
    A line is a series. Where line-ups differ in several axes, each plot takes those that agree in the others.
    """
    found: dict[tuple[Any, ...], dict[tuple[str, str], list[Point]]] = {}
    for line_up, way in _measured(case):
        for axis in way["at"]:
            others = tuple(sorted(item for item in way["at"].items() if item[0] != axis))
            unit = _unit(axis, way)
            lines = found.setdefault((line_up["panel"], axis, others, unit), {})
            lines.setdefault((way["series"], way["role"]), []).append(_point(way, axis, unit))
    for (panel, axis, others, unit), lines in found.items():
        series = [Series(*name, sorted(points)) for name, points in lines.items()]
        if len({point.at for each in series for point in each.points}) > 1:
            where = ", ".join(f"{value:,.0f} {name}" for name, value in others)
            yield LinePlot(", ".join(filter(None, (panel, where))), axis, unit, series)


def _unit(axis: str, way: Document) -> str:
    if way["nbytes"] is not None:
        return "bytes/second"
    return "1/second" if axis in ("cores", "readers") else "seconds"


def _point(way: Document, axis: str, unit: str) -> Point:
    low, median, high = way["low"], way["median"], way["high"]
    if unit == "seconds":
        return Point(way["at"][axis], low, median, high)
    amount = way["nbytes"] if unit == "bytes/second" else 1
    return Point(way["at"][axis], amount / high, amount / median, amount / low)


def ratio_bars(case: Document) -> list[Bar]:
    """Return how the ways of Bowstring's compare with their baselines."""
    return [
        Bar(line_up["name"], way["name"], way["baseline"], way["speed_to_baseline"], way["verdict"])
        for line_up, way in _measured(case)
        if way["role"] == "subject" and way["speed_to_baseline"] is not None
    ]


def percentiles(case: Document) -> list[Quantiles]:
    """Return the quantiles of all ways with enough samples that move no payload: those that are about latency."""
    return [
        Quantiles(
            line_up["name"],
            way["name"],
            way["role"],
            *(way[name] for name in ("p5", "low", "median", "high", "p95", "p99")),
        )
        for line_up, way in _measured(case)
        if way["nbytes"] is None and way["n"] >= _ENOUGH
    ]


def memory_traces(case: Document) -> list[Trace]:
    """Return what ways held over time, where they say."""
    return [
        Trace(line_up["name"], way["name"], way["role"], [(at, held) for at, held in way["memory"]])
        for line_up, way in _measured(case)
        if way.get("memory")
    ]
