"""An attempt as the depot sees it: what was lent to it, and what it says it wrote there."""

from __future__ import annotations

import copy
import threading
from typing import TYPE_CHECKING, Any

from bowstring.depot.parts import unpack_parts
from bowstring.depot.rebuilding import Rebuilder
from bowstring.errors import BowstringError, LimitExceeded, ProtocolError, without_frames

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bowstring.limits import Limits
    from bowstring.memory import Region

__all__ = ["Attempt"]


class Attempt:
    """One try of a task to write one partition of a data set.

    Parameters
    ----------
    application, dataset
        Whose it is.
    partition, number
        Which part of the data set, and which try.
    readers
        How many read it before its memory is freed; any number until it is released where it is ``None``.
    folder
        Where files go.
    limits
        Bounds for what it says.
    """

    def __init__(
        self,
        application: str,
        dataset: str,
        *,
        partition: int,
        number: int,
        readers: int | None,
        folder: str,
        limits: Limits,
    ) -> None:
        self.application = application
        self.dataset = dataset
        self.partition = partition
        self.number = number
        self.readers = readers
        self.folder = folder
        self.limits = limits
        self.regions: list[Region] = []
        self.rebuilt = Rebuilder(limits)
        self._lock = threading.Lock()
        self._error: BowstringError | None = None

    def lend(self, region: Region) -> int:
        """Note that a slab was lent; return its number."""
        if len(self.regions) >= self.limits.regions:
            raise LimitExceeded(
                "an attempt borrows too many slabs",
                expected=f"at most {self.limits.regions} (Limits.regions)",
            )
        self.regions.append(region)
        return len(self.regions) - 1

    def hear(self, body: Any) -> None:
        """Take what the attempt says it wrote; what is wrong with it is raised by `check`."""
        if self._error is not None:
            return
        try:
            for part in unpack_parts(body):
                self.rebuilt.take(part, self.regions)
        except BowstringError as error:
            self.fail(error)

    def fail(self, error: BowstringError) -> None:
        """Let the attempt fail with its next request."""
        with self._lock:
            if self._error is None:
                self._error = without_frames(error)

    def check(self) -> None:
        """Raise what went wrong before."""
        if self._error is not None:
            raise copy.copy(self._error) from self._error.__cause__

    def finish(self) -> None:
        """Check that all is there.

        Raises
        ------
        BowstringError
            Something went wrong before, or the schema is missing.
        """
        self.check()
        if self.rebuilt.schema is None:
            raise ProtocolError("an attempt commits without a schema")

    def let_go(self, kept: Iterable[int] | None) -> None:
        """Let go of what was lent.

        Parameters
        ----------
        kept
            The slabs that the writer may still write: nobody writes them after it. ``None`` for all of them.
        """
        for index in range(len(self.regions)) if kept is None else kept:
            if 0 <= index < len(self.regions):
                self.regions[index].retire()
        self.regions = []
        self.rebuilt = Rebuilder(self.limits)
