"""A page and its plots come from the JSON alone."""

from __future__ import annotations

import builtins
import html
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bowstring.benchmarks import main
from bowstring.benchmarks.case import Case, Explanation, LineUp, Measured, Scale, Skipped, Way
from bowstring.benchmarks.document import case_document, document, write
from bowstring.benchmarks.environment import environment
from bowstring.benchmarks.measuring import measure_case
from bowstring.benchmarks.report.page import write_report
from bowstring.benchmarks.report.series import line_plots, memory_traces, percentiles, ratio_bars
from bowstring.errors import MissingDependency


def way(name: str, role: Any, seconds: float, nbytes: int | None, *references: str, **more: Any) -> Way:
    trace = more.pop("memory", ())
    return Way(name, role, lambda: Measured(seconds, "", "", None, trace), nbytes, *references, **more)


def line_ups(_scale: Scale) -> Iterator[LineUp | Skipped]:
    for size in (1 << 20, 1 << 24):
        ways = (
            way("ours", "subject", size / 2e9, size, "<other>", "memcpy"),
            way("<other>", "baseline", size / 1e9, size),
            way("memcpy", "floor", size / 4e9, size),
        )
        yield LineUp(f"a, {size}", ways, 10, panel="floats", at={"bytes": size})
    for cores in (1, 2):
        yield LineUp(f"cores {cores}", (way("ours", "subject", 1 / cores, None),), 10, at={"cores": cores})
    columns = tuple(
        way(f"decode {n}", "subject", n / 1000, None, series="decode", at={"columns": n})
        for n in (10, 100, 1000)
    )
    yield LineUp("columns", columns, 10)
    held = [(0.0, 100), (1.0, 1 << 20)]
    yield LineUp("slow", (way("ours", "subject", 1.0, None, memory=held),), 2)
    yield Skipped("large", "needs <more> memory")


CASE = Case("exa&mple", "an <example>", line_ups, Explanation("a <thing>", "b", "c", "d"))


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    """Return a document with a case of every kind."""
    case = case_document(CASE, list(measure_case(CASE, Scale())))
    return document(["import", "--quick"], Scale(quick=True), "2026-01-01", environment(), [case])


def test_line_ups_become_lines(result: dict[str, Any]) -> None:
    """Bytes over seconds over sizes, with the floor; calls a second over cores; seconds over columns."""
    plots = {plot.axis: plot for plot in line_plots(result["cases"][0])}
    assert {axis: plot.unit for axis, plot in plots.items()} == {
        "bytes": "bytes/second",
        "cores": "1/second",
        "columns": "seconds",
    }
    sizes = plots["bytes"]
    assert sizes.panel == "floats"
    assert {each.name: each.role for each in sizes.series} == {
        "ours": "subject",
        "<other>": "baseline",
        "memcpy": "floor",
    }
    assert [(at, round(rate)) for at, _, rate, _ in sizes.series[0].points] == [
        (1 << 20, 2_000_000_000),
        (1 << 24, 2_000_000_000),
    ]
    assert [point.median for point in plots["cores"].series[0].points] == [1, 2]
    [decode] = plots["columns"].series
    assert [point.median for point in decode.points] == [0.01, 0.1, 1]


def test_what_else_is_drawn(result: dict[str, Any]) -> None:
    """Ratios to baselines, percentiles where there are enough samples without payload, and memory over time."""
    [case] = result["cases"]
    assert [(bar.way, bar.baseline, bar.speed, bar.verdict) for bar in ratio_bars(case)] == [
        ("ours", "<other>", 2.0, "faster")
    ] * 2
    assert {row.line_up for row in percentiles(case)} == {"cores 1", "cores 2", "columns"}
    [trace] = memory_traces(case)
    assert trace.points == [(0.0, 100), (1.0, 1 << 20)]


def test_every_name_is_written_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long names are and however far apart speeds, no text of a plot is shortened or outside of it."""
    names = [f"{'a name of many words ' * 6}{number}" for number in range(3)]
    ways = [
        way(names[0], "subject", 1e-3, None, names[1]),
        way(names[1], "baseline", 1e-1, None),
        way(names[2], "subject", 10.0, None, names[1]),
    ]
    long_one = Case(
        "long",
        names[2],
        lambda _scale: (each for each in [LineUp(f"all {names[0]}", tuple(ways), 10, panel=names[1])]),
        Explanation("a", "b", "c", "d"),
    )
    case = case_document(long_one, list(measure_case(long_one, Scale())))
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_args, **_options: figures.append(figure))
    write_report(document(["long"], Scale(), "2026-01-01", environment(), [case]), tmp_path)
    assert len(figures) == 3
    for figure in figures:
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        [axes] = figure.axes
        [heading] = [each for each in figure.texts if each.get_text()]
        labels = [*axes.get_yticklabels(), axes.xaxis.label, *axes.texts, heading]
        for label in labels:
            place = label.get_window_extent(canvas.get_renderer())
            assert figure.bbox.x0 <= place.x0 <= place.x1 <= figure.bbox.x1, label.get_text()
            assert figure.bbox.y0 <= place.y0 <= place.y1 <= figure.bbox.y1, label.get_text()
        said = " ".join(" ".join(each.get_text().split()) for each in labels)
        assert names[0] in said
        assert "…" not in said


class Page(HTMLParser):
    """What a browser would see of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.images: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("example", "thing", "other", "more")
        if tag == "img":
            self.images.append(str(dict(attrs)["src"]))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_shows_all_and_needs_no_network(tmp_path: Path, result: dict[str, Any]) -> None:
    """Every image of the page lies beside it, text is escaped, and nothing is loaded from elsewhere."""
    source = write_report(result, tmp_path / "report").read_text()
    page = Page(source)
    files = {path.name for path in (tmp_path / "report").iterdir()}
    assert files == {*page.images, "index.html"}
    assert len(page.images) == 9
    for name in page.images:
        assert (tmp_path / "report" / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert not re.search(r"https?:|<script", source)
    for said in ("an <example>", "a <thing>", "<other>", "skipped: needs <more> memory", "A quick run"):
        assert said in page.text
        assert html.escape(said, quote=False) in source


def test_the_same_data_make_the_same_plots(tmp_path: Path, result: dict[str, Any]) -> None:
    """Two reports of one result are equal, byte for byte."""
    one, other = (write_report(result, tmp_path / name).parent for name in ("one", "other"))
    for path in one.iterdir():
        assert path.read_bytes() == (other / path.name).read_bytes()


def test_a_file_is_enough(tmp_path: Path, result: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """``report`` makes the page of a file."""
    write(tmp_path / "result.json", result)
    assert main(["report", str(tmp_path / "result.json"), str(tmp_path / "page")]) == 0
    assert f"report: {tmp_path / 'page' / 'index.html'}" in capsys.readouterr().out


def test_without_matplotlib_the_report_says_what_to_install(
    tmp_path: Path, result: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where matplotlib is missing, the error names the extra."""
    imported = builtins.__import__

    def refuse(name: str, *others: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return imported(name, *others)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingDependency, match=r"matplotlib") as failed:
        write_report(result, tmp_path)
    assert "bowstring[bench]" in str(failed.value.hint)
