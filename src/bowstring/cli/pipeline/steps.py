"""What the pipeline does now, on stderr: a line for each step with a bar, and nothing where nobody looks."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TextIO

from bowstring.cli.tables import wants_rich
from bowstring.cli.text import duration

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["Advance", "Steps", "steps"]

Advance = Callable[[int, int], None]
"""Takes how much is done, and of how much."""

_LOOK_SECONDS: Final = 0.1
_LOOK_END_SECONDS: Final = 5.0


class Steps:
    """Steps, one after the other. This one shows nothing."""

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[Advance]:  # noqa: ARG002  those that show something say what
        """Show a step for the time of a ``with`` block."""
        yield _nothing

    @contextlib.contextmanager
    def jobs(self, what: str, spark: Any) -> Iterator[None]:
        """Show a step that Spark works on, and how many of its tasks are done."""
        ended = threading.Event()
        with self.step(what) as advance:
            if advance is _nothing:
                yield
                return
            watch = threading.Thread(target=_watch, args=(spark, advance, ended), daemon=True)
            watch.start()
            try:
                yield
            finally:
                ended.set()
                watch.join(_LOOK_END_SECONDS)


@contextlib.contextmanager
def steps(*, quiet: bool = False) -> Iterator[Steps]:
    """Show steps for the time of a ``with`` block.

    Parameters
    ----------
    quiet
        Show nothing, terminal or not.

    Examples
    --------
    >>> with steps(quiet=True) as shown, shown.step("Reading") as advance:
    ...     advance(1, 2)
    """
    if quiet or not sys.stderr.isatty():
        yield Steps()
        return
    # Spark is started with its output in a file: what is shown has a way to the terminal of its own.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8") as terminal:
        if not wants_rich(sys.stderr):
            yield _Lines(terminal)
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[done]}", markup=False),
            TimeElapsedColumn(),
        )
        # What other code prints meanwhile goes its own way.
        with Progress(
            *columns, console=Console(file=terminal), redirect_stdout=False, redirect_stderr=False
        ) as bars:
            yield _Bars(bars)


class _Bars(Steps):
    """Steps with bars."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[Advance]:
        task = self._bars.add_task(what, total=None, done="")
        parts = 0

        def advance(done: int, total: int) -> None:
            nonlocal parts
            parts = total
            self._bars.update(task, completed=done, total=total, done=f"{done:,} of {total:,}")

        yield advance
        shown = f"{parts:,} of {parts:,}" if parts else ""
        self._bars.update(task, completed=parts or 1, total=parts or 1, done=shown)


class _Lines(Steps):
    """Steps in words, where there is a terminal and no `rich`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[Advance]:
        began = time.perf_counter()
        self._stream.write(f"{what} … ")
        self._stream.flush()
        yield _nothing
        self._stream.write(f"{duration(time.perf_counter() - began)}\n")
        self._stream.flush()


def _nothing(_done: int, _total: int) -> None:
    pass


def _watch(spark: Any, advance: Advance, ended: threading.Event) -> None:
    """Show how many tasks of the stages that run are done, until the step has ended."""
    tracker = spark.sparkContext.statusTracker()
    seen: dict[int, tuple[int, int]] = {}
    while not ended.wait(_LOOK_SECONDS):
        # A bar is no reason to fail: Spark may be about to stop.
        with contextlib.suppress(Exception):
            active = list(tracker.getActiveStageIds())
            for stage in active:
                if (info := tracker.getStageInfo(stage)) is not None:
                    seen[stage] = (info.numCompletedTasks, info.numTasks)
            # What is active no more has ended.
            done = sum(came if stage in active else of for stage, (came, of) in seen.items())
            if seen:
                advance(done, sum(of for _, of in seen.values()))
