"""Plots by matplotlib. Each function draws what `series` found in a document, and returns a figure."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final

from bowstring.benchmarks.data.tables import size_name
from bowstring.benchmarks.report.series import Bar, LinePlot, Quantiles, Series, Trace
from bowstring.benchmarks.table import duration, ratio
from bowstring.errors import MissingDependency

_SUBJECT: Final = "#0072b2"
_BASELINE: Final = "#d55e00"
_FLOOR: Final = "#777777"
# For everybody's eyes: Okabe and Ito.
_OTHERS: Final = ("#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#4d4d9f")
_MARKERS: Final = "osDv^<>PX"
_DOUBT: Final = "#bbbbbb"
_WIDTH: Final = 7.5
_ROW: Final = 0.3
_LINE: Final = 0.12
# In characters: a line of the title, and of the name of a row.
_TITLE: Final = 80
_LABEL: Final = 60
_DPI: Final = 120
_NAMES: Final = {
    "bytes": "size",
    "columns": "columns",
    "rows": "rows",
    "batches": "batches",
    "cores": "cores",
    "readers": "readers at once",
}
_UNITS: Final = {
    "bytes/second": (1e9, "GB/s (payload, 10⁹ bytes)"),
    "1/second": (1.0, "times a second"),
    "seconds": (1e-3, "milliseconds"),
}


def _figure(height: float) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependency(
            "plots need matplotlib",
            expected="the package matplotlib",
            found="not installed",
            hint='pip install "bowstring[bench]"',
        ) from error
    # A figure by itself: no display, and no state that others share.
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _entitle(figure: Any, title: str) -> None:
    """Write a title over the whole width, on as many lines as it needs."""
    lines = textwrap.fill(title, _TITLE)
    figure.suptitle(lines, x=0.01, horizontalalignment="left", fontsize=10, fontweight="bold")


def _labelled(axes: Any, places: Sequence[int], labels: Sequence[str]) -> None:
    """Name the rows of a plot, in full: on as many lines as a name needs."""
    axes.set_yticks(places, [textwrap.fill(label, _LABEL) for label in labels], fontsize=7)


def _rows_of(labels: Sequence[str]) -> tuple[Any, Any]:
    """Return a figure with a row for each label, as high as the longest of them needs."""
    lines = max(len(textwrap.wrap(label, _LABEL)) for label in labels)
    return _figure(1.1 + max(_ROW, _LINE * (lines + 0.5)) * len(labels))


def save(figure: Any, path: str, about: str) -> None:
    """Write a figure as a PNG, the same for the same data; `about` is kept in it."""
    figure.savefig(path, dpi=_DPI, metadata={"Software": None, "Description": about})


class _Colours:
    """One look for each name, by its role, so that Bowstring is blue in all plots."""

    def __init__(self) -> None:
        self._others = itertools.cycle(_OTHERS)
        self._subjects = itertools.cycle((_SUBJECT, "#56b4e9", "#003f5c", "#6f9fd8"))
        self._markers = itertools.cycle(_MARKERS)
        self._baselines = itertools.chain([_BASELINE], self._others)

    def of(self, role: str) -> dict[str, Any]:
        if role == "floor":
            return {"color": _FLOOR, "linestyle": "--", "linewidth": 1.4}
        colour = next({"subject": self._subjects, "baseline": self._baselines}.get(role, self._others))
        width = 2.2 if role == "subject" else 1.4
        return {"color": colour, "marker": next(self._markers), "markersize": 5, "linewidth": width}


def draw_lines(plot: LinePlot, title: str) -> Any:
    """Draw rates or times over an axis, with spreads, and with the floor as a dashed line."""
    figure, axes = _figure(4.2)
    scale, label = _UNITS[plot.unit]
    colours = _Colours()
    for series in plot.series:
        look = colours.of(series.role)
        at = [point.at for point in series.points]
        name = series.name + " (floor)" * (series.role == "floor")
        axes.plot(at, [point.median / scale for point in series.points], label=name, **look)
        low, high = ([getattr(point, end) / scale for point in series.points] for end in ("low", "high"))
        if len(at) > 1:
            axes.fill_between(at, low, high, color=look["color"], alpha=0.15, linewidth=0)
        else:
            axes.vlines(at, low, high, color=look["color"], alpha=0.5)
    if plot.axis == "cores":
        _draw_ideal(axes, plot.series, scale)
    _ticks(axes, plot)
    axes.set_xlabel(_NAMES[plot.axis])
    axes.set_ylabel(label)
    _entitle(figure, title)
    axes.legend(fontsize=8, frameon=False, loc="best")
    return figure


def _draw_ideal(axes: Any, series: Sequence[Series], scale: float) -> None:
    """Draw what the first subject would do if cores added up."""
    first = next((each.points for each in series if each.role == "subject"), None)
    if first:
        at = [point.at for point in first]
        axes.plot(
            at,
            [first[0].median / scale * each / at[0] for each in at],
            color="#aaaaaa",
            linestyle=":",
            label="in proportion",
        )


def _ticks(axes: Any, plot: LinePlot) -> None:
    places = sorted({point.at for each in plot.series for point in each.points})
    axes.set_yscale("log")
    if plot.axis == "cores":
        axes.set_yscale("linear")
        axes.set_ylim(bottom=0)
    else:
        axes.set_xscale("log", base=2 if plot.axis == "bytes" else 10)
    shown = [size_name(int(at)) if plot.axis == "bytes" else f"{at:,.0f}" for at in places]
    axes.set_xticks(places, shown)
    axes.minorticks_off()
    values = [
        value / _UNITS[plot.unit][0] for each in plot.series for point in each.points for value in point[1:]
    ]
    if plot.axis != "cores":
        ticks = list(_round_numbers(min(values), max(values)))
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])


def _round_numbers(low: float, high: float, digits: Sequence[int] = (1, 2, 5)) -> Iterable[float]:
    """Yield some digits, times powers of ten, around a range."""
    power = 1e-9
    while power <= high * 10:
        for digit in digits:
            if low / 2.6 <= digit * power <= high * 2.6:
                yield digit * power
        power *= 10


def draw_ratios(bars: Sequence[Bar], title: str) -> Any:
    """Draw how many times as fast as its baseline each way is; grey where that says nothing."""
    baselines = {bar.baseline for bar in bars}
    names = [f"{bar.line_up}: {bar.way}" + f" / {bar.baseline}" * (len(baselines) > 1) for bar in bars]
    figure, axes = _rows_of(names)
    places = range(len(bars), 0, -1)
    sound = {"faster", "slower"}
    colours = [
        _DOUBT if bar.verdict not in sound else _SUBJECT if bar.verdict == "faster" else _BASELINE
        for bar in bars
    ]
    axes.barh(places, [bar.speed for bar in bars], color=colours, height=0.7)
    for place, bar in zip(places, bars, strict=True):
        doubt = "" if bar.verdict in sound else f" ({bar.verdict})"
        axes.text(max(bar.speed, 0), place, f" {ratio(bar.speed)} ×{doubt}", va="center", fontsize=7)
    _labelled(axes, places, names)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    speeds = [bar.speed for bar in bars]
    low, fastest = min(0.5, *speeds) / 1.3, max(2.0, *speeds)
    high = fastest * max(5.0, (fastest / low) ** 0.5)  # a third of the width is for the words behind a bar
    axes.set_xlim(low, high)
    digits = (1,) if high / low > 1000 else (1, 2, 5)
    ticks = [tick for tick in _round_numbers(low, high, digits) if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=7)
    axes.minorticks_off()
    beside = baselines.pop() if len(baselines) == 1 else "the baseline"
    axes.set_xlabel(textwrap.fill(f"times as fast as {beside}", _LABEL), fontsize=8)
    _entitle(figure, title)
    return figure


def draw_percentiles(rows: Sequence[Quantiles], title: str) -> Any:
    """Draw the 5th to the 99th percentile of each way, the middle half as a box and the median as a line."""
    names = [row.way for row in rows]
    figure, axes = _rows_of(names)
    places = range(len(rows), 0, -1)
    colours = {"subject": _SUBJECT, "baseline": _BASELINE, "floor": _FLOOR, "beside": _OTHERS[0]}
    for place, row in zip(places, rows, strict=True):
        colour = colours[row.role]
        axes.hlines(place, row.p5, row.p95, color=colour, linewidth=1.2)
        axes.hlines(place, row.p95, row.p99, color=colour, linewidth=1, linestyle=":")
        axes.barh(place, row.high - row.low, left=row.low, height=0.5, color=colour, alpha=0.4)
        axes.vlines(row.median, place - 0.35, place + 0.35, color=colour, linewidth=2)
        axes.plot([row.p99], [place], marker="|", color=colour)
        axes.text(row.p99, place, f"  {duration(row.median)}", va="center", fontsize=7)
    _labelled(axes, places, names)
    axes.set_xscale("log")
    low, high = min(row.p5 for row in rows), max(row.p99 for row in rows)
    ticks = list(_round_numbers(low, high))
    axes.set_xticks(
        ticks, [duration(tick).replace(".00", "").replace(".0 ", " ") for tick in ticks], fontsize=7
    )
    axes.set_xlim(low / 1.3, high * 2.5)
    axes.minorticks_off()
    axes.set_xlabel("5th to 95th percentile; box: the middle half; dotted to the 99th", fontsize=8)
    _entitle(figure, title)
    return figure


def draw_memory(traces: Sequence[Trace], title: str) -> Any:
    """Draw the bytes held over time."""
    figure, axes = _figure(3.6)
    colours = _Colours()
    for trace in traces:
        look = {
            name: value for name, value in colours.of(trace.role).items() if not name.startswith("marker")
        }
        at = [at for at, _ in trace.points]
        axes.plot(at, [held / (1 << 20) for _, held in trace.points], label=trace.way, **look)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("MiB held")
    _entitle(figure, title)
    axes.legend(fontsize=8, frameon=False)
    return figure
