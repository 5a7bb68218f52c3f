"""How far a publication is: tasks, rows and bytes, for a callback or for the terminal."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any, Final

from bowstring.cli.terminal import number, size, write_over
from bowstring.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bowstring.spark.driver import Driver

# Short ones end before anybody reads it.
_FIRST_SECONDS: Final = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """How far a publication is.

    Attributes
    ----------
    name
        Of the data set; ``None`` without one.
    tasks_done, tasks
        Tasks of Spark's that have ended, and all that are known by now: later stages may add some.
    rows, nbytes
        In the partitions that were committed, on the hosts whose depots this process knows.
    seconds
        Since the publication began.
    """

    name: str | None
    tasks_done: int
    tasks: int
    rows: int
    nbytes: int
    seconds: float

    def __str__(self) -> str:
        """Return one line for people."""
        what = "a data set without a name" if self.name is None else repr(self.name)
        return (
            f"publishing {what}: {number(self.tasks_done)} of {number(self.tasks)} tasks, "
            f"{number(self.rows)} rows, {size(self.nbytes)}, {self.seconds:.0f} s"
        )


def reporter(progress: Any, driver: Driver) -> Callable[[Progress], object] | None:
    """Return what is told of the progress; ``None`` for nobody."""
    if progress is None:
        own = driver.setting("spark.ui.showConsoleProgress") == "true"
        progress = sys.stderr.isatty() and not own
    if progress is True:
        return _Line()
    if progress is False:
        return None
    if not callable(progress):
        raise UsageError("progress is a function, True, False or None", found=repr(progress)[:80])
    return progress  # type: ignore[no-any-return]


class _Line:
    """A line on the terminal that is written over, and wiped out in the end."""

    def __init__(self) -> None:
        self._shown = False

    def __call__(self, progress: Progress) -> None:
        if progress.seconds >= _FIRST_SECONDS:
            self._shown = True
            write_over(str(progress))

    def close(self) -> None:
        if self._shown:
            write_over("")
