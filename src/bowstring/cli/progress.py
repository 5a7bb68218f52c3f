"""A progress bar on stderr: with `rich` where it is installed, plain otherwise, and none where nobody looks."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from bowstring.cli.tables import wants_rich
from bowstring.cli.text import number, size

__all__ = ["Advance", "progress"]

Advance = Callable[[int, int], None]
"""Takes the rows and the bytes that came since the last time."""

_REDRAW_SECONDS = 0.1
_WIDTH = 30


@contextlib.contextmanager
def progress(what: str, rows: int | None, *, quiet: bool = False) -> Iterator[Advance]:
    """Show how far the reading is, for the time of a ``with`` block.

    Parameters
    ----------
    what
        What is read.
    rows
        How many rows there are, where that is known.
    quiet
        Show nothing.

    Examples
    --------
    >>> with progress("trips", 100, quiet=True) as advance:
    ...     advance(60, 480)
    """
    stream = sys.stderr
    if quiet or not stream.isatty():
        yield lambda _rows, _nbytes: None
    elif wants_rich(stream):
        with _rich_bar(what, rows, stream) as advance:
            yield advance
    else:
        bar = PlainBar(what, rows, stream)
        try:
            yield bar.advance
        finally:
            bar.close()


class PlainBar:
    """One line that is written over and over."""

    def __init__(self, what: str, rows: int | None, stream: TextIO) -> None:
        self._what = what
        self._total = rows
        self._stream = stream
        self._rows = self._bytes = 0
        self._drawn = 0.0

    def advance(self, rows: int, nbytes: int) -> None:
        """Count what came."""
        self._rows += rows
        self._bytes += nbytes
        if time.monotonic() - self._drawn >= _REDRAW_SECONDS:
            self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        done = f"{number(self._rows)} rows, {size(self._bytes)}"
        if self._total:
            filled = min(self._rows * _WIDTH // self._total, _WIDTH)
            done = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {done}"
        self._stream.write(f"\r{self._what} {done}\x1b[K")
        self._stream.flush()

    def close(self) -> None:
        """Leave the last state on the terminal."""
        self._draw()
        self._stream.write("\n")


@contextlib.contextmanager
def _rich_bar(what: str, rows: int | None, stream: TextIO) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[done]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(file=stream), transient=False) as bar:
        task = bar.add_task(what, total=rows, done="")
        came = [0, 0]

        def advance(rows: int, nbytes: int) -> None:
            came[0] += rows
            came[1] += nbytes
            bar.update(task, completed=came[0], done=f"{number(came[0])} rows, {size(came[1])}")

        yield advance
        bar.update(task, total=came[0], completed=came[0])
