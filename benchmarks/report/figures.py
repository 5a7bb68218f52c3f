"""The plot and the table that documents show: made from one result file, and held to it by a test.

``python -m bowstring.benchmarks.report.figures [RESULT.json]`` (``make figures``) rewrites the marked block of
``docs/benchmarks.md`` and draws the plot beside it, from the file that the block names, or from another one.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bowstring.benchmarks import document
from bowstring.benchmarks.report import plots, series
from bowstring.benchmarks.table import duration, ratio

PAGE: Final = "docs/benchmarks.md"
IMAGE: Final = "docs/images/benchmarks.png"
RESULTS: Final = "benchmarks/results"
_MARKED: Final = re.compile(r"<!-- figures of (\S+): begin -->\n(.*?)<!-- figures: end -->", re.DOTALL)
_CASE: Final = "hand_over"
_SUBJECT: Final = "bowstring"


def marked(text: str) -> tuple[str, str]:
    """Return the file that a page's block names, and the block."""
    found = _MARKED.search(text)
    if found is None:
        raise ValueError("the page has no block of figures")
    return found[1], found[2]


def rewritten(text: str, file: str, inside: str) -> str:
    """Return a page whose block names a file, and says what `block` made of it."""
    fresh = f"<!-- figures of {file}: begin -->\n{inside}<!-- figures: end -->"
    return _MARKED.sub(lambda _found: fresh, text)


def fingerprint(result: Mapping[str, Any]) -> str:
    """Return what a plot keeps of the result that it was drawn from."""
    [case] = _cases(result)
    return hashlib.sha256(json.dumps(case, sort_keys=True).encode()).hexdigest()


def _cases(result: Mapping[str, Any]) -> list[Any]:
    return [case for case in result["cases"] if case["name"] == _CASE]


def _plot(result: Mapping[str, Any]) -> series.LinePlot:
    [case] = _cases(result)
    return next(plot for plot in series.line_plots(case) if plot.axis == "bytes")


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Draw the rates of all ways to hand over a table, over its size."""
    plot = _plot(result)
    path.parent.mkdir(parents=True, exist_ok=True)
    title = f"From a table ({plot.panel}) in one process to every byte read in another"
    plots.save(plots.draw_lines(plot, title), str(path), fingerprint(result))


def block(result: Mapping[str, Any], file: str) -> str:
    """Return what stands between the marks: where it is from, the plot, and a table with a row for each size."""
    about = result["environment"]
    machine = f"{about['cpu']}, {about['cores_allowed']} cores"
    lines = [
        f"Measured on {machine}, at commit `{about['commit'][:12]}` ([all samples](../{RESULTS}/{file})).",
        "",
        f"![Rates of handing over a table, over its size]({IMAGE.removeprefix('docs/')})",
        "",
        *_rows(result),
    ]
    return "\n".join(lines) + "\n"


def _rows(result: Mapping[str, Any]) -> Iterator[str]:
    [case] = _cases(result)
    line_ups = [line_up for line_up in case["line_ups"] if line_up.get("ways")]
    others = [way["name"] for way in line_ups[0]["ways"] if way["name"] != _SUBJECT]
    yield f"| table | Bowstring | {' | '.join(f'speed against {name}' for name in others)} |"
    yield "|---" * (2 + len(others)) + "|"
    for line_up in line_ups:
        ways = {way["name"]: way for way in line_up["ways"]}
        ours = ways[_SUBJECT]
        cells = [_speed(ours, ways[name]) for name in others]
        yield f"| {line_up['name']} | {duration(ours['median'])} | {' | '.join(cells)} |"


def _speed(ours: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return how many times as fast one way is as another; in brackets where their spreads overlap."""
    said = f"{ratio(other['median'] / ours['median'])} ×"
    apart = ours["high"] < other["low"] or other["high"] < ours["low"]
    return said if apart else f"({said})"


def main(arguments: Sequence[str]) -> int:
    """Make the figures anew."""
    root = Path(__file__).resolve().parents[2]
    page = root / PAGE
    text = page.read_text(encoding="utf-8")
    file = Path(arguments[0]).name if arguments else marked(text)[0]
    result = document.read(root / RESULTS / file)
    page.write_text(rewritten(text, file, block(result, file)), encoding="utf-8")
    draw(result, root / IMAGE)
    print(f"{PAGE} and {IMAGE} show {RESULTS}/{file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
