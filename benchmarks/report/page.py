"""One HTML page with tables and plots, from the JSON of a run alone."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from bowstring.benchmarks.report import plots, series
from bowstring.benchmarks.table import comparison, duration, environment_lines

_STYLE: Final = """\
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem }
h2 { margin-top: 3rem; border-top: 1px solid #ddd; padding-top: 1rem }
h3 { margin: 1.5rem 0 .3rem; font-size: 1rem }
table { border-collapse: collapse; font-size: .85rem } th, td { padding: .15rem .7rem .15rem 0; text-align: right }
th:first-child, td:first-child { text-align: left } tr.subject td:first-child { font-weight: 600; color: #0072b2 }
tr.floor td { color: #777 } th { border-bottom: 1px solid #aaa; font-weight: 600 } img { max-width: 100% }
dt { float: left; clear: left; width: 7rem; color: #777 } dd { margin: 0 0 .2rem 7.5rem } .doubt { color: #999 }
pre { background: #f6f6f6; padding: .7rem; overflow-x: auto; font-size: .8rem } .warn { color: #b00 }
"""
_HEADINGS: Final = ("", "n", "median", "spread", "95 %", "99 %", "first", "GB/s", "× baseline", "of floor")


def write_report(result: Mapping[str, Any], folder: Path) -> Path:
    """Write ``index.html`` and the PNGs that it shows into a folder; return the page."""
    folder.mkdir(parents=True, exist_ok=True)
    body = "\n".join(_page(result, folder))
    page = folder / "index.html"
    page.write_text(body, encoding="utf-8")
    return page


def _page(result: Mapping[str, Any], folder: Path) -> Iterator[str]:
    text = html.escape
    yield '<!doctype html><html lang="en"><meta charset="utf-8"><title>Bowstring benchmarks</title>'
    yield f"<style>{_STYLE}</style><h1>Bowstring benchmarks</h1>"
    yield f"<pre>{text(' '.join(result['command']))}\n{text(result['started'])}\n"
    yield f"{text(chr(10).join(environment_lines(result['environment'])))}</pre>"
    if not result["complete"]:
        yield '<p class="warn">The run was interrupted: some cases are missing.</p>'
    if result["quick"]:
        yield '<p class="warn">A quick run: small data and few rounds. Rely on figures of <code>--full</code>.</p>'
    yield (
        "<p>Medians of samples taken in turn. The spread is the middle half of the samples, or all where there are "
        "fewer than eight; where spreads overlap, a comparison is inconclusive. Every byte was checked.</p>"
    )
    yield from _overview(result, folder)
    for case in result["cases"]:
        yield from _case(case, folder)
    yield "</html>"


def _overview(result: Mapping[str, Any], folder: Path) -> Iterator[str]:
    bars = [bar for case in result["cases"] for bar in _main_bars(case)]
    if bars:
        yield "<h2>Beside what you would use instead</h2>"
        yield _image(plots.draw_ratios(bars, "the largest data of each case"), folder, "overview", "overview")


def _main_bars(case: Mapping[str, Any]) -> list[series.Bar]:
    """Return what stands for a case: Bowstring's first way in the last line-up of the first panel."""
    found = series.ratio_bars(case)
    panels = {line_up["name"]: line_up.get("panel") for line_up in case["line_ups"]}
    alike = [bar for bar in found if panels[bar.line_up] == panels[found[0].line_up]]
    last = [bar for bar in alike if bar.line_up == alike[-1].line_up][:1]
    return [bar._replace(line_up=f"{case['name']}, {bar.line_up}") for bar in last]


def _case(case: Mapping[str, Any], folder: Path) -> Iterator[str]:
    text, name = html.escape, case["name"]
    yield f'<h2 id="{text(name)}">{text(name)}: {text(case["title"])}</h2><dl>'
    for title, said in case["explanation"].items():
        if said:
            yield f"<dt>{text(title)}</dt><dd>{text(said)}</dd>"
    yield "</dl>"
    yield from _plots(case, folder)
    for line_up in case["line_ups"]:
        yield from _line_up(line_up)


def _plots(case: Mapping[str, Any], folder: Path) -> Iterator[str]:
    name = case["name"]
    for number, plot in enumerate(series.line_plots(case)):
        title = f"{name}: {plot.panel}" if plot.panel else name
        yield _image(plots.draw_lines(plot, title), folder, f"{name}-{number}-{plot.axis}", title)
    rows = series.percentiles(case)
    for number, line_up in enumerate(dict.fromkeys(row.line_up for row in rows)):
        title = f"{name}, latency: {line_up}"
        drawn = plots.draw_percentiles([row for row in rows if row.line_up == line_up], title)
        yield _image(drawn, folder, f"{name}-latency-{number}", title)
    traces = series.memory_traces(case)
    for number, line_up in enumerate(dict.fromkeys(trace.line_up for trace in traces)):
        held = [trace for trace in traces if trace.line_up == line_up]
        yield _image(
            plots.draw_memory(held, f"{name}: {line_up}"), folder, f"{name}-memory-{number}", line_up
        )
    if bars := series.ratio_bars(case):
        title = f"{name}: beside baselines"
        yield _image(plots.draw_ratios(bars, title), folder, f"{name}-ratios", title)


def _image(figure: Any, folder: Path, name: str, about: str) -> str:
    file = re.sub(r"[^a-z0-9_-]+", "-", name.lower()) + ".png"
    plots.save(figure, str(folder / file), about)
    return f'<p><img src="{file}" alt="{html.escape(about, quote=True)}"></p>'


def _line_up(line_up: Mapping[str, Any]) -> Iterator[str]:
    text = html.escape
    yield f"<h3>{text(line_up['name'])}</h3>"
    if "skipped" in line_up:
        yield f"<p>skipped: {text(line_up['skipped'])}</p>"
        return
    if "failed" in line_up:
        what = "wrong bytes" if line_up["wrong_bytes"] else "failed"
        yield f'<p class="warn">{what}: {text(line_up["failed"])}</p>'
        return
    yield "<table><tr>" + "".join(f"<th>{each}</th>" for each in _HEADINGS) + "</tr>"
    for way in line_up["ways"]:
        rate, floor = way["median_rate"], way["speed_to_floor"]
        doubt = ' class="doubt"' if way["verdict"] in ("inconclusive", "too small to judge") else ""
        cells = (
            *(f"<td>{text(each)}</td>" for each in (way["name"], str(way["n"]), duration(way["median"]))),
            f"<td>{duration(way['low'])} – {duration(way['high'])}</td>",
            *(f"<td>{duration(way[each])}</td>" for each in ("p95", "p99", "first")),
            f"<td>{'' if rate is None else f'{rate / 1e9:.3g}'}</td>",
            f"<td{doubt}>{text(comparison(way))}</td>",
            f"<td>{'' if floor is None else f'{floor:.0%}'}</td>",
        )
        yield f'<tr class="{way["role"]}">{"".join(cells)}</tr>'
    yield "</table>"
