"""Draws the pictures of the documentation as SVG, for light and dark pages: ``python scripts/docs/pictures.py``."""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Final

from bowstring.benchmarks.data.tables import size_name
from bowstring.benchmarks.table import duration

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "images"
_STYLE: Final = """\
  <style>
    text { font: 14px system-ui, "DejaVu Sans", sans-serif; fill: #1f2328 }
    .title { font-weight: 600 }
    .small { font-size: 12px; fill: #59636e }
    .on { fill: #ffffff }
    .memory { fill: #0a7d6c }
    .process { fill: #3a6ea5 }
    .box { fill: none; stroke: #8c959f; stroke-width: 1.5 }
    .line { stroke: #8c959f; stroke-width: 1.5; fill: none }
    .bytes { stroke: #0a7d6c; stroke-width: 6; fill: none }
    .event { stroke: #d1242f; stroke-width: 1.5; stroke-dasharray: 4 3 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .small { fill: #9198a1 }
      .on { fill: #ffffff }
      .box, .line { stroke: #6e7681 }
      .event { stroke: #ff7b72 }
    }
  </style>"""


class Picture:
    """Shapes on a page of some size, in pixels."""

    def __init__(self, width: int, height: int, description: str) -> None:
        self._size = width, height
        self._description = description
        self._shapes: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """Write a line of text; `y` is that of its foot."""
        marks = f' class="{kind}"' if kind else ""
        self._shapes.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}"{marks}>{escape(words)}</text>')

    def bar(self, x: float, y: float, width: float, words: str, kind: str) -> None:
        """Draw a filled bar with words on it."""
        self._shapes.append(f'<rect x="{x}" y="{y}" width="{width}" height="30" rx="4" class="{kind}"/>')
        self.text(x + 10, y + 20, words, "on")

    def box(self, x: float, y: float, width: float, height: float) -> None:
        """Draw a frame."""
        self._shapes.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="box"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """Draw a line; one of bytes, or of messages, has a head at its end."""
        self._shapes.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{kind}"/>')
        if kind != "event":
            half = 7 if kind == "bytes" else 4
            fill = "memory" if kind == "bytes" else "line"
            head = f"{x2},{y2 - half} {x2 + 2 * half},{y2} {x2},{y2 + half}"
            self._shapes.append(f'<polygon points="{head}" class="{fill}"/>')

    def later(self, x: float, y: float, words: str, kind: str, seconds: float) -> None:
        """Write a line of text that appears some seconds after the picture."""
        delay = f'style="animation-delay: {seconds:.1f}s"'
        self.add(f'<text x="{x}" y="{y}" class="{kind} later" {delay}>{escape(words)}</text>')

    def add(self, shape: str) -> None:
        """Add an element."""
        self._shapes.append(shape)

    def __str__(self) -> str:
        width, height = self._size
        shapes = "\n".join(f"  {each}" for each in self._shapes)
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        return f"{head}>\n  <title>{escape(self._description)}</title>\n{_STYLE}\n{shapes}\n</svg>\n"


def lifetime() -> Picture:
    """Who holds the memory of a table, from publish to the end of the last view."""
    picture = Picture(860, 300, "Who holds the memory of a published table, and when it is freed")
    events = [
        (150, "publish"),
        (290, "connect"),
        (430, "producer ends"),
        (590, "stream closed"),
        (750, "last view gone"),
    ]
    for x, words in events:
        picture.line(x, 40, x, 244, "event")
        picture.text(x, 28, words, "small", "middle")
    rows = [
        ("producer", [(150, 430, "Server", "process")]),
        ("shared memory", [(150, 750, "the bytes of the table, copied once by publish", "memory")]),
        ("reader", [(290, 590, "Stream", "process")]),
        ("", [(330, 750, "Batch, NumPy array, pyarrow table: views", "process")]),
        ("late reader", []),
    ]
    for number, (name, bars) in enumerate(rows):
        y = 54 + 50 * number
        picture.text(10, y + 20, name, "title")
        for begin, end, words, kind in bars:
            picture.bar(begin, y, end - begin, words, kind)
    picture.text(440, 274, "connect() fails: the name ended with its producer", "small")
    picture.text(760, 120, "freed", "small")
    return picture


def travels() -> Picture:
    """What crosses between producer and reader on each transport."""
    picture = Picture(860, 430, "What travels between a producer and a reader on each transport")
    rows = [
        ("unix:", "one machine, one user", "schema, lengths, a descriptor", "both map the same memory"),
        ("tcp:  tls:", "other users and machines", "schema, lengths", "bytes, once, straight into place"),
        (
            "ucx:",
            "RDMA, NVLink, TCP",
            "schema, lengths, maybe addresses and keys",
            "sent, or read by the reader",
        ),
        (
            "grpc: (Flight)",
            "any Arrow client",
            "list, schema, locations",
            "DoGet, or one of the ways above",
        ),
    ]
    for number, (scheme, place, metadata, body) in enumerate(rows):
        y = 14 + 104 * number
        picture.box(200, y, 120, 84)
        picture.text(260, y + 48, "producer", "", "middle")
        picture.box(730, y, 120, 84)
        picture.text(790, y + 48, "reader", "", "middle")
        picture.text(10, y + 38, scheme, "title")
        picture.text(10, y + 58, place, "small")
        picture.line(320, y + 24, 718, y + 24, "line")
        picture.text(525, y + 18, metadata, "small", "middle")
        if scheme == "unix:":
            picture.bar(330, y + 44, 390, "", "memory")
            picture.text(525, y + 64, body, "on", "middle")
        else:
            picture.line(320, y + 60, 714, y + 60, "bytes")
            picture.text(525, y + 50, body, "small", "middle")
    return picture


RESULT: Final = ROOT / "benchmarks" / "results" / "epyc-2-cores-tools.json"
_WAYS: Final = {
    "bowstring": ("Bowstring", "#0a7d6c"),
    "Ray's object store": ("Ray", "#b34e00"),
    "Arrow file in shared memory": ("Arrow file", "#3a6ea5"),
    "IPC in multiprocessing.shared_memory": ("SharedMemory", "#6f55a3"),
    "IPC stream over a socket": ("socket", "#7a6a00"),
    "pickle over a pipe": ("pickle", "#57606a"),
    "Parquet file in shared memory": ("Parquet file", "#57606a"),
    "Arrow Flight": ("Flight", "#a3456f"),
}


def tools() -> Picture:
    """Which way is the fastest for a table of some size and some readers, as the case `tools` measured it."""
    [case] = json.loads(RESULT.read_text("utf-8"))["cases"]
    measured = [(each["ways"][0]["at"], each["ways"]) for each in case["line_ups"] if each.get("ways")]
    sizes = sorted({at["bytes"] for at, _ in measured})
    readers = sorted({at["readers"] for at, _ in measured})
    width, height = 184, 66
    about = "The fastest way to hand a table over, by its size and the number of its readers"
    picture = Picture(112 + (width + 4) * len(sizes), 30 + (height + 4) * len(readers), about)
    for column, size in enumerate(sizes):
        picture.text(112 + (width + 4) * column + width / 2, 18, size_name(size), "title", "middle")
    for row, number in enumerate(readers):
        words = f"{number} reader{'s' * (number > 1)}"
        picture.text(10, 30 + (height + 4) * row + height / 2 + 5, words, "title")
    for at, ways in measured:
        fastest, *others = sorted(ways, key=lambda way: way["median"])
        name, colour = _WAYS[fastest["name"]]
        x, y = (
            112 + (width + 4) * sizes.index(at["bytes"]),
            30 + (height + 4) * readers.index(at["readers"]),
        )
        picture.add(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{colour}"/>')
        picture.text(x + 10, y + 20, name, "title on")
        alike = [_WAYS[each["name"]][0] for each in others if each["low"] <= fastest["high"]]
        if alike:
            picture.text(x + 10, y + 38, f"or {', '.join(alike[:2])}", "small on")
        times = [f"{duration(fastest['median'])}"]
        times += [f"Bowstring {duration(each['median'])}" for each in others if each["name"] == "bowstring"]
        picture.text(x + 10, y + 56, "; ".join(times), "small on")
    return picture


_TERMINAL: Final = """<style>
    .screen { fill: #161b22; stroke: #6e7681 }
    .terminal { font: 12.5px ui-monospace, "DejaVu Sans Mono", monospace; fill: #e6edf3; white-space: pre }
    .typed { fill: #7ee2cf }
    .bar { fill: #9198a1; font-size: 12px }
    @media (prefers-reduced-motion: no-preference) {
      .later { opacity: 0; animation: appear 0.1s forwards }
      @keyframes appear { to { opacity: 1 } }
    }
  </style>"""


def two_terminals() -> Picture:
    """What the two programs of the README print, line by line, as the README says and a test has it."""
    readme = (ROOT / "README.md").read_text("utf-8")
    block = re.search(r"In two terminals.*?```text\n(.*?)```", readme, re.DOTALL)
    assert block is not None
    lines = block[1].splitlines()
    middle = lines[0].rindex("$ ")
    producer, consumer = (
        [line[part].rstrip() for line in lines] for part in (slice(0, middle), slice(middle, None))
    )
    picture = Picture(860, 150, "Two terminals: one publishes a table, the other reads it without a copy")
    picture.add(_TERMINAL)
    # In the order in which they appear: the producer's last line comes when the consumer has ended.
    shown = [
        *((0, line) for line in producer[:2]),
        *((1, line) for line in consumer),
        *((0, line) for line in producer[2:]),
    ]
    for side, name in enumerate(("producer", "consumer")):
        picture.add(f'<rect x="{4 + 430 * side}" y="4" width="422" height="142" rx="8" class="screen"/>')
        picture.text(215 + 430 * side, 24, name, "bar", "middle")
    heights = [54, 54]
    for number, (side, line) in enumerate(shown):
        kind = "terminal typed" if line.startswith("$") else "terminal"
        picture.later(16 + 430 * side, heights[side], line, kind, 0.4 + 0.9 * number)
        heights[side] += 24
    return picture


def logo() -> Picture:
    """A drawn bow and its string, for the head of each page of the site."""
    picture = Picture(24, 24, "Bowstring")
    picture.add(
        '<path d="M7 2 C20 6 20 18 7 22" fill="none" stroke="#5fd0bd" stroke-width="2.4" stroke-linecap="round"/>'
    )
    picture.add(
        '<path d="M7 2 L4 12 L7 22" fill="none" stroke="#8c959f" stroke-width="1.4" stroke-linejoin="round"/>'
    )
    picture.add('<path d="M4 12 H20" fill="none" stroke="#8c959f" stroke-width="1.4"/>')
    picture.add('<path d="M23 12 L18.5 9.6 V14.4 Z" fill="#5fd0bd"/>')
    return picture


def main() -> None:
    """Draw all pictures."""
    pictures = {
        "lifetime": lifetime(),
        "logo": logo(),
        "tools": tools(),
        "travels": travels(),
        "two-terminals": two_terminals(),
    }
    for name, picture in pictures.items():
        (FOLDER / f"{name}.svg").write_text(str(picture), "utf-8")


if __name__ == "__main__":
    main()
