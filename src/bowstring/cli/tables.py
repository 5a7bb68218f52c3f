"""Tables on the terminal: with `rich` where it is installed and somebody looks, plain otherwise."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import TextIO

from bowstring.cli.text import shown

__all__ = ["print_table", "wants_rich"]


def wants_rich(stream: TextIO) -> bool:
    """Whether a stream is a terminal, and `rich` is there to draw on it."""
    return stream.isatty() and importlib.util.find_spec("rich") is not None


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: Sequence[int] = (),
    title: str | None = None,
    stream: TextIO | None = None,
) -> None:
    """Print a table.

    Parameters
    ----------
    headings
        One per column; none where all are empty.
    rows
        Cells, which are printed as text.
    right
        Columns that are aligned on the right: numbers.
    title
        What stands above.
    stream
        Standard output by default.

    Examples
    --------
    >>> print_table(["Carrier", "Flights"], [["UA", 3], ["WN", 12]], right=[1])
    Carrier  Flights
    ────────────────
    UA             3
    WN            12
    """
    stream = sys.stdout if stream is None else stream
    cells = [[shown(cell) for cell in row] for row in rows]
    if wants_rich(stream):
        _print_rich(headings, cells, right, title, stream)
        return
    if title:
        print(title, file=stream)
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    lines = [_line(row, widths, right) for row in cells]
    if any(headings):
        heading = _line(headings, widths, right)
        rule = "─" * max(sum(widths) + 2 * (len(widths) - 1), 0)
        lines = [heading, rule, *lines]
    print("\n".join(lines), file=stream)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    aligned = [
        cell.rjust(width) if index in right else cell.ljust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(aligned).rstrip()


def _print_rich(
    headings: Sequence[str],
    cells: Sequence[Sequence[str]],
    right: Sequence[int],
    title: str | None,
    stream: TextIO,
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(title) if title else None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD if any(headings) else None,
        show_header=any(headings),
        header_style="bold",
        pad_edge=False,
        show_edge=False,
    )
    for index, heading in enumerate(headings):
        table.add_column(Text(heading), justify="right" if index in right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console(file=stream, highlight=False).print(table)
